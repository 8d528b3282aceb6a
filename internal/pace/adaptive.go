package pace

import (
	"math"
	"time"
)

// What the server documents, and what is believed until answers say otherwise.
const (
	documentedRate  = 5.0   // tokens a second; no header tells it
	documentedLimit = 100.0 // capacity; RateLimit-Limit tells it
	maxLimit        = 1e6   // a limit beyond this is taken as this
)

// The settings. They come from some 2,700 random settings tried in a
// simulation of the documented server, and the figures are flat around them.
const (
	probeEvery     = 250 * time.Millisecond // between probes: slower than the refill
	maxProbes      = 8                      // outstanding probes
	reserve        = 2.0                    // tokens left in the bucket while alone
	firstWindow    = 2                      // attempts side by side when alone begins
	firstPause     = time.Second            // at most, when sharing begins
	idleAfter      = 10 * time.Second       // without a send, an answer or a waiter: what was known is stale
	aloneAfter     = 10 * time.Second       // without a sign of others, before alone
	aloneAnswers   = 4                      // answers without a sign of others, before alone
	targetLeft     = 11.0                   // tokens that those who share leave in the bucket
	targetInterval = 1.0                    // seconds; towards it everybody is drawn, which makes shares equal
	pullGain       = 0.8                    // how strongly
	errorGain      = 1.5                    // how strongly the interval answers to what remains
	averaging      = 0.5                    // share of a new interval in the average
	minInterval    = 0.1                    // seconds; bounds of the averaged interval
	maxInterval    = 10.0
	lookAhead      = 0.5   // share of the interval by which a fall of what remains is thought on
	fastFall       = 2.5   // tokens a second; a slower fall is noise
	maxFall        = 40.0  // tokens; as much as a fall can count for
	maxNext        = 12.0  // seconds; bound of the interval chosen
	refusedStretch = 1.4   // the averaged interval grows by this on a refusal
	refusedLeast   = 0.6   // share of the interval chosen after which the first may be sent again, beside others
	refusedSpread  = 1.0   // share of it over which those refused together are drawn apart
	smoothing      = 0.125 // share of a new round trip in the average
)

// Adaptive keeps in step with the server's bucket. Two ideas carry it.
//
// What remains according to the last answers, together with the log of its own
// sends, bounds from both sides the tokens that the server will have once all
// that is under way has arrived. "Nobody else is spending" can therefore be
// checked rather than guessed, and while it holds, the bucket may be spent down
// to a small reserve without any risk.
//
// While others spend, all clients see the same number of remaining tokens. Each
// chooses its interval between sends by a law that depends on that number and
// on its own interval alone, which makes the shared bucket the channel through
// which they agree, however many they are.
type Adaptive struct {
	trusted bool   // the owner says that nobody else uses the bucket
	told    bool   // an allowed request was answered with what remains
	limited bool   // there was a refusal
	others  bool   // answers, not only refusals, show that others spend
	share   *Fixed // a bound on its own rate, or nil

	limit     float64       // capacity of the server's bucket
	low, high float64       // bounds on the server's tokens less the attempts that have not reached it
	at        time.Duration // time of the bounds
	inFlight  int
	ended     int  // ended attempts that may have spent a token
	turns     int  // sends so far
	single    bool // blocked: one at a time until an answer is not

	mode       Mode
	held       time.Duration // nothing is sent before
	lastSend   time.Duration
	active     time.Duration // last send, answer or departure of a waiter
	waiting    bool          // somebody was told to wait
	probes     int           // probes since probing began
	wasAlone   bool          // probing began while alone: low is worth checking
	window     int           // attempts side by side while alone
	interval   float64       // averaged seconds between sends while shared; 0 before the first
	next       time.Duration // earliest send while shared
	left       float64       // what remained by the newest answer, -1 after a refusal
	leftTurn   int           // which send that answer was to
	leftAt     time.Duration // when that was sent
	fall       float64       // tokens a second by which left falls, 0 unless it falls fast
	roundTrip  float64       // averaged seconds; 0 before the first
	lastOther  time.Duration // last sign that others spend
	consistent int           // answers since then
	lastGain   time.Duration // last sign of more tokens than believed; 0 before the first
	undo       undo
}

