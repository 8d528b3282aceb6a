package e2e_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
	"github.com/brellium/brellium-go/internal/testkit"
)

// caller makes one call of one operation.
type caller struct {
	op      string // its name in the operation table and in the emulator
	name    string // of the subtest, if it is not op
	retried bool   // after an unknown outcome
	write   bool
	call    func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error
}

func (c caller) String() string {
	if c.name != "" {
		return c.name
	}
	return c.op
}

const someID = "5f0c1f0e-8a55-4d4e-9a1e-3f6d0c9b7a21"

// callers has at least one entry for every operation.
var callers = []caller{
	{op: "audits.list", retried: true, call: func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
		_, err := c.Audits.List(ctx, brellium.AuditListParams{Limit: 2}, opts...)
		return err
	}},
	{op: "audits.retrieve", retried: true, call: func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
		_, err := c.Audits.Retrieve(ctx, brelliumtest.SampleAuditID, opts...)
		return err
	}},
	{op: "audits.update", retried: true, write: true, call: func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
		_, err := c.Audits.Update(ctx, brelliumtest.SampleAuditID, brellium.AuditUpdateParams{Flags: []string{"Failed"}}, opts...)
		return err
	}},
	{op: "audits.batch_update", retried: true, write: true, call: func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
		_, err := c.Audits.BatchUpdate(ctx, brellium.AuditBatchUpdateParams{AuditIDs: []string{brelliumtest.SampleAuditID}, Flags: []string{}}, opts...)
		return err
	}},
	{op: "documents.create", name: "documents.create with external ids", retried: true, write: true, call: func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
		_, err := c.Documents.Create(ctx, brellium.DocumentCreateParams{Documents: []brellium.DocumentInput{
			{Filename: "a.pdf", ExternalID: "a"}, {Filename: "b.pdf", ExternalID: "b"}}}, opts...)
		return err
	}},
	{op: "documents.create", name: "documents.create without an external id", write: true, call: func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
		_, err := c.Documents.Create(ctx, brellium.DocumentCreateParams{Documents: []brellium.DocumentInput{
			{Filename: "a.pdf", ExternalID: "a"}, {Filename: "b.pdf"}}}, opts...)
		return err
	}},
	{op: "documents.list", retried: true, call: func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
		_, err := c.Documents.List(ctx, brellium.DocumentListParams{}, opts...)
		return err
	}},
	{op: "documents.retrieve", retried: true, call: func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
		_, err := c.Documents.Retrieve(ctx, someID, opts...)
		return err
	}},
	{op: brelliumtest.OpDocumentPut, retried: true, write: true, call: func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
		created, err := c.Documents.Create(ctx, brellium.DocumentCreateParams{Documents: []brellium.DocumentInput{{Filename: "a.pdf", ExternalID: "a"}}})
		if err != nil {
			return err
		}
		return c.Documents.Put(ctx, created.Documents[0].UploadURL, brellium.FileFromBytes("a.pdf", []byte("%PDF")), opts...)
	}},
	{op: "users.create", write: true, call: func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
		_, err := c.Users.Create(ctx, brellium.UserCreateParams{Email: "casey@example.test"}, opts...)
		return err
	}},
	{op: "users.list", retried: true, call: func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
		_, err := c.Users.List(ctx, brellium.UserListParams{}, opts...)
		return err
	}},
	{op: "users.retrieve", retried: true, call: func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
		_, err := c.Users.Retrieve(ctx, someID, opts...)
		return err
	}},
	{op: "users.delete", retried: true, write: true, call: func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
		return c.Users.Delete(ctx, someID, opts...)
	}},
	{op: "email_recipients.create", write: true, call: func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
		_, err := c.EmailRecipients.Create(ctx, brellium.EmailRecipientCreateParams{Email: "casey@example.test"}, opts...)
		return err
	}},
	{op: "email_recipients.list", retried: true, call: func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
		_, err := c.EmailRecipients.List(ctx, brellium.EmailRecipientListParams{Email: "casey@example.test"}, opts...)
		return err
	}},
	{op: "email_recipients.retrieve", retried: true, call: func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
		_, err := c.EmailRecipients.Retrieve(ctx, someID, opts...)
		return err
	}},
	{op: brelliumtest.OpTokenCreate, retried: true, call: func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
		_, err := c.OAuth.CreateToken(ctx, opts...)
		return err
	}},
}

