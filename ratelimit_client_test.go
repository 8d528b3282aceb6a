package brellium_test

import (
	"context"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
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

// These tests run the limiter in real clients against the emulator, in virtual
// time. bench/limiter measures the same at length. ratelimit_test.go and
// internal/pace test the limiter without a client.

// roundTrips sets lognormal round trips, as over a network.
func roundTrips(median, p99 time.Duration) brelliumtest.Option {
	sigma := math.Log(float64(p99)/float64(median)) / 2.3263
	return brelliumtest.WithLatency(func(r *rand.Rand) time.Duration {
		return time.Duration(float64(median) * math.Exp(sigma*r.NormFloat64()))
	})
}

// exchange is one attempt as seen by the client's transport.
type exchange struct {
	sent, at time.Time
	status   int
}

// watched is the emulator's transport for one client. It records every attempt, in
// the order in which they end.
type watched struct {
	next     http.RoundTripper
	mu       sync.Mutex
	all      []exchange
	inFlight int
	most     int // concurrent attempts
}

func (w *watched) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	w.inFlight++
	w.most = max(w.most, w.inFlight)
	w.mu.Unlock()
	e := exchange{sent: time.Now()}
	resp, err := w.next.RoundTrip(r)
	e.at = time.Now()
	if err == nil {
		e.status = resp.StatusCode
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inFlight--
	w.all = append(w.all, e)
	return resp, err
}

// rateLimited counts the 429s to attempts that were sent at or after the client's
// first response, and all 429s.
func (w *watched) rateLimited() (later, all int) {
	var first time.Time
	for _, e := range w.all {
		if first.IsZero() && e.status != 0 {
			first = e.at
		}
		if e.status == http.StatusTooManyRequests {
			all++
			if !first.IsZero() && !e.sent.Before(first) {
				later++
			}
		}
	}
	return later, all
}

// worker is one simulated process: a client of its own, with a fixed token.
func worker(t *testing.T, emu *brelliumtest.Emulator, opts ...brellium.ClientOption) (*brellium.Client, *watched) {
	t.Helper()
	w := &watched{next: emu.Transport()}
	return newClient(t, append([]brellium.ClientOption{
		brellium.WithHTTPClient(&http.Client{Transport: w}),
		brellium.WithAccessToken(emu.IssueToken()),
	}, opts...)...), w
}

// backfill makes calls in several goroutines. None may fail.
func backfill(t *testing.T, client *brellium.Client, calls, goroutines int) {
	t.Helper()
	var left atomic.Int64
	left.Store(int64(calls))
	sideBySide(t, goroutines, func(ctx context.Context, _ int) error {
		for left.Add(-1) >= 0 {
			if err := retrieve(ctx, client); err != nil {
				return err
			}
		}
		return nil
	})
}

// With any number of goroutines, any latency and any initial level.
func TestAloneClientIsNotRateLimitedAfterItsFirstResponse(t *testing.T) {
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			median := time.Duration(float64(10*time.Millisecond) * math.Pow(200, r.Float64())) // to 2 s
			p99 := median + time.Duration(r.Float64()*float64(20*time.Second-median))
			level := []float64{0, 100, 100 * r.Float64()}[r.IntN(3)]
			emu := brelliumtest.New(brelliumtest.WithSeed(seed), brelliumtest.WithRecordLimit(0),
				brelliumtest.WithRateLimitLevel(level), roundTrips(median, p99))
			client, w := worker(t, emu, brellium.WithAttemptTimeout(0), brellium.WithTotalTimeout(0))
			backfill(t, client, 50+r.IntN(100), 1+r.IntN(256))
			later, all := w.rateLimited()
			assert.Zero(t, later, "seed %d", seed)
			assert.LessOrEqual(t, all, 2, "seed %d: 429s for probes", seed)
		})
	}
}

