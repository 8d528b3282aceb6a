package brelliumredis

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	brellium "github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

// fleet is a number of workers, each with its own client and limiter, whose calls
// retrieve one audit.
type fleet struct {
	workers, calls, concurrency int
	level                       float64
	seed                        uint64
	median, p99                 time.Duration
	toStore                     time.Duration // round trip to the store
	other                       float64       // requests a second of another client
	limit                       int           // of the server, if not the documented one
	rate                        float64
	outage                      time.Duration // of the store, after 20 s
	keeps                       bool          // the store keeps the record during the outage
	every                       time.Duration // between interactive calls of the first worker
}

// outcome is the result of a fleet's run.
type outcome struct {
	failed, rateLimited, exchanges int
	calls, permits, local          int
	ratio                          float64 // time taken over the lower bound
	fairness                       float64 // Jain's index over windows of 30 s, all workers active
	other, otherRateLimited        int
	interactive                    []time.Duration // time taken by each call
}

func lognormal(median, p99 time.Duration) func(*rand.Rand) time.Duration {
	sigma := math.Log(float64(p99)/float64(median)) / 2.3263
	return func(r *rand.Rand) time.Duration {
		return time.Duration(float64(median) * math.Exp(sigma*r.NormFloat64()))
	}
}

// run makes the fleet's calls in virtual time.
func (f fleet) run(t *testing.T) (o outcome) {
	synctest.Test(t, func(t *testing.T) {
		emu := brelliumtest.New(brelliumtest.WithSeed(f.seed), brelliumtest.WithRateLimitLevel(f.level),
			brelliumtest.WithLatency(lognormal(f.median, f.p99)))
		shared := &model{latency: f.toStore}
		outage := &breaking{model: shared}
		if f.outage > 0 {
			time.AfterFunc(20*time.Second, func() { outage.set(errors.New("gone")) })
			time.AfterFunc(20*time.Second+f.outage, func() {
				if !f.keeps {
					shared.lose()
				}
				outage.set(nil)
			})
		}
		tokens := brellium.NewMemoryTokenStore()
		var limiters []*Limiter
		begin := time.Now()
		done := make([][]time.Duration, f.workers)
		if f.limit > 0 {
			emu.SetRateLimit(f.limit, f.rate)
		}
		stop := make(chan struct{})
		var others sync.WaitGroup
		if f.other > 0 {
			others.Go(func() {
				r := rand.New(rand.NewPCG(f.seed, 3))
				for {
					select {
					case <-time.After(time.Duration(r.ExpFloat64() / f.other * float64(time.Second))):
					case <-stop:
						return
					}
					o.other++
					if !emu.Spend() {
						o.otherRateLimited++
					}
				}
			})
		}
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range f.workers {
			l, err := newLimiter(LimiterOptions{})
			require.NoError(t, err)
			l.store = outage
			limiters = append(limiters, l)
			client, err := emu.Client(brellium.WithRateLimiter(l), brellium.WithTokenStore(tokens))
			require.NoError(t, err)
			calls := make(chan struct{}, f.calls)
			for range f.calls / f.workers {
				calls <- struct{}{}
			}
			close(calls)
			if i == 0 && f.every > 0 {
				others.Go(func() {
					for {
						select {
						case <-time.After(f.every):
						case <-stop:
							return
						}
						begin := time.Now()
						_, err := client.Audits.Retrieve(context.Background(), brelliumtest.SampleAuditID, brellium.WithPriority(brellium.Interactive))
						assert.NoError(t, err)
						o.interactive = append(o.interactive, time.Since(begin))
					}
				})
			}
			for range f.concurrency {
				wg.Go(func() {
					for range calls {
						_, err := client.Audits.Retrieve(context.Background(), brelliumtest.SampleAuditID)
						mu.Lock()
						if err != nil {
							o.failed++
						}
						done[i] = append(done[i], time.Since(begin))
						mu.Unlock()
					}
				})
			}
		}
		wg.Wait()
		close(stop)
		others.Wait()
		took := time.Since(begin)
		for _, r := range emu.Requests(brelliumtest.OpAuditRetrieve) {
			if r.Status == http.StatusTooManyRequests {
				o.rateLimited++
			}
		}
		time.Sleep(2 * time.Second) // for the last results to be reported
		synctest.Wait()
		o.exchanges = shared.exchanges
		o.calls = f.calls/f.workers*f.workers + len(o.interactive)
		o.ratio = took.Seconds() / ((float64(o.calls) - f.level) / 5)
		o.fairness = jain(done)
		assert.Empty(t, shared.tickets)
		for _, l := range limiters {
			assert.Zero(t, l.inFlight)
			assert.Zero(t, l.localInFlight)
			assert.Zero(t, l.spent)
			assert.Zero(t, l.Stats().Waiting)
			o.permits += int(l.Stats().Granted)
			o.local += int(l.Stats().Local)
			assert.False(t, l.Stats().Away)
		}
	})
	return o
}

// jain returns Jain's index of the shares, the mean over windows of 30 s in
// which all were active.
func jain(done [][]time.Duration) float64 {
	end := time.Duration(math.MaxInt64)
	for _, d := range done {
		end = min(end, d[len(d)-1])
	}
	const window = 30 * time.Second
	windows, sum := 0.0, 0.0
	for from := time.Duration(0); from+window <= end; from += window {
		var total, squares float64
		for _, d := range done {
			n := 0.0
			for _, at := range d {
				if at >= from && at < from+window {
					n++
				}
			}
			total += n
			squares += n * n
		}
		windows++
		sum += total * total / (float64(len(done)) * squares)
	}
	return sum / windows
}

