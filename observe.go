package brellium

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"time"
)

// Verdict is what one attempt came to, and so whether it may be repeated.
type Verdict string

const (
	// VerdictDone: a 2xx whose body was read whole.
	VerdictDone Verdict = "done"
	// VerdictNeverSent: the request certainly did not reach the server; every
	// operation may be repeated.
	VerdictNeverSent Verdict = "never sent"
	// VerdictNotSendable: nothing was sent and a repeat would not help.
	VerdictNotSendable Verdict = "not sendable"
	// VerdictThrottled: a 429; every operation may be retried, since nothing
	// ran.
	VerdictThrottled Verdict = "throttled"
	// VerdictUnauthorized: a 401; every operation may be retried once with a
	// new token, since nothing ran.
	VerdictUnauthorized Verdict = "unauthorized"
	// VerdictUnknown: the request may have run (5xx, 408, a reset, a cut-off
	// answer, a timeout); only a harmless operation is repeated.
	VerdictUnknown Verdict = "unknown"
	// VerdictRejected: any other answer; never repeated.
	VerdictRejected Verdict = "rejected"
	// VerdictBlocked: a bare 403; never repeated.
	VerdictBlocked Verdict = "blocked"
	// VerdictCanceled: the caller's context ended; never repeated.
	VerdictCanceled Verdict = "canceled"
)

// Attempt is the record of one attempt of a call.
type Attempt struct {
	// Number counts from 1.
	Number int
	// StatusCode is the answer's status, 0 without an answer.
	StatusCode int
	// Verdict is what the attempt came to.
	Verdict Verdict
	// Reason is a short fixed text behind the verdict.
	Reason string
	// RequestID is the x-request-id of the answer.
	RequestID string
	// Wait is the wait that the attempt before this one led to.
	Wait time.Duration
	// Queued is the time spent after that waiting for a token, for a free
	// place and for the rate limit.
	Queued time.Duration
	// Duration is the time from sending to the last byte of the answer.
	Duration time.Duration
}

// Response is the HTTP side of a call, filled by WithResponseInto. Printed,
// logged or encoded it gives its status, request id and number of attempts;
// Header is there to be read by name.
type Response struct {
	// StatusCode is the status of the last answer, 0 without one.
	StatusCode int
	// Header is the header of the last answer.
	Header http.Header
	// RequestID is the x-request-id of the last answer, for Brellium's support.
	RequestID string
	// RateLimit is what the last answer's headers said.
	RateLimit RateLimit
	// Attempts are the call's own attempts in order.
	Attempts []Attempt
}

// LogValue gives the status, the request id, what remains of the rate limit,
// and the number of attempts.
func (r Response) LogValue() slog.Value {
	return slog.GroupValue(facts{status: r.StatusCode, requestID: r.RequestID, rate: r.RateLimit, attempts: len(r.Attempts)}.attrs()...)
}

// Format prints what LogValue gives, under every verb.
func (r Response) Format(s fmt.State, verb rune) { formatAttrs(s, verb, "brellium.Response", r) }

// MarshalJSON encodes what LogValue gives.
func (r Response) MarshalJSON() ([]byte, error) { return marshalSafe(r) }

// EventKind names what an Event tells.
type EventKind string

const (
	// EventCallStart: a call begins.
	EventCallStart EventKind = "call start"
	// EventAttemptStart: an attempt is about to be sent. It is told while the
	// attempt holds its place in the rate limit, so the answer should be quick.
	EventAttemptStart EventKind = "attempt start"
	// EventAttemptEnd: an attempt has ended.
	EventAttemptEnd EventKind = "attempt"
	// EventWait: the call is about to wait before it repeats an attempt.
	EventWait EventKind = "wait"
	// EventCallEnd: a call has ended. Verdict is VerdictDone where it
	// succeeded.
	EventCallEnd EventKind = "call end"
	// EventBlock: a bare 403 has put the client on watch or stopped it, or
	// that is over. Mode says which.
	EventBlock EventKind = "block"
	// EventLimiterMode: the limiter's mode is known for the first time, or
	// has changed.
	EventLimiterMode EventKind = "limiter mode"
	// EventTokenStore: the token store has begun to fail, or works again.
	EventTokenStore EventKind = "token store"
)

// The values of Event.Mode of an EventBlock and an EventTokenStore.
const (
	// BlockWatch: calls go one at a time until one of them is let through.
	BlockWatch = "watch"
	// BlockStopped: nothing is sent until Event.RetryAt.
	BlockStopped = "stopped"
	// BlockLifted: a call was let through.
	BlockLifted = "lifted"
	// TokenStoreDown: the client mints tokens without the store.
	TokenStoreDown = "down"
	// TokenStoreUp: the store is in use again.
	TokenStoreUp = "up"
)