// ending is the expected result of a call.
type ending struct {
	attempts  int // 0: not checked
	reached   int // requests that the server saw
	exhausted brellium.ExhaustedReason
	unknown   bool
	transient bool
	cause     func(t *testing.T, err error)
}

// failure is one thing that goes wrong with every request of an operation.
type failure struct {
	name string
	// fault is injected into every request of the operation.
	fault *brelliumtest.Fault
	// lost is what the transport returns instead of sending.
	lost error
	// cancel and deadline end the caller's context after a second.
	cancel, deadline bool
	// end is the expected result.
	end func(c caller) ending
}

// unknownBudget and throttledBudget are how often a call is sent at most. A token
// request has fewer attempts.
func (c caller) unknownBudget() int {
	if c.op == brelliumtest.OpTokenCreate {
		return 3
	}
	return 5
}

// throttledBudget is the attempts of a call that is always rate limited, 0 for as
// many as fit into the total time.
func (c caller) throttledBudget() (attempts int, reason brellium.ExhaustedReason) {
	switch c.op {
	case brelliumtest.OpTokenCreate:
		return 3, brellium.ExhaustedAttempts
	case brelliumtest.OpDocumentPut: // WithMaxRetries counts them too
		return 5, brellium.ExhaustedAttempts
	}
	return 0, brellium.ExhaustedTotalTime
}

func neverSent(c caller) ending {
	return ending{attempts: c.unknownBudget(), exhausted: brellium.ExhaustedAttempts, transient: true, cause: testkit.IsConnectionError(false)}
}

// AdRoll/hologram#73, sourcegraph/sourcegraph-public-snapshot#23460
func unknownHost(c caller) ending {
	e := neverSent(c)
	e.attempts = 3
	return e
}

func notSendable(caller) ending {
	return ending{attempts: 1, cause: testkit.IsConnectionError(false)}
}

// unknown is retried only where that does no harm.
func unknown(cause func(*testing.T, error)) func(c caller) ending {
	return func(c caller) ending {
		e := ending{attempts: 1, reached: 1, unknown: c.write, transient: true, cause: cause}
		if c.retried {
			e.attempts, e.reached, e.exhausted = c.unknownBudget(), c.unknownBudget(), brellium.ExhaustedAttempts
		}
		return e
	}
}

// stalled is unknown, but a token request, whose attempts take 10 s, has no time
// for a third.
func stalled(c caller) ending {
	e := unknown(testkit.IsConnectionError(true))(c)
	if c.op == brelliumtest.OpTokenCreate {
		e.attempts, e.reached, e.exhausted = 2, 2, brellium.ExhaustedTotalTime
	}
	return e
}

func rejected(status int, code brellium.ErrorCode) func(c caller) ending {
	return func(caller) ending {
		return ending{attempts: 1, reached: 1, cause: testkit.IsAPIError(status, code)}
	}
}

func undecodable(c caller) ending {
	if c.op == brelliumtest.OpDocumentPut {
		return ending{attempts: 1, reached: 1}
	}
	return ending{attempts: 1, reached: 1, unknown: c.write, cause: func(t *testing.T, err error) {
		var e *brellium.DecodeError
		require.ErrorAs(t, err, &e)
		assert.Equal(t, c.op, e.Operation)
		assert.Equal(t, 200, e.StatusCode)
	}}
}

func interrupted(want error) func(c caller) ending {
	return func(c caller) ending {
		return ending{reached: 1, unknown: c.write, cause: func(t *testing.T, err error) {
			var e *brellium.InterruptedError
			require.ErrorAs(t, err, &e)
			assert.Equal(t, c.op, e.Operation)
			assert.ErrorIs(t, err, want)
		}}
	}
}

