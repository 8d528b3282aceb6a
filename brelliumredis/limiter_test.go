//go:build unix

package brelliumredis

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	brellium "github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

// scaled is a bucket that drains within a second.
var scaled = LimiterOptions{Burst: 20, PerSecond: 200, LocalBurst: 5, LocalPerSecond: 50, MaxDelay: 5 * time.Second}

// notes records the calls of Notify.
type notes struct {
	mu  sync.Mutex
	all []error
}

func (n *notes) add(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, err)
}

func (n *notes) list() []error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]error(nil), n.all...)
}

// expect waits for count notices, which come from another goroutine, and checks
// that there are no more.
func (n *notes) expect(t *testing.T, count int) []error {
	require.Eventually(t, func() bool { return len(n.list()) >= count }, 10*time.Second, time.Millisecond)
	all := n.list()
	require.Len(t, all, count)
	return all
}

// crew is a number of workers of one scaled bucket in real time, each with its own
// client, limiter and Redis connection.
type crew struct {
	t        *testing.T
	emu      *brelliumtest.Emulator
	notes    notes
	limiters []*Limiter
	clients  []*brellium.Client
}

func newCrew(t *testing.T, b backend, workers int, options LimiterOptions) *crew {
	c := &crew{t: t, emu: brelliumtest.New(brelliumtest.WithRateLimit(scaled.Burst, scaled.PerSecond))}
	options.Notify = c.notes.add
	tokens := brellium.NewMemoryTokenStore()
	for range workers {
		l, err := NewLimiter(b.client(t), options)
		require.NoError(t, err)
		l.pause = 50 * time.Millisecond
		client, err := c.emu.Client(brellium.WithRateLimiter(l), brellium.WithTokenStore(tokens))
		require.NoError(t, err)
		c.limiters = append(c.limiters, l)
		c.clients = append(c.clients, client)
	}
	return c
}

func (c *crew) call(ctx context.Context, worker int) error {
	_, err := c.clients[worker].Audits.Retrieve(ctx, brelliumtest.SampleAuditID)
	return err
}