// Event is one fact about a call, as an Observer is told it. Only what is
// safe to keep is in it: no token, secret, id, address, query or body. Token
// requests come as calls of the operation "oauth.token", and uploads to
// storage as "documents.put".
type Event struct {
	Kind EventKind
	// Operation is the operation's name, such as "audits.retrieve".
	Operation string
	// Method is the HTTP method.
	Method string
	// PathTemplate is the path with its placeholder, such as
	// "/v2/audits/{audit_id}"; it is empty for Client.Do.
	PathTemplate string
	// Host is the host and port of the client's base URL, such as
	// "api.brellium.com:443". It is empty for an upload, which goes elsewhere.
	Host string
	// Attempt counts from 1. On EventCallEnd it is the number of attempts.
	Attempt int
	// StatusCode is the answer's status, 0 without an answer.
	StatusCode int
	// Code is the error code of the answer.
	Code ErrorCode
	// RequestID is the x-request-id of the answer.
	RequestID string
	// Verdict and Reason say what an attempt, or the call, came to. Reason is
	// a short text of this package's own.
	Verdict Verdict
	Reason  string
	// Wait is how long the call is about to wait (EventWait), or has waited
	// because of the attempt before this one (EventAttemptEnd).
	Wait time.Duration
	// Queued is the time spent before this attempt waiting for a token, for a
	// free place and for the rate limit (EventAttemptEnd).
	Queued time.Duration
	// Duration is how long the attempt took from sending to the last byte of
	// its answer (EventAttemptEnd), or the call with all its waits (EventCallEnd).
	Duration time.Duration
	// RateLimit is what the answer's headers said.
	RateLimit RateLimit
	// RetryAt is when a stopped client sends again (EventBlock).
	RetryAt time.Time
	// Mode is the limiter's new mode (EventLimiterMode, see LimiterMode), one
	// of BlockWatch, BlockStopped and BlockLifted (EventBlock), or one of
	// TokenStoreDown and TokenStoreUp (EventTokenStore).
	Mode string
	// Header, on EventAttemptStart alone, takes headers to send along, such
	// as traceparent. Those that the client sets itself win, and those that
	// WithHeader refuses are left out. It is nil for an upload, whose URL is
	// signed, and nil for other events. It is never printed.
	Header http.Header
}

// facts is everything that may be logged of a call: an allowlist that the
// compiler keeps. Nothing else has a name here.
type facts struct {
	operation, method, path string
	attempt, attempts       int
	status                  int
	code                    ErrorCode
	requestID               string
	verdict                 Verdict
	reason                  string
	wait, queued, duration  time.Duration
	rate                    RateLimit
	retryAt                 time.Time
	mode                    string
}

// attrs are the facts that are known.
func (f facts) attrs() []slog.Attr {
	attrs := make([]slog.Attr, 0, 12)
	add := func(known bool, a slog.Attr) {
		if known {
			attrs = append(attrs, a)
		}
	}
	add(f.operation != "", slog.String("operation", f.operation))
	add(f.method != "", slog.String("method", f.method))
	add(f.path != "", slog.String("path", f.path))
	add(f.attempt > 0, slog.Int("attempt", f.attempt))
	add(f.attempts > 0, slog.Int("attempts", f.attempts))
	add(f.status > 0, slog.Int("status", f.status))
	add(f.code != "", slog.String("code", string(f.code)))
	add(f.requestID != "", slog.String("request_id", f.requestID))
	add(f.verdict != "", slog.String("verdict", string(f.verdict)))
	add(f.reason != "", slog.String("reason", f.reason))
	add(f.wait > 0, slog.Duration("wait", f.wait))
	add(f.queued > 0, slog.Duration("queued", f.queued))
	add(f.duration > 0, slog.Duration("duration", f.duration))
	add(f.rate.Known(), slog.Int("remaining", f.rate.Remaining))
	add(!f.retryAt.IsZero(), slog.Time("retry_at", f.retryAt))
	add(f.mode != "", slog.String("mode", f.mode))
	return attrs
}

func (e *Event) facts() facts {
	f := facts{
		operation: e.Operation, method: e.Method, path: e.PathTemplate, attempt: e.Attempt, status: e.StatusCode,
		code: e.Code, requestID: e.RequestID, verdict: e.Verdict, reason: e.Reason, wait: e.Wait, queued: e.Queued,
		duration: e.Duration, rate: e.RateLimit, retryAt: e.RetryAt, mode: e.Mode,
	}
	if e.Kind == EventCallEnd {
		f.attempt, f.attempts = 0, e.Attempt
	}
	return f
}

