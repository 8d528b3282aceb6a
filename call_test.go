package brellium_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
	"github.com/brellium/brellium-go/internal/testkit"
)

// hashicorp/nomad#10301, hashicorp/go-tfe#1416
func TestHeadersOfConcurrentCallsDoNotMix(t *testing.T) {
	var n atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			_, _ = io.WriteString(w, `{"user_id":"a"}`)
			return
		}
		id, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/v2/audits/"))
		assert.NoError(t, err)
		var job []string
		if id%4 != 0 {
			job = []string{strconv.Itoa(id)}
		}
		assert.Equal(t, job, r.Header["X-Job"])
		assert.Equal(t, id%12 == 3, r.Header.Get("X-Third") != "")
		assert.Equal(t, "application/json", r.Header.Get("Accept"))
		assert.NotContains(t, r.Header, "Content-Type")
		if n.Add(1)%2 == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintf(w, `{"audit_id":"%d"}`, id)
	}))
	defer server.Close()
	client := testkit.NewTokenClient(t, brellium.WithBaseURL(server.URL), brellium.WithoutRateLimiter())
	require.NoError(t, testkit.CreateUser(t.Context(), client)) // sends a Content-Type
	var calls sync.WaitGroup
	for id := range 100 {
		calls.Go(func() {
			opts := []brellium.CallOption{brellium.WithMaxRetries(id % 2)}
			if id%4 != 0 { // the others use the client's own headers
				opts = append(opts, brellium.WithHeader("x-job", strconv.Itoa(id)))
			}
			if id%12 == 3 {
				opts = append(opts, brellium.WithHeader("X-Third", "yes"))
			}
			var resp brellium.Response
			_, err := client.Audits.Retrieve(t.Context(), strconv.Itoa(id), append(opts, brellium.WithResponseInto(&resp))...)
			assert.LessOrEqual(t, len(resp.Attempts), 1+id%2)
			assert.Equal(t, err == nil, resp.StatusCode == 200)
		})
	}
	calls.Wait()
	n.Store(1)
	_, err := client.Audits.Retrieve(t.Context(), "7", brellium.WithHeader("X-Job", "7"))
	require.NoError(t, err, "nothing of a call stays with the client")
}

func TestResponseReportsEveryAttempt(t *testing.T) {
	testkit.Bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		assert.False(t, client.RateLimit().Known())
		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.NeverSent(), testkit.RateLimited("2"), brelliumtest.Status(401, "UNAUTHORIZED"), brelliumtest.Bare(502), brelliumtest.OK().Delay(3*time.Second))
		var resp brellium.Response
		require.NoError(t, testkit.Retrieve(t.Context(), client, brellium.WithResponseInto(&resp)))
		requests := emu.Requests(brelliumtest.OpAuditRetrieve)
		assert.Equal(t, 200, resp.StatusCode)
		assert.Equal(t, requests[3].RequestID, resp.RequestID)
		assert.Equal(t, resp.RequestID, resp.Header.Get("X-Request-Id"))
		assert.Equal(t, 100, resp.RateLimit.Limit)
		assert.Equal(t, resp.RateLimit, client.RateLimit())
		require.Len(t, resp.Attempts, 5)
		var verdicts []string
		for i, a := range resp.Attempts {
			assert.Equal(t, i+1, a.Number)
			verdicts = append(verdicts, fmt.Sprint(a.StatusCode, " ", a.Verdict))
		}
		assert.Equal(t, []string{"0 never sent", "429 throttled", "401 unauthorized", "502 unknown", "200 done"}, verdicts)
		assert.Zero(t, resp.Attempts[0].Wait)
		assert.LessOrEqual(t, resp.Attempts[1].Wait, 500*time.Millisecond)
		assert.GreaterOrEqual(t, resp.Attempts[2].Wait, 2*time.Second)
		assert.Zero(t, resp.Attempts[3].Wait, "a 401 is replayed at once")
		assert.Equal(t, 3*time.Second, resp.Attempts[4].Duration)

		// It is emptied when it is used again, and keeps the last response even if
		// the retry never starts.
		emu.Inject(brelliumtest.OpAuditRetrieve, testkit.RateLimited("3600"))
		require.Error(t, testkit.Retrieve(t.Context(), client, brellium.WithResponseInto(&resp)))
		assert.Equal(t, 429, resp.StatusCode)
		require.Len(t, resp.Attempts, 1)
		testkit.IsInvalid(t, testkit.Retrieve(t.Context(), client, brellium.WithMaxRetries(-1), brellium.WithResponseInto(&resp)), "WithMaxRetries", "")
	}, brellium.WithoutRateLimiter())
}

