package brellium_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
	"github.com/brellium/brellium-go/internal/testkit"
)

// recorder is an observer that keeps its events.
type recorder struct {
	mu     sync.Mutex
	events []brellium.Event
}

func (o *recorder) Observe(ctx context.Context, e brellium.Event) context.Context {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, e)
	return ctx
}

// of returns the events of an operation, in order.
func (o *recorder) of(operation string) (events []brellium.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range o.events {
		if e.Operation == operation {
			events = append(events, e)
		}
	}
	return events
}

func kinds(events []brellium.Event) (kinds []brellium.EventKind) {
	for _, e := range events {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

// incident-io/catalog-importer#102
func TestNothingIsLoggedByDefault(t *testing.T) {
	written := filepath.Join(t.TempDir(), "written")
	f, err := os.Create(written)
	require.NoError(t, err)
	stdout, stderr, logged, defaultLogger := os.Stdout, os.Stderr, log.Writer(), slog.Default()
	os.Stdout, os.Stderr = f, f
	log.SetOutput(f)
	slog.SetDefault(slog.New(slog.NewTextHandler(f, &slog.HandlerOptions{Level: slog.LevelDebug})))
	defer func() {
		os.Stdout, os.Stderr = stdout, stderr
		slog.SetDefault(defaultLogger)
		log.SetOutput(logged)
	}()
	testkit.Bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(503, "UNAVAILABLE").Times(2))
		require.NoError(t, testkit.Retrieve(t.Context(), client))
		require.Equal(t, 3, emu.Count(brelliumtest.OpAuditRetrieve))
		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.NeverSent().Forever())
		require.Error(t, testkit.Retrieve(t.Context(), client))
	})
	require.NoError(t, f.Close())
	content, err := os.ReadFile(written)
	require.NoError(t, err)
	assert.Empty(t, string(content))
}

func TestObserverGetsEveryEventOfACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		emu, o := brelliumtest.New(), &recorder{}
		emu.Inject(brelliumtest.OpAuditRetrieve,
			brelliumtest.Status(503, "UNAVAILABLE").DelayResponse(2*time.Second),
			brelliumtest.Status(429, "RATE_LIMITED").WithHeader("Retry-After", "3"))
		begun := time.Now()
		var r brellium.Response
		require.NoError(t, testkit.Retrieve(t.Context(), testkit.NewClient(t, emu, brellium.WithObserver(o)), brellium.WithResponseInto(&r)))
		took := time.Since(begun)

		events := slices.DeleteFunc(o.of("audits.retrieve"), func(e brellium.Event) bool { return e.Kind == brellium.EventLimiterMode })
		require.Equal(t, []brellium.EventKind{brellium.EventCallStart,
			brellium.EventAttemptStart, brellium.EventAttemptEnd, brellium.EventWait,
			brellium.EventAttemptStart, brellium.EventAttemptEnd, brellium.EventWait,
			brellium.EventAttemptStart, brellium.EventAttemptEnd, brellium.EventCallEnd}, kinds(events))
		for _, e := range events {
			assert.Equal(t, "GET", e.Method)
			assert.Equal(t, "/v2/audits/{audit_id}", e.PathTemplate)
			assert.Equal(t, "api.brellium.test:443", e.Host)
		}
		requests := emu.Requests(brelliumtest.OpAuditRetrieve)
		for i, at := range []int{2, 5, 8} {
			start, e := events[at-1], events[at]
			assert.Equal(t, i+1, start.Attempt)
			assert.Equal(t, i+1, e.Attempt)
			assert.Equal(t, requests[i].Status, e.StatusCode)
			assert.Equal(t, requests[i].RequestID, e.RequestID)
			assert.True(t, e.RateLimit.Known())
			assert.Equal(t, r.Attempts[i], brellium.Attempt{Number: e.Attempt, StatusCode: e.StatusCode, Verdict: e.Verdict,
				Reason: e.Reason, RequestID: e.RequestID, Wait: e.Wait, Queued: e.Queued, Duration: e.Duration})
		}
		assert.Equal(t, brellium.VerdictUnknown, events[2].Verdict)
		assert.Equal(t, brellium.ErrorCode("UNAVAILABLE"), events[2].Code)
		assert.Equal(t, 2*time.Second, events[2].Duration)
		assert.Equal(t, events[3].Wait, events[5].Wait, "what was announced was waited")
		assert.Equal(t, brellium.VerdictThrottled, events[5].Verdict)
		assert.Equal(t, brellium.CodeRateLimited, events[5].Code)
		assert.GreaterOrEqual(t, events[6].Wait, 3*time.Second)
		end := events[9]
		assert.Equal(t, brellium.VerdictDone, end.Verdict)
		assert.Equal(t, 3, end.Attempt)
		assert.Equal(t, took, end.Duration)
		assert.Empty(t, end.Code)

		mint := o.of("oauth.token")
		require.Equal(t, []brellium.EventKind{brellium.EventCallStart, brellium.EventAttemptStart, brellium.EventAttemptEnd, brellium.EventCallEnd}, kinds(mint))
		assert.Equal(t, "/v2/oauth/token", mint[0].PathTemplate)
		assert.Equal(t, 200, mint[3].StatusCode)
	})
}