// The real client against the emulator at full scale.
func TestFleetKeepsTheLimitWithoutRateLimitsAndSharesEqually(t *testing.T) {
	for _, workers := range []int{5, 20, 50} {
		for _, level := range []float64{100, 0} {
			t.Run(fmt.Sprintf("%d workers, %v tokens", workers, level), func(t *testing.T) {
				for seed := range uint64(1 + level/100) {
					o := fleet{workers: workers, calls: 1000, concurrency: []int{8, 1}[seed], level: level, seed: seed,
						median: 80 * time.Millisecond, p99: 400 * time.Millisecond, toStore: time.Millisecond}.run(t)
					o.log(t)
					assert.Zero(t, o.failed)
					if level > 0 {
						assert.Zero(t, o.rateLimited)
						assert.LessOrEqual(t, o.ratio, 1.01)
					} else {
						assert.LessOrEqual(t, o.rateLimited, 2, "the first probes")
						assert.LessOrEqual(t, o.ratio, 1.02)
					}
					assert.GreaterOrEqual(t, o.fairness, 0.98)
					// Two for each attempt, and some until the bucket is known.
					assert.LessOrEqual(t, o.exchanges, 2*(o.permits+workers))
				}
			})
		}
	}
}

var (
	near = fleet{workers: 5, calls: 1000, concurrency: 4, level: 100,
		median: 80 * time.Millisecond, p99: 400 * time.Millisecond, toStore: time.Millisecond}
	far = fleet{workers: 5, calls: 1000, concurrency: 64, level: 100,
		median: 500 * time.Millisecond, p99: 1500 * time.Millisecond, toStore: 20 * time.Millisecond}
)

func (o outcome) log(t *testing.T) {
	t.Logf("T/LB %.4f, %d 429s, Jain %.4f, %.2f round trips a call; of %d requests of the other client %d rate limited",
		o.ratio, o.rateLimited, o.fairness, float64(o.exchanges)/float64(o.calls), o.other, o.otherRateLimited)
}

func TestLongRoundTripsCauseNoRateLimit(t *testing.T) {
	for _, workers := range []int{1, 5} {
		f := far
		f.workers = workers
		o := f.run(t)
		o.log(t)
		assert.Zero(t, o.failed)
		assert.Zero(t, o.rateLimited)
		assert.LessOrEqual(t, o.ratio, 1.02, "it waits for the first response and for the last")
		assert.LessOrEqual(t, o.exchanges, 2*o.permits)
	}
}

func TestLimiterBacksOffForAnotherClient(t *testing.T) {
	for _, c := range []struct {
		workers    int
		other      float64
		roundTrips float64 // a call
	}{{5, 2, 2}, {20, 2, 3}, {20, 3.5, 3.5}, {40, 1, 3}, {40, 3.5, 4.6}} {
		f := near
		f.workers, f.other, f.seed = c.workers, c.other, 1
		o := f.run(t)
		o.log(t)
		assert.Zero(t, o.failed)
		assert.LessOrEqual(t, o.rateLimited, 15, "1.5 %%")
		assert.LessOrEqual(t, float64(o.otherRateLimited), 0.02*float64(o.other))
		assert.LessOrEqual(t, o.ratio*(5-c.other)/5, 1.05)
		assert.GreaterOrEqual(t, o.fairness, 0.85)
		assert.LessOrEqual(t, float64(o.exchanges), c.roundTrips*float64(o.calls))
	}
}

func TestNoCallFailsNextToAClientThatTakesNearlyAll(t *testing.T) {
	f := near
	f.calls, f.other = 300, 4.5
	o := f.run(t)
	o.log(t)
	assert.Zero(t, o.failed)
}

func TestUndocumentedLimitIsFollowed(t *testing.T) {
	half, double := near, near
	half.limit, half.rate, half.level = 50, 2.5, 50
	o := half.run(t)
	o.log(t)
	assert.Zero(t, o.failed)
	assert.LessOrEqual(t, o.rateLimited, 8)
	assert.LessOrEqual(t, o.ratio/2, 1.1)

	double.limit, double.rate = 200, 10
	o = double.run(t)
	o.log(t)
	assert.Zero(t, o.failed)
	assert.Zero(t, o.rateLimited)
	assert.LessOrEqual(t, o.ratio*2, 1.03)
}

func TestNoCallFailsWhileTheStoreIsUnavailable(t *testing.T) {
	for _, c := range []struct {
		workers, rateLimited int
		outage               time.Duration
		keeps                bool
	}{{5, 5, 4 * time.Second, true}, {5, 5, time.Minute, false}, {20, 20, time.Minute, true}} {
		f := near
		f.workers, f.outage, f.keeps = c.workers, c.outage, c.keeps
		o := f.run(t)
		o.log(t)
		t.Logf("%d attempts of %d local", o.local, o.local+o.permits)
		assert.Zero(t, o.failed)
		assert.Positive(t, o.local)
		assert.LessOrEqual(t, o.rateLimited, c.rateLimited)
		assert.LessOrEqual(t, o.ratio, 1.2, "calls go on")
	}
}
