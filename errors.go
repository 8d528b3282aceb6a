package brellium

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/brellium/brellium-go/internal/redact"
	"github.com/brellium/brellium-go/internal/wire"
)

// Match these with [errors.Is]. A call that fails with an error response
// returns an [APIError], which matches by HTTP status, whatever its code.
var (
	// ErrNotFound matches an [APIError] with status 404, and the error of
	// [EmailRecipientService.FindByEmail] and of the Ensure methods where the
	// list does not contain the recipient or user.
	ErrNotFound = errors.New("brellium: not found")
	// ErrConflict matches an [APIError] with status 409.
	ErrConflict = errors.New("brellium: conflict")
	// ErrUnauthorized matches an [APIError] with status 401.
	ErrUnauthorized = errors.New("brellium: unauthorized")
	// ErrRateLimited matches an [APIError] with status 429, and an
	// [InterruptedError] for a wait that the rate limit requires.
	ErrRateLimited = errors.New("brellium: rate limited")
	// ErrServer matches an [APIError] with a 5xx status.
	ErrServer = errors.New("brellium: server error")
)

var (
	// ErrDoNotSend is for an [http.RoundTripper] of your own (see
	// [WithHTTPClient]), such as a circuit breaker: where its error matches
	// ErrDoNotSend, nothing was sent and the call ends without a retry.
	ErrDoNotSend = wire.ErrDoNotSend

	// ErrNoMorePages is returned by [Page.Next] on the last page.
	ErrNoMorePages = errors.New("brellium: no more pages")
)

// ErrorCode is the code of an error response. Branch on it, never on the
// message. The server may send codes that have no constant here.
type ErrorCode string

const (
	// CodeHTTPError stands for a response without the API's error envelope.
	CodeHTTPError ErrorCode = "HTTP_ERROR"
	// CodeRateLimited comes with a 429.
	CodeRateLimited ErrorCode = "RATE_LIMITED"
	// CodeInvalidContentType comes with a 400.
	CodeInvalidContentType ErrorCode = "INVALID_CONTENT_TYPE"
	// CodeInvitationPending comes with a 409 of POST /v2/users: the user has
	// been invited and has not signed in yet.
	CodeInvitationPending ErrorCode = "INVITATION_PENDING"
	// CodeUserExists comes with a 409 of POST /v2/users: the user has signed
	// in.
	CodeUserExists ErrorCode = "USER_EXISTS"
	// CodeEmailRecipientExists comes with a 409 of POST /v2/email_recipients.
	CodeEmailRecipientExists ErrorCode = "EMAIL_RECIPIENT_EXISTS"
	// CodeInviteFailed comes with a 502 of POST /v2/users: the user was kept,
	// the invitation was not sent, and another call sends it.
	CodeInviteFailed ErrorCode = "INVITE_FAILED"
	// CodeRevokeFailed comes with a 502 of DELETE /v2/users/{user_id}: the user
	// was kept.
	CodeRevokeFailed ErrorCode = "REVOKE_FAILED"
	// CodeBadGateway comes with a 502.
	CodeBadGateway ErrorCode = "BAD_GATEWAY"
	// CodeAccessDenied comes with the token endpoint's 403.
	CodeAccessDenied ErrorCode = "access_denied"
)

// APIError is an error response of the API: any status other than a 2xx or a
// bare 403. A bare 403 is a [BlockedError].
//
// Error, and every verb of package fmt, prints the operation, the status, the
// code, the server's message (on one line, at most 1,000 bytes) and the request
// id. LogValue and MarshalJSON leave the message out, since it may concern a
// patient; so does Error with [WithoutServerMessages]. Header and Body can be
// read by name and are never printed.
type APIError struct {
	// Operation is the operation's name, such as "audits.retrieve".
	Operation string
	// StatusCode is the HTTP status.
	StatusCode int
	// Type is the envelope's type, such as "rate_limit_error".
	Type string
	// Code is the envelope's code, or CodeHTTPError where there was none.
	Code ErrorCode
	// Message is the envelope's message, meant for people.
	Message string
	// RequestID is the x-request-id of the response, for Brellium's support.
	RequestID string
	// RetryAfter is the wait that the response asked for, 0 for none.
	RetryAfter time.Duration
	// RateLimit is from the RateLimit headers of the response.
	RateLimit RateLimit
	// Header is the header of the response.
	Header http.Header
	// Body is the body of the response, at most 64 KiB of it.
	Body []byte

	noMessage bool // WithoutServerMessages
	uncertain
}

