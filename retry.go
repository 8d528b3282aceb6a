package brellium

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"reflect"
	"strconv"
	"time"

	"github.com/brellium/brellium-go/internal/block"
	"github.com/brellium/brellium-go/internal/redact"
	"github.com/brellium/brellium-go/internal/wait"
	"github.com/brellium/brellium-go/internal/wire"
)

const (
	// maxUnknownHost is how often a call is retried if the host does not exist,
	// as it may seem for a moment when DNS restarts.
	maxUnknownHost = 2
	// retryJitter is added to every wait that the server asked for.
	retryJitter = 500 * time.Millisecond
)

// retryPolicy limits how often and for how long a call may try.
type retryPolicy struct {
	maxRetries int
	// explicit is true where the caller set maxRetries, on the client or on the
	// call: it then counts retries after a 429 too.
	explicit       bool
	attemptTimeout time.Duration // 0: none
	totalTimeout   time.Duration // 0: none
	priority       Priority      // in the limiter's queue
	idleTimeout    time.Duration // ends an attempt whose body makes no progress; 0: none
}

// outcome is the result of one attempt.
type outcome struct {
	wire.Result
	callerEnded error // the error of the caller's context, where that ended the attempt
	requestID   string
	rate        RateLimit
	retryAfter  time.Duration
	retryAt     time.Time // when a stopped client sends again
	token       *Token

	verdict Verdict
	reason  string
}

// readHeader reads what the API says in the response header.
func (o *outcome) readHeader() {
	o.requestID = redact.Code(o.Header.Get("X-Request-Id"))
	o.rate = readRateLimit(o.Header, o.At)
	if o.Status >= 300 {
		o.retryAfter = wait.RetryAfter(o.Header.Values("Retry-After"), o.Header.Get("Date"), o.At)
	}
	if o.Status == http.StatusTooManyRequests && o.retryAfter == 0 && o.rate.Reset < 24*time.Hour {
		o.retryAfter = o.rate.Reset
	}
}

// limiterResult is what the attempt reports to the limiter. A wait longer than
// longest, unless that is 0, holds the limiter no longer than that.
func (o *outcome) limiterResult(longest time.Duration) LimiterResult {
	a := LimiterResult{RateLimit: o.rate}
	switch {
	case o.Status == http.StatusTooManyRequests:
		a.Spent, a.Refused, a.RetryAfter = SpentNo, true, o.retryAfter
		if longest > 0 {
			a.RetryAfter = min(a.RetryAfter, longest)
		}
	case o.Status == http.StatusUnauthorized, !o.Sent:
		a.Spent = SpentNo
	case o.verdict == VerdictBlocked:
		a.Blocked = true
	case o.rate.Known(), o.verdict == VerdictDone, o.verdict == VerdictRejected:
		a.Spent = SpentYes
	}
	return a
}

// readRateLimit reads the three headers. Without a readable RateLimit-Remaining
// the result is not known.
func readRateLimit(h http.Header, now time.Time) RateLimit {
	remaining, err := strconv.Atoi(h.Get("Ratelimit-Remaining"))
	if err != nil || remaining < 0 {
		return RateLimit{}
	}
	r := RateLimit{Remaining: remaining, ObservedAt: now}
	if limit, err := strconv.Atoi(h.Get("Ratelimit-Limit")); err == nil && limit > 0 {
		r.Limit = limit
	}
	r.Reset, _ = wait.Seconds(h.Get("Ratelimit-Reset"))
	return r
}

// judge returns the verdict on an attempt and a short reason. It is the one
// place that decides: by status first, by body second, and for an attempt
// without a response by what was sent. guarded is false for a storage host,
// whose 403 is an ordinary rejection.
func judge(o *outcome, guarded bool) (Verdict, string) {
	switch {
	case o.Status < 300 && (o.Err != nil || o.Status == 0):
		return judgeLost(o)
	case o.Status >= 200 && o.Status <= 299:
		return VerdictDone, "success"
	case o.Status == http.StatusUnauthorized:
		return VerdictUnauthorized, "token rejected"
	case o.Status == http.StatusTooManyRequests:
		return VerdictThrottled, "rate limited"
	case o.Status == http.StatusForbidden && guarded && !isObject(o.Body):
		return VerdictBlocked, "bare 403"
	case o.Status == http.StatusRequestTimeout || o.Status >= 500:
		return VerdictUnknown, "status " + strconv.Itoa(o.Status)
	}
	return VerdictRejected, "status " + strconv.Itoa(o.Status)
}

// judgeLost judges an attempt that got no response.
func judgeLost(o *outcome) (Verdict, string) {
	reason := o.Reason()
	switch {
	case o.callerEnded != nil:
		return VerdictCanceled, "the caller's context ended"
	case errors.Is(o.Err, wire.ErrTooLarge):
		return VerdictRejected, reason
	case o.Permanent():
		return VerdictNotSendable, reason
	case !o.Sent:
		return VerdictNeverSent, reason
	}
	return VerdictUnknown, reason
}

