package e2e_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
	"github.com/brellium/brellium-go/internal/testkit"
	"github.com/brellium/brellium-go/internal/wire"
)

// pipeServer sends the same bytes on each connection, whatever the request.
// Its connections are pipes in memory, under net/http's own transport.
type pipeServer struct {
	response  func(w io.Writer)
	transport *http.Transport
	served    sync.WaitGroup
	requests  atomic.Int64
	written   atomic.Int64 // bytes that the client has read
}

func newPipeServer(response func(w io.Writer)) *pipeServer {
	s := &pipeServer{response: response, transport: wire.NewTransport()}
	s.transport.Proxy = nil
	s.transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		s.served.Go(func() { s.serve(server) })
		return client, nil
	}
	return s
}

func (s *pipeServer) serve(conn net.Conn) {
	defer conn.Close()
	r, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, r.Body)
	s.requests.Add(1)
	s.response(writerFunc(func(p []byte) (int, error) {
		n, err := conn.Write(p)
		s.written.Add(int64(n))
		return n, err
	}))
}

// close waits until every connection has ended.
func (s *pipeServer) close() {
	s.transport.CloseIdleConnections()
	s.served.Wait()
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func (s *pipeServer) client(t testing.TB, opts ...brellium.ClientOption) *brellium.Client {
	client, err := brellium.NewClient(append([]brellium.ClientOption{brellium.WithBaseURL("http://127.0.0.1"),
		testkit.WithTransport(s.transport), brellium.WithoutRateLimiter()}, opts...)...)
	require.NoError(t, err)
	return client
}

// hostileCalls are the calls that get the malformed responses.
var hostileCalls = []func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) (any, error){
	func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) (any, error) {
		return c.Audits.Retrieve(ctx, "1", opts...)
	},
	func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) (any, error) {
		for a, err := range c.Audits.All(ctx, brellium.AuditListParams{}, opts...) {
			if err != nil {
				return nil, err
			}
			_ = a.RawJSON()
		}
		return c.Audits, nil
	},
	func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) (any, error) {
		return c.Users.Create(ctx, brellium.UserCreateParams{Email: "a@example.test"}, opts...)
	},
	func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) (any, error) {
		return c.Users, c.Users.Delete(ctx, "1", opts...)
	},
	func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) (any, error) {
		return c.EmailRecipients.FindByEmail(ctx, "a@example.test", opts...)
	},
	func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) (any, error) {
		return c.Documents.Create(ctx, brellium.DocumentCreateParams{Documents: []brellium.DocumentInput{{Filename: "a.pdf", ExternalID: "a"}}}, opts...)
	},
	func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) (any, error) {
		var into any
		return c, c.Do(ctx, http.MethodHead, "/v2/x", nil, &into, opts...)
	},
	func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) (any, error) {
		return c.OAuth.CreateToken(ctx, opts...)
	},
}