// Error returns the operation, status, code, message, request id and wait.
func (e *APIError) Error() string {
	if e == nil {
		return nilText
	}
	s := "brellium: " + e.Operation + ": " + strconv.Itoa(e.StatusCode) + " " + string(e.Code)
	if e.Message != "" && !e.noMessage {
		s += ": " + redact.OneLine(e.Message)
	}
	if e.RequestID != "" {
		s += " (request id " + e.RequestID + ")"
	}
	if e.RetryAfter > 0 {
		s += "; retry after " + e.RetryAfter.Round(time.Second).String()
	}
	return s + e.note()
}

// Is matches [ErrNotFound], [ErrConflict], [ErrUnauthorized], [ErrRateLimited]
// and [ErrServer] by status.
func (e *APIError) Is(target error) bool {
	if e == nil {
		return false
	}
	switch target {
	case ErrNotFound:
		return e.StatusCode == http.StatusNotFound
	case ErrConflict:
		return e.StatusCode == http.StatusConflict
	case ErrUnauthorized:
		return e.StatusCode == http.StatusUnauthorized
	case ErrRateLimited:
		return e.StatusCode == http.StatusTooManyRequests
	case ErrServer:
		return e.StatusCode >= 500 && e.StatusCode <= 599
	}
	return false
}

// BlockedError reports a 403 without a JSON body (a "bare 403"): a firewall
// rejected the request before it reached the API, for too many requests from
// one address or for security reasons. It is never retried, since retries keep
// the block in force. Pause and lower the concurrency. The token stays valid.
type BlockedError struct {
	// Operation is the operation's name.
	Operation string
	// RetryAt is zero after a first block. Once the client has stopped, it is
	// when the client will send again; until then calls fail with this error
	// and send nothing. See [WithBlockCooldown].
	RetryAt time.Time

	uncertain
}

// Error returns the operation, and the time of the next attempt if the client
// has stopped.
func (e *BlockedError) Error() string {
	if e == nil {
		return nilText
	}
	s := "brellium: " + e.Operation + ": blocked by a bare 403; pause and lower concurrency"
	if !e.RetryAt.IsZero() {
		s += "; sending stops until " + e.RetryAt.UTC().Format(time.RFC3339)
	}
	return s + e.note()
}

// ExhaustedReason says what ended a call that could have been retried.
type ExhaustedReason string

const (
	// ExhaustedAttempts: the limit of attempts was reached.
	ExhaustedAttempts ExhaustedReason = "attempts"
	// ExhaustedTotalTime: the total time was used up, or the next wait would
	// have exceeded it. Without a total time, as for files, the limit is a wait
	// of 5 minutes.
	ExhaustedTotalTime ExhaustedReason = "total time"
	// ExhaustedDeadline: the next wait would have passed the deadline of the
	// caller's context.
	ExhaustedDeadline ExhaustedReason = "deadline"
)

// RetriesExhaustedError says that a call could have been retried, but that the
// limit of attempts, the total time or the caller's deadline ended it. It
// unwraps to the failure of the last attempt, and matches
// [context.DeadlineExceeded] where the reason is [ExhaustedDeadline].
type RetriesExhaustedError struct {
	// Operation is the operation's name.
	Operation string
	// Attempts is how many requests were sent, the first included.
	Attempts int
	// Elapsed is the time since the first attempt began.
	Elapsed time.Duration
	// Reason says what ended the call.
	Reason ExhaustedReason
	// Err is the failure of the last attempt.
	Err error

	uncertain
}

