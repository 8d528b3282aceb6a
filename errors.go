package brellium

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/brellium/brellium-go/internal/wire"
)

// Sentinels that errors.Is matches by class, whatever the code. They carry
// nothing themselves: what comes back is an *APIError (or an error that wraps
// one), with its message and request id, but for ErrNotFound of
// EmailRecipients.FindByEmail, where the API has answered that it knows none.
var (
	// ErrNotFound matches an APIError with status 404, and the error of
	// EmailRecipients.FindByEmail where the list has no such recipient.
	ErrNotFound = errors.New("brellium: not found")
	// ErrConflict matches an APIError with status 409.
	ErrConflict = errors.New("brellium: conflict")
	// ErrUnauthorized matches an APIError with status 401.
	ErrUnauthorized = errors.New("brellium: unauthorized")
	// ErrRateLimited matches an APIError with status 429.
	ErrRateLimited = errors.New("brellium: rate limited")
	// ErrServer matches an APIError with a 5xx status.
	ErrServer = errors.New("brellium: server error")

	// ErrDoNotSend is for an http.RoundTripper of your own (see
	// WithHTTPClient): an error of it that matches ErrDoNotSend says that
	// nothing was sent and that sending again would not help, as an open
	// circuit breaker does. The call then ends at once.
	ErrDoNotSend = wire.ErrDoNotSend

	// ErrNoMorePages is what Page.Next returns on the last page.
	ErrNoMorePages = errors.New("brellium: no more pages")
)

// ErrorCode is the code of an error answer: branch on it, never on the
// message. The server may send codes that have no constant here.
type ErrorCode string

const (
	// CodeHTTPError stands for an answer without the API's error envelope.
	CodeHTTPError ErrorCode = "HTTP_ERROR"
	// CodeRateLimited comes with a 429.
	CodeRateLimited ErrorCode = "RATE_LIMITED"
	// CodeInvalidContentType comes with a 400.
	CodeInvalidContentType ErrorCode = "INVALID_CONTENT_TYPE"
	// CodeInvitationPending comes with a 409 of POST /v2/users: the user has
	// been invited and has not signed in yet.
	CodeInvitationPending ErrorCode = "INVITATION_PENDING"
	// CodeUserExists comes with a 409 of POST /v2/users: the user has signed in.
	CodeUserExists ErrorCode = "USER_EXISTS"
	// CodeEmailRecipientExists comes with a 409 of POST /v2/email_recipients.
	CodeEmailRecipientExists ErrorCode = "EMAIL_RECIPIENT_EXISTS"
	// CodeInviteFailed comes with a 502 of POST /v2/users: the user was kept,
	// the invitation was not sent, and calling again sends it.
	CodeInviteFailed ErrorCode = "INVITE_FAILED"
	// CodeRevokeFailed comes with a 502 of DELETE /v2/users/{user_id}: the user
	// was kept.
	CodeRevokeFailed ErrorCode = "REVOKE_FAILED"
	// CodeBadGateway comes with a 502.
	CodeBadGateway ErrorCode = "BAD_GATEWAY"
	// CodeAccessDenied comes with the token endpoint's 403.
	CodeAccessDenied ErrorCode = "access_denied"
)

// APIError is an error answer of the API.
//
// Error, and every verb of package fmt, give the operation, the status, the
// code, the server's message (on one line, at most 1,000 bytes of it) and the
// request id. LogValue and MarshalJSON
// leave the message out, since it may speak of a patient. Header and Body are
// there to be read by name and never printed.
type APIError struct {
	// Operation is the operation's name, such as "audits.retrieve".
	Operation string
	// StatusCode is the HTTP status.
	StatusCode int
	// Type is the envelope's type, such as "rate_limit_error".
	Type string
	// Code is the envelope's code, or CodeHTTPError where there was none.
	Code ErrorCode
	// Message is the envelope's message, for people.
	Message string
	// RequestID is the x-request-id of the answer, for Brellium's support.
	RequestID string
	// RetryAfter is the wait that the answer asked for, 0 if it asked for none.
	RetryAfter time.Duration
	// RateLimit is what the answer's RateLimit headers said.
	RateLimit RateLimit
	// Header is the answer's header.
	Header http.Header
	// Body is the answer's body, at most 64 KiB of it.
	Body []byte

	mayHaveRun bool
}

