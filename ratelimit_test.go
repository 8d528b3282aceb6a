package brellium

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// bucketServer is the documented token bucket, answering after 80 ms.
type bucketServer struct {
	mu     sync.Mutex
	tokens float64
	at     time.Time
	served []time.Time // when tokens were taken
	denied int
}

func newBucketServer(tokens float64) *bucketServer {
	return &bucketServer{tokens: tokens, at: time.Now()}
}

func (s *bucketServer) answer() LimiterResult {
	<-time.After(40 * time.Millisecond)
	a := s.take()
	<-time.After(40 * time.Millisecond)
	a.RateLimit.ObservedAt = time.Now()
	return a
}

func (s *bucketServer) take() LimiterResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.tokens = min(s.tokens+5*now.Sub(s.at).Seconds(), 100)
	s.at = now
	if s.tokens < 1 {
		s.denied++
		return LimiterResult{Refused: true, Spent: SpentNo, RetryAfter: time.Second}
	}
	s.tokens--
	s.served = append(s.served, now)
	return LimiterResult{RateLimit: RateLimit{Limit: 100, Remaining: int(s.tokens)}, Spent: SpentYes}
}

func allowed(remaining int) LimiterResult {
	return LimiterResult{
		RateLimit: RateLimit{Limit: 100, Remaining: remaining, ObservedAt: time.Now()},
		Spent:     SpentYes,
	}
}

// stateful is what both limiters are.
type stateful interface {
	Limiter
	State() LimiterState
}

func acquire(t *testing.T, l Limiter) Permit {
	t.Helper()
	p, err := l.Acquire(t.Context())
	require.NoError(t, err)
	return p
}

func fixedLimiter(t *testing.T, burst int, perSecond float64) *FixedLimiter {
	t.Helper()
	l, err := NewFixedLimiter(burst, perSecond)
	require.NoError(t, err)
	return l
}

// aloneLimiter returns a limiter that knows that the bucket is full and its own.
func aloneLimiter(t *testing.T) *AdaptiveLimiter {
	t.Helper()
	l, err := NewAdaptiveLimiter(AdaptiveLimiterOptions{Exclusive: true})
	require.NoError(t, err)
	acquire(t, l).Done(allowed(99))
	require.Equal(t, LimiterAlone, l.Mode())
	return l
}

// bothLimiters runs a test for both, each with a bucket of about 100 and 5 a
// second.
func bothLimiters(t *testing.T, test func(t *testing.T, l stateful)) {
	t.Run("adaptive", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, aloneLimiter(t)) })
	})
	t.Run("fixed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, fixedLimiter(t, 99, 5)) })
	})
}

// drain takes permits until the limiter has no more to give at once.
func drain(t *testing.T, l Limiter) []Permit {
	t.Helper()
	var permits []Permit
	for {
		ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
		p, err := l.Acquire(ctx)
		cancel()
		if err != nil {
			require.ErrorIs(t, err, context.DeadlineExceeded)
			return permits
		}
		permits = append(permits, p)
	}
}

// spend takes all that the limiter has to give at once.
func spend(t *testing.T, l Limiter) {
	t.Helper()
	for _, p := range drain(t, l) {
		p.Done(LimiterResult{Spent: SpentYes})
	}
}

// refusedContext is how the core marks a call whose last attempt was refused.
func refusedContext(ctx context.Context) context.Context {
	return context.WithValue(ctx, rateLimitRetryKey{}, true)
}

// pass lets time pass, and then everybody come to rest.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// waitInLine starts an Acquire, waits until it queues, and has granted called
// once it is served.
func waitInLine(t *testing.T, ctx context.Context, l Limiter, granted func(Permit)) {
	t.Helper()
	go func() {
		if p, err := l.Acquire(ctx); assert.NoError(t, err) {
			granted(p)
		}
	}()
	synctest.Wait()
}