// rawResponses are the seeds of the fuzzer and the cases of a test.
var rawResponses = []string{
	"HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n{\"audit_id\":\"1\"}",
	"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n{\"audit_id\":\"1\"}\r\n0\r\nX-Trailer: 1\r\n\r\n",
	"HTTP/1.1 200 OK\r\nContent-Length: 83\r\n\r\n{\"access_token\":\"t\",\"token_type\":\"Bearer\",\"expires_in\":1e300,\"data\":[{}],\"more\":12}",
	"HTTP/1.1 200 OK\r\n\r\n{\"data\":[{\"audit_id\":\"1\"}],\"has_more\":true,\"next_cursor\":\"c\"}",
	"HTTP/1.1 200 OK\r\n\r\n{\"DATA\":[],\"data\":[{}],\"d\\u0061ta\":[1]}",
	"HTTP/1.1 201 Created\r\n\r\n{\"documents\":[{\"document_id\":1,\"upload_url\":[]}]}",
	"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello",
	"HTTP/1.1 304 Not Modified\r\n\r\n",
	"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\n\r\nnull",
	"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nbytes",
	"HTTP/1.1 199 Odd\r\n\r\n", "HTTP/1.1 000 Zero\r\n\r\n", "HTTP/1.1 999 High\r\n\r\n{}", "HTTP/1.1 -1 Low\r\n\r\n", "HTTP/9.9 200 OK\r\n\r\n{}",
	"HTTP/1.1 200\r\n\r\n{}", "HTTP/1.1\r\n\r\n", "\x00\x01\x02", "", "HTTP/1.1 200 OK\r\nNo colon\r\n\r\n{}", "HTTP/1.0 200 OK\n\n{}",
	"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}", "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n{}", "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999\r\n\r\n{}",
	"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff1\r\n{}",
	"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc", "HTTP/1.1 200 OK\r\nContent-Encoding: gzip, gzip\r\n\r\n" + gzipped(gzipped("{}")),
	"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + gzipped(`{"audit_id":"1"}`),
	"HTTP/1.1 302 Found\r\nLocation: https://elsewhere.test/\r\nSet-Cookie: a=b\r\n\r\n",
	"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer\r\n\r\n{\"error\":{\"code\":\"x\"}}",
	"HTTP/1.1 403 Forbidden\r\n\r\n<html>", "HTTP/1.1 403 Forbidden\r\n\r\n{\"error\":\"access_denied\"}", "HTTP/1.1 407 Proxy\r\nProxy-Authenticate: Basic\r\n\r\n",
	"HTTP/1.1 409 Conflict\r\nX-Request-Id: \xff\xfe\r\n\r\n{\"error\":{\"code\":\"USER_EXISTS\",\"message\":\"\\ud800\\u0000\\u202e\",\"type\":[]}}",
	"HTTP/1.1 429 Slow\r\nRetry-After: 99999999999999999999\r\nRateLimit-Remaining: -1\r\nRateLimit-Reset: 1e999\r\nRateLimit-Limit: NaN\r\n\r\n",
	"HTTP/1.1 429 Slow\r\nRetry-After: 0.0000001\r\nRateLimit-Reset: 1e9\r\n\r\n",
	"HTTP/1.1 200 OK\r\n\r\n{\"data\":[{\"audit_id\":\"a\"},null],\"has_more\":true,\"next_cursor\":\"c\"}",
	"HTTP/1.1 429 Slow\r\nRetry-After: Fri, 31 Dec 9999 23:59:59 GMT\r\nDate: garbage\r\n\r\n{\"error\":[]}",
	"HTTP/1.1 503 Busy\r\nRetry-After: 0.5\r\nRetry-After: -1\r\n\r\n{\"error\":{\"error\":{\"error\":{}}}}",
	"HTTP/1.1 200 OK\r\n\r\n" + strings.Repeat("[", 20000), "HTTP/1.1 400 Bad\r\n\r\n{\"error\":" + strings.Repeat("{\"a\":", 20000),
	"HTTP/1.1 200 OK\r\n\r\n\xef\xbb\xbf{\"audit_id\":\"1\"}", "HTTP/1.1 200 OK\r\n\r\n{\"audit_id\":\"\xff\xfe\"}", "HTTP/1.1 200 OK\r\n\r\n\"text\"",
}

// bomb is about 70 KiB that decompress to 70 MiB.
func bomb() string { return strings.Repeat(gzipped(strings.Repeat(" ", 1<<20)), 70) }

// checkResponse makes one call that gets a raw response, and checks what holds for
// every response. It runs in virtual time.
func checkResponse(t *testing.T, which int, response []byte) {
	synctest.Test(t, func(t *testing.T) {
		server := newPipeServer(func(w io.Writer) { _, _ = w.Write(response) })
		opts := []brellium.ClientOption{brellium.WithMaxRetries(1), brellium.WithAccessToken("fixed-token")}
		call := hostileCalls[which%len(hostileCalls)]
		if which%len(hostileCalls) == len(hostileCalls)-1 || which >= 128 { // the token endpoint, too
			opts[1] = brellium.WithClientCredentials("id", "secret")
		}
		client := server.client(t, opts...)
		var r brellium.Response
		start := time.Now()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		value, err := call(ctx, client, brellium.WithResponseInto(&r))
		cancel()
		runtime.ReadMemStats(&after)
		// Two attempts, of a body that may be gzip.
		assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(4<<20+2*1000*len(response)), "%d bytes", len(response))
		assert.Less(t, time.Since(start), 5*time.Minute, "a call ends by itself")
		time.Sleep(time.Minute) // a token request runs on no caller's context
		server.close()

		if err == nil {
			assert.NotNil(t, value)
			return
		}
		assert.True(t, typed(err), "%T: %v", err, err)
		for _, text := range []string{fmt.Sprintf("%v|%+v|%#v|%q", err, err, err, err), encoded(err), logged(err)} {
			assert.NotEmpty(t, text)
			assert.NotContains(t, text, "fixed-token")
			assert.NotContains(t, text, "\x1b")
		}
		assert.Equal(t, -1, strings.IndexFunc(err.Error(), unicode.IsControl), "%q", err)
		if d, ok := brellium.RetryAfter(err); ok {
			assert.Positive(t, d)
			assert.LessOrEqual(t, d, 366*24*time.Hour)
		}
		if i := which % len(hostileCalls); i == 0 || i == 1 || i == 4 {
			assert.False(t, brellium.OutcomeUnknown(err), "a read")
		}
		var apiErr *brellium.APIError
		if errors.As(err, &apiErr) {
			assert.LessOrEqual(t, len(apiErr.Body), 64<<10)
			assert.NotEmpty(t, apiErr.Code)
			assert.Regexp(t, `^[A-Za-z0-9_.:-]{1,128}$`, string(apiErr.Code))
			assert.Regexp(t, `^[A-Za-z0-9_.:-]{0,128}$`, apiErr.RequestID)
			assert.GreaterOrEqual(t, apiErr.RetryAfter, time.Duration(0))
		}
		assert.GreaterOrEqual(t, r.RateLimit.Remaining, 0)
		assert.GreaterOrEqual(t, r.RateLimit.Reset, time.Duration(0))
		_, _, _ = brellium.IsTransient(err), brellium.OutcomeUnknown(err), printed(&r)
	})
}