func TestLoggerGetsAttemptsAndWaitsAtDebug(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		emu := brelliumtest.New()
		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(503, "UNAVAILABLE"))
		var log bytes.Buffer
		require.NoError(t, testkit.Retrieve(t.Context(), testkit.NewClient(t, emu, brellium.WithoutRateLimiter(), brellium.WithLogger(testkit.JSONLogger(&log, slog.LevelDebug)))))
		var messages []string
		for _, r := range testkit.Records(t, &log) {
			if r["operation"] != "audits.retrieve" {
				continue
			}
			messages = append(messages, r["msg"].(string))
			assert.Equal(t, "DEBUG", r["level"])
			assert.Equal(t, "GET", r["method"])
			assert.Equal(t, "/v2/audits/{audit_id}", r["path"])
			assert.NotEmpty(t, r["request_id"])
			if r["msg"] == "brellium wait" {
				assert.EqualValues(t, 1, r["attempt"])
				assert.EqualValues(t, 503, r["status"])
				assert.Positive(t, r["wait"])
			}
		}
		assert.Equal(t, []string{"brellium attempt", "brellium wait", "brellium attempt", "brellium call end"}, messages)
	})
}

// loggedNames are all names in log records, as in docs/threats.md. A new one needs a
// decision about privacy.
var loggedNames = []string{"operation", "method", "path", "attempt", "attempts", "status", "code", "request_id",
	"verdict", "reason", "wait", "queued", "duration", "remaining", "retry_at", "block", "limiter_mode", "token_store"}

func TestLogLevelOfACall(t *testing.T) {
	exists := brelliumtest.Status(409, "USER_EXISTS")
	for name, tt := range map[string]struct {
		fault   brelliumtest.Fault
		timeout time.Duration
		level   string
		reason  string
	}{
		"success":    {brelliumtest.OK(), 0, "DEBUG", "success"},
		"not found":  {brelliumtest.Status(404, "NOT_FOUND"), 0, "DEBUG", "status 404"},
		"conflict":   {exists, 0, "DEBUG", "status 409"},
		"bad":        {brelliumtest.Status(400, "INVALID"), 0, "WARN", "status 400"},
		"gave up":    {brelliumtest.Status(503, "UNAVAILABLE").Forever(), 0, "WARN", "retries exhausted: attempts"},
		"unusable":   {brelliumtest.HTML(200), 0, "WARN", "unusable response: the body is HTML instead of JSON"},
		"blocked":    {brelliumtest.Blocked(), 0, "WARN", "bare 403"},
		"no network": {brelliumtest.NeverSent().Forever(), 0, "WARN", "retries exhausted: attempts"},
		"deadline":   {brelliumtest.StallHeaders(0), time.Second, "WARN", "the caller's deadline"},
		"cancelled":  {brelliumtest.StallHeaders(0), -time.Second, "DEBUG", "canceled by the caller"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				emu := brelliumtest.New()
				emu.Inject(brelliumtest.OpAuditRetrieve, tt.fault)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				switch {
				case tt.timeout > 0:
					var stop context.CancelFunc
					ctx, stop = context.WithTimeout(ctx, tt.timeout)
					defer stop()
				case tt.timeout < 0:
					time.AfterFunc(-tt.timeout, cancel)
				}
				var log bytes.Buffer
				_ = testkit.Retrieve(ctx, testkit.NewClient(t, emu, brellium.WithLogger(testkit.JSONLogger(&log, slog.LevelDebug))))
				all := testkit.Records(t, &log)
				end := all[len(all)-1]
				assert.Equal(t, "brellium call end", end["msg"])
				assert.Equal(t, tt.level, end["level"])
				assert.Equal(t, tt.reason, end["reason"])
				for _, r := range all {
					for key := range r {
						assert.Contains(t, append(loggedNames, "time", "level", "msg"), key)
					}
					if r["msg"] != "brellium call end" && r["msg"] != "brellium block" {
						assert.Equal(t, "DEBUG", r["level"], r["msg"])
					}
				}
			})
		})
	}
}

