package cookbook

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

// AsTheWrapper returns a client with the limits of the guide's wrapper: 5 attempts,
// also after a 429, within 60 seconds. (The client's own defaults try longer after
// a 429.)
func AsTheWrapper(opts ...brellium.ClientOption) (*brellium.Client, error) {
	return brellium.NewClient(append([]brellium.ClientOption{
		brellium.WithMaxRetries(4),               // maxAttempts 5
		brellium.WithTotalTimeout(time.Minute),   // maxTotalMs 60000
		brellium.WithAttemptTimeout(time.Minute), // the client's default is 30 s
	}, opts...)...)
}

// AsAnOfficialClient returns a client that makes as many retries as an official one.
func AsAnOfficialClient(opts ...brellium.ClientOption) (*brellium.Client, error) {
	return brellium.NewClient(append([]brellium.ClientOption{brellium.WithMaxRetries(2)}, opts...)...)
}

// Headers returns an audit and its response headers.
func Headers(ctx context.Context, client *brellium.Client, id string) (*brellium.Audit, http.Header, error) {
	var response brellium.Response
	audit, err := client.Audits.Retrieve(ctx, id, brellium.WithResponseInto(&response))
	return audit, response.Header, err
}

// Request sends a request that has no method, as the wrapper does.
func Request(ctx context.Context, client *brellium.Client) (flags []string, err error) {
	var audit struct {
		Flags []string `json:"flags"`
	}
	body := map[string]any{"flags": []string{"Needs Review"}}
	err = client.Do(ctx, "PATCH", "/v2/audits/a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d", body, &audit, brellium.WithIdempotent())
	return audit.Flags, err
}

// Reason returns what the wrapper's error classes said.
func Reason(err error) string {
	var (
		rejected  *brellium.APIError
		exhausted *brellium.RetriesExhaustedError
		blocked   *brellium.BlockedError
	)
	switch {
	case errors.As(err, &blocked):
		return "blocked"
	case errors.As(err, &exhausted): // before APIError, which it wraps
		return "retries exhausted"
	case errors.As(err, &rejected):
		return "API error " + string(rejected.Code)
	}
	return "no response"
}

func TestMovingFromTheWrapper(t *testing.T) {
	for name, test := range map[string]struct {
		fault    brelliumtest.Fault
		reason   string
		attempts int
	}{
		"rate limited": {brelliumtest.Status(429, "RATE_LIMITED").WithHeader("Retry-After", "1").Forever(), "retries exhausted", 5},
		"server error": {brelliumtest.Status(502, "BAD_GATEWAY").Forever(), "retries exhausted", 5},
		"rejected":     {brelliumtest.Status(422, "OTHER"), "API error OTHER", 1},
		"blocked":      {brelliumtest.Blocked(), "blocked", 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				emulator := brelliumtest.New()
				client, err := AsTheWrapper(emulatorOptions(emulator)...)
				require.NoError(t, err)
				emulator.Inject(brelliumtest.OpAuditRetrieve, test.fault)
				_, _, err = Headers(t.Context(), client, brelliumtest.SampleAuditID)
				assert.Equal(t, test.reason, Reason(err))
				assert.Equal(t, test.attempts, emulator.Count(brelliumtest.OpAuditRetrieve))
			})
		})
	}
	assert.Equal(t, "no response", Reason(context.Canceled))
}

// By default a 429 is retried as often as the total time allows.
func TestDefaultsAfterA429(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		emulator := brelliumtest.New()
		emulator.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(429, "RATE_LIMITED").WithHeader("Retry-After", "1").Times(10))
		client, err := emulator.Client()
		require.NoError(t, err)
		_, err = client.Audits.Retrieve(t.Context(), brelliumtest.SampleAuditID)
		require.NoError(t, err)
	})
}

func TestMovingFromAnOfficialClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		emulator := brelliumtest.New()
		client, err := AsAnOfficialClient(emulatorOptions(emulator)...)
		require.NoError(t, err)
		emulator.Inject(brelliumtest.OpAny, brelliumtest.Status(502, "BAD_GATEWAY").Times(2).When(func(r *brelliumtest.Request) bool {
			return r.Operation == brelliumtest.OpAuditRetrieve
		}))
		audit, header, err := Headers(t.Context(), client, brelliumtest.SampleAuditID)
		require.NoError(t, err)
		assert.NotEmpty(t, header.Get("RateLimit-Remaining"))
		assert.Equal(t, []string{"Failed", "Missing Signature"}, audit.Flags)

		flags, err := Request(t.Context(), client)
		require.NoError(t, err)
		assert.Equal(t, []string{"Needs Review"}, flags)

		// Unlike an official client, this one does not repeat an invitation.
		emulator.Inject(brelliumtest.OpUserCreate, brelliumtest.Status(503, "UNAVAILABLE").Forever())
		_, err = client.Users.Create(t.Context(), brellium.UserCreateParams{Email: "casey@example.test"})
		assert.True(t, brellium.OutcomeUnknown(err))
		assert.Equal(t, 1, emulator.Count(brelliumtest.OpUserCreate))
	})
}

func emulatorOptions(emulator *brelliumtest.Emulator) []brellium.ClientOption {
	return append(credentials(emulator, emulator.BaseURL()), brellium.WithHTTPClient(&http.Client{Transport: emulator.Transport()}))
}
