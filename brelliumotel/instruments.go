package brelliumotel

import (
	"errors"

	"go.opentelemetry.io/otel/metric"
)

// Durations from some milliseconds up to the longest wait of a call.
var buckets = []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60}

func (o *observer) makeInstruments(m metric.Meter) error {
	var all error
	counter := func(name, unit, description string) metric.Int64Counter {
		c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description))
		all = errors.Join(all, err)
		return c
	}
	seconds := func(name, description string) metric.Float64Histogram {
		h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description), metric.WithExplicitBucketBoundaries(buckets...))
		all = errors.Join(all, err)
		return h
	}
	gauge := func(name, unit, description string) metric.Int64Gauge {
		g, err := m.Int64Gauge(name, metric.WithUnit(unit), metric.WithDescription(description))
		all = errors.Join(all, err)
		return g
	}
	o.requestDuration = seconds("http.client.request.duration", "Duration of HTTP client requests.")
	o.calls = counter("brellium.client.calls", "{call}", "Calls, each with all its attempts.")
	o.callDuration = seconds("brellium.client.call.duration", "Duration of calls with all their attempts and waits.")
	o.attempts = counter("brellium.client.attempts", "{attempt}", "Attempts, of which a call has one or more.")
	o.waits = counter("brellium.client.waits", "{wait}", "Waits before an attempt is repeated.")
	o.waitDuration = seconds("brellium.client.wait.duration", "Length of the waits before an attempt is repeated.")
	o.queueDuration = seconds("brellium.client.queue.duration", "Time that attempts waited for a token, for a free place and for the rate limit.")
	o.refusals = counter("brellium.client.refusals", "{refusal}", "Answers of 429.")
	o.remaining = gauge("brellium.client.rate_limit.remaining", "{request}", "Requests that could still be sent, as the last answer said.")
	o.mints = counter("brellium.client.mints", "{mint}", "Requests for an access token, each with all its attempts.")
	o.blocks = counter("brellium.client.blocks", "{block}", "Changes of the state that bare 403 answers put the client in.")
	o.limiterMode = gauge("brellium.client.limiter.mode", "1", "1 for the limiter's mode, 0 for the others.")
	o.tokenStore = counter("brellium.client.token_store", "{change}", "Changes of the token store's state.")
	return all
}
