package brellium_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
	"github.com/brellium/brellium-go/internal/testkit"
)

// databricks/databricks-sdk-go#285, etcd-io/etcd#12324
func TestErrorsAreFoundByTheirPointerTypes(t *testing.T) {
	testkit.Bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		wrapped := func() error {
			if err := testkit.Retrieve(t.Context(), client); err != nil {
				return fmt.Errorf("nightly sync: %w", err)
			}
			return nil
		}
		assert.True(t, wrapped() == nil, "success is a plain nil")

		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(404, "NOT_FOUND"), brelliumtest.Blocked(), brelliumtest.OK(), brelliumtest.Status(503, "UNAVAILABLE").Times(5))
		var apiErr *brellium.APIError
		require.ErrorAs(t, wrapped(), &apiErr)
		assert.Equal(t, 404, apiErr.StatusCode)

		var block *brellium.BlockedError
		require.ErrorAs(t, wrapped(), &block)
		require.NoError(t, wrapped())

		var exhausted *brellium.RetriesExhaustedError
		err := wrapped()
		require.ErrorAs(t, err, &exhausted)
		require.ErrorAs(t, exhausted.Unwrap(), &apiErr)
		assert.Equal(t, 503, apiErr.StatusCode)
		assert.ErrorIs(t, err, brellium.ErrServer)
	})
}

// cloudfoundry/go-cfclient#327, TwiN/gatus#351, esi/esi-issues#902
func TestHTMLFromAGatewayIsAnAPIError(t *testing.T) {
	testkit.Bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.HTML(502).Times(5))
		err := testkit.Retrieve(t.Context(), client)
		assert.Equal(t, 5, emu.Count(brelliumtest.OpAuditRetrieve))
		var exhausted *brellium.RetriesExhaustedError
		require.ErrorAs(t, err, &exhausted)
		var apiErr *brellium.APIError
		require.ErrorAs(t, err, &apiErr)
		assert.Equal(t, 502, apiErr.StatusCode)
		assert.Equal(t, brellium.CodeHTTPError, apiErr.Code)
		assert.Empty(t, apiErr.RequestID)
		assert.Empty(t, apiErr.Message)
		assert.Contains(t, string(apiErr.Body), "<html>")
		assert.NotContains(t, err.Error(), "<")
		assert.NotContains(t, err.Error(), "invalid character")
	})
}

func TestSentinelsMatchByStatus(t *testing.T) {
	sentinels := map[error]func(status int) bool{
		brellium.ErrNotFound:     func(s int) bool { return s == 404 },
		brellium.ErrConflict:     func(s int) bool { return s == 409 },
		brellium.ErrUnauthorized: func(s int) bool { return s == 401 },
		brellium.ErrRateLimited:  func(s int) bool { return s == 429 },
		brellium.ErrServer:       func(s int) bool { return s >= 500 && s <= 599 },
		brellium.ErrNoMorePages:  func(int) bool { return false },
	}
	for _, status := range []int{0, 200, 302, 400, 401, 403, 404, 408, 409, 429, 499, 500, 502, 599, 600} {
		err := fmt.Errorf("x: %w", &brellium.APIError{StatusCode: status, Code: brellium.CodeHTTPError})
		for sentinel, want := range sentinels {
			assert.Equal(t, want(status), errors.Is(err, sentinel), "%d %v", status, sentinel)
		}
		transient := status == 408 || status == 429 || status >= 500
		assert.Equal(t, transient, brellium.IsTransient(err), status)
	}
}

func TestPredicatesAcceptAnyError(t *testing.T) {
	transient := &brellium.APIError{StatusCode: 429, RetryAfter: 3 * time.Second}
	for name, tc := range map[string]struct {
		err       error
		transient bool
		wait      time.Duration
	}{
		"nil":        {},
		"foreign":    {err: io.EOF},
		"wrapped":    {err: fmt.Errorf("a: %w", fmt.Errorf("b: %w", transient)), transient: true, wait: 3 * time.Second},
		"joined":     {err: errors.Join(io.EOF, transient), transient: true, wait: 3 * time.Second},
		"exhausted":  {err: &brellium.RetriesExhaustedError{Err: transient}, transient: true, wait: 3 * time.Second},
		"connection": {err: &brellium.ConnectionError{}, transient: true},
		"interrupted": {err: &brellium.InterruptedError{Err: context.Canceled, Last: transient},
			wait: 3 * time.Second},
		"too long a queue": {err: &brellium.InterruptedError{Err: context.DeadlineExceeded, Wait: time.Minute}, transient: true, wait: time.Minute},
		"upload":           {err: &brellium.UploadError{Err: transient}, transient: true, wait: 3 * time.Second},
		"page":             {err: &brellium.PaginationError{Err: transient}, transient: true, wait: 3 * time.Second},
		"block":            {err: &brellium.BlockedError{}},
		"decode":           {err: &brellium.DecodeError{}},
		"validation":       {err: &brellium.ValidationError{}},
		"past block":       {err: &brellium.BlockedError{RetryAt: time.Unix(1, 0)}},
	} {
		assert.Equal(t, tc.transient, brellium.IsTransient(tc.err), name)
		assert.False(t, brellium.OutcomeUnknown(tc.err), name)
		wait, ok := brellium.RetryAfter(tc.err)
		assert.Equal(t, tc.wait, wait, name)
		assert.Equal(t, tc.wait > 0 || name == "past block", ok, name)
	}
	unknown := func(t *testing.T) error {
		client := testkit.NewTokenClient(t, testkit.WithTransport(testkit.RoundTripFunc(func(*http.Request) (*http.Response, error) { return nil, io.EOF })))
		return testkit.CreateUser(t.Context(), client)
	}
	err := unknown(t)
	for _, err := range []error{err, fmt.Errorf("x: %w", err), errors.Join(io.EOF, err), errors.Join(io.EOF, fmt.Errorf("x: %w", errors.Join(err)))} {
		assert.True(t, brellium.OutcomeUnknown(err))
	}
}

