package brellium_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"time"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

// Read all failed audits, then mark one of them for review. The examples run
// against the emulator. With brellium.NewClient the code is the same.
func Example() {
	client, err := brelliumtest.New().Client() // brellium.NewClient() for the real API
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()

	for audit, err := range client.Audits.All(ctx, brellium.AuditListParams{Flags: []string{"Failed"}}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(audit.AuditID, audit.Status, audit.Flags)
	}

	audit, err := client.Audits.Update(ctx, brelliumtest.SampleAuditID, brellium.AuditUpdateParams{Flags: []string{"Needs Review"}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(audit.Flags)
	// Output:
	// a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d complete [Failed Missing Signature]
	// [Needs Review]
}

// One error handler for any call.
func Example_errors() {
	describe := func(err error) string {
		var (
			invalid *brellium.ValidationError
			blocked *brellium.BlockedError
		)
		switch {
		case err == nil:
			return "ok"
		case errors.As(err, &invalid):
			return "fix the argument " + invalid.Field
		case errors.Is(err, brellium.ErrNotFound):
			return "no such audit"
		case errors.As(err, &blocked):
			return "blocked: send less"
		case brellium.OutcomeUnknown(err):
			return "a write may have taken effect: check before sending it again"
		case brellium.IsTransient(err):
			return "try again later"
		default:
			return err.Error()
		}
	}

	emulator := brelliumtest.New()
	client, err := emulator.Client()
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()

	_, err = client.Audits.Retrieve(ctx, "")
	fmt.Println(describe(err))

	_, err = client.Audits.Retrieve(ctx, "no-such-audit")
	fmt.Println(describe(err))

	emulator.Inject(brelliumtest.OpAny, brelliumtest.Status(503, "UNAVAILABLE").Times(2))
	_, err = client.Audits.Retrieve(ctx, brelliumtest.SampleAuditID, brellium.WithMaxRetries(0))
	fmt.Println(describe(err))

	_, err = client.Users.Create(ctx, brellium.UserCreateParams{Email: "casey@example.test"})
	fmt.Println(describe(err))
	// Output:
	// fix the argument auditID
	// no such audit
	// try again later
	// a write may have taken effect: check before sending it again
}

// NewClient sends nothing, so an invalid option is the only error. Without
// credentials in the options it reads BRELLIUM_CLIENT_ID and
// BRELLIUM_CLIENT_SECRET, or BRELLIUM_ACCESS_TOKEN.
func ExampleNewClient() {
	_, err := brellium.NewClient(
		brellium.WithClientCredentials("client-id", "client-secret"),
		brellium.WithUserAgent("clinic-sync/2.1"),
		brellium.WithTotalTimeout(2*time.Minute),
	)
	fmt.Println(err)

	_, err = brellium.NewClient(
		brellium.WithClientCredentials("client-id", "client-secret"),
		brellium.WithMaxRetries(-1),
	)
	var invalid *brellium.ValidationError
	if errors.As(err, &invalid) {
		fmt.Println(invalid.Field)
	}
	// Output:
	// <nil>
	// WithMaxRetries
}

// Do calls an endpoint that has no method yet.
func ExampleClient_Do() {
	client, err := brelliumtest.New().Client()
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	path := "/v2/audits/" + url.PathEscape(brelliumtest.SampleAuditID)

	var audit struct {
		Status string   `json:"status"`
		Flags  []string `json:"flags"`
	}
	if err := client.Do(ctx, http.MethodGet, path, nil, &audit); err != nil {
		log.Fatal(err)
	}
	fmt.Println(audit.Status, audit.Flags)

	// A write is retried after an unknown outcome only with WithIdempotent.
	body := map[string]any{"flags": []string{"Needs Review"}}
	if err := client.Do(ctx, http.MethodPatch, path, body, &audit, brellium.WithIdempotent()); err != nil {
		log.Fatal(err)
	}
	fmt.Println(audit.Flags)
	// Output:
	// complete [Failed Missing Signature]
	// [Needs Review]
}

// CreateToken fetches a token for use outside of this client. The client itself
// needs no call of it.
func ExampleOAuthService_CreateToken() {
	client, err := brelliumtest.New().Client()
	if err != nil {
		log.Fatal(err)
	}
	token, err := client.OAuth.CreateToken(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(token.Type, time.Until(token.ExpiresAt) > 50*time.Minute)
	fmt.Println(token.Reveal() != "") // printing the token itself hides its value
	// Output:
	// Bearer true
	// true
}

// Without retries the failure itself is returned, for example to a retry
// pipeline of your own.
func ExampleWithMaxRetries() {
	emulator := brelliumtest.New()
	emulator.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(503, "UNAVAILABLE"))
	client, err := emulator.Client(brellium.WithMaxRetries(8)) // for every call of the client
	if err != nil {
		log.Fatal(err)
	}

	_, err = client.Audits.Retrieve(context.Background(), brelliumtest.SampleAuditID,
		brellium.WithMaxRetries(0)) // for this call
	fmt.Println(errors.Is(err, brellium.ErrServer), brellium.IsTransient(err))
	fmt.Println("requests:", emulator.Count(brelliumtest.OpAuditRetrieve))
	// Output:
	// true true
	// requests: 1
}

// The Response has the HTTP side of a call and one record for each attempt. Here
// the token was revoked, so the call was retried with a new one.
func ExampleWithResponseInto() {
	emulator := brelliumtest.New()
	emulator.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.RevokedToken())
	client, err := emulator.Client()
	if err != nil {
		log.Fatal(err)
	}

	var response brellium.Response
	_, err = client.Audits.Retrieve(context.Background(), brelliumtest.SampleAuditID, brellium.WithResponseInto(&response))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(response.StatusCode, response.RequestID != "", response.RateLimit.Remaining)
	for _, attempt := range response.Attempts {
		fmt.Println(attempt.Number, attempt.StatusCode, attempt.Verdict)
	}
	// Output:
	// 200 true 99
	// 1 401 unauthorized
	// 2 200 done
}

// A fixed rate limit for an organization that also runs other software. A call
// whose deadline is too close to wait for its turn fails at once.
func ExampleWithRateLimit() {
	client, err := brelliumtest.New().Client(brellium.WithRateLimit(2, 1.0/60)) // 2 at once, then one a minute
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()

	for range 3 {
		_, err := client.Audits.Retrieve(ctx, brelliumtest.SampleAuditID)
		var interrupted *brellium.InterruptedError
		if errors.As(err, &interrupted) {
			fmt.Println("needs to wait", interrupted.Wait.Round(time.Minute))
			continue
		}
		fmt.Println("error:", err)
	}
	// Output:
	// error: <nil>
	// error: <nil>
	// needs to wait 1m0s
}

// Two clients of one organization share one limiter, so that they count as one
// and do not have to discover each other.
func ExampleWithRateLimiter() {
	limiter := new(brellium.AdaptiveLimiter)
	emulator := brelliumtest.New()
	for range 2 {
		client, err := emulator.Client(brellium.WithRateLimiter(limiter))
		if err != nil {
			log.Fatal(err)
		}
		if _, err := client.Audits.Retrieve(context.Background(), brelliumtest.SampleAuditID); err != nil {
			log.Fatal(err)
		}
		fmt.Println(client.RateLimit().Remaining, limiter.State().Mode)
	}
	// Output:
	// 99 alone
	// 98 alone
}

// Five workers, each with a fixed share of the organization's limit.
func ExampleSplitRateLimit() {
	burst, perSecond, err := brellium.SplitRateLimit(5)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(burst, perSecond)

	_, err = brellium.NewClient(
		brellium.WithClientCredentials("client-id", "client-secret"),
		brellium.WithRateLimit(burst, perSecond),
	)
	fmt.Println(err)
	// Output:
	// 20 1
	// <nil>
}

// Send everything through a proxy. Without WithHTTPClient the client uses the
// proxy of the environment (HTTPS_PROXY), as net/http does.
func ExampleDefaultTransport() {
	emulator := brelliumtest.New()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("proxy:", r.Method, r.URL.Host)
		emulator.Handler().ServeHTTP(w, r)
	}))
	defer proxy.Close()
	proxyURL, err := url.Parse(proxy.URL)
	if err != nil {
		log.Fatal(err)
	}

	transport := brellium.DefaultTransport()
	transport.Proxy = http.ProxyURL(proxyURL)
	client, err := brellium.NewClient(
		brellium.WithHTTPClient(&http.Client{Transport: transport}),
		brellium.WithBaseURL("http://localhost:8080"), // leave it out for the real API
		brellium.WithClientCredentials(emulator.ClientID, emulator.ClientSecret),
	)
	if err != nil {
		log.Fatal(err)
	}
	audit, err := client.Audits.Retrieve(context.Background(), brelliumtest.SampleAuditID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(audit.Status)
	// Output:
	// proxy: POST localhost:8080
	// proxy: GET localhost:8080
	// complete
}

