package cookbook

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

// Status returns the status of a handler whose call of the API failed.
func Status(err error) int {
	var (
		invalid *brellium.ValidationError
		blocked *brellium.BlockedError
	)
	switch {
	case brellium.OutcomeUnknown(err):
		return http.StatusBadGateway // a write that may have taken effect
	case errors.Is(err, brellium.ErrRateLimited):
		return http.StatusServiceUnavailable // also if the deadline is too near to wait
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout
	case errors.Is(err, context.Canceled):
		return 499 // the caller has disconnected, nobody reads this
	case errors.As(err, &blocked), brellium.IsTransient(err):
		return http.StatusServiceUnavailable
	case errors.As(err, &invalid):
		return http.StatusBadRequest
	case errors.Is(err, brellium.ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, brellium.ErrConflict):
		return http.StatusConflict
	}
	return http.StatusBadGateway // among them a 401: your service's credentials are wrong
}

// ServeAudit responds with an audit, or with the reason why there is none.
func ServeAudit(client *brellium.Client, logger *slog.Logger) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
		defer cancel()
		audit, err := client.Audits.Retrieve(ctx, r.PathValue("id"))
		if err != nil {
			logger.ErrorContext(ctx, "no audit", "error", err) // as an attribute: without the server's message
			if wait, known := brellium.RetryAfter(err); known {
				w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
			}
			status := Status(err)
			http.Error(w, http.StatusText(status), status)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(audit)
	}
}

func TestServeAudit(t *testing.T) {
	for name, test := range map[string]struct {
		fault      brelliumtest.Fault
		id         string
		status     int
		retryAfter string
	}{
		"found":          {brelliumtest.OK(), brelliumtest.SampleAuditID, 200, ""},
		"not found":      {brelliumtest.OK(), "no-such-audit", 404, ""},
		"rate limited":   {brelliumtest.Status(429, "RATE_LIMITED").WithHeader("Retry-After", "30").Forever(), brelliumtest.SampleAuditID, 503, "30"},
		"server error":   {brelliumtest.Status(502, "BAD_GATEWAY").DelayResponse(2 * time.Second).Forever(), brelliumtest.SampleAuditID, 504, ""},
		"no response":    {brelliumtest.StallHeaders(time.Hour).Forever(), brelliumtest.SampleAuditID, 504, ""},
		"bare 403":       {brelliumtest.Blocked(), brelliumtest.SampleAuditID, 503, ""},
		"another reason": {brelliumtest.Status(422, "OTHER"), brelliumtest.SampleAuditID, 502, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				emulator := brelliumtest.New()
				emulator.Inject(brelliumtest.OpAuditRetrieve, test.fault)
				client, err := emulator.Client()
				require.NoError(t, err)
				mux := http.NewServeMux()
				mux.Handle("GET /audits/{id}", ServeAudit(client, slog.New(slog.NewTextHandler(io.Discard, nil))))
				w := httptest.NewRecorder()
				start := time.Now()
				mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/audits/"+test.id, nil))
				assert.Equal(t, test.status, w.Code)
				assert.Equal(t, test.retryAfter, w.Header().Get("Retry-After"))
				assert.LessOrEqual(t, time.Since(start), 5*time.Second)
			})
		})
	}
}

func TestStatus(t *testing.T) {
	emulator := brelliumtest.New()
	client, err := emulator.Client(brellium.WithMaxRetries(0))
	require.NoError(t, err)
	params := brellium.UserCreateParams{Email: "casey@example.test"}

	emulator.Inject(brelliumtest.OpUserCreate, brelliumtest.DropAfter())
	_, err = client.Users.Create(t.Context(), params)
	assert.Equal(t, 502, Status(err), "it may have taken effect")
	_, err = client.Users.Create(t.Context(), params)
	assert.Equal(t, 409, Status(err))
	_, err = client.Users.Create(t.Context(), brellium.UserCreateParams{})
	assert.Equal(t, 400, Status(err))
	emulator.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(503, "UNAVAILABLE"))
	_, err = client.Audits.Retrieve(t.Context(), brelliumtest.SampleAuditID)
	assert.Equal(t, 503, Status(err))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = client.Audits.Retrieve(ctx, brelliumtest.SampleAuditID)
	assert.Equal(t, 499, Status(err))
}
