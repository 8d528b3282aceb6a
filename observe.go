package brellium

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/brellium/brellium-go/internal/block"
	"github.com/brellium/brellium-go/internal/redact"
)

// Verdict classifies the result of one attempt, and so whether it may be
// retried.
type Verdict string

const (
	// VerdictDone: a 2xx whose body was read to its end.
	VerdictDone Verdict = "done"
	// VerdictNeverSent: the request certainly did not reach the server, or HTTP/2
	// says that it was not processed. Retried for every operation.
	VerdictNeverSent Verdict = "never sent"
	// VerdictNotSendable: nothing was sent and a retry would fail the same way.
	VerdictNotSendable Verdict = "not sendable"
	// VerdictThrottled: a 429. Retried for every operation, since nothing ran.
	VerdictThrottled Verdict = "throttled"
	// VerdictUnauthorized: a 401. Retried once with a new token for every
	// operation, since nothing ran.
	VerdictUnauthorized Verdict = "unauthorized"
	// VerdictUnknown: the request may have run (a 5xx, a 408, a reset, a
	// response that was cut off, a timeout). Retried only where that does no
	// harm.
	VerdictUnknown Verdict = "unknown"
	// VerdictRejected: any other response. Never retried.
	VerdictRejected Verdict = "rejected"
	// VerdictBlocked: a bare 403. Never retried.
	VerdictBlocked Verdict = "blocked"
	// VerdictCanceled: the caller's context ended. Never retried.
	VerdictCanceled Verdict = "canceled"
)

// Attempt is the record of one attempt of a call.
type Attempt struct {
	// Number counts from 1.
	Number int
	// StatusCode is the HTTP status, 0 without a response.
	StatusCode int
	// Verdict classifies the result.
	Verdict Verdict
	// Reason is a short fixed text that explains the verdict.
	Reason string
	// RequestID is the x-request-id of the response.
	RequestID string
	// Wait is how long the call waited after the attempt before this one.
	Wait time.Duration
	// Queued is the time spent after that wait for a token, for a free slot
	// (WithMaxConcurrency) and for the rate limit.
	Queued time.Duration
	// Duration is the time from sending to the last byte of the response.
	Duration time.Duration
}

// Response is the HTTP side of a call, filled by [WithResponseInto]. Printed,
// logged or encoded it shows its status, request id, remaining rate limit and
// number of attempts; Header can be read by name.
type Response struct {
	// StatusCode is the status of the last response, 0 without one.
	StatusCode int
	// Header is the header of the last response.
	Header http.Header
	// RequestID is the x-request-id of the last response, for Brellium's
	// support.
	RequestID string
	// RateLimit is from the RateLimit headers of the last response.
	RateLimit RateLimit
	// Attempts are the attempts of the call itself, in order; those of a token
	// request are not among them.
	Attempts []Attempt
}

// LogValue returns the status, the request id, the remaining rate limit and the
// number of attempts.
func (r Response) LogValue() slog.Value {
	attrs := Event{StatusCode: r.StatusCode, RequestID: r.RequestID, RateLimit: r.RateLimit}.attrs()
	return slog.GroupValue(append(attrs, slog.Int("attempts", len(r.Attempts)))...)
}

// Format prints the attributes of LogValue under every verb.
func (r Response) Format(s fmt.State, verb rune) { redact.FormatAttrs(s, verb, "brellium.Response", r) }

// MarshalJSON encodes the attributes of LogValue.
func (r Response) MarshalJSON() ([]byte, error) { return redact.Marshal(r) }

// EventKind names what an [Event] reports.
type EventKind string

