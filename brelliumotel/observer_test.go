package brelliumotel_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumotel"
	"github.com/brellium/brellium-go/brelliumtest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
)

// rig is a client of an emulator with in-memory telemetry.
type rig struct {
	emu    *brelliumtest.Emulator
	client *brellium.Client
	tracer trace.Tracer // for the caller's spans
	spans  *tracetest.InMemoryExporter
	reader *sdkmetric.ManualReader
}

func newRig(t testing.TB, emu *brelliumtest.Emulator, opts ...brellium.ClientOption) *rig {
	t.Helper()
	r := &rig{emu: emu, spans: tracetest.NewInMemoryExporter(), reader: sdkmetric.NewManualReader()}
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSyncer(r.spans))
	r.tracer = tracers.Tracer("caller")
	observer, err := brelliumotel.NewObserver(
		brelliumotel.WithTracerProvider(tracers),
		brelliumotel.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(r.reader))),
		brelliumotel.WithPropagator(propagation.TraceContext{}),
	)
	require.NoError(t, err)
	r.client, err = emu.Client(append([]brellium.ClientOption{brellium.WithObserver(observer)}, opts...)...)
	require.NoError(t, err)
	return r
}

// of returns the spans of an operation in the order they ended.
func (r *rig) of(operation string) (spans tracetest.SpanStubs) {
	for _, s := range r.spans.GetSpans() {
		if attr(s, "brellium.operation").AsString() == operation {
			spans = append(spans, s)
		}
	}
	return spans
}

func attr(s tracetest.SpanStub, key attribute.Key) attribute.Value {
	for _, kv := range s.Attributes {
		if kv.Key == key {
			return kv.Value
		}
	}
	return attribute.Value{}
}

func (r *rig) metrics(t testing.TB) metricdata.ResourceMetrics {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, r.reader.Collect(context.Background(), &all))
	return all
}

// point is a data point of a metric: its attributes, and its sum, gauge value or
// number of observations.
type point struct {
	attrs attribute.Set
	value int64
	sum   float64
}

func (r *rig) points(t testing.TB, name string) (points []point) {
	t.Helper()
	for _, scope := range r.metrics(t).ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name != name {
				continue
			}
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					points = append(points, point{p.Attributes, p.Value, 0})
				}
			case metricdata.Gauge[int64]:
				for _, p := range data.DataPoints {
					points = append(points, point{p.Attributes, p.Value, 0})
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					points = append(points, point{p.Attributes, int64(p.Count), p.Sum})
				}
			}
		}
	}
	return points
}

// value returns the sum of the points of a metric with all the attributes.
func (r *rig) value(t testing.TB, name string, attrs ...attribute.KeyValue) (value int64) {
	t.Helper()
	for _, p := range r.points(t, name) {
		if has(p.attrs, attrs) {
			value += p.value
		}
	}
	return value
}

func has(set attribute.Set, attrs []attribute.KeyValue) bool {
	for _, kv := range attrs {
		if v, ok := set.Value(kv.Key); !ok || v != kv.Value {
			return false
		}
	}
	return true
}

var (
	retrieveTemplate = attribute.String("url.template", "/v2/audits/{audit_id}")
	tokenTemplate    = attribute.String("url.template", "/v2/oauth/token")
)