// No token can be had for the retry.
func TestResponseIsKeptIfTheRetryCannotStart(t *testing.T) {
	testkit.Bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		require.NoError(t, testkit.Retrieve(t.Context(), client))
		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(401, "UNAUTHORIZED"))
		emu.Inject(brelliumtest.OpTokenCreate, brelliumtest.Status(400, "invalid_client"))
		var resp brellium.Response
		testkit.IsAPIError(400, "invalid_client")(t, testkit.Retrieve(t.Context(), client, brellium.WithResponseInto(&resp)))
		assert.Equal(t, 401, resp.StatusCode)
		assert.Len(t, resp.Attempts, 1)
	})
}

// During the pause calls fail at once.
func TestRejectedNewTokensLeadToAPause(t *testing.T) {
	testkit.Bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAny, brelliumtest.OK().When(func(r *brelliumtest.Request) bool { return r.Operation == brelliumtest.OpTokenCreate }).Forever(),
			brelliumtest.Status(401, "UNAUTHORIZED").Forever())
		var err error
		for range 3 {
			err = testkit.CreateUser(t.Context(), client)
			testkit.IsAPIError(401, "")(t, err)
		}
		var e *brellium.APIError
		require.ErrorAs(t, err, &e)
		assert.Equal(t, "oauth.token", e.Operation)
		assert.LessOrEqual(t, emu.Count(brelliumtest.OpTokenCreate), 2, "not one token request per call")
		wait, ok := brellium.RetryAfter(err)
		assert.True(t, ok)
		assert.Positive(t, wait)
	})
}

func TestContextValuesReachTheTransport(t *testing.T) {
	type key struct{}
	client := testkit.NewStubClient(t, func(r *http.Request) (*http.Response, error) {
		assert.Equal(t, "v", r.Context().Value(key{}))
		return testkit.Reply(200, nil, testkit.SampleAudit), nil
	})
	require.NoError(t, testkit.Retrieve(context.WithValue(t.Context(), key{}, "v"), client))
}