// typed reports whether err is a pointer to one of the package's errors.
func typed(err error) bool {
	switch err.(type) {
	case *brellium.APIError, *brellium.BlockedError, *brellium.RetriesExhaustedError, *brellium.ConnectionError, *brellium.DecodeError,
		*brellium.PaginationError, *brellium.UploadError, *brellium.InterruptedError, *brellium.ValidationError:
		return true
	}
	return errors.Is(err, brellium.ErrNotFound) // FindByEmail's own
}

func TestMalformedResponses(t *testing.T) {
	defer silenceLog()()
	for _, response := range rawResponses {
		for which := range hostileCalls {
			checkResponse(t, which, []byte(response))
		}
		checkResponse(t, 128, []byte(response))
	}
}

func FuzzResponses(f *testing.F) {
	for i, response := range rawResponses {
		f.Add(byte(i), []byte(response))
		f.Add(byte(128+i), []byte(response))
	}
	defer silenceLog()()
	f.Fuzz(func(t *testing.T, which byte, response []byte) { checkResponse(t, int(which), response) })
}

// withoutEnd writes head, and then more and more of piece until the client stops reading.
func withoutEnd(head, piece string) func(io.Writer) {
	return func(w io.Writer) {
		_, err := io.WriteString(w, head)
		more := []byte(strings.Repeat(piece, max(1, 8<<10/len(piece))))
		for err == nil {
			_, err = w.Write(more)
		}
	}
}

const jsonHead = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"

