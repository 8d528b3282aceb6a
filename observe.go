package brellium

import (
	"context"
	"log/slog"
	"net/http"
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
	// VerdictRefused: a 429, or a 401 that a new token may mend; every
	// operation may be repeated, since nothing ran.
	VerdictRefused Verdict = "refused"
	// VerdictUnknown: the request may have run (5xx, 408, a reset, a cut-off
	// answer, a timeout); only a harmless operation is repeated.
	VerdictUnknown Verdict = "unknown"
	// VerdictRejected: any other answer; never repeated.
	VerdictRejected Verdict = "rejected"
	// VerdictBlocked: a bare 403; never repeated.
	VerdictBlocked Verdict = "blocked"
	// VerdictGivenUp: the caller's context ended; never repeated.
	VerdictGivenUp Verdict = "given up"
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
	// Backoff is the wait before this attempt that the attempt before it
	// asked for.
	Backoff time.Duration
	// Queued is the time spent after that waiting for a token, for a free
	// place and for the rate limit.
	Queued time.Duration
	// Duration is the time from sending to the last byte of the answer.
	Duration time.Duration
}

// Response is the HTTP side of a call, filled by WithResponseInto.
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

// EventKind names what an Event tells.
type EventKind string

const (
	// EventCallStart: a call begins.
	EventCallStart EventKind = "call start"
	// EventAttemptStart: an attempt is about to be sent.
	EventAttemptStart EventKind = "attempt start"
	// EventAttempt: an attempt has ended.
	EventAttempt EventKind = "attempt"
	// EventWait: the call is about to wait before it repeats an attempt.
	EventWait EventKind = "wait"
	// EventCallEnd: a call has ended. Verdict is VerdictDone where it
	// succeeded.
	EventCallEnd EventKind = "call end"
	// EventBlock: a bare 403 has put the client on watch, or stopped it.
	EventBlock EventKind = "block"
	// EventLimiterMode: the limiter has changed its mode.
	EventLimiterMode EventKind = "limiter mode"
	// EventTokenStore: the token store has begun to fail, or works again.
	EventTokenStore EventKind = "token store"
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
	// Attempt counts from 1. On EventCallEnd it is the number of attempts.
	Attempt int
	// StatusCode is the answer's status, 0 without an answer.
	StatusCode int
	// Code is the error code of the answer.
	Code ErrorCode
	// RequestID is the x-request-id of the answer.
	RequestID string
	// Verdict and Reason say what an attempt, or the call, came to.
	Verdict Verdict
	Reason  string
	// Wait is how long the call is about to wait (EventWait), or has waited
	// before this attempt, in the queue included (EventAttempt).
	Wait time.Duration
	// Duration is how long the attempt, or the call, took.
	Duration time.Duration
	// RateLimit is what the answer's headers said.
	RateLimit RateLimit
	// RetryAt is when a stopped client sends again (EventBlock).
	RetryAt time.Time
	// Mode is the limiter's new mode (EventLimiterMode), or the token store's
	// state (EventTokenStore).
	Mode string
	// Header, on EventAttemptStart alone, takes headers to send along, such
	// as traceparent. Those that the client sets itself win.
	Header http.Header
}