// waitForToken waits for an access token. The wait counts against the total time,
// also before the first attempt, when that has not begun.
func (c *call) waitForToken(ctx context.Context) (*Token, error) {
	begun := time.Now()
	defer func() { c.waited += time.Since(begun) }()
	if total := c.policy.totalTimeout; total > 0 && c.attempts == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, total-c.waited)
		defer cancel()
	}
	return c.route.tokens.get(ctx)
}

// retryBudget is how often the last failure may be retried, and how much of
// that is used. The replay after a 401 is outside any budget.
func (c *call) retryBudget() (budget, used int) {
	switch c.last.verdict {
	case VerdictNeverSent:
		budget, used = c.policy.maxRetries, c.retries
	case VerdictUnknown:
		if c.retryable {
			budget, used = c.policy.maxRetries, c.retries
		}
	case VerdictThrottled:
		budget, used = math.MaxInt, 0 // bounded by time: all 429s of a client reach the call at the head of its queue
	}
	if c.policy.explicit && budget > 0 {
		budget, used = c.policy.maxRetries, c.retries+c.throttled
	}
	if c.last.UnknownHost() != "" {
		budget = min(budget, maxUnknownHost)
	}
	return budget, used
}

// replay reports whether the call is retried at once with a new token: once, and
// once more if that token was the store's, which may have been revoked too.
func (c *call) replay() bool {
	// Every 401 is reported to the source, including that to a replay.
	tokens, t := c.route.tokens, c.last.token
	if tokens == nil || !tokens.refused(t) || c.replays > 1 || c.replays == 1 && tokens.isOwn(t) {
		return false
	}
	c.replays++
	return true
}

// nextWait is how long to wait before the next attempt.
func (c *call) nextWait() time.Duration {
	jitter := time.Duration(rand.Float64() * float64(retryJitter))
	throttled := c.last.verdict == VerdictThrottled
	switch c.route.limiter.(type) {
	case *AdaptiveLimiter, *FixedLimiter:
		if throttled {
			jitter = 0 // they hold the whole client for the wait and a jitter, and this call must be first in line
		}
	}
	switch {
	case c.last.retryAfter > 0:
		return c.last.retryAfter + jitter
	case throttled:
		return time.Second + jitter
	}
	return wait.Backoff(c.retries, rand.Float64())
}

// failureOf returns the typed error of the last attempt, nil for success. It
// also records what is known of a write by now.
func (c *call) failureOf(caller context.Context) error {
	o := &c.last
	if o.verdict == VerdictUnknown && c.op.write {
		c.sawUnknown = true
		c.mayHaveRun = c.mayHaveRun || !settledByCode(c.op, o)
	}
	switch {
	case o.verdict == VerdictDone:
		return nil
	case o.verdict == VerdictRejected && o.Status == http.StatusNotFound && c.op.goneIsDone && c.sawUnknown:
		o.verdict, o.reason = VerdictDone, "gone after a retry"
		o.Body = nil // of the 404
		return nil
	case o.verdict == VerdictCanceled:
		c.mayHaveRun = c.mayHaveRun || o.Sent && c.op.write
		return c.interrupted(caller, o.callerEnded)
	case o.verdict == VerdictBlocked:
		return &BlockedError{Operation: c.op.name, RetryAt: o.retryAt, uncertain: c.uncertain}
	case errors.Is(o.Err, wire.ErrTooLarge):
		return okResponse{request: c.request, status: o.Status, requestID: o.requestID, header: o.Header, body: o.Body}.decodeError(o.reason)
	case o.Status >= 300 || o.Status > 0 && o.Status < 200:
		e := &APIError{
			Operation: c.op.name, StatusCode: o.Status, RequestID: o.requestID,
			RetryAfter: o.retryAfter, RateLimit: o.rate, Header: o.Header, Body: o.Body, uncertain: c.uncertain,
			noMessage: c.client.noMessages,
		}
		readEnvelope(e)
		return e
	}
	cause := o.Err
	if o.TimedOut { // context.DeadlineExceeded always means the caller's deadline
		cause = os.ErrDeadlineExceeded
	}
	reason := o.reason
	if host := o.UnknownHost(); host != "" && host == c.client.baseURL.Hostname() && !c.route.signed {
		reason += ": " + host // a setting, and not that of a proxy or of storage
	}
	return &ConnectionError{
		Operation: c.op.name, Reason: reason, Sent: o.Sent, Err: redact.Hide(cause),
		uncertain: c.uncertain, final: o.verdict == VerdictNotSendable, timeout: o.TimedOut,
	}
}

