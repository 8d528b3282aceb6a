package brellium

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/textproto"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode"
)

// This file is where it is decided what may leave the client unasked. Three
// rules, each in one place:
//
//   - What is logged, told to an observer, or encoded of an error or an event
//     is made of the attributes that its LogValue lists, and of nothing else.
//   - What a server chose (a code, a type, a request id) counts as one only
//     where it has the form of one: see printable.
//   - What a transport says in an error is never repeated: see hide. The
//     reasons that are printed are texts of this package's own.

// printable is s where it has the form of a code or a request id, and else
// nothing: a server could put anything there.
func safeCode(s string) string {
	if len(s) > 128 {
		return ""
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.' || c == ':') {
			return ""
		}
	}
	return s
}

// maxMessage is how much of a server's message an error text holds, in bytes.
const maxMessage = 1000

// oneLine makes a server's message fit to stand in an error text: on one line,
// without anything that a terminal would act on, and not too long.
func oneLine(message string) string {
	cut := len(message) > maxMessage
	if cut {
		message = message[:maxMessage]
	}
	message = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(message, ""))
	if cut {
		message += "…"
	}
	return message
}

// formatSafe prints text under any verb; only %q quotes it.
func formatSafe(s fmt.State, verb rune, text string) {
	if verb == 'q' {
		text = strconv.Quote(text)
	}
	_, _ = io.WriteString(s, text)
}

// formatAttrs prints the attributes of v behind its name under any verb.
func formatAttrs(s fmt.State, verb rune, name string, v slog.LogValuer) {
	text := name + v.LogValue().Resolve().String()
	formatSafe(s, verb, text)
}

// marshalSafe encodes the allowlisted attributes of v.
func marshalSafe(v slog.LogValuer) ([]byte, error) { return json.Marshal(attrMap(v.LogValue())) }

func attrMap(v slog.Value) any {
	v = v.Resolve()
	if v.Kind() != slog.KindGroup {
		return v.Any()
	}
	m := make(map[string]any, len(v.Group()))
	for _, a := range v.Group() {
		m[a.Key] = attrMap(a.Value)
	}
	return m
}

// logError is what may be logged of an error: the allowlist of the first of
// ours in its tree, or nothing but its type.
func logError(err error) any {
	if err == nil {
		return nil
	}
	var v interface {
		error
		slog.LogValuer
		own()
	}
	if errors.As(err, &v) {
		return v
	}
	return fmt.Sprintf("%T", err)
}

// LogValue is what may be logged of err: of the first of this package's errors
// in its tree what that error's LogValue lists, and of any other error its
// type. An error of this package that is logged as an attribute does that by
// itself; LogValue is for one that has been wrapped, whose text would have the
// server's message in it.
//
//	slog.Error("nightly review failed", "error", brellium.SafeLogValue(err))
func SafeLogValue(err error) slog.Value { return slog.AnyValue(logError(err)) }

// own marks this package's errors, whose LogValue can be relied on.
func (*APIError) own()              {}
func (*BlockedError) own()          {}
func (*RetriesExhaustedError) own() {}
func (*ConnectionError) own()       {}
func (*DecodeError) own()           {}
func (*PaginationError) own()       {}
func (*UploadError) own()           {}
func (*InterruptedError) own()      {}
func (*ValidationError) own()       {}

// hide makes err, which is a transport's, fit to be unwrapped to: it can be
// asked with errors.Is and errors.As, yet its text, which may quote the
// request or the answer, cannot be read. Errors that are known to quote
// nothing pass as they are.
func hide(err error) error {
	for {
		e, ok := err.(*url.Error)
		if !ok {
			break
		}
		err = e.Err
	}
	switch err {
	case nil, io.EOF, io.ErrUnexpectedEOF:
		return err
	}
	if _, ok := err.(syscall.Errno); ok {
		return err
	}
	return &hiddenError{func() error { return err }}
}