func TestOwnLimiter(t *testing.T) {
	with := func(t *testing.T, acquire testkit.LimiterFunc, responses ...*http.Response) *brellium.Client {
		return testkit.NewTokenClient(t, brellium.WithRateLimiter(acquire), brellium.WithMaxConcurrency(1),
			testkit.WithTransport(testkit.RoundTripFunc(func(*http.Request) (*http.Response, error) {
				require.NotEmpty(t, responses, "a request too many")
				resp := responses[0]
				responses = responses[1:]
				return resp, nil
			})))
	}
	t.Run("fails", func(t *testing.T) {
		broken := errors.New("redis://user:secret@host is down")
		client := with(t, func(context.Context) (brellium.Permit, error) { return nil, broken })
		for range 2 {
			err := testkit.CreateUser(t.Context(), client)
			var e *brellium.ConnectionError
			require.ErrorAs(t, err, &e)
			assert.ErrorIs(t, err, broken)
			assert.Equal(t, "users.create", e.Operation)
			assert.False(t, e.Sent)
			assert.False(t, brellium.OutcomeUnknown(err))
			assert.NotContains(t, err.Error(), "secret")
		}
	})
	t.Run("finds the deadline too near", func(t *testing.T) {
		client := with(t, func(context.Context) (brellium.Permit, error) { return nil, context.DeadlineExceeded })
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var e *brellium.InterruptedError
		require.ErrorAs(t, testkit.CreateUser(ctx, client), &e)
		assert.ErrorIs(t, e, context.DeadlineExceeded)
		assert.Equal(t, "users.create", e.Operation)
	})
	t.Run("panics", func(t *testing.T) {
		calls := 0
		client := with(t, func(context.Context) (brellium.Permit, error) {
			if calls++; calls == 1 {
				panic("limiter")
			}
			return nil, nil
		}, testkit.Reply(200, nil, testkit.SampleAudit))
		assert.PanicsWithValue(t, "limiter", func() { _ = testkit.Retrieve(t.Context(), client) })
		require.NoError(t, testkit.Retrieve(t.Context(), client), "the one place is free again")
	})
	testkit.Bubble(t, "panics when it gets the result", func(t *testing.T, _ *brelliumtest.Emulator, _ *brellium.Client) {
		var permit brellium.Permit = panickingPermit{}
		client := with(t, func(context.Context) (brellium.Permit, error) { return permit, nil },
			testkit.Reply(403, nil, "blocked"), testkit.Reply(403, nil, "blocked"), testkit.Reply(200, nil, testkit.SampleAudit))
		for range 2 { // the second request is a probe
			assert.PanicsWithValue(t, "permit", func() { _ = testkit.Retrieve(t.Context(), client) })
		}
		permit = nil
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		client.Resume()
		require.NoError(t, testkit.Retrieve(ctx, client), "the one place is free again, and no probe is in flight")
	})
	testkit.Bubble(t, "gets the result of each attempt", func(t *testing.T, _ *brelliumtest.Emulator, _ *brellium.Client) {
		var reported []brellium.LimiterResult
		var after []bool
		headers := http.Header{"Ratelimit-Limit": {"100"}, "Ratelimit-Remaining": {"41"}, "Ratelimit-Reset": {"0"}}
		client := with(t, func(ctx context.Context) (brellium.Permit, error) {
			after = append(after, brellium.IsRateLimitRetry(ctx))
			return testkit.Permit{Results: &reported}, nil
		}, testkit.Reply(429, http.Header{"Retry-After": {"2"}}, ""), testkit.Reply(503, nil, ""), testkit.Reply(503, headers, ""), testkit.Reply(200, headers, testkit.SampleAudit))
		require.NoError(t, testkit.Retrieve(t.Context(), client))
		require.Len(t, reported, 4)
		assert.Equal(t, brellium.LimiterResult{Spent: brellium.SpentNo, Refused: true, RetryAfter: 2 * time.Second}, reported[0])
		assert.Equal(t, brellium.LimiterResult{}, reported[1])
		assert.Equal(t, brellium.SpentYes, reported[2].Spent)
		assert.Equal(t, 41, reported[3].RateLimit.Remaining)
		assert.Equal(t, []bool{false, true, false, false}, after)
	})
}

// The total time covers the wait for a token before the first attempt; the token
// request goes on for the calls that have more time.
func TestTotalTimeoutCoversTheWaitForAToken(t *testing.T) {
	testkit.Bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpTokenCreate, brelliumtest.OK().Delay(5*time.Second))
		patient := make(chan error)
		go func() { patient <- testkit.Retrieve(t.Context(), client) }()
		begun := time.Now()
		err := testkit.Retrieve(t.Context(), client, brellium.WithTotalTimeout(time.Second))
		assert.Equal(t, time.Second, time.Since(begun))
		var exhausted *brellium.RetriesExhaustedError
		require.ErrorAs(t, err, &exhausted)
		assert.Equal(t, brellium.ExhaustedTotalTime, exhausted.Reason)
		assert.Zero(t, exhausted.Attempts)
		assert.Equal(t, time.Second, exhausted.Elapsed)
		assert.NotErrorIs(t, err, context.DeadlineExceeded, "the caller has no deadline")
		assert.True(t, brellium.IsTransient(err))
		assert.False(t, brellium.OutcomeUnknown(err))
		require.NoError(t, <-patient)
		assert.Equal(t, 1, emu.Count(brelliumtest.OpTokenCreate))
	})
	testkit.Bubble(t, "what is left is for the attempts", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpTokenCreate, brelliumtest.OK().Delay(5*time.Second))
		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.StallHeaders(0).Forever())
		begun := time.Now()
		err := testkit.Retrieve(t.Context(), client, brellium.WithTotalTimeout(8*time.Second))
		assert.Equal(t, 8*time.Second, time.Since(begun))
		var exhausted *brellium.RetriesExhaustedError
		require.ErrorAs(t, err, &exhausted)
		assert.Equal(t, 1, exhausted.Attempts)
	})
	testkit.Bubble(t, "but not the queue", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		require.NoError(t, testkit.Retrieve(t.Context(), client))
		begun := time.Now()
		require.NoError(t, testkit.Retrieve(t.Context(), client, brellium.WithTotalTimeout(time.Second)))
		assert.Equal(t, 10*time.Second, time.Since(begun))
	}, brellium.WithRateLimit(1, 0.1))
}

