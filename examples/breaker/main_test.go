package main

import (
	"bytes"
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

func TestOpenBreakerIsNotRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		require.NoError(t, breakerBelowRetries(t.Context(), &out))
		assert.Equal(t, `A circuit breaker below the client's retries:
  4 attempts, open: true, may have run: false
  1 attempts, open: true, may have run: false
  requests received by the server: 3
  later: error <nil>, breaker closed
`, out.String())
	})
}

func TestLibraryRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		start := time.Now()
		require.NoError(t, libraryRetries(t.Context(), &out))
		assert.Equal(t, `Retries of failsafe-go instead of the client's:
  an audit after 3 requests: complete
  an invitation: may have run: true, invitations: 1
`, out.String())
		assert.GreaterOrEqual(t, time.Since(start), 2*time.Second, "never earlier than the server asked")
	})
}

func TestTooLongWaitEndsTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		emulator := brelliumtest.New()
		emulator.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(429, "RATE_LIMITED").WithHeader("Retry-After", "60"))
		client, err := emulator.Client(brellium.WithMaxRetries(0))
		require.NoError(t, err)
		start := time.Now()
		_, err = failsafe.With(retryPolicy[*brellium.Audit]()).Get(func() (*brellium.Audit, error) {
			return client.Audits.Retrieve(t.Context(), brelliumtest.SampleAuditID)
		})
		assert.ErrorIs(t, err, brellium.ErrRateLimited)
		assert.Zero(t, time.Since(start))
	})
}

// With an open breaker the outcome of a write is known, the call takes no time,
// and it is not charged to the rate limit.
func TestOpenBreakerSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		emulator := brelliumtest.New()
		breaker := newBreaker()
		client, err := emulator.Client(brellium.WithHTTPClient(&http.Client{Transport: &breakerTransport{emulator.Transport(), breaker}}))
		require.NoError(t, err)
		_, err = client.OAuth.CreateToken(t.Context())
		require.NoError(t, err)
		breaker.Open()
		start := time.Now()
		_, err = client.Users.Create(t.Context(), brellium.UserCreateParams{Email: "casey@example.test"}, brellium.WithMaxRetries(5))
		assert.Zero(t, time.Since(start))
		assert.ErrorIs(t, err, circuitbreaker.ErrOpen)
		assert.ErrorIs(t, err, brellium.ErrDoNotSend)
		assert.False(t, brellium.OutcomeUnknown(err))
		assert.Zero(t, emulator.Count(brelliumtest.OpUserCreate))
		assert.Equal(t, 100, emulator.Remaining())
	})
}

func TestCanceledCallsDoNotOpenTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		emulator := brelliumtest.New()
		emulator.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.StallHeaders(0).Forever())
		breaker := newBreaker()
		client, err := emulator.Client(brellium.WithHTTPClient(&http.Client{Transport: &breakerTransport{emulator.Transport(), breaker}}))
		require.NoError(t, err)
		for range 5 {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			_, err := client.Audits.Retrieve(ctx, brelliumtest.SampleAuditID)
			assert.ErrorIs(t, err, context.Canceled)
		}
		assert.True(t, breaker.IsClosed())
	})
}
