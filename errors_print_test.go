package brellium_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
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

// A new attribute needs a decision about privacy.
func TestErrorsLogOnlyNamedFields(t *testing.T) {
	known := []string{"operation", "status", "type", "code", "request_id", "retry_at", "attempts", "elapsed", "reason", "last",
		"sent", "expired", "context", "wait", "field"}
	for _, err := range []slog.LogValuer{&brellium.APIError{}, &brellium.BlockedError{}, &brellium.RetriesExhaustedError{}, &brellium.ConnectionError{},
		&brellium.DecodeError{}, &brellium.PaginationError{}, &brellium.UploadError{}, &brellium.InterruptedError{Err: context.Canceled}, &brellium.ValidationError{}} {
		for _, a := range err.LogValue().Group() {
			assert.Contains(t, known, a.Key, "%T", err)
		}
	}
}
