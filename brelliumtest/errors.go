package brelliumtest

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/brellium/brellium-go"
)

// The errors in this file are for a fake of your own code that does not use the
// emulator. Most errors of package brellium can be written as literals, such as
// &brellium.APIError{StatusCode: 404}. These cannot, since whether a write may
// have taken effect is not an exported field: each is the error of a real call of
// an emulator's client. Their exported fields may be changed.

// OutcomeUnknownError returns an error of a write for which
// [brellium.OutcomeUnknown] reports true. With the status 0 the response was lost,
// which is a [brellium.ConnectionError]; with 408 or a 5xx it is a
// [brellium.APIError], and with a 2xx, whose body is HTML, a
// [brellium.DecodeError].
//
// It panics for an operation that is not a write, such as [OpUserList], and for
// any other status, since the outcome is known then.
func OutcomeUnknownError(operation string, status int) error {
	fault := DropBefore()
	switch {
	case status == 0:
	case status >= 200 && status <= 299:
		fault = HTML(status)
	case status == http.StatusRequestTimeout || status >= 500 && status <= 599:
		fault = Status(status, "")
	default:
		panic("brelliumtest: OutcomeUnknownError: the outcome is known after a status " + strconv.Itoa(status))
	}
	if !isWrite(operation) {
		panic("brelliumtest: OutcomeUnknownError: " + strconv.Quote(operation) + " is not a write")
	}
	err := failedCall(context.Background(), operation, fault)
	switch e := err.(type) {
	case *brellium.ConnectionError:
		e.Operation = operation
	case *brellium.APIError:
		e.Operation = operation
	case *brellium.DecodeError:
		e.Operation = operation
	}
	return err
}

// BlockedError returns the error of a call that was blocked, or if retryAt is not
// zero, of a client that has stopped until then.
func BlockedError(operation string, retryAt time.Time) *brellium.BlockedError {
	return &brellium.BlockedError{Operation: operation, RetryAt: retryAt}
}

// RetriesExhaustedError returns the error of a call that got a 503 to each of its 5
// attempts. The outcome of a write is unknown then.
func RetriesExhaustedError(operation string) *brellium.RetriesExhaustedError {
	// The call ends at once, since the wait would exceed its total time.
	fault := Status(http.StatusServiceUnavailable, "UNAVAILABLE").WithHeader("Retry-After", "86400")
	e := failedCall(context.Background(), operation, fault, brellium.WithIdempotent()).(*brellium.RetriesExhaustedError)
	e.Operation, e.Attempts, e.Elapsed, e.Reason = operation, 5, 5*time.Second, brellium.ExhaustedAttempts
	last := e.Err.(*brellium.APIError)
	last.Operation, last.RetryAfter = operation, 0
	last.Header.Del("Retry-After")
	return e
}

// InterruptedError returns the error of a call whose context ended with err, which
// is [context.Canceled] or [context.DeadlineExceeded], while a request was in
// flight. The outcome of a write is unknown then.
func InterruptedError(operation string, err error) *brellium.InterruptedError {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	fault := StallHeaders(0).When(func(*Request) bool { cancel(); return true })
	e := failedCall(ctx, operation, fault).(*brellium.InterruptedError)
	e.Operation, e.Err = operation, err
	return e
}

// failedCall makes a call of the kind of operation, which fails.
func failedCall(ctx context.Context, operation string, fault Fault, opts ...brellium.CallOption) error {
	if !injectable(operation) || operation == OpAny {
		panic("brelliumtest: there is no operation " + strconv.Quote(operation))
	}
	method, op := http.MethodGet, OpUserList
	if isWrite(operation) {
		method, op = http.MethodPost, OpUserCreate
	}
	e := New()
	e.Inject(op, fault)
	client, err := e.Client(brellium.WithoutRateLimiter())
	if err != nil {
		panic(err)
	}
	return client.Do(ctx, method, "/v2/users", nil, nil, opts...)
}

// isWrite reports whether an operation may change something.
func isWrite(name string) bool {
	return name == OpDocumentPut || slices.ContainsFunc(operations[:], func(o operation) bool {
		return o.name == name && o.method != http.MethodGet && name != OpTokenCreate
	})
}