// Trust a certificate authority of your own, such as that of a gateway.
func ExampleDefaultTransport_certificateAuthority() {
	emulator := brelliumtest.New()
	gateway := httptest.NewTLSServer(emulator.Handler())
	defer gateway.Close()

	authorities := x509.NewCertPool() // or x509.SystemCertPool()
	authorities.AddCert(gateway.Certificate())
	transport := brellium.DefaultTransport()
	transport.TLSClientConfig.RootCAs = authorities
	client, err := brellium.NewClient(
		brellium.WithHTTPClient(&http.Client{Transport: transport}),
		brellium.WithBaseURL(gateway.URL),
		brellium.WithClientCredentials(emulator.ClientID, emulator.ClientSecret),
	)
	if err != nil {
		log.Fatal(err)
	}
	audit, err := client.Audits.Retrieve(context.Background(), brelliumtest.SampleAuditID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(audit.Status)
	// Output: complete
}

// At level Warn the client logs each call that failed, without the server's
// message. At Debug it also logs each attempt and each wait.
func ExampleWithLogger() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		Level: slog.LevelWarn,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if slices.Contains([]string{slog.TimeKey, "request_id", "duration", "remaining"}, a.Key) {
				return slog.Attr{} // they differ in each run
			}
			return a
		},
	}))
	emulator := brelliumtest.New()
	emulator.Inject(brelliumtest.OpAuditUpdate, brelliumtest.Status(422, "INVALID_FLAG").WithMessage("no flag Jane Doe"))
	client, err := emulator.Client(brellium.WithLogger(logger))
	if err != nil {
		log.Fatal(err)
	}

	params := brellium.AuditUpdateParams{Flags: []string{"Jane Doe"}}
	_, err = client.Audits.Update(context.Background(), brelliumtest.SampleAuditID, params)
	logger.Error("review failed", "error", err) // log errors as attributes: the message is left out here too
	// Output:
	// level=WARN msg="brellium call end" operation=audits.update method=PATCH path=/v2/audits/{audit_id} attempts=1 status=422 code=INVALID_FLAG verdict=rejected reason="status 422"
	// level=ERROR msg="review failed" error.operation=audits.update error.status=422 error.type=invalid_request_error error.code=INVALID_FLAG
}