func script(f brelliumtest.Fault) *brelliumtest.Fault {
	f = f.Forever()
	return &f
}

// okList is a response of some length, of which a part can get lost.
var okList = brelliumtest.Respond(200, "application/json", `{"object":"list","data":[],"has_more":false,"next_cursor":null,"padding":"`+strings.Repeat("x", 500)+`"}`)

var failures = []failure{
	{name: "dial fails", fault: script(brelliumtest.NeverSent()), end: neverSent},
	{name: "connection dead before a byte", fault: script(brelliumtest.Unsent()), end: neverSent},
	{name: "host name not looked up", lost: &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "server misbehaving", Name: "api.example.test", IsTemporary: true}}, end: neverSent},
	{name: "no such host", lost: &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "api.example.test", IsNotFound: true}}, end: unknownHost},
	{name: "TLS handshake", lost: tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake", Conn: new(net.TCPConn)}, end: neverSent},
	{name: "TLS handshake timeout", lost: errors.New("net/http: TLS handshake timeout"), end: neverSent},
	{name: "unknown authority", lost: &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, end: notSendable},
	{name: "transport does not send", lost: errors.Join(errors.New("circuit open"), brellium.ErrDoNotSend), end: notSendable},

	{name: "429", fault: script(brelliumtest.Status(429, "RATE_LIMITED").WithHeader("Retry-After", "1")), end: func(c caller) ending {
		attempts, reason := c.throttledBudget()
		return ending{attempts: attempts, reached: attempts, exhausted: reason, transient: true, cause: func(t *testing.T, err error) {
			testkit.IsAPIError(429, brellium.CodeRateLimited)(t, err)
			assert.ErrorIs(t, err, brellium.ErrRateLimited)
			wait, ok := brellium.RetryAfter(err)
			assert.True(t, ok)
			assert.Equal(t, time.Second, wait)
		}}
	}},
	{name: "401", fault: script(brelliumtest.Status(401, "UNAUTHORIZED")), end: func(c caller) ending {
		e := ending{attempts: 2, reached: 2, cause: testkit.IsAPIError(401, "UNAUTHORIZED")}
		if c.op == brelliumtest.OpTokenCreate || c.op == brelliumtest.OpDocumentPut {
			e.attempts, e.reached = 1, 1
		}
		return e
	}},

	{name: "408", fault: script(brelliumtest.Status(408, "TIMEOUT")), end: unknown(testkit.IsAPIError(408, "TIMEOUT"))},
	{name: "500", fault: script(brelliumtest.Status(500, "INTERNAL")), end: unknown(testkit.IsAPIError(500, "INTERNAL"))},
	{name: "500 empty", fault: script(brelliumtest.Bare(500)), end: unknown(testkit.IsAPIError(500, brellium.CodeHTTPError))},
	{name: "502 with JSON", fault: script(brelliumtest.Status(502, "BAD_GATEWAY")), end: unknown(testkit.IsAPIError(502, brellium.CodeBadGateway))},
	{name: "502 with HTML", fault: script(brelliumtest.HTML(502)), end: unknown(testkit.IsAPIError(502, brellium.CodeHTTPError))},
	{name: "503", fault: script(brelliumtest.Status(503, "UNAVAILABLE")), end: unknown(testkit.IsAPIError(503, "UNAVAILABLE"))},
	{name: "503 after the work", fault: script(brelliumtest.Status(503, "UNAVAILABLE").AfterWork()), end: unknown(testkit.IsAPIError(503, "UNAVAILABLE"))},
	{name: "504", fault: script(brelliumtest.Bare(504)), end: unknown(testkit.IsAPIError(504, brellium.CodeHTTPError))},
	{name: "closed before headers", fault: script(brelliumtest.DropBefore()), end: unknown(testkit.IsConnectionError(true))},
	{name: "reset before headers", fault: script(brelliumtest.DropAfter().AsReset()), end: unknown(testkit.IsConnectionError(true))},
	{name: "reset in the body", fault: script(okList.ResetInBody()), end: unknown(testkit.IsConnectionError(true))},
	{name: "truncated body", fault: script(okList.Truncated()), end: unknown(testkit.IsConnectionError(true))},
	{name: "truncated gzip", fault: script(okList.GzipTruncated()), end: unknown(testkit.IsConnectionError(true))},
	{name: "stall in headers", fault: script(brelliumtest.StallHeaders(0)), end: stalled},
	{name: "stall in the body", fault: script(okList.StallInBody(0)), end: stalled},

	{name: "bare 403", fault: script(brelliumtest.Blocked()), end: func(c caller) ending {
		if c.op == brelliumtest.OpDocumentPut {
			return rejected(403, "")(c)
		}
		return ending{attempts: 1, reached: 1, cause: func(t *testing.T, err error) {
			var e *brellium.BlockedError
			require.ErrorAs(t, err, &e)
			assert.Equal(t, c.op, e.Operation)
			assert.Zero(t, e.RetryAt)
		}}
	}},
	{name: "403 with JSON", fault: script(brelliumtest.Status(403, "access_denied")), end: rejected(403, "access_denied")},
	{name: "400", fault: script(brelliumtest.Status(400, "INVALID_CONTENT_TYPE")), end: rejected(400, "INVALID_CONTENT_TYPE")},
	{name: "404", fault: script(brelliumtest.Status(404, "NOT_FOUND")), end: rejected(404, "NOT_FOUND")},
	{name: "409", fault: script(brelliumtest.Status(409, "USER_EXISTS")), end: rejected(409, brellium.CodeUserExists)},
	// psf/requests#2422
	{name: "413", fault: script(brelliumtest.Bare(413)), end: rejected(413, brellium.CodeHTTPError)},
	{name: "414", fault: script(brelliumtest.HTML(414)), end: rejected(414, brellium.CodeHTTPError)},
	{name: "431", fault: script(brelliumtest.Bare(431)), end: rejected(431, brellium.CodeHTTPError)},
	{name: "304", fault: script(brelliumtest.Bare(304)), end: rejected(304, brellium.CodeHTTPError)},
	{name: "302", fault: script(brelliumtest.Redirect(302, "https://elsewhere.example.test/v2/audits")), end: rejected(302, brellium.CodeHTTPError)},
	{name: "200 with HTML", fault: script(brelliumtest.HTML(200)), end: undecodable},
	{name: "200 empty", fault: script(brelliumtest.Respond(200, "application/json", "")), end: func(c caller) ending {
		if c.op == "users.delete" { // expects nothing
			return ending{attempts: 1, reached: 1}
		}
		return undecodable(c)
	}},

	{name: "caller cancels", fault: script(brelliumtest.StallHeaders(0)), cancel: true, end: interrupted(context.Canceled)},
	{name: "caller's deadline", fault: script(brelliumtest.StallHeaders(0)), deadline: true, end: interrupted(context.DeadlineExceeded)},
	{name: "caller cancels in the body", fault: script(okList.StallInBody(0)), cancel: true, end: interrupted(context.Canceled)},
	{name: "caller cancels before a byte is sent", lost: context.Canceled, cancel: true, end: func(c caller) ending {
		e := interrupted(context.Canceled)(c)
		e.reached, e.unknown = 0, false
		return e
	}},
}

