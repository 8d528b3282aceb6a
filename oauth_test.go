package brellium_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
	"github.com/brellium/brellium-go/internal/testkit"
)

func list(ctx context.Context, c *brellium.Client) error {
	_, err := c.Audits.List(ctx, brellium.AuditListParams{Limit: 1})
	return err
}

// The token endpoint allows 20 tokens, then one every 10 seconds: once the 20
// are used, calls wait for the next one, and none fails.
func TestTokenRevokedEverySecondFailsNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := brelliumtest.New(brelliumtest.WithRateLimit(1e6, 1e6))
		client := testkit.NewClient(t, e, brellium.WithoutRateLimiter())
		start := time.Now()
		go func() {
			time.Sleep(500 * time.Millisecond) // not at the same time as a token request
			for range 59 {
				time.Sleep(time.Second)
				e.RevokeTokens()
			}
		}()
		testkit.Concurrently(t, 200, func(ctx context.Context, _ int) error {
			for time.Since(start) < time.Minute {
				if err := list(ctx, client); err != nil {
					return err
				}
				time.Sleep(rand.N(6 * time.Second))
			}
			return nil
		})
		mints := e.Requests("oauth.token")
		for i, r := range mints {
			assert.Equal(t, 200, r.Status)
			if i > 1 && i < 20 {
				assert.GreaterOrEqual(t, r.Arrived.Sub(mints[i-1].Arrived), 800*time.Millisecond, "one for each revocation")
			}
		}
		assert.InDelta(t, 20+6, len(mints), 1)
	})
}

func TestClientThatIsAlwaysRefusedMintsTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := brelliumtest.New()
		e.Inject("audits.list", brelliumtest.Status(401, "UNAUTHORIZED").Forever())
		client := testkit.NewClient(t, e)
		for range 100 {
			require.ErrorIs(t, list(t.Context(), client), brellium.ErrUnauthorized)
			assert.Equal(t, 2, e.Count("oauth.token"))
			assert.Equal(t, 2, e.Count("audits.list"))
		}
		e.ClearFaults()
		time.Sleep(10 * time.Second)
		require.NoError(t, list(t.Context(), client))
		assert.Equal(t, 3, e.Count("oauth.token"))
	})
}

// Case B12. ktorio/ktor#2864, openai/codex#2699: endless loops on a 401. Tokens
// that are refused long after they were minted are always replaced, so that only
// the call itself can end.
func TestSecond401EndsACall(t *testing.T) {
	testkit.Bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAuditList, brelliumtest.Status(401, "UNAUTHORIZED").Delay(time.Minute).Forever())
		require.ErrorIs(t, list(t.Context(), client), brellium.ErrUnauthorized)
		assert.Equal(t, 2, emu.Count(brelliumtest.OpAuditList))
		assert.Equal(t, 2, emu.Count(brelliumtest.OpTokenCreate))
	}, brellium.WithAttemptTimeout(0), brellium.WithTotalTimeout(time.Hour))
}

// Case B15. golang/oauth2#274, golang/oauth2#441, perses/perses#1837: the other
// shape of an error could not be parsed and hid the reason.
func TestErrorsOfTheTokenEndpointInBothShapes(t *testing.T) {
	for body, want := range map[string]struct {
		status int
		code   brellium.ErrorCode
	}{
		`{"error":"invalid_client","error_description":"no such client"}`:                        {401, "invalid_client"},
		`{"error":"access_denied"}`:                                                              {403, brellium.CodeAccessDenied},
		`{"error":{"type":"invalid_request_error","code":"INVALID_CONTENT_TYPE","message":"m"}}`: {400, brellium.CodeInvalidContentType},
	} {
		testkit.Bubble(t, string(want.code), func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
			emu.Inject(brelliumtest.OpTokenCreate, brelliumtest.Respond(want.status, "application/json", body).Forever())
			testkit.IsAPIError(want.status, want.code)(t, list(t.Context(), client))
			assert.Equal(t, 1, emu.Count(brelliumtest.OpAny), "nothing is retried, and nothing sent to the API")
		})
	}
}

func TestClientsOnOneStoreMintOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := brelliumtest.New(brelliumtest.WithRateLimit(1e6, 1e6))
		store := brellium.NewMemoryTokenStore()
		clients := make([]*brellium.Client, 20)
		for i := range clients {
			var err error
			clients[i], err = e.Client(brellium.WithoutRateLimiter(), brellium.WithTokenStore(store))
			require.NoError(t, err)
		}
		testkit.Concurrently(t, 200, func(ctx context.Context, i int) error { return list(ctx, clients[i%20]) })
		assert.Equal(t, 1, e.Count("oauth.token"))
		e.RevokeTokens()
		testkit.Concurrently(t, 200, func(ctx context.Context, i int) error { return list(ctx, clients[i%20]) })
		assert.Equal(t, 2, e.Count("oauth.token"))
	})
}