// hiddenError is an error without its text. The error is behind a function
// since a dumper that walks structs cannot look inside one.
type hiddenError struct{ cause func() error }

func (e *hiddenError) Error() string { return "cause withheld, since it may quote the request" }

func (e *hiddenError) Format(s fmt.State, verb rune) { formatSafe(s, verb, e.Error()) }

// Timeout and Temporary make a hidden error a net.Error.
func (e *hiddenError) Timeout() bool {
	t, ok := asType[interface {
		error
		Timeout() bool
	}](e.cause())
	return ok && t.Timeout()
}

func (e *hiddenError) Temporary() bool {
	t, ok := asType[interface {
		error
		Temporary() bool
	}](e.cause())
	return ok && t.Temporary()
}

// Is finds anything but the errors of a context, which speak of the caller's
// own: here it was another one that ended.
func (e *hiddenError) Is(target error) bool {
	return target != context.Canceled && target != context.DeadlineExceeded && errors.Is(e.cause(), target)
}

// As finds an error that is asked for by its type, such as one of the caller's
// own transport, and gives the usual ones of package net without the words
// that they quote. It finds nothing for an interface, which any error of the
// chain could match, nor for types whose text is what they quote.
func (e *hiddenError) As(target any) bool {
	switch target := target.(type) {
	case **net.OpError:
		found, ok := asType[*net.OpError](e.cause())
		if ok {
			*target = &net.OpError{Op: oneOf(found.Op, netOps), Net: oneOf(found.Net, networks), Err: hide(found.Err)}
		}
		return ok
	case **net.DNSError:
		found, ok := asType[*net.DNSError](e.cause())
		if ok {
			*target = &net.DNSError{Err: "the host name could not be looked up",
				IsTimeout: found.IsTimeout, IsTemporary: found.IsTemporary, IsNotFound: found.IsNotFound}
		}
		return ok
	case **url.Error, **fs.PathError, **os.LinkError, **os.SyscallError, **net.AddrError, **net.ParseError, **strconv.NumError,
		*url.EscapeError, *url.InvalidHostError, *textproto.ProtocolError, **textproto.Error:
		return false
	}
	if reflect.TypeOf(target).Elem().Kind() == reflect.Interface {
		return false
	}
	return errors.As(e.cause(), target)
}

// causeOf is the cause of the end of ctx, where it had one of its own. It is the
// caller's, to be asked for with errors.Is, and nobody else's to print.
func causeOf(ctx context.Context) func() error {
	cause := context.Cause(ctx)
	if cause == nil || cause == ctx.Err() {
		return nil
	}
	return func() error { return cause }
}

// The words of package net that a *net.OpError may hold.
var (
	netOps   = []string{"dial", "read", "write", "close", "proxyconnect", "local error", "remote error"}
	networks = []string{"tcp", "tcp4", "tcp6"}
)

func oneOf(s string, known []string) string {
	if slices.Contains(known, s) {
		return s
	}
	return ""
}

// Params hold what patients and staff are known by, and are printed and logged
// as their type alone. (encoding/json gives their fields: it is how a body is
// made.)

func typeOnly(v any) string { return fmt.Sprintf("%T{withheld}", v) }

// Format prints the type alone, under every verb.
func (p AuditListParams) Format(s fmt.State, verb rune) { formatSafe(s, verb, typeOnly(p)) }

// LogValue gives the type alone.
func (p AuditListParams) LogValue() slog.Value { return slog.StringValue(typeOnly(p)) }

// Format prints the type alone, under every verb.
func (p AuditUpdateParams) Format(s fmt.State, verb rune) { formatSafe(s, verb, typeOnly(p)) }

// LogValue gives the type alone.
func (p AuditUpdateParams) LogValue() slog.Value { return slog.StringValue(typeOnly(p)) }