// TestEveryOperationUnderEveryFailure checks, for every call and failure, how many
// requests reach the server and which error the call returns.
func TestEveryOperationUnderEveryFailure(t *testing.T) {
	for _, c := range callers {
		for _, f := range failures {
			t.Run(c.String()+"/"+f.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { checkFailure(t, c, f) })
			})
		}
	}
}

func checkFailure(t *testing.T, c caller, f failure) {
	emu := brelliumtest.New()
	if f.fault != nil {
		emu.Inject(c.op, *f.fault)
	}
	rt := &losing{base: emu.Transport(), err: f.lost, op: c.op}
	client, err := emu.Client(
		testkit.WithTransport(rt),
		brellium.WithoutRateLimiter(),
		brellium.WithAttemptTimeout(5*time.Second),
	)
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if f.cancel {
		time.AfterFunc(time.Second, cancel)
	}
	if f.deadline {
		ctx, cancel = context.WithTimeout(ctx, time.Second)
		defer cancel()
	}
	var resp brellium.Response
	start := time.Now()
	err = c.call(ctx, client, brellium.WithResponseInto(&resp))
	took := time.Since(start)
	reached := emu.Count(c.op)
	want := f.end(c)
	time.Sleep(time.Minute) // a token request outlives the call that started it, but not for long

	if want.exhausted == brellium.ExhaustedTotalTime && want.attempts == 0 {
		assert.Greater(t, took, 58*time.Second, "retried for as long as it may")
		assert.Greater(t, reached, 10)
	} else {
		assert.Equal(t, want.reached, reached, "requests that reached the server")
	}
	if c.op != brelliumtest.OpTokenCreate && want.attempts > 0 {
		assert.Len(t, resp.Attempts, want.attempts)
	}
	if f.lost != nil && want.attempts > 0 {
		assert.EqualValues(t, want.attempts, rt.lost.Load(), "requests given to the transport")
	}
	if c.op != brelliumtest.OpDocumentPut {
		assert.LessOrEqual(t, took, time.Minute, "total time")
	}
	if f.cancel || f.deadline {
		assert.Equal(t, time.Second, took)
	}
	if want.cause == nil {
		require.NoError(t, err)
		return
	}
	require.Error(t, err)
	want.cause(t, err)
	assert.Equal(t, want.unknown, brellium.OutcomeUnknown(err), "OutcomeUnknown of %v", err)
	assert.Equal(t, want.transient, brellium.IsTransient(err), "IsTransient of %v", err)
	var exhausted *brellium.RetriesExhaustedError
	if want.exhausted == "" {
		assert.False(t, errors.As(err, &exhausted), "%v", err)
		return
	}
	require.ErrorAs(t, err, &exhausted)
	assert.Equal(t, c.op, exhausted.Operation)
	if want.attempts > 0 {
		assert.Equal(t, want.attempts, exhausted.Attempts)
	}
	assert.Equal(t, want.exhausted, exhausted.Reason)
	assert.NotNil(t, exhausted.Unwrap())
}