// Error returns the operation, the attempts, the time taken, the reason, and
// the text of the last failure.
func (e *RetriesExhaustedError) Error() string {
	if e == nil {
		return nilText
	}
	return "brellium: " + e.Operation + ": retries exhausted after " + plural(e.Attempts, "attempt") + " in " +
		e.Elapsed.Round(time.Millisecond).String() + " (" + e.Reason.text() + ")" + suffix(": ", e.Err)
}

func (r ExhaustedReason) text() string {
	switch r {
	case ExhaustedAttempts:
		return "attempt limit reached"
	case ExhaustedTotalTime:
		return "the next attempt would be too late"
	case ExhaustedDeadline:
		return "the next attempt would start after the deadline"
	}
	return string(r)
}

// Unwrap returns the failure of the last attempt.
func (e *RetriesExhaustedError) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.Err
}

// Is matches context.DeadlineExceeded where the caller's deadline ended the
// call.
func (e *RetriesExhaustedError) Is(target error) bool {
	return e != nil && target == context.DeadlineExceeded && e.Reason == ExhaustedDeadline
}

// ConnectionError says that an attempt got no usable response: the dial or the
// TLS handshake failed, the connection was reset, the response was cut off, or
// the attempt timed out. It unwraps to the cause, whose text contains no URL
// and which is [os.ErrDeadlineExceeded] where the attempt timed out: the errors
// of package context always mean the caller's own context.
type ConnectionError struct {
	// Operation is the operation's name.
	Operation string
	// Reason is a short fixed text, such as "connection refused". It names an
	// API host that does not exist, and the type of an error that only a
	// transport of the caller's own knows.
	Reason string
	// Sent is false where it is certain that the request never reached the
	// server, or was not processed by the rules of HTTP/2.
	Sent bool
	// Err is the cause. Its text quotes nothing of the request. errors.Is
	// matches any error in it; errors.As finds *net.OpError, *net.DNSError,
	// syscall.Errno, the certificate and handshake errors of crypto/tls and
	// crypto/x509, and the types of a transport of your own.
	Err error

	uncertain
	final   bool
	timeout bool
}

// Error returns the operation and the reason.
func (e *ConnectionError) Error() string {
	if e == nil {
		return nilText
	}
	return "brellium: " + e.Operation + ": " + e.Reason + e.note()
}

// Unwrap returns the cause.
func (e *ConnectionError) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.Err
}

// Timeout reports whether the attempt timed out.
func (e *ConnectionError) Timeout() bool { return e != nil && e.timeout }

// DecodeError says that a 2xx response cannot be used: its body is empty, HTML
// instead of JSON, invalid JSON, or JSON of another shape, such as a list
// without data, a resource without its id, or a token response without a token,
// or the body is larger than 64 MiB. Its text names the field that is missing
// and the keys that are there, and quotes no value. Header and Body can be read
// by name and are never printed.
type DecodeError struct {
	// Operation is the operation's name.
	Operation string
	// StatusCode is the HTTP status.
	StatusCode int
	// RequestID is the x-request-id of the response.
	RequestID string
	// Reason says what is wrong, and names the field where there is one.
	Reason string
	// Header is the header of the response.
	Header http.Header
	// Body is the body of the response, at most 64 KiB of it. It is nil for a
	// token response.
	Body []byte

	uncertain
}

// Error returns the operation, status, reason and request id.
func (e *DecodeError) Error() string {
	if e == nil {
		return nilText
	}
	s := "brellium: " + e.Operation + ": cannot use the response (status " + strconv.Itoa(e.StatusCode) + "): " + e.Reason
	if e.RequestID != "" {
		s += " (request id " + e.RequestID + ")"
	}
	return s + e.note()
}

