package brelliumotel

import (
	"errors"

	"go.opentelemetry.io/otel/metric"
)

// buckets, in seconds, range from fast responses to the longest waits.
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
	o.callDuration = seconds("brellium.client.call.duration", "Duration of calls, including all attempts and waits.")
	o.attempts = counter("brellium.client.attempts", "{attempt}", "Attempts. A call has one or more.")
	o.waits = counter("brellium.client.waits", "{wait}", "Waits before a retry.")
	o.waitDuration = seconds("brellium.client.wait.duration", "Duration of waits before a retry.")
	o.queueDuration = seconds("brellium.client.queue.duration", "Time attempts waited for a token, a concurrency slot and the rate limit.")
	o.rateLimited = counter("brellium.client.rate_limited", "{response}", "429 responses.")
	o.remaining = gauge("brellium.client.rate_limit.remaining", "{request}", "RateLimit-Remaining of the last response.")
	o.mints = counter("brellium.client.mints", "{mint}", "Calls for an access token, each with all its attempts.")
	o.blocks = counter("brellium.client.blocks", "{block}", "Changes of the client's block state after bare 403 responses.")
	o.limiterMode = gauge("brellium.client.limiter.mode", "1", "1 for the limiter's mode, 0 for the others.")
	o.tokenStore = counter("brellium.client.token_store", "{change}", "State changes of the token store.")
	return all
}