func TestHostileResponsesUseBoundedMemory(t *testing.T) {
	const mib = 1 << 20
	zeros := bomb()
	many := func(head, item, tail string, n int) string {
		return jsonHead + "\r\n" + head + strings.Repeat(item+",", n) + item + tail
	}
	for _, tt := range []struct {
		name     string
		response func(io.Writer)
		reason   string
		taken    int64 // bytes of the response, at most
		memory   uint64
	}{
		{"endless header line", withoutEnd("HTTP/1.1 200 OK\r\nX-A: ", "a"), "connection failed", mib, 8 * mib},
		{"endless headers", withoutEnd("HTTP/1.1 200 OK\r\n", "X-A: b\r\n"), "connection failed", mib, 8 * mib},
		{"endless status line", withoutEnd("HTTP/1.1 200 ", "a"), "connection failed", mib, 8 * mib},
		{"endless interim responses", withoutEnd("", "HTTP/1.1 103 Early Hints\r\n\r\n"), "connection failed", mib, 8 * mib},
		{"endless body", withoutEnd(jsonHead+"\r\n", " "), "the response is larger than 64 MiB", 66 * mib, 400 * mib},
		{"endless chunks", withoutEnd(jsonHead+"Transfer-Encoding: chunked\r\n\r\n", "400\r\n"+strings.Repeat("a", 1024)+"\r\n"), "the response is larger than 64 MiB", 67 * mib, 400 * mib},
		{"endless error", withoutEnd("HTTP/1.1 400 Bad\r\n\r\n", "a"), "400", mib, 8 * mib},
		{"huge announcement", func(w io.Writer) { _, _ = io.WriteString(w, jsonHead+"Content-Length: 9000000000000\r\n\r\n{}") }, "the response was cut off", mib, 8 * mib},
		{"gzip bomb", func(w io.Writer) {
			_, _ = fmt.Fprintf(w, jsonHead+"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", len(zeros), zeros)
		}, "the response is larger than 64 MiB", mib, 400 * mib},
		{"error bomb", func(w io.Writer) {
			_, _ = fmt.Fprintf(w, "HTTP/1.1 500 Bad\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", len(zeros), zeros)
		}, "500", mib, 8 * mib},
		{"deep JSON", inOnePiece(jsonHead + "\r\n" + strings.Repeat("[", mib-1)), "the body is not valid JSON", 2 * mib, 20 * mib},
		{"deep objects", inOnePiece(jsonHead + "\r\n" + strings.Repeat(`{"metadata":`, mib/13)), "the body is not valid JSON", 2 * mib, 20 * mib},
		{"many items", inOnePiece(many(`{"data":[`, `{}`, `]}`, 10*mib)), "the body has more than 500,000 values", 64 * mib, 300 * mib},
		{"many numbers", inOnePiece(many(`{"data":[],"x":[`, `1`, `]}`, 10*mib)), "the body has more than 500,000 values", 64 * mib, 300 * mib},
		{"as many items as may be", inOnePiece(many(`{"data":[`, `{}`, `]}`, 249_000)), "", 2 * mib, 400 * mib},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := newPipeServer(tt.response)
			defer silenceLog()()
			client := server.client(t, brellium.WithAccessToken("t"), brellium.WithMaxRetries(0))
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			_, err := client.Audits.List(t.Context(), brellium.AuditListParams{})
			runtime.ReadMemStats(&after)
			server.close()
			if tt.reason != "" {
				require.Error(t, err)
				assert.True(t, typed(err), "%T", err)
				assert.Contains(t, err.Error(), tt.reason)
			}
			assert.LessOrEqual(t, server.written.Load(), tt.taken)
			assert.LessOrEqual(t, after.TotalAlloc-before.TotalAlloc, tt.memory)
			t.Logf("%d KiB taken, %d KiB allocated, %v", server.written.Load()>>10, (after.TotalAlloc-before.TotalAlloc)>>10, err)
		})
	}
}

// inOnePiece writes one response.
func inOnePiece(response string) func(io.Writer) {
	return func(w io.Writer) { _, _ = io.WriteString(w, response) }
}

// Here the client decodes gzip itself.
func TestGzipBombFromAnotherTransportIsBounded(t *testing.T) {
	transport := testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Header: http.Header{"content-encoding": {"GZIP"}}, Body: io.NopCloser(strings.NewReader(bomb())), ContentLength: -1, Request: r}, nil
	})
	client, err := brellium.NewClient(brellium.WithAccessToken("t"), testkit.WithTransport(transport))
	require.NoError(t, err)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err = testkit.Retrieve(t.Context(), client)
	runtime.ReadMemStats(&after)
	var unusable *brellium.DecodeError
	require.ErrorAs(t, err, &unusable)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(400<<20))
}

func TestSlowResponseEndsWithTheAttemptTimeout(t *testing.T) {
	for name, head := range map[string]string{"header": "HTTP/1.1 200 OK\r\nX-A: ", "body": jsonHead + "\r\n", "status": ""} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newPipeServer(func(w io.Writer) {
					_, err := io.WriteString(w, head)
					for err == nil {
						time.Sleep(time.Second)
						_, err = io.WriteString(w, "1")
					}
				})
				client := server.client(t, brellium.WithAccessToken("t"), brellium.WithMaxRetries(0), brellium.WithAttemptTimeout(20*time.Second))
				start := time.Now()
				err := testkit.Retrieve(t.Context(), client)
				var failed *brellium.ConnectionError
				require.ErrorAs(t, err, &failed)
				assert.True(t, failed.Timeout())
				assert.Equal(t, 20*time.Second, time.Since(start))
				time.Sleep(2 * time.Second)
				server.close()
			})
		})
	}
}