func TestLimiterServesWaitersInOrderAndRefusedOnesFirst(t *testing.T) {
	bothLimiters(t, func(t *testing.T, l stateful) {
		spend(t, l)
		var mu sync.Mutex
		var order []string
		join := func(ctx context.Context, name string) {
			waitInLine(t, ctx, l, func(p Permit) {
				mu.Lock()
				defer mu.Unlock()
				order = append(order, name)
				p.Done(LimiterResult{Spent: SpentYes})
			})
		}
		ctx := t.Context()
		join(ctx, "first")
		join(ctx, "second")
		join(refusedContext(ctx), "refused first")
		join(ctx, "third")
		join(refusedContext(ctx), "refused second")
		require.Equal(t, 5, l.State().Waiting)
		pass(time.Minute)
		require.Equal(t, []string{"refused first", "refused second", "first", "second", "third"}, order)
		require.Zero(t, l.State().Waiting)
	})
}

func TestAfterRefusalTellsOtherLimiters(t *testing.T) {
	assert.False(t, IsRateLimitRetry(t.Context()))
	assert.True(t, IsRateLimitRetry(refusedContext(t.Context())))
	assert.False(t, IsRateLimitRetry(context.WithValue(t.Context(), rateLimitRetryKey{}, false)))
}

// A refusal of one call holds back all, and they do not come back together.
func TestRefusalHoldsBackTheWholeClient(t *testing.T) {
	bothLimiters(t, func(t *testing.T, l stateful) {
		one := acquire(t, l)
		spend(t, l)
		var mu sync.Mutex
		var times []time.Time
		for range 30 {
			waitInLine(t, t.Context(), l, func(p Permit) {
				mu.Lock()
				defer mu.Unlock()
				times = append(times, time.Now())
				p.Done(allowed(11))
			})
		}
		refused := time.Now()
		one.Done(LimiterResult{Refused: true, Spent: SpentNo, RetryAfter: 20 * time.Second})
		require.GreaterOrEqual(t, l.State().PausedFor, 20*time.Second)
		require.LessOrEqual(t, l.State().PausedFor, 20500*time.Millisecond)
		pass(10 * time.Minute)
		require.Len(t, times, 30)
		require.GreaterOrEqual(t, times[0].Sub(refused), 20*time.Second)
		require.Less(t, times[0].Sub(refused), 25*time.Second)
		for i := range times[1:] {
			require.GreaterOrEqual(t, times[i+1].Sub(times[i]), 99*time.Millisecond, "together")
		}
	})
}

// songzhibin97/gkit#134, basecamp/basecamp-cli#712: a token was taken before
// the context was looked at.
func TestDeadContextTakesNoToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := fixedLimiter(t, 1, 1)
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		expired, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
		defer cancel()
		for range 5 {
			_, err := l.Acquire(cancelled)
			require.ErrorIs(t, err, context.Canceled)
			_, err = l.Acquire(expired)
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		start := time.Now()
		acquire(t, l)
		require.Zero(t, time.Since(start), "the live one goes at once")
	})
}

// deadlineOnly has a deadline that nothing has acted upon yet.
type deadlineOnly struct {
	context.Context
	deadline time.Time
}

func (c deadlineOnly) Deadline() (time.Time, bool) { return c.deadline, true }

func TestDeadlineThatHasPassedCountsBeforeItsTimer(t *testing.T) {
	l := new(AdaptiveLimiter)
	_, err := l.Acquire(deadlineOnly{t.Context(), time.Now().Add(-time.Second)})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Zero(t, l.State().InFlight)
}

func TestWaitBeyondTheDeadlineFailsAtOnceAndSaysHowLong(t *testing.T) {
	bothLimiters(t, func(t *testing.T, l stateful) {
		spend(t, l)
		for range 50 {
			waitInLine(t, t.Context(), l, func(p Permit) { p.Done(LimiterResult{Spent: SpentYes}) })
		}
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := l.Acquire(ctx)
		require.Zero(t, time.Since(start))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		var interrupted *InterruptedError
		require.True(t, errors.As(err, &interrupted))
		require.InDelta(t, 10.2, interrupted.Wait.Seconds(), 0.7, "51 tokens at 5 a second")
		require.Equal(t, 50, l.State().Waiting)

		// In front of the queue it can be met.
		served := false
		waitInLine(t, refusedContext(ctx), l, func(Permit) { served = true })
		pass(5 * time.Second)
		require.True(t, served)
		pass(time.Minute)
		require.Zero(t, l.State().Waiting)
	})
}

