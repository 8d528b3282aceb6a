package cookbook

import (
	"bytes"
	"io"
	"log/slog"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/exp/zapslog"
	"go.uber.org/zap/zapcore"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

// LogWithSlog logs calls that failed.
func LogWithSlog(w io.Writer) brellium.ClientOption {
	return brellium.WithLogger(slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: slog.LevelWarn})))
}

// LogWithZap does so with a logger of zap.
func LogWithZap(logger *zap.Logger) brellium.ClientOption {
	return brellium.WithLogger(slog.New(zapslog.NewHandler(logger.Core())))
}

// LogWithZerolog does so with a logger of zerolog.
func LogWithZerolog(logger zerolog.Logger) brellium.ClientOption {
	return brellium.WithLogger(slog.New(zerolog.NewSlogHandler(logger)))
}

// LogError logs an error of a call in three ways, without the server's message.
func LogError(err error, standard *slog.Logger, uber *zap.Logger, zero zerolog.Logger) {
	standard.Error("review failed", "error", brellium.SafeLogValue(err))
	uber.Error("review failed", zap.Reflect("error", brellium.SafeLogValue(err).Any()))
	zero.Error().Interface("error", brellium.SafeLogValue(err).Any()).Msg("review failed")
}

func TestLogging(t *testing.T) {
	var slogged, zapped, zeroed bytes.Buffer
	uber := zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(&zapped), zapcore.WarnLevel))
	zero := zerolog.New(&zeroed).Level(zerolog.WarnLevel)
	logs := map[*bytes.Buffer]brellium.ClientOption{
		&slogged: LogWithSlog(&slogged), &zapped: LogWithZap(uber), &zeroed: LogWithZerolog(zero),
	}
	for log, option := range logs {
		emulator := brelliumtest.New()
		emulator.Inject(brelliumtest.OpAuditUpdate, brelliumtest.Status(422, "INVALID_FLAG").WithMessage("no flag Jane Doe").Forever())
		client, err := emulator.Client(option)
		require.NoError(t, err)
		_, err = client.Audits.Update(t.Context(), brelliumtest.SampleAuditID, brellium.AuditUpdateParams{Flags: []string{"Jane Doe"}})
		require.ErrorContains(t, err, "Jane Doe")
		assert.Contains(t, log.String(), "brellium call end")
		LogError(err, slog.New(slog.NewJSONHandler(&slogged, nil)), uber, zero)
	}
	for log := range logs {
		assert.Contains(t, log.String(), "INVALID_FLAG")
		assert.Contains(t, log.String(), "review failed")
		assert.NotContains(t, log.String(), "Jane Doe")
		assert.NotContains(t, log.String(), brelliumtest.SampleAuditID)
	}
}
