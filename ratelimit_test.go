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

func allowed(remaining int) LimiterResult {
	return LimiterResult{
		RateLimit: RateLimit{Limit: 100, Remaining: remaining, ObservedAt: time.Now()},
		Spent:     SpentYes,
	}
}

// stateful is implemented by both limiters.
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

// aloneLimiter returns a limiter in mode Alone with 99 tokens left.
func aloneLimiter(t *testing.T) *AdaptiveLimiter {
	t.Helper()
	l, err := NewAdaptiveLimiter(AdaptiveLimiterOptions{Exclusive: true})
	require.NoError(t, err)
	acquire(t, l).Done(allowed(99))
	require.Equal(t, LimiterAlone, l.State().Mode)
	return l
}

// bothLimiters runs a test with each limiter, with 99 tokens left and 5 a second.
func bothLimiters(t *testing.T, test func(t *testing.T, l stateful)) {
	t.Run("adaptive", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, aloneLimiter(t)) })
	})
	t.Run("fixed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, fixedLimiter(t, 99, 5)) })
	})
}

// drain takes the permits that are available at once.
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

// spend uses the permits that are available at once.
func spend(t *testing.T, l Limiter) {
	t.Helper()
	for _, p := range drain(t, l) {
		p.Done(LimiterResult{Spent: SpentYes})
	}
}

// retryContext marks a call whose last attempt was rate limited.
func retryContext(ctx context.Context) context.Context {
	return context.WithValue(ctx, rateLimitRetryKey{}, true)
}

// pass lets time pass and then waits until all goroutines are blocked.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// waitInLine starts an Acquire and waits until it is queued. granted is called with
// the permit.
func waitInLine(t *testing.T, ctx context.Context, l Limiter, granted func(Permit)) {
	t.Helper()
	go func() {
		if p, err := l.Acquire(ctx); assert.NoError(t, err) {
			granted(p)
		}
	}()
	synctest.Wait()
}

func TestLimiterServesWaitersInOrderAndRateLimitedOnesFirst(t *testing.T) {
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
		join(retryContext(ctx), "retry 1")
		join(ctx, "third")
		join(retryContext(ctx), "retry 2")
		require.Equal(t, 5, l.State().Waiting)
		pass(time.Minute)
		require.Equal(t, []string{"retry 1", "retry 2", "first", "second", "third"}, order)
		require.Zero(t, l.State().Waiting)
	})
}

func TestIsRateLimitRetry(t *testing.T) {
	assert.False(t, IsRateLimitRetry(t.Context()))
	assert.True(t, IsRateLimitRetry(retryContext(t.Context())))
	assert.False(t, IsRateLimitRetry(context.WithValue(t.Context(), rateLimitRetryKey{}, false)))
}

// expiredContext has a deadline that has passed, but is not done yet.
type expiredContext struct{ context.Context }

func (expiredContext) Deadline() (time.Time, bool) { return time.Now().Add(-time.Second), true }

// priorities is a Limiter that records the priority of each attempt.
type priorities []Priority

func (p *priorities) Acquire(ctx context.Context) (Permit, error) {
	*p = append(*p, PriorityFromContext(ctx))
	return nil, context.Canceled
}

func TestPriorityReachesTheLimiter(t *testing.T) {
	var got priorities
	client, err := NewClient(WithAccessToken("t"), WithRateLimiter(&got), WithPriority(Background))
	require.NoError(t, err)
	for _, opts := range [][]CallOption{nil, {WithPriority(Interactive)}, {WithPriority(Normal)}} {
		_, err := client.Users.List(t.Context(), UserListParams{}, opts...)
		require.Error(t, err)
	}
	require.Equal(t, priorities{Background, Interactive, Normal}, got)
	require.Equal(t, Normal, PriorityFromContext(t.Context()))

	for _, p := range []Priority{-2, 2} {
		_, err = NewClient(WithAccessToken("t"), WithPriority(p))
		var invalid *ValidationError
		require.ErrorAs(t, err, &invalid)
		require.Equal(t, "WithPriority", invalid.Field)
	}
}

