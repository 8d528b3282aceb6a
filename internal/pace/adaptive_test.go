package pace

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	ms      = time.Millisecond
	second  = time.Second
	anyTime = 1000 * time.Hour
)

func ok(remaining int) Report {
	return Report{Known: true, Spent: SpentYes, Limit: 100, Remaining: remaining}
}

func rateLimited(after time.Duration) Report {
	return Report{RateLimited: true, Spent: SpentNo, RetryAfter: after}
}

// exchange sends one attempt as soon as allowed. Its response comes after 100 ms.
func exchange(m Machine, now time.Duration, r Report) time.Duration {
	now += m.Ready(now, false)
	t := m.Send(now)
	now += 100 * ms
	m.Done(now, t, r)
	return now
}

// alone returns a machine in mode Alone, with 99 tokens left, at 100 ms.
func alone(t *testing.T) (*Adaptive, time.Duration) {
	a := NewAdaptive(AdaptiveConfig{})
	now := exchange(a, 0, ok(99))
	require.Equal(t, Alone, a.mode)
	return a, now
}

// shared returns a machine in mode Shared, with 20 tokens left, at 100 ms.
func shared(t *testing.T) (*Adaptive, time.Duration) {
	a := NewAdaptive(AdaptiveConfig{})
	now := exchange(a, 0, ok(20))
	require.Equal(t, Shared, a.mode)
	return a, now
}

func TestProbesUntilTheFirstResponse(t *testing.T) {
	a := NewAdaptive(AdaptiveConfig{})
	now := time.Duration(0)
	for n := range 8 {
		now += a.Ready(now, false)
		a.Send(now)
		if n > 0 { // the first may have come to an empty bucket just before its refill
			require.LessOrEqual(t, float64(n+1), DocumentedRate*now.Seconds(), "tokens for each that may have arrived")
		}
	}
	require.Equal(t, 400*ms+6*probeEvery, now, "the first at once, the second after 400 ms, the others 250 ms apart")
}

// A response that cost nothing, such as a 401, does not delay the next attempt.
func TestProbeThatCostNothingIsFollowedAtOnce(t *testing.T) {
	a := NewAdaptive(AdaptiveConfig{})
	now := exchange(a, 0, Report{Spent: SpentNo})
	require.Zero(t, a.Ready(now, false))
	a.Send(now)
	require.Equal(t, probeEvery, a.Ready(now, false))
}

// A bucket that refills in steps has all at once what the slowest waited for: those who
// see the step start from the same interval.
func TestStepOfTheRefillMakesIntervalsEqual(t *testing.T) {
	for interval, after := range map[float64]float64{8: 1, 0.1: 1, 1: 1} {
		for jump, is := range map[int]float64{80: after, 20: interval} {
			a, now := shared(t)
			a.interval, a.low, a.high = interval, 5, 5
			ticket := a.Send(now)
			a.interval = interval
			a.Done(now, ticket, ok(5+jump))
			require.Equal(t, is, a.interval, "%d more than was possible", jump)
		}
	}
}

func TestFirstResponseShowsWhetherOthersSpend(t *testing.T) {
	for remaining, mode := range map[int]Mode{99: Alone, 98: Alone, 97: Shared, 0: Shared} {
		a := NewAdaptive(AdaptiveConfig{})
		exchange(a, 0, ok(remaining))
		require.Equal(t, mode, a.mode, "%d left", remaining)
	}
}

func TestAloneGrowsEachRoundTripAndKeepsAReserve(t *testing.T) {
	growth(t, -aloneAfter, 2, 4, 8, 16, 32)
	growth(t, 0, 2, 3, 5, 7, 11, 16) // others may have started at the same time
}

// growth expects so many attempts in each round trip.
func growth(t *testing.T, lastOther time.Duration, each ...int) {
	a, now := alone(t)
	a.lastOther = lastOther
	sent := 1
	for _, want := range each {
		var tickets []Ticket
		for a.Ready(now, false) == 0 {
			tickets = append(tickets, a.Send(now))
		}
		require.Len(t, tickets, want)
		require.Equal(t, Never, a.Ready(now, false))
		now += 10 * ms
		for i, ticket := range tickets {
			a.Done(now, ticket, ok(100-sent-i-1))
		}
		sent += want
	}
	a.window = 100
	n := 0
	for a.Ready(now, false) == 0 {
		a.Send(now)
		n++
	}
	require.Equal(t, 100-sent-int(reserve), n, "two are left")
	wait := a.Ready(now, false)
	require.Positive(t, wait)
	require.LessOrEqual(t, wait, 200*ms)
}

