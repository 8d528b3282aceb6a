// Package brelliumotel shows what a [brellium.Client] does in OpenTelemetry:
// as spans, as metrics, and as trace context for the API.
//
//	observer, err := brelliumotel.NewObserver()
//	client, err := brellium.NewClient(brellium.WithObserver(observer))
//
// # Spans
//
// Each call is a span of kind client, named by its method and path template,
// such as "GET /v2/audits/{audit_id}", and each of its attempts a child span
// of the same name that counts its repeats in http.request.resend_count. A
// call span covers the waits too, in the queue of the rate limit and before
// repeats; each wait before a repeat, and each change of a block, is an event
// on it. An attempt span covers what went over the wire. Token requests are
// calls of their own, at the root of a trace, since one serves many callers;
// the upload of a file to storage is a child of the span in the context given
// to Upload.
//
// Spans have these attributes: http.request.method, url.template,
// server.address, server.port, http.response.status_code, error.type,
// http.request.resend_count, brellium.operation, brellium.verdict,
// brellium.attempts (a call's), brellium.queued (an attempt's, in seconds),
// brellium.error.code and brellium.request_id.
//
// # Metrics
//
// Those of an attempt and of a call are told apart by http.request.method,
// url.template, server.address, server.port and error.type, which is the
// status of an error answer, or a short fixed text where there was none.
//
//   - http.client.request.duration, a histogram in seconds: attempts. It has
//     http.response.status_code as well.
//   - brellium.client.calls, a counter, and brellium.client.call.duration, a
//     histogram in seconds: calls with all their attempts and waits.
//   - brellium.client.attempts, a counter, by brellium.verdict.
//   - brellium.client.waits, a counter, and brellium.client.wait.duration, a
//     histogram in seconds: the waits before repeats.
//   - brellium.client.queue.duration, a histogram in seconds: how long attempts
//     waited for a token, for a free place and for the rate limit.
//   - brellium.client.refusals, a counter: answers of 429.
//   - brellium.client.rate_limit.remaining, a gauge: what the last answer said
//     can still be sent right now.
//   - brellium.client.mints, a counter: token requests with all their attempts.
//   - brellium.client.blocks, a counter, by brellium.block ("watch", "stopped",
//     "lifted").
//   - brellium.client.limiter.mode, a gauge that is 1 for the limiter's mode,
//     in brellium.limiter.mode, and 0 for the others. Clients that share an
//     observer overwrite each other's.
//   - brellium.client.token_store, a counter, by brellium.token_store ("down",
//     "up"): changes of the token store's state.
//
// # What is not told
//
// No span, event, metric or attribute holds a token, a secret, an id of a path,
// a query string, an email address, a body, an upload URL or the message of an
// error. url.full is never set.
//
// The headers of the propagator are sent to the API, and to nobody else. With
// [propagation.Baggage] among them that is all of the context's baggage: keep
// patients' data out of it, or give [WithPropagator] one without baggage.
//
// Do not put an instrumented transport (otelhttp) under the client as well: it
// would put full URLs into spans, and count every attempt twice.
package brelliumotel