// A limiter of another package says that the deadline is too near as ours does.
func TestADeadlineTooNearForAnyLimiterIsARateLimit(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		wait time.Duration
	}{
		"with its wait": {&brellium.InterruptedError{Wait: 3 * time.Second, Err: context.DeadlineExceeded}, 3 * time.Second},
		"wrapped":       {fmt.Errorf("queue: %w", &brellium.InterruptedError{Wait: 3 * time.Second, Err: context.DeadlineExceeded}), 3 * time.Second},
		"plain":         {context.DeadlineExceeded, 0},
	} {
		t.Run(name, func(t *testing.T) {
			limiter := testkit.LimiterFunc(func(context.Context) (brellium.Permit, error) { return nil, tc.err })
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			err := testkit.Retrieve(ctx, testkit.NewTokenClient(t, brellium.WithRateLimiter(limiter)))
			assert.ErrorIs(t, err, brellium.ErrRateLimited)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.True(t, brellium.IsTransient(err))
			assert.Contains(t, err.Error(), "not sent: the rate limit requires")
			wait, ok := brellium.RetryAfter(err)
			assert.Equal(t, tc.wait, wait)
			assert.Equal(t, tc.wait > 0, ok)
		})
	}
}

// Where a transport panics, the request may have gone out.
func TestAPanicInTheTransportLeavesTheTokenUnknown(t *testing.T) {
	var results []brellium.LimiterResult
	limiter := testkit.LimiterFunc(func(context.Context) (brellium.Permit, error) { return testkit.Permit{Results: &results}, nil })
	client := testkit.NewTokenClient(t, brellium.WithRateLimiter(limiter),
		testkit.WithTransport(testkit.RoundTripFunc(func(*http.Request) (*http.Response, error) { panic("after sending") })))
	assert.Panics(t, func() { _ = testkit.CreateUser(t.Context(), client) })
	require.Len(t, results, 1)
	assert.Equal(t, brellium.SpentUnknown, results[0].Spent)
}

// panickingPermit is a permit of a faulty limiter.
type panickingPermit struct{}

func (panickingPermit) Done(brellium.LimiterResult) { panic("permit") }

// wrappingContext makes a new error at each call of Err.
type wrappingContext struct{ context.Context }

func (c wrappingContext) Err() error {
	if err := c.Context.Err(); err != nil {
		return fmt.Errorf("shutting down: %w", err)
	}
	return nil
}

func TestAContextWithItsOwnErrorEndsAWaitAsAnyOther(t *testing.T) {
	testkit.Bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(503, "UNAVAILABLE").WithHeader("Retry-After", "20"))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(5*time.Second, cancel)
		err := testkit.Retrieve(wrappingContext{ctx}, client)
		var interrupted *brellium.InterruptedError
		require.ErrorAs(t, err, &interrupted)
		assert.Equal(t, 1, interrupted.Attempts)
		assert.ErrorIs(t, err, context.Canceled)
	})
}

func TestACauseIsThatOfTheCallersContext(t *testing.T) {
	lent, lend := context.WithCancelCause(t.Context())
	lend(errors.New("of the observer"))
	client := testkit.NewClient(t, brelliumtest.New(), brellium.WithObserver(brellium.ObserverFunc(func(context.Context, brellium.Event) context.Context { return lent })))
	own := errors.New("of the caller")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(own)
	err := testkit.Retrieve(ctx, client)
	assert.ErrorIs(t, err, own)
}