// work makes calls with all workers concurrently and calls halfway at half time.
// It returns how many calls each worker made.
func (c *crew) work(calls int, halfway func()) []int {
	queue := make(chan int, calls)
	for i := range calls {
		queue <- i
	}
	close(queue)
	shares := make([]int, len(c.clients))
	var mu sync.Mutex
	var wg sync.WaitGroup
	for worker := range c.clients {
		for range 4 {
			wg.Go(func() {
				for i := range queue {
					if i == calls/2 && halfway != nil {
						halfway()
					}
					err := c.call(context.Background(), worker)
					mu.Lock()
					assert.NoError(c.t, err)
					shares[worker]++
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	return shares
}

func (c *crew) rateLimited() (n int) {
	for _, r := range c.emu.Requests(brelliumtest.OpAuditRetrieve) {
		if r.Status == http.StatusTooManyRequests {
			n++
		}
	}
	return n
}

func (c *crew) stats() (s Stats) {
	for _, l := range c.limiters {
		one := l.Stats()
		s.Granted += one.Granted
		s.Local += one.Local
		s.RoundTrips += one.RoundTrips
	}
	return s
}

func TestWorkersShareOneBucket(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		c := newCrew(t, b, 4, scaled)
		begin := time.Now()
		shares := c.work(300, nil)
		took := time.Since(begin)
		assert.Zero(t, c.rateLimited())
		assert.Empty(t, c.notes.list())
		bound := float64(300-scaled.Burst) / scaled.PerSecond
		assert.GreaterOrEqual(t, took.Seconds(), 0.95*bound, "no burst beyond the bucket")
		assert.LessOrEqual(t, took.Seconds(), 20*bound, "the rest depends on the machine")
		s := c.stats()
		assert.EqualValues(t, 300, s.Granted)
		assert.Zero(t, s.Local)
		assert.LessOrEqual(t, s.RoundTrips, 2*(s.Granted+4))
		if _, ok := b.(*real); ok {
			var scripts int64
			info := b.client(t).Info(context.Background(), "commandstats").Val()
			for _, m := range regexp.MustCompile(`cmdstat_eval(?:sha)?:calls=(\d+)`).FindAllStringSubmatch(info, -1) {
				n, err := strconv.ParseInt(m[1], 10, 64)
				require.NoError(t, err)
				scripts += n
			}
			assert.LessOrEqual(t, scripts, s.RoundTrips+2*4, "as Redis counts them, including the load of the script")
			assert.Positive(t, scripts)
		}
		total, squares := 0.0, 0.0
		for _, n := range shares {
			total += float64(n)
			squares += float64(n * n)
		}
		assert.GreaterOrEqual(t, total*total/(4*squares), 0.9, "%v", shares)
		t.Logf("T/LB %.3f, shares %v, %.2f round trips a call", took.Seconds()/bound, shares, float64(s.RoundTrips)/300)
	})
}

// disturb runs a crew while something happens to Redis, and checks that no call
// fails and that there are few 429s.
func disturb(t *testing.T, rateLimits int, halfway func(b backend)) {
	eachBackend(t, func(t *testing.T, b backend) {
		options := scaled
		options.MaxDelay = 100 * time.Millisecond
		c := newCrew(t, b, 3, options)
		begin := time.Now()
		c.work(200, func() { halfway(b) })
		took := time.Since(begin)
		s := c.stats()
		t.Logf("%d 429s, %d of %d attempts local, %.1f s", c.rateLimited(), s.Local, s.Local+s.Granted, took.Seconds())
		assert.LessOrEqual(t, c.rateLimited(), rateLimits)
		assert.GreaterOrEqual(t, took.Seconds(), 0.95*float64(200-scaled.Burst)/scaled.PerSecond)
		assert.Eventually(t, func() bool {
			for i := range c.clients {
				if err := c.call(context.Background(), i); err != nil {
					return false
				}
				if c.limiters[i].Stats().Away {
					return false
				}
			}
			return true
		}, 10*time.Second, 10*time.Millisecond, "all are back")
	})
}

func TestNoCallFailsWhenRedisLosesItsData(t *testing.T) {
	disturb(t, 4, func(b backend) {
		rdb := redis.NewClient(&redis.Options{Addr: b.addr()})
		defer func() { _ = rdb.Close() }()
		assert.NoError(t, rdb.FlushAll(context.Background()).Err())
	})
}

func TestNoCallFailsWhenRedisIsKilled(t *testing.T) {
	disturb(t, 6, func(b backend) {
		b.kill()
		go func() {
			<-time.After(300 * time.Millisecond)
			b.restart()
		}()
	})
}

func TestNoCallFailsWhenRedisIsPaused(t *testing.T) {
	disturb(t, 6, func(b backend) {
		b.pause()
		go func() {
			<-time.After(300 * time.Millisecond)
			b.resume()
		}()
	})
}

// sourcegraph/sourcegraph-public-snapshot#56548, rmorlok/authproxy#221
func TestUnavailableRedisMeansALocalShareAndOneNotice(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		options := scaled
		options.LocalBurst, options.LocalPerSecond, options.MaxDelay = 3, 50, time.Second
		c := newCrew(t, b, 1, options)
		l := c.limiters[0]
		twenty := func() (longest time.Duration) {
			for range 20 {
				begin := time.Now()
				require.NoError(t, c.call(context.Background(), 0))
				longest = max(longest, time.Since(begin))
			}
			return longest
		}
		twenty()
		require.EqualValues(t, 20, l.Stats().Granted)

		b.kill()
		begin := time.Now()
		twenty()
		require.GreaterOrEqual(t, time.Since(begin), 17*20*time.Millisecond-100*time.Millisecond, "a small share")
		require.EqualValues(t, 20, l.Stats().Local)
		require.ErrorIs(t, c.notes.expect(t, 1)[0], ErrUnavailable)

		b.restart()
		require.Eventually(t, func() bool { return c.call(context.Background(), 0) == nil && !l.Stats().Away },
			10*time.Second, 10*time.Millisecond)
		require.NoError(t, c.notes.expect(t, 2)[1])

		b.pause()
		longest := twenty()
		require.Less(t, longest, 2*options.MaxDelay, "a bounded delay")
		require.ErrorIs(t, c.notes.expect(t, 3)[2], ErrUnavailable)

		b.resume()
		require.Eventually(t, func() bool { return c.call(context.Background(), 0) == nil && !l.Stats().Away },
			10*time.Second, 10*time.Millisecond)
		c.notes.expect(t, 4)
		before := l.Stats()
		twenty()
		require.EqualValues(t, before.Granted+20, l.Stats().Granted, "the shared bucket again")
		require.Zero(t, c.rateLimited())
	})
}

func TestHangingRedisDelaysNoCallPastItsContext(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		options := scaled
		options.MaxDelay = 20 * time.Second
		l, err := NewLimiter(b.client(t), options)
		require.NoError(t, err)
		b.pause()
		defer b.resume()
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
		defer cancel()
		begin := time.Now()
		_, err = l.Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, time.Since(begin), 5*time.Second)

		ctx, cancel = context.WithCancel(context.Background())
		cancel()
		_, err = l.Acquire(ctx)
		require.ErrorIs(t, err, context.Canceled)
	})
}