func TestCallSpanHasAttemptChildren(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, brelliumtest.New(brelliumtest.WithLatency(nil)))
		r.emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(503, "UNAVAILABLE"))
		ctx, caller := r.tracer.Start(context.Background(), "caller")
		_, err := r.client.Audits.Retrieve(ctx, brelliumtest.SampleAuditID)
		require.NoError(t, err)
		require.True(t, caller.IsRecording(), "the caller's span is not ended")

		spans := r.of("audits.retrieve")
		require.Len(t, spans, 3)
		first, second, call := spans[0], spans[1], spans[2]
		assert.Equal(t, caller.SpanContext().SpanID(), call.Parent.SpanID())
		for _, s := range spans {
			assert.Equal(t, "GET /v2/audits/{audit_id}", s.Name)
			assert.Equal(t, trace.SpanKindClient, s.SpanKind)
			assert.Equal(t, caller.SpanContext().TraceID(), s.SpanContext.TraceID())
			assert.Equal(t, "GET", attr(s, "http.request.method").AsString())
			assert.Equal(t, "/v2/audits/{audit_id}", attr(s, "url.template").AsString())
			assert.Equal(t, "api.brellium.test", attr(s, "server.address").AsString())
			assert.EqualValues(t, 443, attr(s, "server.port").AsInt64())
			assert.Equal(t, brellium.Version(), s.InstrumentationScope.Version)
		}
		for i, s := range spans[:2] {
			assert.Equal(t, call.SpanContext.SpanID(), s.Parent.SpanID())
			record := r.emu.Requests(brelliumtest.OpAuditRetrieve)[i]
			assert.Equal(t, record.RequestID, attr(s, "brellium.request_id").AsString())
			assert.EqualValues(t, record.Status, attr(s, "http.response.status_code").AsInt64())
		}
		assert.Equal(t, attribute.EMPTY, attr(first, "http.request.resend_count").Type())
		assert.EqualValues(t, 1, attr(second, "http.request.resend_count").AsInt64())
		assert.Equal(t, "503", attr(first, "error.type").AsString())
		assert.Equal(t, "UNAVAILABLE", attr(first, "brellium.error.code").AsString())
		assert.Equal(t, codes.Error, first.Status.Code)
		assert.Equal(t, codes.Unset, second.Status.Code)
		assert.Equal(t, attribute.EMPTY, attr(second, "error.type").Type())
		assert.Equal(t, codes.Unset, call.Status.Code)
		assert.EqualValues(t, 2, attr(call, "brellium.attempts").AsInt64())

		require.Len(t, call.Events, 1)
		assert.Equal(t, "wait", call.Events[0].Name)
		assert.Equal(t, call.EndTime.Sub(call.StartTime).Seconds(), call.Events[0].Attributes[0].Value.AsFloat64(),
			"nothing but the wait takes virtual time")

		mint := r.of("oauth.token")
		require.Len(t, mint, 2)
		assert.Equal(t, "POST /v2/oauth/token", mint[1].Name)
		assert.False(t, mint[1].Parent.IsValid(), "a token request starts its own trace")
	})
}

func TestEachAttemptSendsItsTraceContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, brelliumtest.New())
		r.emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.DropBefore())
		_, err := r.client.Audits.Retrieve(context.Background(), brelliumtest.SampleAuditID)
		require.NoError(t, err)
		requests := r.emu.Requests(brelliumtest.OpAuditRetrieve)
		require.Len(t, requests, 2)
		for i, s := range r.of("audits.retrieve")[:2] {
			want := "00-" + s.SpanContext.TraceID().String() + "-" + s.SpanContext.SpanID().String() + "-01"
			assert.Equal(t, []string{want}, requests[i].Header["Traceparent"])
		}
		for key := range requests[0].Header {
			assert.Contains(t, []string{"Accept", "Authorization", "Traceparent", "User-Agent"}, key)
		}
	})
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, brelliumtest.New(), brellium.WithMaxRetries(2))
		r.emu.Inject(brelliumtest.OpAuditRetrieve,
			brelliumtest.Status(429, "RATE_LIMITED").WithHeader("Retry-After", "3"), brelliumtest.Status(503, "UNAVAILABLE"))
		_, err := r.client.Audits.Retrieve(context.Background(), brelliumtest.SampleAuditID)
		require.NoError(t, err)
		r.emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.NeverSent().Forever())
		_, err = r.client.Audits.Retrieve(context.Background(), brelliumtest.SampleAuditID)
		require.Error(t, err)

		assert.EqualValues(t, 2, r.value(t, "brellium.client.calls", retrieveTemplate))
		assert.EqualValues(t, 1, r.value(t, "brellium.client.calls", retrieveTemplate, attribute.String("error.type", "retries exhausted")))
		assert.EqualValues(t, 2, r.value(t, "brellium.client.call.duration", retrieveTemplate))
		assert.EqualValues(t, 6, r.value(t, "brellium.client.attempts", retrieveTemplate))
		assert.EqualValues(t, 3, r.value(t, "brellium.client.attempts", retrieveTemplate,
			attribute.String("brellium.verdict", "never sent"), attribute.String("error.type", "connection refused")))
		assert.EqualValues(t, 6, r.value(t, "http.client.request.duration", retrieveTemplate, attribute.String("http.request.method", "GET"),
			attribute.String("server.address", "api.brellium.test"), attribute.Int("server.port", 443)))
		assert.EqualValues(t, 1, r.value(t, "http.client.request.duration", retrieveTemplate,
			attribute.Int("http.response.status_code", 503), attribute.String("error.type", "503")))
		assert.EqualValues(t, 4, r.value(t, "brellium.client.waits", retrieveTemplate))
		assert.EqualValues(t, 4, r.value(t, "brellium.client.wait.duration", retrieveTemplate))
		assert.EqualValues(t, 6, r.value(t, "brellium.client.queue.duration", retrieveTemplate))
		assert.EqualValues(t, 1, r.value(t, "brellium.client.rate_limited", retrieveTemplate))
		assert.EqualValues(t, 1, r.value(t, "brellium.client.mints", tokenTemplate))
		assert.Equal(t, int64(r.client.RateLimit().Remaining), r.value(t, "brellium.client.rate_limit.remaining"))
		assert.Positive(t, r.client.RateLimit().Remaining)
		assert.EqualValues(t, 1, r.value(t, "brellium.client.limiter.mode"), "one mode at a time")
	})
}

func TestBlockEventsAndMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, brelliumtest.New())
		r.emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Blocked().Times(2))
		retrieve := func() error {
			_, err := r.client.Audits.Retrieve(context.Background(), brelliumtest.SampleAuditID)
			return err
		}
		require.Error(t, retrieve())
		require.Error(t, retrieve())
		require.Error(t, retrieve(), "stopped")
		time.Sleep(time.Minute)
		require.NoError(t, retrieve())

		for mode, n := range map[string]int64{"watch": 1, "stopped": 1, "lifted": 1} {
			assert.Equal(t, n, r.value(t, "brellium.client.blocks", attribute.String("brellium.block", mode)), mode)
		}
		var events, ended []string
		for _, s := range r.of("audits.retrieve") {
			for _, e := range s.Events {
				events = append(events, e.Name+" "+e.Attributes[0].Value.AsString())
			}
			if n := attr(s, "brellium.attempts"); n.Type() != attribute.EMPTY {
				ended = append(ended, attr(s, "error.type").AsString())
			}
		}
		assert.Equal(t, []string{"block watch", "block stopped", "block lifted"}, events)
		assert.Equal(t, []string{"403", "403", "stopped by a block", ""}, ended)
		assert.Len(t, r.of("audits.retrieve"), 4+3, "the stopped call has no attempt span")
	})
}

func TestCanceledCallEndsItsSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, brelliumtest.New())
		r.emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.StallHeaders(0))
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(time.Second, cancel)
		_, err := r.client.Audits.Retrieve(ctx, brelliumtest.SampleAuditID)
		require.ErrorIs(t, err, context.Canceled)
		spans := r.of("audits.retrieve")
		require.Len(t, spans, 2)
		assert.Equal(t, "the caller's context ended", attr(spans[0], "error.type").AsString())
		assert.Equal(t, "canceled by the caller", attr(spans[1], "error.type").AsString())
		assert.Equal(t, codes.Error, spans[1].Status.Code)
	})
}

func TestUnknownMethodFollowsSemanticConventions(t *testing.T) {
	r := newRig(t, brelliumtest.New())
	require.Error(t, r.client.Do(context.Background(), "PURGE", "/v2/audits/marker-id", nil, nil))
	require.NoError(t, r.client.Do(context.Background(), "GET", "/v2/audits/"+brelliumtest.SampleAuditID, nil, nil))
	spans := r.of("client.do")
	require.Len(t, spans, 4)
	assert.Equal(t, "HTTP", spans[1].Name)
	assert.Equal(t, "_OTHER", attr(spans[1], "http.request.method").AsString())
	assert.Equal(t, "GET", spans[3].Name)
	assert.Equal(t, attribute.EMPTY, attr(spans[3], "url.template").Type())
}