// The client has a token, the store a newer one, and both are revoked.
func TestCallIsSentOnceMoreIfTheStoredTokenIsRefusedToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := brelliumtest.New()
		store := brellium.NewMemoryTokenStore()
		one := testkit.NewClient(t, e, brellium.WithTokenStore(store))
		other := testkit.NewClient(t, e, brellium.WithTokenStore(store))
		require.NoError(t, list(t.Context(), one))
		_, err := other.OAuth.CreateToken(t.Context())
		require.NoError(t, err)
		synctest.Wait()
		e.RevokeTokens()
		var resp brellium.Response
		require.NoError(t, testkit.CreateUser(t.Context(), one, brellium.WithMaxRetries(0), brellium.WithResponseInto(&resp)))
		assert.Len(t, resp.Attempts, 3)
		assert.Equal(t, 3, e.Count("oauth.token"))
	})
}

func TestCreateTokenFillsTheResponse(t *testing.T) {
	for name, c := range map[string]struct {
		faults   []brelliumtest.Fault
		attempts []int
	}{
		"success":             {nil, []int{200}},
		"success after retry": {[]brelliumtest.Fault{brelliumtest.Status(503, "UNAVAILABLE")}, []int{503, 200}},
		"failure":             {[]brelliumtest.Fault{brelliumtest.Status(401, "invalid_client")}, []int{401}},
	} {
		testkit.Bubble(t, name, func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
			emu.Inject(brelliumtest.OpTokenCreate, c.faults...)
			response := brellium.Response{StatusCode: 999, Attempts: make([]brellium.Attempt, 9)} // of another call
			token, err := client.OAuth.CreateToken(t.Context(), brellium.WithResponseInto(&response))
			last := c.attempts[len(c.attempts)-1]
			assert.Equal(t, last == 200, err == nil)
			assert.Equal(t, last == 200, token != nil)
			assert.Equal(t, last, response.StatusCode)
			assert.NotEmpty(t, response.RequestID)
			assert.NotEmpty(t, response.Header)
			var statuses []int
			for _, a := range response.Attempts {
				statuses = append(statuses, a.StatusCode)
			}
			assert.Equal(t, c.attempts, statuses)
		})
	}
}

// Calls that share a token request share its token, but one Response has one
// owner: the call that started the request.
func TestCreateTokenFillsTheResponseOfTheCallThatStartedTheRequest(t *testing.T) {
	testkit.Bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpTokenCreate, brelliumtest.OK().DelayResponse(time.Second))
		responses := make([]brellium.Response, 3)
		testkit.Concurrently(t, len(responses), func(ctx context.Context, i int) error {
			time.Sleep(time.Duration(i) * time.Millisecond)
			responses[i].StatusCode = 999
			_, err := client.OAuth.CreateToken(ctx, brellium.WithResponseInto(&responses[i]))
			return err
		})
		assert.Equal(t, 1, emu.Count(brelliumtest.OpTokenCreate))
		assert.Len(t, responses[0].Attempts, 1)
		assert.Equal(t, make([]brellium.Response, 2), responses[1:])
	})
	testkit.Bubble(t, "a call of the API started it", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpTokenCreate, brelliumtest.OK().DelayResponse(time.Second))
		start := time.Now()
		var response brellium.Response
		testkit.Concurrently(t, 2, func(ctx context.Context, i int) error {
			if i == 0 {
				return list(ctx, client)
			}
			time.Sleep(time.Millisecond)
			_, err := client.OAuth.CreateToken(ctx, brellium.WithResponseInto(&response))
			return err
		})
		assert.Equal(t, 2, emu.Count(brelliumtest.OpTokenCreate), "the call made a request of its own")
		assert.Len(t, response.Attempts, 1)
		assert.GreaterOrEqual(t, time.Since(start), time.Second)
	})
}

// The token request goes on without the call. The race detector sees a write to
// its Response.
func TestCreateTokenThatWasCanceledLeavesTheResponseAlone(t *testing.T) {
	testkit.Bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpTokenCreate, brelliumtest.Status(503, "UNAVAILABLE").DelayResponse(time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		var response brellium.Response
		_, err := client.OAuth.CreateToken(ctx, brellium.WithResponseInto(&response))
		var interrupted *brellium.InterruptedError
		require.ErrorAs(t, err, &interrupted)
		response.StatusCode = 999
		time.Sleep(time.Minute)
		assert.Equal(t, brellium.Response{StatusCode: 999}, response)
		assert.Equal(t, 2, emu.Count(brelliumtest.OpTokenCreate))
		require.NoError(t, list(t.Context(), client))
		assert.Equal(t, 2, emu.Count(brelliumtest.OpTokenCreate), "its token is used")
	})
}