// A client that ignores contexts blocks on a paused Redis for seconds.
func TestClientThatIgnoresContextsIsNotWaitedFor(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		rdb := redis.NewClient(&redis.Options{Addr: b.addr(), ReadTimeout: time.Minute})
		defer func() { _ = rdb.Close() }()
		options := scaled
		options.MaxDelay = 50 * time.Millisecond
		l, err := NewLimiter(rdb, options)
		require.NoError(t, err)
		l.pause = 10 * time.Millisecond
		take(t, l)
		b.pause()
		begin := time.Now()
		for range 5 {
			take(t, l)
		}
		require.Less(t, time.Since(begin), 20*time.Second)
		require.True(t, l.Stats().Away)
		trips := l.Stats().RoundTrips
		take(t, l)
		require.Equal(t, trips, l.Stats().RoundTrips, "one exchange hangs, and no other is started")
		b.resume()
		require.Eventually(t, func() bool { take(t, l); return !l.Stats().Away }, 10*time.Second, 10*time.Millisecond)
	})
}

// take acquires a permit and ends it as allowed.
func take(t testing.TB, l *Limiter) {
	p, err := l.Acquire(context.Background())
	require.NoError(t, err)
	p.Done(allowed(15, 20))
}

func allowed(remaining, limit int) brellium.LimiterResult {
	return brellium.LimiterResult{Spent: brellium.SpentYes,
		RateLimit: brellium.RateLimit{Limit: limit, Remaining: remaining, ObservedAt: time.Now()}}
}

func TestFailClosed(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		options := scaled
		options.FailClosed = true
		c := newCrew(t, b, 1, options)
		l := c.limiters[0]
		require.NoError(t, c.call(context.Background(), 0))
		b.kill()
		for range 20 {
			require.ErrorIs(t, c.call(context.Background(), 0), ErrUnavailable)
		}
		c.notes.expect(t, 1)
		require.Equal(t, 1, c.emu.Count(brelliumtest.OpAuditRetrieve), "nothing was sent")
		b.restart()
		require.Eventually(t, func() bool { return c.call(context.Background(), 0) == nil }, 10*time.Second, 10*time.Millisecond)
		require.Zero(t, l.Stats().Local)
		c.notes.expect(t, 2)
	})
}

// brokenClient is a Redis client that panics.
type brokenClient struct{ redis.UniversalClient }

func (brokenClient) ScriptLoad(context.Context, string) *redis.StringCmd { panic("client") }

// Both run in a goroutine of the limiter.
func TestPanicOfTheRedisClientOrOfNotifyEndsNoProcess(t *testing.T) {
	var notices chan error
	l, err := NewLimiter(brokenClient{}, LimiterOptions{Notify: func(err error) { notices <- err; panic("notify") }})
	require.NoError(t, err) // outside the bubble: FIPS mode reads its first random numbers from a goroutine
	synctest.Test(t, func(t *testing.T) {
		notices = make(chan error, 1)
		p, err := l.Acquire(context.Background())
		require.NoError(t, err, "from the local share")
		p.Done(brellium.LimiterResult{Spent: brellium.SpentYes})
		require.ErrorIs(t, <-notices, ErrUnavailable)
		settle(2 * time.Second)
	})
}

func TestCluster(t *testing.T) {
	path := realRedis(t)
	if path == "" {
		t.Log("no redis-server: only the names of the keys are checked")
		s := newRedisStore(nil, "b")
		for _, key := range s.keys {
			require.Contains(t, key, ":{b}:")
		}
		require.Contains(t, leaseName("k"), "{k}")
		require.Contains(t, tokenName("k"), "{k}")
		return
	}
	r := newReal(t, path, "--cluster-enabled", "yes")
	ctx := context.Background()
	require.NoError(t, r.client(t).ClusterAddSlotsRange(ctx, 0, 16383).Err())
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{r.addr()}})
	defer func() { _ = rdb.Close() }()
	require.Eventually(t, func() bool { return rdb.Set(ctx, "up", 1, 0).Err() == nil }, 10*time.Second, 5*time.Millisecond)

	options := scaled
	options.FailClosed, options.MaxDelay = true, 5*time.Second
	l, err := NewLimiter(rdb, options)
	require.NoError(t, err)
	for range 10 {
		take(t, l)
	}
	s, err := NewTokenStore(rdb, TokenStoreOptions{ClientSecret: NewSecret("secret")})
	require.NoError(t, err)
	lease, err := s.Lease(ctx, "key", time.Minute)
	require.NoError(t, err)
	require.NoError(t, lease.Save(ctx, brellium.NewToken("Bearer", "value", time.Time{})))
	token, err := s.Load(ctx, "key")
	require.NoError(t, err)
	require.Equal(t, "value", token.Reveal())
}

