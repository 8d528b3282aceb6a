package pace

import (
	"math"
	"time"
)

// The organization's documented limit, shared by all keys and processes; the sandbox
// has its own of the same size. It is assumed until responses show otherwise.
const (
	DocumentedRate  = 5.0   // tokens a second; no header reports it
	DocumentedLimit = 100.0 // capacity; RateLimit-Limit reports it
	slowestRate     = 2.5   // tokens a second; less is not assumed even for a tiny limit (row 30)
)

// The settings, each with its reason and a row of docs/limiter.md that is missed
// without it. They were chosen on the seeds 0 to 39.
const (
	probeEvery    = 250 * time.Millisecond // slower than the refill: after the first, no probe is rate limited (row 1)
	probeSecond   = 150 * time.Millisecond // added before the second, as the first may have come to an empty bucket (row 1)
	openAfter     = 4                      // probes without a reported limit before nothing is paced: one proves nothing (row 1)
	openEvery     = time.Millisecond       // the pace then, which only a loop that does nothing but send notices
	reserve       = 2.0                    // tokens left while alone, for the first requests of a newcomer (row 34)
	firstWindow   = 2                      // attempts in flight when alone begins (row 8)
	restartWindow = 4                      // the same after a pause, for a batch of calls (row 34)
	lateAfter     = 2 * time.Second        // so much later than expected means that the process stood still (row 22)
	idleAfter     = 10*time.Second - lateAfter
	aloneAfter    = 10 * time.Second // without a sign of others before alone (row 34)
	measureOver   = 5 * time.Second  // time over which the refill is measured (row 29)
	fasterBy      = 1.05             // a measured refill faster by this factor is no error of measurement (row 29)
	targetLeft    = 11.0             // tokens left while shared, for small bursts of others (row 11)
	pullGain      = 0.8              // pulls all intervals to one unit, which makes shares equal; more empties the bucket (row 33)
	unseenLeft    = 0.75             // tokens over the target to assume without a new response; more empties the bucket (rows 7, 25)
	errorGain     = 3.3              // weight of the error of what remains; less empties the bucket (row 33)
	stepPart      = 3.0              // of the bucket: one part more than was possible is a refill in a step (row 31)
	minInterval   = 0.02             // seconds; far below the share of any process
	maxInterval   = 18.0             // units; 80 processes need 16, and a longer one leaves tokens unused (rows 14, 30, 33)
	retryWithin   = 4.0              // seconds; lets a call try often before its time is up (rows 14, 30)
	stretch       = 1.7              // factor of the interval for each burst of 429s (rows 14, 30)
	sameAfter     = 2 * time.Second  // after so long the refill must show (row 28)
	sameReports   = 3                // unchanged reports before they are not believed (row 28)
	sameGrowth    = 1.2              // factor by which each must make the interval longer (rows 8, 10)
)

// Adaptive tracks the server's bucket. It rests on two ideas.
//
// The tokens that remained by the last responses and the record of its own sends
// give a lower and an upper bound of the tokens that the server will have once
// all attempts in flight have arrived. Whether anybody else spends can therefore
// be checked, and while nobody does, the bucket can be spent down to a small
// reserve without risk of a 429.
//
// While others spend, all clients see the same number of remaining tokens. Each
// computes its interval between sends from that number and its own interval
// alone. The shared bucket thus makes any number of clients agree.
type Adaptive struct {
	AdaptiveConfig
	sawRemaining bool // a response reported what remains
	sawRateLimit bool // there was a 429

	limit     float64       // capacity of the server's bucket
	rate      float64       // tokens a second: the assumed refill, or more if that was measured
	low, high float64       // bounds of the server's tokens less the attempts that have not reached it
	at        time.Duration // time of the bounds
	inFlight  int
	ended     int           // ended attempts that may have spent a token
	sends     int           // number of sends so far
	base      float64       // upper bound of tokens plus spent, when the measurement of the refill began
	baseAt    time.Duration // when that was; 0 before the first
	spent     float64       // tokens that attempts have spent, or will if they arrive

	mode      Mode
	slot      time.Duration // time that the last send counts for
	due       time.Duration // when the next call of Ready is expected at the latest
	window    int           // attempts in flight allowed while alone
	interval  float64       // averaged seconds between sends while shared
	next      time.Duration // earliest send while shared
	left      float64       // tokens that remained by the newest response; -1 after a 429
	fresh     bool          // no send has acted on left
	leftSend  int           // number of the Send of that response
	leftAt    time.Duration // time of that Send
	owed      int           // rate-limited attempts that wait to be sent again
	same      int           // unchanged reports in a row
	lastOther time.Duration // last sign that others spend
	otherSend int           // number of sends by then
	unlimited int           // responses without a reported limit
	grace     bool          // still alone after that sign
}

