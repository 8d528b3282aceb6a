package brelliumotel

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/brellium/brellium-go"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.40.0"
	"go.opentelemetry.io/otel/trace"
)

const scope = "github.com/brellium/brellium-go/brelliumotel"

// The attributes that semantic conventions have no name for.
const (
	operationKey  = attribute.Key("brellium.operation")
	verdictKey    = attribute.Key("brellium.verdict")
	attemptsKey   = attribute.Key("brellium.attempts")
	queuedKey     = attribute.Key("brellium.queued")
	waitKey       = attribute.Key("brellium.wait")
	reasonKey     = attribute.Key("brellium.reason")
	errorCodeKey  = attribute.Key("brellium.error.code")
	requestIDKey  = attribute.Key("brellium.request_id")
	blockKey      = attribute.Key("brellium.block")
	retryAtKey    = attribute.Key("brellium.retry_at")
	modeKey       = attribute.Key("brellium.limiter.mode")
	tokenStoreKey = attribute.Key("brellium.token_store")
)

// The operation under which a client asks for tokens.
const tokenOperation = "oauth.token"

// Option changes what an observer uses.
type Option func(*config) error

type config struct {
	tracers    trace.TracerProvider
	meters     metric.MeterProvider
	propagator propagation.TextMapPropagator
}

// WithTracerProvider sets where spans go; otherwise that is the global
// provider. A noop provider switches spans off.
func WithTracerProvider(p trace.TracerProvider) Option {
	return func(c *config) error {
		if p == nil {
			return errors.New("brelliumotel: WithTracerProvider must not be nil")
		}
		c.tracers = p
		return nil
	}
}

// WithMeterProvider sets where metrics go; otherwise that is the global
// provider. A noop provider switches metrics off.
func WithMeterProvider(p metric.MeterProvider) Option {
	return func(c *config) error {
		if p == nil {
			return errors.New("brelliumotel: WithMeterProvider must not be nil")
		}
		c.meters = p
		return nil
	}
}

// WithPropagator sets what puts the trace context into the headers that the
// API gets; otherwise that is the global propagator, which does nothing unless
// one was set. One without fields sends nothing.
func WithPropagator(p propagation.TextMapPropagator) Option {
	return func(c *config) error {
		if p == nil {
			return errors.New("brelliumotel: WithPropagator must not be nil")
		}
		c.propagator = p
		return nil
	}
}

// NewObserver returns an observer for [brellium.WithObserver]. It may serve
// several clients. The error is that of an option, or of the meter provider
// for an instrument that it cannot make.
func NewObserver(opts ...Option) (brellium.Observer, error) {
	c := config{tracers: otel.GetTracerProvider(), meters: otel.GetMeterProvider(), propagator: otel.GetTextMapPropagator()}
	for _, opt := range opts {
		if opt == nil {
			return nil, errors.New("brelliumotel: an Option must not be nil")
		}
		if err := opt(&c); err != nil {
			return nil, err
		}
	}
	o := &observer{
		tracer:     c.tracers.Tracer(scope, trace.WithInstrumentationVersion(brellium.Version), trace.WithSchemaURL(semconv.SchemaURL)),
		propagator: c.propagator,
	}
	meter := c.meters.Meter(scope, metric.WithInstrumentationVersion(brellium.Version), metric.WithSchemaURL(semconv.SchemaURL))
	if err := o.makeInstruments(meter); err != nil {
		return nil, err
	}
	return o, nil
}

type observer struct {
	tracer     trace.Tracer
	propagator propagation.TextMapPropagator

	calls, attempts, waits, refusals, mints, blocks, tokenStore metric.Int64Counter
	requestDuration, callDuration, waitDuration, queueDuration  metric.Float64Histogram
	remaining, limiterMode                                      metric.Int64Gauge
}

// callSpan and attemptSpan are the context keys of this observer's own spans,
// so that it never ends a span of somebody else's.
type (
	callSpan    struct{ o *observer }
	attemptSpan struct{ o *observer }
)

