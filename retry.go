package brellium

import (
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/brellium/brellium-go/internal/wait"
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
	case o.status < 300 && (o.err != nil || o.status == 0):
		return judgeLost(o)
	case o.status >= 200 && o.status <= 299:
		return VerdictDone, "answered"
	case o.status == http.StatusUnauthorized:
		return VerdictRefused, "token refused"
	case o.status == http.StatusTooManyRequests:
		return VerdictRefused, "rate limited"
	case o.status == http.StatusForbidden && !isObject(o.body):
		return VerdictBlocked, "bare 403"
	case o.status == http.StatusRequestTimeout || o.status >= 500:
		return VerdictUnknown, "status " + strconv.Itoa(o.status)
	}
	return VerdictRejected, "status " + strconv.Itoa(o.status)
}

// judgeLost judges an attempt that got no answer.
func judgeLost(o *outcome) (Verdict, string) {
	reason := describe(o)
	switch {
	case o.callerEnded != nil:
		return VerdictGivenUp, "the caller's context ended"
	case errors.Is(o.err, errDone):
		return VerdictDone, reason
	case errors.Is(o.err, errTooLarge):
		return VerdictRejected, reason
	case errors.Is(o.err, ErrNotSendable), !o.maySent() && notSendable(o.err):
		return VerdictNotSendable, reason
	case !o.maySent():
		return VerdictNeverSent, reason
	}
	return VerdictUnknown, reason
}

// notSendable reports whether err would be the same the next time.
func notSendable(err error) bool {
	if e, ok := asType[*net.DNSError](err); ok {
		return e.IsNotFound
	}
	return certificate(err) || strings.Contains(err.Error(), "unsupported protocol scheme") ||
		strings.Contains(err.Error(), "net/http: invalid header")
}

func certificate(err error) bool {
	if _, ok := asType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if _, ok := asType[x509.UnknownAuthorityError](err); ok {
		return true
	}
	if _, ok := asType[x509.HostnameError](err); ok {
		return true
	}
	_, ok := asType[x509.CertificateInvalidError](err)
	return ok
}

// provesNotSent reports whether err alone shows that nothing was sent. It
// serves transports that make no use of httptrace.
func provesNotSent(err error) bool {
	if e, ok := asType[*net.OpError](err); ok && e.Op == "dial" {
		return true
	}
	if _, ok := asType[*net.DNSError](err); ok {
		return true
	}
	return certificate(err) || handshake(err)
}

// handshake reports whether err is of a TLS handshake that the other side did
// not take part in. net/http's timeout of one has no type of its own.
func handshake(err error) bool {
	e, ok := asType[tls.RecordHeaderError](err)
	return ok && e.Conn != nil || errors.Is(err, http.ErrSchemeMismatch) ||
		strings.HasSuffix(err.Error(), "net/http: TLS handshake timeout")
}

// describe names the failure behind o in a short fixed text, which quotes
// nothing that a transport may have put into its error.
func describe(o *outcome) string {
	err := o.err
	if e, ok := asType[*bodyError](err); ok {
		return e.reason
	}
	if e, ok := asType[syscall.Errno](err); ok {
		return e.Error() // "connection refused", "connection reset by peer", …
	}
	if e, ok := asType[*net.DNSError](err); ok {
		if e.IsNotFound {
			return "no such host"
		}
		return "the host name could not be looked up"
	}
	switch {
	case err == errDone, err == errIdle:
		return err.Error()
	case errors.Is(err, ErrNotSendable):
		return "the transport refused to send"
	case certificate(err):
		return "the server's certificate does not verify"
	case handshake(err):
		return "the TLS handshake failed"
	case errors.Is(err, errTooLarge):
		return errTooLarge.Error()
	case o.replayStopped:
		return "connection lost before an answer"
	case o.timedOut:
		return "the attempt timed out"
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF) && o.status != 0:
		return "the answer was cut off"
	case errors.Is(err, io.EOF):
		return "connection closed before an answer"
	case errors.Is(err, gzip.ErrHeader), errors.Is(err, gzip.ErrChecksum):
		return "the answer was damaged"
	}
	if e, ok := asType[net.Error](err); ok && e.Timeout() {
		return "network timeout"
	}
	return "connection failed"
}