func TestDeadlineThatCanBeMetIsMet(t *testing.T) {
	bothLimiters(t, func(t *testing.T, l stateful) {
		spend(t, l)
		for i := range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i+4)*200*time.Millisecond)
			defer cancel()
			waitInLine(t, ctx, l, func(p Permit) { p.Done(LimiterResult{Spent: SpentYes}) })
		}
		pass(time.Minute)
		require.Zero(t, l.State().Waiting)
	})
}

func TestWaitThatARefusalMakesTooLongFailsThen(t *testing.T) {
	bothLimiters(t, func(t *testing.T, l stateful) {
		one := acquire(t, l)
		spend(t, l)
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var failed error
		go func() { _, failed = l.Acquire(ctx) }()
		synctest.Wait()
		served := false
		waitInLine(t, t.Context(), l, func(Permit) { served = true })
		one.Done(LimiterResult{Refused: true, Spent: SpentNo, RetryAfter: time.Minute})
		synctest.Wait()
		require.Zero(t, time.Since(start))
		var interrupted *InterruptedError
		require.True(t, errors.As(failed, &interrupted))
		require.GreaterOrEqual(t, interrupted.Wait, time.Minute)
		require.ErrorIs(t, failed, context.DeadlineExceeded)
		pass(2 * time.Minute)
		require.True(t, served, "the one without a deadline waits")
	})
}

// xanzy/go-gitlab#1837: a small share was cut to a burst of zero, after which
// every wait failed at once.
func TestSmallShareStillSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := fixedLimiter(t, 1, 0.025)
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
		defer cancel()
		start := time.Now()
		_, err := l.Acquire(ctx)
		require.NoError(t, err)
		require.Zero(t, time.Since(start))
		_, err = l.Acquire(ctx)
		require.NoError(t, err)
		require.InDelta(t, 40, time.Since(start).Seconds(), 1e-3)
	})
}

// gofri/go-github-ratelimit#23: a reset of 0 was taken to mean that there is
// nothing to wait for.
func TestNothingRemainingHoldsTheNextBackFor200ms(t *testing.T) {
	bothLimiters(t, func(t *testing.T, l stateful) {
		acquire(t, l).Done(allowed(0))
		start := time.Now()
		acquire(t, l)
		require.GreaterOrEqual(t, time.Since(start), 200*time.Millisecond)
		require.Less(t, time.Since(start), 10*time.Second)
	})
}

// xanzy/go-gitlab#909, xanzy/go-gitlab#1659: missing headers were read as a
// limit of zero.
func TestAnswersWithoutHeadersChangeNoLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := aloneLimiter(t)
		for _, answer := range []LimiterResult{{Spent: SpentNo}, {}, {Spent: SpentYes}} {
			before := l.State()
			acquire(t, l).Done(answer)
			require.Equal(t, LimiterAlone, l.Mode())
			require.InDelta(t, before.Low, l.State().Low, 1)
		}
		require.Greater(t, len(drain(t, l)), 90)
	})
}

// go-acme/lego#976, atlassian/smith#241: each client had a limiter of its own,
// and together they went over the limit.
func TestTwoClientsWithOneLimiterKeepToOneLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := new(AdaptiveLimiter)
		server := newBucketServer(100)
		start := time.Now()
		var wait sync.WaitGroup
		for range 2 {
			for range 75 {
				wait.Go(func() {
					p, err := l.Acquire(t.Context())
					if assert.NoError(t, err) {
						p.Done(server.answer())
					}
				})
			}
		}
		wait.Wait()
		require.Zero(t, server.denied)
		atOnce := 0
		for _, at := range server.served {
			if at.Sub(start) < 2*time.Second {
				atOnce++
			}
		}
		require.LessOrEqual(t, atOnce, 100+10, "the burst and what refills meanwhile")
		require.InDelta(t, 10.5, time.Since(start).Seconds(), 0.6, "the others at 5 a second")
	})
}

// The parts never add up to more than the whole; compare xanzy/go-gitlab#1837.
func TestSplitRateLimitNeverExceedsTheWhole(t *testing.T) {
	for workers := 1; workers <= 100; workers++ {
		burst, perSecond, err := SplitRateLimit(workers)
		require.NoError(t, err)
		require.GreaterOrEqual(t, burst, 1)
		require.LessOrEqual(t, burst*workers, 100)
		require.LessOrEqual(t, perSecond*float64(workers), 5+1e-9)
		_, err = NewFixedLimiter(burst, perSecond)
		require.NoError(t, err)
	}
	for _, workers := range []int{-1, 0, 101, math.MaxInt} {
		_, _, err := SplitRateLimit(workers)
		var invalid *ValidationError
		require.True(t, errors.As(err, &invalid), "%d", workers)
		require.Equal(t, "workers", invalid.Field)
	}
}