// Observe implements [brellium.Observer].
func (o *observer) Observe(ctx context.Context, e brellium.Event) context.Context {
	switch e.Kind {
	case brellium.EventCallStart:
		ctx, span := o.start(ctx, &e)
		return context.WithValue(ctx, callSpan{o}, span)
	case brellium.EventAttemptStart:
		ctx, span := o.start(ctx, &e)
		if e.Attempt > 1 {
			span.SetAttributes(semconv.HTTPRequestResendCount(e.Attempt - 1))
		}
		return context.WithValue(ctx, attemptSpan{o}, span)
	case brellium.EventAttemptEnd:
		o.attempt(ctx, &e)
	case brellium.EventWait:
		o.wait(ctx, &e)
	case brellium.EventCallEnd:
		o.callEnd(ctx, &e)
	case brellium.EventBlock:
		o.block(ctx, &e)
	case brellium.EventLimiterMode:
		o.mode(ctx, &e)
	case brellium.EventTokenStore:
		o.tokenStore.Add(ctx, 1, metric.WithAttributes(tokenStoreKey.String(string(e.TokenStore))))
	}
	return ctx
}

// RequestHeader implements [brellium.HeaderObserver]: it returns the headers that
// the propagator sets, such as traceparent.
func (o *observer) RequestHeader(ctx context.Context) http.Header {
	h := http.Header{}
	o.propagator.Inject(ctx, propagation.HeaderCarrier(h))
	return h
}

func (o *observer) start(ctx context.Context, e *brellium.Event) (context.Context, trace.Span) {
	attrs := append(common(e), operationKey.String(e.Operation))
	return o.tracer.Start(ctx, spanName(e), trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attrs...))
}

func (o *observer) attempt(ctx context.Context, e *brellium.Event) {
	if span, ok := ctx.Value(attemptSpan{o}).(trace.Span); ok {
		span.SetAttributes(queuedKey.Float64(e.Queued.Seconds()))
		end(span, e)
	}
	attrs := common(e)
	if t := errorType(e); t != "" {
		attrs = append(attrs, semconv.ErrorTypeKey.String(t))
	}
	request := attrs
	if e.StatusCode > 0 {
		request = append(attrs[:len(attrs):len(attrs)], semconv.HTTPResponseStatusCode(e.StatusCode))
	}
	o.requestDuration.Record(ctx, e.Duration.Seconds(), metric.WithAttributes(request...))
	plain := common(e)
	o.queueDuration.Record(ctx, e.Queued.Seconds(), metric.WithAttributes(plain...))
	o.attempts.Add(ctx, 1, metric.WithAttributes(append(attrs, verdictKey.String(string(e.Verdict)))...))
	if e.StatusCode == http.StatusTooManyRequests {
		o.refusals.Add(ctx, 1, metric.WithAttributes(plain...))
	}
	if e.RateLimit.Known() && e.Operation != tokenOperation {
		o.remaining.Record(ctx, int64(e.RateLimit.Remaining), metric.WithAttributes(server(e)...))
	}
}

func (o *observer) wait(ctx context.Context, e *brellium.Event) {
	if span, ok := ctx.Value(callSpan{o}).(trace.Span); ok {
		span.AddEvent("wait", trace.WithAttributes(waitKey.Float64(e.Wait.Seconds()), reasonKey.String(e.Reason)))
	}
	attrs := metric.WithAttributes(common(e)...)
	o.waits.Add(ctx, 1, attrs)
	o.waitDuration.Record(ctx, e.Wait.Seconds(), attrs)
}

func (o *observer) callEnd(ctx context.Context, e *brellium.Event) {
	if span, ok := ctx.Value(callSpan{o}).(trace.Span); ok {
		span.SetAttributes(attemptsKey.Int(e.Attempt))
		end(span, e)
	}
	attrs := common(e)
	if t := errorType(e); t != "" {
		attrs = append(attrs, semconv.ErrorTypeKey.String(t))
	}
	set := metric.WithAttributeSet(attribute.NewSet(attrs...))
	o.calls.Add(ctx, 1, set)
	o.callDuration.Record(ctx, e.Duration.Seconds(), set)
	if e.Operation == tokenOperation {
		o.mints.Add(ctx, 1, set)
	}
}