func TestBlocksLimiterModesAndTokenStoreAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		emu, o := brelliumtest.New(brelliumtest.WithTokenLifetime(10*time.Second)), &recorder{}
		store := &testkit.BrokenStore{TokenStore: brellium.NewMemoryTokenStore()}
		var log bytes.Buffer
		client := testkit.NewClient(t, emu, brellium.WithObserver(o), brellium.WithTokenStore(store), brellium.WithLogger(testkit.JSONLogger(&log, slog.LevelInfo)))
		store.Set(errors.New("redis://user:marker@store.test is down"))
		require.NoError(t, testkit.Retrieve(t.Context(), client))
		store.Set(nil)
		time.Sleep(time.Minute)
		require.NoError(t, testkit.Retrieve(t.Context(), client))
		synctest.Wait() // the store is reported once there is a token
		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Blocked().Times(2))
		require.Error(t, testkit.Retrieve(t.Context(), client))
		require.Error(t, testkit.Retrieve(t.Context(), client))
		stopped := time.Now()
		time.Sleep(time.Minute)
		require.NoError(t, testkit.Retrieve(t.Context(), client))
		synctest.Wait()

		modes := map[brellium.EventKind][]string{}
		o.mu.Lock()
		for _, e := range o.events {
			if state := string(e.Block) + string(e.LimiterMode) + string(e.TokenStore); state != "" {
				modes[e.Kind] = append(modes[e.Kind], state)
				assert.Equal(t, e.Block == brellium.BlockStopped, !e.RetryAt.IsZero())
				if !e.RetryAt.IsZero() {
					assert.Equal(t, stopped.Add(30*time.Second), e.RetryAt)
				}
			}
		}
		o.mu.Unlock()
		assert.Equal(t, []string{"watch", "stopped", "lifted"}, modes[brellium.EventBlock])
		assert.Equal(t, []string{"down", "up"}, modes[brellium.EventTokenStore])
		require.NotEmpty(t, modes[brellium.EventLimiterMode])
		for i, mode := range modes[brellium.EventLimiterMode] {
			assert.True(t, i == 0 || mode != modes[brellium.EventLimiterMode][i-1], "only changes are reported: %v", modes)
		}

		text := log.String()
		assert.NotContains(t, text, "marker")
		var levels []string
		for _, r := range testkit.Records(t, &log) {
			for _, key := range []string{"block", "token_store"} {
				if state, ok := r[key]; ok {
					levels = append(levels, r["level"].(string)+" "+state.(string))
				}
			}
		}
		assert.Equal(t, []string{"WARN down", "INFO up", "WARN watch", "WARN stopped", "INFO lifted"}, levels)
	})
}

// allKinds are the kinds of events that a call leads to.
var allKinds = []brellium.EventKind{brellium.EventCallStart, brellium.EventAttemptStart, brellium.EventAttemptEnd, brellium.EventWait,
	brellium.EventCallEnd, brellium.EventBlock, brellium.EventLimiterMode}