func (e *APIError) Error() string {
	s := "brellium: " + e.Operation + ": " + strconv.Itoa(e.StatusCode) + " " + string(e.Code)
	if e.Message != "" {
		s += ": " + oneLine(e.Message)
	}
	if e.RequestID != "" {
		s += " (request id " + e.RequestID + ")"
	}
	return s + unknownNote(e.mayHaveRun)
}

// Is matches the sentinels ErrNotFound, ErrConflict, ErrUnauthorized,
// ErrRateLimited and ErrServer by status.
func (e *APIError) Is(target error) bool {
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

// BlockedError is a bare 403: the request was refused before it reached the
// API, for too many requests from one address or for security reasons. It is
// never retried, since a retry loop keeps the block in place. Pause and lower
// the concurrency. The token stays valid.
type BlockedError struct {
	// Operation is the operation's name.
	Operation string
	// RetryAt is zero after a first block. Once the client has stopped it is
	// when the client will send again; until then calls fail with this error
	// and send nothing.
	RetryAt time.Time

	mayHaveRun bool
}

func (e *BlockedError) Error() string {
	s := "brellium: " + e.Operation + ": blocked by a bare 403; pause and lower concurrency"
	if !e.RetryAt.IsZero() {
		s += "; sending stops until " + e.RetryAt.UTC().Format(time.RFC3339)
	}
	return s + unknownNote(e.mayHaveRun)
}

// ExhaustedReason says what ended a call that was still worth repeating.
type ExhaustedReason string

const (
	// ExhaustedAttempts: the number of attempts was used up.
	ExhaustedAttempts ExhaustedReason = "attempts"
	// ExhaustedTotalTime: the total time was over, or the next wait would
	// have gone past it.
	ExhaustedTotalTime ExhaustedReason = "total time"
	// ExhaustedDeadline: the next wait would have gone past the deadline of
	// the caller's context.
	ExhaustedDeadline ExhaustedReason = "deadline"
)

// RetriesExhaustedError says that a call was worth repeating and that the
// number of attempts, the total time or the caller's deadline ended it. It
// unwraps to the failure of the last attempt.
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

	mayHaveRun bool
}

func (e *RetriesExhaustedError) Error() string {
	return "brellium: " + e.Operation + ": gave up after " + plural(e.Attempts, "attempt") + " in " +
		e.Elapsed.Round(time.Millisecond).String() + " (" + e.Reason.text() + "): " + e.Err.Error()
}

func (r ExhaustedReason) text() string {
	switch r {
	case ExhaustedAttempts:
		return "no attempt is left"
	case ExhaustedTotalTime:
		return "the next would not fit into the total time"
	case ExhaustedDeadline:
		return "the next would not fit before the deadline"
	}
	return string(r)
}

// Unwrap returns the failure of the last attempt.
func (e *RetriesExhaustedError) Unwrap() error { return e.Err }

// Is matches context.DeadlineExceeded where the caller's deadline ended the
// call.
func (e *RetriesExhaustedError) Is(target error) bool {
	return target == context.DeadlineExceeded && e.Reason == ExhaustedDeadline
}

// ConnectionError says that an attempt got no usable answer: the dial or the
// TLS handshake failed, the connection was reset, the answer was cut off, or
// the attempt timed out. It unwraps to the cause, which holds no URL, and which
// is os.ErrDeadlineExceeded where the attempt timed out: the errors of package
// context are left to the caller's own.
type ConnectionError struct {
	// Operation is the operation's name.
	Operation string
	// Reason is a short fixed text, such as "connection refused".
	Reason string
	// Sent is false where it is certain that the request never reached the
	// server.
	Sent bool
	// Err is the cause. Its text never quotes the request.
	Err error

	mayHaveRun bool
	final      bool
	timeout    bool
}

