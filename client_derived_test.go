package brellium_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
	"github.com/brellium/brellium-go/internal/testkit"
)

func derive(t *testing.T, c *brellium.Client, opts ...brellium.ClientOption) *brellium.Client {
	d, err := c.With(opts...)
	require.NoError(t, err)
	return d
}

func TestADerivedClientSharesTokenLimiterGuardAndRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		emu := brelliumtest.New()
		parent, err := emu.Client(brellium.WithRateLimit(2, 1))
		require.NoError(t, err)
		child := derive(t, derive(t, parent, brellium.WithMaxRetries(0)), brellium.WithTotalTimeout(time.Minute))
		require.NoError(t, testkit.Retrieve(t.Context(), parent))
		require.NoError(t, testkit.Retrieve(t.Context(), child))
		assert.Equal(t, 1, emu.Count(brelliumtest.OpTokenCreate), "one token")
		assert.Equal(t, parent.RateLimit(), child.RateLimit())
		assert.Equal(t, 98, parent.RateLimit().Remaining)

		begun := time.Now()
		require.NoError(t, testkit.Retrieve(t.Context(), child))
		assert.Equal(t, time.Second, time.Since(begun), "one limiter, whose burst of 2 is spent")

		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Blocked().Times(2))
		require.Error(t, testkit.Retrieve(t.Context(), parent))
		require.Error(t, testkit.Retrieve(t.Context(), child))
		sent := emu.Count(brelliumtest.OpAuditRetrieve)
		var stopped *brellium.BlockedError
		require.ErrorAs(t, testkit.Retrieve(t.Context(), parent), &stopped)
		assert.False(t, stopped.RetryAt.IsZero())
		assert.Equal(t, sent, emu.Count(brelliumtest.OpAuditRetrieve), "one guard")
	})
}

func TestADerivedClientHasItsOwnOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all, own atomic.Int32
		count := func(n *atomic.Int32) brellium.Observer {
			return brellium.ObserverFunc(func(ctx context.Context, e brellium.Event) context.Context {
				if e.Kind == brellium.EventCallEnd && e.Operation == "audits.retrieve" {
					n.Add(1)
				}
				return ctx
			})
		}
		var log, ownLog strings.Builder
		emu := brelliumtest.New()
		parent, err := emu.Client(brellium.WithObserver(count(&all)), brellium.WithHeader("X-Gateway", "7"), brellium.WithUserAgent("clinic/1"),
			brellium.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		require.NoError(t, err)
		child := derive(t, parent, brellium.WithMaxRetries(0), brellium.WithObserver(count(&own)), brellium.WithHeader("X-Job", "nightly"),
			brellium.WithUserAgent("batch/2"), brellium.WithLogger(slog.New(slog.NewTextHandler(&ownLog, nil))))

		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(503, "UNAVAILABLE"))
		require.Error(t, testkit.Retrieve(t.Context(), child), "no retry")
		assert.NotContains(t, log.String(), "audits.retrieve")
		assert.Contains(t, ownLog.String(), "audits.retrieve")
		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(503, "UNAVAILABLE"))
		require.NoError(t, testkit.Retrieve(t.Context(), parent), "the parent retries as before")
		assert.Equal(t, int32(2), all.Load(), "the parent's observer sees the calls of both")
		assert.Equal(t, int32(1), own.Load())

		requests := emu.Requests(brelliumtest.OpAuditRetrieve)
		require.Len(t, requests, 3)
		for i, r := range requests {
			assert.Equal(t, "7", r.Header.Get("X-Gateway"), "inherited")
			agent, job := "clinic/1 ", ""
			if i == 0 {
				agent, job = "batch/2 ", "nightly"
			}
			assert.Equal(t, job, r.Header.Get("X-Job"))
			assert.True(t, strings.HasPrefix(r.Header.Get("User-Agent"), agent))
		}
		assert.Equal(t, "7", emu.Requests(brelliumtest.OpTokenCreate)[0].Header.Get("X-Gateway"), "token requests pass the same gateway")
		assert.NotContains(t, fmt.Sprintf("%v %+v %#v", brellium.WithHeader("X-Key", "s3cret"), brellium.WithHeader("X-Key", "s3cret"), brellium.WithHeader("X-Key", "s3cret")), "s3cret")
	})
}

