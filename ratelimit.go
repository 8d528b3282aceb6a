package brellium

import (
	"context"
	"math"
	"time"

	"github.com/brellium/brellium-go/internal/pace"
)

// RateLimit is the state of the organization's token bucket as one response
// reported it in its RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset
// headers.
type RateLimit struct {
	// Limit is the bucket's capacity in requests.
	Limit int
	// Remaining is how many requests could be sent at the time of the response.
	Remaining int
	// Reset is the time until one token refills. It is 0 on every allowed
	// response, so it says nothing about a full bucket.
	Reset time.Duration
	// ObservedAt is when the response was read. It is zero before any response.
	ObservedAt time.Time
}

// Known reports whether a response with rate-limit headers has been seen.
func (r RateLimit) Known() bool { return !r.ObservedAt.IsZero() }

// Limiter paces attempts. Several clients of one organization may share one
// Limiter. An implementation must be safe for concurrent use.
type Limiter interface {
	// Acquire waits for its turn and for one token. It returns at once and
	// takes nothing if ctx is done or its deadline would be exceeded. The error
	// then matches [context.Canceled] or [context.DeadlineExceeded].
	Acquire(ctx context.Context) (Permit, error)
}

// Permit allows one attempt.
type Permit interface {
	// Done ends the permit. It is called exactly once, when the attempt has
	// ended, with what the attempt showed about the bucket.
	Done(LimiterResult)
}

// Spent says whether an attempt spent a token of the organization's bucket.
type Spent int

const (
	// SpentUnknown: the response does not say (a 5xx from a proxy, a dropped
	// connection).
	SpentUnknown Spent = iota
	// SpentYes: the request was allowed, according to the rate-limit headers or,
	// if [RateLimit.Known] is false, the rest of the response.
	SpentYes
	// SpentNo: the attempt spent nothing (a 429, a 401, or it was never sent).
	SpentNo
)

// LimiterResult is what one attempt showed about the bucket.
type LimiterResult struct {
	// RateLimit is from the headers. [RateLimit.Known] is false if they were
	// absent or unreadable.
	RateLimit RateLimit
	// Spent says whether the attempt spent a token.
	Spent Spent
	// Refused is true for a 429 of the API.
	Refused bool
	// RetryAfter is the wait that a 429 asked for, or 0.
	RetryAfter time.Duration
	// Blocked is true for a bare 403: treat the bucket as empty.
	Blocked bool
}

// AdaptiveLimiter is the default [Limiter] of a client. It tracks the
// organization's bucket from RateLimit-Remaining. Alone, it spends the bucket
// down to a small reserve and is never rate limited after its first response.
// With other processes that use it too, it finds a fair share without any
// configuration.
//
// One AdaptiveLimiter serves any number of goroutines, and clients that share it
// ([WithRateLimiter]) count as one. Waiting calls are served by their [Priority],
// within it those that were rate limited before first, and otherwise first in,
// first out. The wait that a 429 asks for applies to all calls, for 5 minutes at
// most; [Client.Resume] ends it. The limiter runs no goroutine and needs no closing.
//
// Limitations:
//   - It backs off for other clients. Some clients do not back off, such as a
//     wrapper that retries on 429 or a fixed token bucket. Next to them it is
//     left with about 1 % of the tokens if together they want more than 5
//     requests a second. Use fixed shares on both sides then ([WithRateLimit],
//     [SplitRateLimit]), or [AdaptiveLimiterOptions].Floor.
//   - It starts slowly: one request, then two concurrently, then more with each
//     response. A short job on a full bucket therefore takes a few round trips
//     longer. See [AdaptiveLimiterOptions].Exclusive.
//   - Many processes that start at the same time get some 429s until they have
//     detected each other: about one per process for 20, three for 50.
//     The calls are retried.
//   - It was measured with up to 80 processes, which get 429s for about 8 % of
//     their calls. That is the ceiling: use fewer processes, or a limiter that
//     they share.
//   - While other clients send requests, about 11 tokens stay in the bucket for
//     them, which costs about 2 s at the end of a job. A larger burst of another
//     client can still cause 429s.
//   - It assumes that a bucket fills in 20 s, as 5 tokens a second fill 100, since
//     no header reports the refill. If the real rate differs, the limiter behaves
//     as if others were active: jobs take 1–2 % longer if it is lower, and a part
//     of it is left unused if it is higher.
//   - A call that is rate limited for its whole total time fails: about one call
//     a minute in each client, while another client keeps the bucket empty.
//   - It is fair among processes, not among the goroutines or jobs of one.
//
// The zero AdaptiveLimiter is ready to use and equals one from
// [NewAdaptiveLimiter] with zero options. It must not be copied after first use.
type AdaptiveLimiter struct{ paced }

