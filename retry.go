package brellium

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/brellium/brellium-go/internal/wait"
	"github.com/brellium/brellium-go/internal/wire"
)

const (
	// maxRefusals is how often a refused call is sent again by default: all
	// of a client's refusals fall on the call at the head of its queue.
	maxRefusals = 9
	// retryJitter is added to every wait that the server asked for.
	retryJitter = 500 * time.Millisecond
)

// judge says what an attempt came to. It is the one place that decides:
// status first, body second, and for an attempt without an answer what was
// written to the wire.
func judge(o *outcome) (Verdict, string) {
	switch {
	case o.Status < 300 && (o.Err != nil || o.Status == 0):
		return judgeLost(o)
	case o.Status >= 200 && o.Status <= 299:
		return VerdictDone, "answered"
	case o.Status == http.StatusUnauthorized:
		return VerdictUnauthorized, "token refused"
	case o.Status == http.StatusTooManyRequests:
		return VerdictThrottled, "rate limited"
	case o.Status == http.StatusForbidden && !isObject(o.Body):
		return VerdictBlocked, "bare 403"
	case o.Status == http.StatusRequestTimeout || o.Status >= 500:
		return VerdictUnknown, "status " + strconv.Itoa(o.Status)
	}
	return VerdictRejected, "status " + strconv.Itoa(o.Status)
}

// judgeLost judges an attempt that got no answer.
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

// checkRetry decides what comes after an attempt: another one after
// c.retry.RetryWaitMin, or the end of the call, with its error. It is
// go-retryablehttp's hook; what it goes by is c.last and c.failure.
func (c *call) checkRetry(ctx context.Context, _ *http.Response, _ error) (repeat bool, err error) {
	if c.failure == nil {
		return false, nil
	}
	if c.last.verdict == VerdictUnauthorized && c.replay() {
		return c.repeatAfter(ctx, 0)
	}
	budget, used := c.budget()
	if budget == 0 {
		return false, c.failure
	}
	if err := callerEnded(ctx); err != nil {
		return false, c.interrupted(ctx, err)
	}
	now := time.Now()
	wait := c.nextWait()
	deadline, limited := ctx.Deadline()
	switch {
	case used >= budget:
		return false, c.exhausted(ExhaustedAttempts)
	case c.policy.totalTimeout > 0 && now.Sub(c.started)+wait >= c.policy.totalTimeout:
		return false, c.exhausted(ExhaustedTotalTime)
	case limited && !now.Add(wait).Before(deadline):
		return false, c.exhausted(ExhaustedDeadline)
	}
	if c.last.verdict == VerdictThrottled {
		c.refusals++
	} else {
		c.repeats++
	}
	return c.repeatAfter(ctx, wait)
}

// repeatAfter lets the next attempt go after wait, which minWait hands on.
func (c *call) repeatAfter(ctx context.Context, wait time.Duration) (repeat bool, err error) {
	c.retry.RetryWaitMin = wait
	c.reportWait(ctx, wait)
	return true, nil
}

// budget is how often the last failure may be repeated, and how often that has
// been used. A 401 is repeated once with a new token, outside any budget.
func (c *call) budget() (budget, used int) {
	switch c.last.verdict {
	case VerdictNeverSent:
		budget, used = c.policy.maxRetries, c.repeats
	case VerdictUnknown:
		if c.repeatable || c.policy.forced {
			budget, used = c.policy.maxRetries, c.repeats
		}
	case VerdictThrottled:
		budget, used = maxRefusals, c.refusals
	}
	if c.policy.explicit && budget > 0 {
		budget, used = c.policy.maxRetries, c.repeats+c.refusals
	}
	return budget, used
}

// replay reports whether the call goes again at once with a new token.
func (c *call) replay() bool {
	// The source is told of every 401, that to a replay too.
	again := c.auth && c.client.tokens.refused(c.last.token) && !c.replayed
	c.replayed = c.replayed || again
	return again
}

// nextWait is how long to wait before the attempt is repeated.
func (c *call) nextWait() time.Duration {
	jitter := time.Duration(rand.Float64() * float64(retryJitter))
	refused := c.last.Status == http.StatusTooManyRequests
	switch c.limiter.(type) {
	case *AdaptiveLimiter, *FixedLimiter:
		if refused {
			jitter = 0 // they hold the whole client for the wait and a jitter, and the call is to be there first
		}
	}
	switch {
	case c.last.retryAfter > 0:
		return c.last.retryAfter + jitter
	case refused:
		return time.Second + jitter
	}
	return wait.Backoff(c.repeats, rand.Float64())
}