// census-instrumentation/opencensus-go#1180, gravitational/teleport#43083
func TestSpanAndMetricNamesAreRouteTemplates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, brelliumtest.New())
		r.emu.SeedAudits(1)
		ids := []string{brelliumtest.SampleAuditID}
		page, err := r.client.Audits.List(context.Background(), brellium.AuditListParams{})
		require.NoError(t, err)
		for _, a := range page.Data {
			if a.AuditID != brelliumtest.SampleAuditID {
				ids = append(ids, a.AuditID)
			}
		}
		require.Len(t, ids, 2)
		for _, id := range ids {
			_, err := r.client.Audits.Retrieve(context.Background(), id)
			require.NoError(t, err)
		}
		for _, name := range []string{"casey", "robin"} {
			user, err := r.client.Users.Create(context.Background(), brellium.UserCreateParams{Email: name + "@example.test"})
			require.NoError(t, err)
			ids = append(ids, user.UserID)
			require.NoError(t, r.client.Users.Delete(context.Background(), user.UserID))
		}

		names := map[string]int{}
		for _, s := range r.spans.GetSpans() {
			names[s.Name]++
		}
		assert.Equal(t, map[string]int{"POST /v2/oauth/token": 2, "GET /v2/audits": 2, "GET /v2/audits/{audit_id}": 4,
			"POST /v2/users": 4, "DELETE /v2/users/{user_id}": 4}, names)
		assert.EqualValues(t, 2, r.value(t, "brellium.client.calls", retrieveTemplate))
		assert.EqualValues(t, 2, r.value(t, "brellium.client.calls", attribute.String("url.template", "/v2/users/{user_id}"), attribute.String("http.request.method", "DELETE")))
		all := dump(r.spans.GetSpans()) + dump(r.metrics(t))
		for _, id := range ids {
			assert.NotContains(t, all, id)
		}
		assert.NotContains(t, strings.ToLower(all), "example.test\"")
	})
}

func TestGlobalProvidersAreTheDefault(t *testing.T) {
	tracers, meters, propagator := otel.GetTracerProvider(), otel.GetMeterProvider(), otel.GetTextMapPropagator()
	defer func() {
		otel.SetTracerProvider(tracers)
		otel.SetMeterProvider(meters)
		otel.SetTextMapPropagator(propagator)
	}()
	spans, reader := tracetest.NewInMemoryExporter(), sdkmetric.NewManualReader()
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)))
	otel.SetMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)))
	otel.SetTextMapPropagator(propagation.TraceContext{})

	observer, err := brelliumotel.NewObserver()
	require.NoError(t, err)
	emu := brelliumtest.New()
	client, err := emu.Client(brellium.WithObserver(observer))
	require.NoError(t, err)
	_, err = client.Audits.Retrieve(context.Background(), brelliumtest.SampleAuditID)
	require.NoError(t, err)
	assert.Len(t, spans.GetSpans(), 4)
	r := rig{reader: reader}
	assert.EqualValues(t, 1, r.value(t, "brellium.client.calls", retrieveTemplate))
	assert.NotEmpty(t, emu.Requests(brelliumtest.OpAuditRetrieve)[0].Header["Traceparent"])
}

func TestNoopProviders(t *testing.T) {
	observer, err := brelliumotel.NewObserver(
		brelliumotel.WithTracerProvider(tracenoop.NewTracerProvider()),
		brelliumotel.WithMeterProvider(metricnoop.NewMeterProvider()),
		brelliumotel.WithPropagator(propagation.TraceContext{}))
	require.NoError(t, err)
	emu := brelliumtest.New()
	client, err := emu.Client(brellium.WithObserver(observer))
	require.NoError(t, err)
	_, err = client.Audits.Retrieve(context.Background(), brelliumtest.SampleAuditID)
	require.NoError(t, err)
	assert.Equal(t, http.Header(nil), onlyTrace(emu.Requests(brelliumtest.OpAuditRetrieve)[0].Header))
}

func onlyTrace(h http.Header) (found http.Header) {
	for _, key := range (propagation.TraceContext{}).Fields() {
		if v := h.Values(key); len(v) > 0 {
			found = http.Header{key: v}
		}
	}
	return found
}

func TestNilOptionsAreErrors(t *testing.T) {
	for _, opt := range []brelliumotel.Option{nil, brelliumotel.WithTracerProvider(nil), brelliumotel.WithMeterProvider(nil), brelliumotel.WithPropagator(nil)} {
		observer, err := brelliumotel.NewObserver(opt)
		assert.Error(t, err)
		assert.Nil(t, observer)
	}
}
