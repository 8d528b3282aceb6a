package brelliumotel_test

import (
	"context"
	"fmt"
	"log"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumotel"
	"github.com/brellium/brellium-go/brelliumtest"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

func Example() {
	// In production, use the OTLP exporters.
	spans, reader := tracetest.NewInMemoryExporter(), sdkmetric.NewManualReader()
	observer, err := brelliumotel.NewObserver(
		brelliumotel.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))),
		brelliumotel.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))),
		brelliumotel.WithPropagator(propagation.TraceContext{}),
	)
	if err != nil {
		log.Fatal(err)
	}
	client, err := brelliumtest.New().Client(brellium.WithObserver(observer)) // or brellium.NewClient
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	if _, err := client.Audits.Retrieve(ctx, brelliumtest.SampleAuditID); err != nil {
		log.Fatal(err)
	}

	for _, span := range spans.GetSpans() { // attempts end before their call
		fmt.Println("span", span.Name)
	}
	var metrics metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &metrics); err != nil {
		log.Fatal(err)
	}
	for _, m := range metrics.ScopeMetrics[0].Metrics {
		if m.Name == "http.client.request.duration" {
			fmt.Println("metric", m.Name, m.Unit)
		}
	}
	// Output:
	// span POST /v2/oauth/token
	// span POST /v2/oauth/token
	// span GET /v2/audits/{audit_id}
	// span GET /v2/audits/{audit_id}
	// metric http.client.request.duration s
}