const (
	// EventCallStart: a call begins.
	EventCallStart EventKind = "call start"
	// EventAttemptStart: an attempt is about to be sent. The attempt keeps its
	// place in the rate limit until then, so an observer should return quickly.
	EventAttemptStart EventKind = "attempt start"
	// EventAttemptEnd: an attempt has ended.
	EventAttemptEnd EventKind = "attempt"
	// EventWait: the call is about to wait before a retry.
	EventWait EventKind = "wait"
	// EventCallEnd: a call has ended. Verdict is VerdictDone where it
	// succeeded.
	EventCallEnd EventKind = "call end"
	// EventBlock: a bare 403 has put the client on watch or stopped it, or the
	// block has ended. See Event.Block.
	EventBlock EventKind = "block"
	// EventLimiterMode: the limiter's mode is known for the first time, or has
	// changed. See Event.LimiterMode.
	EventLimiterMode EventKind = "limiter mode"
	// EventTokenStore: the token store has failed, or works again. See
	// Event.TokenStore.
	EventTokenStore EventKind = "token store"
)

// BlockState is the state of a client whose requests are blocked.
type BlockState string

const (
	// BlockWatch: requests go one at a time until one of them is not blocked.
	BlockWatch BlockState = "watch"
	// BlockStopped: nothing is sent until Event.RetryAt.
	BlockStopped BlockState = "stopped"
	// BlockLifted: a request was not blocked; the block has ended.
	BlockLifted BlockState = "lifted"
)

// TokenStoreState says whether the [TokenStore] is in use.
type TokenStoreState string

const (
	// TokenStoreDown: the store has failed; the client requests tokens without it.
	TokenStoreDown TokenStoreState = "down"
	// TokenStoreUp: the store is in use again.
	TokenStoreUp TokenStoreState = "up"
)

// Event is one event of a call, as an [Observer] receives it. It contains only
// what is safe to keep: no token, secret, resource id, address, query or body.
// Token requests are calls of the operation "oauth.token", and uploads to storage
// are calls of "documents.put".
type Event struct {
	// Kind says what the event reports.
	Kind EventKind
	// Operation is the operation's name, such as "audits.retrieve".
	Operation string
	// Method is the HTTP method.
	Method string
	// PathTemplate is the path with its placeholder, such as
	// "/v2/audits/{audit_id}"; it is empty for Client.Do.
	PathTemplate string
	// Host is the host and port of the client's base URL, such as
	// "api.brellium.com:443". It is empty for an upload, which goes to another
	// host.
	Host string
	// Attempt counts from 1. On EventCallEnd it is the number of attempts.
	Attempt int
	// StatusCode is the HTTP status, 0 without a response.
	StatusCode int
	// Code is the error code of the response.
	Code ErrorCode
	// RequestID is the x-request-id of the response.
	RequestID string
	// Verdict and Reason are the result of an attempt, or of the call. Reason is
	// a short fixed text.
	Verdict Verdict
	Reason  string
	// Wait is how long the call is about to wait (EventWait), or has waited
	// after the attempt before this one (EventAttemptEnd).
	Wait time.Duration
	// Queued is the time spent before this attempt waiting for a token, for a
	// free slot and for the rate limit (EventAttemptEnd).
	Queued time.Duration
	// Duration is how long the attempt took from sending to the last byte of
	// its response (EventAttemptEnd), or the call with all its waits
	// (EventCallEnd).
	Duration time.Duration
	// RateLimit is from the RateLimit headers of the response.
	RateLimit RateLimit
	// RetryAt is when a stopped client sends again (EventBlock).
	RetryAt time.Time
	// Block is the new state of the block (EventBlock).
	Block BlockState
	// LimiterMode is the limiter's new mode (EventLimiterMode).
	LimiterMode LimiterMode
	// TokenStore is the new state of the token store (EventTokenStore).
	TokenStore TokenStoreState
}