// undo is what a Cancel of the latest Send restores, if no attempt has ended
// since.
type undo struct {
	turn           int // which send; 0 for none
	lastSend, next time.Duration
	interval       float64
}

// AdaptiveConfig changes how an Adaptive behaves. The zero value is the default.
type AdaptiveConfig struct {
	// Trusted says that nobody else uses the bucket: there is no slow start.
	Trusted bool
	// Share bounds its own spending; nil means no bound.
	Share *Fixed
}

// NewAdaptive returns a machine that knows nothing yet.
func NewAdaptive(c AdaptiveConfig) *Adaptive {
	return &Adaptive{
		trusted: c.Trusted,
		share:   c.Share,
		limit:   documentedLimit,
		high:    documentedLimit,
	}
}

// Mode implements Machine.
func (a *Adaptive) Mode() Mode { return a.mode }

// advance moves the bounds to now. A bucket gains at most documentedRate a
// second and never holds more than its limit, less what is under way for the
// lower bound.
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

// bound restores what always holds of the bounds.
func (a *Adaptive) bound() {
	a.high = min(a.high, a.limit)
	a.low = min(a.low, a.limit-float64(a.inFlight), a.high)
}

// Ready implements Machine.
func (a *Adaptive) Ready(now time.Duration) time.Duration {
	a.advance(now)
	if !a.waiting && now-a.active > idleAfter {
		a.wakeUp(now)
	}
	wait := max(a.ready(now), a.held-now)
	if a.share != nil {
		wait = max(wait, a.share.Ready(now))
	}
	a.waiting = wait > 0
	return max(wait, 0)
}

