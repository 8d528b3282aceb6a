package brellium

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"

	"github.com/brellium/brellium-go/internal/redact"
)

// What an error prints, logs and encodes, unasked, is decided here: package fmt
// prints Error under every verb, and LogValue lists the attributes that may be
// logged, which are also what encoding/json encodes. The rules for the texts
// are those of internal/redact.
//
// Nil pointers are printed as nil. Format and MarshalJSON have value receivers, so
// that a copy of an error hides as much as its pointer; packages fmt and
// encoding/json do not call them on a nil pointer.

// safeError is an error of this package, whose LogValue lists only what may be
// logged.
type safeError interface {
	error
	slog.LogValuer
	safe()
}

func (*APIError) safe()              {}
func (*BlockedError) safe()          {}
func (*RetriesExhaustedError) safe() {}
func (*ConnectionError) safe()       {}
func (*DecodeError) safe()           {}
func (*PaginationError) safe()       {}
func (*UploadError) safe()           {}
func (*InterruptedError) safe()      {}
func (*ValidationError) safe()       {}

// SafeLogValue returns what may be logged of err: for the first error of this
// package in its tree, what that error's LogValue lists, and for any other
// error its type alone. An error of this package that is logged as an attribute
// does this by itself; SafeLogValue is for an error that wraps one, whose text
// would contain the server's message.
//
//	slog.Error("nightly review failed", "error", brellium.SafeLogValue(err))
func SafeLogValue(err error) slog.Value { return slog.AnyValue(logError(err)) }

// logError is SafeLogValue as a value.
func logError(err error) any {
	if err == nil {
		return nil
	}
	var e safeError
	if errors.As(err, &e) {
		return e
	}
	return fmt.Sprintf("%T", err)
}

// known returns the attributes whose value is not zero.
func known(attrs ...slog.Attr) slog.Value {
	return slog.GroupValue(slices.DeleteFunc(attrs, func(a slog.Attr) bool {
		v := a.Value.Any()
		return v == nil || reflect.ValueOf(v).IsZero()
	})...)
}

// last is the error behind an error as an attribute.
func last(err error) slog.Attr { return slog.Any("last", logError(err)) }

// LogValue returns the operation, status, type, code, request id and RetryAfter, as
// far as they are set.
func (e *APIError) LogValue() slog.Value {
	if e == nil {
		return slog.Value{}
	}
	return known(slog.String("operation", e.Operation), slog.Int("status", e.StatusCode),
		slog.String("type", e.Type), slog.String("code", string(e.Code)),
		slog.String("request_id", e.RequestID), slog.Duration("retry_after", e.RetryAfter))
}

// LogValue returns the operation, and the time of the next attempt if the client
// has stopped.
func (e *BlockedError) LogValue() slog.Value {
	if e == nil {
		return slog.Value{}
	}
	return known(slog.String("operation", e.Operation), slog.Time("retry_at", e.RetryAt))
}

// LogValue returns the operation, the attempts, the time taken, the reason, and
// the error behind it.
func (e *RetriesExhaustedError) LogValue() slog.Value {
	if e == nil {
		return slog.Value{}
	}
	return known(slog.String("operation", e.Operation), slog.Int("attempts", e.Attempts),
		slog.Duration("elapsed", e.Elapsed), slog.String("reason", string(e.Reason)), last(e.Err))
}

// LogValue returns the operation, the reason, and whether the request was sent.
func (e *ConnectionError) LogValue() slog.Value {
	if e == nil {
		return slog.Value{}
	}
	attrs := known(slog.String("operation", e.Operation), slog.String("reason", e.Reason)).Group()
	return slog.GroupValue(append(attrs, slog.Bool("sent", e.Sent))...)
}

// LogValue returns the operation, status, request id and reason.
func (e *DecodeError) LogValue() slog.Value {
	if e == nil {
		return slog.Value{}
	}
	return known(slog.String("operation", e.Operation), slog.Int("status", e.StatusCode),
		slog.String("request_id", e.RequestID), slog.String("reason", e.Reason))
}

// LogValue returns the operation, the reason, and the error behind it.
func (e *PaginationError) LogValue() slog.Value {
	if e == nil {
		return slog.Value{}
	}
	return known(slog.String("operation", e.Operation), slog.String("reason", e.Reason), last(e.Err))
}

// LogValue returns the status and code of the storage host, whether the upload
// URL had expired, and the error behind it.
func (e *UploadError) LogValue() slog.Value {
	if e == nil {
		return slog.Value{}
	}
	return known(slog.Int("status", e.StatusCode), slog.String("code", e.Code), slog.Bool("expired", e.Expired), last(e.Err))
}

// LogValue returns the operation, the attempts, the context's error, the wait that
// the deadline did not allow, and the error behind it.
func (e *InterruptedError) LogValue() slog.Value {
	if e == nil {
		return slog.Value{}
	}
	return known(slog.String("operation", e.Operation), slog.Int("attempts", e.Attempts),
		slog.String("context", suffix("", e.Err)), slog.Duration("wait", e.Wait), last(e.Last))
}

// LogValue returns the field and the reason.
func (e *ValidationError) LogValue() slog.Value {
	if e == nil {
		return slog.Value{}
	}
	return known(slog.String("field", e.Field), slog.String("reason", e.Reason))
}

// Format prints Error under every verb.
func (e APIError) Format(s fmt.State, verb rune) { redact.Format(s, verb, e.Error()) }

// Format prints Error under every verb.
func (e BlockedError) Format(s fmt.State, verb rune) { redact.Format(s, verb, e.Error()) }

// Format prints Error under every verb.
func (e RetriesExhaustedError) Format(s fmt.State, verb rune) { redact.Format(s, verb, e.Error()) }

// Format prints Error under every verb.
func (e ConnectionError) Format(s fmt.State, verb rune) { redact.Format(s, verb, e.Error()) }

// Format prints Error under every verb.
func (e DecodeError) Format(s fmt.State, verb rune) { redact.Format(s, verb, e.Error()) }

// Format prints Error under every verb.
func (e PaginationError) Format(s fmt.State, verb rune) { redact.Format(s, verb, e.Error()) }

// Format prints Error under every verb.
func (e UploadError) Format(s fmt.State, verb rune) { redact.Format(s, verb, e.Error()) }

// Format prints Error under every verb.
func (e InterruptedError) Format(s fmt.State, verb rune) { redact.Format(s, verb, e.Error()) }

// MarshalJSON encodes the attributes of LogValue.
func (e APIError) MarshalJSON() ([]byte, error) { return redact.Marshal(&e) }

// MarshalJSON encodes the attributes of LogValue.
func (e BlockedError) MarshalJSON() ([]byte, error) { return redact.Marshal(&e) }

// MarshalJSON encodes the attributes of LogValue.
func (e RetriesExhaustedError) MarshalJSON() ([]byte, error) { return redact.Marshal(&e) }

// MarshalJSON encodes the attributes of LogValue.
func (e ConnectionError) MarshalJSON() ([]byte, error) { return redact.Marshal(&e) }

// MarshalJSON encodes the attributes of LogValue.
func (e DecodeError) MarshalJSON() ([]byte, error) { return redact.Marshal(&e) }

// MarshalJSON encodes the attributes of LogValue.
func (e PaginationError) MarshalJSON() ([]byte, error) { return redact.Marshal(&e) }

// MarshalJSON encodes the attributes of LogValue.
func (e UploadError) MarshalJSON() ([]byte, error) { return redact.Marshal(&e) }

// MarshalJSON encodes the attributes of LogValue.
func (e InterruptedError) MarshalJSON() ([]byte, error) { return redact.Marshal(&e) }