func TestTrustedNeedsOneResponse(t *testing.T) {
	a := NewAdaptive(AdaptiveConfig{Trusted: true})
	now := exchange(a, 0, ok(60))
	n := 0
	for a.Ready(now, false) == 0 {
		a.Send(now)
		n++
	}
	require.Equal(t, 58, n)
}

func TestShareLimitsItsOwnSpending(t *testing.T) {
	a := NewAdaptive(AdaptiveConfig{Trusted: true, Share: NewFixed(4, 0.5)})
	now := exchange(a, 0, ok(99))
	for range 3 {
		require.Zero(t, a.Ready(now, false))
		a.Send(now)
	}
	require.InDelta(t, 1.9*float64(second), float64(a.Ready(now, false)), 1e3)
	require.Equal(t, a.Ready(now, false), a.AtLeast(now, 0))
	require.InDelta(t, 3.9*float64(second), float64(a.AtLeast(now, 1)), 1e3)

	before := a.Share.tokens
	a.Cancel(now, a.Send(now))
	require.Equal(t, before, a.Share.tokens)
}

func TestOthersSpendingEndsAlone(t *testing.T) {
	a, now := alone(t)
	now = exchange(a, now, ok(98))
	require.Equal(t, Alone, a.mode)
	exchange(a, now, ok(90))
	require.Equal(t, Shared, a.mode)
	require.Equal(t, 91.5, a.high, "90, what rounding down hides, and half a token in 100 ms")
}

func TestReorderedResponsesAreNoSignOfOthers(t *testing.T) {
	a, now := alone(t)
	first, second := a.Send(now), a.Send(now)
	now += 50 * ms
	a.Done(now, second, ok(97)) // the server saw the first before
	a.Done(now, first, ok(98))
	require.Equal(t, Alone, a.mode)
	require.GreaterOrEqual(t, a.low, 97.0)
	require.Equal(t, 97.0, a.left, "the newest request counts")
}

// The server may have seen the request of a response without headers after the
// request of the next response.
func TestResponseWithoutHeadersMayHaveSpent(t *testing.T) {
	a, now := alone(t)
	low := a.low
	first, second := a.Send(now), a.Send(now)
	a.Done(now, second, Report{})
	require.Equal(t, low-2, a.low)
	a.Done(now, first, ok(98))
	require.Equal(t, low-2, a.low, "the second may have been seen after the first")
	require.Equal(t, Alone, a.mode)
}

// xanzy/go-gitlab#909, xanzy/go-gitlab#1659: missing headers were read as a
// limit of zero.
func TestResponsesWithoutHeadersChangeNothing(t *testing.T) {
	for name, r := range map[string]Report{
		"unknown": {}, "paid": {Spent: SpentYes}, "not paid": {Spent: SpentNo},
		"no limit": {Known: true, Spent: SpentYes, Remaining: 97},
	} {
		a, now := alone(t)
		exchange(a, now, r)
		require.Equal(t, Alone, a.mode, name)
		require.Equal(t, 100.0, a.limit, name)
		require.Zero(t, a.Ready(now+100*ms, false), name)
		checkBounds(t, a)

		a = NewAdaptive(AdaptiveConfig{})
		if r.Known || r.Spent == SpentYes {
			continue
		}
		exchange(a, 0, r)
		require.Equal(t, Probe, a.mode, name)
	}
}