func TestRecordOfAnotherTypeCountsAsUnavailable(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		c := newCrew(t, b, 1, scaled)
		require.NoError(t, b.client(t).Set(context.Background(), newRedisStore(nil, defaultBucket).keys[0], "text", 0).Err())
		require.NoError(t, c.call(context.Background(), 0))
		require.ErrorContains(t, c.notes.expect(t, 1)[0], "WRONGTYPE")
	})
}

func TestOptionsAreValidated(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{})
	defer func() { _ = rdb.Close() }()
	var none *redis.Client
	for field, err := range map[string]error{
		"rdb":            second(NewLimiter(none, LimiterOptions{})),
		"Bucket":         second(NewLimiter(rdb, LimiterOptions{Bucket: "a}b"})),
		"Burst":          second(NewLimiter(rdb, LimiterOptions{PerSecond: 3})),
		"PerSecond":      second(NewLimiter(rdb, LimiterOptions{Burst: 3})),
		"LocalBurst":     second(NewLimiter(rdb, LimiterOptions{LocalPerSecond: 3})),
		"LocalPerSecond": second(NewLimiter(rdb, LimiterOptions{LocalBurst: 3, LocalPerSecond: -1})),
		"MaxDelay":       second(NewLimiter(rdb, LimiterOptions{MaxDelay: -1})),
		"ClientSecret":   second(NewTokenStore(rdb, TokenStoreOptions{})),
	} {
		var invalid *brellium.ValidationError
		require.ErrorAs(t, err, &invalid, field)
		require.Equal(t, field, invalid.Field)
	}
	for _, valid := range []LimiterOptions{
		{Burst: 1, PerSecond: 1e-6}, {Burst: 1e6, PerSecond: 1e6}, {MaxDelay: 1}, {LocalBurst: 1, LocalPerSecond: 1e-9},
		{Bucket: strings.Repeat("x", 200)}, {Bucket: "!~"},
	} {
		require.NoError(t, second(NewLimiter(rdb, valid)))
	}
	require.Error(t, second(NewLimiter(nil, LimiterOptions{})))
	require.Error(t, second(NewTokenStore(nil, TokenStoreOptions{ClientSecret: NewSecret("s")})))
	require.Error(t, second(NewLimiter(rdb, LimiterOptions{Bucket: strings.Repeat("x", 201)})))
	require.Error(t, second(NewLimiter(rdb, LimiterOptions{Bucket: "a b"})))
}

func second[T any](_ T, err error) error { return err }

// inBubble runs a test of one limiter over the model in virtual time.
func inBubble(t *testing.T, options LimiterOptions, test func(t *testing.T, l *Limiter, m *model)) {
	synctest.Test(t, func(t *testing.T) {
		l, err := newLimiter(options)
		require.NoError(t, err)
		m := new(model)
		l.store = m
		test(t, l, m)
		settle(time.Minute)
	})
}

// settle lets time pass and then waits until all goroutines are blocked.
func settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// drained leaves only the reserve in the bucket.
func drained(t *testing.T, l *Limiter) {
	p, err := l.Acquire(context.Background())
	require.NoError(t, err)
	p.Done(allowed(1, 100))
	settle(time.Millisecond)
}

func TestWaitBeyondTheDeadlineFailsAtOnceAndTakesNothing(t *testing.T) {
	inBubble(t, LimiterOptions{}, func(t *testing.T, l *Limiter, m *model) {
		p, err := l.Acquire(context.Background())
		require.NoError(t, err)
		p.Done(brellium.LimiterResult{Refused: true, RetryAfter: 5 * time.Second})
		settle(time.Millisecond)
		before := m.dump()
		begin := time.Now()
		for range 3 {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			_, err = l.Acquire(ctx)
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded)
			var interrupted *brellium.InterruptedError
			require.ErrorAs(t, err, &interrupted)
			require.Greater(t, interrupted.Wait, 4*time.Second)
		}
		require.Zero(t, time.Since(begin), "at once")
		synctest.Wait()
		require.Empty(t, m.tickets)
		require.Empty(t, m.attempts)
		require.Contains(t, before, fmt.Sprintln("ended", m.ended))

		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		_, err = l.Acquire(ctx)
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(begin), 5*time.Second-time.Millisecond)
	})
}