// LogValue gives the event's facts, as a record of WithLogger has them.
func (e Event) LogValue() slog.Value { return slog.GroupValue(e.facts().attrs()...) }

// Format prints the kind and what LogValue gives, under every verb.
func (e Event) Format(s fmt.State, verb rune) { formatAttrs(s, verb, string(e.Kind), e) }

// MarshalJSON encodes what LogValue gives.
func (e Event) MarshalJSON() ([]byte, error) { return marshalSafe(e) }

// Observer is told what happens within calls, in the goroutine of the call
// and never under a lock: a slow one delays its own call, and one that panics
// is ignored. It must be safe for concurrent use.
type Observer interface {
	// Observe is told one event. The values of the context that it returns for
	// EventCallStart are the call's from there on, and those for
	// EventAttemptStart the attempt's, up to its EventAttemptEnd; its deadline and
	// its end are not heeded. For other events, and where it is nil, the
	// returned context changes nothing.
	Observe(ctx context.Context, e Event) context.Context
}

// ObserverFunc is an Observer that is one function.
type ObserverFunc func(ctx context.Context, e Event) context.Context

// Observe calls f.
func (f ObserverFunc) Observe(ctx context.Context, e Event) context.Context { return f(ctx, e) }

// observers is the client's own observer and logger, either of which may be
// nil.
type observers struct {
	observer Observer
	logger   *slog.Logger
}

func (o *observers) on() bool { return o.observer != nil || o.logger != nil }

// tell passes e on. It returns the context to go on with.
func (o *observers) report(ctx context.Context, level slog.Level, e Event) context.Context {
	if o.logger != nil {
		o.log(ctx, level, &e)
	}
	if o.observer == nil {
		return ctx
	}
	return o.observe(ctx, e)
}

// observe tells the observer. What it returns lends its values to ctx, and
// nothing else, so that it can neither end a call nor prolong it.
func (o *observers) observe(ctx context.Context, e Event) (next context.Context) {
	next = ctx
	defer func() { _ = recover() }() // an observer that panics harms no call
	if lender := o.observer.Observe(ctx, e); lender != nil && lender != ctx {
		next = &lentContext{ctx, lender}
	}
	return next
}

// lentContext is a context with the values of another one before its own.
type lentContext struct {
	context.Context
	lender context.Context
}

func (c *lentContext) Value(key any) any {
	if v := c.lender.Value(key); v != nil {
		return v
	}
	return c.Context.Value(key)
}

// log writes e. What starts something is left out: what ends it says it all.
func (o *observers) log(ctx context.Context, level slog.Level, e *Event) {
	defer func() { _ = recover() }() // a handler that panics harms no call
	if e.Kind == EventCallStart || e.Kind == EventAttemptStart || !o.logger.Enabled(ctx, level) {
		return
	}
	o.logger.LogAttrs(ctx, level, "brellium "+string(e.Kind), e.facts().attrs()...)
}

// event is an Event of kind about the call.
func (c *call) event(kind EventKind) Event {
	e := Event{Kind: kind, Operation: c.op.name, Method: c.op.method, PathTemplate: c.op.path}
	if c.op != opDocumentsPut {
		e.Host = hostPort(&c.client.baseURL)
	}
	return e
}