func TestAloneClientUsesTheWholeBucket(t *testing.T) {
	for _, tc := range []struct {
		level      float64
		rateLimits int
	}{{100, 0}, {0, 1}} {
		synctest.Test(t, func(t *testing.T) {
			emu := brelliumtest.New(brelliumtest.WithRecordLimit(0), brelliumtest.WithRateLimitLevel(tc.level),
				roundTrips(80*time.Millisecond, 400*time.Millisecond))
			client, w := worker(t, emu)
			start := time.Now()
			backfill(t, client, 1000, 16)
			_, all := w.rateLimited()
			assert.LessOrEqual(t, all, tc.rateLimits)
			assert.LessOrEqual(t, time.Since(start).Seconds()/((1000-tc.level)/5), 1.0055, "at 5 a second")
		})
	}
}

// However many processes start at the same time, on a full bucket or an empty
// one, near or far: they agree within half a minute, there is no 429 afterwards,
// and no call fails.
func TestProcessesThatShareTheLimitAgreeWithinThirtySeconds(t *testing.T) {
	for _, tc := range []struct {
		processes int
		level     float64
		median    time.Duration
		ratio     float64 // time taken over what the bucket allows
	}{
		{2, 100, 80 * time.Millisecond, 1.04}, {5, 0, 80 * time.Millisecond, 1.04}, {5, 100, 500 * time.Millisecond, 1.06},
		{20, 100, 80 * time.Millisecond, 1.07}, {30, 0, 200 * time.Millisecond, 1.12}, {20, 100, 500 * time.Millisecond, 1.12},
	} {
		t.Run(strconv.Itoa(tc.processes)+" processes, level "+strconv.Itoa(int(tc.level))+", "+tc.median.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				emu := brelliumtest.New(brelliumtest.WithRecordLimit(0), brelliumtest.WithRateLimitLevel(tc.level),
					roundTrips(tc.median, 3*tc.median+100*time.Millisecond))
				start := time.Now()
				const calls = 750
				watches := make([]*watched, tc.processes)
				var wait sync.WaitGroup
				for i := range watches {
					client, w := worker(t, emu)
					watches[i] = w
					wait.Go(func() { backfill(t, client, (calls+i)/tc.processes, 8) })
				}
				wait.Wait()
				for _, w := range watches {
					for _, e := range w.all {
						if e.status == http.StatusTooManyRequests {
							assert.LessOrEqual(t, e.at.Sub(start), 30*time.Second)
						}
					}
				}
				bound := (calls - tc.level) / 5
				assert.LessOrEqual(t, time.Since(start).Seconds()/bound, tc.ratio)
			})
		})
	}
}

// Lost responses cost the request that has to be retried, and those without headers
// cost nothing.
func TestLostResponsesCauseNoRateLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		emu := brelliumtest.New(roundTrips(80*time.Millisecond, 400*time.Millisecond))
		emu.Inject(brelliumtest.OpAny,
			brelliumtest.DropAfter().Sometimes(0.025).Forever(),
			brelliumtest.OK().WithoutRateLimit().Sometimes(0.025).Forever())
		client, w := worker(t, emu)
		start := time.Now()
		backfill(t, client, 1000, 16)
		_, all := w.rateLimited()
		assert.Zero(t, all)
		spent := 0
		for _, r := range emu.Requests() {
			if r.Spent {
				spent++
			}
		}
		require.Greater(t, spent, 1000, "some were retried")
		assert.LessOrEqual(t, time.Since(start).Seconds()/(float64(spent-100)/5), 1.025)
	})
}

// arrivals returns when requests of an operation arrived, since start.
func arrivals(emu *brelliumtest.Emulator, start time.Time, operation string) []time.Duration {
	var list []time.Duration
	for _, r := range emu.Requests(operation) {
		list = append(list, r.Arrived.Sub(start))
	}
	return list
}