// wakeUp forgets what is stale after a pause: others may have spent.
func (a *Adaptive) wakeUp(now time.Duration) {
	a.active = now
	if a.mode == Probe {
		return
	}
	if a.inFlight > 0 {
		// An attempt has been under way all the time, and its answer may be
		// too old to say anything, so there is no probing; start slowly.
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

// ready is Ready for the mode alone.
func (a *Adaptive) ready(now time.Duration) time.Duration {
	if a.single && a.inFlight > 0 {
		return Never
	}
	switch a.mode {
	case Probe:
		switch {
		case a.single:
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

// reserve is what is left in the bucket while alone; less in a tiny bucket,
// which could otherwise never be sent from.
func (a *Adaptive) reserve() float64 { return min(reserve, (a.limit-1)/2) }

// refilled returns how long it takes until at least so many tokens are sure.
func (a *Adaptive) refilled(tokens float64) time.Duration {
	if a.low >= tokens-rounding {
		return 0
	}
	if a.limit-float64(a.inFlight) < tokens {
		return Never // the bucket is too small for more side by side
	}
	return seconds((tokens - a.low) / documentedRate)
}

// Send implements Machine.
func (a *Adaptive) Send(now time.Duration) Ticket {
	a.advance(now)
	a.low--
	a.high--
	a.inFlight++
	a.turns++
	a.undo = undo{a.turns, a.lastSend, a.next, a.interval}
	a.lastSend = now
	a.active = now
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
	return Ticket{Sent: now, ended: a.ended, turn: a.turns}
}

// Cancel implements Machine.
func (a *Adaptive) Cancel(now time.Duration, t Ticket) {
	a.advance(now)
	a.active = now
	a.inFlight--
	a.giveBack()
	if t.turn == a.undo.turn {
		a.lastSend, a.next, a.interval = a.undo.lastSend, a.undo.next, a.undo.interval
	}
	if a.share != nil {
		a.share.Cancel(now, t)
	}
}

// giveBack returns the token of an attempt that has ended and spent none.
func (a *Adaptive) giveBack() {
	a.low++
	a.high++
	if a.mode == Probe && a.probes > 0 {
		a.probes--
	}
	a.bound()
}

// law returns the interval in seconds to the next send while shared. The error
// is corrected on the interval and not on the rate, by an amount that is the
// same for everybody, which keeps the gain of the loop per own cycle
// independent of how many share; the scale keeps it calm when round trips are
// long beside the interval. A fast fall counts as if it had gone on already:
// many who start together would else see plenty until there is nothing.
func (a *Adaptive) nextInterval() float64 {
	pull := pullGain * targetInterval * (1 - math.Sqrt(a.interval/targetInterval))
	target := min(targetLeft, a.limit/4)
	left := a.left - min(a.fall*lookAhead*a.interval, maxFall)
	interval := a.interval + a.scale()*(pull-errorGain*(left-target)/documentedRate)
	return min(max(interval, a.interval/2), 3*a.interval+targetInterval, maxNext)
}

func (a *Adaptive) scale() float64 { return a.interval / (a.interval + 2*a.roundTrip) }

// Done implements Machine.
func (a *Adaptive) Done(now time.Duration, t Ticket, r Report) {
	a.advance(now)
	now = max(now, a.at)
	a.active = now
	a.inFlight--
	a.undo.turn = 0
	if a.share != nil {
		a.share.Done(now, t, r)
	}
	if r.Known && r.Limit >= 1 {
		a.limit = min(float64(r.Limit), maxLimit)
	}
	switch {
	case r.Refused:
		a.refused(now, t, r)
	case r.Blocked:
		a.high++
		a.ended++
		a.low = min(a.low, 0)
		a.window = firstWindow
		a.single = true
	case r.Spent == SpentNo:
		a.giveBack()
	case r.Known:
		a.single = false
		a.learn(now, t, min(max(float64(r.Remaining), 0), a.limit))
	default:
		// Whether the token was spent is settled by the next answer; until
		// then only the upper bound can rise.
		a.single = false
		if r.Spent != SpentYes {
			a.high++
		}
		a.ended++
		if r.Spent == SpentYes && !a.told {
			a.untold()
		}
	}
	a.bound()
}

// untold takes in that a request was allowed by a server that has never said
// what remains: a double in somebody's tests, or a gateway that strips the
// headers. Then there is nothing to keep in step with. Only once such a server
// has refused something is it paced, by the documented limit and by what is
// known of its own sends.
func (a *Adaptive) untold() {
	switch {
	case !a.limited:
		a.mode = Open
	case a.mode != Alone:
		a.enterAlone(a.inFlight + firstWindow)
	case a.window < math.MaxInt:
		a.window++
	}
}

// refused takes in a 429: the bucket was empty, so others have spent.
func (a *Adaptive) refused(now time.Duration, t Ticket, r Report) {
	a.limited = true
	a.single = false
	a.giveBack()
	a.low = min(a.low, 0)
	a.high = min(a.high, 1+documentedRate*inSeconds(now-t.Sent))
	a.sawOthers(now)
	a.held = max(a.held, r.holdUntil(now))
	a.left, a.leftTurn, a.fall = -1, a.turns, 0 // answers under way are older news
	if a.mode == Shared {
		a.interval = min(refusedStretch*a.interval, maxInterval)
	} else {
		a.enterShared()
	}
	if !a.others {
		// All that is known is the wait that the server asked for: the refused
		// call goes then, and what comes after it is paced.
		a.next = now
		return
	}
	// Without this, those refused together would come back together, at ever
	// longer intervals.
	a.next = a.lastSend + seconds((refusedLeast+refusedSpread*r.Jitter)*a.nextInterval())
}

// sawOthers starts the count of answers without a sign of others anew.
func (a *Adaptive) sawOthers(now time.Duration) {
	a.lastOther = now
	a.consistent = 0
}

// enterShared begins to share, at the last known pace.
func (a *Adaptive) enterShared() {
	a.mode = Shared
	if a.interval == 0 {
		a.interval = targetInterval
	}
	a.next = a.lastSend + seconds(a.nextInterval())
}

func (a *Adaptive) enterAlone(window int) {
	a.mode = Alone
	a.others = false
	a.window = window
	if a.trusted {
		a.window = math.MaxInt
	}
}

// learn takes in how many tokens remained by the answer to an attempt that
// spent one.
func (a *Adaptive) learn(now time.Duration, t Ticket, remaining float64) {
	a.told = true
	// Requests of its own that the server may have seen after this one.
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
	if t.turn > a.leftTurn {
		a.follow(t, remaining)
	}
	if remaining == 0 {
		a.held = max(a.held, now+refillPause)
	}

	othersSpent := top < a.low-rounding
	switch {
	case a.mode == Probe || a.mode == Open:
		full := remaining >= a.limit-float64(a.probes)-1
		alone := full || a.trusted || a.wasAlone && !othersSpent
		a.low, a.high = bottom, top
		a.left, a.leftTurn, a.leftAt, a.fall = remaining, t.turn, t.Sent, 0
		if alone {
			a.enterAlone(firstWindow)
			a.consistent++
		} else {
			a.others = true
			a.sawOthers(now)
			a.interval = targetInterval
			a.enterShared()
			a.next = min(a.next, a.lastSend+firstPause)
		}
		return
	case othersSpent:
		a.others = true
		a.low, a.high = bottom, top
		a.sawOthers(now)
		if a.mode == Alone {
			a.enterShared()
			return
		}
	case bottom > a.high+rounding:
		// An attempt was lost on its way, or the refill is faster than
		// believed: this alone follows a raised limit.
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
			a.window++ // doubles each round trip
		}
	case a.consistent >= aloneAnswers && now-a.lastOther >= aloneAfter:
		a.enterAlone(max(firstWindow, a.inFlight+1))
	default:
		a.next = a.lastSend + seconds(a.nextInterval())
	}
}

// follow takes in what remains by a newer answer, and how fast that falls.
func (a *Adaptive) follow(t Ticket, remaining float64) {
	const shortest = 0.05 // seconds; two sends may come at the same moment
	fall := (a.left - remaining) / max(inSeconds(t.Sent-a.leftAt), shortest)
	if a.left < 0 || fall < fastFall {
		fall = 0
	}
	a.left, a.leftTurn, a.leftAt, a.fall = remaining, t.turn, t.Sent, fall
}

// Idle implements Machine.
func (a *Adaptive) Idle(now time.Duration) {
	a.waiting = false
	a.active = max(a.active, now)
}

// AtLeast implements Machine. It errs on the side of too short: the upper
// bound of the tokens counts, and while shared, the fastest that the law would
// let the interval fall.
func (a *Adaptive) AtLeast(now time.Duration, ahead int) time.Duration {
	a.advance(now)
	held := max(a.held-now, 0)
	wait := held
	if a.share != nil {
		wait = max(wait, a.share.AtLeast(now, ahead))
	}
	if a.mode == Probe || a.mode == Open {
		return wait
	}
	if a.inFlight == 0 { // no answer will change it for the first
		wait = max(wait, a.ready(now))
	}
	if a.lastGain == 0 || now-a.lastGain > time.Minute {
		wait = max(wait, seconds((float64(ahead)+1-a.high)/documentedRate))
	}
	if a.mode == Shared {
		// From the moment when it may be alone again, the law binds no more.
		wait = max(wait, min(a.lawAtLeast(now, ahead), a.lastOther+aloneAfter-now))
	}
	return wait
}

// lawAtLeast returns the shortest time in which the law lets so many attempts
// and then one more go.
func (a *Adaptive) lawAtLeast(now time.Duration, ahead int) time.Duration {
	// The interval chosen is at least half the average, and the average gives
	// way by at most a quarter each time.
	const fall = 1 - averaging/2
	next := a.next
	if a.inFlight > 0 { // whose answer may let it fall
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

// State implements Machine.
func (a *Adaptive) State(now time.Duration) State {
	a.advance(now)
	return State{
		Mode:     a.mode,
		Low:      a.low,
		High:     a.high,
		InFlight: a.inFlight,
		Held:     max(a.held-now, 0),
		Interval: seconds(a.interval),
	}
}
