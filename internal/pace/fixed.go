package pace

import (
	"math"
	"time"
)

// Fixed is a token bucket of a given size, for a share of the organization's
// limit. It ignores how much remains in the organization's bucket, but it pauses
// after a 429 and after a response that reports that nothing remains.
type Fixed struct {
	burst       float64
	perSecond   float64
	tokens      float64
	at          time.Duration // time of tokens; in the future after a 429
	pausedUntil time.Duration
	inFlight    int
}

// NewFixed returns a full bucket of burst tokens, at least 1, that gains
// perSecond tokens a second, above 0.
func NewFixed(burst int, perSecond float64) *Fixed {
	return &Fixed{burst: float64(burst), perSecond: perSecond, tokens: float64(burst)}
}

// unlimited returns a bucket that only pauses after a response.
func unlimited() *Fixed {
	inf := math.Inf(1)
	return &Fixed{burst: inf, perSecond: inf, tokens: inf}
}

// advance refills the bucket up to now. During the pause after a 429 the
// bucket's time is ahead of now.
func (f *Fixed) advance(now time.Duration) {
	if now <= f.at {
		return
	}
	f.tokens = min(f.tokens+f.perSecond*(now-f.at).Seconds(), f.burst)
	f.at = now
}

// Ready implements [Machine].
func (f *Fixed) Ready(now time.Duration, _ bool) time.Duration {
	return f.AtLeast(now, 0)
}

// Send implements [Machine].
func (f *Fixed) Send(now time.Duration) Ticket {
	f.advance(now)
	f.tokens--
	f.inFlight++
	return Ticket{Sent: now}
}

// Cancel implements [Machine].
func (f *Fixed) Cancel(now time.Duration, _ Ticket) {
	f.advance(now)
	f.inFlight--
	f.giveBack()
}

func (f *Fixed) giveBack() { f.tokens = min(f.tokens+1, f.burst) }

// Done implements [Machine].
func (f *Fixed) Done(now time.Duration, _ Ticket, r Report) {
	f.advance(now)
	f.inFlight--
	switch {
	case r.RateLimited:
		// The bucket does not refill during the pause: it has at most one token
		// when the pause ends, so that the waiters are not all sent at once.
		f.pausedUntil = max(f.pausedUntil, r.pauseUntil(now))
		f.at = f.pausedUntil
		f.tokens = min(f.tokens+1, 1)
	case r.Blocked:
		f.tokens = min(f.tokens, 0)
	case r.Spent == SpentNo:
		f.giveBack()
	case r.Known && r.Remaining <= 0:
		f.pausedUntil = max(f.pausedUntil, now+refillPause)
	}
}

// Resume implements [Machine].
func (f *Fixed) Resume(now time.Duration) {
	f.at, f.pausedUntil = min(f.at, now), min(f.pausedUntil, now)
}

// Idle implements [Machine].
func (f *Fixed) Idle(time.Duration) {}

// AtLeast implements [Machine].
func (f *Fixed) AtLeast(now time.Duration, ahead int) time.Duration {
	f.advance(now)
	wait := f.at - now
	if need := float64(ahead) + 1; f.tokens < need-rounding {
		wait += seconds((need - f.tokens) / f.perSecond)
	}
	return max(wait, f.pausedUntil-now, 0)
}

// State implements [Machine].
func (f *Fixed) State(now time.Duration) State {
	return State{Mode: Static, InFlight: f.inFlight, PausedFor: max(f.pausedUntil-now, 0)}
}