// PaginationError says that a list could not be read to its end: a cursor was
// repeated, HasMore was true but there was no cursor, a page does not say
// whether another follows, or a page after the first could not be fetched. In
// the last case the error unwraps to the reason.
//
// Listing again with Cursor resumes where the list stopped: at the page that
// could not be fetched, or at the page whose link is wrong.
type PaginationError struct {
	// Operation is the operation's name.
	Operation string
	// Reason says what is wrong.
	Reason string
	// Cursor is the cursor to resume from. It is never printed.
	Cursor string
	// Err is why the page could not be fetched; nil for a wrong cursor.
	Err error
}

// Error returns the operation, the reason, and the text of the cause.
func (e *PaginationError) Error() string {
	if e == nil {
		return nilText
	}
	return "brellium: " + e.Operation + ": " + e.Reason + suffix(": ", e.Err)
}

// Unwrap returns why the page could not be fetched.
func (e *PaginationError) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.Err
}

// UploadError says that a file did not arrive in storage. Another Upload sends
// only the files that have not arrived.
type UploadError struct {
	// ExternalID is the document's external id. It is never printed.
	ExternalID string
	// StatusCode is the storage host's status, 0 without a response.
	StatusCode int
	// Code is the storage host's error code, such as "AccessDenied".
	Code string
	// Expired is true where the upload URL had expired.
	Expired bool
	// Err is the cause.
	Err error

	reason string
}

// Error returns the reason, the status and code of the storage host, and the
// text of the cause.
func (e *UploadError) Error() string {
	if e == nil {
		return nilText
	}
	s := "brellium: documents.put: upload failed"
	if e.reason != "" {
		s += ": " + e.reason
	}
	if e.StatusCode != 0 {
		s += ": status " + strconv.Itoa(e.StatusCode)
	}
	if e.Code != "" {
		s += " " + e.Code
	}
	if e.Expired {
		s += ": the upload URL has expired"
	}
	return s + suffix(": ", e.Err)
}

// Unwrap returns the cause.
func (e *UploadError) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.Err
}

// InterruptedError says that the caller's context ended the call, or that its
// deadline is too near for a wait that the call needs. The call then ends at
// once with a Wait above 0, while ctx.Err() is still nil; where the rate limit
// requires the wait, the error also matches [ErrRateLimited].
//
// It always matches the context's error, [context.Canceled] or
// [context.DeadlineExceeded], and the context's cause; it unwraps to the last
// failure, if there was one.
type InterruptedError struct {
	// Operation is the operation's name.
	Operation string
	// Attempts is how many requests were sent.
	Attempts int
	// Wait is how long the call would have had to wait, for the rate limit or
	// before its next step, where the deadline is too near for that; otherwise
	// 0.
	Wait time.Duration
	// Err is the context's error.
	Err error
	// Last is the failure of the last attempt before the context ended, or nil.
	Last error

	cause       redact.Sealed[error] // of the end of the context
	rateLimited bool                 // the rate limit requires the wait
	uncertain
}

// Error returns the operation, the wait or the number of attempts, and the text
// of the context's error and of the last failure.
func (e *InterruptedError) Error() string {
	if e == nil {
		return nilText
	}
	s := "brellium: "
	if e.Operation != "" {
		s += e.Operation + ": "
	}
	if e.Wait > 0 {
		why := "not sent: "
		if e.Attempts > 0 {
			why = "not continued: "
		}
		if e.rateLimited {
			why += "the rate limit requires "
		}
		s += why + "a wait of " + e.Wait.Round(time.Millisecond).String() + ", longer than the deadline allows"
	} else if e.rateLimited {
		s += "not sent: the rate limit requires a wait longer than the deadline allows"
	} else {
		s += "interrupted after " + plural(e.Attempts, "attempt")
	}
	return s + suffix(": ", e.Err) + e.note() + suffix("; last failure: ", e.Last)
}

// Unwrap returns the last failure, or the context's error where there is none.
func (e *InterruptedError) Unwrap() error {
	if e == nil {
		return nil
	}
	if e.Last != nil {
		return e.Last
	}
	return e.Err
}