func hostPort(u *url.URL) string {
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "http":
		port = "80"
	default:
		port = "443"
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// tell passes an event about the call on, if anybody listens.
func (c *call) report(ctx context.Context, kind EventKind, fill func(*Event) slog.Level) {
	if o := &c.client.observers; o.on() {
		e := c.event(kind)
		level := fill(&e)
		o.report(ctx, level, e)
	}
}

// reportStart announces the call.
func (c *call) reportStart(ctx context.Context) context.Context {
	if o := &c.client.observers; o.observer != nil {
		return o.observe(ctx, c.event(EventCallStart))
	}
	return ctx
}

// watched reports whether anybody wants the record of each attempt.
func (c *call) watched() bool { return c.response != nil || c.client.observers.on() }

// reportAttemptStart announces the next attempt. It returns the context that the
// attempt runs on and the headers that the observer wants sent along.
func (c *call) reportAttemptStart(ctx context.Context) (context.Context, http.Header) {
	o := &c.client.observers
	if o.observer == nil {
		return ctx, nil
	}
	e := c.event(EventAttemptStart)
	e.Attempt = c.attempts
	if c.op != opDocumentsPut {
		e.Header = http.Header{}
	}
	ctx = o.observe(ctx, e)
	for key, values := range e.Header {
		if checkHeader(key, values...) != nil || key != http.CanonicalHeaderKey(key) {
			delete(e.Header, key)
		}
	}
	return ctx, e.Header
}

// record notes an attempt that has ended, for the Response and the observer.
// ctx has the values that the observer lent to it.
func (c *call) record(caller, ctx context.Context, queued, took time.Duration) {
	o := &c.last
	if r := c.response; r != nil {
		r.Attempts = append(r.Attempts, Attempt{
			Number: c.attempts, StatusCode: o.Status, Verdict: o.verdict, Reason: o.reason, RequestID: o.requestID,
			Wait: c.retry.RetryWaitMin, Queued: queued, Duration: took,
		})
	}
	c.report(ctx, EventAttemptEnd, func(e *Event) slog.Level {
		c.fillAnswer(e)
		e.Attempt, e.Wait, e.Queued, e.Duration = c.attempts, c.retry.RetryWaitMin, queued, took
		return slog.LevelDebug
	})
	if l, ok := c.limiter.(interface{ State() LimiterState }); ok && c.client.observers.on() {
		if mode := l.State().Mode; mode != LimiterFixed && c.client.limiterMode(mode) {
			c.report(caller, EventLimiterMode, func(e *Event) slog.Level {
				e.Mode = string(mode)
				return slog.LevelDebug
			})
		}
	}
}

// reportWait announces the wait before a repeat.
func (c *call) reportWait(ctx context.Context, wait time.Duration) {
	c.report(ctx, EventWait, func(e *Event) slog.Level {
		c.fillAnswer(e)
		e.Attempt, e.Wait = c.attempts, wait
		return slog.LevelDebug
	})
}

// reportBlock announces that a block has begun, has got worse or is over.
func (c *call) reportBlock(ctx context.Context, news blockNews, retryAt time.Time) {
	c.report(ctx, EventBlock, func(e *Event) slog.Level {
		e.RetryAt = retryAt
		switch {
		case news == blockLifted:
			e.Mode = BlockLifted
			return slog.LevelInfo
		case retryAt.IsZero():
			e.Mode = BlockWatch
		default:
			e.Mode = BlockStopped
		}
		return slog.LevelWarn
	})
}

// reportTokenStore announces that the token store fails, or works again.
func (o *observers) reportTokenStore(err error) {
	if !o.on() {
		return
	}
	e, level := Event{Kind: EventTokenStore, Mode: TokenStoreUp}, slog.LevelInfo
	if err != nil {
		e.Mode, level = TokenStoreDown, slog.LevelWarn
	}
	o.report(context.Background(), level, e)
}

// fillAnswer gives e what the last answer says and may be told.
func (c *call) fillAnswer(e *Event) {
	o := &c.last
	e.StatusCode, e.RequestID, e.RateLimit = o.Status, o.requestID, o.rate
	e.Verdict, e.Reason = o.verdict, o.reason
	if o.Status >= 300 {
		answer := APIError{Body: o.Body}
		readEnvelope(&answer)
		e.Code = answer.Code
	}
}

// reportEnd announces the end of a call that began at begun. One that was given
// up is a warning; a 404, a 409 and a caller who has cancelled are not.
func (c *call) reportEnd(ctx context.Context, begun time.Time, err error) {
	c.report(ctx, EventCallEnd, func(e *Event) slog.Level {
		c.fillAnswer(e)
		e.Attempt, e.Duration = c.attempts, time.Since(begun)
		switch err := err.(type) {
		case nil:
			return slog.LevelDebug
		case *RetriesExhaustedError:
			e.Reason = "gave up: " + string(err.Reason)
		case *DecodeError:
			e.Verdict, e.Reason = VerdictRejected, "unusable answer: "+err.Reason
		case *InterruptedError:
			e.Verdict, e.Reason = VerdictCanceled, "the caller's deadline"
			if errors.Is(err.Err, context.Canceled) {
				e.Reason = "cancelled by the caller"
				return slog.LevelDebug
			}
		case *APIError:
			if err.StatusCode == http.StatusNotFound || err.StatusCode == http.StatusConflict {
				return slog.LevelDebug
			}
		}
		return slog.LevelWarn
	})
}

// limiterMode reports whether mode is news.
func (c *Client) limiterMode(mode LimiterMode) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed := c.mode != mode
	c.mode = mode
	return changed
}