// hashicorp/go-tfe#35, hashicorp/go-tfe#41, cloudquery/cloudquery#21733: only
// the first attempt passed the limiter.
func TestEveryRetrySpendsATokenAndTheTokenRequestDoesNot(t *testing.T) {
	bubble(t, "burst of 3", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(503, "UNAVAILABLE").Times(4))
		start := time.Now()
		require.NoError(t, retrieve(t.Context(), client))
		require.Equal(t, 5, emu.Count(brelliumtest.OpAuditRetrieve))
		assert.GreaterOrEqual(t, time.Since(start), 400*time.Millisecond)
	}, brellium.WithRateLimit(3, 5))

	// One token refills every 10 s, and no backoff is that long.
	bubble(t, "burst of 1", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(503, "UNAVAILABLE").Times(4))
		start := time.Now()
		require.NoError(t, retrieve(t.Context(), client))
		assert.Equal(t, 1, emu.Count(brelliumtest.OpTokenCreate))
		came := arrivals(emu, start, brelliumtest.OpAuditRetrieve)
		require.Len(t, came, 5)
		for i, at := range came {
			assert.InDelta(t, 10*float64(i), at.Seconds(), 0.01)
		}
	}, brellium.WithRateLimit(1, 0.1))

	// The default limiter counts retries too: 125 requests with 100 tokens take at
	// least 5 s, and none is rate limited.
	bubble(t, "default", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.DropAfter().Times(25))
		start := time.Now()
		sideBySide(t, 100, func(ctx context.Context, _ int) error { return retrieve(ctx, client) })
		assert.Equal(t, 125, emu.Count(brelliumtest.OpAuditRetrieve))
		assert.GreaterOrEqual(t, time.Since(start), 5*time.Second)
		for _, r := range emu.Requests(brelliumtest.OpAuditRetrieve) {
			assert.NotEqual(t, http.StatusTooManyRequests, r.Status)
		}
	})
}

func Test401ReturnsItsToken(t *testing.T) {
	bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		require.NoError(t, retrieve(t.Context(), client)) // the first of three
		emu.RevokeTokens()
		start := time.Now()
		require.NoError(t, retrieve(t.Context(), client)) // a 401, and the replay as the second
		require.NoError(t, retrieve(t.Context(), client)) // the third
		assert.Zero(t, time.Since(start))
		assert.Equal(t, 4, emu.Count(brelliumtest.OpAuditRetrieve))
		require.NoError(t, retrieve(t.Context(), client))
		assert.InDelta(t, 100, time.Since(start).Seconds(), 0.01, "the replay spent a token")
	}, brellium.WithRateLimit(3, 0.01))
}

// songzhibin97/gkit#134, basecamp/basecamp-cli#712
func TestCallsWithAnEndedContextTakeNoToken(t *testing.T) {
	bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 10 {
			require.ErrorIs(t, retrieve(ctx, client), context.Canceled)
		}
		assert.Zero(t, emu.Count(brelliumtest.OpAny))
		start := time.Now()
		require.NoError(t, retrieve(t.Context(), client))
		assert.Zero(t, time.Since(start))
	}, brellium.WithRateLimit(1, 0.01))
}

// A call that is canceled in flight may have spent its token. The next responses
// show it, so that nothing is counted twice.
func TestCallsCanceledInFlightLeaveNoDebt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		emu := brelliumtest.New(brelliumtest.WithLatency(func(*rand.Rand) time.Duration { return time.Second }))
		limiter := new(brellium.AdaptiveLimiter)
		client, w := worker(t, emu, brellium.WithRateLimiter(limiter))
		require.NoError(t, retrieve(t.Context(), client))
		for _, after := range []time.Duration{300, 700} { // before and after the server sees them
			for range 10 {
				ctx, cancel := context.WithTimeout(t.Context(), after*time.Millisecond)
				require.ErrorIs(t, retrieve(ctx, client), context.DeadlineExceeded)
				cancel()
			}
		}
		require.Zero(t, limiter.State().InFlight)
		time.Sleep(30 * time.Second) // the bucket is full again
		require.NoError(t, retrieve(t.Context(), client))
		start := time.Now()
		backfill(t, client, 90, 90)
		assert.Less(t, time.Since(start), 8*time.Second, "the whole bucket is used, doubling each round trip")
		_, all := w.rateLimited()
		assert.Zero(t, all)
	})
}

