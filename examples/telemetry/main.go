// Command telemetry prints the client's OpenTelemetry spans and metrics to
// standard output and its log records to standard error. It runs on the
// embedded emulator, whose first responses are a 503 and a 429, to show retries
// and waits. The output contains no token and no audit id.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumotel"
	"github.com/brellium/brellium-go/brelliumtest"
	"go.opentelemetry.io/otel/exporters/stdout/stdoutmetric"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

func main() {
	if err := run(context.Background(), os.Stdout, os.Stderr); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, telemetry, logs io.Writer) (err error) {
	spans, err := stdouttrace.New(stdouttrace.WithWriter(telemetry), stdouttrace.WithPrettyPrint())
	if err != nil {
		return err
	}
	metrics, err := stdoutmetric.New(stdoutmetric.WithWriter(telemetry), stdoutmetric.WithPrettyPrint())
	if err != nil {
		return err
	}
	// In production, use otlptracegrpc or otlptracehttp, and WithBatcher.
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewPeriodicReader(metrics)))
	defer func() { // Shutdown writes the metrics
		err = errors.Join(err, tracers.Shutdown(ctx), meters.Shutdown(ctx))
	}()

	observer, err := brelliumotel.NewObserver(
		brelliumotel.WithTracerProvider(tracers),
		brelliumotel.WithMeterProvider(meters),
		// Trace context only: baggage may contain data the API must not get.
		brelliumotel.WithPropagator(propagation.TraceContext{}),
	)
	if err != nil {
		return err
	}

	emulator := brelliumtest.New()
	emulator.Inject(brelliumtest.OpAuditRetrieve,
		brelliumtest.Status(503, "UNAVAILABLE"),
		brelliumtest.Status(429, "RATE_LIMITED").WithHeader("Retry-After", "1"))
	client, err := emulator.Client(
		brellium.WithObserver(observer),
		brellium.WithLogger(slog.New(slog.NewTextHandler(logs, &slog.HandlerOptions{Level: slog.LevelDebug}))),
	)
	if err != nil {
		return err
	}

	// The client's spans become children of the caller's.
	ctx, span := tracers.Tracer("examples/telemetry").Start(ctx, "nightly review")
	defer span.End()
	audit, err := client.Audits.Retrieve(ctx, brelliumtest.SampleAuditID)
	if err != nil {
		return err
	}
	fmt.Fprintf(logs, "The audit has %d flags.\n", len(audit.Flags))
	return nil
}