// Is matches the context's error, the context's cause, and [ErrRateLimited]
// where the rate limit requires a wait that the deadline does not allow.
func (e *InterruptedError) Is(target error) bool {
	return e != nil && (e.rateLimited && target == ErrRateLimited || errors.Is(e.Err, target) || errors.Is(e.cause.Open(), target))
}

// ValidationError says that a value was rejected before anything was sent.
type ValidationError struct {
	// Field names the parameter, field or option.
	Field string
	// Reason says what is wrong with it, without quoting it.
	Reason string
}

// Error returns the field and the reason.
func (e *ValidationError) Error() string {
	if e == nil {
		return nilText
	}
	if e.Reason == noCredentials {
		return "brellium: no " + e.Field + ": " + e.Reason
	}
	return "brellium: invalid " + e.Field + ": " + e.Reason
}

// IsTransient reports whether a later call may succeed: after a 429, a 5xx, a
// 408, a failed connection, or a wait that the caller's deadline did not allow.
// It is false for any other error response, a block, the caller's own
// cancellation or deadline, a certificate that cannot be verified, a proxy that
// rejects the client with a 403 or a 407, and invalid input. For a
// [RetriesExhaustedError], the result is that of the error it wraps. For a
// write it does not say that a retry does no harm: see [OutcomeUnknown].
func IsTransient(err error) bool {
	if e, ok := asType[*InterruptedError](err); ok {
		return e.Wait > 0 || e.rateLimited
	}
	if e, ok := asType[*APIError](err); ok {
		return e.StatusCode == http.StatusTooManyRequests || e.StatusCode == http.StatusRequestTimeout || e.StatusCode >= 500
	}
	if e, ok := asType[*ConnectionError](err); ok {
		return !e.final
	}
	return false
}

// OutcomeUnknown reports whether a write may have taken effect although the
// call failed: the response was a 5xx or was lost, the call was canceled or
// timed out after bytes were sent, or a 2xx could not be decoded. Check whether
// it took effect before sending it again, for example by looking the user up.
// It is always false for reads.
func OutcomeUnknown(err error) bool {
	if isNil(err) {
		return false
	}
	switch e := err.(type) {
	case interface{ outcomeUnknown() bool }:
		if e.outcomeUnknown() {
			return true
		}
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		return OutcomeUnknown(e.Unwrap())
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), OutcomeUnknown)
	}
	return false
}

// RetryAfter returns how long to wait before trying again, and whether that is
// known: the Retry-After of an [APIError], the Wait of an [InterruptedError],
// or the time until RetryAt of a [BlockedError].
func RetryAfter(err error) (time.Duration, bool) {
	if e, ok := asType[*APIError](err); ok && e.RetryAfter > 0 {
		return e.RetryAfter, true
	}
	if e, ok := asType[*InterruptedError](err); ok && e.Wait > 0 {
		return e.Wait, true
	}
	if e, ok := asType[*BlockedError](err); ok && !e.RetryAt.IsZero() {
		return max(time.Until(e.RetryAt), 0), true
	}
	return 0, false
}

// asType is errors.AsType, which the oldest supported Go does not have, and
// finds no nil pointer.
func asType[E error](err error) (E, bool) {
	var e E
	ok := errors.As(err, &e) && !isNil(e)
	return e, ok
}

// nilText is the text of an error that is a nil pointer.
const nilText = "<nil>"

// suffix returns the text of err after a separator, "" if err is nil.
func suffix(separator string, err error) string {
	if err == nil {
		return ""
	}
	return separator + err.Error()
}

// uncertain is embedded by the errors that can end a write. It says whether the
// write may have taken effect.
type uncertain struct{ mayHaveRun bool }

func (u uncertain) outcomeUnknown() bool { return u.mayHaveRun }

func (u *uncertain) setUncertain() { u.mayHaveRun = true }

// note is what OutcomeUnknown reports, as the end of an error's text.
func (u uncertain) note() string {
	if u.mayHaveRun {
		return "; outcome unknown: the request may have run"
	}
	return ""
}

func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return strconv.Itoa(n) + " " + word + "s"
}