func (e *ConnectionError) Error() string {
	return "brellium: " + e.Operation + ": " + e.Reason + unknownNote(e.mayHaveRun)
}

// Unwrap returns the cause.
func (e *ConnectionError) Unwrap() error { return e.Err }

// Timeout reports whether the attempt ran out of its own time.
func (e *ConnectionError) Timeout() bool { return e.timeout }

// DecodeError says that a 2xx answer cannot be used: it was empty, a page
// instead of JSON, bad JSON, or a token answer without a token. It quotes
// nothing of the body.
type DecodeError struct {
	// Operation is the operation's name.
	Operation string
	// StatusCode is the HTTP status.
	StatusCode int
	// RequestID is the x-request-id of the answer.
	RequestID string
	// Reason says what is wrong, and names the field where it is one.
	Reason string

	mayHaveRun bool
}

func (e *DecodeError) Error() string {
	s := "brellium: " + e.Operation + ": cannot use the answer (status " + strconv.Itoa(e.StatusCode) + "): " + e.Reason
	if e.RequestID != "" {
		s += " (request id " + e.RequestID + ")"
	}
	return s + unknownNote(e.mayHaveRun)
}

// PaginationError says that a list could not be read to its end: a cursor
// repeats or circles, a page promises another without naming it, or a page
// after the first could not be fetched, in which case it unwraps to why.
// Listing again with Cursor goes on where the list stopped: with the page that
// could not be fetched, or else with the one whose link is wrong.
type PaginationError struct {
	// Operation is the operation's name.
	Operation string
	// Reason says what is wrong.
	Reason string
	// Cursor is the last good cursor. It is never printed.
	Cursor string
	// Err is why the page could not be fetched, nil for a wrong cursor.
	Err error
}

func (e *PaginationError) Error() string {
	if e.Err != nil {
		return "brellium: " + e.Operation + ": " + e.Reason + ": " + e.Err.Error()
	}
	return "brellium: " + e.Operation + ": " + e.Reason
}

// Unwrap returns why the page could not be fetched.
func (e *PaginationError) Unwrap() error { return e.Err }

// UploadError says that a file did not arrive in storage. Uploading again
// sends only what has not arrived.
type UploadError struct {
	// ExternalID is the document's external id. It is never printed.
	ExternalID string
	// StatusCode is the storage host's status, 0 without an answer.
	StatusCode int
	// Code is the storage host's error code, such as "AccessDenied".
	Code string
	// Expired is true where the upload URL had expired.
	Expired bool
	// Err is the cause.
	Err error

	reason string
}

func (e *UploadError) Error() string {
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
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *UploadError) Unwrap() error { return e.Err }

// InterruptedError says that the caller's context ended the call. It always
// matches the context's error, context.Canceled or context.DeadlineExceeded,
// and its cause; it unwraps to the last failure behind it, if there was one.
type InterruptedError struct {
	// Operation is the operation's name.
	Operation string
	// Attempts is how many requests had been sent.
	Attempts int
	// Wait is how long the call would have had to wait for the rate limit,
	// where that is what the deadline could not cover; else 0.
	Wait time.Duration
	// Err is the context's error.
	Err error
	// Last is the failure of the last attempt before the context ended, or nil.
	Last error

	cause      func() error // of the end of the context; a function as in hiddenError
	mayHaveRun bool
}

func (e *InterruptedError) Error() string {
	s := "brellium: "
	if e.Operation != "" {
		s += e.Operation + ": "
	}
	if e.Wait > 0 {
		s += "not begun: the rate limit asks for a wait of " + e.Wait.Round(time.Millisecond).String() +
			", more than the deadline allows: " + e.Err.Error()
	} else {
		s += "interrupted after " + plural(e.Attempts, "attempt") + ": " + e.Err.Error()
	}
	s += unknownNote(e.mayHaveRun)
	if e.Last != nil {
		s += "; last failure: " + e.Last.Error()
	}
	return s
}

