package pace

import (
	"math"
	"time"
)

// The documented limit, assumed until responses show otherwise.
const (
	documentedRate  = 5.0   // tokens a second; no header reports it
	documentedLimit = 100.0 // capacity; RateLimit-Limit reports it
	maxLimit        = 1e6   // a higher limit counts as this
)

// The settings. They were chosen among 2,700 random ones in a simulation of the
// documented server. Small changes to them make no difference.
const (
	probeEvery       = 250 * time.Millisecond // between probes: slower than the refill
	maxProbes        = 8                      // probes in flight
	reserve          = 2.0                    // tokens left in the bucket while alone
	firstWindow      = 2                      // attempts in flight when alone begins
	firstPause       = time.Second            // longest first interval when sharing begins
	idleAfter        = 10 * time.Second       // without a send, a response or a waiter, before probing again
	aloneAfter       = 10 * time.Second       // without a sign of others, before alone
	aloneResponses   = 4                      // responses without a sign of others, before alone
	targetLeft       = 11.0                   // tokens left in the bucket while shared
	targetInterval   = 1.0                    // seconds; all intervals are pulled to it, which makes shares equal
	pullGain         = 0.8                    // weight of that pull
	errorGain        = 1.5                    // weight of the error of what remains
	averaging        = 0.5                    // weight of a new interval in the average
	minInterval      = 0.1                    // seconds; bounds of the averaged interval
	maxInterval      = 10.0
	lookAhead        = 0.5   // part of the interval for which a fast fall is extrapolated
	fastFall         = 2.5   // tokens a second; a slower fall is noise
	maxFall          = 40.0  // tokens; limit of the extrapolation
	maxNext          = 12.0  // seconds; limit of a single interval
	rateLimitStretch = 1.4   // factor of the averaged interval for each 429
	rateLimitLeast   = 0.6   // part of the interval to wait after a 429 while others spend
	rateLimitSpread  = 1.0   // part of it over which those rate limited together are spread
	smoothing        = 0.125 // weight of a new round trip in the average
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
	trusted      bool   // the configuration says that nobody else uses the bucket
	sawRemaining bool   // a response reported what remains
	sawRateLimit bool   // there was a 429
	othersSeen   bool   // reported tokens, not only 429s, show that others spend
	share        *Fixed // limits its own spending, or nil

	limit     float64       // capacity of the server's bucket
	low, high float64       // bounds of the server's tokens less the attempts that have not reached it
	at        time.Duration // time of the bounds
	inFlight  int
	ended     int  // ended attempts that may have spent a token
	sends     int  // number of sends so far
	oneByOne  bool // after a bare 403: at most one attempt in flight

	mode        Mode
	pausedUntil time.Duration
	lastSend    time.Duration
	lastActive  time.Duration // last send, response or end of a wait
	waiting     bool          // the last Ready returned a wait
	probes      int           // probes since probing began
	wasAlone    bool          // it was alone before probing began, so low still holds
	window      int           // attempts in flight allowed while alone
	interval    float64       // averaged seconds between sends while shared; 0 before the first
	next        time.Duration // earliest send while shared
	left        float64       // tokens that remained by the newest response; -1 after a 429
	leftSend    int           // number of the Send of that response
	leftAt      time.Duration // time of that Send
	fall        float64       // tokens a second by which left falls; 0 unless fast
	roundTrip   float64       // averaged seconds; 0 before the first
	lastOther   time.Duration // last sign that others spend
	consistent  int           // responses since then
	lastGain    time.Duration // last sign of more tokens than assumed; 0 before the first
	undo        undo
}

// undo is what Cancel of the newest Send restores if no attempt has ended since.
type undo struct {
	send           int // number of that Send; 0 for none
	lastSend, next time.Duration
	interval       float64
}

// AdaptiveConfig changes how an Adaptive behaves. The zero value is the default.
type AdaptiveConfig struct {
	// Trusted says that nobody else uses the bucket, which skips the slow start.
	Trusted bool
	// Share limits the machine's own spending; nil means no limit.
	Share *Fixed
}

// NewAdaptive returns a machine that has seen no response yet.
func NewAdaptive(c AdaptiveConfig) *Adaptive {
	return &Adaptive{
		trusted: c.Trusted,
		share:   c.Share,
		limit:   documentedLimit,
		high:    documentedLimit,
	}
}

