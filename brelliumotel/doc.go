// Package brelliumotel reports the calls of a [brellium.Client] to
// OpenTelemetry as spans and metrics, and sends trace context to the API.
//
//	observer, err := brelliumotel.NewObserver()
//	client, err := brellium.NewClient(brellium.WithObserver(observer))
//
// # Spans
//
// Each call is a client span named after its method and path template, such as
// "GET /v2/audits/{audit_id}". Each attempt is a child span with the same name;
// http.request.resend_count is set on retries. The call span includes all
// waits. Each wait before a retry, and each change of a block, is an event on
// it. An attempt span covers one HTTP exchange. Token requests are separate
// calls and start their own traces, because one serves many callers. The
// upload of a file to storage is a child of the span in the context passed to
// [brellium.DocumentService.Upload].
//
// Spans have these attributes: http.request.method, url.template,
// server.address, server.port, http.response.status_code, error.type,
// http.request.resend_count, brellium.operation, brellium.verdict,
// brellium.attempts (a call's), brellium.queued (an attempt's, in seconds),
// brellium.error.code and brellium.request_id.
//
// # Metrics
//
// Metrics of calls and attempts have the attributes http.request.method,
// url.template, server.address and server.port. Failed ones have error.type:
// the status of the response or, without a response, a short fixed text.
//
//   - http.client.request.duration, a histogram in seconds of attempts, with
//     http.response.status_code.
//   - brellium.client.calls, a counter, and brellium.client.call.duration, a
//     histogram in seconds. A call includes all its attempts and waits.
//   - brellium.client.attempts, a counter, by brellium.verdict.
//   - brellium.client.waits, a counter, and brellium.client.wait.duration, a
//     histogram in seconds, of the waits before retries.
//   - brellium.client.queue.duration, a histogram in seconds of the time that
//     attempts waited for a token, a concurrency slot and the rate limit.
//   - brellium.client.rate_limited, a counter of 429 responses.
//   - brellium.client.rate_limit.remaining, a gauge of RateLimit-Remaining in
//     the last response.
//   - brellium.client.mints, a counter of calls for an access token.
//   - brellium.client.blocks, a counter, by brellium.block ("watch", "stopped",
//     "lifted").
//   - brellium.client.limiter.mode, a gauge that is 1 for the limiter's current
//     mode, in brellium.limiter.mode, and 0 for the others. Clients that share
//     an observer overwrite each other's.
//   - brellium.client.token_store, a counter of state changes of the token
//     store, by brellium.token_store ("down", "up").
//
// # Privacy
//
// No span, event, metric or attribute contains a token, secret, id from a path,
// query string, email address, body, upload URL or error message. url.full is
// never set.
//
// The propagator's headers are sent to the API only. [propagation.Baggage]
// sends all of the context's baggage: keep patient data out of it, or pass
// [WithPropagator] a propagator without baggage.
//
// Do not also use an instrumented transport such as otelhttp in the client. It
// would put full URLs into spans and count every attempt twice.
package brelliumotel