// A client's headers stay with the API: a storage URL is signed.
func TestAClientsHeaderIsNotSentToStorage(t *testing.T) {
	emu := brelliumtest.New()
	client, err := emu.Client(brellium.WithHeader("X-Gateway", "7"))
	require.NoError(t, err)
	_, err = client.Documents.Upload(t.Context(), []brellium.UploadFile{brellium.FileFromBytes("a.pdf", []byte("x"))}, brellium.UploadOptions{})
	require.NoError(t, err)
	requests := emu.Requests(brelliumtest.OpDocumentPut)
	require.Len(t, requests, 1)
	assert.Empty(t, requests[0].Header.Get("X-Gateway"))
}

func TestADerivedClientCannotChangeWhatItShares(t *testing.T) {
	client, err := brelliumtest.New().Client()
	require.NoError(t, err)
	for name, option := range map[string]brellium.ClientOption{
		"WithClientCredentials": brellium.WithClientCredentials("id", "secret"), "WithAccessToken": brellium.WithAccessToken("t"),
		"WithBaseURL": brellium.WithBaseURL("https://api.example.com"), "WithHTTPClient": brellium.WithHTTPClient(http.DefaultClient),
		"WithTokenStore": brellium.WithTokenStore(brellium.NewMemoryTokenStore()), "WithRateLimiter": brellium.WithRateLimiter(new(brellium.AdaptiveLimiter)),
		"WithRateLimit": brellium.WithRateLimit(1, 1), "WithoutRateLimiter": brellium.WithoutRateLimiter(),
		"WithMaxConcurrency": brellium.WithMaxConcurrency(1), "WithBlockCooldown": brellium.WithBlockCooldown(0),
		"WithMaxRetries": brellium.WithMaxRetries(-1), "ClientOption": nil,
	} {
		_, err := client.With(option)
		var invalid *brellium.ValidationError
		require.ErrorAs(t, err, &invalid, name)
		assert.Equal(t, name, invalid.Field)
	}
}

// A nightly job can wait out an hour of 502s (see the package overview).
func TestADerivedClientCanWaitOutALongOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		emu := brelliumtest.New()
		client, err := emu.Client()
		require.NoError(t, err)
		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.HTML(502).Forever())
		time.AfterFunc(time.Hour, emu.ClearFaults)
		job := derive(t, client, brellium.WithMaxRetries(1000), brellium.WithTotalTimeout(2*time.Hour))
		begun := time.Now()
		require.NoError(t, testkit.Retrieve(t.Context(), job))
		assert.InDelta(t, time.Hour.Seconds(), time.Since(begun).Seconds(), 21)

		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.HTML(502).Forever())
		var exhausted *brellium.RetriesExhaustedError
		require.ErrorAs(t, testkit.Retrieve(t.Context(), client), &exhausted, "the client itself gives up as before")
		assert.Equal(t, 5, exhausted.Attempts)
	})
}