// AdaptiveConfig changes how an Adaptive behaves. The zero value is the default.
type AdaptiveConfig struct {
	// Trusted says that nobody else uses the bucket, which skips the slow start.
	Trusted bool
	// Share limits the machine's own spending; nil means no limit. It also pauses
	// the machine after a 429 and after a response by which nothing remains.
	Share *Fixed
	// Floor is how many attempts a second to make at least; 0 means none.
	Floor float64
}

// NewAdaptive returns a machine that has seen no response yet.
func NewAdaptive(c AdaptiveConfig) *Adaptive {
	if c.Share == nil {
		c.Share = unlimited()
	}
	return &Adaptive{
		AdaptiveConfig: c, mode: Probe, interval: 1,
		limit: DocumentedLimit, rate: DocumentedRate, high: DocumentedLimit,
	}
}

// advance moves the bounds to now, and returns the latest time seen.
func (a *Adaptive) advance(now time.Duration) time.Duration {
	if now > a.at {
		a.add(a.rate * (now - a.at).Seconds())
		a.at = now
	}
	return a.at
}

// add adds tokens to the bounds, and limits them to what the bucket can have: its
// capacity, for the lower bound less the attempts in flight.
func (a *Adaptive) add(tokens float64) {
	a.high = min(a.high+tokens, a.limit)
	a.low = min(a.low+tokens, a.limit-float64(a.inFlight), a.high)
}

// Ready implements [Machine].
func (a *Adaptive) Ready(now time.Duration, urgent bool) time.Duration {
	now = a.advance(now)
	if now-lateAfter > a.due && a.paces() {
		a.enterAlone(a.inFlight + restartWindow) // what was known is old
	}
	wait := max(a.ready(now, urgent), a.Share.Ready(now, urgent))
	a.due = now + min(wait, Never/2)
	return wait
}

// paces reports whether anything is known of the bucket.
func (a *Adaptive) paces() bool { return a.mode == Alone || a.mode == Shared }

// ready is Ready without the share, and may be negative.
func (a *Adaptive) ready(now time.Duration, urgent bool) time.Duration {
	switch {
	case a.mode == Alone && a.inFlight >= a.window:
		return Never
	case a.mode == Alone && urgent:
		return a.refilled(1)
	case a.mode == Alone: // from a tiny bucket nothing could be sent otherwise
		return a.refilled(1 + min(reserve, (a.limit-1)/2))
	case a.mode == Shared && urgent: // borrows the next interval
		return a.next - seconds(a.interval) - now
	case a.mode == Shared:
		return a.next - now
	case a.mode == Probe && a.sends > 0:
		return a.slot + probeEvery - now
	case a.mode == Open:
		return a.slot + openEvery - now
	}
	return 0
}

// refilled returns how long it takes until the bucket surely has so many tokens.
func (a *Adaptive) refilled(tokens float64) time.Duration {
	switch {
	case a.low >= tokens-rounding:
		return 0
	case a.limit-float64(a.inFlight) < tokens:
		return Never // the bucket is too small for more in flight
	}
	return seconds((tokens - a.low) / a.rate)
}

// Send implements [Machine].
func (a *Adaptive) Send(now time.Duration) Ticket {
	now = a.advance(now)
	a.spent++
	a.inFlight++
	a.owed = max(a.owed-1, 0)
	a.add(-1)
	a.sends++
	a.slot, a.due = now, now+idleAfter
	if a.sends == 1 {
		a.slot += probeSecond
	}
	if a.mode == Shared {
		// A send that was late by less than one interval is made up for.
		a.slot = max(now-seconds(a.interval), a.next)
		interval := a.nextInterval()
		a.interval = max((a.interval+interval)/2, minInterval)
		a.next = a.slot + seconds(interval)
		a.fresh = false
	}
	a.Share.Send(now)
	return Ticket{Sent: now, ended: a.ended, send: a.sends}
}

// Cancel implements [Machine].
func (a *Adaptive) Cancel(now time.Duration, t Ticket) {
	now = a.advance(now)
	a.inFlight--
	a.giveBack()
	if t.send == a.sends {
		a.next = a.slot
	}
	a.Share.Cancel(now, t)
}

// giveBack returns the token of an attempt that ended without spending it.
func (a *Adaptive) giveBack() {
	a.spent--
	a.add(1)
	if a.mode == Probe {
		a.slot = a.at - probeEvery // the next probe need not wait
	}
}

// nextInterval returns the interval in seconds to the next send while shared.
// Each observation is acted on once: without a new one, a little more than the
// target is assumed.
func (a *Adaptive) nextInterval() float64 {
	left := a.target() + unseenLeft
	if a.fresh {
		left = a.left
	}
	shortest := a.interval * (1 - a.pliancy()/2)
	longest := a.interval + a.pliancy()*(2*a.interval+a.unit())
	if a.owed > 0 {
		longest = min(longest, retryWithin)
	}
	return min(max(a.law(left), shortest), longest, a.longest())
}