// A server that allows requests and reports no limit is a fake in a test, or
// behind a gateway that strips headers.
// Only a loop that does nothing but send meets the ceiling.
func TestServerThatReportsNoLimitIsHardlyPaced(t *testing.T) {
	paid := Report{Spent: SpentYes}
	a := NewAdaptive(AdaptiveConfig{})
	now := exchange(a, 0, paid)
	require.Equal(t, Probe, a.mode, "one response proves nothing")
	for range openAfter - 1 {
		now = exchange(a, now, paid)
	}
	require.Equal(t, Open, a.mode)
	require.GreaterOrEqual(t, now, (openAfter-1)*probeEvery)
	begun := now
	for range 300 {
		now += a.Ready(now, false)
		require.Zero(t, a.Ready(now, false))
		a.Send(now)
	}
	require.Equal(t, 299*openEvery, now-begun)
	checkBounds(t, a)
	for range 300 {
		a.Done(now, Ticket{Sent: now}, paid)
	}
	require.Zero(t, a.Ready(now+time.Hour, false), "nor after a pause")

	// From its first 429 on it is paced by the documented limit.
	now += time.Hour
	a.Done(now, a.Send(now), Report{RateLimited: true, Spent: SpentNo, RetryAfter: time.Second})
	now += a.Ready(now, false)
	sent := 0
	for begun = now; now < begun+time.Minute; sent++ {
		now = exchange(a, now, paid)
		require.NotEqual(t, Open, a.mode)
		now += a.Ready(now, false)
	}
	require.InDelta(t, 60*5, sent, 20)

	// Once it has reported what remains, that counts.
	b := NewAdaptive(AdaptiveConfig{})
	now = 0
	for range openAfter {
		now = exchange(b, now, paid)
	}
	now = exchange(b, now, ok(40))
	require.Equal(t, Shared, b.mode, "what is missing was spent by others")
	exchange(b, now+b.Ready(now, false), paid)
	require.Equal(t, Shared, b.mode)
}

// quiet returns a machine that was alone for a while.
func quiet(t *testing.T) (*Adaptive, time.Duration) {
	a, now := alone(t)
	return a, exchange(a, now+aloneAfter, ok(99))
}

// If only 429s show that others spend, a call waits as long as each 429 asks and no
// longer, so that it goes on soon after somebody has emptied the bucket for a while.
func TestRateLimitsAloneCauseOnlyTheWaitTheyAskFor(t *testing.T) {
	a, now := quiet(t)
	for range 20 {
		now = exchange(a, now, Report{RateLimited: true, Spent: SpentNo, RetryAfter: 2 * time.Second, Jitter: 0.5})
		require.Equal(t, 2250*ms, a.Ready(now, false))
		require.Equal(t, 1, a.window, "one by one")
		now += 2250 * ms
		require.Zero(t, a.Ready(now, false))
	}

	a, now = shared(t)
	now = exchange(a, now, rateLimited(time.Second))
	require.Greater(t, a.Ready(now, false), 2*time.Second, "while others spend it waits longer")
}

// After a while alone, one sign of others may be a burst that is over.
func TestOneSignOfOthersAfterAWhileOnlyRestartsTheSlowStart(t *testing.T) {
	a, now := quiet(t)
	now = exchange(a, now, ok(50))
	require.Equal(t, Alone, a.mode)
	require.Equal(t, 1, a.window)
	require.LessOrEqual(t, a.low, 50.0)
	again := *a
	exchange(a, now, ok(int(a.low)-1))
	require.Equal(t, Alone, a.mode, "nobody else")
	exchange(&again, now, ok(30))
	require.Equal(t, Shared, again.mode, "they go on")
}

// Seven requests that are rate limited together are one sign.
func TestBurstOfRateLimitsStretchesTheIntervalOnce(t *testing.T) {
	a, now := shared(t)
	var tickets []Ticket
	for range 7 {
		tickets = append(tickets, a.Send(now))
	}
	before := a.interval
	for _, ticket := range tickets {
		a.Done(now, ticket, rateLimited(second))
	}
	require.Equal(t, stretch*before, a.interval)
	a.Done(now, a.Send(now), rateLimited(second))
	require.Greater(t, a.interval, stretch*before)
}

func TestFloorBoundsTheInterval(t *testing.T) {
	a := NewAdaptive(AdaptiveConfig{Floor: 0.5})
	now := exchange(a, 0, ok(0))
	for range 20 {
		now = exchange(a, now, ok(0))
		now = exchange(a, now, rateLimited(0))
		require.LessOrEqual(t, a.Ready(now, false), 2*second)
	}
}