// Unwrap returns the last failure, or else the context's error.
func (e *InterruptedError) Unwrap() error {
	if e.Last != nil {
		return e.Last
	}
	return e.Err
}

// Is matches the context's error and the context's cause.
func (e *InterruptedError) Is(target error) bool {
	return errors.Is(e.Err, target) || (e.cause != nil && errors.Is(e.cause(), target))
}

// ValidationError says that a value was refused before anything was sent.
type ValidationError struct {
	// Field names the parameter, field or option.
	Field string
	// Reason says what is wrong with it, without quoting it.
	Reason string
}

func (e *ValidationError) Error() string { return "brellium: invalid " + e.Field + ": " + e.Reason }

// IsTransient reports whether trying again later may help: a refusal (429), a
// 5xx or 408, a connection that failed. It is false for a rejection, a block,
// the caller's own cancellation or deadline, a certificate that does not
// verify, and for bad input. A RetriesExhaustedError is as transient as the
// failure behind it. For a write it does not say that a repeat is harmless: ask
// OutcomeUnknown too.
func IsTransient(err error) bool {
	if _, ok := asType[*InterruptedError](err); ok {
		return false
	}
	if e, ok := asType[*APIError](err); ok {
		return e.StatusCode == http.StatusTooManyRequests || e.StatusCode == http.StatusRequestTimeout || e.StatusCode >= 500
	}
	if e, ok := asType[*ConnectionError](err); ok {
		return !e.final
	}
	return false
}

