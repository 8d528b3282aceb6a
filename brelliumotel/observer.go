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

// Attributes that the semantic conventions do not define.
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

// tokenOperation is the operation of token requests.
const tokenOperation = "oauth.token"

// Option configures [NewObserver].
type Option func(*config) error

type config struct {
	tracers    trace.TracerProvider
	meters     metric.MeterProvider
	propagator propagation.TextMapPropagator
}

// option returns an Option that sets a value, which must not be nil.
func option(name string, isNil bool, set func(*config)) Option {
	return func(c *config) error {
		if isNil {
			return errors.New("brelliumotel: " + name + " must not be nil")
		}
		set(c)
		return nil
	}
}

// WithTracerProvider sets the provider for spans. The default is
// [otel.GetTracerProvider]. A no-op provider turns spans off.
func WithTracerProvider(p trace.TracerProvider) Option {
	return option("WithTracerProvider", p == nil, func(c *config) { c.tracers = p })
}

// WithMeterProvider sets the provider for metrics. The default is
// [otel.GetMeterProvider]. A no-op provider turns metrics off.
func WithMeterProvider(p metric.MeterProvider) Option {
	return option("WithMeterProvider", p == nil, func(c *config) { c.meters = p })
}

// WithPropagator sets the propagator that writes trace context into requests to
// the API. The default is [otel.GetTextMapPropagator], which writes nothing
// unless your program sets one.
func WithPropagator(p propagation.TextMapPropagator) Option {
	return option("WithPropagator", p == nil, func(c *config) { c.propagator = p })
}

// NewObserver returns an observer for [brellium.WithObserver], which can be
// used by several clients. It returns an error if an option is nil or has a nil
// argument, or if the meter provider cannot create an instrument.
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
		tracer:     c.tracers.Tracer(scope, trace.WithInstrumentationVersion(brellium.Version()), trace.WithSchemaURL(semconv.SchemaURL)),
		propagator: c.propagator,
	}
	meter := c.meters.Meter(scope, metric.WithInstrumentationVersion(brellium.Version()), metric.WithSchemaURL(semconv.SchemaURL))
	if err := o.makeInstruments(meter); err != nil {
		return nil, err
	}
	return o, nil
}

type observer struct {
	tracer     trace.Tracer
	propagator propagation.TextMapPropagator

	calls, attempts, waits, rateLimited, mints, blocks, tokenStore metric.Int64Counter
	requestDuration, callDuration, waitDuration, queueDuration     metric.Float64Histogram
	remaining, limiterMode                                         metric.Int64Gauge
}

// callSpan and attemptSpan are the context keys of this observer's spans, so
// that it ends no other spans.
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
	attrs := outcome(e)
	request := attrs
	if e.StatusCode > 0 {
		request = append(attrs[:len(attrs):len(attrs)], semconv.HTTPResponseStatusCode(e.StatusCode))
	}
	o.requestDuration.Record(ctx, e.Duration.Seconds(), metric.WithAttributes(request...))
	plain := metric.WithAttributes(common(e)...)
	o.queueDuration.Record(ctx, e.Queued.Seconds(), plain)
	o.attempts.Add(ctx, 1, metric.WithAttributes(append(attrs, verdictKey.String(string(e.Verdict)))...))
	if e.StatusCode == http.StatusTooManyRequests {
		o.rateLimited.Add(ctx, 1, plain)
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
	set := metric.WithAttributeSet(attribute.NewSet(outcome(e)...))
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

// modes are the modes of [brellium.AdaptiveLimiter].
var modes = []brellium.LimiterMode{brellium.LimiterProbing, brellium.LimiterAlone, brellium.LimiterShared}

func (o *observer) mode(ctx context.Context, e *brellium.Event) {
	for _, mode := range modes {
		if mode != e.LimiterMode {
			o.limiterMode.Record(ctx, 0, metric.WithAttributes(append(server(e), modeKey.String(string(mode)))...))
		}
	}
	o.limiterMode.Record(ctx, 1, metric.WithAttributes(append(server(e), modeKey.String(string(e.LimiterMode)))...))
}

// end ends the span of an attempt or a call.
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

// errorType returns the value of error.type: the status of a response, or
// without one the start of the reason. It is empty after a success.
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

// outcome returns the common attributes and, after a failure, error.type.
func outcome(e *brellium.Event) []attribute.KeyValue {
	attrs := common(e)
	if t := errorType(e); t != "" {
		attrs = append(attrs, semconv.ErrorTypeKey.String(t))
	}
	return attrs
}

// common returns the attributes of the operation, with capacity for more.
func common(e *brellium.Event) []attribute.KeyValue {
	attrs := make([]attribute.KeyValue, 0, 8)
	attrs = append(attrs, semconv.HTTPRequestMethodKey.String(method(e.Method)))
	if e.PathTemplate != "" {
		attrs = append(attrs, semconv.URLTemplate(e.PathTemplate))
	}
	return append(attrs, server(e)...)
}

// server returns the attributes of the API's address. Uploads have none,
// because the storage host is part of a secret URL.
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

// method returns m, or "_OTHER" if the semantic conventions do not define it.
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