func TestRedirectGetsNoCredential(t *testing.T) {
	for _, status := range []int{301, 302, 303, 307, 308} {
		for op, call := range confidential {
			if op == "documents.put" || strings.HasSuffix(op, ".create") && op != "users.create" {
				continue // made of several calls
			}
			testkit.Bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
				emu.Inject(brelliumtest.OpAny, brelliumtest.Redirect(status, "https://elsewhere.test/v2/audits").When(func(r *brelliumtest.Request) bool {
					return op == "oauth.token" || r.Operation != brelliumtest.OpTokenCreate
				}).Forever())
				err := call(t.Context(), client)
				require.Error(t, err, op)
				var apiErr *brellium.APIError
				require.ErrorAs(t, err, &apiErr, op)
				assert.Equal(t, status, apiErr.StatusCode)
				for _, r := range emu.Requests() {
					assert.Equal(t, "api.brellium.test", r.Host, op)
				}
				assert.LessOrEqual(t, emu.Count(brelliumtest.OpAny), 2, "%s: the token and the call", op)
			})
		}
	}
}

func TestProxyGetsNoCredential(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	seen := make(chan string, 10)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			head := new(strings.Builder)
			for r := bufio.NewReader(conn); ; {
				line, err := r.ReadString('\n')
				head.WriteString(line)
				if err != nil || line == "\r\n" {
					break
				}
			}
			seen <- head.String()
			_, _ = io.WriteString(conn, "HTTP/1.1 407 "+marker+"\r\nProxy-Authenticate: Basic realm=\""+marker+"\"\r\nContent-Length: 0\r\n\r\n")
			conn.Close()
		}
	}()
	defer listener.Close()
	transport := wire.NewTransport()
	defer transport.CloseIdleConnections()
	transport.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: listener.Addr().String(), User: url.UserPassword("proxy", marker)})
	client, err := brellium.NewClient(brellium.WithAccessToken("bearer-token"), brellium.WithMaxRetries(0), brellium.WithBaseURL("https://api.brellium.test"),
		testkit.WithTransport(transport))
	require.NoError(t, err)
	err = testkit.Retrieve(t.Context(), client, brellium.WithHeader("X-Patient", marker))
	var failed *brellium.ConnectionError
	require.ErrorAs(t, err, &failed)
	assert.False(t, failed.Sent)
	for _, e := range tree(err) {
		assert.Empty(t, find(printed(e), marker))
	}
	head := <-seen
	require.Contains(t, head, "CONNECT api.brellium.test:443")
	assert.NotContains(t, head, "bearer-token")
	assert.NotContains(t, head, brelliumtest.SampleAuditID)
	assert.NotContains(t, head, marker, "the proxy's password alone is sent, in base64")
}

func TestOldTLSVersionIsRejected(t *testing.T) {
	server, _ := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("a request") }, func(s *httptest.Server) {
		s.TLS = &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}
		s.StartTLS()
	})
	a, err := attempt(t, via(t, server.URL, newTransport(t, server)), true)
	assert.Equal(t, brellium.VerdictNeverSent, a.Verdict)
	testkit.IsConnectionError(false)(t, err)
	assert.False(t, brellium.OutcomeUnknown(err))
}

func TestWithHeaderCannotReplaceOrSmuggleHeaders(t *testing.T) {
	emu := brelliumtest.New()
	client := testkit.NewClient(t, emu)
	for _, h := range [][2]string{
		{"Authorization", "Bearer x"}, {"authorization", "x"}, {"AUTHORIZATION", "x"}, {"Content-Type", "text/plain"}, {"content-length", "1"},
		{"Transfer-Encoding", "chunked"}, {"host", "elsewhere.test"}, {"Idempotency-Key", "1"}, {"connection", "close"}, {"Upgrade", "h2c"},
		{"Proxy-Authorization", "Basic x"}, {"Te", "trailers"}, {"trailer", "X"}, {"Expect", "100-continue"},
		{"X-A", "a\r\nAuthorization: x"}, {"X-A", "a\nb"}, {"X-A", "a\x00"}, {"X-A\r\nAuthorization", "x"}, {"X A", "x"}, {"", "x"}, {"X-Ä", "x"}, {"X-A:", "x"},
	} {
		err := testkit.Retrieve(t.Context(), client, brellium.WithHeader(h[0], h[1]))
		var refused *brellium.ValidationError
		if assert.ErrorAs(t, err, &refused, "%q", h) {
			assert.Equal(t, "WithHeader", refused.Field)
		}
	}
	assert.Zero(t, emu.Count(brelliumtest.OpAny), "nothing was sent")
}