// attrs are the only fields that may be logged, where they are set.
func (e Event) attrs() []slog.Attr {
	attrs := make([]slog.Attr, 0, 12)
	add := func(known bool, a slog.Attr) {
		if known {
			attrs = append(attrs, a)
		}
	}
	count := "attempt"
	if e.Kind == EventCallEnd {
		count = "attempts"
	}
	add(e.Operation != "", slog.String("operation", e.Operation))
	add(e.Method != "", slog.String("method", e.Method))
	add(e.PathTemplate != "", slog.String("path", e.PathTemplate))
	add(e.Attempt > 0, slog.Int(count, e.Attempt))
	add(e.StatusCode > 0, slog.Int("status", e.StatusCode))
	add(e.Code != "", slog.String("code", string(e.Code)))
	add(e.RequestID != "", slog.String("request_id", e.RequestID))
	add(e.Verdict != "", slog.String("verdict", string(e.Verdict)))
	add(e.Reason != "", slog.String("reason", e.Reason))
	add(e.Wait > 0, slog.Duration("wait", e.Wait))
	add(e.Queued > 0, slog.Duration("queued", e.Queued))
	add(e.Duration > 0, slog.Duration("duration", e.Duration))
	add(e.RateLimit.Known(), slog.Int("remaining", e.RateLimit.Remaining))
	add(!e.RetryAt.IsZero(), slog.Time("retry_at", e.RetryAt))
	add(e.Block != "", slog.String("block", string(e.Block)))
	add(e.LimiterMode != "", slog.String("limiter_mode", string(e.LimiterMode)))
	add(e.TokenStore != "", slog.String("token_store", string(e.TokenStore)))
	return attrs
}

// LogValue returns the attributes that a record of [WithLogger] has.
func (e Event) LogValue() slog.Value { return slog.GroupValue(e.attrs()...) }

// Format prints the kind and the attributes of LogValue, under every verb.
func (e Event) Format(s fmt.State, verb rune) { redact.FormatAttrs(s, verb, string(e.Kind), e) }

// MarshalJSON encodes the attributes of LogValue.
func (e Event) MarshalJSON() ([]byte, error) { return redact.Marshal(e) }

// Observer is called with the events of each call, in the goroutine of the call
// and never under a lock: a slow observer delays its own call, and a panic in
// one is ignored. It must be safe for concurrent use.
type Observer interface {
	// Observe is called with one event. The values of the context that it
	// returns for EventCallStart are used for the rest of the call, and those
	// for EventAttemptStart until the EventAttemptEnd of the attempt; the
	// deadline and cancellation of a returned context are ignored. For other
	// events the returned context is ignored, and nil changes nothing.
	Observe(ctx context.Context, e Event) context.Context
}

// HeaderObserver is an [Observer] that adds headers to requests, such as
// traceparent.
type HeaderObserver interface {
	Observer
	// RequestHeader returns the headers to add to the attempt that is about to
	// be sent. ctx has the values that Observe returned for its
	// EventAttemptStart. Headers that the client sets itself and those that
	// [WithHeader] rejects are left out. It is not called for an upload, whose
	// URL is signed.
	RequestHeader(ctx context.Context) http.Header
}

// ObserverFunc adapts a function to an [Observer].
type ObserverFunc func(ctx context.Context, e Event) context.Context

// Observe calls f.
func (f ObserverFunc) Observe(ctx context.Context, e Event) context.Context { return f(ctx, e) }

// observers are the client's observers and its logger, which may be nil.
type observers struct {
	observers []Observer
	logger    *slog.Logger
}

func (o *observers) on() bool { return len(o.observers) > 0 || o.logger != nil }

// report passes e on. It returns the context to continue with.
func (o *observers) report(ctx context.Context, level slog.Level, e Event) context.Context {
	if o.logger != nil {
		o.log(ctx, level, &e)
	}
	return o.observe(ctx, e)
}

// observe calls the observers.
func (o *observers) observe(ctx context.Context, e Event) context.Context {
	for _, observer := range o.observers {
		ctx = observe(ctx, observer, e)
	}
	return ctx
}

// observe calls an observer. The context that it returns adds its values to ctx
// and nothing else, so that it can neither end a call nor prolong it.
func observe(ctx context.Context, o Observer, e Event) (next context.Context) {
	next = ctx
	defer func() { _ = recover() }() // an observer that panics must not fail the call
	if values := o.Observe(ctx, e); values != nil && values != ctx {
		next = &valuesContext{ctx, values}
	}
	return next
}

