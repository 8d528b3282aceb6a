package brellium_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
	"github.com/brellium/brellium-go/internal/testkit"
)

func TestSafeLogValueOfAWrappedError(t *testing.T) {
	emu := brelliumtest.New()
	emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(404, "NOT_FOUND").WithMessage("PATIENT JANE DOE"))
	_, err := testkit.NewClient(t, emu).Audits.Retrieve(t.Context(), "an-id")
	wrapped := errors.Join(errors.New("other PATIENT"), fmt.Errorf("nightly review: %w", err))

	for name, handler := range map[string]func(*bytes.Buffer) slog.Handler{
		"text": func(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(b, nil) },
		"json": func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(b, nil) },
	} {
		var out bytes.Buffer
		slog.New(handler(&out)).Error("failed", "error", brellium.SafeLogValue(wrapped), "foreign", brellium.SafeLogValue(errors.New("PATIENT")), "none", brellium.SafeLogValue(nil))
		assert.NotContains(t, out.String(), "PATIENT", name)
		assert.Contains(t, out.String(), "NOT_FOUND", name)
		assert.Contains(t, out.String(), "audits.retrieve", name)
		assert.Contains(t, out.String(), "*errors.errorString", name)
	}
}

// Errors print no field that is meant for code only. TestNoConfidentialValueIsReported
// checks what the client puts into them.
func TestErrorsPrintTheSameUnderEveryVerb(t *testing.T) {
	const hidden = "casey-4711"
	api := &brellium.APIError{
		Operation: "users.create", StatusCode: 409, Type: "conflict_error", Code: brellium.CodeUserExists, Message: "The user exists",
		RequestID: "req-1", RetryAfter: time.Second, Header: http.Header{"X-Patient": {hidden}}, Body: []byte(hidden),
	}
	for _, err := range []error{
		api,
		&brellium.BlockedError{Operation: "users.create", RetryAt: time.Unix(1_700_000_000, 0)},
		&brellium.RetriesExhaustedError{Operation: "users.create", Attempts: 5, Elapsed: 7 * time.Second, Reason: brellium.ExhaustedAttempts, Err: api},
		&brellium.RetriesExhaustedError{Operation: "users.create", Attempts: 1, Reason: brellium.ExhaustedDeadline, Err: &brellium.ConnectionError{Operation: "users.create", Reason: "connection refused", Err: io.EOF}},
		&brellium.ConnectionError{Operation: "users.create", Reason: "connection refused", Err: io.EOF},
		&brellium.DecodeError{Operation: "users.create", StatusCode: 200, RequestID: "req-1", Reason: "the body is empty"},
		&brellium.PaginationError{Operation: "users.list", Reason: "a page could not be fetched", Cursor: hidden, Err: api},
		&brellium.UploadError{ExternalID: hidden, StatusCode: 403, Code: "AccessDenied", Expired: true, Err: api},
		&brellium.InterruptedError{Operation: "users.create", Attempts: 2, Wait: time.Second, Err: context.Canceled, Last: api},
		&brellium.ValidationError{Field: "Email", Reason: "must not be blank"},
	} {
		t.Run(fmt.Sprintf("%T", err), func(t *testing.T) {
			text := err.Error()
			assert.True(t, strings.HasPrefix(text, "brellium: "), text)
			assert.NotContains(t, text, hidden)
			if _, plain := err.(*brellium.ValidationError); !plain {
				for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%d", "%x"} {
					assert.Equal(t, text, fmt.Sprintf(verb, err), verb)
				}
				assert.Equal(t, fmt.Sprintf("%q", text), fmt.Sprintf("%q", err))
			}
			encoded, jsonErr := json.Marshal(err)
			require.NoError(t, jsonErr)
			assert.NotEqual(t, "{}", string(encoded))
			var log bytes.Buffer
			slog.New(slog.NewTextHandler(&log, nil)).Error("failed", "error", err)
			slog.New(slog.NewJSONHandler(&log, nil)).Error("failed", "error", err)
			for _, out := range []string{string(encoded), log.String()} {
				assert.NotContains(t, out, hidden)
				assert.NotContains(t, out, "The user exists", "a message may be about a patient")
			}
		})
	}
}

// everyError has a nil pointer of each error type.
var everyError = []error{(*brellium.APIError)(nil), (*brellium.BlockedError)(nil), (*brellium.RetriesExhaustedError)(nil), (*brellium.ConnectionError)(nil),
	(*brellium.DecodeError)(nil), (*brellium.PaginationError)(nil), (*brellium.UploadError)(nil), (*brellium.InterruptedError)(nil), (*brellium.ValidationError)(nil)}

// printers has each exported type with a method that a printer, a logger, an encoder
// or package errors calls.
var printers = []any{brellium.APIError{}, brellium.BlockedError{}, brellium.Client{}, brellium.ConnectionError{}, brellium.DecodeError{},
	brellium.InterruptedError{}, brellium.Metadata{}, brellium.Event{}, brellium.PaginationError{}, brellium.Response{}, brellium.RetriesExhaustedError{},
	brellium.Time{}, brellium.Token{}, brellium.UploadError{}, brellium.UploadURL{}, brellium.ValidationError{}}