func TestWaitThatBecomesTooLongFailsThen(t *testing.T) {
	inBubble(t, LimiterOptions{}, func(t *testing.T, l *Limiter, m *model) {
		drained(t, l)
		late, err := l.Acquire(context.Background())
		require.NoError(t, err)
		begin := time.Now()
		result := make(chan error, 8)
		for range cap(result) {
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
				defer cancel()
				_, err := l.Acquire(ctx)
				result <- err
			}()
		}
		synctest.Wait()
		late.Done(brellium.LimiterResult{Refused: true, RetryAfter: time.Minute})
		for range cap(result) {
			if err := <-result; err != nil {
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
		}
		require.Less(t, time.Since(begin), time.Second)
		synctest.Wait()
		require.Empty(t, m.tickets)
	})
}

// Through the client: a 429 that asked for too long ends by hand.
func TestResumeWakesTheCallsOfAllProcesses(t *testing.T) {
	inBubble(t, LimiterOptions{}, func(t *testing.T, l *Limiter, m *model) {
		other, err := newLimiter(LimiterOptions{})
		require.NoError(t, err)
		other.store = m
		drained(t, l)
		p, err := l.Acquire(context.Background())
		require.NoError(t, err)
		p.Done(brellium.LimiterResult{Refused: true, RetryAfter: 50 * time.Minute})
		settle(time.Second)
		begin := time.Now()
		client, err := brellium.NewClient(brellium.WithAccessToken("t"), brellium.WithRateLimiter(l))
		require.NoError(t, err)
		time.AfterFunc(time.Minute, client.Resume)
		var calls sync.WaitGroup
		for _, l := range []*Limiter{l, other} {
			calls.Go(func() {
				p, err := l.Acquire(context.Background())
				if assert.NoError(t, err) {
					p.Done(brellium.LimiterResult{Spent: brellium.SpentYes})
				}
			})
		}
		calls.Wait()
		require.Greater(t, time.Since(begin), time.Minute-time.Second)
		require.Less(t, time.Since(begin), time.Minute+12*time.Second)
		settle(time.Second)
	})
}

func TestLeavingTheQueueReturnsTheTicket(t *testing.T) {
	inBubble(t, LimiterOptions{}, func(t *testing.T, l *Limiter, m *model) {
		drained(t, l)
		ctx, cancel := context.WithCancel(context.Background())
		result := make(chan error)
		go func() {
			_, err := l.Acquire(ctx)
			result <- err
		}()
		synctest.Wait()
		require.Len(t, m.tickets, 1)
		cancel()
		require.ErrorIs(t, <-result, context.Canceled)
		settle(110 * time.Millisecond)
		require.Empty(t, m.tickets)
		require.Zero(t, l.Stats().Waiting)
	})
}

func TestGrantWithoutAWaiterIsReturned(t *testing.T) {
	inBubble(t, LimiterOptions{}, func(t *testing.T, l *Limiter, m *model) {
		take(t, l)
		settle(time.Second)
		m.latency = 100 * time.Millisecond
		low := m.low
		ctx, cancel := context.WithTimeout(context.Background(), 70*time.Millisecond) // the grant is on its way
		defer cancel()
		_, err := l.Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		settle(2 * time.Second)
		require.Empty(t, m.attempts)
		require.GreaterOrEqual(t, m.low, low)
		require.Zero(t, m.ended-1, "it never counted")
	})
}

func TestCallsOfAProcessAreServedInOrder(t *testing.T) {
	inBubble(t, LimiterOptions{}, func(t *testing.T, l *Limiter, m *model) {
		drained(t, l)
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				p, err := l.Acquire(context.Background())
				assert.NoError(t, err)
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				p.Done(brellium.LimiterResult{Spent: brellium.SpentYes})
			})
			synctest.Wait()
		}
		wg.Wait()
		for i := range order {
			require.Equal(t, i, order[i])
		}
	})
}

func TestRateLimitedCallsGoFirst(t *testing.T) {
	l, err := newLimiter(LimiterOptions{})
	require.NoError(t, err)
	for _, c := range []struct {
		serial uint64
		front  bool
		index  int
	}{{5, false, 0}, {6, false, 1}, {4, false, 0}, {9, true, 0}, {7, true, 0}, {8, true, 1}, {10, false, 6}} {
		require.Equal(t, c.index, l.push(&waiter{serial: c.serial, place: normal, front: c.front}), "%v", c)
	}
	var got []uint64
	for w := range l.queued {
		got = append(got, w.serial)
	}
	require.Equal(t, []uint64{7, 8, 9, 4, 5, 6, 10}, got)
}

func TestRateLimitedCallIsRetriedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		emu := brelliumtest.New(brelliumtest.WithRateLimitLevel(3))
		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.OK(), brelliumtest.Status(429, "RATE_LIMITED").WithHeader("Retry-After", "2"))
		l, err := newLimiter(LimiterOptions{})
		require.NoError(t, err)
		l.store = new(model)
		client, err := emu.Client(brellium.WithRateLimiter(l))
		require.NoError(t, err)
		ids := []string{brelliumtest.SampleAuditID}
		for range 30 {
			ids = append(ids, emu.AddAudit("complete"))
		}
		var wg sync.WaitGroup
		for _, id := range ids {
			wg.Go(func() {
				_, err := client.Audits.Retrieve(context.Background(), id)
				assert.NoError(t, err)
			})
			synctest.Wait()
		}
		wg.Wait()
		var order []string
		limited := -1
		for i, r := range emu.Requests(brelliumtest.OpAuditRetrieve) {
			order = append(order, r.Path)
			if r.Status == http.StatusTooManyRequests {
				limited = i
			}
		}
		require.Len(t, order, len(ids)+1)
		require.GreaterOrEqual(t, limited, 0)
		// It is retried up to half a second after the pause, in which about ten of
		// the others are sent. Then it goes first.
		require.Contains(t, order[limited+1:limited+17], order[limited], "it did not queue again")
	})
}

// awayLimiter returns a limiter that has found Redis unavailable.
func awayLimiter(t *testing.T) (*Limiter, *measuring) {
	l, m := measuredLimiter(t)
	m.set(errors.New("gone"))
	take(t, l)
	return l, m
}

func TestResumeEndsThePauseWhileRedisIsUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := awayLimiter(t)
		p, err := l.Acquire(t.Context())
		require.NoError(t, err)
		p.Done(brellium.LimiterResult{Refused: true, RetryAfter: 50 * time.Minute})
		begin := time.Now()
		time.AfterFunc(time.Minute, l.Resume)
		take(t, l)
		require.GreaterOrEqual(t, time.Since(begin), time.Minute)
		require.Less(t, time.Since(begin), time.Minute+10*time.Second)
	})
}

// A call that was sent while Redis was unavailable, and is rate limited once it is back,
// pauses all processes at once.
func TestRateLimitOfALocalCallIsReportedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, m := awayLimiter(t)
		p, err := l.Acquire(t.Context())
		require.NoError(t, err)
		m.set(nil)
		settle(2 * time.Second)
		take(t, l)
		settle(time.Minute)
		require.False(t, l.Stats().Away)
		m.results = nil
		p.Done(brellium.LimiterResult{Spent: brellium.SpentNo, Refused: true, RetryAfter: 7 * time.Second})
		synctest.Wait()
		results := slices.Concat(m.results...)
		require.Len(t, results, 1)
		require.Equal(t, kindRateLimited, results[0].kind)
		require.GreaterOrEqual(t, results[0].hold, 7*time.Second)
	})
}

func TestIdleProcessDoesNotAskAnUnavailableRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := awayLimiter(t)
		settle(2 * time.Second)
		require.True(t, l.Stats().Away)
		trips := l.Stats().RoundTrips
		settle(time.Minute)
		require.Equal(t, trips, l.Stats().RoundTrips)
	})
}

func TestLocalWaitsEndWhenRedisIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n notes
		l, err := newLimiter(LimiterOptions{LocalBurst: 1, LocalPerSecond: 0.01, Notify: n.add})
		require.NoError(t, err)
		b := &breaking{model: new(model)}
		l.store = b
		take(t, l)
		settle(time.Second)
		b.set(errors.New("gone"))
		begin := time.Now()
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() { take(t, l) })
		}
		settle(10 * time.Second)
		require.EqualValues(t, 1, l.Stats().Local)
		require.Equal(t, 9, l.Stats().Waiting)
		require.True(t, l.Stats().Away)
		require.LessOrEqual(t, l.Stats().RoundTrips, int64(2+11), "Redis is asked once a second")
		b.set(nil)
		wg.Wait()
		require.LessOrEqual(t, time.Since(begin), 14*time.Second)
		require.EqualValues(t, 10, l.Stats().Granted)
		require.Len(t, n.list(), 2)
		settle(time.Second)
		require.Zero(t, l.spent)
	})
}