// law returns the interval for so many tokens left. The error is corrected on the
// interval, not on the rate, by an amount that is the same for every client. The
// loop gain per cycle is then independent of the number of clients.
func (a *Adaptive) law(left float64) float64 {
	change := pullGain*(1-math.Sqrt(a.interval/a.unit())) - errorGain*(left/a.target()-1)
	return a.interval + a.unit()*a.pliancy()*change
}

// pliancy is the part of a change that an interval below one unit makes. It changes
// more often, and a client that sends often would otherwise take all that is left
// before the others have seen it (rows 29, 31).
func (a *Adaptive) pliancy() float64 { return min(1, a.interval/a.unit()) }

// longest returns the longest interval while shared.
func (a *Adaptive) longest() float64 { return min(maxInterval*a.unit(), 1/a.Floor) }

// target returns the tokens to leave in the bucket while shared.
func (a *Adaptive) target() float64 { return min(targetLeft, a.limit/4) }

// refill returns the tokens a second to assume: a bucket of any size fills in 20 s,
// as the documented one does.
func (a *Adaptive) refill() float64 { return max(a.limit*DocumentedRate/DocumentedLimit, slowestRate) }

// unit is the unit of time of the law: 1 s for the documented refill.
func (a *Adaptive) unit() float64 { return DocumentedRate / a.refill() }

// Done implements [Machine].
func (a *Adaptive) Done(now time.Duration, t Ticket, r Report) {
	now = a.advance(now)
	a.inFlight--
	if a.Floor*retryWithin > 1 {
		r.Jitter = 0 // it is to be among the first after a 429 (row 37)
	}
	a.Share.Done(now, t, r)
	if limit := float64(r.Limit); r.Known && limit >= 1 && limit != a.limit {
		a.limit, a.baseAt = limit, 0
		a.rate = a.refill()
	}
	switch {
	case r.RateLimited:
		a.rateLimited(now, t)
	case r.Blocked: // the bucket counts as empty, and one attempt finds out
		a.low = min(a.low, 0)
		a.mode, a.window = Alone, 1
		a.mayHaveSpent()
	case r.Spent == SpentNo:
		a.giveBack()
	case r.Known:
		a.learn(now, t, min(max(float64(r.Remaining), 0), a.limit))
		a.ended++
	case r.Spent != SpentYes:
		a.mayHaveSpent()
	default:
		a.ended++
		if !a.sawRemaining {
			a.noLimitReported()
		}
	}
	a.add(0)
}

// mayHaveSpent handles an attempt that may have spent a token. The next response
// shows whether it did. Until then only the upper bound can rise.
func (a *Adaptive) mayHaveSpent() {
	a.ended++
	a.high++
	a.spent--
}

// noLimitReported handles an allowed request to a server that has never reported
// what remains: a fake server in a test, or a gateway that strips the headers.
// After some of them nothing is paced until the first 429, and from then on by
// the documented limit and the machine's own sends.
func (a *Adaptive) noLimitReported() {
	a.unlimited++
	switch {
	case !a.sawRateLimit && a.unlimited >= openAfter:
		a.mode = Open
	case a.sawRateLimit && a.mode != Alone:
		a.enterAlone(a.inFlight + firstWindow)
	default:
		a.window++
	}
}

// rateLimited handles a 429: the bucket was empty, so others have spent.
func (a *Adaptive) rateLimited(now time.Duration, t Ticket) {
	a.sawRateLimit = true
	a.owed++
	a.giveBack()
	a.rate = a.refill()
	a.low = max(min(a.low, 0), -float64(a.inFlight))
	a.high = min(a.high, 1+a.rate*(now-t.Sent).Seconds())
	first := t.send > a.leftSend // of those that were rate limited together
	a.left, a.leftSend, a.fresh = -1, a.sends, true
	switch probing := a.mode == Probe; {
	case a.mode != Shared:
		if a.sawOthers(now, t); probing {
			a.next = now // only the wait that the server asked for is known
		}
	case first:
		a.interval = min(stretch*a.interval, a.longest())
		a.next = a.slot + seconds(a.nextInterval())
		a.sawOthers(now, t)
	}
}

// sawOthers handles a sign that others spend. After a while alone the first only
// restarts the slow start, since it may have been a burst that is over. Another,
// by an attempt that was sent after it was known, ends alone, unless there is
// nothing but 429s, which do not show what others leave.
func (a *Adaptive) sawOthers(now time.Duration, t Ticket) {
	quiet := now-a.lastOther >= aloneAfter
	a.lastOther = now
	if a.mode == Shared || t.send <= a.otherSend {
		return
	}
	a.otherSend = a.sends
	if a.grace = a.mode == Alone && (quiet || a.grace && a.left < 0); a.grace {
		a.window = 1
		return
	}
	a.mode = Shared
	a.next = a.slot + seconds(a.nextInterval())
}

