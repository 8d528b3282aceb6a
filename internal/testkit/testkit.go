// Package testkit contains helpers that the tests of several packages share.
// Only tests import it.
package testkit

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

// NewClient returns a client of emu.
func NewClient(t testing.TB, emu *brelliumtest.Emulator, opts ...brellium.ClientOption) *brellium.Client {
	t.Helper()
	client, err := emu.Client(opts...)
	require.NoError(t, err)
	return client
}

// NewTokenClient returns a client with a fixed token.
func NewTokenClient(t testing.TB, opts ...brellium.ClientOption) *brellium.Client {
	t.Helper()
	client, err := brellium.NewClient(append([]brellium.ClientOption{
		brellium.WithBaseURL("https://api.example.test"), brellium.WithAccessToken("token-1"),
	}, opts...)...)
	require.NoError(t, err)
	return client
}

// NewStubClient returns a client with a fixed token whose requests respond
// handles.
func NewStubClient(t testing.TB, respond RoundTripFunc, opts ...brellium.ClientOption) *brellium.Client {
	t.Helper()
	return NewTokenClient(t, append([]brellium.ClientOption{
		WithTransport(respond), brellium.WithoutRateLimiter(), brellium.WithAttemptTimeout(20 * time.Second),
	}, opts...)...)
}

// RoundTripFunc is a transport that is one function.
type RoundTripFunc func(*http.Request) (*http.Response, error)

// RoundTrip calls f.
func (f RoundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// WithTransport makes a client send its requests over rt.
func WithTransport(rt http.RoundTripper) brellium.ClientOption {
	return brellium.WithHTTPClient(&http.Client{Transport: rt})
}

// Reply returns a response of a transport.
func Reply(status int, header http.Header, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body))}
}

// Bubble runs a test in virtual time, with an emulator and a client of it. It is
// a subtest unless name is "".
func Bubble(t *testing.T, name string, test func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client), opts ...brellium.ClientOption) {
	t.Helper()
	run := func(t *testing.T) {
		emu := brelliumtest.New()
		test(t, emu, NewClient(t, emu, opts...))
	}
	if name == "" {
		synctest.Test(t, run)
		return
	}
	t.Run(name, func(t *testing.T) { synctest.Test(t, run) })
}

// Concurrently makes n calls at the same time. None may fail.
func Concurrently(t *testing.T, n int, call func(ctx context.Context, i int) error) {
	t.Helper()
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() { assert.NoError(t, call(t.Context(), i)) })
	}
	calls.Wait()
}

// SampleAudit is a response to Retrieve.
const SampleAudit = `{"audit_id":"` + brelliumtest.SampleAuditID + `"}`

// Retrieve is a call that only reads.
func Retrieve(ctx context.Context, client *brellium.Client, opts ...brellium.CallOption) error {
	_, err := client.Audits.Retrieve(ctx, brelliumtest.SampleAuditID, opts...)
	return err
}

// CreateUser is a write that is not retried after an unknown outcome.
func CreateUser(ctx context.Context, client *brellium.Client, opts ...brellium.CallOption) error {
	_, err := client.Users.Create(ctx, brellium.UserCreateParams{Email: "casey@example.test"}, opts...)
	return err
}

// RateLimited is a 429 with this Retry-After.
func RateLimited(retryAfter string) brelliumtest.Fault {
	return brelliumtest.Status(429, "RATE_LIMITED").WithHeader("Retry-After", retryAfter)
}

// ExpiredURL is how a storage host rejects an upload URL that has expired.
func ExpiredURL() brelliumtest.Fault {
	return brelliumtest.Status(403, "AccessDenied").WithMessage("Request has expired")
}

// IsAPIError returns a check for an *APIError with this status and code. An empty
// code matches every code, and so do the codes of a storage host.
func IsAPIError(status int, code brellium.ErrorCode) func(*testing.T, error) {
	return func(t *testing.T, err error) {
		t.Helper()
		var e *brellium.APIError
		require.ErrorAs(t, err, &e)
		assert.Equal(t, status, e.StatusCode)
		if code != "" && e.Operation != brelliumtest.OpDocumentPut {
			assert.Equal(t, code, e.Code)
		}
	}
}

// IsConnectionError returns a check for a *ConnectionError that no context caused.
func IsConnectionError(sent bool) func(*testing.T, error) {
	return func(t *testing.T, err error) {
		t.Helper()
		var e *brellium.ConnectionError
		require.ErrorAs(t, err, &e)
		assert.Equal(t, sent, e.Sent)
		assert.NotErrorIs(t, err, context.DeadlineExceeded, "only the caller's deadline may match")
		assert.NotErrorIs(t, err, context.Canceled)
	}
}

// IsInvalid checks that err is a *ValidationError for field whose text does not
// contain hidden.
func IsInvalid(t *testing.T, err error, field, hidden string) {
	t.Helper()
	var e *brellium.ValidationError
	if assert.ErrorAs(t, err, &e) {
		assert.Equal(t, field, e.Field)
		assert.NotEmpty(t, e.Reason)
		assert.True(t, hidden == "" || !strings.Contains(err.Error(), hidden), "%v", err)
	}
}

// Content returns the content of a file, different for each number.
func Content(number, size int) []byte {
	data := bytes.Repeat([]byte{byte(number), byte(number >> 8), 'x'}, size/3+1)[:size]
	copy(data, fmt.Sprintf("file %d", number))
	return data
}

// Digest is the SHA-256 of data as the emulator reports it.
func Digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// LimiterFunc is a limiter that is one function.
type LimiterFunc func(ctx context.Context) (brellium.Permit, error)

// Acquire calls f.
func (f LimiterFunc) Acquire(ctx context.Context) (brellium.Permit, error) { return f(ctx) }

// Permit is a permit that records its results.
type Permit struct{ Results *[]brellium.LimiterResult }

// Done records r.
func (p Permit) Done(r brellium.LimiterResult) { *p.Results = append(*p.Results, r) }

// BrokenStore is a token store whose Load fails while an error is set.
type BrokenStore struct {
	brellium.TokenStore
	mu  sync.Mutex
	err error
}

// Set makes Load fail with err; nil repairs the store.
func (s *BrokenStore) Set(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// Load returns the error that is set, or the stored token.
func (s *BrokenStore) Load(ctx context.Context, key string) (*brellium.Token, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	return s.TokenStore.Load(ctx, key)
}

// JSONLogger returns a logger whose records Records reads.
func JSONLogger(w io.Writer, level slog.Level) *slog.Logger {
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level}))
}

// Records reads what a JSONLogger has written.
func Records(t testing.TB, log *bytes.Buffer) (all []map[string]any) {
	t.Helper()
	for d := json.NewDecoder(log); ; {
		var r map[string]any
		err := d.Decode(&r)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		all = append(all, r)
	}
}