func (o *observer) block(ctx context.Context, e *brellium.Event) {
	if span, ok := ctx.Value(callSpan{o}).(trace.Span); ok {
		attrs := []attribute.KeyValue{blockKey.String(string(e.Block))}
		if !e.RetryAt.IsZero() {
			attrs = append(attrs, retryAtKey.String(e.RetryAt.UTC().Format(time.RFC3339)))
		}
		span.AddEvent("block", trace.WithAttributes(attrs...))
	}
	o.blocks.Add(ctx, 1, metric.WithAttributes(append(server(e), blockKey.String(string(e.Block)))...))
}

// modes are those of [brellium.AdaptiveLimiter].
var modes = []brellium.LimiterMode{brellium.LimiterProbing, brellium.LimiterAlone, brellium.LimiterShared}

func (o *observer) mode(ctx context.Context, e *brellium.Event) {
	for _, mode := range modes {
		if mode != e.LimiterMode {
			o.limiterMode.Record(ctx, 0, metric.WithAttributes(append(server(e), modeKey.String(string(mode)))...))
		}
	}
	o.limiterMode.Record(ctx, 1, metric.WithAttributes(append(server(e), modeKey.String(string(e.LimiterMode)))...))
}

// end ends the span of an attempt or a call with what came of it.
func end(span trace.Span, e *brellium.Event) {
	attrs := []attribute.KeyValue{verdictKey.String(string(e.Verdict))}
	if e.StatusCode > 0 {
		attrs = append(attrs, semconv.HTTPResponseStatusCode(e.StatusCode))
	}
	if e.Code != "" {
		attrs = append(attrs, errorCodeKey.String(string(e.Code)))
	}
	if e.RequestID != "" {
		attrs = append(attrs, requestIDKey.String(e.RequestID))
	}
	if t := errorType(e); t != "" {
		attrs = append(attrs, semconv.ErrorTypeKey.String(t))
		span.SetStatus(codes.Error, e.Reason)
	}
	span.SetAttributes(attrs...)
	span.End()
}

// errorType is what went wrong in a word or a few, nothing where nothing did:
// the status of an answer, or else the beginning of the reason.
func errorType(e *brellium.Event) string {
	switch {
	case e.Verdict == brellium.VerdictDone:
		return ""
	case e.Verdict != brellium.VerdictCanceled && e.StatusCode >= 300:
		return strconv.Itoa(e.StatusCode)
	}
	reason, _, _ := strings.Cut(e.Reason, ":")
	if reason == "" {
		return semconv.ErrorTypeOther.Value.AsString()
	}
	return reason
}

// common are the attributes that everything about an operation has. The slice
// has room for some more.
func common(e *brellium.Event) []attribute.KeyValue {
	attrs := make([]attribute.KeyValue, 0, 8)
	attrs = append(attrs, semconv.HTTPRequestMethodKey.String(method(e.Method)))
	if e.PathTemplate != "" {
		attrs = append(attrs, semconv.URLTemplate(e.PathTemplate))
	}
	return append(attrs, server(e)...)
}

// server are the attributes of the API's address. Storage has none, since its
// host is a part of a secret URL.
func server(e *brellium.Event) []attribute.KeyValue {
	host, port, err := net.SplitHostPort(e.Host)
	if err != nil {
		return nil
	}
	attrs := make([]attribute.KeyValue, 0, 3)
	attrs = append(attrs, semconv.ServerAddress(host))
	if n, err := strconv.Atoi(port); err == nil {
		attrs = append(attrs, semconv.ServerPort(n))
	}
	return attrs
}

// method is m where the semantic conventions know it, and "_OTHER" else.
func method(m string) string {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return m
	}
	return semconv.HTTPRequestMethodOther.Value.AsString()
}

func spanName(e *brellium.Event) string {
	name := method(e.Method)
	if name != e.Method {
		name = "HTTP"
	}
	if e.PathTemplate != "" {
		name += " " + e.PathTemplate
	}
	return name
}