func (a *Adaptive) enterAlone(window int) {
	a.mode, a.window = Alone, window
	if a.Trusted {
		a.window = math.MaxInt / 2
	}
}

// learn handles the number of tokens that remained by the response to an attempt
// that spent one.
func (a *Adaptive) learn(now time.Duration, t Ticket, remaining float64) {
	if a.stuck(now, t, remaining) {
		return
	}
	a.sawRemaining, a.grace = true, false
	// The machine's own requests that the server may have seen after this one.
	after := float64(a.inFlight + a.ended - t.ended)
	bottom, top := remaining-after, remaining+1+a.rate*(now-t.Sent).Seconds()
	if t.send > a.leftSend {
		a.left, a.leftSend, a.leftAt, a.fresh = remaining, t.send, t.Sent, true
	}
	// The rate is at least what the bucket has surely refilled by.
	if over := now - a.baseAt; a.baseAt == 0 || over >= measureOver {
		if a.baseAt > 0 {
			a.rate = max(a.rate, min((bottom+a.spent-a.base)/over.Seconds(), a.limit))
		}
		a.base, a.baseAt = top+a.spent, now
	}

	if a.mode == Shared && bottom > a.high+a.limit/stepPart {
		a.interval = a.unit() // for all who see the step, which makes shares equal
	}
	others := a.paces() && top < a.low-rounding
	if others || !a.paces() || bottom > a.high+rounding {
		// Others spent, nothing was known, an attempt never arrived, or the refill
		// is faster than assumed.
		a.low, a.high = bottom, top
	} else {
		a.low, a.high = max(a.low, bottom), min(a.high, top)
	}
	switch {
	case !a.paces():
		a.enterAlone(firstWindow)
		if remaining < a.limit-float64(a.sends)-1 && !a.Trusted {
			a.sawOthers(now, t)
			// What is left by others that knew nothing of this client is no basis.
			a.fresh = a.fresh && remaining >= a.limit/2
		}
	case others, a.rate > fasterBy*a.refill(): // others can hide in a faster refill
		a.sawOthers(now, t)
	case a.mode == Alone && (now-a.lastOther >= aloneAfter || t.send%2 == 0):
		// This doubles the window each round trip, or each second one while others
		// may have started at the same time.
		a.window++
	}
	if a.mode == Shared {
		a.next = a.slot + seconds(a.nextInterval())
		if now-a.lastOther >= aloneAfter {
			a.enterAlone(max(firstWindow, a.inFlight+1))
		}
	}
}

// stuck reports whether what remains has stayed the same where the refill must
// have changed it. Such reports are not believed: the bucket counts as full until
// a 429.
func (a *Adaptive) stuck(now time.Duration, t Ticket, remaining float64) bool {
	switch {
	case remaining != a.left || remaining >= a.target():
		a.same = 0
	case t.Sent-a.leftAt >= sameAfter && a.law(remaining) > sameGrowth*a.interval:
		a.same++
	}
	if a.same < sameReports {
		return false
	}
	if a.mode != Alone {
		a.enterAlone(0)
		a.low, a.lastOther = a.limit, now
	}
	a.window++
	return true
}

// Resume implements [Machine].
func (a *Adaptive) Resume(now time.Duration) { a.Share.Resume(now) }

// Idle implements [Machine].
func (a *Adaptive) Idle(now time.Duration) { a.due = a.advance(now) + idleAfter }

// AtLeast implements [Machine]. It assumes the best case, the upper bound of the
// tokens.
func (a *Adaptive) AtLeast(now time.Duration, ahead int) time.Duration {
	now = a.advance(now)
	wait := a.Share.AtLeast(now, ahead)
	if !a.paces() {
		return wait
	}
	if a.inFlight == 0 { // no response can shorten the wait of the first
		wait = max(wait, a.ready(now, true))
	}
	return max(wait, seconds((float64(ahead)+1-a.high)/max(a.rate, DocumentedRate)))
}

// State implements [Machine].
func (a *Adaptive) State(now time.Duration) State {
	return State{Mode: a.mode, InFlight: a.inFlight, PausedFor: a.Share.State(now).PausedFor}
}

// seconds converts a number of seconds to a duration, rounded up, so that a wait
// is never too short, and at most 73 years, so that sums do not overflow.
func seconds(s float64) time.Duration {
	return time.Duration(min(max(math.Ceil(s*float64(time.Second)), 0), float64(Never/4)))
}
