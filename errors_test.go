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
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

// databricks/databricks-sdk-go#285, etcd-io/etcd#12324
func TestErrorsAreFoundByTheirPointerTypes(t *testing.T) {
	bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		wrapped := func() error {
			if err := retrieve(t.Context(), client); err != nil {
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
func TestAPageFromAGatewayIsAnAPIError(t *testing.T) {
	bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.HTML(502).Times(5))
		err := retrieve(t.Context(), client)
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

// psf/requests#2422
func TestBareSizeRefusalsAreAPIErrors(t *testing.T) {
	for _, tc := range []struct {
		op    string
		fault brelliumtest.Fault
		want  int
	}{
		{"audits.update", brelliumtest.Bare(413), 413},
		{"audits.retrieve", brelliumtest.HTML(414), 414},
		{"audits.retrieve", brelliumtest.Respond(431, "text/plain", "Request Header Fields Too Large"), 431},
	} {
		for _, c := range callers {
			if c.op != tc.op {
				continue
			}
			bubble(t, fmt.Sprint(tc.want), func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
				emu.Inject(c.op, tc.fault.Forever())
				err := c.call(t.Context(), client)
				apiErr, ok := err.(*brellium.APIError)
				require.True(t, ok, "%T", err)
				assert.Equal(t, tc.want, apiErr.StatusCode)
				assert.Equal(t, brellium.CodeHTTPError, apiErr.Code)
				assert.Equal(t, 1, emu.Count(c.op))
			})
		}
	}
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

func TestTheHelpersTakeAnyError(t *testing.T) {
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
		"too long a queue": {err: &brellium.InterruptedError{Err: context.DeadlineExceeded, Wait: time.Minute}, wait: time.Minute},
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
		client := newClient(t, brellium.WithHTTPClient(&http.Client{Transport: roundTripper(func(*http.Request) (*http.Response, error) { return nil, io.EOF })}))
		return createUser(t.Context(), client)
	}
	err := unknown(t)
	for _, err := range []error{err, fmt.Errorf("x: %w", err), errors.Join(io.EOF, err), errors.Join(io.EOF, fmt.Errorf("x: %w", errors.Join(err)))} {
		assert.True(t, brellium.OutcomeUnknown(err))
	}
}

func TestEveryErrorBodyIsRead(t *testing.T) {
	for name, tc := range map[string]struct {
		body    string
		code    brellium.ErrorCode
		message string
		request string
	}{
		"envelope":            {`{"error":{"type":"api_error","code":"X","message":"m","request_id":"r"}}`, "X", "m", "r"},
		"byte-order mark":     {"\ufeff" + `{"error":{"code":"X"}}`, "X", "", ""},
		"no code":             {`{"error":{"message":"m"}}`, brellium.CodeHTTPError, "m", ""},
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
			client := answering(t, func(*http.Request) (*http.Response, error) { return reply(400, nil, tc.body), nil })
			var e *brellium.APIError
			require.ErrorAs(t, retrieve(t.Context(), client), &e)
			assert.Equal(t, tc.code, e.Code)
			assert.Equal(t, tc.message, e.Message)
			assert.Equal(t, tc.request, e.RequestID)
			assert.Equal(t, tc.body, string(e.Body))
		})
	}
}

// TestErrorsPrintTheSameUnderEveryVerb, and never what they carry for code.
// What the pipeline puts into them is watched by
// TestNothingConfidentialLeavesTheClientUnasked.
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
				assert.NotContains(t, out, "The user exists", "a message may speak of a patient")
			}
		})
	}
}

// safe wants an error's text to be one line that a log can take.
func safe(t *testing.T, err error) {
	t.Helper()
	text := err.Error()
	assert.Less(t, len(text), 10_000)
	assert.Equal(t, -1, strings.IndexFunc(text, unicode.IsControl), "%q", text)
}