func TestLimitersRefuseImpossibleBuckets(t *testing.T) {
	for _, c := range []struct {
		burst     int
		perSecond float64
		field     int
	}{
		{0, 5, 0}, {-1, 5, 0}, {1, 0, 1}, {1, -1, 1}, {1, math.NaN(), 1}, {1, math.Inf(1), 1},
	} {
		_, err := NewFixedLimiter(c.burst, c.perSecond)
		var invalid *ValidationError
		require.True(t, errors.As(err, &invalid), "%+v", c)
		require.Equal(t, []string{"burst", "perSecond"}[c.field], invalid.Field)
		_, err = NewAdaptiveLimiter(AdaptiveLimiterOptions{MaxBurst: c.burst, MaxPerSecond: c.perSecond})
		require.True(t, errors.As(err, &invalid), "%+v", c)
		require.Equal(t, []string{"MaxBurst", "MaxPerSecond"}[c.field], invalid.Field)
	}
}

func TestAdaptiveLimiterKeepsToItsOwnBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := NewAdaptiveLimiter(AdaptiveLimiterOptions{Exclusive: true, MaxBurst: 3, MaxPerSecond: 0.5})
		require.NoError(t, err)
		acquire(t, l).Done(allowed(99))
		require.Len(t, drain(t, l), 2)
		start := time.Now()
		acquire(t, l)
		require.InDelta(t, 2, time.Since(start).Seconds(), 1e-3)
	})
}

func TestCancelledWaiterLeavesTheQueueAndNoDebt(t *testing.T) {
	bothLimiters(t, func(t *testing.T, l stateful) {
		spend(t, l)
		before := l.State()
		ctx, cancel := context.WithCancel(t.Context())
		var wait sync.WaitGroup
		for i := range 40 {
			ctx := ctx
			if i%2 == 0 {
				ctx = refusedContext(ctx)
			}
			wait.Go(func() {
				_, err := l.Acquire(ctx)
				assert.ErrorIs(t, err, context.Canceled)
			})
		}
		synctest.Wait()
		require.Equal(t, 40, l.State().Waiting)
		cancel()
		wait.Wait()
		require.Equal(t, before, l.State())
		start := time.Now()
		acquire(t, l)
		require.LessOrEqual(t, time.Since(start), 200*time.Millisecond+time.Microsecond)
	})
}

// Permits are neither lost nor made up when contexts end at any moment, that
// of the grant included.
func TestPermitsAreConservedUnderCancellation(t *testing.T) {
	bothLimiters(t, func(t *testing.T, l stateful) {
		r := rand.New(rand.NewPCG(1, 1))
		var wait sync.WaitGroup
		granted, left := 0, 0
		var mu sync.Mutex
		for range 500 {
			// Multiples of 200 ms meet the moments at which tokens are due.
			after := time.Duration(r.IntN(300)) * 200 * time.Millisecond
			ctx, cancel := context.WithCancel(t.Context())
			if r.IntN(2) == 0 {
				ctx = refusedContext(ctx)
			}
			time.AfterFunc(after, cancel)
			wait.Go(func() {
				p, err := l.Acquire(ctx)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					assert.ErrorIs(t, err, context.Canceled)
					left++
					return
				}
				granted++
				p.Done(LimiterResult{Spent: SpentYes})
			})
			if r.IntN(10) == 0 {
				pass(time.Duration(r.IntN(5)) * 100 * time.Millisecond)
			}
		}
		wait.Wait()
		s := l.State()
		require.Equal(t, 500, granted+left)
		require.Greater(t, granted, 99)
		require.Greater(t, left, 50)
		require.Zero(t, s.InFlight)
		require.Zero(t, s.Waiting)
		// What is left is what there was, plus the refill, less the permits.
		pass(time.Hour)
		require.InDelta(t, 99, l.State().Low, 1)
	})
}

