// Package brellium is a Go client for the Brellium v2 API, which audits
// clinical documentation.
//
// # Getting started
//
// Create one [Client] with [NewClient] and share it. A Client is safe for
// concurrent use, and does not need to be closed.
//
//	client, err := brellium.NewClient() // credentials from the environment
//	if err != nil {
//		return err
//	}
//	audit, err := client.Audits.Retrieve(ctx, auditID)
//	if err != nil {
//		return err
//	}
//	for audit, err := range client.Audits.All(ctx, brellium.AuditListParams{Flags: []string{"Failed"}}) {
//		…
//	}
//
// The API's resources are the fields of the Client: Audits, Documents, Users,
// EmailRecipients and OAuth. [Client.Do] calls an endpoint that has no method
// yet. The examples below run against the emulator of package brelliumtest; with
// NewClient the code is the same.
//
// # One call
//
// Every call takes the same path. The method validates its arguments. Each
// attempt then waits for the rate limit, sends a valid access token, has its own
// timeout, and reads the whole response. The result of the attempt decides
// whether the call succeeds, is retried, or fails. The client fetches and renews
// access tokens itself.
//
// # Retries
//
// What is retried depends on whether the request may have run on the server:
//
//   - It did not run: it never reached the server, or it was rate limited (429).
//     Every call is retried.
//   - It may have run: a 5xx, a 408, a timeout, or a lost connection. A call is
//     retried only where running it twice does no harm: reads, flag updates,
//     deletions, and [DocumentService.Create] if every document has an external
//     id. [UserService.Create] and [EmailRecipientService.Create] are not retried;
//     their Ensure methods resolve the outcome.
//
// These are the transient failures that the methods' documentation refers to. By
// default a call is retried up to 4 times after them, with exponential backoff and
// jitter. Counted separately, a rate-limited call is retried after the wait that
// the server asks for, as often as the total time allows. Uploads make up to 5
// attempts per file, and token requests 3. After a 401 a call is retried once with
// a new token, unless the token is fixed ([WithAccessToken]), and once more if that
// token was from a [TokenStore] and is rejected too. Other responses are not
// retried.
//
// An attempt may take 30 s, and a call 60 s from its first attempt. File uploads
// have only an idle timeout (60 s); token requests have 10 s and 15 s. A wait that
// would exceed these limits, or the deadline of the context, is not started: the
// call fails at once. [WithMaxRetries], [WithAttemptTimeout] and [WithTotalTimeout]
// change these limits, for the client or for one call. [WithIdempotent] on a call
// allows retries after any transient failure.
//
// One program may need several sets of limits: [Client.With] derives a client that
// shares everything but its options. A nightly job that must wait out an hour of
// 502s uses
//
//	job, err := client.With(brellium.WithMaxRetries(1000), brellium.WithTotalTimeout(2*time.Hour))
//
// # Errors of a call
//
// Every call may return these types. Match them with [errors.As]:
//
//   - [*ValidationError]: an argument or option is invalid. Nothing was sent.
//   - [*APIError]: an error response, with its status, code and request id.
//   - [*ConnectionError]: no usable response. The dial failed, the connection was
//     lost, or the attempt timed out.
//   - [*RetriesExhaustedError]: the call could have been retried, but the
//     attempts, the total time or the context's deadline ran out. It wraps the
//     last failure.
//   - [*BlockedError]: a 403 without a JSON body (a "bare 403"). The request was
//     blocked before it reached the API. Send less; the client slows down and
//     then stops for a while.
//   - [*DecodeError]: a 2xx response that cannot be used: not JSON, or of another
//     shape, such as a list without data or a resource without its id.
//   - [*InterruptedError]: the context ended, or its deadline is too close for a
//     wait that the call needs. It matches [context.Canceled] or
//     [context.DeadlineExceeded] and wraps the last failure. Where the rate limit
//     requires the wait it also matches [ErrRateLimited].
//
// An error of the token request is returned as the error of the call. Lists also
// return [*PaginationError], and uploads [*UploadError].
//
// Match a class of API errors with [errors.Is]: [ErrNotFound], [ErrConflict],
// [ErrUnauthorized], [ErrRateLimited] and [ErrServer]. Three functions work on any
// error: [IsTransient] reports whether trying again later may help,
// [OutcomeUnknown] whether a write may have taken effect, and [RetryAfter] returns
// how long to wait before trying again, if known.
//
// An HTTP handler that calls the API should check in this order:
//
//   - [OutcomeUnknown], for a write.
//   - [ErrRateLimited]: respond 503, with a Retry-After from [RetryAfter]. It
//     includes a wait that the handler's deadline does not allow; the handler's
//     context has not ended yet.
//   - [context.DeadlineExceeded]: respond 504.
//   - [context.Canceled]: the caller has disconnected.
//   - [APIError] and the other types.
//
// # Logging and protected health information
//
// The client writes nothing unless it is given a logger ([WithLogger]) or an
// observer ([WithObserver]). They receive no token, secret, resource id, email
// address, query string or body. Error texts contain none of these either, with
// one exception: [APIError.Error] includes the server's message, which may be
// about a patient. Log errors as attributes, which leaves the message out; see
// [SafeLogValue].
//
// # Testing
//
// Package brelliumtest emulates the API in process. It opens no socket, so it
// works under testing/synctest, where waits take no real time.
//
// # Status
//
// This module is not an official product of Brellium. Where the API's
// documentation is silent, names are carried over from v1 or assumed; the
// documentation of each says so. Fields of another kind than assumed are
// converted or left empty, and [WithStrictDecoding] finds them. Until a new
// version knows what has changed, use RawJSON, [WithQuery], [WithBodyField] and
// [Client.Do]: see docs/if-the-api-differs.md in the repository.
package brellium