// Observer is told what happens within calls, in the goroutine of the call
// and never under a lock: a slow one delays its own call only, and one that
// panics is ignored. It must be safe for concurrent use.
type Observer interface {
	// Observe is told one event. Of EventCallStart the returned context is the
	// call's from there on, and of EventAttemptStart the attempt's; of other
	// events it is ignored. Returning ctx itself, or nil, changes nothing.
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
func (o *observers) tell(ctx context.Context, e Event) (next context.Context) {
	next = ctx
	if o.logger != nil {
		logEvent(ctx, o.logger, e)
	}
	if o.observer == nil {
		return ctx
	}
	defer func() {
		if recover() != nil || next == nil {
			next = ctx
		}
	}()
	return o.observer.Observe(ctx, e)
}

// logEvent writes e with the attributes that its kind has.
func logEvent(ctx context.Context, l *slog.Logger, e Event) {
	level := slog.LevelDebug
	switch {
	case e.Kind == EventCallStart || e.Kind == EventAttemptStart:
		return // what ends them says it all
	case e.Kind == EventCallEnd && e.Verdict != VerdictDone, e.Kind == EventBlock, e.Kind == EventTokenStore:
		level = slog.LevelWarn
	}
	if !l.Enabled(ctx, level) {
		return
	}
	defer func() { _ = recover() }() // a handler that panics harms no call
	attrs := make([]slog.Attr, 0, 12)
	add := func(show bool, a slog.Attr) {
		if show {
			attrs = append(attrs, a)
		}
	}
	add(e.Operation != "", slog.String("operation", e.Operation))
	add(e.Method != "", slog.String("method", e.Method))
	add(e.PathTemplate != "", slog.String("path", e.PathTemplate))
	add(e.Attempt > 0, slog.Int("attempt", e.Attempt))
	add(e.StatusCode > 0, slog.Int("status", e.StatusCode))
	add(e.Code != "", slog.String("code", string(e.Code)))
	add(e.RequestID != "", slog.String("request_id", e.RequestID))
	add(e.Verdict != "", slog.String("verdict", string(e.Verdict)))
	add(e.Reason != "", slog.String("reason", e.Reason))
	add(e.Wait > 0, slog.Duration("wait", e.Wait))
	add(e.Duration > 0, slog.Duration("duration", e.Duration))
	add(e.RateLimit.Known(), slog.Int("remaining", e.RateLimit.Remaining))
	add(!e.RetryAt.IsZero(), slog.Time("retry_at", e.RetryAt))
	add(e.Mode != "", slog.String("mode", e.Mode))
	l.LogAttrs(ctx, level, "brellium "+string(e.Kind), attrs...)
}

// event is an Event of kind about the call.
func (c *call) event(kind EventKind) Event {
	return Event{Kind: kind, Operation: c.op.name, Method: c.op.method, PathTemplate: c.op.path}
}

// tell passes an event about the call on, if anybody listens.
func (c *call) tell(kind EventKind, fill func(*Event)) {
	if !c.client.observers.on() {
		return
	}
	e := c.event(kind)
	fill(&e)
	c.client.observers.tell(c.Context, e)
}

// observeAttempt announces the next attempt. It returns the context that the
// attempt runs on and the headers that the observer wants sent along.
func (c *call) observeAttempt() (context.Context, http.Header) {
	o := &c.client.observers
	if o.observer == nil {
		return c, nil
	}
	e := c.event(EventAttemptStart)
	e.Attempt, e.Header = c.attempts, http.Header{}
	return o.tell(c, e), e.Header
}

// record notes an attempt that has ended, for the Response and the observer.
func (c *call) record(queued, took time.Duration) {
	o := &c.got
	if r := c.response; r != nil {
		r.Attempts = append(r.Attempts, Attempt{
			Number: c.attempts, StatusCode: o.status, Verdict: o.verdict, Reason: o.reason, RequestID: o.requestID,
			Backoff: c.wait, Queued: queued, Duration: took,
		})
	}
	c.tell(EventAttempt, func(e *Event) {
		c.fillAnswer(e)
		e.Attempt, e.Wait, e.Duration = c.attempts, c.wait+queued, took
	})
	if l, ok := c.limiter.(interface{ Mode() LimiterMode }); ok && c.client.observers.on() {
		if mode := l.Mode(); c.client.limiterMode(mode) {
			c.tell(EventLimiterMode, func(e *Event) { e.Mode = string(mode) })
		}
	}
}

// fillAnswer gives e what the last answer says and may be told.
func (c *call) fillAnswer(e *Event) {
	o := &c.got
	e.StatusCode, e.RequestID, e.RateLimit = o.status, o.requestID, o.rate
	e.Verdict, e.Reason = o.verdict, o.reason
	if o.status >= 300 {
		var answer APIError
		answer.Body = o.body
		readEnvelope(&answer)
		e.Code = answer.Code
	}
}

// tellEnd announces the end of a call that began at begun.
func (c *call) tellEnd(begun time.Time) {
	c.tell(EventCallEnd, func(e *Event) {
		c.fillAnswer(e)
		if e.Attempt, e.Duration = c.attempts, time.Since(begun); c.err == nil {
			return
		}
		switch err := c.err.(type) {
		case *RetriesExhaustedError:
			e.Reason = "gave up: " + string(err.Reason)
		case *InterruptedError:
			e.Verdict, e.Reason = VerdictGivenUp, "the caller's context ended"
		}
	})
}

// limiterMode reports whether mode is news.
func (c *Client) limiterMode(mode LimiterMode) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed := c.mode != mode && c.mode != ""
	c.mode = mode
	return changed
}