// OutcomeUnknown reports whether err leaves open if a write took effect: the
// answer was a 5xx or was lost, the call was cancelled or timed out after
// bytes went out, or a 2xx could not be decoded. Reconcile before repeating:
// look the user up, say. It is always false for reads.
func OutcomeUnknown(err error) bool {
	switch e := err.(type) {
	case nil:
		return false
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

// RetryAfter returns the wait that the server asked for in the answer behind
// err, or that the rate limit or a block would have needed, and whether there
// was one.
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

// asType is errors.AsType, which the oldest supported Go does not have.
func asType[E error](err error) (E, bool) {
	var e E
	ok := errors.As(err, &e)
	return e, ok
}

func (e *APIError) outcomeUnknown() bool              { return e.mayHaveRun }
func (e *BlockedError) outcomeUnknown() bool          { return e.mayHaveRun }
func (e *RetriesExhaustedError) outcomeUnknown() bool { return e.mayHaveRun }
func (e *ConnectionError) outcomeUnknown() bool       { return e.mayHaveRun }
func (e *DecodeError) outcomeUnknown() bool           { return e.mayHaveRun }
func (e *InterruptedError) outcomeUnknown() bool      { return e.mayHaveRun }

// What follows keeps errors silent however they are printed: LogValue is the
// allowlist, fmt gives Error under every verb, and encoding/json what LogValue
// gives.

// LogValue gives the operation, status, type, code and request id.
func (e APIError) LogValue() slog.Value {
	return slog.GroupValue(slog.String("operation", e.Operation), slog.Int("status", e.StatusCode),
		slog.String("type", e.Type), slog.String("code", string(e.Code)), slog.String("request_id", e.RequestID))
}

// LogValue gives the operation and the time of the next attempt.
func (e BlockedError) LogValue() slog.Value {
	return slog.GroupValue(slog.String("operation", e.Operation), slog.Time("retry_at", e.RetryAt))
}

// LogValue gives the operation, the attempts, the time taken, the reason, and
// what is behind it.
func (e RetriesExhaustedError) LogValue() slog.Value {
	return slog.GroupValue(slog.String("operation", e.Operation), slog.Int("attempts", e.Attempts),
		slog.Duration("elapsed", e.Elapsed), slog.String("reason", string(e.Reason)), slog.Any("last", logError(e.Err)))
}

// LogValue gives the operation, the reason, and whether the request was sent.
func (e ConnectionError) LogValue() slog.Value {
	return slog.GroupValue(slog.String("operation", e.Operation), slog.String("reason", e.Reason), slog.Bool("sent", e.Sent))
}

// LogValue gives the operation, status, request id and reason.
func (e DecodeError) LogValue() slog.Value {
	return slog.GroupValue(slog.String("operation", e.Operation), slog.Int("status", e.StatusCode),
		slog.String("request_id", e.RequestID), slog.String("reason", e.Reason))
}

// LogValue gives the operation, the reason, and what is behind it.
func (e PaginationError) LogValue() slog.Value {
	return slog.GroupValue(slog.String("operation", e.Operation), slog.String("reason", e.Reason), slog.Any("last", logError(e.Err)))
}

// LogValue gives the status and code of the storage host, and what is behind
// it.
func (e UploadError) LogValue() slog.Value {
	return slog.GroupValue(slog.Int("status", e.StatusCode), slog.String("code", e.Code),
		slog.Bool("expired", e.Expired), slog.Any("last", logError(e.Err)))
}

// LogValue gives the operation, the attempts, the context's error, and what is
// behind it.
func (e InterruptedError) LogValue() slog.Value {
	return slog.GroupValue(slog.String("operation", e.Operation), slog.Int("attempts", e.Attempts),
		slog.String("context", e.Err.Error()), slog.Duration("wait", e.Wait), slog.Any("last", logError(e.Last)))
}

// LogValue gives the field and the reason.
func (e ValidationError) LogValue() slog.Value {
	return slog.GroupValue(slog.String("field", e.Field), slog.String("reason", e.Reason))
}

// Format prints Error under every verb.
func (e APIError) Format(s fmt.State, verb rune) { formatSafe(s, verb, e.Error()) }

// Format prints Error under every verb.
func (e BlockedError) Format(s fmt.State, verb rune) { formatSafe(s, verb, e.Error()) }

// Format prints Error under every verb.
func (e RetriesExhaustedError) Format(s fmt.State, verb rune) { formatSafe(s, verb, e.Error()) }

// Format prints Error under every verb.
func (e ConnectionError) Format(s fmt.State, verb rune) { formatSafe(s, verb, e.Error()) }

// Format prints Error under every verb.
func (e DecodeError) Format(s fmt.State, verb rune) { formatSafe(s, verb, e.Error()) }

// Format prints Error under every verb.
func (e PaginationError) Format(s fmt.State, verb rune) { formatSafe(s, verb, e.Error()) }

// Format prints Error under every verb.
func (e UploadError) Format(s fmt.State, verb rune) { formatSafe(s, verb, e.Error()) }

// Format prints Error under every verb.
func (e InterruptedError) Format(s fmt.State, verb rune) { formatSafe(s, verb, e.Error()) }

// MarshalJSON encodes what LogValue gives.
func (e APIError) MarshalJSON() ([]byte, error) { return marshalSafe(e) }

// MarshalJSON encodes what LogValue gives.
func (e BlockedError) MarshalJSON() ([]byte, error) { return marshalSafe(e) }

// MarshalJSON encodes what LogValue gives.
func (e RetriesExhaustedError) MarshalJSON() ([]byte, error) { return marshalSafe(e) }

// MarshalJSON encodes what LogValue gives.
func (e ConnectionError) MarshalJSON() ([]byte, error) { return marshalSafe(e) }

// MarshalJSON encodes what LogValue gives.
func (e DecodeError) MarshalJSON() ([]byte, error) { return marshalSafe(e) }

// MarshalJSON encodes what LogValue gives.
func (e PaginationError) MarshalJSON() ([]byte, error) { return marshalSafe(e) }

// MarshalJSON encodes what LogValue gives.
func (e UploadError) MarshalJSON() ([]byte, error) { return marshalSafe(e) }

// MarshalJSON encodes what LogValue gives.
func (e InterruptedError) MarshalJSON() ([]byte, error) { return marshalSafe(e) }

// unknownNote is what OutcomeUnknown says, as the end of an error's text.
func unknownNote(mayHaveRun bool) string {
	if mayHaveRun {
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