func TestLateReplyIsUsed(t *testing.T) {
	inBubble(t, LimiterOptions{LocalBurst: 1, LocalPerSecond: 0.01}, func(t *testing.T, l *Limiter, m *model) {
		take(t, l)
		settle(time.Second)
		m.mu.Lock()
		m.latency = 20 * time.Second // as with a Redis client that ignores contexts
		m.mu.Unlock()
		done := make(chan struct{})
		for range 3 {
			go func() { take(t, l); done <- struct{}{} }()
		}
		<-done
		require.True(t, l.Stats().Away)
		m.mu.Lock()
		m.latency = 0
		m.mu.Unlock()
		begin := time.Now()
		<-done
		<-done
		require.Less(t, time.Since(begin), 21*time.Second)
		require.False(t, l.Stats().Away)
		settle(time.Second)
		for _, u := range m.attempts {
			require.NotEqual(t, 2.0, u.attempt, "the grant that came too late was returned")
		}
	})
}

// A Redis that responds, but always too late, stays unavailable and is reported once.
func TestSlowRedisStaysUnavailable(t *testing.T) {
	var n notes
	inBubble(t, LimiterOptions{LocalBurst: 20, LocalPerSecond: 5, Notify: n.add}, func(t *testing.T, l *Limiter, m *model) {
		m.latency = 400 * time.Millisecond
		for range 10 {
			take(t, l)
			settle(time.Second)
			require.True(t, l.Stats().Away)
		}
		require.EqualValues(t, 10, l.Stats().Local)
		require.Len(t, n.list(), 1)
	})
}

// measuring is a store that records the results that each exchange reports.
type measuring struct {
	breaking
	results [][]result
}

// measuredLimiter returns a limiter with such a store.
func measuredLimiter(t *testing.T) (*Limiter, *measuring) {
	l, err := newLimiter(LimiterOptions{})
	require.NoError(t, err)
	m := &measuring{breaking: breaking{model: new(model)}}
	l.store = m
	return l, m
}

func (m *measuring) exchange(ctx context.Context, q *request) (reply, error) {
	m.mu.Lock()
	m.results = append(m.results, slices.Clone(q.results))
	m.mu.Unlock()
	return m.breaking.exchange(ctx, q)
}

func TestResultsAreLimitedAndReportedInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, m := awayLimiter(t)
		settle(time.Second)
		m.set(nil)
		l.mu.Lock()
		now := time.Now()
		for i := range 1100 {
			l.queueResult(result{kind: kindPaid, attempt: int64(i), sent: now}, false, now)
		}
		require.Len(t, l.pending, 1024)
		require.EqualValues(t, 1099, l.pending[1023].attempt, "the newest are kept")
		l.mu.Unlock()
		m.results = nil
		take(t, l)
		settle(time.Minute)
		require.Empty(t, l.pending)
		most, all := 0, 0
		for _, results := range m.results {
			most, all = max(most, len(results)), all+len(results)
		}
		require.Equal(t, 64, most)
		require.Equal(t, 1025, all, "and that of the last call")
	})
}

func TestInvalidReplyOfTheScriptIsAnError(t *testing.T) {
	valid := func() []any {
		values := make([]any, 14)
		for i := range values {
			values[i] = int64(i)
		}
		values[11], values[13] = "7.5", int64(1)
		return values
	}
	r, err := parseReply(valid())
	require.NoError(t, err)
	require.Equal(t, reply{
		epoch: 1, attempt: 2, ended: 3, delay: 5 * time.Microsecond, ahead: 7, wait: 8 * time.Microsecond,
		least: 9 * time.Microsecond, held: 10 * time.Microsecond, high: 7.5, tickets: 12, others: true,
	}, r)
	for name, change := range map[string]func(values []any) []any{
		"none":      func([]any) []any { return nil },
		"one less":  func(values []any) []any { return values[:13] },
		"nil":       func(values []any) []any { values[3] = nil; return values },
		"a list":    func(values []any) []any { values[0] = []any{}; return values },
		"no number": func(values []any) []any { values[11] = "x"; return values },
		"a float":   func(values []any) []any { values[5] = 1.5; return values },
	} {
		_, err := parseReply(change(valid()))
		require.ErrorIs(t, err, errReply, name)
	}
	require.Zero(t, micros(-1))
	require.Positive(t, micros(math.MaxInt64))
}