// A floor that asks for a try within every few seconds is of use only if the client
// is not the last to try after a 429.
func TestFloorTriesAtOnceAfterTheWait(t *testing.T) {
	for floor, want := range map[float64]time.Duration{0: 1400 * ms, 0.1: 1400 * ms, 1: time.Second} {
		a := NewAdaptive(AdaptiveConfig{Floor: floor})
		r := rateLimited(time.Second)
		r.Jitter = 0.8
		now := exchange(a, 0, r)
		require.Equal(t, want, a.State(now).PausedFor, "floor %v", floor)
	}
}

// A timer that fires much too late means that the process stood still.
func TestLateWakeUpStartsSlowly(t *testing.T) {
	a, now := alone(t)
	for range 20 {
		now = exchange(a, now, ok(98))
	}
	for a.Ready(now, false) == 0 {
		a.Done(now, a.Send(now), Report{Spent: SpentYes})
	}
	require.Positive(t, a.Ready(now, false))
	now += time.Minute
	n := 0
	for a.Ready(now, false) == 0 {
		a.Send(now)
		n++
	}
	require.Equal(t, restartWindow, n)
}

// A refill faster than assumed is measured. Others can hide in it, so the client is
// not alone then. A changed limit forgets it.
func TestFasterRefillIsMeasured(t *testing.T) {
	a, now := alone(t)
	bucket := &server{limit: 100, rate: 20, tokens: 99, at: now}
	for now < 30*second {
		now += a.Ready(now, false)
		now = exchange(a, now, bucket.take(now))
		bucket.advance(now)
		bucket.tokens = min(bucket.tokens, 50)
	}
	require.InDelta(t, 10, a.rate, 1, "what it sent itself")
	require.LessOrEqual(t, a.rate, 20.0)
	require.Equal(t, Shared, a.mode)
	r := ok(49)
	r.Limit = 50
	exchange(a, now, r)
	require.Equal(t, 2.5, a.rate, "a bucket of any size is assumed to fill in 20 s")
	exchange(a, now, Report{Known: true, Spent: SpentYes, Limit: 1000, Remaining: 900})
	require.Equal(t, 50.0, a.rate)
}

// Some gateways report a constant. The bucket counts as full then.
func TestConstantReportsAreNotBelieved(t *testing.T) {
	a := NewAdaptive(AdaptiveConfig{})
	now, sent := time.Duration(0), 0
	for ; now < 5*time.Minute; sent++ {
		now += a.Ready(now, false)
		now = exchange(a, now, ok(0))
		checkBounds(t, a)
	}
	require.Greater(t, sent, 900)
	exchange(a, now, ok(20))
	require.LessOrEqual(t, a.low, 20.0, "until they change")
}

// While rate-limited calls wait, none waits long for its next attempt: its total
// time is limited. The first of two that succeeds must not delay the other.
func TestRateLimitedCallsAreSentAgainSoon(t *testing.T) {
	a, now := shared(t)
	a.interval = 15
	first := a.Send(now)
	a.next = now // as if an interval had passed
	second := a.Send(now)
	a.Done(now, first, rateLimited(0))
	a.Done(now, second, rateLimited(0))
	for range 2 {
		wait := a.Ready(now, false)
		require.LessOrEqual(t, wait, seconds(retryWithin))
		now = exchange(a, now, ok(1))
	}
	require.Greater(t, a.Ready(now, false), seconds(retryWithin))
}

// The law is the same for a limit of any size that fills in 20 s, but for the time
// it takes.
func TestIntervalsAreRelativeToTheRefill(t *testing.T) {
	for _, limit := range []float64{50, 100, 1000} {
		a, b := NewAdaptive(AdaptiveConfig{}), NewAdaptive(AdaptiveConfig{})
		b.limit = limit
		for _, units := range []float64{0.3, 1, 5} {
			a.interval, b.interval = units*a.unit(), units*b.unit()
			for _, left := range []float64{0, 8, 30} {
				require.InDelta(t, a.law(left)/a.unit(), b.law(left)/b.unit(), 1e-9, "limit %v", limit)
			}
		}
	}
}