// An observer receives the same facts as values.
func ExampleWithObserver() {
	observer := brellium.ObserverFunc(func(ctx context.Context, e brellium.Event) context.Context {
		if e.Kind == brellium.EventAttemptEnd {
			fmt.Println(e.Operation, e.StatusCode, e.Verdict)
		}
		return ctx
	})
	emulator := brelliumtest.New()
	emulator.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.RevokedToken())
	client, err := emulator.Client(brellium.WithObserver(observer))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := client.Audits.Retrieve(context.Background(), brelliumtest.SampleAuditID); err != nil {
		log.Fatal(err)
	}
	// Output:
	// oauth.token 200 done
	// audits.retrieve 401 unauthorized
	// oauth.token 200 done
	// audits.retrieve 200 done
}

// Branch on the code of an error response. Send its request id to Brellium's
// support.
func ExampleAPIError() {
	client, err := brelliumtest.New().Client()
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	invite := brellium.UserCreateParams{Email: "casey@example.test"}
	for range 2 {
		_, err = client.Users.Create(ctx, invite)
	}

	var apiErr *brellium.APIError
	if errors.As(err, &apiErr) {
		fmt.Println(apiErr.Operation, apiErr.StatusCode, apiErr.Code == brellium.CodeInvitationPending)
		fmt.Println("request id:", apiErr.RequestID != "")
	}
	fmt.Println(errors.Is(err, brellium.ErrConflict))
	// Output:
	// users.create 409 true
	// request id: true
	// true
}