// gofri/go-github-ratelimit#23: a reset of 0 was taken to mean that there is
// nothing to wait for.
func TestNothingRemainingDelaysTheNextCall(t *testing.T) {
	for name, opts := range map[string][]brellium.ClientOption{
		"default": nil, "fixed share": {brellium.WithRateLimit(100, 5)},
	} {
		bubble(t, name, func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
			emu.SetRemaining(1)
			start := time.Now()
			require.NoError(t, retrieve(t.Context(), client))
			assert.Zero(t, time.Since(start), "the caller has its result")
			assert.Equal(t, 0, client.RateLimit().Remaining)
			assert.Zero(t, client.RateLimit().Reset)
			require.NoError(t, retrieve(t.Context(), client))
			assert.GreaterOrEqual(t, time.Since(start), 200*time.Millisecond)
			assert.Less(t, time.Since(start), 5*time.Second)
			for _, r := range emu.Requests(brelliumtest.OpAuditRetrieve) {
				assert.Equal(t, http.StatusOK, r.Status)
			}
		}, opts...)
	}
}

// xanzy/go-gitlab#909, xanzy/go-gitlab#1659: missing headers were read as a
// limit of zero, and a request was sent to learn the limit.
func TestResponsesWithoutUsableHeadersChangeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		emu := brelliumtest.New()
		limiter := new(brellium.AdaptiveLimiter)
		lower := false
		transport := roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := emu.Transport().RoundTrip(r)
			if err == nil && lower { // as from a transport that keeps HTTP/2's case
				header := http.Header{}
				for key, values := range resp.Header {
					header[strings.ToLower(key)] = values
				}
				resp.Header = header
			}
			return resp, err
		})
		client, err := emu.Client(brellium.WithHTTPClient(&http.Client{Transport: transport}), brellium.WithRateLimiter(limiter))
		require.NoError(t, err)
		assert.Zero(t, emu.Count(brelliumtest.OpAny), "a new client sends nothing")
		assert.False(t, client.RateLimit().Known())

		require.NoError(t, retrieve(t.Context(), client))
		known := client.RateLimit()
		require.Equal(t, 99, known.Remaining)
		for name, fault := range map[string]brelliumtest.Fault{
			"a 401":      brelliumtest.Status(401, "UNAUTHORIZED"),
			"none":       brelliumtest.OK().WithoutRateLimit(),
			"unreadable": brelliumtest.OK().WithHeader("RateLimit-Remaining", "abc"),
			"negative":   brelliumtest.OK().WithHeader("RateLimit-Remaining", "-1"),
			"too large":  brelliumtest.OK().WithHeader("RateLimit-Remaining", "99999999999999999999"),
		} {
			emu.Inject(brelliumtest.OpAuditRetrieve, fault)
			start := time.Now()
			var response brellium.Response
			require.NoError(t, retrieve(t.Context(), client, brellium.WithResponseInto(&response)))
			assert.Zero(t, time.Since(start), name)
			if name == "a 401" {
				known = client.RateLimit() // of the replay
				continue
			}
			assert.False(t, response.RateLimit.Known(), name)
			assert.Equal(t, known, client.RateLimit(), name)
			assert.Equal(t, brellium.LimiterAlone, limiter.State().Mode, name)
		}

		lower = true
		start := time.Now()
		require.NoError(t, retrieve(t.Context(), client))
		assert.Zero(t, time.Since(start))
		assert.Equal(t, emu.Remaining(), client.RateLimit().Remaining)
		assert.Equal(t, 100, client.RateLimit().Limit)
	})
}