// AdaptiveLimiterOptions configures an [AdaptiveLimiter].
type AdaptiveLimiterOptions struct {
	// Exclusive says that nothing else uses the organization's limit: no other
	// process, no other limiter. The limiter then needs one response, and sends
	// as much as the bucket contains at once. If that is wrong, many requests are
	// rate limited at the start, and with 20 processes some calls fail. The
	// default is false.
	Exclusive bool

	// MaxBurst and MaxPerSecond limit what the limiter sends, whatever the
	// bucket contains: at most MaxBurst at once, then MaxPerSecond a second. Set
	// both or neither. MaxBurst must be at least 1, MaxPerSecond finite and above
	// 0. By default only the bucket is the limit.
	MaxBurst     int
	MaxPerSecond float64

	// Floor is how many requests a second the limiter tries at least while other
	// clients send requests, apart from the waits that 429s ask for. It is for a
	// process next to a client that does not back off. Many of these requests are
	// rate limited. The floors of all processes should not add up to more than 5.
	// It must be finite and not negative. The default is 0, no floor.
	Floor float64
}

// NewAdaptiveLimiter returns an [AdaptiveLimiter]. It sends and starts nothing.
// Options out of range return a [*ValidationError].
func NewAdaptiveLimiter(options AdaptiveLimiterOptions) (*AdaptiveLimiter, error) {
	if !(options.Floor >= 0) || math.IsInf(options.Floor, 1) {
		return nil, &ValidationError{Field: "Floor", Reason: "must be finite and not negative"}
	}
	config := pace.AdaptiveConfig{Trusted: options.Exclusive, Floor: options.Floor}
	if options.MaxBurst != 0 || options.MaxPerSecond != 0 {
		if err := checkBucket("MaxBurst", options.MaxBurst, "MaxPerSecond", options.MaxPerSecond); err != nil {
			return nil, err
		}
		config.Share = pace.NewFixed(options.MaxBurst, options.MaxPerSecond)
	}
	return &AdaptiveLimiter{paced{pace.NewQueue(pace.NewAdaptive(config))}}, nil
}

// FixedLimiter is a token bucket of a given size, for an organization with other
// clients that do not back off. It does not adapt to what remains in the
// organization's bucket: it neither uses what others leave nor backs off for them.
// A 429 pauses all its calls for as long as the response asks. After that they are
// sent one by one. A response that reports that nothing remains pauses them for
// 200 ms.
//
// Waiting calls are served by their [Priority], within it those that were rate
// limited before first, and otherwise first in, first out.
type FixedLimiter struct{ paced }

// NewFixedLimiter returns a [FixedLimiter] that allows burst requests at once,
// then perSecond a second. A burst below 1 and a rate that is not finite and
// above 0 return a [*ValidationError]. [SplitRateLimit] computes the share of one
// of several processes.
func NewFixedLimiter(burst int, perSecond float64) (*FixedLimiter, error) {
	if err := checkBucket("burst", burst, "perSecond", perSecond); err != nil {
		return nil, err
	}
	return &FixedLimiter{paced{pace.NewQueue(pace.NewFixed(burst, perSecond))}}, nil
}

// checkBucket validates the two numbers of a token bucket, named for the error.
func checkBucket(burstName string, burst int, rateName string, perSecond float64) error {
	switch {
	case burst < 1:
		return &ValidationError{Field: burstName, Reason: "must be at least 1"}
	case !(perSecond > 0) || math.IsInf(perSecond, 1):
		return &ValidationError{Field: rateName, Reason: "must be a finite number above 0"}
	}
	return nil
}

// SplitRateLimit returns the share of one of several workers in the
// organization's limit of 100 requests at once and 5 a second, for
// [WithRateLimit] or [NewFixedLimiter]. The shares never add up to more than the
// limit; a remainder is left unused. Each worker needs a burst of at least 1, so
// fewer than 1 or more than 100 workers return a [*ValidationError].
func SplitRateLimit(workers int) (burst int, perSecond float64, err error) {
	if workers < 1 || workers > pace.DocumentedLimit {
		return 0, 0, &ValidationError{Field: "workers", Reason: "must be between 1 and 100"}
	}
	return pace.DocumentedLimit / workers, pace.DocumentedRate / float64(workers), nil
}