// state is where Format prints to.
type state struct{ io.Writer }

func (state) Width() (int, bool)     { return 0, false }
func (state) Precision() (int, bool) { return 0, false }
func (state) Flag(int) bool          { return false }

// golang/go#70069, golang/go#59141: called directly, where nothing recovers. A method
// with a value receiver cannot be called on a nil pointer; fmt, slog and
// encoding/json do not.
func TestZeroValuesAndNilPointersNeverPanic(t *testing.T) {
	called := []string{"Error", "Unwrap", "Is", "As", "Timeout", "Temporary", "LogValue", "Format", "GoString", "String", "MarshalJSON", "MarshalText", "UnmarshalJSON", "IsZero"}
	sources, err := filepath.Glob("*.go")
	require.NoError(t, err)
	declared := map[string]bool{}
	for _, source := range sources {
		text, err := os.ReadFile(source)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`(?m)^func \((?:\w+ )?\*?([A-Z]\w*)(?:\[\w+\])?\) (\w+)\(`).FindAllStringSubmatch(string(text), -1) {
			if slices.Contains(called, m[2]) {
				declared[m[1]] = true
			}
		}
	}
	var names []string
	for _, example := range printers {
		of := reflect.TypeOf(example)
		names = append(names, of.Name())
		pointer := reflect.PointerTo(of)
		for _, v := range []reflect.Value{reflect.New(of), reflect.Zero(pointer)} {
			for _, name := range called {
				method, ok := pointer.MethodByName(name)
				if _, byValue := of.MethodByName(name); !ok || byValue && v.IsNil() || v.IsNil() && name == "UnmarshalJSON" {
					continue
				}
				args := []reflect.Value{v}
				for i := 1; i < method.Type.NumIn(); i++ {
					switch in := method.Type.In(i); in {
					case reflect.TypeFor[fmt.State]():
						args = append(args, reflect.ValueOf(state{io.Discard}))
					case reflect.TypeFor[error]():
						args = append(args, reflect.ValueOf(io.EOF))
					default:
						args = append(args, reflect.Zero(in))
					}
				}
				assert.NotPanics(t, func() { method.Func.Call(args) }, "%s.%s nil=%t", of, name, v.IsNil())
			}
			if e, isError := v.Interface().(error); isError {
				assert.True(t, slices.ContainsFunc(everyError, func(other error) bool { return reflect.TypeOf(other) == reflect.TypeOf(e) }), "%T", e)
			}
		}
	}
	assert.ElementsMatch(t, slices.Collect(maps.Keys(declared)), names)
}

// golang/go#70069, golang/go#59141
func TestZeroErrorsAndNilPointersNeverPanic(t *testing.T) {
	client := testkit.NewStubClient(t, func(*http.Request) (*http.Response, error) { return testkit.Reply(400, nil, ""), nil })
	_, joined := client.Documents.Upload(t.Context(), someFiles(1), brellium.UploadOptions{})
	require.Error(t, joined)
	for _, example := range append(everyError, joined) {
		of := reflect.TypeOf(example)
		for _, err := range []error{reflect.Zero(of).Interface().(error), reflect.New(of.Elem()).Interface().(error)} {
			isNil := reflect.ValueOf(err).IsNil()
			t.Run(fmt.Sprintf("%T nil=%t", err, isNil), func(t *testing.T) {
				assert.Equal(t, isNil, err.Error() == "<nil>", err.Error())
				for _, wrapped := range []error{err, fmt.Errorf("x: %w", err), errors.Join(err, io.EOF)} {
					assert.Equal(t, wrapped != err && strings.Contains(wrapped.Error(), "EOF"), errors.Is(wrapped, io.EOF))
					for _, sentinel := range []error{brellium.ErrNotFound, brellium.ErrConflict, brellium.ErrUnauthorized, brellium.ErrRateLimited, brellium.ErrServer,
						context.Canceled, context.DeadlineExceeded} {
						assert.NotErrorIs(t, wrapped, sentinel)
					}
					var foreign *os.PathError
					assert.False(t, errors.As(wrapped, &foreign))
					assert.False(t, brellium.OutcomeUnknown(wrapped))
					_, asked := brellium.RetryAfter(wrapped)
					assert.False(t, asked)
					_, isConnection := err.(*brellium.ConnectionError)
					assert.Equal(t, isConnection && !isNil, brellium.IsTransient(wrapped))
					_ = brellium.SafeLogValue(wrapped).Resolve().String()
				}
				if timeout, ok := err.(interface{ Timeout() bool }); ok {
					assert.False(t, timeout.Timeout())
				}
				_ = errors.Unwrap(err)
				switch e := err.(type) {
				case interface{ Unwrap() []error }:
					assert.Empty(t, e.Unwrap())
				}
				assert.Equal(t, isNil, err.(slog.LogValuer).LogValue().Equal(slog.Value{}))
				encoded, jsonErr := json.Marshal(err)
				require.NoError(t, jsonErr)
				assert.Equal(t, isNil, string(encoded) == "null", string(encoded))
				var log bytes.Buffer
				slog.New(slog.NewTextHandler(&log, nil)).Error("failed", "error", err, "safe", brellium.SafeLogValue(err))
				slog.New(slog.NewJSONHandler(&log, nil)).Error("failed", "error", err, "safe", brellium.SafeLogValue(err))
				fmt.Fprintf(&log, "%v %+v %#v %s %q", err, err, err, err, err)
				assert.NotContains(t, log.String(), "panic", "also where a printer would recover")
				assert.NotContains(t, log.String(), "PANIC")
			})
		}
	}
}