func TestDoneTwiceCountsOnce(t *testing.T) {
	bothLimiters(t, func(t *testing.T, l stateful) {
		p := acquire(t, l)
		p.Done(LimiterResult{Spent: SpentNo})
		before := l.State()
		p.Done(LimiterResult{Refused: true, RetryAfter: time.Hour})
		require.Equal(t, before, l.State())
	})
}

func TestForgottenPermitsHoldOthersBackForTenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := aloneLimiter(t)
		forgotten := drain(t, l)
		pass(time.Minute)
		forgotten = append(forgotten, drain(t, l)...)
		require.Equal(t, len(forgotten), l.State().InFlight)
		start := time.Now()
		acquire(t, l).Done(allowed(99))
		require.InDelta(t, 9*60, time.Since(start).Seconds(), 1)
		pass(2 * time.Minute)
		forgotten[0].Done(LimiterResult{Refused: true, RetryAfter: time.Hour})
		acquire(t, l)
		require.Zero(t, l.State().PausedFor, "it comes too late to count")
	})
}

func TestBlockedEmptiesTheBucket(t *testing.T) {
	bothLimiters(t, func(t *testing.T, l stateful) {
		acquire(t, l).Done(LimiterResult{Blocked: true})
		require.LessOrEqual(t, l.State().Low, 0.0)
		require.Empty(t, drain(t, l))
		start := time.Now()
		acquire(t, l)
		require.Positive(t, time.Since(start))
	})
}

func TestLimiterStateFollowsTheMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := new(AdaptiveLimiter)
		require.Equal(t, LimiterProbing, l.Mode())
		require.Equal(t, LimiterState{Mode: LimiterProbing, High: 100}, l.State())
		p := acquire(t, l)
		require.Equal(t, 1, l.State().InFlight)
		p.Done(allowed(99))
		require.Equal(t, LimiterAlone, l.Mode())
		acquire(t, l).Done(allowed(40))
		require.Equal(t, LimiterShared, l.Mode())
		require.Equal(t, time.Second, l.State().Interval)
		require.Equal(t, LimiterFixed, fixedLimiter(t, 1, 1).State().Mode)
	})
}

// The whole limiter against the documented bucket: alone, whatever the number
// of goroutines, within half a percent of the bound and without a refusal.
func TestBackfillKeepsInStepWithTheServer(t *testing.T) {
	for _, c := range []struct{ tokens, ratio float64 }{{100, 1.005}, {0, 1.004}} {
		synctest.Test(t, func(t *testing.T) {
			l := new(AdaptiveLimiter)
			server := newBucketServer(c.tokens)
			start := time.Now()
			var wait sync.WaitGroup
			for range 16 {
				wait.Go(func() {
					for call := 0; call < 50; {
						p, err := l.Acquire(t.Context())
						if !assert.NoError(t, err) {
							return
						}
						answer := server.answer()
						p.Done(answer)
						if !answer.Refused {
							call++
						}
					}
				})
			}
			wait.Wait()
			refusals := 0
			if c.tokens == 0 {
				refusals = 1
			}
			require.LessOrEqual(t, server.denied, refusals)
			bound := (800 - c.tokens) / 5
			require.LessOrEqual(t, time.Since(start).Seconds()/bound, c.ratio+0.001)
		})
	}
}

func TestUncontendedAcquireAllocatesOnce(t *testing.T) {
	ctx, l := t.Context(), new(AdaptiveLimiter)
	answer := LimiterResult{
		RateLimit: RateLimit{Limit: 1_000_000, Remaining: 999_999, ObservedAt: time.Now()},
		Spent:     SpentYes,
	}
	allocs := testing.AllocsPerRun(1000, func() {
		if p, err := l.Acquire(ctx); err == nil {
			p.Done(answer)
		}
	})
	require.LessOrEqual(t, allocs, 1.0)
}

// BenchmarkAcquire is one uncontended Acquire and Done with an answer that
// leaves the limiter alone on a full bucket.
func BenchmarkAcquire(b *testing.B) {
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	limiter := new(AdaptiveLimiter)
	answer := LimiterResult{
		RateLimit: RateLimit{Limit: 1_000_000, Remaining: 999_999, ObservedAt: time.Now()},
		Spent:     SpentYes,
	}
	b.ReportAllocs()
	for b.Loop() {
		permit, err := limiter.Acquire(ctx)
		if err != nil {
			b.Fatal(err)
		}
		permit.Done(answer)
	}
}