// LimiterMode is what a limiter assumes about other users of the organization's
// bucket.
type LimiterMode string

const (
	// LimiterProbing: there was no response yet, or none for a while. Requests
	// are sent one by one.
	LimiterProbing LimiterMode = "probe"
	// LimiterAlone: no other client sends requests. The whole bucket is used.
	LimiterAlone LimiterMode = "alone"
	// LimiterShared: other clients send requests too. Requests are spaced.
	LimiterShared LimiterMode = "shared"
	// LimiterOpen: the server allows requests and has never reported a limit,
	// like a fake server in a test. Up to 1,000 requests a second are sent until it
	// does, or sends a 429.
	LimiterOpen LimiterMode = "open"
	// LimiterFixed: a fixed share, whatever others do.
	LimiterFixed LimiterMode = "fixed"
)

// LimiterState is the state of a limiter at one moment.
type LimiterState struct {
	// Mode is what the limiter assumes about other users of the bucket.
	Mode LimiterMode
	// InFlight is the number of permits that have not been ended.
	InFlight int
	// Waiting is the number of calls that wait for a permit.
	Waiting int
	// PausedFor is how long no call will be sent because of a 429 or an empty
	// bucket, or 0.
	PausedFor time.Duration
}

// rateLimitRetryKey is the context key of a bool: the last attempt was rate
// limited.
type rateLimitRetryKey struct{}

// IsRateLimitRetry reports whether the attempt about to be paced retries one that
// was rate limited (429). A [Limiter] may call it with the context given to
// Acquire and serve such an attempt first, since it has waited its turn already.
func IsRateLimitRetry(ctx context.Context) bool {
	retry, _ := ctx.Value(rateLimitRetryKey{}).(bool)
	return retry
}

// Priority is the place of a call in the queue of its client. An interactive call
// goes before waiting normal and background ones, a background one after them.
// Each priority that waits gets at least one request in eight, so that none
// starves. An interactive call also uses what is kept in reserve.
type Priority int

const (
	// Background is for a job that nobody waits for.
	Background Priority = iota - 1
	// Normal is the default.
	Normal
	// Interactive is for a call that a person waits for.
	Interactive
)

// priorityKey is the context key of a Priority other than Normal.
type priorityKey struct{}

// PriorityFromContext returns the priority of the attempt about to be paced. A
// [Limiter] may call it with the context given to Acquire.
func PriorityFromContext(ctx context.Context) Priority {
	p, _ := ctx.Value(priorityKey{}).(Priority)
	return p
}

// permit is a pace.Permit as a Permit.
type permit pace.Permit

// paced is what the limiters of this package have in common.
type paced struct{ queue pace.Queue }

// Acquire implements [Limiter]. A wait that would exceed the deadline of ctx
// returns an [*InterruptedError] at once, with the least possible wait in Wait.
// So does a wait that becomes too long later, because of a 429. If ctx ends, its
// error is returned.
//
// Every [Permit] must be ended with Done. Until then it counts as in flight and
// holds back other calls.
func (l *paced) Acquire(ctx context.Context) (Permit, error) {
	p, err := l.queue.Acquire(ctx, pace.Lane(Interactive-PriorityFromContext(ctx)), IsRateLimitRetry(ctx))
	if e, ok := err.(*pace.TooLong); ok {
		return nil, &InterruptedError{Wait: e.Wait, Err: context.DeadlineExceeded, rateLimited: true}
	}
	if err != nil {
		return nil, err
	}
	return (*permit)(p), nil
}

// Done implements Permit.
func (p *permit) Done(a LimiterResult) {
	(*pace.Permit)(p).Done(pace.Report{
		Known: a.RateLimit.Known(), Limit: a.RateLimit.Limit, Remaining: a.RateLimit.Remaining,
		Spent: pace.Spent(a.Spent), RateLimited: a.Refused, RetryAfter: a.RetryAfter, Blocked: a.Blocked,
	})
}

// Resume ends a pause after a 429, as [Client.Resume] does.
func (l *paced) Resume() { l.queue.Resume() }

// State returns the current state, for monitoring.
func (l *paced) State() LimiterState {
	s, waiting := l.queue.State()
	return LimiterState{Mode: LimiterMode(s.Mode), InFlight: s.InFlight, Waiting: waiting, PausedFor: s.PausedFor}
}