// The emulator in process breaks off and stalls as real connections do.
func TestEveryOperationLosesARealConnection(t *testing.T) {
	for name, fault := range map[string]brelliumtest.Fault{
		"closed before headers": brelliumtest.DropBefore(),
		"reset before headers":  brelliumtest.DropAfter().AsReset(),
		"reset in the body":     okList.ResetInBody(),
		"truncated body":        okList.Truncated(),
		"stall in headers":      brelliumtest.StallHeaders(0),
		"stall in the body":     okList.StallInBody(0),
	} {
		for _, c := range callers {
			stall := strings.HasPrefix(name, "stall")
			if stall && (c.op == brelliumtest.OpTokenCreate || c.op == brelliumtest.OpDocumentPut) {
				continue // their timeouts are 10 s and 60 s
			}
			t.Run(c.String()+"/"+name, func(t *testing.T) {
				t.Parallel()
				emu := brelliumtest.New()
				require.NoError(t, emu.Start())
				defer emu.Close()
				transport := brellium.DefaultTransport()
				defer transport.CloseIdleConnections()
				client, err := brellium.NewClient(brellium.WithBaseURL(emu.URL), testkit.WithTransport(transport),
					brellium.WithClientCredentials(emu.ClientID, emu.ClientSecret), brellium.WithMaxRetries(0))
				require.NoError(t, err)
				require.NoError(t, testkit.Retrieve(t.Context(), client)) // a connection of an earlier request
				emu.ClearRequests()
				emu.Inject(c.op, fault.Forever())
				var opts []brellium.CallOption
				if stall {
					opts = append(opts, brellium.WithAttemptTimeout(100*time.Millisecond))
				}
				err = c.call(t.Context(), client, opts...)
				testkit.IsConnectionError(true)(t, err)
				assert.Equal(t, c.write, brellium.OutcomeUnknown(err))
				if c.op != brelliumtest.OpTokenCreate { // which has a policy of its own
					assert.Equal(t, 1, emu.Count(c.op))
				}
			})
		}
	}
}