func TestObserverPanicFailsNoCall(t *testing.T) {
	for _, kind := range allKinds {
		t.Run(string(kind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				emu, panics := brelliumtest.New(), 0
				client := testkit.NewClient(t, emu, brellium.WithMaxConcurrency(1), brellium.WithObserver(brellium.ObserverFunc(
					func(ctx context.Context, e brellium.Event) context.Context {
						if e.Kind == kind && e.Operation == "audits.retrieve" {
							panics++
							panic("marker")
						}
						return ctx
					})))
				emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(503, "UNAVAILABLE"), brelliumtest.OK(), brelliumtest.Blocked())
				require.NoError(t, testkit.Retrieve(t.Context(), client))
				var blocked *brellium.BlockedError
				require.ErrorAs(t, testkit.Retrieve(t.Context(), client), &blocked)
				require.NoError(t, testkit.Retrieve(t.Context(), client))
				assert.Positive(t, panics)
				assert.Equal(t, 4, emu.Count(brelliumtest.OpAuditRetrieve))
			})
		})
	}
}

// panicky is a slog.Handler that panics in one of its methods.
type panicky struct {
	slog.Handler
	enabled bool
}

func (h panicky) Enabled(context.Context, slog.Level) bool {
	if h.enabled {
		panic("enabled")
	}
	return true
}

func (h panicky) Handle(context.Context, slog.Record) error { panic("handle") }

func TestLoggerPanicFailsNoCall(t *testing.T) {
	for _, h := range []panicky{{enabled: true}, {enabled: false}} {
		client := testkit.NewClient(t, brelliumtest.New(), brellium.WithLogger(slog.New(h)))
		require.NoError(t, testkit.Retrieve(t.Context(), client))
	}
}

func TestSlowObserverDelaysOnlyItsOwnCall(t *testing.T) {
	for _, kind := range allKinds {
		if kind == brellium.EventAttemptStart {
			continue // it keeps its place, as documented
		}
		t.Run(string(kind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				type slowKey struct{}
				emu := brelliumtest.New()
				delayed := false
				client := testkit.NewClient(t, emu, brellium.WithMaxConcurrency(1), brellium.WithBlockCooldown(0), brellium.WithObserver(brellium.ObserverFunc(
					func(ctx context.Context, e brellium.Event) context.Context {
						if e.Kind == kind && ctx.Value(slowKey{}) != nil {
							delayed = true
							time.Sleep(time.Hour)
						}
						return ctx
					})))
				switch kind {
				case brellium.EventWait:
					emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(503, "UNAVAILABLE"))
				case brellium.EventBlock:
					emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Blocked())
				}
				begun := time.Now()
				var slow sync.WaitGroup
				slow.Go(func() { _ = testkit.Retrieve(context.WithValue(t.Context(), slowKey{}, true), client) })
				synctest.Wait()
				require.NoError(t, testkit.Retrieve(t.Context(), client))
				assert.Less(t, time.Since(begun), 30*time.Second)
				slow.Wait()
				assert.True(t, delayed)
				assert.GreaterOrEqual(t, time.Since(begun), time.Hour)
			})
		})
	}
}

func TestObserverMayUseTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		emu := brelliumtest.New()
		var client *brellium.Client
		type innerKey struct{}
		inner := 0
		observer := brellium.ObserverFunc(func(ctx context.Context, e brellium.Event) context.Context {
			_ = client.RateLimit() // takes the client's lock
			if ctx.Value(innerKey{}) == nil && e.Operation == "audits.retrieve" && e.Kind != brellium.EventAttemptStart {
				inner++
				assert.NoError(t, testkit.Retrieve(context.WithValue(ctx, innerKey{}, true), client))
			}
			return ctx
		})
		client = testkit.NewClient(t, emu, brellium.WithObserver(observer), brellium.WithMaxConcurrency(1))
		require.NoError(t, testkit.Retrieve(t.Context(), client))
		assert.GreaterOrEqual(t, inner, 3)
	})
}