// A client that sends often changes its interval by less each time, so that many
// reports to one client move it no further than one report moves another.
func TestShortIntervalsChangeByLess(t *testing.T) {
	a := NewAdaptive(AdaptiveConfig{})
	a.left, a.fresh = 100, true
	for _, c := range []struct{ interval, shortest float64 }{{2, 1}, {1, 0.5}, {0.2, 0.18}} {
		a.interval = c.interval
		require.InDelta(t, c.shortest, a.nextInterval(), 1e-9)
	}
	a.left, a.interval = 0, 0.2
	require.InDelta(t, 0.2+0.2*(0.4+1), a.nextInterval(), 1e-9)
}

func TestFirstRateLimitCausesOnlyTheWaitItAsksFor(t *testing.T) {
	a := NewAdaptive(AdaptiveConfig{})
	a.Done(100*ms, a.Send(0), Report{RateLimited: true, Spent: SpentNo, RetryAfter: 2 * time.Second, Jitter: 0.5})
	require.Equal(t, 2250*ms, a.Ready(100*ms, false))
	require.Zero(t, a.Ready(2350*ms, false))
	a.Done(2400*ms, a.Send(2350*ms), Report{RateLimited: true, Spent: SpentNo, RetryAfter: 2 * time.Second})
	require.LessOrEqual(t, a.Ready(2400*ms, false), seconds(retryWithin))
}

func TestUnspentAttemptReturnsItsToken(t *testing.T) {
	a, now := alone(t)
	low, high := a.low, a.high
	a.Done(now, a.Send(now), Report{Spent: SpentNo})
	require.Equal(t, []float64{low, high}, []float64{a.low, a.high})

	a = NewAdaptive(AdaptiveConfig{})
	a.Done(0, a.Send(0), Report{Spent: SpentNo})
	require.Zero(t, a.Ready(0, false), "the next probe need not wait")
}

func TestCancelLeavesNoDebt(t *testing.T) {
	for name, start := range map[string]func(*testing.T) (*Adaptive, time.Duration){"alone": alone, "shared": shared} {
		a, now := start(t)
		now += a.Ready(now, false)
		require.Zero(t, a.Ready(now, false), name)
		before := *a
		a.Cancel(now, a.Send(now))
		require.Zero(t, a.Ready(now, false), name)
		require.Equal(t, []float64{before.low, before.high, before.spent}, []float64{a.low, a.high, a.spent}, name)
		require.Equal(t, before.inFlight, a.inFlight, name)
	}
}

func TestCancelAfterAResponseKeepsWhatItShowed(t *testing.T) {
	a, now := alone(t)
	first, second := a.Send(now), a.Send(now)
	a.Done(now, first, ok(50))
	a.Cancel(now, second)
	require.Equal(t, Shared, a.mode)
	require.Equal(t, 1.0, a.interval)
	require.Zero(t, a.Ready(now+anyTime, false))
	checkBounds(t, a)
}

func TestRateLimitPausesEverything(t *testing.T) {
	for name, start := range map[string]func(*testing.T) (*Adaptive, time.Duration){"alone": alone, "shared": shared} {
		a, now := start(t)
		r := rateLimited(3 * second)
		r.Jitter = 0.5
		now = exchange(a, now, r)
		require.Equal(t, Shared, a.mode, name)
		require.Equal(t, 3250*ms, a.State(now).PausedFor, name)
		require.GreaterOrEqual(t, a.Ready(now, false), 3250*ms, name)
		require.LessOrEqual(t, a.Ready(now, false), 6*second, name)
		require.LessOrEqual(t, a.low, 0.0, name)

		now += a.Ready(now, false)
		require.Zero(t, a.Ready(now, false), name)
		a.Send(now)
		require.Greater(t, a.Ready(now, false), 200*ms, "%s: one by one", name)
	}
}

func TestRateLimitWithoutAWaitPausesForASecond(t *testing.T) {
	for _, after := range []time.Duration{0, -second} {
		a, now := alone(t)
		now = exchange(a, now, rateLimited(after))
		require.Equal(t, second, a.State(now).PausedFor)
	}
	a, now := alone(t)
	now = exchange(a, now, rateLimited(time.Hour))
	require.Equal(t, 5*time.Minute, a.State(now).PausedFor, "then one attempt finds out")
	for _, absurd := range []time.Duration{time.Hour + 1, 1764547200 * second, math.MaxInt64} {
		a, now := alone(t)
		now = exchange(a, now, rateLimited(absurd))
		require.Equal(t, second, a.State(now).PausedFor, "%v counts as none", absurd)
	}
}