// FuzzErrorBody: whatever the body of a failure, it is the error that its
// status says.
func FuzzErrorBody(f *testing.F) {
	for _, body := range []string{"", "{}", "null", `{"error":{"code":"X","message":"m","request_id":"r"}}`, `{"error":"invalid_client"}`,
		"<html>", "\ufeff{}", `{"error":{"code":"` + strings.Repeat("x", 5000) + `"}}`, "{\"error\":{\"message\":\"a\\nb\\u001b[31m\"}}", `{"error":[[[[[[`, "\x1f\x8b\x08"} {
		for _, status := range []uint16{302, 400, 403, 404, 429, 502} {
			f.Add(status, []byte(body), "req-1")
		}
	}
	f.Fuzz(func(t *testing.T, status uint16, body []byte, requestID string) {
		status = 300 + status%700
		client := newClient(t, brellium.WithoutRateLimiter(), brellium.WithHTTPClient(&http.Client{Transport: roundTripper(func(*http.Request) (*http.Response, error) {
			return reply(int(status), http.Header{"X-Request-Id": {requestID}}, string(body)), nil
		})}))
		err := createUser(t.Context(), client, brellium.WithMaxRetries(0))
		safe(t, err)
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

// FuzzAnswer: whatever comes back, a call ends with a value or with one of the
// documented errors.
func FuzzAnswer(f *testing.F) {
	f.Add(uint16(200), []byte(`{"audit_id":"a"}`), "", "", "", 0)
	f.Add(uint16(200), []byte(`{"data":[{"audit_id":"a"},null],"has_more":true,"next_cursor":"c"}`), "", "41", "100", 0)
	f.Add(uint16(201), []byte(`{"documents":[{"document_id":"d","upload_url":"https://x.example.test/?s"}]}`), "gzip", "", "", 0)
	f.Add(uint16(429), []byte(``), "", "-1", "99999999999999999999", 0)
	f.Add(uint16(503), []byte(`<`), "", "Fri, 31 Dec 9999 23:59:59 GMT", "1e9", 3)
	f.Add(uint16(204), []byte{}, "", "", "", 0)
	f.Add(uint16(101), []byte{0x1f, 0x8b, 8}, "gzip", "0.0000001", "NaN", 2)
	f.Fuzz(func(t *testing.T, status uint16, body []byte, encoding, retryAfter, reset string, cut int) {
		client := newClient(t, brellium.WithoutRateLimiter(), brellium.WithBlockCooldown(0), brellium.WithHTTPClient(&http.Client{Transport: roundTripper(func(*http.Request) (*http.Response, error) {
			resp := reply(100+int(status)%900, http.Header{"Content-Encoding": {encoding}, "Retry-After": {retryAfter, reset},
				"Ratelimit-Remaining": {retryAfter}, "Ratelimit-Limit": {reset}, "Ratelimit-Reset": {reset}}, string(body))
			if cut > 0 {
				resp.Body = io.NopCloser(io.MultiReader(io.LimitReader(resp.Body, int64(cut)), broken{}))
			}
			return resp, nil
		})}))
		for _, c := range callers {
			if c.op == opToken || c.op == opPut {
				continue
			}
			err := c.call(t.Context(), client, brellium.WithMaxRetries(0))
			if err == nil {
				continue
			}
			safe(t, err)
			var (
				api    *brellium.APIError
				conn   *brellium.ConnectionError
				decode *brellium.DecodeError
				page   *brellium.PaginationError
				block  *brellium.BlockedError
			)
			assert.True(t, errors.As(err, &api) || errors.As(err, &conn) || errors.As(err, &decode) || errors.As(err, &page) || errors.As(err, &block), "%T", err)
			if !c.write {
				assert.False(t, brellium.OutcomeUnknown(err))
			}
			if wait, ok := brellium.RetryAfter(err); ok {
				assert.GreaterOrEqual(t, wait, time.Duration(0))
				assert.LessOrEqual(t, wait, 366*24*time.Hour)
			}
		}
	})
}