// decide is called after each attempt with what it came to. It reports
// whether to repeat it after c.wait, and else leaves the call's error in
// c.err, nil for success.
func (c *call) decide() (repeat bool) {
	o := &c.got
	failure := c.failure(o)
	c.last = failure
	if failure == nil {
		c.err = nil
		return false
	}
	budget, used := 0, 0
	switch o.verdict {
	case VerdictNeverSent:
		budget, used = c.timing.maxRetries, c.repeats
	case VerdictUnknown:
		if c.repeatable || c.timing.forced {
			budget, used = c.timing.maxRetries, c.repeats
		}
	case VerdictRefused:
		if o.status == http.StatusUnauthorized {
			if c.auth && c.client.tokens.refused(o.token) && !c.replayed {
				c.replayed, c.wait, c.err = true, 0, nil
				return true
			}
			break
		}
		budget, used = maxRefusals, c.refusals
	}
	if c.timing.explicit && budget > 0 {
		budget, used = c.timing.maxRetries, c.repeats+c.refusals
	}
	c.err = failure
	if budget == 0 {
		return false
	}
	if err := callerEnded(c.Context); err != nil {
		c.err = c.interrupted(err)
		return false
	}
	now := time.Now()
	c.wait = c.nextWait(o)
	if used >= budget {
		c.err = c.exhausted(ExhaustedAttempts)
		return false
	}
	if total := c.timing.totalTimeout; total > 0 && now.Sub(c.started)+c.wait >= total {
		c.err = c.exhausted(ExhaustedTotalTime)
		return false
	}
	if deadline, ok := c.Deadline(); ok && !now.Add(c.wait).Before(deadline) {
		c.err = c.exhausted(ExhaustedDeadline)
		return false
	}
	if o.verdict == VerdictRefused {
		c.refusals++
	} else {
		c.repeats++
	}
	c.err = nil
	return true
}

// nextWait is how long to wait before the attempt is repeated.
func (c *call) nextWait(o *outcome) time.Duration {
	jitter := time.Duration(rand.Float64() * float64(retryJitter))
	switch c.limiter.(type) {
	case *AdaptiveLimiter, *FixedLimiter:
		if o.status == http.StatusTooManyRequests {
			jitter = 0 // they hold the whole client for the wait and a jitter, and the call is to be there first
		}
	}
	switch {
	case o.retryAfter > 0:
		return o.retryAfter + jitter
	case o.status == http.StatusTooManyRequests:
		return time.Second + jitter
	}
	return wait.Backoff(c.repeats, rand.Float64())
}

// failure builds the typed error of an attempt, nil for success.
func (c *call) failure(o *outcome) error {
	if o.verdict == VerdictUnknown && c.op.write {
		c.doubted = true
		c.mayHaveRun = c.mayHaveRun || !settledByCode(c.op, o)
	}
	switch {
	case o.admission != nil:
		return o.admission
	case o.verdict == VerdictDone:
		return nil
	case o.verdict == VerdictRejected && o.status == http.StatusNotFound && c.op.goneIsDone && c.doubted:
		o.verdict, o.reason = VerdictDone, "gone after a repeat"
		return nil
	case o.verdict == VerdictGivenUp:
		if o.maySent() && c.op.write {
			c.mayHaveRun = true
		}
		return c.interrupted(o.callerEnded)
	case o.verdict == VerdictBlocked:
		return &BlockedError{Operation: c.op.name, RetryAt: o.retryAt, mayHaveRun: c.mayHaveRun}
	case errors.Is(o.err, errTooLarge):
		return c.decodeError(o.reason)
	case o.status >= 300 || o.status > 0 && o.status < 200:
		e := &APIError{
			Operation: c.op.name, StatusCode: o.status, RequestID: o.requestID,
			RetryAfter: o.retryAfter, RateLimit: o.rate, Header: o.header, Body: o.body, mayHaveRun: c.mayHaveRun,
		}
		readEnvelope(e)
		return e
	}
	cause := o.err
	if o.timedOut { // context.DeadlineExceeded would speak of the caller's own
		cause = os.ErrDeadlineExceeded
	}
	return &ConnectionError{
		Operation: c.op.name, Reason: o.reason, Sent: o.maySent(), Err: hide(cause),
		mayHaveRun: c.mayHaveRun, final: o.verdict == VerdictNotSendable, timeout: o.timedOut,
	}
}

// settledByCode reports whether a 5xx says itself what became of the write:
// these two keep the user as it was before the mail or the revocation.
func settledByCode(op *operation, o *outcome) bool {
	if o.status != http.StatusBadGateway || (op != opUsersCreate && op != opUsersDelete) {
		return false
	}
	var e APIError
	e.Body = o.body
	readEnvelope(&e)
	return op == opUsersCreate && e.Code == CodeInviteFailed || op == opUsersDelete && e.Code == CodeRevokeFailed
}

func (c *call) exhausted(reason ExhaustedReason) error {
	return &RetriesExhaustedError{
		Operation: c.op.name, Attempts: c.attempts, Elapsed: time.Since(c.started),
		Reason: reason, Err: c.last, mayHaveRun: c.mayHaveRun,
	}
}

// decodeError builds the error of a 2xx that cannot be used. A write has then
// run, but what it did is not known.
func (c *call) decodeError(reason string) error {
	return &DecodeError{Operation: c.op.name, StatusCode: c.got.status, RequestID: c.got.requestID, Reason: reason, mayHaveRun: c.op.write}
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
func (c *call) interrupted(err error) error {
	e := &InterruptedError{Operation: c.op.name, Attempts: c.attempts, Err: err, cause: causeOf(c.Context), mayHaveRun: c.mayHaveRun}
	if _, again := asType[*InterruptedError](c.last); !again {
		e.Last = c.last
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
