package brellium_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

func TestLogValueFindsWhatMayBeLoggedInAWrappedError(t *testing.T) {
	emu := brelliumtest.New()
	emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(404, "NOT_FOUND").WithMessage("PATIENT JANE DOE"))
	_, err := emulated(t, emu).Audits.Retrieve(t.Context(), "an-id")
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
