package brellium

import (
	"context"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/brellium/brellium-go/internal/pace"
	"github.com/brellium/brellium-go/internal/wait"
	"github.com/brellium/brellium-go/internal/wire"
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
type Permit interface{ Done(LimiterResult) }

// Spent says whether an attempt cost a token of the organization's bucket.
type Spent int

const (
	// SpentUnknown: the answer does not tell (a 5xx from a proxy, a dropped
	// connection).
	SpentUnknown Spent = iota
	// SpentYes: the request was allowed, as the rate-limit headers say or, where
	// RateLimit is not known, as the rest of the answer says.
	SpentYes
	// SpentNo: the attempt cost nothing (a 429, a 401, or it was never sent).
	SpentNo
)

// LimiterResult is what one attempt taught about the bucket.
type LimiterResult struct {
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

// The organization's limit as the API documents it, shared by every key and
// every worker. The sandbox has its own of the same size.
const (
	organizationBurst     = 100
	organizationPerSecond = 5.0
)

// AdaptiveLimiter is the limiter that every client has unless told otherwise.
// It keeps in step with the organization's bucket by what the answers say
// remains in it. Alone, it spends the bucket down to a small reserve and is
// never refused after its first answer. Beside others of its kind, in other
// processes, it finds a fair share without being told how many they are.
//
// One AdaptiveLimiter serves any number of goroutines, and clients of one
// organization that share it (WithRateLimiter) count as one. Waiting calls are
// served in the order in which they came, but a call that was refused goes to
// the front, and the wait that a refusal asks for holds back all of them. The
// limiter runs no goroutine and needs no closing.
//
// What it cannot do:
//   - It yields. Beside clients that do not, such as a wrapper that retries on
//     429 or a fixed token bucket, all wanting more than 5 requests a second
//     together, it is left with 1 or 2 % of the tokens. Give each side a fixed
//     share then (WithRateLimit, SplitRateLimit), the other side too.
//   - It begins slowly: one request, then two side by side, then more with
//     each answer. A short job on a full bucket therefore takes a few round
//     trips longer; see AdaptiveLimiterOptions.Exclusive.
//   - Many processes that start at the same moment cause some refusals until
//     they know of each other: a few among 20, some two for each of 50. They are
//     repeated, but they are refusals. Later than 30 s after the last start there
//     are none among up to 30 processes.
//   - With some 50 processes each learns something every 10 s only. Shares
//     then differ by some 10 %, and a few percent of the tokens stay unused.
//   - While others spend, some 11 tokens stay in the bucket for them, which
//     costs about 2 s at the end of a job. A burst of more than that by
//     somebody else can still cause refusals.
//   - It believes in a refill of 5 tokens a second, since no header tells. A
//     higher one is followed as answers show it. A lower one looks as if others
//     were spending, and costs 1 or 2 % of the time.
//   - It is fair among processes, not among the goroutines or jobs of one.
//
// The zero AdaptiveLimiter is ready to use and is what NewAdaptiveLimiter
// returns for the zero options. It must not be copied after first use.
type AdaptiveLimiter struct {
	queue pace.Queue
}

// AdaptiveLimiterOptions change how an AdaptiveLimiter behaves.
type AdaptiveLimiterOptions struct {
	// Exclusive says that nothing else uses the organization's limit: no
	// other process, no other limiter. The limiter then needs one answer, and
	// sends as much as the bucket holds at once. Where it is not true, many
	// requests are refused at the start, and with some 20 processes calls are
	// lost for it. The default is false.
	Exclusive bool

	// MaxBurst and MaxPerSecond bound what the limiter sends, whatever the
	// bucket holds: at most MaxBurst at once, then MaxPerSecond a second. Both
	// are set or neither; MaxBurst is at least 1, MaxPerSecond finite and above
	// 0. The default is no bound beside the bucket's own.
	MaxBurst     int
	MaxPerSecond float64
}

// NewAdaptiveLimiter returns an adaptive limiter. It sends nothing and starts
// nothing. Options out of range are a *ValidationError.
func NewAdaptiveLimiter(options AdaptiveLimiterOptions) (*AdaptiveLimiter, error) {
	config := pace.AdaptiveConfig{Trusted: options.Exclusive}
	if options.MaxBurst != 0 || options.MaxPerSecond != 0 {
		err := checkBucket("MaxBurst", options.MaxBurst, "MaxPerSecond", options.MaxPerSecond)
		if err != nil {
			return nil, err
		}
		config.Share = pace.NewFixed(options.MaxBurst, options.MaxPerSecond)
	}
	return &AdaptiveLimiter{pace.NewQueue(pace.NewAdaptive(config))}, nil
}

// Acquire implements Limiter. A wait that the deadline of ctx cannot cover
// fails at once with an *InterruptedError that says in Wait how long it would
// have been at least; one that becomes too long later, because of a refusal,
// fails then.
//
// A Permit that is never ended holds back others at most for the 10 minutes
// after which its attempt counts as lost.
func (l *AdaptiveLimiter) Acquire(ctx context.Context) (Permit, error) {
	return acquireFrom(ctx, &l.queue)
}

// State returns what the limiter believes at the moment, for debugging.
func (l *AdaptiveLimiter) State() LimiterState { return limiterState(&l.queue) }

// Mode is State().Mode, for a small part of the cost.
func (l *AdaptiveLimiter) Mode() LimiterMode { return limiterModes[l.queue.Mode()] }

// FixedLimiter is a token bucket of a given size, for an organization that also
// runs clients which do not yield. It does not adapt to what remains in the
// organization's bucket, so it neither uses what others leave nor gives way to
// them; but a refusal holds back all its calls as long as the answer asks, and
// they come back one by one, and an answer that says that nothing remains holds
// them back for 200 ms.
//
// Waiting calls are served in the order in which they came, but a call that was
// refused goes to the front.
type FixedLimiter struct {
	queue pace.Queue
}

// NewFixedLimiter returns a limiter that allows burst requests at once, then
// perSecond a second. A burst below 1 and a rate that is not finite and above 0
// are a *ValidationError. SplitRateLimit computes the share of one of several
// workers.
func NewFixedLimiter(burst int, perSecond float64) (*FixedLimiter, error) {
	if err := checkBucket("burst", burst, "perSecond", perSecond); err != nil {
		return nil, err
	}
	return &FixedLimiter{pace.NewQueue(pace.NewFixed(burst, perSecond))}, nil
}

// Acquire implements Limiter. A wait that the deadline of ctx cannot cover
// fails at once with an *InterruptedError that says in Wait how long it would
// have been; one that becomes too long later, because of a refusal, fails then.
func (l *FixedLimiter) Acquire(ctx context.Context) (Permit, error) {
	return acquireFrom(ctx, &l.queue)
}

// State returns the state of the bucket at the moment, for debugging.
func (l *FixedLimiter) State() LimiterState { return limiterState(&l.queue) }

// checkBucket checks the two numbers of a token bucket, given with their names.
func checkBucket(burstName string, burst int, rateName string, perSecond float64) error {
	if burst < 1 {
		return &ValidationError{Field: burstName, Reason: "must be at least 1"}
	}
	if !(perSecond > 0) || math.IsInf(perSecond, 1) {
		return &ValidationError{Field: rateName, Reason: "must be a finite number above 0"}
	}
	return nil
}

// SplitRateLimit returns the share of each of so many workers in the
// organization's limit of 100 requests at once and 5 a second, for
// WithRateLimit or NewFixedLimiter. The shares never add up to more than the
// whole; what does not divide is left unused. There is no share for fewer than
// 1 or more than 100 workers, since each needs a burst of at least 1: that is a
// *ValidationError.
func SplitRateLimit(workers int) (burst int, perSecond float64, err error) {
	if workers < 1 || workers > organizationBurst {
		return 0, 0, &ValidationError{Field: "workers", Reason: "must be between 1 and 100"}
	}
	return organizationBurst / workers, organizationPerSecond / float64(workers), nil
}

// LimiterMode is what a limiter believes about others that use the
// organization's bucket.
type LimiterMode string

const (
	// LimiterProbing: no answer has come yet, or none for a while. Requests go
	// one by one.
	LimiterProbing LimiterMode = "probe"
	// LimiterAlone: nobody else spends. The bucket is used to the full.
	LimiterAlone LimiterMode = "alone"
	// LimiterShared: others spend too. Requests are spaced.
	LimiterShared LimiterMode = "shared"
	// LimiterOpen: the server allows requests and has never told of a limit,
	// as a double in tests may do. Nothing is paced until it does, or refuses.
	LimiterOpen LimiterMode = "open"
	// LimiterFixed: a share was given, and nothing is believed.
	LimiterFixed LimiterMode = "fixed"
)

// LimiterState is what a limiter believes at one moment. It is for people who
// debug: the meaning of the numbers may change with the algorithm.
type LimiterState struct {
	// Mode is what is believed about others.
	Mode LimiterMode
	// Low and High bound the number of requests that could be sent at once
	// without a refusal.
	Low, High float64
	// InFlight is how many permits have not been ended.
	InFlight int
	// Waiting is how many calls wait for a permit.
	Waiting int
	// PausedFor is how long nothing will be sent because of a refusal; else 0.
	PausedFor time.Duration
	// Interval is the average time between requests in the shared mode.
	Interval time.Duration
}

// rateLimitRetryKey is the context key whose value, a bool, says that the attempt
// about to be paced was refused before.
type rateLimitRetryKey struct{}

// IsRateLimitRetry reports whether the attempt about to be paced was refused (429)
// before. A Limiter may ask it about the context given to Acquire and serve
// such an attempt first, since it has waited its turn already.
func IsRateLimitRetry(ctx context.Context) bool {
	refused, _ := ctx.Value(rateLimitRetryKey{}).(bool)
	return refused
}

// limiterResult is what the attempt tells the limiter.
func (o *outcome) limiterResult() LimiterResult {
	a := LimiterResult{RateLimit: o.rate}
	switch {
	case o.Status == http.StatusTooManyRequests:
		a.Spent, a.Refused, a.RetryAfter = SpentNo, true, o.retryAfter
	case o.Status == http.StatusUnauthorized, !o.Sent:
		a.Spent = SpentNo
	case o.verdict == VerdictBlocked:
		a.Blocked = true
	case o.rate.Known(), o.verdict == VerdictDone, o.verdict == VerdictRejected:
		a.Spent = SpentYes
	}
	return a
}

// readRateLimit reads the three headers. Absent or unreadable ones leave it
// unknown.
func readRateLimit(h http.Header, now time.Time) RateLimit {
	remaining, err := strconv.Atoi(wire.HeaderValue(h, "Ratelimit-Remaining"))
	if err != nil || remaining < 0 {
		return RateLimit{}
	}
	r := RateLimit{Remaining: remaining, ObservedAt: now}
	if limit, err := strconv.Atoi(wire.HeaderValue(h, "Ratelimit-Limit")); err == nil && limit > 0 {
		r.Limit = limit
	}
	r.Reset, _ = wait.Seconds(wire.HeaderValue(h, "Ratelimit-Reset"))
	return r
}

// permit is a pace.Permit as a Permit.
type permit pace.Permit

func acquireFrom(ctx context.Context, q *pace.Queue) (Permit, error) {
	p, err := q.Acquire(ctx, IsRateLimitRetry(ctx))
	if e, ok := err.(*pace.TooLong); ok {
		return nil, &InterruptedError{Wait: e.Wait, Err: context.DeadlineExceeded}
	}
	if err != nil {
		return nil, err
	}
	return (*permit)(p), nil
}

// Done implements Permit.
func (p *permit) Done(a LimiterResult) {
	report := pace.Report{
		Known: a.RateLimit.Known(), Limit: a.RateLimit.Limit, Remaining: a.RateLimit.Remaining,
		Refused: a.Refused, RetryAfter: a.RetryAfter, Blocked: a.Blocked,
	}
	switch a.Spent {
	case SpentYes:
		report.Spent = pace.SpentYes
	case SpentNo:
		report.Spent = pace.SpentNo
	}
	(*pace.Permit)(p).Done(report)
}

var limiterModes = [...]LimiterMode{
	pace.Probe:  LimiterProbing,
	pace.Alone:  LimiterAlone,
	pace.Shared: LimiterShared,
	pace.Static: LimiterFixed,
	pace.Open:   LimiterOpen,
}

func limiterState(q *pace.Queue) LimiterState {
	s, waiting := q.State()
	return LimiterState{Mode: limiterModes[s.Mode], Low: s.Low, High: s.High, InFlight: s.InFlight,
		Waiting: waiting, PausedFor: s.Held, Interval: s.Interval}
}