// A Retry-After of the token endpoint may be a date far away or not a wait at all.
func TestAbsurdWaitOfTheTokenEndpointHoldsNoCallForLong(t *testing.T) {
	for _, wait := range []string{"1793000000", "86400", "Fri, 31 Dec 2100 23:59:59 GMT", "600"} {
		synctest.Test(t, func(t *testing.T) {
			emu := brelliumtest.New()
			client := testkit.NewClient(t, emu)
			emu.Inject(brelliumtest.OpTokenCreate, testkit.RateLimited(wait))
			limited := func(call func() error) {
				t.Helper()
				start := time.Now()
				err := call()
				assert.Zero(t, time.Since(start))
				var gaveUp *brellium.RetriesExhaustedError
				require.ErrorAs(t, err, &gaveUp)
				assert.Equal(t, "oauth.token", gaveUp.Operation)
				var refused *brellium.APIError
				require.ErrorAs(t, err, &refused)
				assert.Equal(t, 429, refused.StatusCode)
				assert.GreaterOrEqual(t, refused.RetryAfter, 10*time.Minute)
				assert.ErrorIs(t, err, brellium.ErrRateLimited)
				assert.ErrorContains(t, err, "; retry after "+refused.RetryAfter.Round(time.Second).String())
			}
			create := func() error { _, err := client.OAuth.CreateToken(t.Context()); return err }
			for range 4 {
				limited(func() error { return testkit.Retrieve(t.Context(), client) })
				limited(create)
				time.Sleep(time.Minute)
			}
			assert.Equal(t, 1, emu.Count(brelliumtest.OpTokenCreate))
			time.Sleep(time.Minute - 5*time.Second)
			start := time.Now()
			testkit.Concurrently(t, 20, func(ctx context.Context, _ int) error { return testkit.Retrieve(ctx, client) })
			assert.Less(t, time.Since(start), 15*time.Second)
			assert.Equal(t, 2, emu.Count(brelliumtest.OpTokenCreate), "one request")
		})
	}
}

// A token request has a deadline of its own, 20 s after it started. No error of it may
// look like the end of a caller's context.
func TestDeadlineOfAMintIsNotTheCallers(t *testing.T) {
	burst := func(t *testing.T, client *brellium.Client) { // uses up the token endpoint's burst
		for range 20 {
			_, err := client.OAuth.CreateToken(t.Context())
			require.NoError(t, err)
		}
	}
	exhausted := func(t *testing.T, err error) {
		var e *brellium.RetriesExhaustedError
		require.ErrorAs(t, err, &e)
		assert.Equal(t, brellium.ExhaustedTotalTime, e.Reason)
		assert.Equal(t, "oauth.token", e.Operation)
		var cause *brellium.APIError
		require.ErrorAs(t, err, &cause)
		assert.Equal(t, 503, cause.StatusCode)
	}
	late := func(t *testing.T, err error) {
		var e *brellium.ConnectionError
		require.ErrorAs(t, err, &e)
		assert.Equal(t, "oauth.token", e.Operation)
		assert.Equal(t, "no token within the time of a mint", e.Reason)
		assert.ErrorContains(t, e.Err, "a burst of 20 token requests")
	}
	unavailable := brelliumtest.Status(503, "UNAVAILABLE").WithoutRateLimit()
	for name, c := range map[string]struct {
		prepare  func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client)
		took     time.Duration
		requests int
		check    func(*testing.T, error)
	}{
		"in an attempt after a failed one": {func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
			burst(t, client)
			time.Sleep(4 * time.Second) // attempts after 6 s and 16 s
			emu.Inject(brelliumtest.OpTokenCreate, unavailable, brelliumtest.StallHeaders(0).WithoutRateLimit())
		}, 20 * time.Second, 2, exhausted},
		"before the wait for a retry": {func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
			burst(t, client)
			emu.Inject(brelliumtest.OpTokenCreate, unavailable.WithHeader("Retry-After", "12"))
		}, 10 * time.Second, 1, exhausted},
		"before the rate limit allows an attempt": {func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
			emu.Inject(brelliumtest.OpTokenCreate, brelliumtest.Status(429, "RATE_LIMITED").WithHeader("Retry-After", "60"))
			_, err := client.OAuth.CreateToken(t.Context())
			require.ErrorIs(t, err, brellium.ErrRateLimited)
		}, 0, 0, func(t *testing.T, err error) {
			var limited *brellium.APIError
			require.ErrorAs(t, err, &limited)
			assert.Equal(t, time.Minute, limited.RetryAfter)
			assert.ErrorIs(t, err, brellium.ErrRateLimited)
		}},
		"in the first attempt": {func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
			emu.Inject(brelliumtest.OpTokenCreate, brelliumtest.Status(429, "RATE_LIMITED").WithHeader("Retry-After", "16"),
				brelliumtest.StallHeaders(0).WithoutRateLimit())
			_, err := client.OAuth.CreateToken(t.Context())
			require.ErrorIs(t, err, brellium.ErrRateLimited)
		}, 20 * time.Second, 1, late},
	} {
		testkit.Bubble(t, name, func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
			c.prepare(t, emu, client)
			before, start := emu.Count(brelliumtest.OpTokenCreate), time.Now()
			_, err := client.OAuth.CreateToken(t.Context())
			c.check(t, err)
			if e := new(brellium.ConnectionError); errors.As(err, &e) {
				assert.Equal(t, c.requests > 0, e.Sent)
			}
			assert.NotErrorIs(t, err, context.DeadlineExceeded)
			assert.False(t, errors.As(err, new(*brellium.InterruptedError)))
			assert.InDelta(t, c.took.Seconds(), time.Since(start).Seconds(), 1)
			assert.Equal(t, c.requests, emu.Count(brelliumtest.OpTokenCreate)-before)
		})
	}
}