// songzhibin97/gkit#134, basecamp/basecamp-cli#712: a token was taken before
// the context was checked.
func TestEndedContextTakesNoToken(t *testing.T) {
	bothLimiters(t, func(t *testing.T, l stateful) {
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		expired, cancel := context.WithTimeout(t.Context(), -time.Second)
		defer cancel()
		for _, ctx := range []context.Context{canceled, expired, expiredContext{t.Context()}} {
			_, err := l.Acquire(ctx)
			if ctx == canceled {
				require.ErrorIs(t, err, context.Canceled)
			} else {
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
		}
		require.Zero(t, l.State().InFlight)
		require.GreaterOrEqual(t, len(drain(t, l)), 97)
	})
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

		// A rate-limited call is ahead of the 50 and can meet it.
		served := false
		waitInLine(t, retryContext(ctx), l, func(Permit) { served = true })
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

func TestWaitThatARateLimitMakesTooLongFailsThen(t *testing.T) {
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

// xanzy/go-gitlab#1837: a small share was rounded to a burst of zero, after which
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

// The shares never add up to more than the limit; compare xanzy/go-gitlab#1837.
func TestSplitRateLimitNeverExceedsTheLimit(t *testing.T) {
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

func TestLimitersRejectInvalidBuckets(t *testing.T) {
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

func TestFloorMustBeANumber(t *testing.T) {
	for _, floor := range []float64{-1, math.Inf(1), math.NaN()} {
		_, err := NewAdaptiveLimiter(AdaptiveLimiterOptions{Floor: floor})
		var invalid *ValidationError
		require.ErrorAs(t, err, &invalid)
		require.Equal(t, "Floor", invalid.Field)
	}
}

func TestAdaptiveLimiterKeepsToItsOwnLimit(t *testing.T) {
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

func TestCanceledWaiterLeavesTheQueueAndNoDebt(t *testing.T) {
	bothLimiters(t, func(t *testing.T, l stateful) {
		spend(t, l)
		before := l.State()
		ctx, cancel := context.WithCancel(t.Context())
		var wait sync.WaitGroup
		for i := range 40 {
			ctx := ctx
			if i%2 == 0 {
				ctx = retryContext(ctx)
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

// Permits are neither lost nor invented when contexts end at any time, including
// the time of the grant.
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
				ctx = retryContext(ctx)
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
		require.Equal(t, 500, granted+left)
		require.Greater(t, granted, 99)
		require.Greater(t, left, 50)
		require.Zero(t, l.State().InFlight)
		require.Zero(t, l.State().Waiting)
		pass(time.Hour)
		acquire(t, l).Done(allowed(99))
		require.InDelta(t, 98, len(drain(t, l)), 1, "the bucket is full again")
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

func TestBlockedEmptiesTheBucket(t *testing.T) {
	bothLimiters(t, func(t *testing.T, l stateful) {
		acquire(t, l).Done(LimiterResult{Blocked: true})
		require.Empty(t, drain(t, l))
		start := time.Now()
		acquire(t, l)
		require.Positive(t, time.Since(start))
	})
}

func TestLimiterStateFollowsTheMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := new(AdaptiveLimiter)
		require.Equal(t, LimiterProbing, l.State().Mode)
		require.Equal(t, LimiterState{Mode: LimiterProbing}, l.State())
		p := acquire(t, l)
		require.Equal(t, 1, l.State().InFlight)
		p.Done(allowed(99))
		require.Equal(t, LimiterAlone, l.State().Mode)
		acquire(t, l).Done(allowed(40))
		require.Equal(t, LimiterShared, l.State().Mode)
		require.Equal(t, LimiterFixed, fixedLimiter(t, 1, 1).State().Mode)
	})
}

// uncontended returns one Acquire and Done with a response that leaves the limiter
// alone on a full bucket.
func uncontended(tb testing.TB) func() {
	ctx, l := tb.Context(), new(AdaptiveLimiter)
	result := LimiterResult{
		RateLimit: RateLimit{Limit: 1_000_000, Remaining: 999_999, ObservedAt: time.Now()},
		Spent:     SpentYes,
	}
	return func() {
		p, err := l.Acquire(ctx)
		if err != nil {
			tb.Fatal(err)
		}
		p.Done(result)
	}
}

func TestUncontendedAcquireAllocatesOnce(t *testing.T) {
	require.LessOrEqual(t, testing.AllocsPerRun(1000, uncontended(t)), 1.0)
}

func BenchmarkAcquire(b *testing.B) {
	once := uncontended(b)
	b.ReportAllocs()
	for b.Loop() {
		once()
	}
}