// A process that is overtaken for the third time in a row asks a second later.
func TestProcessThatIsOvertakenAsksLessOften(t *testing.T) {
	inBubble(t, LimiterOptions{}, func(t *testing.T, l *Limiter, _ *model) {
		l.mu.Lock()
		defer l.mu.Unlock()
		now := time.Now()
		apply := func(r reply) time.Duration {
			l.credit = -1
			l.apply(&roundTrip{request: request{budget: -1, place: normal}}, r, now)
			return l.askAt.Sub(now)
		}
		overtaken := reply{ticket: true, ahead: 3, wait: 200 * time.Millisecond}
		for range 2 {
			require.Equal(t, 200*time.Millisecond, apply(overtaken))
			require.Equal(t, 200*time.Millisecond, apply(overtaken))
			require.Equal(t, 1200*time.Millisecond, apply(overtaken))
			require.Equal(t, 200*time.Millisecond, apply(reply{ticket: true, wait: 200 * time.Millisecond}), "the next in line")
		}
	})
}

func TestResultSaysWhenItsAttemptWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, m := measuredLimiter(t)
		p, err := l.Acquire(t.Context())
		require.NoError(t, err)
		sent := time.Now()
		settle(3 * time.Second)
		p.Done(allowed(50, 100))
		settle(time.Second)
		results := slices.Concat(m.results...)
		require.Len(t, results, 1)
		require.Equal(t, sent, results[0].sent)
		require.Equal(t, sent.Add(3*time.Second), results[0].received)
	})
}

func TestResultsOfAFailedExchangeAreReportedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, m := measuredLimiter(t)
		p, err := l.Acquire(t.Context())
		require.NoError(t, err)
		m.set(errors.New("gone"))
		p.Done(allowed(50, 100))
		settle(2 * time.Second)
		require.True(t, l.Stats().Away)
		require.Zero(t, m.ended)
		m.set(nil)
		take(t, l)
		settle(time.Second)
		require.Equal(t, 2.0, m.ended, "both attempts")
	})
}

// A call that turns to the local share just as Redis is back turns back.
func TestCallThatIsDivertedAsRedisIsBackTriesAgain(t *testing.T) {
	inBubble(t, LimiterOptions{}, func(t *testing.T, l *Limiter, _ *model) {
		var w waiter
		p, err := l.acquireLocal(t.Context(), &w)
		require.Error(t, err)
		require.Nil(t, p)
		require.True(t, w.again)
		require.Zero(t, l.Stats().Local)
	})
}

func TestUselessWaitIsToldToTheScript(t *testing.T) {
	for budget, want := range map[time.Duration]int64{-1: -1, -time.Hour: -1, 0: 0, time.Second: 1e6} {
		require.Equal(t, want, (&request{budget: budget}).args()[6], budget)
	}
}

func TestDoneTwiceCountsOnce(t *testing.T) {
	inBubble(t, LimiterOptions{}, func(t *testing.T, l *Limiter, m *model) {
		p, err := l.Acquire(context.Background())
		require.NoError(t, err)
		for range 3 {
			p.Done(allowed(99, 100))
		}
		settle(time.Second)
		require.Equal(t, 1.0, m.ended)
		require.Zero(t, l.inFlight)
	})
}

func TestEveryKindOfResultIsReported(t *testing.T) {
	known := brellium.RateLimit{Limit: 100, Remaining: 50, ObservedAt: time.Now()}
	for want, a := range map[kind]brellium.LimiterResult{
		kindSpent:       {Spent: brellium.SpentYes, RateLimit: known},
		kindPaid:        {Spent: brellium.SpentYes},
		kindUnspent:     {Spent: brellium.SpentNo, RateLimit: known},
		kindRateLimited: {Spent: brellium.SpentNo, Refused: true, RateLimit: known},
		kindBlocked:     {Blocked: true},
		kindUnknown:     {},
	} {
		res, urgent := toResult(a)
		require.Equal(t, want, res.kind)
		require.Equal(t, want == kindRateLimited || want == kindBlocked, urgent)
	}
	for wait, longest := range map[time.Duration]time.Duration{1 << 62: time.Second, time.Hour + 1: time.Second, time.Hour: maxHold} {
		res, _ := toResult(brellium.LimiterResult{Refused: true, RetryAfter: wait})
		require.GreaterOrEqual(t, res.hold, longest)
		require.LessOrEqual(t, res.hold, longest+holdSpread)
	}
	res, _ := toResult(brellium.LimiterResult{Refused: true})
	require.GreaterOrEqual(t, res.hold, time.Second)
}
