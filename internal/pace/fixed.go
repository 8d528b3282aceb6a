package pace

import "time"

// Fixed is a token bucket of a size that was given, for a share of the
// organization's limit. It learns nothing from what remains, but it does stop
// after a refusal and after an answer that says that nothing remains.
type Fixed struct {
	burst     float64
	perSecond float64
	tokens    float64
	at        time.Duration // time of tokens; in the future after a refusal
	held      time.Duration // nothing is sent before
	inFlight  int
}

// NewFixed returns a full bucket of burst tokens, at least 1, that gains
// perSecond tokens a second, above 0.
func NewFixed(burst int, perSecond float64) *Fixed {
	return &Fixed{burst: float64(burst), perSecond: perSecond, tokens: float64(burst)}
}

// advance refills the bucket up to now. The bucket's time is ahead of now while
// a refusal holds everything back.
func (f *Fixed) advance(now time.Duration) {
	if now <= f.at {
		return
	}
	f.tokens = min(f.tokens+f.perSecond*inSeconds(now-f.at), f.burst)
	f.at = now
}

// Ready implements Machine.
func (f *Fixed) Ready(now time.Duration) time.Duration {
	return f.AtLeast(now, 0)
}

// Send implements Machine.
func (f *Fixed) Send(now time.Duration) Ticket {
	f.advance(now)
	f.tokens--
	f.inFlight++
	return Ticket{Sent: now}
}

// Cancel implements Machine.
func (f *Fixed) Cancel(now time.Duration, _ Ticket) {
	f.advance(now)
	f.inFlight--
	f.giveBack()
}

func (f *Fixed) giveBack() { f.tokens = min(f.tokens+1, f.burst) }

// Done implements Machine.
func (f *Fixed) Done(now time.Duration, _ Ticket, r Report) {
	f.advance(now)
	f.inFlight--
	switch {
	case r.Refused:
		// A bucket that filled up during the hold would send the crowd back in
		// one go, so it has one token when the hold ends, and no more.
		f.held = max(f.held, r.holdUntil(now))
		f.at = f.held
		f.tokens = min(f.tokens+1, 1)
	case r.Blocked:
		f.tokens = min(f.tokens, 0)
	case r.Spent == SpentNo:
		f.giveBack()
	case r.Known && r.Remaining <= 0:
		f.held = max(f.held, now+refillPause)
	}
}

// Idle implements Machine.
func (f *Fixed) Idle(time.Duration) {}

// AtLeast implements Machine.
func (f *Fixed) AtLeast(now time.Duration, ahead int) time.Duration {
	f.advance(now)
	wait := f.at - now
	if need := float64(ahead) + 1; f.tokens < need-rounding {
		wait += seconds((need - f.tokens) / f.perSecond)
	}
	return max(wait, f.held-now, 0)
}

// Mode implements Machine.
func (f *Fixed) Mode() Mode { return Static }

// State implements Machine.
func (f *Fixed) State(now time.Duration) State {
	f.advance(now)
	return State{Mode: Static, Low: f.tokens, High: f.tokens, InFlight: f.inFlight, Held: max(f.held-now, 0)}
}
