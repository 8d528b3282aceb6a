package brellium_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

// caller makes one call of one operation. op is the operation's name in the
// operation table and in the emulator.
type caller struct {
	op   string
	name string // op, where the body is empty
	// repeatable says that the operation is sent again after an unknown
	// outcome. TestTheMatrixFollowsTheTable holds it against the table.
	repeatable bool
	write      bool
	call       func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error
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
	{op: "audits.list", repeatable: true, call: func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
		_, err := c.Audits.List(ctx, brellium.AuditListParams{Limit: 2}, opts...)
		return err
	}},
	{op: "audits.retrieve", repeatable: true, call: func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
		_, err := c.Audits.Retrieve(ctx, brelliumtest.SampleAuditID, opts...)
		return err
	}},
	{op: "audits.update", repeatable: true, write: true, call: func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
		_, err := c.Audits.Update(ctx, brelliumtest.SampleAuditID, brellium.AuditUpdateParams{Flags: []string{"Failed"}}, opts...)
		return err
	}},
	{op: "audits.batch_update", repeatable: true, write: true, call: func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
		_, err := c.Audits.BatchUpdate(ctx, brellium.AuditBatchUpdateParams{AuditIDs: []string{brelliumtest.SampleAuditID}, Flags: []string{}}, opts...)
		return err
	}},
	{op: "documents.create", name: "documents.create with external ids", repeatable: true, write: true, call: func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
		_, err := c.Documents.Create(ctx, brellium.DocumentCreateParams{Documents: []brellium.DocumentInput{
			{Filename: "a.pdf", ExternalID: "a"}, {Filename: "b.pdf", ExternalID: "b"}}}, opts...)
		return err
	}},
	{op: "documents.create", name: "documents.create without an external id", write: true, call: func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
		_, err := c.Documents.Create(ctx, brellium.DocumentCreateParams{Documents: []brellium.DocumentInput{
			{Filename: "a.pdf", ExternalID: "a"}, {Filename: "b.pdf"}}}, opts...)
		return err
	}},
	{op: "documents.list", repeatable: true, call: func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
		_, err := c.Documents.List(ctx, brellium.DocumentListParams{}, opts...)
		return err
	}},
	{op: "documents.retrieve", repeatable: true, call: func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
		_, err := c.Documents.Retrieve(ctx, someID, opts...)
		return err
	}},
	{op: opPut, repeatable: true, write: true, call: func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
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
	{op: "users.list", repeatable: true, call: func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
		_, err := c.Users.List(ctx, brellium.UserListParams{}, opts...)
		return err
	}},
	{op: "users.retrieve", repeatable: true, call: func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
		_, err := c.Users.Retrieve(ctx, someID, opts...)
		return err
	}},
	{op: "users.delete", repeatable: true, write: true, call: func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
		return c.Users.Delete(ctx, someID, opts...)
	}},
	{op: "email_recipients.create", write: true, call: func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
		_, err := c.EmailRecipients.Create(ctx, brellium.EmailRecipientCreateParams{Email: "casey@example.test"}, opts...)
		return err
	}},
	{op: "email_recipients.list", repeatable: true, call: func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
		_, err := c.EmailRecipients.List(ctx, brellium.EmailRecipientListParams{Email: "casey@example.test"}, opts...)
		return err
	}},
	{op: "email_recipients.retrieve", repeatable: true, call: func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
		_, err := c.EmailRecipients.Retrieve(ctx, someID, opts...)
		return err
	}},
	{op: opToken, repeatable: true, call: func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
		_, err := c.OAuth.CreateToken(ctx, opts...)
		return err
	}},
}

// Two operations have rules of their own: a mint has few attempts and little
// time, and a PUT to storage goes without a token, the guard against blocks and
// a total time, and takes any 2xx.
const (
	opToken = brelliumtest.OpTokenCreate
	opPut   = brelliumtest.OpDocumentPut
)

// ending is what a call is expected to come to.
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
	// fault is scripted for the operation for ever.
	fault *brelliumtest.Fault
	// lost is what the transport returns instead of sending.
	lost error
	// limit ends the caller's context after a second: by cancelling it, or by
	// a deadline.
	cancel, deadline bool
	// end says what a call comes to.
	end func(c caller) ending
}

// The budgets: the API's calls, and the mints of a token.
func (c caller) unknownBudget() int {
	if c.op == opToken {
		return 3
	}
	return 5
}

// refusedBudget is the attempts of a call that is always rate limited, 0 for as
// many as fit into the total time.
func (c caller) refusedBudget() (attempts int, reason brellium.ExhaustedReason) {
	switch c.op {
	case opToken:
		return 3, brellium.ExhaustedAttempts
	case opPut: // WithMaxRetries counts them too
		return 5, brellium.ExhaustedAttempts
	}
	return 0, brellium.ExhaustedTotalTime
}