// requestHeader returns the headers that the observers add, without those that
// may not be added.
func (o *observers) requestHeader(ctx context.Context) http.Header {
	header := http.Header{}
	for _, observer := range o.observers {
		if h, ok := observer.(HeaderObserver); ok {
			addHeaders(ctx, h, header)
		}
	}
	return header
}

func addHeaders(ctx context.Context, o HeaderObserver, header http.Header) {
	defer func() { _ = recover() }() // as in observe
	for key, values := range o.RequestHeader(ctx) {
		if key = http.CanonicalHeaderKey(key); checkHeader(key, values...) == nil {
			header[key] = values
		}
	}
}

// valuesContext is a context with the values of another one before its own.
type valuesContext struct {
	context.Context
	values context.Context
}

// withoutValues is ctx as it was before observers added values, among which a
// context's own cause would be.
func withoutValues(ctx context.Context) context.Context {
	for {
		v, ok := ctx.(*valuesContext)
		if !ok {
			return ctx
		}
		ctx = v.Context
	}
}

func (c *valuesContext) Value(key any) any {
	if v := c.values.Value(key); v != nil {
		return v
	}
	return c.Context.Value(key)
}

// log writes a record of e. The start of a call or an attempt is left out,
// since the record of its end says the same and more.
func (o *observers) log(ctx context.Context, level slog.Level, e *Event) {
	defer func() { _ = recover() }() // a handler that panics must not fail the call
	if e.Kind == EventCallStart || e.Kind == EventAttemptStart || !o.logger.Enabled(ctx, level) {
		return
	}
	o.logger.LogAttrs(ctx, level, "brellium "+string(e.Kind), e.attrs()...)
}