// advance moves the bounds to now.
func (a *Adaptive) advance(now time.Duration) {
	if now <= a.at {
		return
	}
	gain := documentedRate * inSeconds(now-a.at)
	a.low += gain
	a.high += gain
	a.at = now
	a.bound()
}

// bound limits the bounds to what the bucket can have: its capacity, for the
// lower bound less the attempts in flight.
func (a *Adaptive) bound() {
	a.high = min(a.high, a.limit)
	a.low = min(a.low, a.limit-float64(a.inFlight), a.high)
}

// Ready implements [Machine].
func (a *Adaptive) Ready(now time.Duration) time.Duration {
	a.advance(now)
	if !a.waiting && now-a.lastActive > idleAfter {
		a.afterPause(now)
	}
	wait := max(a.ready(now), a.pausedUntil-now)
	if a.share != nil {
		wait = max(wait, a.share.Ready(now))
	}
	a.waiting = wait > 0
	return max(wait, 0)
}

// afterPause discards what is stale after a pause, since others may have spent.
func (a *Adaptive) afterPause(now time.Duration) {
	a.lastActive = now
	if a.mode == Probe {
		return
	}
	if a.inFlight > 0 {
		// The response to an attempt from before the pause may be too old to
		// probe with, so start slowly instead.
		a.window = min(a.window, a.inFlight+firstWindow)
		return
	}
	if a.mode == Open {
		return
	}
	a.wasAlone = a.mode == Alone
	a.mode = Probe
	a.probes = 0
}

// ready is Ready without pause and share.
func (a *Adaptive) ready(now time.Duration) time.Duration {
	if a.oneByOne && a.inFlight > 0 {
		return Never
	}
	switch a.mode {
	case Probe:
		switch {
		case a.oneByOne:
			return a.refilled(1)
		case a.probes == 0:
			return 0
		case a.inFlight >= maxProbes:
			return Never
		}
		return a.lastSend + probeEvery - now
	case Open:
		return 0
	case Alone:
		if a.inFlight >= a.window {
			return Never
		}
		return a.refilled(1 + a.reserve())
	default:
		return max(a.next-now, a.refilled(1))
	}
}

// reserve returns the tokens left in the bucket while alone: fewer in a tiny
// bucket, from which nothing could be sent otherwise.
func (a *Adaptive) reserve() float64 { return min(reserve, (a.limit-1)/2) }

// refilled returns how long it takes until the bucket surely has so many tokens.
func (a *Adaptive) refilled(tokens float64) time.Duration {
	if a.low >= tokens-rounding {
		return 0
	}
	if a.limit-float64(a.inFlight) < tokens {
		return Never // the bucket is too small for more in flight
	}
	return seconds((tokens - a.low) / documentedRate)
}

// Send implements [Machine].
func (a *Adaptive) Send(now time.Duration) Ticket {
	a.advance(now)
	a.low--
	a.high--
	a.inFlight++
	a.sends++
	a.undo = undo{a.sends, a.lastSend, a.next, a.interval}
	a.lastSend = now
	a.lastActive = now
	a.waiting = false
	switch a.mode {
	case Probe, Open:
		a.probes++
	case Shared:
		interval := a.nextInterval()
		a.interval += averaging * a.scale() * (interval - a.interval)
		a.interval = min(max(a.interval, minInterval), maxInterval)
		a.next = now + seconds(interval)
	}
	if a.share != nil {
		a.share.Send(now)
	}
	return Ticket{Sent: now, ended: a.ended, send: a.sends}
}

// Cancel implements [Machine].
func (a *Adaptive) Cancel(now time.Duration, t Ticket) {
	a.advance(now)
	a.lastActive = now
	a.inFlight--
	a.giveBack()
	if t.send == a.undo.send {
		a.lastSend, a.next, a.interval = a.undo.lastSend, a.undo.next, a.undo.interval
	}
	if a.share != nil {
		a.share.Cancel(now, t)
	}
}

// giveBack returns the token of an attempt that ended without spending it.
func (a *Adaptive) giveBack() {
	a.low++
	a.high++
	if a.mode == Probe && a.probes > 0 {
		a.probes--
	}
	a.bound()
}