// go-acme/lego#976, atlassian/smith#241: each client had a limiter of its own,
// and together they exceeded the limit.
func TestTwoClientsWithOneLimiterKeepToOneLimit(t *testing.T) {
	fixed, err := brellium.NewFixedLimiter(100, 5)
	require.NoError(t, err)
	exclusive, err := brellium.NewAdaptiveLimiter(brellium.AdaptiveLimiterOptions{Exclusive: true})
	require.NoError(t, err)
	for name, limiter := range map[string]brellium.Limiter{
		"adaptive": new(brellium.AdaptiveLimiter), "exclusive": exclusive, "fixed": fixed,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				emu := brelliumtest.New()
				emu.AddCredentials("second-id", "second-secret")
				one := resourceClient(t, emu, brellium.WithRateLimiter(limiter))
				two := resourceClient(t, emu, brellium.WithRateLimiter(limiter), brellium.WithClientCredentials("second-id", "second-secret"))
				start := time.Now()
				sideBySide(t, 150, func(ctx context.Context, i int) error {
					return retrieve(ctx, []*brellium.Client{one, two}[i%2])
				})
				assert.InDelta(t, 10, time.Since(start).Seconds(), 0.7, "50 of them at 5 a second")
				came := arrivals(emu, start, brelliumtest.OpAuditRetrieve)
				require.Len(t, came, 150, "no 429")
				for i, at := range came {
					assert.GreaterOrEqual(t, at+time.Microsecond, time.Duration(i+1-100)*200*time.Millisecond, "request %d", i+1)
				}
			})
		})
	}
}

func TestRateLimitPausesEveryCallOfTheClient(t *testing.T) {
	fixed, err := brellium.NewFixedLimiter(100, 5)
	require.NoError(t, err)
	for name, limiter := range map[string]interface {
		brellium.Limiter
		State() brellium.LimiterState
	}{"adaptive": new(brellium.AdaptiveLimiter), "fixed": fixed} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				emu := brelliumtest.New(roundTrips(80*time.Millisecond, 400*time.Millisecond))
				client, w := worker(t, emu, brellium.WithRateLimiter(limiter))
				require.NoError(t, retrieve(t.Context(), client))
				emu.SetRemaining(0)
				emu.Inject(brelliumtest.OpAuditList, refusal("5"))
				_, err := client.Audits.List(t.Context(), brellium.AuditListParams{}, brellium.WithMaxRetries(0))
				require.ErrorIs(t, err, brellium.ErrRateLimited)
				assert.InDelta(t, 5.25, limiter.State().PausedFor.Seconds(), 0.25)
				start := time.Now()
				sideBySide(t, 30, func(ctx context.Context, _ int) error { return retrieve(ctx, client) })
				came := arrivals(emu, start, brelliumtest.OpAuditRetrieve)[1:]
				require.Len(t, came, 30)
				assert.GreaterOrEqual(t, came[0], 5*time.Second)
				assert.Less(t, came[0], 7*time.Second)
				assert.GreaterOrEqual(t, came[4]-came[0], 400*time.Millisecond, "not together")
				_, all := w.rateLimited()
				assert.Equal(t, 1, all)
			})
		})
	}
}

func TestMaxConcurrencyLimitsTheAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		emu := brelliumtest.New(brelliumtest.WithLatency(func(*rand.Rand) time.Duration { return 100 * time.Millisecond }))
		client, w := worker(t, emu, brellium.WithMaxConcurrency(3), brellium.WithoutRateLimiter())
		start := time.Now()
		sideBySide(t, 30, func(ctx context.Context, _ int) error { return retrieve(ctx, client) })
		assert.Equal(t, 3, w.most)
		assert.InDelta(t, 1, time.Since(start).Seconds(), 0.001)

		// A call that waits before a retry leaves its place to others.
		emu.Inject(brelliumtest.OpAuditList, brelliumtest.Status(503, "UNAVAILABLE").WithHeader("Retry-After", "10").Times(3))
		var wait sync.WaitGroup
		for range 3 {
			wait.Go(func() { assert.NoError(t, list(t.Context(), client)) })
		}
		time.Sleep(time.Second)
		require.NoError(t, retrieve(t.Context(), client))
		assert.InDelta(t, 2.1, time.Since(start).Seconds(), 0.001)
		wait.Wait()
		assert.Equal(t, 3, w.most)
	})
}