// The three rules: WithMaxRetries only limits, WithIdempotent alone allows the
// retry of a harmful call, and both together retry at most that often.
func TestOnlyWithIdempotentAllowsARetryThatCouldDoHarm(t *testing.T) {
	for name, call := range map[string]func(context.Context, *brellium.Client, ...brellium.CallOption) error{
		"users.create": func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
			_, err := c.Users.Create(ctx, brellium.UserCreateParams{Email: "a@example.test"}, opts...)
			return err
		},
		"email_recipients.create": func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
			_, err := c.EmailRecipients.Create(ctx, brellium.EmailRecipientCreateParams{Email: "a@example.test"}, opts...)
			return err
		},
		"documents.create": func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
			_, err := c.Documents.Create(ctx, brellium.DocumentCreateParams{Documents: []brellium.DocumentInput{{Filename: "a.pdf"}}}, opts...)
			return err
		},
		"client.do": func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
			return c.Do(ctx, http.MethodPost, "/v2/users", map[string]string{"email": "a@example.test"}, nil, opts...)
		},
	} {
		for what, fault := range map[string]func() (*http.Response, error){
			"503": func() (*http.Response, error) {
				return &http.Response{StatusCode: 503, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(""))}, nil
			},
			"lost response": func() (*http.Response, error) { return nil, io.EOF },
		} {
			for options, tc := range map[string]struct {
				opts []brellium.CallOption
				sent int
			}{
				"none":                                   {nil, 1},
				"WithMaxRetries(5)":                      {[]brellium.CallOption{brellium.WithMaxRetries(5)}, 1},
				"WithIdempotent":                         {[]brellium.CallOption{brellium.WithIdempotent()}, 5},
				"WithIdempotent and WithMaxRetries(2)":   {[]brellium.CallOption{brellium.WithIdempotent(), brellium.WithMaxRetries(2)}, 3},
				"WithIdempotent and WithMaxRetries(0)":   {[]brellium.CallOption{brellium.WithIdempotent(), brellium.WithMaxRetries(0)}, 1},
				"WithMaxRetries(2), then WithIdempotent": {[]brellium.CallOption{brellium.WithMaxRetries(2), brellium.WithIdempotent()}, 3},
			} {
				t.Run(name+"/"+what+"/"+options, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						sent := 0
						transport := testkit.RoundTripFunc(func(*http.Request) (*http.Response, error) { sent++; return fault() })
						client, err := brellium.NewClient(brellium.WithAccessToken("t"), brellium.WithHTTPClient(&http.Client{Transport: transport}), brellium.WithMaxRetries(4))
						require.NoError(t, err)
						assert.True(t, brellium.OutcomeUnknown(call(t.Context(), client, tc.opts...)))
						assert.Equal(t, tc.sent, sent)
					})
				})
			}
		}
	}
}

func TestAWaitThatTheDeadlineDoesNotAllowIsARateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, err := brelliumtest.New().Client(brellium.WithRateLimit(1, 0.1))
		require.NoError(t, err)
		require.NoError(t, testkit.Retrieve(t.Context(), client))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = testkit.Retrieve(ctx, client)
		assert.NoError(t, ctx.Err(), "it fails at once")
		assert.ErrorIs(t, err, brellium.ErrRateLimited)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.True(t, brellium.IsTransient(err))
		assert.False(t, brellium.OutcomeUnknown(err))
		wait, ok := brellium.RetryAfter(err)
		assert.True(t, ok)
		assert.Equal(t, 10*time.Second, wait)
	})
}

func TestAPauseThatTheDeadlineDoesNotAllowSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, err := brelliumtest.New().Client()
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		for _, err := range client.Audits.Follow(ctx, brellium.FollowCheckpoint{}, brellium.FollowOptions{}) {
			if err == nil {
				continue
			}
			assert.NoError(t, ctx.Err(), "it ends before the pause, not after")
			var interrupted *brellium.InterruptedError
			require.ErrorAs(t, err, &interrupted)
			assert.Equal(t, 30*time.Second, interrupted.Wait)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.NotErrorIs(t, err, brellium.ErrRateLimited)
			assert.True(t, brellium.IsTransient(err))
			return
		}
		t.Fatal("Follow ended without an error")
	})
}

func TestAHeaderOverridesTheUserAgentOfNewClientAndWith(t *testing.T) {
	emu := brelliumtest.New()
	opts := []brellium.ClientOption{brellium.WithHeader("User-Agent", "header/1"), brellium.WithUserAgent("agent/1")}
	client, err := emu.Client(opts...)
	require.NoError(t, err)
	require.NoError(t, testkit.Retrieve(t.Context(), client))
	require.NoError(t, testkit.Retrieve(t.Context(), derive(t, client, opts...)))
	for _, r := range emu.Requests(brelliumtest.OpAuditRetrieve) {
		assert.Equal(t, "header/1", r.Header.Get("User-Agent"))
	}
}