// Format prints the type alone, under every verb.
func (p AuditBatchUpdateParams) Format(s fmt.State, verb rune) { formatSafe(s, verb, typeOnly(p)) }

// LogValue gives the type alone.
func (p AuditBatchUpdateParams) LogValue() slog.Value { return slog.StringValue(typeOnly(p)) }

// Format prints the type alone, under every verb.
func (p UserCreateParams) Format(s fmt.State, verb rune) { formatSafe(s, verb, typeOnly(p)) }

// LogValue gives the type alone.
func (p UserCreateParams) LogValue() slog.Value { return slog.StringValue(typeOnly(p)) }

// Format prints the type alone, under every verb.
func (p UserListParams) Format(s fmt.State, verb rune) { formatSafe(s, verb, typeOnly(p)) }

// LogValue gives the type alone.
func (p UserListParams) LogValue() slog.Value { return slog.StringValue(typeOnly(p)) }

// Format prints the type alone, under every verb.
func (p EmailRecipientCreateParams) Format(s fmt.State, verb rune) { formatSafe(s, verb, typeOnly(p)) }

// LogValue gives the type alone.
func (p EmailRecipientCreateParams) LogValue() slog.Value { return slog.StringValue(typeOnly(p)) }

// Format prints the type alone, under every verb.
func (p EmailRecipientListParams) Format(s fmt.State, verb rune) { formatSafe(s, verb, typeOnly(p)) }

// LogValue gives the type alone.
func (p EmailRecipientListParams) LogValue() slog.Value { return slog.StringValue(typeOnly(p)) }

// Format prints the type alone, under every verb.
func (p DocumentInput) Format(s fmt.State, verb rune) { formatSafe(s, verb, typeOnly(p)) }

// LogValue gives the type alone.
func (p DocumentInput) LogValue() slog.Value { return slog.StringValue(typeOnly(p)) }

// Format prints the type alone, under every verb.
func (p DocumentCreateParams) Format(s fmt.State, verb rune) { formatSafe(s, verb, typeOnly(p)) }

// LogValue gives the type alone.
func (p DocumentCreateParams) LogValue() slog.Value { return slog.StringValue(typeOnly(p)) }

// Format prints the type alone, under every verb.
func (p DocumentListParams) Format(s fmt.State, verb rune) { formatSafe(s, verb, typeOnly(p)) }

// LogValue gives the type alone.
func (p DocumentListParams) LogValue() slog.Value { return slog.StringValue(typeOnly(p)) }

// Format prints the type alone, under every verb.
func (p UploadFile) Format(s fmt.State, verb rune) { formatSafe(s, verb, typeOnly(p)) }

// LogValue gives the type alone.
func (p UploadFile) LogValue() slog.Value { return slog.StringValue(typeOnly(p)) }

// knownField is as much of path, which names a field of an answer that is
// decoded into a t, as stands in t: of a map's keys, which are data, nothing.
// (encoding/json leaves them out itself, its newer engine does not.)
func knownField(t reflect.Type, path string) string {
	var known []string
	for _, name := range strings.Split(path, ".") {
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		switch t.Kind() {
		case reflect.Slice, reflect.Array: // name is an index, or is missing
			if t = t.Elem(); strings.Trim(name, "0123456789") == "" {
				continue
			}
			for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
				t = t.Elem()
			}
		}
		if t.Kind() != reflect.Struct {
			break
		}
		field, ok := fieldNamed(t, name)
		if !ok {
			break
		}
		tag, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if tag == "" {
			tag = field.Name
		}
		known, t = append(known, tag), field.Type
	}
	return strings.Join(known, ".")
}

func fieldNamed(t reflect.Type, name string) (reflect.StructField, bool) {
	for _, field := range reflect.VisibleFields(t) {
		tag, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if tag == "" {
			tag = field.Name
		}
		if !field.Anonymous && strings.EqualFold(tag, name) {
			return field, true
		}
	}
	return reflect.StructField{}, false
}