func TestAttemptRecordsItsWaitInTheQueue(t *testing.T) {
	bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		var first, second brellium.Response
		require.NoError(t, retrieve(t.Context(), client, brellium.WithResponseInto(&first)))
		require.Len(t, first.Attempts, 1)
		assert.Zero(t, first.Attempts[0].Queued)

		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(503, "UNAVAILABLE"))
		require.NoError(t, retrieve(t.Context(), client, brellium.WithResponseInto(&second)))
		require.Len(t, second.Attempts, 2)
		assert.InDelta(t, 10, second.Attempts[0].Queued.Seconds(), 0.01)
		assert.Zero(t, second.Attempts[0].Wait)
		again := second.Attempts[1]
		assert.InDelta(t, 10, (again.Wait + again.Queued).Seconds(), 0.01, "the next token is due 10 s later")
		assert.Greater(t, again.Queued, 9*time.Second)
		assert.Zero(t, again.Duration)
	}, brellium.WithRateLimit(1, 0.1))
}

func TestRateLimitIsFromTheNewestResponse(t *testing.T) {
	bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		assert.False(t, client.RateLimit().Known())
		_, err := client.OAuth.CreateToken(t.Context())
		require.NoError(t, err)
		assert.False(t, client.RateLimit().Known(), "the token endpoint has a bucket of its own")

		start := time.Now()
		require.NoError(t, retrieve(t.Context(), client))
		assert.Equal(t, brellium.RateLimit{Limit: 100, Remaining: 99, ObservedAt: start}, client.RateLimit())

		emu.Inject(brelliumtest.OpAuditList, brelliumtest.OK().DelayResponse(time.Second))
		var wait sync.WaitGroup
		wait.Go(func() { assert.NoError(t, list(t.Context(), client)) })
		synctest.Wait()
		require.NoError(t, retrieve(t.Context(), client))
		assert.Equal(t, 97, client.RateLimit().Remaining)
		wait.Wait()
		assert.Equal(t, start.Add(time.Second), client.RateLimit().ObservedAt)

		// A response whose body comes late has older headers.
		emu.Inject(brelliumtest.OpAuditList, brelliumtest.OK().StallInBody(time.Second))
		wait.Go(func() { assert.NoError(t, list(t.Context(), client)) })
		time.Sleep(500 * time.Millisecond)
		require.NoError(t, retrieve(t.Context(), client))
		newest := client.RateLimit()
		wait.Wait()
		assert.Equal(t, start.Add(2*time.Second), time.Now())
		assert.Equal(t, newest, client.RateLimit())

		emu.SetRateLimit(50, 2.5)
		emu.Inject(brelliumtest.OpAuditRetrieve, refusal("7"))
		require.NoError(t, retrieve(t.Context(), client))
		assert.Equal(t, 50, client.RateLimit().Limit)
	})
}

// With 60 calls in the queue a deadline of 5 s cannot be met: the call fails at
// once, reports the least possible wait, and takes nothing.
func TestDeadlineThatTheQueueCannotMeetFailsAtOnce(t *testing.T) {
	bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		backfill(t, client, 98, 16)
		start := time.Now()
		var wait sync.WaitGroup
		wait.Go(func() { backfill(t, client, 60, 60) })
		synctest.Wait()
		sent := emu.Count(brelliumtest.OpAuditRetrieve)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		err := retrieve(ctx, client)
		assert.Zero(t, time.Since(start))
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		var interrupted *brellium.InterruptedError
		require.ErrorAs(t, err, &interrupted)
		assert.Zero(t, interrupted.Attempts)
		assert.False(t, brellium.OutcomeUnknown(err))
		after, ok := brellium.RetryAfter(err)
		assert.True(t, ok)
		assert.InDelta(t, 12, after.Seconds(), 1, "61 tokens at 5 a second")
		assert.Equal(t, sent, emu.Count(brelliumtest.OpAuditRetrieve))
		wait.Wait()
		assert.InDelta(t, 12.2, time.Since(start).Seconds(), 0.7, "no other call waited longer for it")
	})
}

