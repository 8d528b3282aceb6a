// Package brellium is a client of the Brellium v2 API, which audits clinical
// documentation.
//
//	client, err := brellium.NewClient() // credentials from the environment
//	audit, err := client.Audits.Retrieve(ctx, auditID)
//	for audit, err := range client.Audits.All(ctx, brellium.AuditListParams{Flags: []string{"Failed"}}) { … }
//
// A Client is made once and shared. It mints and renews access tokens, keeps
// in step with the organization's rate limit, and repeats what may be
// repeated. All its calls go the same way: the resource's method checks its
// values and names the operation; the core hands it to the one retry layer;
// each attempt waits for its turn, carries a fresh token, has a clock of its
// own, and reads its whole answer; one function judges what came of it.
//
// # What is repeated
//
// A refusal (429) changed nothing, so every call is sent again after the wait
// that the server asked for, up to 10 attempts. What certainly never reached
// the server is sent again too. After a 5xx, a timeout or a lost connection
// the request may have run: reads, flag updates and deletions are repeated
// with backoff, up to 5 attempts; Users.Create and EmailRecipients.Create are
// not, and Documents.Create only when every document has an external id. A
// call takes at most 60 seconds from its first attempt. A wait that would not
// fit, or that the context's deadline cannot cover, is not begun: the failure
// comes back at once. See WithMaxRetries, WithAttemptTimeout and
// WithTotalTimeout.
//
// # Errors
//
// Every error is a pointer to one of this package's types, to be asked for
// with errors.As: APIError for an error answer, ConnectionError for none,
// RetriesExhaustedError around either, BlockedError for a bare 403,
// DecodeError for a success that cannot be used, InterruptedError when the
// context ended, ValidationError for what was refused before sending,
// PaginationError and UploadError. ErrNotFound and its like match with
// errors.Is by class. IsTransient says whether trying again later may help,
// OutcomeUnknown whether a write may have run, and RetryAfter how long to
// wait.
//
// # Silence
//
// The data is protected health information. The client writes nothing unless
// given a logger or an observer, and what it then says, like the text of its
// errors, holds no token, secret, id, address, query string or body. An
// APIError's text includes the server's message; its LogValue does not.
//
// # Testing
//
// Package brelliumtest has an emulator of the API that runs in process, also
// under testing/synctest.
//
// This module is not an official product of Brellium. Where the API's
// documentation is silent, names are carried over from v1 or assumed, and say
// so.
package brellium