// failureOf is the typed error of the last attempt, nil for success. It also
// notes what is known of a write by now.
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
		o.verdict, o.reason = VerdictDone, "gone after a repeat"
		return nil
	case o.verdict == VerdictCanceled:
		c.mayHaveRun = c.mayHaveRun || o.Sent && c.op.write
		return c.interrupted(caller, o.callerEnded)
	case o.verdict == VerdictBlocked:
		return &BlockedError{Operation: c.op.name, RetryAt: o.retryAt, mayHaveRun: c.mayHaveRun}
	case errors.Is(o.Err, wire.ErrTooLarge):
		return answer{op: c.op, status: o.Status, requestID: o.requestID}.decodeError(o.reason)
	case o.Status >= 300 || o.Status > 0 && o.Status < 200:
		e := &APIError{
			Operation: c.op.name, StatusCode: o.Status, RequestID: o.requestID,
			RetryAfter: o.retryAfter, RateLimit: o.rate, Header: o.Header, Body: o.Body, mayHaveRun: c.mayHaveRun,
		}
		readEnvelope(e)
		return e
	}
	cause := o.Err
	if o.TimedOut { // context.DeadlineExceeded would speak of the caller's own
		cause = os.ErrDeadlineExceeded
	}
	return &ConnectionError{
		Operation: c.op.name, Reason: o.reason, Sent: o.Sent, Err: hide(cause),
		mayHaveRun: c.mayHaveRun, final: o.verdict == VerdictNotSendable, timeout: o.TimedOut,
	}
}

// settledByCode reports whether a 5xx says itself what became of the write:
// these two keep the user as it was before the mail or the revocation.
func settledByCode(op *operation, o *outcome) bool {
	if o.Status != http.StatusBadGateway || (op != opUsersCreate && op != opUsersDelete) {
		return false
	}
	var e APIError
	e.Body = o.Body
	readEnvelope(&e)
	return op == opUsersCreate && e.Code == CodeInviteFailed || op == opUsersDelete && e.Code == CodeRevokeFailed
}

func (c *call) exhausted(reason ExhaustedReason) error {
	return &RetriesExhaustedError{
		Operation: c.op.name, Attempts: c.attempts, Elapsed: time.Since(c.started),
		Reason: reason, Err: c.failure, mayHaveRun: c.mayHaveRun,
	}
}

// withOutcome marks err, which comes from a token request or from the guard
// and may be shared with other calls, with what is known of this call.
func withOutcome(err error, mayHaveRun bool) error {
	if !mayHaveRun {
		return err
	}
	switch e := err.(type) {
	case *APIError:
		e2 := *e
		e2.mayHaveRun = true
		return &e2
	case *BlockedError:
		e2 := *e
		e2.mayHaveRun = true
		return &e2
	case *ConnectionError:
		e2 := *e
		e2.mayHaveRun = true
		return &e2
	case *RetriesExhaustedError:
		e2 := *e
		e2.mayHaveRun = true
		return &e2
	case *DecodeError:
		e2 := *e
		e2.mayHaveRun = true
		return &e2
	}
	return err
}

// interrupted builds the error of a call whose caller has gone, for the
// context error err.
func (c *call) interrupted(caller context.Context, err error) error {
	e := &InterruptedError{Operation: c.op.name, Attempts: c.attempts, Err: err, cause: causeOf(caller), mayHaveRun: c.mayHaveRun}
	if _, again := asType[*InterruptedError](c.failure); !again {
		e.Last = c.failure
	}
	return e
}

// callerEnded is the error of a context that is done, or whose deadline has
// come though its timer has not fired yet.
func callerEnded(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// limiterError makes the error of a limiter, which may be the caller's own,
// one that the call can tell from a token's.
func (c *call) limiterError(ctx context.Context, err error) error {
	if _, ok := err.(*InterruptedError); ok {
		return err
	}
	if _, ok := ctx.Deadline(); ok && errors.Is(err, context.DeadlineExceeded) {
		return &InterruptedError{Err: context.DeadlineExceeded}
	}
	return &ConnectionError{Operation: c.op.name, Reason: "the rate limiter failed", Err: hide(err)}
}

// admissionError turns the error of a wait on ctx into the call's.
func (c *call) admissionError(caller, ctx context.Context, err error) error {
	if ended := callerEnded(caller); ended != nil {
		return c.interrupted(caller, ended)
	}
	if e, ok := err.(*InterruptedError); ok { // the limiter's: the deadline is too near
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
	return withOutcome(err, c.mayHaveRun)
}

// pause waits for d between the calls that make up one operation. It ends at
// once where the deadline of ctx comes first, with last as the failure behind.
func pause(ctx context.Context, d time.Duration, operation string, attempts int, last error) error {
	err := wait.Sleep(ctx, d)
	if err == nil {
		return nil
	}
	return &InterruptedError{
		Operation: operation, Attempts: attempts, Err: err, Last: last,
		cause: causeOf(ctx), mayHaveRun: OutcomeUnknown(last),
	}
}