func TestErrorBodies(t *testing.T) {
	for name, tc := range map[string]struct {
		body    string
		code    brellium.ErrorCode
		message string
		request string
	}{
		"envelope":            {`{"error":{"type":"api_error","code":"X","message":"m","request_id":"r"}}`, "X", "m", "r"},
		"byte-order mark":     {"\ufeff" + `{"error":{"code":"X"}}`, "X", "", ""},
		"no code":             {`{"error":{"message":"m"}}`, brellium.CodeHTTPError, "m", ""},
		"not a code":          {`{"error":{"code":"two words"}}`, brellium.CodeHTTPError, "", ""},
		"OAuth":               {`{"error":"invalid_client","error_description":"no such client"}`, "invalid_client", "no such client", ""},
		"another form":        {`{"message":"Forbidden"}`, brellium.CodeHTTPError, "", ""},
		"null":                {`null`, brellium.CodeHTTPError, "", ""},
		"error null":          {`{"error":null}`, brellium.CodeHTTPError, "", ""},
		"error a number":      {`{"error":7}`, brellium.CodeHTTPError, "", ""},
		"fields of odd types": {`{"error":{"code":7,"message":["m"]}}`, brellium.CodeHTTPError, "", ""},
		"list":                {`[{"error":{"code":"X"}}]`, brellium.CodeHTTPError, "", ""},
		"page":                {`<html>`, brellium.CodeHTTPError, "", ""},
		"cut off":             {`{"error":{"code":"X"`, brellium.CodeHTTPError, "", ""},
		"empty":               {``, brellium.CodeHTTPError, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			client := testkit.NewStubClient(t, func(*http.Request) (*http.Response, error) { return testkit.Reply(400, nil, tc.body), nil })
			var e *brellium.APIError
			require.ErrorAs(t, testkit.Retrieve(t.Context(), client), &e)
			assert.Equal(t, tc.code, e.Code)
			assert.Equal(t, tc.message, e.Message)
			assert.Equal(t, tc.request, e.RequestID)
			assert.Equal(t, tc.body, string(e.Body))
		})
	}
}

// FuzzErrorBody checks that the status decides the type of the error, for any
// body.
func FuzzErrorBody(f *testing.F) {
	for _, body := range []string{"", "{}", "null", `{"error":{"code":"X","message":"m","request_id":"r"}}`, `{"error":"invalid_client"}`,
		"<html>", "\ufeff{}", `{"error":{"code":"` + strings.Repeat("x", 5000) + `"}}`, "{\"error\":{\"message\":\"a\\nb\\u001b[31m\"}}", `{"error":[[[[[[`, "\x1f\x8b\x08"} {
		for _, status := range []uint16{302, 400, 403, 404, 429, 502} {
			f.Add(status, []byte(body), "req-1")
		}
	}
	f.Fuzz(func(t *testing.T, status uint16, body []byte, requestID string) {
		status = 300 + status%700
		client := testkit.NewTokenClient(t, brellium.WithoutRateLimiter(), testkit.WithTransport(testkit.RoundTripFunc(func(*http.Request) (*http.Response, error) {
			return testkit.Reply(int(status), http.Header{"X-Request-Id": {requestID}}, string(body)), nil
		})))
		err := testkit.CreateUser(t.Context(), client, brellium.WithMaxRetries(0))
		assert.Less(t, len(err.Error()), 10_000)
		assert.Equal(t, -1, strings.IndexFunc(err.Error(), unicode.IsControl), "%q", err)
		var block *brellium.BlockedError
		if errors.As(err, &block) {
			assert.EqualValues(t, 403, status)
			var object map[string]any
			trimmed := bytes.TrimPrefix(body, []byte("\ufeff"))
			assert.True(t, json.Unmarshal(trimmed, &object) != nil || object == nil, "an object is no block")
			return
		}
		var e *brellium.APIError
		require.ErrorAs(t, err, &e)
		assert.EqualValues(t, status, e.StatusCode)
		assert.NotEmpty(t, e.Code)
		assert.True(t, bytes.HasPrefix(body, e.Body))
		assert.Equal(t, status == 408 || status >= 500, brellium.OutcomeUnknown(err) || e.Code == brellium.CodeInviteFailed)
		_, jsonErr := json.Marshal(err)
		assert.NoError(t, jsonErr)
	})
}
