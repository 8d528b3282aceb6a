// Package pace implements the rate limiters. A [Machine] is a pure state machine
// that is given the time and decides whether one more attempt may be sent. It
// starts no goroutine, takes no lock and draws no random number, so that all its
// properties can be tested in a simulation. A [Queue] makes attempts wait for
// their machine.
//
// All times are durations since one arbitrary start and must come from a
// monotonic clock. A time earlier than one already seen counts as the later one.
package pace

import (
	"math"
	"time"
)

// Never is what Ready returns when only the end of an attempt can help, not the
// passing of time.
const Never = time.Duration(math.MaxInt64)

const (
	// refillPause is how long the documented bucket takes for one token. It is
	// the pause after a response that reports that nothing remains.
	refillPause = 200 * time.Millisecond
	// defaultRetryAfter is used for a 429 without a wait.
	defaultRetryAfter = time.Second
	// maxRetryAfter is the longest pause of a client: then one attempt finds out
	// whether the limit still holds.
	maxRetryAfter = 5 * time.Minute
	// absurdRetryAfter is longer than any bucket takes to refill, such as a time
	// since 1970 in seconds: it counts as none.
	absurdRetryAfter = time.Hour
	// pauseSpread is the range over which the clients that were rate limited
	// together are spread.
	pauseSpread = 500 * time.Millisecond
	// rounding absorbs the error of adding up fractions of tokens.
	rounding = 1e-9
)

// Spent says whether an attempt cost a token.
type Spent uint8

const (
	SpentUnknown Spent = iota // the response does not say
	SpentYes                  // the server took a token
	SpentNo                   // the server took none
)

// Report is what the end of one attempt showed.
type Report struct {
	Known       bool          // Limit and Remaining are those of the response
	Limit       int           // the bucket's capacity; below 1 it is ignored
	Remaining   int           // tokens left when the response was written
	Spent       Spent         // whether a token was taken
	RateLimited bool          // a 429
	RetryAfter  time.Duration // the wait that a 429 asked for; 0 if none
	Jitter      float64       // in [0, 1): spreads those rate limited together
	Blocked     bool          // a bare 403: treat the bucket as empty
}

// pauseUntil returns when sending may continue after a 429 at now.
func (r Report) pauseUntil(now time.Duration) time.Duration {
	wait := r.RetryAfter
	if wait <= 0 || wait > absurdRetryAfter {
		wait = defaultRetryAfter
	}
	return now + min(wait, maxRetryAfter) + time.Duration(r.Jitter*float64(pauseSpread))
}

// Ticket belongs to one attempt from Send to Done or Cancel.
type Ticket struct {
	Sent  time.Duration // when it was sent
	ended int           // attempts that had ended by then and may have spent a token
	send  int           // number of this Send
}

// Mode is what a machine assumes about the other users of the bucket.
type Mode string

const (
	Probe  Mode = "probe"  // nothing is known yet
	Alone  Mode = "alone"  // nobody else spends
	Shared Mode = "shared" // others spend too
	Static Mode = "fixed"  // a fixed share, whatever others do
	Open   Mode = "open"   // the server reports no limit
)

// State is the public part of a machine's state.
type State struct {
	Mode      Mode
	InFlight  int           // attempts sent and not ended
	PausedFor time.Duration // how long nothing will be sent because of a response
}

// Machine decides when attempts may be sent. Calls must not overlap.
type Machine interface {
	// Ready returns 0 when the next attempt may be sent now, otherwise how long
	// to wait before the next call, at most Never. It must be called again after
	// every Done. An urgent attempt may be sent earlier, at the cost of the next.
	Ready(now time.Duration, urgent bool) time.Duration
	// Send records that an attempt is sent. Ready has just returned 0.
	Send(now time.Duration) Ticket
	// Cancel undoes a Send that led to no attempt.
	Cancel(now time.Duration, t Ticket)
	// Done records the end of an attempt.
	Done(now time.Duration, t Ticket, r Report)
	// Resume ends a pause that a response caused.
	Resume(now time.Duration)
	// Idle records that nobody waits any more.
	Idle(now time.Duration)
	// AtLeast returns a lower bound of the wait of an attempt that has ahead
	// others before it.
	AtLeast(now time.Duration, ahead int) time.Duration
	// State returns the public part of the state.
	State(now time.Duration) State
}
