// Package pace holds the arithmetic of the rate limiters: pure state machines
// that are told the time and decide whether one more attempt may be sent. They
// start no goroutine, take no lock and draw no random number, so that every
// property of them can be tested in a simulation. The waiting around them is
// the root package's.
//
// All times are durations since one arbitrary start and must come from a
// monotonic clock; a time earlier than one already seen counts as the later.
package pace

import (
	"math"
	"time"
)

// Never is the answer of Ready when only the end of an attempt can help, not
// the passing of time.
const Never = time.Duration(math.MaxInt64)

const (
	// refillPause is how long the documented bucket takes for one token. It is
	// the pause after an answer that says that nothing remains.
	refillPause = 200 * time.Millisecond
	// defaultRetryAfter is taken for a refusal that names no time.
	defaultRetryAfter = time.Second
	// maxRetryAfter keeps an absurd refusal from overflowing the clock.
	maxRetryAfter = 24 * time.Hour
	// refusalSpread is how far the clients that were refused together are
	// drawn apart.
	refusalSpread = 500 * time.Millisecond
	// rounding forgives the error of adding up fractions of tokens.
	rounding = 1e-9
)

// Spent says whether an attempt cost a token.
type Spent uint8

const (
	SpentUnknown Spent = iota // the answer does not tell
	SpentYes                  // the server took a token
	SpentNo                   // the server took none
)

// Report is what the end of one attempt taught.
type Report struct {
	Known      bool          // Limit and Remaining are those of the answer
	Limit      int           // the bucket's capacity; below 1 it is ignored
	Remaining  int           // tokens left when the answer was written
	Spent      Spent         // whether a token was taken
	Refused    bool          // a 429
	RetryAfter time.Duration // the wait that a 429 asked for; 0 when it named none
	Jitter     float64       // in [0, 1): draws apart those who were refused together
	Blocked    bool          // a bare 403: the bucket is to be taken as empty
}

// holdUntil is when sending may go on after a refusal at now.
func (r Report) holdUntil(now time.Duration) time.Duration {
	wait := r.RetryAfter
	if wait <= 0 {
		wait = defaultRetryAfter
	}
	return now + min(wait, maxRetryAfter) + time.Duration(r.Jitter*float64(refusalSpread))
}

// Ticket belongs to one attempt from Send to Done or Cancel.
type Ticket struct {
	Sent  time.Duration // when it was sent
	ended int           // how many attempts that may have spent a token had ended by then
	turn  int           // which send it was
}

// Mode is what a machine believes about the other users of the bucket.
type Mode uint8

const (
	Probe  Mode = iota // nothing is known yet
	Alone              // nobody else spends
	Shared             // others spend too
	Static             // a fixed share, nothing is believed
	Open               // the server tells of no limit
)

// State is a machine's state for people who debug.
type State struct {
	Mode      Mode
	Low, High float64       // bounds on the tokens that can still be sent for
	InFlight  int           // attempts sent and not ended
	Held      time.Duration // how long a refusal still holds everything back
	Interval  time.Duration // the averaged interval between sends while Shared
}

// Machine is what the waiting around it needs. Calls must not overlap.
type Machine interface {
	// Ready returns 0 when the first of the queue may be sent now, otherwise
	// how long to wait before asking again, at most Never. It must be asked
	// again after every Done.
	Ready(now time.Duration) time.Duration
	// Send records that an attempt is sent. Ready has just returned 0.
	Send(now time.Duration) Ticket
	// Cancel takes back a Send that led to no attempt.
	Cancel(now time.Duration, t Ticket)
	// Done records the end of an attempt.
	Done(now time.Duration, t Ticket, r Report)
	// Idle records that nobody waits any more although Ready said to.
	Idle(now time.Duration)
	// AtLeast returns a wait that an attempt with so many others in front
	// cannot undercut.
	AtLeast(now time.Duration, ahead int) time.Duration
	// Mode returns what the machine believes about others.
	Mode() Mode
	// State returns what can be seen from outside.
	State(now time.Duration) State
}

// inSeconds is d.Seconds() at a third of the cost; pacing needs no more digits.
func inSeconds(d time.Duration) float64 { return float64(d) * 1e-9 }

// seconds turns a number of seconds into a duration, rounded up, so that a
// wait of it is never too short.
func seconds(s float64) time.Duration {
	if s <= 0 {
		return 0
	}
	if s >= maxSeconds {
		return time.Duration(math.MaxInt64) / 4
	}
	return time.Duration(math.Ceil(s * float64(time.Second)))
}

// maxSeconds is about 73 years; waits beyond it would overflow sums.
const maxSeconds = float64(math.MaxInt64) / float64(time.Second) / 4