// losing is a transport that fails instead of sending an operation's requests. It
// reports to httptrace as net/http does.
type losing struct {
	base http.RoundTripper
	err  error
	op   string
	lost atomic.Int32
}

func (l *losing) RoundTrip(r *http.Request) (*http.Response, error) {
	mine := !strings.HasSuffix(r.URL.Path, "/oauth/token")
	switch l.op {
	case brelliumtest.OpTokenCreate:
		mine = !mine
	case brelliumtest.OpDocumentPut:
		mine = r.Method == http.MethodPut
	}
	if l.err == nil || !mine {
		return l.base.RoundTrip(r)
	}
	l.lost.Add(1)
	if r.Body != nil {
		_ = r.Body.Close()
	}
	trace := httptrace.ContextClientTrace(r.Context())
	trace.GetConn(r.URL.Host)
	if l.err == context.Canceled { // a dial that never ends
		<-r.Context().Done()
		return nil, context.Cause(r.Context())
	}
	return nil, l.err
}

// For a transport that does not use httptrace, only an error that proves that
// nothing was sent counts as never sent.
func TestFailuresAreJudgedWithoutHTTPTrace(t *testing.T) {
	for _, tc := range []struct {
		name    string
		err     error
		verdict brellium.Verdict
	}{
		{"dial", &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("refused")}, brellium.VerdictNeverSent},
		{"dial through another error", errors.Join(errors.New("x"), &net.OpError{Op: "dial", Err: errors.New("refused")}), brellium.VerdictNeverSent},
		{"lookup", &net.DNSError{Err: "timeout", IsTimeout: true}, brellium.VerdictNeverSent},
		{"no such host", &net.DNSError{Err: "no such host", IsNotFound: true}, brellium.VerdictNeverSent},
		{"proxy", &net.OpError{Op: "proxyconnect", Net: "tcp", Err: errors.New("refused")}, brellium.VerdictNeverSent},
		{"handshake", tls.RecordHeaderError{Conn: new(net.TCPConn)}, brellium.VerdictNeverSent},
		{"bad record after the handshake", tls.RecordHeaderError{}, brellium.VerdictUnknown},
		{"handshake timeout", errors.New("net/http: TLS handshake timeout"), brellium.VerdictNeverSent},
		{"plain HTTP", http.ErrSchemeMismatch, brellium.VerdictNeverSent},
		{"text that mentions a handshake", errors.New("upstream: TLS handshake failed behind the proxy"), brellium.VerdictUnknown},
		{"certificate", x509.HostnameError{Certificate: new(x509.Certificate)}, brellium.VerdictNotSendable},
		{"expired", x509.CertificateInvalidError{Reason: x509.Expired, Cert: new(x509.Certificate)}, brellium.VerdictNotSendable},
		{"ErrDoNotSend", brellium.ErrDoNotSend, brellium.VerdictNotSendable},
		{"reset", &net.OpError{Op: "read", Net: "tcp", Err: errors.New("reset")}, brellium.VerdictUnknown},
		{"write", &net.OpError{Op: "write", Net: "tcp", Err: errors.New("broken pipe")}, brellium.VerdictUnknown},
		{"a context of its own", context.DeadlineExceeded, brellium.VerdictUnknown},
		{"canceled by itself", context.Canceled, brellium.VerdictUnknown},
		{"anything", errors.New("proxy hiccup"), brellium.VerdictUnknown},
	} {
		t.Run(tc.name, func(t *testing.T) {
			client := testkit.NewTokenClient(t, testkit.WithTransport(testkit.RoundTripFunc(func(*http.Request) (*http.Response, error) {
				return nil, tc.err
			})))
			var resp brellium.Response
			_, err := client.Users.Create(t.Context(), brellium.UserCreateParams{Email: "casey@example.test"},
				brellium.WithResponseInto(&resp), brellium.WithMaxRetries(0))
			var e *brellium.ConnectionError
			require.ErrorAs(t, err, &e)
			require.Len(t, resp.Attempts, 1)
			assert.Equal(t, tc.verdict, resp.Attempts[0].Verdict)
			assert.Equal(t, tc.verdict == brellium.VerdictUnknown, brellium.OutcomeUnknown(err))
			assert.Equal(t, tc.verdict == brellium.VerdictUnknown, e.Sent)
			assert.NotErrorIs(t, err, context.Canceled)
			assert.NotErrorIs(t, err, context.DeadlineExceeded)
		})
	}
}