func TestShorterRateLimitDoesNotShortenThePause(t *testing.T) {
	a, now := alone(t)
	first, second := a.Send(now), a.Send(now)
	a.Done(now, first, rateLimited(10*time.Second))
	a.Done(now, second, rateLimited(time.Second))
	require.Equal(t, 10*time.Second, a.Ready(now, false))
}

// gofri/go-github-ratelimit#23: a reset of zero seconds was taken to mean that
// there is nothing to wait for.
func TestNothingRemainingPauses(t *testing.T) {
	for name, m := range map[string]Machine{"adaptive": NewAdaptive(AdaptiveConfig{}), "fixed": NewFixed(100, 100)} {
		now := exchange(m, 0, ok(0))
		require.GreaterOrEqual(t, m.Ready(now, false), 200*ms, name)
		require.Equal(t, 200*ms, m.State(now).PausedFor, name) // also where the refill is faster
	}
}

// Attempts whose responses were lost may have spent nothing: a deadline that can
// then be met is not refused.
func TestLostResponsesMakeNoWaitLonger(t *testing.T) {
	a, now := alone(t)
	for range 50 {
		ticket := a.Send(now)
		a.Done(now, ticket, Report{})
	}
	require.Zero(t, a.AtLeast(now, 90))
}

func TestBlockedEmptiesTheBucketAndSendsOneByOne(t *testing.T) {
	a, now := alone(t)
	for range 3 {
		now = exchange(a, now, ok(98))
	}
	now = exchange(a, now, Report{Blocked: true})
	require.LessOrEqual(t, a.low, 0.0)
	require.Equal(t, 600*ms, a.Ready(now, false))
	now += 600 * ms
	ticket := a.Send(now)
	require.Equal(t, Never, a.Ready(now+5*second, false))
	a.Done(now, ticket, ok(97))
	require.Zero(t, a.Ready(now, false), "the first response that is not blocked ends it")

	a = NewAdaptive(AdaptiveConfig{})
	now = exchange(a, 0, Report{Blocked: true})
	now += a.Ready(now, false)
	a.Send(now)
	require.Equal(t, Never, a.Ready(now+5*second, false), "probes too")

	f := NewFixed(10, 1)
	now = exchange(f, 0, Report{Blocked: true})
	require.Equal(t, second, f.Ready(now, false))
}

func TestChangedLimitIsAdopted(t *testing.T) {
	a, now := alone(t)
	r := ok(45)
	r.Limit = 50
	exchange(a, now, r)
	require.Equal(t, 50.0, a.limit)
	checkBounds(t, a)
}

func TestTinyLimitCanBeSentFrom(t *testing.T) {
	for limit := 1; limit <= 5; limit++ {
		a := NewAdaptive(AdaptiveConfig{})
		now := time.Duration(0)
		for range 100 {
			now = exchange(a, now, Report{Known: true, Spent: SpentYes, Limit: limit, Remaining: limit - 1})
			require.LessOrEqual(t, a.Ready(now, false), 12*second, "limit %d", limit)
			a.Idle(now)
		}
		require.Less(t, now, 100*second, "limit %d", limit)
	}
}

func TestNoMoreInFlightThanTheLimit(t *testing.T) {
	a := NewAdaptive(AdaptiveConfig{Trusted: true})
	now := exchange(a, 0, ok(99))
	n := 0
	for wait := a.Ready(now, false); wait < Never; wait = a.Ready(now, false) {
		now += wait
		a.Send(now)
		n++
	}
	require.Equal(t, 98, n)
}

func TestPauseRestartsTheSlowStart(t *testing.T) {
	for name, start := range map[string]func(*testing.T) (*Adaptive, time.Duration){"alone": alone, "shared": shared} {
		a, now := start(t)
		a.window = 50
		mode := a.mode
		short := *a
		short.Ready(now+9*second, false)
		require.Equal(t, mode, short.mode, name)
		require.Equal(t, 50, short.window, name)
		now += 11 * second
		require.Zero(t, a.Ready(now, false), name)
		require.Equal(t, Alone, a.mode, name)
		require.Equal(t, restartWindow, a.window, name)
	}

	// A wait is no idle time, however long.
	a, now := shared(t)
	now = exchange(a, now, rateLimited(time.Minute))
	now += a.Ready(now, false)
	require.Zero(t, a.Ready(now, false))
	require.Equal(t, Shared, a.mode)

	// It is once the last waiter has left.
	now = exchange(a, now, rateLimited(time.Minute))
	require.Positive(t, a.Ready(now, false))
	a.Idle(now + second)
	a.Ready(now+12*second, false)
	require.Equal(t, Alone, a.mode)
}