// One wrong Retry-After (the time since 1970, a far date) must not stop the client
// for a day: only the call that got it ends.
func TestAnAbsurdRetryAfterDoesNotStopTheClient(t *testing.T) {
	for retryAfter, longest := range map[string]time.Duration{
		"1764547200":                    6 * time.Second,
		"Fri, 31 Dec 2100 23:59:59 GMT": 6 * time.Second,
		"1800":                          6 * time.Minute,
	} {
		testkit.Bubble(t, retryAfter, func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
			require.NoError(t, testkit.Retrieve(t.Context(), client))
			emu.Inject(brelliumtest.OpAuditRetrieve, testkit.RateLimited(retryAfter))
			err := testkit.Retrieve(t.Context(), client)
			require.ErrorIs(t, err, brellium.ErrRateLimited)
			wait, ok := brellium.RetryAfter(err)
			assert.True(t, ok)
			assert.Greater(t, wait, 29*time.Minute, "the call reports what it was told")
			begun := time.Now()
			require.NoError(t, testkit.Retrieve(t.Context(), client))
			assert.LessOrEqual(t, time.Since(begun), longest)
		})
	}
}

// A wrong Retry-After, a block that is over, a token endpoint that works again: an
// operator need not wait.
func TestResumeEndsEveryPause(t *testing.T) {
	fixed, err := brellium.NewFixedLimiter(10, 5)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		operation string
		fault     brelliumtest.Fault
		failures  int
		option    brellium.ClientOption
	}{
		"429":                  {brelliumtest.OpAuditRetrieve, testkit.RateLimited("300"), 1, nil},
		"429, a fixed limiter": {brelliumtest.OpAuditRetrieve, testkit.RateLimited("300"), 1, brellium.WithRateLimiter(fixed)},
		"429 for a token":      {brelliumtest.OpTokenCreate, testkit.RateLimited("300"), 1, nil},
		"bad credentials":      {brelliumtest.OpTokenCreate, brelliumtest.Status(401, "INVALID_CLIENT"), 1, nil},
		"bare 403":             {brelliumtest.OpAuditRetrieve, brelliumtest.Blocked(), 2, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				emu := brelliumtest.New()
				var opts []brellium.ClientOption
				if c.option != nil {
					opts = append(opts, c.option)
				}
				client := testkit.NewClient(t, emu, opts...)
				derived, err := client.With()
				require.NoError(t, err)
				emu.Inject(c.operation, c.fault.Forever())
				for range c.failures {
					require.Error(t, testkit.Retrieve(t.Context(), client, brellium.WithMaxRetries(0)))
				}
				emu.ClearFaults()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				require.Error(t, testkit.Retrieve(ctx, client), "it is paused")
				start := time.Now()
				derived.Resume()
				require.NoError(t, testkit.Retrieve(t.Context(), client))
				assert.Less(t, time.Since(start), time.Second)
			})
		})
	}
}

// Calls that wait are woken.
func TestResumeWakesCalls(t *testing.T) {
	testkit.Bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		require.NoError(t, testkit.Retrieve(t.Context(), client))
		emu.Inject(brelliumtest.OpAuditRetrieve, testkit.RateLimited("300"))
		require.Error(t, testkit.Retrieve(t.Context(), client, brellium.WithMaxRetries(0)))
		start := time.Now()
		time.AfterFunc(time.Minute, client.Resume)
		testkit.Concurrently(t, 5, func(ctx context.Context, _ int) error { return testkit.Retrieve(ctx, client) })
		assert.Greater(t, time.Since(start), 59*time.Second)
		assert.Less(t, time.Since(start), 90*time.Second)
	})
}