// A write may have taken effect although its response was lost. UserService.Ensure
// resolves this for users.
func ExampleOutcomeUnknown() {
	emulator := brelliumtest.New()
	emulator.Inject(brelliumtest.OpUserCreate, brelliumtest.DropAfter()) // the response is lost
	client, err := emulator.Client()
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()

	_, err = client.Users.Create(ctx, brellium.UserCreateParams{Email: "casey@example.test"})
	if brellium.OutcomeUnknown(err) {
		// Create did not retry, since that could invite twice. Check first.
		page, err := client.Users.List(ctx, brellium.UserListParams{Email: "casey@example.test"})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("created:", len(page.Data) == 1)
	}
	fmt.Println("invitations:", emulator.Invitations("casey@example.test"))
	// Output:
	// created: true
	// invitations: 1
}

func ExampleWithoutServerMessages() {
	emulator := brelliumtest.New()
	client, err := emulator.Client(brellium.WithoutServerMessages())
	if err != nil {
		log.Fatal(err)
	}
	emulator.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(404, "NOT_FOUND").WithMessage("no audit of Casey Example").WithHeader("X-Request-Id", "req-1"))

	_, err = client.Audits.Retrieve(context.Background(), brelliumtest.SampleAuditID)
	fmt.Println(err)
	// Output: brellium: audits.retrieve: 404 NOT_FOUND (request id req-1)
}

// A job queue keeps what may succeed later and drops what will not.
func ExampleIsTransient() {
	emulator := brelliumtest.New()
	emulator.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(502, "BAD_GATEWAY"))
	client, err := emulator.Client(brellium.WithMaxRetries(0))
	if err != nil {
		log.Fatal(err)
	}
	for _, id := range []string{brelliumtest.SampleAuditID, "no-such-audit"} {
		_, err := client.Audits.Retrieve(context.Background(), id)
		if brellium.IsTransient(err) {
			fmt.Println("keep the job")
		} else if err != nil {
			fmt.Println("drop the job")
		}
	}
	// Output:
	// keep the job
	// drop the job
}

// The server asks to wait for two minutes. That exceeds the total time of 60 s, so
// the call fails at once.
func ExampleRetryAfter() {
	emulator := brelliumtest.New()
	emulator.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(429, "RATE_LIMITED").WithHeader("Retry-After", "120"))
	client, err := emulator.Client()
	if err != nil {
		log.Fatal(err)
	}

	_, err = client.Audits.Retrieve(context.Background(), brelliumtest.SampleAuditID)
	if wait, ok := brellium.RetryAfter(err); ok {
		fmt.Println("try again in", wait)
	}
	var exhausted *brellium.RetriesExhaustedError
	if errors.As(err, &exhausted) {
		fmt.Println(exhausted.Reason == brellium.ExhaustedTotalTime, exhausted.Attempts)
	}
	// Output:
	// try again in 2m0s
	// true 1
}

// After the second 403 without JSON in a row, the client stops sending for a
// while.
func ExampleBlockedError() {
	emulator := brelliumtest.New()
	emulator.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Blocked().Times(2))
	client, err := emulator.Client()
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		_, err = client.Audits.Retrieve(context.Background(), brelliumtest.SampleAuditID)
		var blocked *brellium.BlockedError
		if errors.As(err, &blocked) {
			fmt.Println("stopped:", !blocked.RetryAt.IsZero())
		}
	}
	fmt.Println("requests:", emulator.Count(brelliumtest.OpAuditRetrieve))
	// Output:
	// stopped: false
	// stopped: true
	// stopped: true
	// requests: 2
}