// nextInterval returns the interval in seconds to the next send while shared.
//
// The error is corrected on the interval, not on the rate, by an amount that is
// the same for every client. The loop gain per cycle is then independent of the
// number of clients. The scale damps the loop when round trips are long compared
// to the interval. A fast fall is extrapolated: many clients that start together
// would otherwise see a full bucket until it is empty.
func (a *Adaptive) nextInterval() float64 {
	pull := pullGain * targetInterval * (1 - math.Sqrt(a.interval/targetInterval))
	target := min(targetLeft, a.limit/4)
	left := a.left - min(a.fall*lookAhead*a.interval, maxFall)
	interval := a.interval + a.scale()*(pull-errorGain*(left-target)/documentedRate)
	return min(max(interval, a.interval/2), 3*a.interval+targetInterval, maxNext)
}

func (a *Adaptive) scale() float64 { return a.interval / (a.interval + 2*a.roundTrip) }

// Done implements [Machine].
func (a *Adaptive) Done(now time.Duration, t Ticket, r Report) {
	a.advance(now)
	now = max(now, a.at)
	a.lastActive = now
	a.inFlight--
	a.undo.send = 0
	if a.share != nil {
		a.share.Done(now, t, r)
	}
	if r.Known && r.Limit >= 1 {
		a.limit = min(float64(r.Limit), maxLimit)
	}
	switch {
	case r.RateLimited:
		a.rateLimited(now, t, r)
	case r.Blocked:
		a.high++
		a.ended++
		a.low = min(a.low, 0)
		a.window = firstWindow
		a.oneByOne = true
	case r.Spent == SpentNo:
		a.giveBack()
	case r.Known:
		a.oneByOne = false
		a.learn(now, t, min(max(float64(r.Remaining), 0), a.limit))
	default:
		// The next response shows whether the token was spent. Until then only
		// the upper bound can rise.
		a.oneByOne = false
		if r.Spent != SpentYes {
			a.high++
		}
		a.ended++
		if r.Spent == SpentYes && !a.sawRemaining {
			a.noLimitReported()
		}
	}
	a.bound()
}

// noLimitReported handles an allowed request to a server that has never reported
// what remains: a fake server in a test, or a gateway that strips the headers.
// Nothing is paced until its first 429, and from then on by the documented limit
// and the machine's own sends.
func (a *Adaptive) noLimitReported() {
	switch {
	case !a.sawRateLimit:
		a.mode = Open
	case a.mode != Alone:
		a.enterAlone(a.inFlight + firstWindow)
	case a.window < math.MaxInt:
		a.window++
	}
}

// rateLimited handles a 429: the bucket was empty, so others have spent.
func (a *Adaptive) rateLimited(now time.Duration, t Ticket, r Report) {
	a.sawRateLimit = true
	a.oneByOne = false
	a.giveBack()
	a.low = min(a.low, 0)
	a.high = min(a.high, 1+documentedRate*inSeconds(now-t.Sent))
	a.sawOthers(now)
	a.pausedUntil = max(a.pausedUntil, r.pauseUntil(now))
	a.left, a.leftSend, a.fall = -1, a.sends, 0 // responses to earlier sends are older
	if a.mode == Shared {
		a.interval = min(rateLimitStretch*a.interval, maxInterval)
	} else {
		a.enterShared()
	}
	if !a.othersSeen {
		// Only the wait that the server asked for is known: the call is retried
		// then, and those after it are paced.
		a.next = now
		return
	}
	// Otherwise those rate limited together would retry together, at ever longer
	// intervals.
	a.next = a.lastSend + seconds((rateLimitLeast+rateLimitSpread*r.Jitter)*a.nextInterval())
}

// sawOthers restarts the count of responses without a sign of others.
func (a *Adaptive) sawOthers(now time.Duration) {
	a.lastOther = now
	a.consistent = 0
}

// enterShared starts sharing at the last known interval.
func (a *Adaptive) enterShared() {
	a.mode = Shared
	if a.interval == 0 {
		a.interval = targetInterval
	}
	a.next = a.lastSend + seconds(a.nextInterval())
}

func (a *Adaptive) enterAlone(window int) {
	a.mode = Alone
	a.othersSeen = false
	a.window = window
	if a.trusted {
		a.window = math.MaxInt
	}
}