func neverSent(c caller) ending {
	return ending{attempts: c.unknownBudget(), exhausted: brellium.ExhaustedAttempts, transient: true, cause: isConnectionError(false)}
}

func notSendable(caller) ending {
	return ending{attempts: 1, cause: isConnectionError(false)}
}

// unknown is repeated only where that does no harm.
func unknown(cause func(*testing.T, error)) func(c caller) ending {
	return func(c caller) ending {
		e := ending{attempts: 1, reached: 1, unknown: c.write, transient: true, cause: cause}
		if c.repeatable {
			e.attempts, e.reached, e.exhausted = c.unknownBudget(), c.unknownBudget(), brellium.ExhaustedAttempts
		}
		return e
	}
}

// stalled is unknown, but a mint, whose attempts take 10 s, has no time for a
// third.
func stalled(c caller) ending {
	e := unknown(isConnectionError(true))(c)
	if c.op == opToken {
		e.attempts, e.reached, e.exhausted = 2, 2, brellium.ExhaustedTotalTime
	}
	return e
}

func rejected(status int) func(c caller) ending {
	return func(caller) ending { return ending{attempts: 1, reached: 1, cause: isAPIError(status, "")} }
}

func undecodable(c caller) ending {
	if c.op == opPut {
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

func isAPIError(status int, code brellium.ErrorCode) func(*testing.T, error) {
	return func(t *testing.T, err error) {
		var e *brellium.APIError
		require.ErrorAs(t, err, &e)
		assert.Equal(t, status, e.StatusCode)
		if code != "" && e.Operation != opPut { // a storage host spells errors in its own way
			assert.Equal(t, code, e.Code)
		}
	}
}

func isConnectionError(sent bool) func(*testing.T, error) {
	return func(t *testing.T, err error) {
		var e *brellium.ConnectionError
		require.ErrorAs(t, err, &e)
		assert.Equal(t, sent, e.Sent)
		assert.NotErrorIs(t, err, context.DeadlineExceeded, "only the caller's deadline may match")
		assert.NotErrorIs(t, err, context.Canceled)
	}
}

func script(f brelliumtest.Fault) *brelliumtest.Fault {
	f = f.Forever()
	return &f
}

// answer is a good answer of some length, of which a part can get lost.
var answer = brelliumtest.Respond(200, "application/json", `{"object":"list","data":[],"has_more":false,"next_cursor":null,"padding":"`+strings.Repeat("x", 500)+`"}`)

var failures = []failure{
	{name: "dial refused", fault: script(brelliumtest.NeverSent()), end: neverSent},
	{name: "connection dead before a byte", fault: script(brelliumtest.Unsent()), end: neverSent},
	{name: "host name not looked up", lost: &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "server misbehaving", Name: "api.example.test", IsTemporary: true}}, end: neverSent},
	{name: "no such host", lost: &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "api.example.test", IsNotFound: true}}, end: notSendable},
	{name: "TLS handshake", lost: tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake", Conn: new(net.TCPConn)}, end: neverSent},
	{name: "TLS handshake timeout", lost: errors.New("net/http: TLS handshake timeout"), end: neverSent},
	{name: "unknown authority", lost: &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, end: notSendable},
	{name: "transport will not send", lost: errors.Join(errors.New("circuit open"), brellium.ErrDoNotSend), end: notSendable},

	{name: "429", fault: script(brelliumtest.Status(429, "RATE_LIMITED").WithHeader("Retry-After", "1")), end: func(c caller) ending {
		attempts, reason := c.refusedBudget()
		return ending{attempts: attempts, reached: attempts, exhausted: reason, transient: true, cause: func(t *testing.T, err error) {
			isAPIError(429, brellium.CodeRateLimited)(t, err)
			assert.ErrorIs(t, err, brellium.ErrRateLimited)
			wait, ok := brellium.RetryAfter(err)
			assert.True(t, ok)
			assert.Equal(t, time.Second, wait)
		}}
	}},
	{name: "401", fault: script(brelliumtest.Status(401, "UNAUTHORIZED")), end: func(c caller) ending {
		e := ending{attempts: 2, reached: 2, cause: isAPIError(401, "UNAUTHORIZED")}
		if c.op == opToken || c.op == opPut {
			e.attempts, e.reached = 1, 1
		}
		return e
	}},

	{name: "408", fault: script(brelliumtest.Status(408, "TIMEOUT")), end: unknown(isAPIError(408, "TIMEOUT"))},
	{name: "500", fault: script(brelliumtest.Status(500, "INTERNAL")), end: unknown(isAPIError(500, "INTERNAL"))},
	{name: "500 empty", fault: script(brelliumtest.Bare(500)), end: unknown(isAPIError(500, brellium.CodeHTTPError))},
	{name: "502 with JSON", fault: script(brelliumtest.Status(502, "BAD_GATEWAY")), end: unknown(isAPIError(502, brellium.CodeBadGateway))},
	{name: "502 with HTML", fault: script(brelliumtest.HTML(502)), end: unknown(isAPIError(502, brellium.CodeHTTPError))},
	{name: "503", fault: script(brelliumtest.Status(503, "UNAVAILABLE")), end: unknown(isAPIError(503, "UNAVAILABLE"))},
	{name: "503 after the work", fault: script(brelliumtest.Status(503, "UNAVAILABLE").AfterWork()), end: unknown(isAPIError(503, "UNAVAILABLE"))},
	{name: "504", fault: script(brelliumtest.Bare(504)), end: unknown(isAPIError(504, brellium.CodeHTTPError))},
	{name: "closed before headers", fault: script(brelliumtest.DropBefore()), end: unknown(isConnectionError(true))},
	{name: "reset before headers", fault: script(brelliumtest.DropAfter().AsReset()), end: unknown(isConnectionError(true))},
	{name: "reset in the body", fault: script(answer.ResetInBody()), end: unknown(isConnectionError(true))},
	{name: "truncated body", fault: script(answer.Truncated()), end: unknown(isConnectionError(true))},
	{name: "truncated gzip", fault: script(answer.GzipTruncated()), end: unknown(isConnectionError(true))},
	{name: "stall in headers", fault: script(brelliumtest.StallHeaders(0)), end: stalled},
	{name: "stall in the body", fault: script(answer.StallInBody(0)), end: stalled},

	{name: "bare 403", fault: script(brelliumtest.Blocked()), end: func(c caller) ending {
		if c.op == opPut {
			return rejected(403)(c)
		}
		return ending{attempts: 1, reached: 1, cause: func(t *testing.T, err error) {
			var e *brellium.BlockedError
			require.ErrorAs(t, err, &e)
			assert.Equal(t, c.op, e.Operation)
			assert.Zero(t, e.RetryAt)
		}}
	}},
	{name: "403 with JSON", fault: script(brelliumtest.Status(403, "access_denied")), end: rejected(403)},
	{name: "400", fault: script(brelliumtest.Status(400, "INVALID_CONTENT_TYPE")), end: rejected(400)},
	{name: "404", fault: script(brelliumtest.Status(404, "NOT_FOUND")), end: rejected(404)},
	{name: "409", fault: script(brelliumtest.Status(409, "USER_EXISTS")), end: rejected(409)},
	{name: "413", fault: script(brelliumtest.Bare(413)), end: rejected(413)},
	{name: "414", fault: script(brelliumtest.HTML(414)), end: rejected(414)},
	{name: "431", fault: script(brelliumtest.Bare(431)), end: rejected(431)},
	{name: "304", fault: script(brelliumtest.Bare(304)), end: rejected(304)},
	{name: "302", fault: script(brelliumtest.Redirect(302, "https://elsewhere.example.test/v2/audits")), end: rejected(302)},
	{name: "200 with HTML", fault: script(brelliumtest.HTML(200)), end: undecodable},
	{name: "200 empty", fault: script(brelliumtest.Respond(200, "application/json", "")), end: func(c caller) ending {
		if c.op == "users.delete" { // expects nothing
			return ending{attempts: 1, reached: 1}
		}
		return undecodable(c)
	}},

	{name: "caller cancels", fault: script(brelliumtest.StallHeaders(0)), cancel: true, end: interrupted(context.Canceled)},
	{name: "caller's deadline", fault: script(brelliumtest.StallHeaders(0)), deadline: true, end: interrupted(context.DeadlineExceeded)},
	{name: "caller cancels in the body", fault: script(answer.StallInBody(0)), cancel: true, end: interrupted(context.Canceled)},
	{name: "caller cancels before a byte", lost: context.Canceled, cancel: true, end: func(c caller) ending {
		e := interrupted(context.Canceled)(c)
		e.reached, e.unknown = 0, false
		return e
	}},
}

