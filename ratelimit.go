package brellium

import (
	"context"
	"time"
)

// RateLimit is the state of the organization's token bucket as one answer
// reported it in its RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset
// headers.
type RateLimit struct {
	// Limit is the bucket's capacity in requests.
	Limit int
	// Remaining is how many requests could be sent at the moment of the answer.
	Remaining int
	// Reset is the time until one token refills; it is 0 on every allowed
	// answer, so it says nothing about a full bucket.
	Reset time.Duration
	// ObservedAt is when the answer was read. It is zero before any answer.
	ObservedAt time.Time
}

// Known reports whether an answer with rate-limit headers has been seen.
func (r RateLimit) Known() bool { return !r.ObservedAt.IsZero() }

// Limiter paces attempts. One Limiter may serve several clients of one
// organization. An implementation must be safe for concurrent use.
type Limiter interface {
	// Acquire waits for its turn and for one token. It returns at once,
	// taking nothing, when ctx is done or could not live long enough; the
	// error then matches context.Canceled or context.DeadlineExceeded.
	Acquire(ctx context.Context) (Permit, error)
}

// Permit is the right to send one attempt. Done is called exactly once, when
// the attempt has ended, with what its answer said: the headers, a refusal,
// or nothing known.
type Permit interface{ Done(LimiterAnswer) }

// Spent says whether an attempt cost a token of the organization's bucket.
type Spent int

const (
	// SpentUnknown: the answer does not tell (a 5xx from a proxy, a dropped
	// connection).
	SpentUnknown Spent = iota
	// SpentYes: the answer carried the rate-limit headers of an allowed request.
	SpentYes
	// SpentNo: the attempt cost nothing (a 429, a 401, or it was never sent).
	SpentNo
)

// LimiterAnswer is what one attempt taught about the bucket.
type LimiterAnswer struct {
	// RateLimit is what the headers said; RateLimit.Known is false when they
	// were absent or unreadable.
	RateLimit RateLimit
	// Spent says whether the attempt cost a token.
	Spent Spent
	// Refused is true for a 429 of the API.
	Refused bool
	// RetryAfter is the wait that a refusal asked for; 0 when it named none.
	RetryAfter time.Duration
	// Blocked is true for a bare 403: the bucket is to be taken as empty.
	Blocked bool
}