// Each attribute of an error is one of these, and only what is set is logged.
func TestErrorsLogNamedFactsThatAreSet(t *testing.T) {
	known := []string{"operation", "status", "type", "code", "request_id", "retry_after", "retry_at", "attempts", "elapsed", "reason", "last",
		"sent", "expired", "context", "wait", "field"}
	for _, err := range everyError {
		zero := reflect.New(reflect.TypeOf(err).Elem())
		for _, a := range zero.Interface().(slog.LogValuer).LogValue().Group() {
			assert.Equal(t, "sent", a.Key, "%T", err)
		}
		for i := range zero.Elem().NumField() {
			switch field := zero.Elem().Field(i); {
			case !field.CanSet():
			case field.Type() == reflect.TypeFor[error]():
				field.Set(reflect.ValueOf(context.Canceled))
			case field.Type() == reflect.TypeFor[time.Time]():
				field.Set(reflect.ValueOf(time.Unix(1, 0)))
			case field.Kind() == reflect.String:
				field.SetString("x")
			case field.CanInt():
				field.SetInt(1)
			case field.Kind() == reflect.Bool:
				field.SetBool(true)
			}
		}
		attrs := zero.Interface().(slog.LogValuer).LogValue().Group()
		assert.NotEmpty(t, attrs)
		for _, a := range attrs {
			assert.Contains(t, known, a.Key, "%T", err)
			assert.NotEqual(t, "<nil>", a.Value.String(), "%T", err)
		}
	}
}

// okta/okta-sdk-golang#432, rs/zerolog#697
func TestWithoutServerMessages(t *testing.T) {
	const words = "PATIENT JANE DOE"
	synctest.Test(t, func(t *testing.T) {
		emu := brelliumtest.New()
		shared := testkit.NewClient(t, emu)
		derived, err := shared.With(brellium.WithoutServerMessages())
		require.NoError(t, err)
		again, err := derived.With()
		require.NoError(t, err)
		deny := brelliumtest.Status(400, "invalid_client").WithMessage(words)
		fail := map[string]func(*brellium.Client) error{
			"response": func(c *brellium.Client) error {
				emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(404, "NOT_FOUND").WithMessage(words))
				return testkit.Retrieve(t.Context(), c)
			},
			"exhausted": func(c *brellium.Client) error {
				emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(503, "UNAVAILABLE").WithMessage(words).Times(2))
				return testkit.Retrieve(t.Context(), c, brellium.WithMaxRetries(1))
			},
			"page": func(c *brellium.Client) error {
				emu.Inject(brelliumtest.OpAuditList, brelliumtest.Status(400, "X").WithMessage(words))
				_, err := readAll(c.Audits.All(t.Context(), brellium.AuditListParams{}))
				return err
			},
			"upload": func(c *brellium.Client) error {
				emu.Inject(brelliumtest.OpDocumentCreate, brelliumtest.Status(422, "X").WithMessage(words))
				_, err := c.Documents.Upload(t.Context(), someFiles(1), brellium.UploadOptions{})
				return err
			},
			"token": func(c *brellium.Client) error {
				emu.RevokeTokens()
				emu.Inject(brelliumtest.OpTokenCreate, deny)
				err := testkit.Retrieve(t.Context(), c)
				time.Sleep(time.Minute) // the failure of a token request is kept for a while
				require.NoError(t, testkit.Retrieve(t.Context(), c))
				return err
			},
		}
		for name, call := range fail {
			assert.Contains(t, call(shared).Error(), words, name)
			for _, c := range []*brellium.Client{derived, again, testkit.NewClient(t, emu, brellium.WithoutServerMessages())} {
				if name == "token" && c != shared {
					require.NoError(t, testkit.Retrieve(t.Context(), c))
				}
				err := call(c)
				require.Error(t, err)
				assert.NotContains(t, fmt.Sprintf("%v %+v %#v", err, err, fmt.Errorf("x: %w", err)), words, name)
				var e *brellium.APIError
				require.ErrorAs(t, err, &e)
				assert.Equal(t, words, e.Message)
				assert.Contains(t, err.Error(), string(e.Code))
			}
		}
	})
}
