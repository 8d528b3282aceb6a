package cookbook

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumotel"
	"github.com/brellium/brellium-go/brelliumtest"
)

// Traced returns the option that reports all calls as spans and metrics.
func Traced(tracers *trace.TracerProvider, meters *metric.MeterProvider) (brellium.ClientOption, error) {
	observer, err := brelliumotel.NewObserver(
		brelliumotel.WithTracerProvider(tracers),
		brelliumotel.WithMeterProvider(meters),
		brelliumotel.WithPropagator(propagation.TraceContext{}), // no baggage: it would be sent to the API
	)
	if err != nil {
		return nil, err
	}
	return brellium.WithObserver(observer), nil
}

// Retries counts retries and 429s for a metrics library of your own.
type Retries struct{ Retried, RateLimited atomic.Int64 }

// Observe implements [brellium.Observer]. It is called often: it should be quick.
func (r *Retries) Observe(ctx context.Context, e brellium.Event) context.Context {
	if e.Kind == brellium.EventAttemptEnd {
		if e.Attempt > 1 {
			r.Retried.Add(1)
		}
		if e.Verdict == brellium.VerdictThrottled {
			r.RateLimited.Add(1)
		}
	}
	return ctx
}

func TestTelemetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spans := tracetest.NewInMemoryExporter()
		traced, err := Traced(trace.NewTracerProvider(trace.WithSyncer(spans)), metric.NewMeterProvider())
		require.NoError(t, err)
		var retries Retries
		emulator := brelliumtest.New()
		emulator.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(503, "UNAVAILABLE"),
			brelliumtest.Status(429, "RATE_LIMITED").WithHeader("Retry-After", "1"))
		client, err := emulator.Client(traced, brellium.WithObserver(&retries))
		require.NoError(t, err)
		_, err = client.Audits.Retrieve(t.Context(), brelliumtest.SampleAuditID)
		require.NoError(t, err)
		assert.Equal(t, int64(2), retries.Retried.Load())
		assert.Equal(t, int64(1), retries.RateLimited.Load())
		attempts := 0
		for _, span := range spans.GetSpans() {
			if span.Name == "GET /v2/audits/{audit_id}" {
				attempts++
			}
		}
		assert.Equal(t, 1+3, attempts)
	})
}