// learn handles the number of tokens that remained by the response to an attempt
// that spent one.
func (a *Adaptive) learn(now time.Duration, t Ticket, remaining float64) {
	a.sawRemaining = true
	// The machine's own requests that the server may have seen after this one.
	after := float64(a.inFlight + a.ended - t.ended)
	a.ended++
	took := inSeconds(now - t.Sent)
	bottom := remaining - after
	top := remaining + 1 + documentedRate*took
	if a.roundTrip == 0 {
		a.roundTrip = took
	} else {
		a.roundTrip += smoothing * (took - a.roundTrip)
	}
	if t.send > a.leftSend {
		a.track(t, remaining)
	}
	if remaining == 0 {
		a.pausedUntil = max(a.pausedUntil, now+refillPause)
	}

	othersSpent := top < a.low-rounding
	switch {
	case a.mode == Probe || a.mode == Open:
		full := remaining >= a.limit-float64(a.probes)-1
		alone := full || a.trusted || a.wasAlone && !othersSpent
		a.low, a.high = bottom, top
		a.left, a.leftSend, a.leftAt, a.fall = remaining, t.send, t.Sent, 0
		if alone {
			a.enterAlone(firstWindow)
			a.consistent++
		} else {
			a.othersSeen = true
			a.sawOthers(now)
			a.interval = targetInterval
			a.enterShared()
			a.next = min(a.next, a.lastSend+firstPause)
		}
		return
	case othersSpent:
		a.othersSeen = true
		a.low, a.high = bottom, top
		a.sawOthers(now)
		if a.mode == Alone {
			a.enterShared()
			return
		}
	case bottom > a.high+rounding:
		// An attempt never arrived, or the refill is faster than assumed. This
		// case alone follows a raised limit.
		a.low, a.high = bottom, top
		a.lastGain = now
		a.consistent++
	default:
		a.low, a.high = max(a.low, bottom), min(a.high, top)
		a.consistent++
	}

	switch {
	case a.mode == Alone:
		if a.window < math.MaxInt {
			a.window++ // doubles it each round trip
		}
	case a.consistent >= aloneResponses && now-a.lastOther >= aloneAfter:
		a.enterAlone(max(firstWindow, a.inFlight+1))
	default:
		a.next = a.lastSend + seconds(a.nextInterval())
	}
}

// track records what remained by a newer response, and how fast that falls.
func (a *Adaptive) track(t Ticket, remaining float64) {
	const shortest = 0.05 // seconds; two sends may have the same time
	fall := (a.left - remaining) / max(inSeconds(t.Sent-a.leftAt), shortest)
	if a.left < 0 || fall < fastFall {
		fall = 0
	}
	a.left, a.leftSend, a.leftAt, a.fall = remaining, t.send, t.Sent, fall
}

// Idle implements [Machine].
func (a *Adaptive) Idle(now time.Duration) {
	a.waiting = false
	a.lastActive = max(a.lastActive, now)
}

// AtLeast implements [Machine]. It assumes the best case: the upper bound of the
// tokens, and while shared, the fastest fall of the interval.
func (a *Adaptive) AtLeast(now time.Duration, ahead int) time.Duration {
	a.advance(now)
	wait := max(a.pausedUntil-now, 0)
	if a.share != nil {
		wait = max(wait, a.share.AtLeast(now, ahead))
	}
	if a.mode == Probe || a.mode == Open {
		return wait
	}
	if a.inFlight == 0 { // no response can shorten the wait of the first
		wait = max(wait, a.ready(now))
	}
	if a.lastGain == 0 || now-a.lastGain > time.Minute {
		wait = max(wait, seconds((float64(ahead)+1-a.high)/documentedRate))
	}
	if a.mode == Shared {
		// Once it may be alone again, the interval no longer applies.
		wait = max(wait, min(a.sharedAtLeast(now, ahead), a.lastOther+aloneAfter-now))
	}
	return wait
}

// sharedAtLeast returns the shortest time in which nextInterval allows ahead
// attempts and then one more.
func (a *Adaptive) sharedAtLeast(now time.Duration, ahead int) time.Duration {
	// An interval is at least half the average, and the average falls by at most
	// a quarter each time.
	const fall = 1 - averaging/2
	next := a.next
	if a.inFlight > 0 { // a response may shorten the interval
		next = min(next, a.lastSend+seconds(a.interval/2))
	}
	next = max(next-now, 0)
	sum, interval := 0.0, a.interval
	for i := range ahead {
		if interval <= minInterval {
			sum += float64(ahead-i) * minInterval / 2
			break
		}
		sum += interval / 2
		interval *= fall
	}
	return next + seconds(sum)
}

// State implements [Machine].
func (a *Adaptive) State(now time.Duration) State {
	return State{Mode: a.mode, InFlight: a.inFlight, PausedFor: max(a.pausedUntil-now, 0)}
}