// While a slow request is in flight there is no probing after a pause, but also no
// burst based on stale bounds.
func TestPauseWithASlowRequestStartsSlowly(t *testing.T) {
	a, now := alone(t)
	for range 20 {
		now = exchange(a, now, ok(98))
	}
	require.Greater(t, a.window, 10)
	a.Send(now)
	now += time.Minute
	n := 0
	for a.Ready(now, false) == 0 {
		a.Send(now)
		n++
	}
	require.Equal(t, restartWindow, n)
}

func TestSharedBecomesAloneWhenNobodyElseSpends(t *testing.T) {
	a, now := shared(t)
	bucket := &server{limit: 100, rate: 5, tokens: 20, at: now}
	for a.mode == Shared {
		now += a.Ready(now, false)
		now = exchange(a, now, bucket.take(now))
		require.Less(t, now, 15*second)
	}
	require.Greater(t, now, aloneAfter)
}

func TestClockThatStepsBackIsIgnored(t *testing.T) {
	a, now := alone(t)
	before := *a
	a.Ready(now-50*ms, false)
	require.Equal(t, before.low, a.low)
	a.Done(now-50*ms, a.Send(now), ok(98))
	checkBounds(t, a)
}

func TestAtLeastCountsThoseAhead(t *testing.T) {
	a, now := alone(t)
	for range 99 {
		a.Send(now)
	}
	require.LessOrEqual(t, a.AtLeast(now, 0), 200*ms)
	require.InDelta(t, float64(10*second), float64(a.AtLeast(now, 50)), float64(300*ms))

	// A measured refill counts.
	a.rate = 10
	require.InDelta(t, float64(5*second), float64(a.AtLeast(now, 50)), float64(300*ms))

	a, now = shared(t)
	for range 3 {
		now = exchange(a, now, ok(0))
	}
	require.Equal(t, a.ready(now, true), a.AtLeast(now, 0), "with nothing in flight it is certain for the first")
	require.GreaterOrEqual(t, a.AtLeast(now, 3), a.AtLeast(now, 1))
	require.Greater(t, a.AtLeast(now, 1000), 100*second)

	a = NewAdaptive(AdaptiveConfig{})
	require.Zero(t, a.AtLeast(0, 1000), "nothing is known before the first response")
}

func TestFixedBucket(t *testing.T) {
	f := NewFixed(3, 2)
	for range 3 {
		require.Zero(t, f.Ready(0, false))
		f.Send(0)
	}
	require.Equal(t, 500*ms, f.Ready(0, false))
	require.Equal(t, 2*second, f.AtLeast(0, 3))
	require.Equal(t, State{Mode: Static, InFlight: 3}, f.State(0))
	require.Zero(t, f.Ready(500*ms, false))
	require.Equal(t, 250*ms, f.Ready(250*ms, false), "the clock may step back")
}

// xanzy/go-gitlab#1837: a small share was cut to a burst of zero.
func TestFixedBucketOfASmallShare(t *testing.T) {
	f := NewFixed(1, 0.025)
	require.Zero(t, f.Ready(0, false))
	f.Send(0)
	require.Equal(t, 40*second, f.Ready(0, false))

	f = NewFixed(1, math.SmallestNonzeroFloat64)
	f.Send(0)
	require.Less(t, f.Ready(0, false), Never)
	require.Greater(t, f.Ready(0, false), anyTime)
}

func TestFixedBucketRestartsOneByOneAfterARateLimit(t *testing.T) {
	f := NewFixed(50, 5)
	var tickets []Ticket
	for range 50 {
		tickets = append(tickets, f.Send(0))
	}
	for _, ticket := range tickets {
		f.Done(100*ms, ticket, rateLimited(10*second))
	}
	now := 100 * ms
	require.Equal(t, 10*second, f.Ready(now, false))
	require.Equal(t, 10*second, f.AtLeast(now, 0))
	require.Equal(t, 10200*ms, f.AtLeast(now, 1))
	now += 10 * second
	require.Zero(t, f.Ready(now, false))
	f.Send(now)
	require.Equal(t, 200*ms, f.Ready(now, false))
}