// event is an Event of kind about the call.
func (c *call) event(kind EventKind) Event {
	return Event{Kind: kind, Operation: c.op.name, Method: c.op.method, PathTemplate: c.op.path, Host: c.route.host}
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

// report passes an event about the call on, if there is an observer or a
// logger.
func (c *call) report(ctx context.Context, kind EventKind, fill func(*Event) slog.Level) {
	if o := &c.parts.observers; o.on() {
		e := c.event(kind)
		level := fill(&e)
		o.report(ctx, level, e)
	}
}

// reportStart reports that the call begins. It returns the call's context.
func (c *call) reportStart(ctx context.Context) context.Context {
	if o := &c.parts.observers; len(o.observers) > 0 {
		return o.observe(ctx, c.event(EventCallStart))
	}
	return ctx
}

// reportAttemptStart reports that an attempt begins. It returns the attempt's
// context and the headers that the observer adds.
func (c *call) reportAttemptStart(ctx context.Context) (context.Context, http.Header) {
	o := &c.parts.observers
	if len(o.observers) == 0 {
		return ctx, nil
	}
	e := c.event(EventAttemptStart)
	e.Attempt = c.attempts
	ctx = o.observe(ctx, e)
	if c.route.signed {
		return ctx, nil
	}
	return ctx, o.requestHeader(ctx)
}

// record notes an attempt that has ended, for the Response and the observer.
// observed is the attempt's context.
func (c *call) record(caller, observed context.Context, queued, took time.Duration) {
	o := &c.last
	if r := c.response; r != nil {
		r.Attempts = append(r.Attempts, Attempt{
			Number: c.attempts, StatusCode: o.Status, Verdict: o.verdict, Reason: o.reason, RequestID: o.requestID,
			Wait: c.retry.RetryWaitMin, Queued: queued, Duration: took,
		})
	}
	if !c.parts.observers.on() {
		return
	}
	c.report(observed, EventAttemptEnd, func(e *Event) slog.Level {
		c.fillResult(e)
		e.Attempt, e.Wait, e.Queued, e.Duration = c.attempts, c.retry.RetryWaitMin, queued, took
		return slog.LevelDebug
	})
	if l, ok := c.route.limiter.(interface{ State() LimiterState }); ok && c.route.tokens != nil {
		if mode := l.State().Mode; c.client.limiterModeChanged(mode) {
			c.report(caller, EventLimiterMode, func(e *Event) slog.Level {
				e.LimiterMode = mode
				return slog.LevelDebug
			})
		}
	}
}

// reportWait reports the wait before a retry.
func (c *call) reportWait(ctx context.Context, wait time.Duration) {
	c.report(ctx, EventWait, func(e *Event) slog.Level {
		c.fillResult(e)
		e.Attempt, e.Wait = c.attempts, wait
		return slog.LevelDebug
	})
}

// reportBlock reports that a block has begun, has become worse or has ended.
func (c *call) reportBlock(ctx context.Context, signal block.Signal, retryAt time.Time) {
	c.report(ctx, EventBlock, func(e *Event) slog.Level {
		e.RetryAt = retryAt
		switch {
		case signal == block.Lifted:
			e.Block = BlockLifted
			return slog.LevelInfo
		case retryAt.IsZero():
			e.Block = BlockWatch
		default:
			e.Block = BlockStopped
		}
		return slog.LevelWarn
	})
}

// reportTokenStore reports that the token store has failed, or works again.
func (o *observers) reportTokenStore(err error) {
	if !o.on() {
		return
	}
	e, level := Event{Kind: EventTokenStore, TokenStore: TokenStoreUp}, slog.LevelInfo
	if err != nil {
		e.TokenStore, level = TokenStoreDown, slog.LevelWarn
	}
	o.report(context.Background(), level, e)
}

// fillResult sets what the last attempt says and may be reported.
func (c *call) fillResult(e *Event) {
	o := &c.last
	e.StatusCode, e.RequestID, e.RateLimit = o.Status, o.requestID, o.rate
	e.Verdict, e.Reason = o.verdict, o.reason
	if o.Status >= 300 {
		envelope := APIError{Body: o.Body}
		readEnvelope(&envelope)
		e.Code = envelope.Code
	}
}

// reportEnd reports the end of a call that began at begun. A call that failed
// is a warning, except for a 404, a 409 and the caller's cancellation.
func (c *call) reportEnd(ctx context.Context, begun time.Time, err error) {
	c.report(ctx, EventCallEnd, func(e *Event) slog.Level {
		c.fillResult(e)
		e.Attempt, e.Duration = c.attempts, time.Since(begun)
		switch err := err.(type) {
		case nil:
			if c.lost != "" {
				e.Reason = "decoded in part: " + c.lost
				if c.client.lostIsNew(c.lost) {
					return slog.LevelWarn
				}
			}
			return slog.LevelDebug
		case *RetriesExhaustedError:
			e.Reason = "retries exhausted: " + string(err.Reason)
		case *DecodeError:
			e.Verdict, e.Reason = VerdictRejected, "unusable response: "+err.Reason
		case *InterruptedError:
			e.Verdict, e.Reason = VerdictCanceled, "the caller's deadline"
			if errors.Is(err.Err, context.Canceled) {
				e.Reason = "canceled by the caller"
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

// lostIsNew notes what decoding left empty and reports whether any of it is new.
func (c *Client) lostIsNew(reasons string) (isNew bool) {
	c.seen.mu.Lock()
	defer c.seen.mu.Unlock()
	if c.seen.lost == nil {
		c.seen.lost = map[string]bool{}
	}
	for reason := range strings.SplitSeq(reasons, "; ") {
		isNew = isNew || !c.seen.lost[reason]
		c.seen.lost[reason] = true
	}
	return isNew
}

// limiterModeChanged notes the limiter's mode and reports whether it is new.
func (c *Client) limiterModeChanged(mode LimiterMode) bool {
	c.seen.mu.Lock()
	defer c.seen.mu.Unlock()
	changed := c.seen.mode != mode
	c.seen.mode = mode
	return changed
}