func TestEveryCallRejectsInvalidOptions(t *testing.T) {
	emu := brelliumtest.New()
	client := testkit.NewClient(t, emu)
	for _, c := range callers {
		if c.op == brelliumtest.OpDocumentPut {
			continue // its batch is sent first
		}
		for _, tc := range []struct {
			field, hidden string
			opt           brellium.CallOption
		}{
			{"CallOption", "", nil},
			{"WithResponseInto", "", brellium.WithResponseInto(nil)},
			{"WithHeader", "s3cret", brellium.WithHeader("X-Key", "s3cret\r\nX-Other: 1")},
		} {
			testkit.IsInvalid(t, c.call(t.Context(), client, tc.opt), tc.field, tc.hidden)
		}
		var none context.Context
		testkit.IsInvalid(t, c.call(none, client), "ctx", "")
	}
	assert.Zero(t, emu.Count(brelliumtest.OpAny), "nothing is sent")
}

// README's table follows the guide's table "Decide what is safe to retry".
func TestMatrixMatchesTheOperationTable(t *testing.T) {
	for _, op := range operations(t) {
		var retried []string
		for _, c := range callers {
			if c.op == op.name {
				assert.Equal(t, op.write(), c.write, op.name)
				retried = append(retried, map[bool]string{true: "yes", false: "no"}[c.retried])
			}
		}
		want := []string{op.retried}
		if op.retried != "yes" && op.retried != "no" {
			want = []string{"yes", "no"} // a condition: the matrix has a call that meets it and one that does not
		}
		assert.Equal(t, want, retried, op.name)
	}
	for _, c := range callers {
		assert.True(t, slices.ContainsFunc(operations(t), func(op operation) bool { return op.name == c.op }), c.op)
	}
}

// WithMaxRetries, of the client or of the call, does not make an operation safe to
// retry; WithIdempotent does.
// go-resty/resty#777, TestSprite/testsprite-cli#103
func TestMaxRetriesOfEveryOperation(t *testing.T) {
	for _, c := range callers {
		testkit.Bubble(t, c.String(), func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
			emu.Inject(c.op, brelliumtest.DropBefore().Forever())
			require.Error(t, c.call(t.Context(), client))
			want := 1
			if c.retried {
				want = 3
			}
			assert.Equal(t, want, emu.Count(c.op))
			emu.ClearRequests()
			if c.op == brelliumtest.OpTokenCreate {
				return // which has a policy of its own
			}
			require.Error(t, c.call(t.Context(), client, brellium.WithMaxRetries(1)))
			assert.Equal(t, min(want, 2), emu.Count(c.op))
			emu.ClearRequests()
			err := c.call(t.Context(), client, brellium.WithMaxRetries(1), brellium.WithIdempotent())
			require.Error(t, err)
			assert.Equal(t, 2, emu.Count(c.op))
			assert.Equal(t, c.write, brellium.OutcomeUnknown(err))
		}, brellium.WithMaxRetries(2))
	}
}