func TestObserverContextProvidesOnlyValues(t *testing.T) {
	type key string
	dead, cancel := context.WithCancel(context.Background())
	cancel()
	for name, base := range map[string]func(context.Context) context.Context{
		"derived":   func(ctx context.Context) context.Context { return ctx },
		"cancelled": func(context.Context) context.Context { return dead },
		"unrelated": func(context.Context) context.Context { return context.Background() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				emu := brelliumtest.New()
				var seen []any
				transport := testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
					if r.Method == http.MethodGet {
						for _, k := range []key{"caller", "call", "attempt"} {
							seen = append(seen, r.Context().Value(k))
						}
					}
					return emu.Transport().RoundTrip(r)
				})
				client := testkit.NewClient(t, emu, testkit.WithTransport(transport), brellium.WithObserver(brellium.ObserverFunc(
					func(ctx context.Context, e brellium.Event) context.Context {
						switch e.Kind {
						case brellium.EventCallStart:
							return context.WithValue(base(ctx), key("call"), 2)
						case brellium.EventAttemptStart:
							return context.WithValue(base(ctx), key("attempt"), e.Attempt)
						case brellium.EventAttemptEnd:
							assert.Equal(t, e.Attempt, ctx.Value(key("attempt")))
							return dead
						case brellium.EventCallEnd:
							assert.Equal(t, 2, ctx.Value(key("call")))
						}
						return ctx
					})))
				emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(503, "UNAVAILABLE"), brelliumtest.OK(), brelliumtest.StallHeaders(0))
				ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key("caller"), 1))
				require.NoError(t, testkit.Retrieve(ctx, client))
				assert.Equal(t, []any{1, 2, 1, 1, 2, 2}, seen)
				time.AfterFunc(time.Second, cancel)
				assert.ErrorIs(t, testkit.Retrieve(ctx, client), context.Canceled, "the caller's own context still ends the call")
			})
		})
	}
}

func TestObserverHeadersCannotReplaceOrSmuggleHeaders(t *testing.T) {
	emu := brelliumtest.New()
	headers := headersAdded{"Traceparent": {"00-1"}, "x-lower": {"1"}, "X-Smuggled": {"a\r\nAuthorization: Bearer marker"}}
	for _, key := range []string{"Authorization", "authorization", "Content-Type", "Host", "Content-Length", "Connection",
		"Upgrade", "Transfer-Encoding", "Idempotency-Key", "Proxy-Authorization", "bad key", "User-Agent", "Accept"} {
		headers[key] = []string{"marker"}
	}
	client := testkit.NewClient(t, emu, brellium.WithObserver(headers))
	require.NoError(t, testkit.Retrieve(t.Context(), client, brellium.WithHeader("X-Own", "1")))
	for _, r := range emu.Requests() {
		var names []string
		for key, values := range r.Header {
			names = append(names, key)
			assert.NotContains(t, strings.Join(values, " "), "marker", key)
		}
		assert.Contains(t, names, "Traceparent")
		assert.Contains(t, names, "X-Lower", "in its canonical form")
	}
	assert.Equal(t, []string{"marker"}, headers["Authorization"], "the observer's own map is left alone")
}

// A panic in RequestHeader must not fail the call.
func TestRequestHeaderPanicFailsNoCall(t *testing.T) {
	client := testkit.NewClient(t, brelliumtest.New(), brellium.WithObserver(headersPanic{headersAdded{}}))
	require.NoError(t, testkit.Retrieve(t.Context(), client))
}

type headersPanic struct{ headersAdded }

func (headersPanic) RequestHeader(context.Context) http.Header { panic("header") }

// canned is a transport that returns the same body for every request.
type canned struct{ body string }

func (c canned) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}},
		ContentLength: int64(len(c.body)), Body: io.NopCloser(strings.NewReader(c.body)), Request: r}, nil
}

// BenchmarkTelemetry compares a call without a listener to one with each.
func BenchmarkTelemetry(b *testing.B) {
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil)) // above debug
	for _, bb := range []struct {
		name string
		opts []brellium.ClientOption
	}{
		{"none", nil},
		{"logger above debug", []brellium.ClientOption{brellium.WithLogger(quiet)}},
		{"logger", []brellium.ClientOption{brellium.WithLogger(testkit.JSONLogger(io.Discard, slog.LevelDebug))}},
		{"observer", []brellium.ClientOption{brellium.WithObserver(brellium.ObserverFunc(func(ctx context.Context, _ brellium.Event) context.Context { return ctx }))}},
	} {
		b.Run(bb.name, func(b *testing.B) {
			client, err := brellium.NewClient(append([]brellium.ClientOption{brellium.WithAccessToken("t"), brellium.WithoutRateLimiter(),
				testkit.WithTransport(canned{`{"audit_id":"1"}`})}, bb.opts...)...)
			require.NoError(b, err)
			ctx := context.Background()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := client.Audits.Retrieve(ctx, "1"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