// settledByCode reports whether the code of a 5xx says what became of the
// write: after these two the user is as before the email or the revocation.
func settledByCode(op *operation, o *outcome) bool {
	if o.Status != http.StatusBadGateway || (op != opUsersCreate && op != opUsersDelete) {
		return false
	}
	e := APIError{Body: o.Body}
	readEnvelope(&e)
	return op == opUsersCreate && e.Code == CodeInviteFailed || op == opUsersDelete && e.Code == CodeRevokeFailed
}

func (c *call) exhausted(reason ExhaustedReason) error {
	return &RetriesExhaustedError{
		Operation: c.op.name, Attempts: c.attempts, Elapsed: time.Since(c.started),
		Reason: reason, Err: c.failure, uncertain: c.uncertain,
	}
}

// interrupted builds the error of a call whose caller's context ended with err.
func (c *call) interrupted(caller context.Context, err error) error {
	e := &InterruptedError{Operation: c.op.name, Attempts: c.attempts, Err: err, cause: redact.Cause(withoutValues(caller)), uncertain: c.uncertain}
	if _, again := asType[*InterruptedError](c.failure); !again {
		e.Last = c.failure
	}
	return e
}

// callerEnded returns the error of a context that is done, or whose deadline
// has passed although its timer has not fired yet.
func callerEnded(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// limiterError returns the error of a limiter, which may be the caller's own,
// as one that cannot be mistaken for a token's.
func (c *call) limiterError(ctx context.Context, err error) error {
	if e, ok := asType[*InterruptedError](err); ok {
		limited := *e
		limited.rateLimited = true
		return &limited
	}
	if _, ok := ctx.Deadline(); ok && errors.Is(err, context.DeadlineExceeded) {
		return &InterruptedError{Err: context.DeadlineExceeded, rateLimited: true}
	}
	return &ConnectionError{Operation: c.op.name, Reason: "the rate limiter failed", Err: redact.Hide(err)}
}

// admissionError turns the error of a wait on ctx into the call's.
func (c *call) admissionError(caller, ctx context.Context, err error) error {
	if ended := callerEnded(caller); ended != nil {
		return c.interrupted(caller, ended)
	}
	switch e := err.(type) {
	case *block.Stopped:
		return &BlockedError{Operation: c.op.name, RetryAt: e.RetryAt, uncertain: c.uncertain}
	case *InterruptedError: // the limiter's: the deadline is too near
		if c.attempts == 0 {
			e := *e
			e.Operation = c.op.name
			return &e
		}
		limit, _ := ctx.Deadline()
		if own, ok := caller.Deadline(); ok && !limit.Before(own) {
			return c.exhausted(ExhaustedDeadline)
		}
		return c.exhausted(ExhaustedTotalTime)
	}
	if c.attempts > 0 && callerEnded(ctx) != nil {
		return c.exhausted(ExhaustedTotalTime)
	}
	if c.attempts == 0 && err == context.DeadlineExceeded { // of the wait for a token
		c.started = time.Now().Add(-c.waited)
		c.failure = &ConnectionError{Operation: c.op.name, Reason: "no access token within the total time", Err: os.ErrDeadlineExceeded, timeout: true}
		return c.exhausted(ExhaustedTotalTime)
	}
	return c.ownTokenError(err)
}

// ownTokenError returns err, the error of a token request that other calls may
// share, as this call's: a copy for which OutcomeUnknown reports true if this
// call may have run, and without the server's message if the client hides it.
func (c *call) ownTokenError(err error) error {
	if _, ok := err.(interface{ setUncertain() }); !ok || !c.mayHaveRun && !c.client.noMessages {
		return err
	}
	own := reflect.New(reflect.TypeOf(err).Elem())
	own.Elem().Set(reflect.ValueOf(err).Elem())
	if c.mayHaveRun {
		own.Interface().(interface{ setUncertain() }).setUncertain()
	}
	switch e := own.Interface().(type) {
	case *APIError:
		e.noMessage = e.noMessage || c.client.noMessages
	case *RetriesExhaustedError:
		e.Err = c.ownTokenError(e.Err)
	}
	return own.Interface().(error)
}

// pause waits for d between the calls that make up one operation. It ends at
// once where the deadline of ctx comes first, with last as the failure behind.
func pause(ctx context.Context, d time.Duration, operation string, attempts int, last error) error {
	err := wait.Sleep(ctx, d)
	if err == nil {
		return nil
	}
	e := &InterruptedError{
		Operation: operation, Attempts: attempts, Err: err, Last: last,
		cause: redact.Cause(ctx), uncertain: uncertain{OutcomeUnknown(last)},
	}
	if ctx.Err() == nil {
		e.Wait = d
	}
	return e
}

// errAlreadyDone is returned by beforeRetry where the call has succeeded
// already.
var errAlreadyDone = errors.New("nothing is left to send")