// TestEveryOperationUnderEveryFailure makes every call meet every failure, and
// holds the number of requests that reach the server, the error's type, and
// what the caller is told against what the operation's row promises.
func TestEveryOperationUnderEveryFailure(t *testing.T) {
	for _, c := range callers {
		for _, f := range failures {
			t.Run(c.String()+"/"+f.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { meet(t, c, f) })
			})
		}
	}
}

func meet(t *testing.T, c caller, f failure) {
	emu := brelliumtest.New()
	if f.fault != nil {
		emu.Inject(c.op, *f.fault)
	}
	rt := &losing{base: emu.Transport(), err: f.lost, op: c.op}
	client, err := emu.Client(
		brellium.WithHTTPClient(&http.Client{Transport: rt}),
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
	time.Sleep(time.Minute) // a mint outlives who asked for it, but not for long

	if want.exhausted == brellium.ExhaustedTotalTime && want.attempts == 0 {
		assert.Greater(t, took, 58*time.Second, "retried for as long as it may")
		assert.Greater(t, reached, 10)
	} else {
		assert.Equal(t, want.reached, reached, "requests that reached the server")
	}
	if c.op != opToken && want.attempts > 0 {
		assert.Len(t, resp.Attempts, want.attempts)
	}
	if f.lost != nil && want.attempts > 0 {
		assert.EqualValues(t, want.attempts, rt.lost.Load(), "times that the transport was asked")
	}
	if c.op != opPut {
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

// losing is a transport that fails instead of sending an operation's requests,
// and reports to httptrace as net/http does.
type losing struct {
	base http.RoundTripper
	err  error
	op   string
	lost atomic.Int32
}

func (l *losing) RoundTrip(r *http.Request) (*http.Response, error) {
	mine := !strings.HasSuffix(r.URL.Path, "/oauth/token")
	switch l.op {
	case opToken:
		mine = !mine
	case opPut:
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
	if l.err == context.Canceled { // a dial that takes for ever
		<-r.Context().Done()
		return nil, context.Cause(r.Context())
	}
	return nil, l.err
}

// TestAFailureIsJudgedWithoutATrace is for transports of the caller's own that
// make no use of httptrace: only what proves that nothing was sent counts as
// never sent, and all else is unknown.
func TestAFailureIsJudgedWithoutATrace(t *testing.T) {
	for _, tc := range []struct {
		name    string
		err     error
		verdict brellium.Verdict
	}{
		{"dial", &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("refused")}, brellium.VerdictNeverSent},
		{"dial through another error", errors.Join(errors.New("x"), &net.OpError{Op: "dial", Err: errors.New("refused")}), brellium.VerdictNeverSent},
		{"lookup", &net.DNSError{Err: "timeout", IsTimeout: true}, brellium.VerdictNeverSent},
		{"no such host", &net.DNSError{Err: "no such host", IsNotFound: true}, brellium.VerdictNotSendable},
		{"handshake", tls.RecordHeaderError{Conn: new(net.TCPConn)}, brellium.VerdictNeverSent},
		{"bad record after the handshake", tls.RecordHeaderError{}, brellium.VerdictUnknown},
		{"handshake timeout", errors.New("net/http: TLS handshake timeout"), brellium.VerdictNeverSent},
		{"plain answer", http.ErrSchemeMismatch, brellium.VerdictNeverSent},
		{"talk of a handshake", errors.New("upstream: TLS handshake failed behind the proxy"), brellium.VerdictUnknown},
		{"certificate", x509.HostnameError{Certificate: new(x509.Certificate)}, brellium.VerdictNotSendable},
		{"expired", x509.CertificateInvalidError{Reason: x509.Expired, Cert: new(x509.Certificate)}, brellium.VerdictNotSendable},
		{"own word", brellium.ErrDoNotSend, brellium.VerdictNotSendable},
		{"reset", &net.OpError{Op: "read", Net: "tcp", Err: errors.New("reset")}, brellium.VerdictUnknown},
		{"write", &net.OpError{Op: "write", Net: "tcp", Err: errors.New("broken pipe")}, brellium.VerdictUnknown},
		{"a context of its own", context.DeadlineExceeded, brellium.VerdictUnknown},
		{"cancelled by itself", context.Canceled, brellium.VerdictUnknown},
		{"anything", errors.New("proxy hiccup"), brellium.VerdictUnknown},
	} {
		t.Run(tc.name, func(t *testing.T) {
			client := newClient(t, brellium.WithHTTPClient(&http.Client{Transport: roundTripper(func(*http.Request) (*http.Response, error) {
				return nil, tc.err
			})}))
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

// roundTripper is a transport that is one function.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// newClient is a client with a fixed token.
func newClient(t *testing.T, opts ...brellium.ClientOption) *brellium.Client {
	t.Helper()
	client, err := brellium.NewClient(append([]brellium.ClientOption{
		brellium.WithBaseURL("https://api.example.test"),
		brellium.WithAccessToken("token-1"),
	}, opts...)...)
	require.NoError(t, err)
	return client
}