func TestFixedBucketReturnsUnspentTokens(t *testing.T) {
	f := NewFixed(2, 1)
	for _, end := range []func(Ticket){
		func(ticket Ticket) { f.Cancel(0, ticket) },
		func(ticket Ticket) { f.Done(0, ticket, Report{Spent: SpentNo}) },
	} {
		end(f.Send(0))
		require.Equal(t, 2.0, f.tokens)
		require.Zero(t, f.inFlight)
	}
	f.Done(0, f.Send(0), Report{})
	require.Equal(t, 1.0, f.tokens)
	f.Idle(0)
	require.Equal(t, Static, f.State(0).Mode)
}

// play drives a machine by bytes and checks its invariants after each step.
func play(t *testing.T, m Machine, script []byte) {
	next := func() uint64 {
		var b [8]byte
		n := copy(b[:], script)
		script = script[n:]
		return binary.LittleEndian.Uint64(b[:])
	}
	pick := func(n int) int {
		if len(script) == 0 {
			return 0
		}
		b := int(script[0])
		script = script[1:]
		return b % n
	}
	var now time.Duration
	var out []Ticket
	take := func() Ticket {
		i := pick(len(out))
		ticket := out[i]
		out = append(out[:i], out[i+1:]...)
		return ticket
	}
	must := func(holds bool, what string) {
		if !holds {
			t.Fatalf("%s, at %v: %+v", what, now, m)
		}
	}
	for len(script) > 0 {
		switch op := pick(8); {
		case op == 0:
			now += time.Duration(pick(256)) * 10 * ms
		case op == 1:
			now += time.Duration(pick(256)) * second
		case op <= 3:
			wait := m.Ready(now, false)
			must(wait >= 0, "a wait below zero")
			must(m.AtLeast(now, 0) <= wait, "a wait shorter than its lower bound")
			must(m.AtLeast(now, 0) <= m.AtLeast(now, pick(256)), "a shorter wait with others ahead")
			if wait == Never {
				must(len(out) > 0, "stuck forever")
				break
			}
			if wait > 0 {
				if wait > 2*maxRetryAfter || pick(2) == 0 {
					m.Idle(now)
					break
				}
				now += wait
				must(m.Ready(now, false) == 0, "a wait that was too short")
			}
			out = append(out, m.Send(now))
		case len(out) == 0:
		case op == 4:
			m.Cancel(now, take())
		case op == 5:
			m.Done(now, take(), ok(pick(101)))
		case op == 6:
			m.Done(now, take(), Report{Spent: Spent(pick(3)), Blocked: pick(4) == 0})
		default:
			kind := pick(8)
			m.Done(now, take(), Report{
				Known:       kind&1 != 0,
				RateLimited: kind&2 != 0,
				Blocked:     kind == 4,
				Spent:       Spent(pick(3)),
				Limit:       int(next()),
				Remaining:   int(next()),
				RetryAfter:  time.Duration(next()),
				Jitter:      float64(pick(256)) / 256,
			})
		}
		switch m := m.(type) {
		case *Adaptive:
			checkBounds(t, m)
		case *Fixed:
			must(m.tokens <= m.burst, "more tokens than the burst, or not a number")
		}
		s := m.State(now)
		must(s.InFlight == len(out), "attempts in flight miscounted")
		must(s.PausedFor >= 0, "a pause below zero")
	}
}

func machines() []Machine {
	return []Machine{
		NewAdaptive(AdaptiveConfig{}),
		NewAdaptive(AdaptiveConfig{Trusted: true}),
		NewAdaptive(AdaptiveConfig{Share: NewFixed(5, 1)}),
		NewFixed(10, 0.5),
	}
}

func FuzzMachine(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 50 {
		script := make([]byte, r.IntN(2000))
		for i := range script {
			script[i] = byte(r.Uint32())
		}
		f.Add(script)
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		for _, m := range machines() {
			play(t, m, script)
		}
	})
}
