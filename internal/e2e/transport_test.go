package e2e_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/http/httputil"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
	"github.com/brellium/brellium-go/internal/testkit"
	"github.com/brellium/brellium-go/internal/wire"
)

// These tests use real connections. They send once, with WithMaxRetries(0), or fail
// at once, since a retry would wait in real time.

// listen serves raw connections until the test ends.
func listen(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	over, end := context.WithCancel(context.Background())
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				defer context.AfterFunc(over, func() { conn.Close() })()
				serve(conn)
			})
		}
	})
	t.Cleanup(func() { end(); listener.Close(); serving.Wait() })
	return listener.Addr().String()
}

func TestNeverSentOrUnknown(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	closed := listener.Addr().String()
	require.NoError(t, listener.Close())
	secure, _ := serve(t, http.NotFound, (*httptest.Server).StartTLS)
	plain := listen(t, func(c net.Conn) { _, _ = io.WriteString(c, "220 mail.example.test ESMTP\r\n") })
	hangup := listen(t, func(c net.Conn) { _, _ = c.Read(make([]byte, 1)) })
	mute := listen(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	reset := listen(t, func(c net.Conn) {
		readRequest(c)
		_ = c.(*net.TCPConn).SetLinger(0)
	})
	closing := listen(t, func(c net.Conn) { readRequest(c) })
	half := listen(t, func(c net.Conn) { readRequest(c); _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Le") })
	cut := listen(t, func(c net.Conn) {
		readRequest(c)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
	})
	garbage := listen(t, func(c net.Conn) { readRequest(c); _, _ = io.WriteString(c, "what is HTTP?\r\n\r\n") })

	names := resolver(t)
	impatient := func(tr *http.Transport) { tr.TLSHandshakeTimeout = 50 * time.Millisecond }
	badProxy := func(tr *http.Transport) {
		tr.Proxy = func(*http.Request) (*url.URL, error) { return nil, errors.New("no proxy for you") }
	}
	trust := func(set func(*tls.Config)) func(*http.Transport) {
		return func(tr *http.Transport) {
			tr.TLSClientConfig.RootCAs = x509.NewCertPool()
			tr.TLSClientConfig.RootCAs.AddCert(secure.Certificate())
			set(tr.TLSClientConfig)
		}
	}
	for _, tc := range []struct {
		name, address string
		set           func(*http.Transport)
		verdict       brellium.Verdict
		reason        string
	}{
		{"dial refused", "http://" + closed, nil, brellium.VerdictNeverSent, "connection refused"},
		{"proxy refused", "https://api.example.test", badProxy, brellium.VerdictNeverSent, "connection failed"},
		{"no such host", "https://nowhere.example.test", names, brellium.VerdictNeverSent, "no such host"},
		{"lookup fails", "https://broken.example.test", names, brellium.VerdictNeverSent, "the host name could not be looked up"},
		{"not TLS", "https://" + plain, nil, brellium.VerdictNeverSent, "the TLS handshake failed"},
		{"hung up in the handshake", "https://" + hangup, nil, brellium.VerdictNeverSent, ""},
		{"handshake without an end", "https://" + mute, impatient, brellium.VerdictNeverSent, "the TLS handshake failed"},
		{"unknown certificate", secure.URL, nil, brellium.VerdictNotSendable, "the certificate is signed by an unknown authority"},
		{"certificate of another host", secure.URL, trust(func(c *tls.Config) { c.ServerName = "other.test" }), brellium.VerdictNotSendable, "the certificate is for another host name"},
		{"expired certificate", secure.URL, trust(func(c *tls.Config) { c.Time = func() time.Time { return time.Unix(1<<32, 0) } }), brellium.VerdictNotSendable,
			"the certificate has expired or is not valid yet"},
		{"reset", "http://" + reset, nil, brellium.VerdictUnknown, "connection reset by peer"},
		{"closed", "http://" + closing, nil, brellium.VerdictUnknown, "connection closed before a response"},
		{"half a header", "http://" + half, nil, brellium.VerdictUnknown, ""},
		{"half a body", "http://" + cut, nil, brellium.VerdictUnknown, "the response was cut off"},
		{"no HTTP", "http://" + garbage, nil, brellium.VerdictUnknown, "connection failed"},
	} {
		for _, write := range []bool{false, true} {
			t.Run(tc.name, func(t *testing.T) {
				transport := newTransport(t, nil)
				if tc.set != nil {
					tc.set(transport)
				}
				a, err := attempt(t, via(t, tc.address, transport), write)
				assert.Equal(t, tc.verdict, a.Verdict)
				if tc.reason != "" {
					assert.Equal(t, tc.reason, a.Reason)
				}
				assert.Equal(t, write && tc.verdict == brellium.VerdictUnknown, brellium.OutcomeUnknown(err))
				assert.Equal(t, tc.verdict != brellium.VerdictNotSendable, brellium.IsTransient(err))
				var e *brellium.ConnectionError
				require.ErrorAs(t, err, &e)
				assert.Equal(t, tc.verdict == brellium.VerdictUnknown, e.Sent)
				if tc.name == "no such host" {
					a.Reason += ": nowhere.example.test"
				}
				assert.Equal(t, a.Reason, e.Reason)
				if tc.name == "reset" {
					assert.ErrorIs(t, err, syscall.ECONNRESET)
				}
				if tc.name == "unknown certificate" {
					var authority x509.UnknownAuthorityError
					assert.ErrorAs(t, err, &authority)
				}
			})
		}
	}
}

// coinbase/chainstorage#134, coder/coder#23915: the end of the connection is the end
// of the response.
func TestResponseWithoutALengthThatBreaksOffIsLost(t *testing.T) {
	const object = `{"audit_id":"` + brelliumtest.SampleAuditID + `","user_id":"u","flags":["one"]}`
	for name, head := range map[string]string{
		"HTTP/1.0": "HTTP/1.0 200 OK\r\n\r\n", "Connection: close": "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			for body, verdict := range map[string]brellium.Verdict{
				object: brellium.VerdictDone, "\xef\xbb\xbf" + object + "\n": brellium.VerdictDone,
				object[:len(object)-1]: brellium.VerdictUnknown, object[:len(object)-4]: brellium.VerdictUnknown,
				object[:len(testkit.SampleAudit)-1]: brellium.VerdictUnknown, "{": brellium.VerdictUnknown, "\xef\xbb\xbf{": brellium.VerdictUnknown,
				"<html>": brellium.VerdictDone, object[:len(testkit.SampleAudit)-1] + "x": brellium.VerdictDone, "": brellium.VerdictDone,
			} {
				address := listen(t, func(c net.Conn) { readRequest(c); _, _ = io.WriteString(c, head+body) })
				for _, write := range []bool{false, true} {
					a, err := attempt(t, via(t, "http://"+address, newTransport(t, nil)), write)
					assert.Equal(t, verdict, a.Verdict, body)
					if verdict == brellium.VerdictUnknown {
						assert.Equal(t, "the response was cut off", a.Reason)
						testkit.IsConnectionError(true)(t, err)
						assert.Equal(t, write, brellium.OutcomeUnknown(err))
					} else if !strings.Contains(body, object) {
						var e *brellium.DecodeError
						assert.ErrorAs(t, err, &e, body)
					}
				}
			}
		})
	}
	var n atomic.Int32
	address := listen(t, func(c net.Conn) {
		readRequest(c)
		_, _ = io.WriteString(c, "HTTP/1.0 200 OK\r\n\r\n"+object[:15+len(object[15:])*int(n.Add(1)-1)])
	})
	require.NoError(t, testkit.Retrieve(t.Context(), via(t, "http://"+address, newTransport(t, nil))))
	assert.EqualValues(t, 2, n.Load())
}

// readRequest reads one request to the end of its body.
func readRequest(c net.Conn) {
	var head []byte
	b := make([]byte, 1)
	for !bytes.HasSuffix(head, []byte("\r\n\r\n")) {
		if _, err := c.Read(b); err != nil {
			return
		}
		head = append(head, b...)
	}
	if _, rest, ok := strings.Cut(string(head), "Content-Length: "); ok {
		n := 0
		for _, d := range rest[:strings.Index(rest, "\r")] {
			n = 10*n + int(d-'0')
		}
		_, _ = io.ReadFull(c, make([]byte, n))
	}
}

// resolver makes a transport use a name server that knows no host, and fails for
// broken.example.test.
func resolver(t *testing.T) func(*http.Transport) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		query := make([]byte, 512)
		for {
			n, from, err := conn.ReadFrom(query)
			if err != nil {
				return
			}
			response := bytes.Clone(query[:n])
			code := byte(3) // NXDOMAIN
			if bytes.Contains(response, []byte("broken")) {
				code = 2 // SERVFAIL
			}
			response[2], response[3] = 0x81, 0x80|code
			binary.BigEndian.PutUint16(response[10:], 0) // no additional records
			end := 12 + bytes.IndexByte(response[12:], 0) + 5
			_, _ = conn.WriteTo(response[:end], from)
		}
	}()
	t.Cleanup(func() { conn.Close(); <-done })
	names := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
	return func(tr *http.Transport) { tr.DialContext = (&net.Dialer{Resolver: names}).DialContext }
}

// Over HTTP/1, net/http would retry a read on a connection that dies before the
// response.
func TestNetHTTPRetriesNothing(t *testing.T) {
	for _, write := range []bool{false, true} {
		var n atomic.Int32
		server, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if n.Add(1) == 1 {
				_, _ = io.WriteString(w, `{"audit_id":"`+brelliumtest.SampleAuditID+`","user_id":"u"}`)
				return
			}
			conn, _, err := http.NewResponseController(w).Hijack()
			if assert.NoError(t, err) {
				conn.Close()
			}
		}, (*httptest.Server).StartTLS)
		client := via(t, server.URL, http1(newTransport(t, server)))
		_, err := attempt(t, client, write)
		require.NoError(t, err)
		a, err := attempt(t, client, write)
		assert.EqualValues(t, 2, n.Load(), "requests that the server saw")
		assert.Equal(t, brellium.VerdictUnknown, a.Verdict)
		assert.Equal(t, write, brellium.OutcomeUnknown(err))
		assert.NotErrorIs(t, err, context.Canceled)
		testkit.IsConnectionError(true)(t, err)
	}
}

func http1(t *http.Transport) *http.Transport {
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(true)
	t.ForceAttemptHTTP2 = false
	return t
}

// Frame types, flags and error codes of HTTP/2.
const (
	frameData, frameHeaders, frameReset, frameSettings, framePing, frameGoAway = 0x0, 0x1, 0x3, 0x4, 0x6, 0x7
	flagAck, flagEndStream                                                     = 0x1, 0x1
	codeNone, codeProtocol, codeInternal, codeRefused                          = 0x0, 0x1, 0x2, 0x7
)

func writeFrame(w io.Writer, kind, flags byte, stream uint32, payload ...byte) {
	head := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	head = binary.BigEndian.AppendUint32(head, stream)
	_, _ = w.Write(append(head, payload...))
}

// http2Server calls react for each request once its last frame has come. It
// returns its address, a transport that trusts it, and the number of requests
// and of connections that it has seen.
func http2Server(t *testing.T, react func(c net.Conn, stream uint32, n int32)) (address string, transport *http.Transport, requests, conns *atomic.Int32) {
	t.Helper()
	pair := httptest.NewTLSServer(nil) // for its certificate
	config := &tls.Config{Certificates: pair.TLS.Certificates, NextProtos: []string{"h2"}}
	transport = newTransport(t, pair)
	pair.Close()
	requests, conns = new(atomic.Int32), new(atomic.Int32)
	addr := listen(t, func(raw net.Conn) {
		c := tls.Server(raw, config)
		preface := make([]byte, len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
		if _, err := io.ReadFull(c, preface); err != nil {
			return
		}
		conns.Add(1)
		writeFrame(c, frameSettings, 0, 0)
		head := make([]byte, 9)
		for {
			if _, err := io.ReadFull(c, head); err != nil {
				return
			}
			payload := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
			if _, err := io.ReadFull(c, payload); err != nil {
				return
			}
			stream := binary.BigEndian.Uint32(head[5:])
			switch kind, flags := head[3], head[4]; {
			case kind == frameSettings && flags&flagAck == 0:
				writeFrame(c, frameSettings, flagAck, 0)
			case kind == framePing && flags&flagAck == 0:
				writeFrame(c, framePing, flagAck, 0, payload...)
			case (kind == frameData || kind == frameHeaders) && flags&flagEndStream != 0:
				react(c, stream, requests.Add(1))
			}
		}
	})
	return "https://" + addr, transport, requests, conns
}

// respondOK responds over HTTP/2 with 200 and an object that both calls of attempt
// can decode.
func respondOK(c net.Conn, stream uint32) {
	writeFrame(c, frameHeaders, 0x4, stream, 0x88) // END_HEADERS; :status 200
	writeFrame(c, frameData, flagEndStream, stream, []byte(`{"audit_id":"`+brelliumtest.SampleAuditID+`","user_id":"u"}`)...)
}

// goadesign/goa#3725, ethereum/go-ethereum#24291, kubernetes/kubernetes#92392;
// golang/go#47635 is why net/http retries after a PROTOCOL_ERROR. After the others
// for which it does so, a write certainly did not run: JuliaWeb/HTTP.jl#1294,
// dotnet/corefx#39005, dotnet/corefx#39013. net/http hides which it was for a read.
func TestNetHTTPRetriesNothingOverHTTP2(t *testing.T) {
	goAway := func(last uint32, code byte) []byte {
		return append(binary.BigEndian.AppendUint32(nil, last), 0, 0, 0, code)
	}
	unprocessed := map[string]bool{"REFUSED_STREAM": true, "GOAWAY": true, "GOAWAY with an error": true}
	for name, react := range map[string]func(c net.Conn, stream uint32){
		"PROTOCOL_ERROR": func(c net.Conn, stream uint32) { writeFrame(c, frameReset, 0, stream, 0, 0, 0, codeProtocol) },
		"REFUSED_STREAM": func(c net.Conn, stream uint32) { writeFrame(c, frameReset, 0, stream, 0, 0, 0, codeRefused) },
		"INTERNAL_ERROR": func(c net.Conn, stream uint32) { writeFrame(c, frameReset, 0, stream, 0, 0, 0, codeInternal) },
		"GOAWAY":         func(c net.Conn, stream uint32) { writeFrame(c, frameGoAway, 0, 0, goAway(0, codeNone)...) },
		"GOAWAY with an error": func(c net.Conn, stream uint32) {
			writeFrame(c, frameGoAway, 0, 0, goAway(0, codeInternal)...)
		},
		"GOAWAY and closed": func(c net.Conn, stream uint32) {
			writeFrame(c, frameGoAway, 0, 0, goAway(stream, codeNone)...)
			c.Close()
		},
		"closed": func(c net.Conn, stream uint32) { c.Close() },
	} {
		for _, write := range []bool{false, true} {
			for _, warm := range []bool{false, true} {
				t.Run(name, func(t *testing.T) {
					address, transport, requests, _ := http2Server(t, func(c net.Conn, stream uint32, n int32) {
						if warm && n == 1 {
							respondOK(c, stream)
							return
						}
						react(c, stream)
					})
					client := via(t, address, transport)
					want := int32(1)
					if warm {
						_, err := attempt(t, client, write)
						require.NoError(t, err)
						want = 2
					}
					a, err := attempt(t, client, write)
					assert.Equal(t, want, requests.Load(), "requests that the server saw")
					verdict := brellium.VerdictUnknown
					// net/http does not send the first request of a connection again after a GOAWAY with an error.
					if write && unprocessed[name] || !warm && name == "GOAWAY with an error" {
						verdict = brellium.VerdictNeverSent
						assert.Equal(t, "the server did not process the request", a.Reason)
					}
					assert.Equal(t, verdict, a.Verdict)
					assert.Equal(t, write && verdict == brellium.VerdictUnknown, brellium.OutcomeUnknown(err))
					testkit.IsConnectionError(verdict == brellium.VerdictUnknown)(t, err)
				})
			}
		}
	}
}

// net/http may retry before a byte is written.
func TestRequestOnAnUnusableConnectionUsesANewOne(t *testing.T) {
	address, transport, requests, conns := http2Server(t, func(c net.Conn, stream uint32, n int32) {
		if n == 1 {
			writeFrame(c, frameGoAway, 0, 0, 0, 0, 0, 1, 0, 0, 0, codeNone)
		}
		respondOK(c, stream)
	})
	client := via(t, address, transport)
	for range 3 {
		a, err := attempt(t, client, true)
		require.NoError(t, err)
		assert.Equal(t, brellium.VerdictDone, a.Verdict)
	}
	assert.EqualValues(t, 3, requests.Load())
	assert.EqualValues(t, 2, conns.Load())
}

// For example for a ticket, with the request's own context.
func TestTransportMayCallAnotherHostFirst(t *testing.T) {
	tickets, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ticket") }, nil)
	var n atomic.Int32
	server, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		n.Add(1)
		if r.URL.Path == "/v2/users" {
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, testkit.SampleAudit)
	}, nil)
	base := newTransport(t, nil)
	client := via(t, server.URL, testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
		ask, err := http.NewRequestWithContext(r.Context(), http.MethodGet, tickets.URL, nil)
		if err != nil {
			return nil, err
		}
		resp, err := base.RoundTrip(ask)
		if err != nil {
			return nil, err
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		return base.RoundTrip(r)
	}))
	for range 2 {
		_, err := attempt(t, client, false)
		require.NoError(t, err)
	}
	_, err := attempt(t, client, true)
	assert.True(t, brellium.OutcomeUnknown(err))
	assert.EqualValues(t, 3, n.Load())
}

// Transports that log or record requests, such as go-vcr, dump each before they
// send it. To httptrace that looks like a request to the same host.
func TestADumpOfARequestIsNoAttempt(t *testing.T) {
	server, connections := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, `{"user_id":"u","audit_id":"`+brelliumtest.SampleAuditID+`"}`)
	}, nil)
	base := newTransport(t, nil)
	client := via(t, server.URL, testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
		dump, err := httputil.DumpRequestOut(r, true)
		require.NoError(t, err)
		require.Contains(t, string(dump), "HTTP/1.1")
		return base.RoundTrip(r)
	}))
	for _, write := range []bool{true, false, true} {
		_, err := attempt(t, client, write)
		require.NoError(t, err)
	}
	assert.EqualValues(t, 1, connections.Load())
	var failed *brellium.ConnectionError
	require.ErrorAs(t, client.Users.Delete(t.Context(), "u", brellium.WithMaxRetries(0)), &failed)
	assert.True(t, failed.Sent)
	server.Close()
	a, err := attempt(t, client, true)
	assert.Equal(t, brellium.VerdictNeverSent, a.Verdict)
	assert.False(t, brellium.OutcomeUnknown(err))
}

// The connection reports to httptrace that the request was written.
func TestTransportCannotRetryAWrite(t *testing.T) {
	var n atomic.Int32
	server, _ := serve(t, func(http.ResponseWriter, *http.Request) { n.Add(1); panic(http.ErrAbortHandler) }, nil)
	base := newTransport(t, nil)
	client := via(t, server.URL, testkit.RoundTripFunc(func(r *http.Request) (resp *http.Response, err error) {
		for range 5 {
			if resp, err = base.RoundTrip(r); err == nil {
				break
			}
			r = r.Clone(r.Context())
			if r.GetBody != nil {
				r.Body, _ = r.GetBody()
			}
		}
		return resp, err
	}))
	a, err := attempt(t, client, true)
	assert.EqualValues(t, 1, n.Load())
	assert.Equal(t, brellium.VerdictUnknown, a.Verdict)
	assert.True(t, brellium.OutcomeUnknown(err))
}

// goadesign/goa#3725, ethereum/go-ethereum#24291, kubernetes/kubernetes#92392
func TestGetBodyReturnsTheBodyAgain(t *testing.T) {
	seen := map[string]int{}
	client, err := brellium.NewClient(brellium.WithBaseURL("https://api.example.test"), brellium.WithClientCredentials("id", "secret"), brellium.WithoutRateLimiter(),
		testkit.WithTransport(testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
			if r.Body == nil {
				return testkit.Reply(200, nil, testkit.SampleAudit), nil
			}
			seen[r.Method+" "+r.URL.Path]++
			sent, err := io.ReadAll(r.Body)
			assert.NoError(t, err)
			assert.EqualValues(t, len(sent), r.ContentLength)
			for range 2 {
				if r.GetBody == nil { // a create that is not safe to retry
					seen["no GetBody"]++
					break
				}
				if body, err := r.GetBody(); assert.NoError(t, err) {
					again, err := io.ReadAll(body)
					assert.NoError(t, err)
					assert.Equal(t, sent, again)
				}
			}
			if r.URL.Path == "/v2/oauth/token" {
				return testkit.Reply(200, nil, `{"access_token":"t","token_type":"Bearer","expires_in":3600}`), nil
			}
			if r.URL.Path == "/v2/documents" {
				return testkit.Reply(201, nil, `{"documents":[{"document_id":"d"},{"document_id":"e"}]}`), nil
			}
			return testkit.Reply(200, nil, testkit.SampleAudit), nil
		})))
	require.NoError(t, err)
	for _, c := range callers {
		if c.op == "audits.update" || c.op == "documents.create" {
			require.NoError(t, c.call(t.Context(), client))
		}
	}
	assert.Equal(t, map[string]int{"PATCH /v2/audits/" + brelliumtest.SampleAuditID: 1, "POST /v2/documents": 2, "POST /v2/oauth/token": 1, "no GetBody": 1}, seen)
}

// The body of each failed attempt of a call is read if it is short, and the
// connection closed otherwise, so that the next attempt has one.
// TestBodiesAreLimited checks that bodies are closed.
// openai/openai-go#495, openshift-online/ocm-sdk-go#804, JetBrains/teamcity-cli#345
func TestRetriesOfACallReuseItsConnection(t *testing.T) {
	for size, connections := range map[int]int{20 << 10: 1, 1 << 20: 401} { // longer than is read of an error, and than Go 1.27 reads at Close
		synctest.Test(t, func(t *testing.T) {
			requests, dials := 0, 0
			network := pipes{make(chan net.Conn)}
			server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if requests++; requests%5 != 0 {
					w.WriteHeader(http.StatusServiceUnavailable)
					_, _ = w.Write(bytes.Repeat([]byte("x"), size))
					return
				}
				_, _ = io.WriteString(w, testkit.SampleAudit)
			})}
			go func() { _ = server.Serve(network) }()
			transport := &http.Transport{MaxConnsPerHost: 1, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				dials++
				return network.DialContext(ctx, "", "")
			}}
			defer func() {
				transport.CloseIdleConnections()
				_ = server.Close()
			}()
			client := testkit.NewTokenClient(t, brellium.WithBaseURL("http://localhost:1"), testkit.WithTransport(transport), brellium.WithoutRateLimiter())
			for range 100 {
				require.NoError(t, testkit.Retrieve(t.Context(), client))
			}
			assert.Equal(t, 500, requests)
			assert.Equal(t, connections, dials)
		})
	}
}

// go-retryablehttp closes the idle connections of its client after each failed call.
func TestFailedCallKeepsIdleConnections(t *testing.T) {
	server, connections := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = io.WriteString(w, testkit.SampleAudit)
	}, nil)
	client := via(t, server.URL, newTransport(t, nil))
	for range 10 {
		_, err := attempt(t, client, true)
		require.Error(t, err)
		_, err = attempt(t, client, false)
		require.NoError(t, err)
	}
	assert.EqualValues(t, 1, connections.Load())
}

// golang/vulndb#3420, golang/go#35104
func TestRedirectIsNotFollowed(t *testing.T) {
	var elsewhere atomic.Int32
	other, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		elsewhere.Add(1)
		http.Redirect(w, r, "/again", http.StatusFound)
	}, nil)
	server, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, strings.Replace(other.URL, "127.0.0.1", "localhost", 1), http.StatusTemporaryRedirect)
	}, nil)
	for _, client := range []*brellium.Client{
		via(t, server.URL, newTransport(t, nil)),
		testkit.NewTokenClient(t, brellium.WithBaseURL(server.URL), brellium.WithHTTPClient(http.DefaultClient)),
		testkit.NewTokenClient(t, brellium.WithBaseURL(server.URL)),
	} {
		for _, write := range []bool{false, true} {
			a, err := attempt(t, client, write)
			testkit.IsAPIError(307, brellium.CodeHTTPError)(t, err)
			assert.Equal(t, brellium.VerdictRejected, a.Verdict)
			assert.NotContains(t, err.Error(), "localhost")
		}
	}
	assert.Zero(t, elsewhere.Load())
}

// golang/go#30702, connectrpc/connect-go#829
func TestDeadConnectionIsReplaced(t *testing.T) {
	var conns atomic.Int32
	address := listen(t, func(c net.Conn) {
		mine := conns.Add(1)
		for i := 0; ; i++ {
			readRequest(c)
			if mine == 1 && i == 1 { // from here on silent, and open
				_, _ = io.Copy(io.Discard, c)
				return
			}
			if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: "+strconv.Itoa(len(testkit.SampleAudit))+"\r\n\r\n"+testkit.SampleAudit); err != nil {
				return
			}
		}
	})
	client := via(t, "http://"+address, newTransport(t, nil), brellium.WithAttemptTimeout(300*time.Millisecond))
	require.NoError(t, testkit.Retrieve(t.Context(), client))
	var resp brellium.Response
	require.NoError(t, testkit.Retrieve(t.Context(), client, brellium.WithResponseInto(&resp)))
	require.Len(t, resp.Attempts, 2)
	assert.Equal(t, brellium.VerdictUnknown, resp.Attempts[0].Verdict)
	assert.EqualValues(t, 2, conns.Load())
}

func TestDefaultTransportUsesHTTP2(t *testing.T) {
	server, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, 2, r.ProtoMajor)
		_, _ = io.WriteString(w, testkit.SampleAudit)
	}, func(s *httptest.Server) {
		s.EnableHTTP2 = true
		s.StartTLS()
	})
	_, err := attempt(t, via(t, server.URL, newTransport(t, server)), false)
	require.NoError(t, err)
}

var spaces, letters = bytes.Repeat([]byte(" "), 1<<20), bytes.Repeat([]byte("x"), 1<<20)

// endless is a body without an end.
type endless struct {
	of     []byte
	read   atomic.Int64
	closed atomic.Bool
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.of)
	e.read.Add(int64(n))
	return n, nil
}

func (e *endless) Close() error { e.closed.Store(true); return nil }

// Azure/azure-sdk-for-go#27486, googleapis/google-cloud-go#14546
func TestBodiesAreLimited(t *testing.T) {
	t.Run("error", func(t *testing.T) {
		body := endless{of: spaces}
		client := testkit.NewStubClient(t, func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 500, Body: &body, ContentLength: 200 << 20}, nil
		})
		_, err := attempt(t, client, false)
		var e *brellium.APIError
		require.ErrorAs(t, err, &e)
		assert.Equal(t, brellium.CodeHTTPError, e.Code)
		assert.Len(t, e.Body, 64<<10)
		assert.LessOrEqual(t, body.read.Load(), int64(2<<20), "a buffer for the announced size, at most")
		assert.True(t, body.closed.Load())
	})
	t.Run("envelope first", func(t *testing.T) {
		body := endless{of: spaces}
		client := testkit.NewStubClient(t, func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 500, ContentLength: -1, Body: struct {
				io.Reader
				io.Closer
			}{io.MultiReader(strings.NewReader(`{"error":{"code":"INTERNAL"}}`), &body), &body}}, nil
		})
		_, err := attempt(t, client, false)
		testkit.IsAPIError(500, "INTERNAL")(t, err)
	})
	t.Run("the longest", func(t *testing.T) {
		const object = testkit.SampleAudit
		body := endless{of: letters}
		client := testkit.NewStubClient(t, func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, ContentLength: -1, Body: struct {
				io.Reader
				io.Closer
			}{io.MultiReader(strings.NewReader(object), io.LimitReader(&body, int64(wire.MaxBody-len(object)))), &body}}, nil
		})
		require.NoError(t, client.Do(t.Context(), http.MethodGet, "/v2/audits", nil, nil))
		assert.True(t, body.closed.Load())
	})
	t.Run("one byte more, unpacked", func(t *testing.T) {
		packed := strings.Repeat(gzipped(string(spaces)), wire.MaxBody/len(spaces)) + gzipped(" ")
		client := testkit.NewStubClient(t, func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Header: http.Header{"Content-Encoding": {"gzip"}}, Body: io.NopCloser(strings.NewReader(packed))}, nil
		})
		a, err := attempt(t, client, true)
		assert.Equal(t, brellium.VerdictRejected, a.Verdict)
		var e *brellium.DecodeError
		require.ErrorAs(t, err, &e)
		assert.Contains(t, e.Reason, "64 MiB")
		assert.True(t, brellium.OutcomeUnknown(err), "it was done, but what was?")
	})
}

func TestTransportWithoutGzipDecoding(t *testing.T) {
	whole := []byte(gzipped(`{"user_id":"a","flags":["` + strings.Repeat("x", 1000) + `"]}`))
	damaged := bytes.Clone(whole)
	damaged[len(damaged)-6] ^= 0xff // in the checksum
	for name, tc := range map[string]struct {
		encoding string
		body     []byte
		verdict  brellium.Verdict
		reason   string
	}{
		"whole":      {"gzip", whole, brellium.VerdictDone, "success"},
		"upper case": {"GZIP", whole, brellium.VerdictDone, "success"},
		"cut":        {"gzip", whole[:len(whole)/2], brellium.VerdictUnknown, "the response was cut off"},
		"cut header": {"gzip", whole[:5], brellium.VerdictUnknown, "the response was cut off"},
		"damaged":    {"gzip", damaged, brellium.VerdictUnknown, "the response was damaged"},
		"not gzip":   {"gzip", []byte("<html>no gzip at all</html>"), brellium.VerdictUnknown, "the response was damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			client := testkit.NewStubClient(t, func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: 200, ContentLength: int64(len(tc.body)),
					Header: http.Header{"content-encoding": {tc.encoding}}, Body: io.NopCloser(bytes.NewReader(tc.body))}, nil
			})
			a, err := attempt(t, client, true)
			assert.Equal(t, tc.verdict, a.Verdict)
			assert.Equal(t, tc.reason, a.Reason)
			assert.Equal(t, tc.verdict == brellium.VerdictUnknown, brellium.OutcomeUnknown(err))
		})
	}
	t.Run("empty", func(t *testing.T) {
		client := testkit.NewStubClient(t, func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 204, Header: http.Header{"Content-Encoding": {"gzip"}}, Body: http.NoBody}, nil
		})
		require.NoError(t, client.Users.Delete(t.Context(), brelliumtest.SampleAuditID))
	})
	t.Run("error envelope", func(t *testing.T) {
		client := testkit.NewStubClient(t, func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 409, Header: http.Header{"Content-Encoding": {"gzip"}},
				Body: io.NopCloser(strings.NewReader(gzipped(`{"error":{"code":"USER_EXISTS"}}`)))}, nil
		})
		_, err := attempt(t, client, true)
		testkit.IsAPIError(409, brellium.CodeUserExists)(t, err)
	})
}

func TestStatusCountsEvenIfTheBodyIsLost(t *testing.T) {
	for status, verdict := range map[int]brellium.Verdict{
		404: brellium.VerdictRejected, 409: brellium.VerdictRejected, 429: brellium.VerdictThrottled,
		403: brellium.VerdictBlocked, 503: brellium.VerdictUnknown, 200: brellium.VerdictUnknown, 204: brellium.VerdictUnknown,
	} {
		client := testkit.NewStubClient(t, func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: status, Body: io.NopCloser(io.MultiReader(strings.NewReader(`{"error":{"co`), iotest.ErrReader(syscall.ECONNRESET)))}, nil
		})
		a, err := attempt(t, client, true)
		assert.Equal(t, verdict, a.Verdict, status)
		assert.Equal(t, verdict == brellium.VerdictUnknown, brellium.OutcomeUnknown(err), status)
		if status >= 400 && status != 403 {
			testkit.IsAPIError(status, brellium.CodeHTTPError)(t, err)
		}
	}
}

func TestUnusualResponsesOfATransport(t *testing.T) {
	t.Run("neither response nor error", func(t *testing.T) {
		a, err := attempt(t, testkit.NewStubClient(t, func(*http.Request) (*http.Response, error) { return nil, nil }), true)
		assert.Equal(t, brellium.VerdictUnknown, a.Verdict)
		assert.True(t, brellium.OutcomeUnknown(err))
	})
	t.Run("no body, no header", func(t *testing.T) {
		a, err := attempt(t, testkit.NewStubClient(t, func(*http.Request) (*http.Response, error) { return &http.Response{StatusCode: 200}, nil }), false)
		assert.Equal(t, brellium.VerdictDone, a.Verdict)
		var e *brellium.DecodeError
		require.ErrorAs(t, err, &e)
	})
	for _, status := range []int{100, 103, 199, 300, 304, 399, 418, 499} {
		a, err := attempt(t, testkit.NewStubClient(t, func(*http.Request) (*http.Response, error) { return testkit.Reply(status, nil, ""), nil }), true)
		assert.Equal(t, brellium.VerdictRejected, a.Verdict, status)
		testkit.IsAPIError(status, brellium.CodeHTTPError)(t, err)
		assert.False(t, brellium.IsTransient(err), status)
	}
	for _, status := range []int{500, 501, 599, 600, 999} {
		a, err := attempt(t, testkit.NewStubClient(t, func(*http.Request) (*http.Response, error) { return testkit.Reply(status, nil, ""), nil }), true)
		assert.Equal(t, brellium.VerdictUnknown, a.Verdict, status)
		testkit.IsAPIError(status, brellium.CodeHTTPError)(t, err)
		assert.True(t, brellium.OutcomeUnknown(err), status)
	}
	t.Run("names in another case", func(t *testing.T) {
		client := testkit.NewStubClient(t, func(*http.Request) (*http.Response, error) {
			return testkit.Reply(429, http.Header{"retry-after": {"7"}, "x-request-id": {"req-1"}, "ratelimit-limit": {"100"}, "ratelimit-remaining": {"0"}, "RATELIMIT-RESET": {"7"}}, ""), nil
		})
		_, err := attempt(t, client, false)
		var e *brellium.APIError
		require.ErrorAs(t, err, &e)
		assert.Equal(t, 7*time.Second, e.RetryAfter)
		assert.Equal(t, "req-1", e.RequestID)
		assert.Equal(t, 100, e.RateLimit.Limit)
		assert.Equal(t, 7*time.Second, e.RateLimit.Reset)
	})
}

// The body of a 101 is the connection, which has no end.
func TestSwitchedProtocolIsNotRead(t *testing.T) {
	address := listen(t, func(c net.Conn) {
		readRequest(c)
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: odd\r\n\r\n")
		_, _ = io.Copy(io.Discard, c)
	})
	a, err := attempt(t, via(t, "http://"+address, newTransport(t, nil)), true)
	testkit.IsAPIError(101, brellium.CodeHTTPError)(t, err)
	assert.Less(t, a.Duration, 10*time.Second)
}

// The call panics and releases its place, its permit and its turn.
func TestTransportPanicReleasesEverything(t *testing.T) {
	for _, how := range []string{"panic", "Goexit"} {
		t.Run(how, func(t *testing.T) {
			var reported []brellium.LimiterResult
			step := 0
			client := testkit.NewTokenClient(t, brellium.WithMaxConcurrency(1),
				brellium.WithRateLimiter(testkit.LimiterFunc(func(context.Context) (brellium.Permit, error) { return testkit.Permit{Results: &reported}, nil })),
				testkit.WithTransport(testkit.RoundTripFunc(func(*http.Request) (*http.Response, error) {
					switch step++; {
					case step == 1:
						return testkit.Reply(403, nil, ""), nil // from here on one at a time
					case step == 3:
						return testkit.Reply(200, nil, testkit.SampleAudit), nil
					case how == "panic":
						panic("transport")
					}
					runtime.Goexit()
					return nil, nil
				})))
			var blocked *brellium.BlockedError
			require.ErrorAs(t, testkit.Retrieve(t.Context(), client), &blocked)
			ended := make(chan any)
			go func() {
				defer func() { ended <- recover() }()
				_ = testkit.Retrieve(t.Context(), client)
			}()
			if got := <-ended; how == "panic" {
				assert.Equal(t, "transport", got)
			}
			require.NoError(t, testkit.Retrieve(t.Context(), client))
			assert.Len(t, reported, 3)
		})
	}
}

// The hooks are called in orders that real connections show only rarely.
func TestHTTPTraceShowsWhetherARequestWasSent(t *testing.T) {
	lost := errors.New("lost")
	for name, tc := range map[string]struct {
		hooks   func(h *httptrace.ClientTrace)
		stopped bool // the attempt's context is canceled
		cancel  bool // by the caller
		unknown bool
	}{
		"no connection": {hooks: func(h *httptrace.ClientTrace) { h.GetConn("a:1") }},
		"a connection that died": {hooks: func(h *httptrace.ClientTrace) {
			h.GetConn("a:1")
			h.GotConn(httptrace.GotConnInfo{})
		}},
		"a new one after that": {hooks: func(h *httptrace.ClientTrace) {
			h.GetConn("a:1")
			h.GotConn(httptrace.GotConnInfo{})
			h.GetConn("a:1")
			h.GotConn(httptrace.GotConnInfo{})
		}},
		"headers written": {unknown: true, hooks: func(h *httptrace.ClientTrace) {
			h.GetConn("a:1")
			h.GotConn(httptrace.GotConnInfo{})
			h.WroteHeaders()
		}},
		"a new connection after the headers": {unknown: true, stopped: true, hooks: func(h *httptrace.ClientTrace) {
			h.GetConn("a:1")
			h.GotConn(httptrace.GotConnInfo{})
			h.WroteHeaders()
			h.GetConn("a:1")
		}},
		"another's connection after the headers": {unknown: true, stopped: true, hooks: func(h *httptrace.ClientTrace) {
			h.GetConn("a:1")
			h.GotConn(httptrace.GotConnInfo{})
			h.WroteHeaders()
			h.GotConn(httptrace.GotConnInfo{})
		}},
		"through a proxy, where the address differs": {unknown: true, stopped: true, hooks: func(h *httptrace.ClientTrace) {
			h.GetConn("proxy:1")
			h.GotConn(httptrace.GotConnInfo{})
			h.WroteHeaders()
			h.GetConn("a:1")
		}},
		"another host first": {unknown: true, hooks: func(h *httptrace.ClientTrace) {
			h.GetConn("tickets:1")
			h.GotConn(httptrace.GotConnInfo{})
			h.WroteHeaders()
			h.GotFirstResponseByte()
			h.GetConn("a:1")
		}},
		"the same host after its response": {unknown: true, stopped: true, hooks: func(h *httptrace.ClientTrace) {
			h.GetConn("a:1")
			h.GotConn(httptrace.GotConnInfo{})
			h.WroteHeaders()
			h.GotFirstResponseByte()
			h.GetConn("a:1")
		}},
		"canceled without a connection": {cancel: true, stopped: true, hooks: func(h *httptrace.ClientTrace) { h.GetConn("a:1") }},
		"canceled on a connection, which may be writing": {cancel: true, stopped: true, unknown: true, hooks: func(h *httptrace.ClientTrace) {
			h.GetConn("a:1")
			h.GotConn(httptrace.GotConnInfo{})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			client := testkit.NewStubClient(t, func(r *http.Request) (*http.Response, error) {
				tc.hooks(httptrace.ContextClientTrace(r.Context()))
				if tc.cancel {
					cancel()
				}
				assert.Equal(t, tc.stopped, r.Context().Err() != nil)
				if tc.stopped {
					return nil, r.Context().Err()
				}
				return nil, lost
			})
			err := testkit.CreateUser(ctx, client, brellium.WithMaxRetries(0))
			assert.Equal(t, tc.unknown, brellium.OutcomeUnknown(err))
			assert.Equal(t, tc.cancel, errors.Is(err, context.Canceled))
			assert.Equal(t, !tc.stopped, errors.Is(err, lost))
		})
	}
}

// failingConn loses each write once it is dead, as a connection that a firewall has
// dropped.
type failingConn struct {
	net.Conn
	dead *atomic.Bool
}

func (c failingConn) Write(p []byte) (int, error) {
	if c.dead.Load() {
		return 0, syscall.EPIPE
	}
	return c.Conn.Write(p)
}

// net/http shows only for a request with a body that the server refused it, and over
// HTTP/1 never that nothing of it was written.
func TestWhatNetHTTPHidesIsUnknown(t *testing.T) {
	post := func(client *brellium.Client, body any) (brellium.Attempt, error) {
		var resp brellium.Response
		err := client.Do(t.Context(), http.MethodPost, "/v2/sync", body, nil, brellium.WithMaxRetries(0), brellium.WithResponseInto(&resp))
		return resp.Attempts[0], err
	}
	address, refusing, requests, _ := http2Server(t, func(c net.Conn, stream uint32, _ int32) {
		writeFrame(c, frameReset, 0, stream, 0, 0, 0, codeRefused)
	})
	server, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") }, nil)
	dead := new(atomic.Bool)
	dying := newTransport(t, nil)
	dying.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		return failingConn{conn, dead}, err
	}
	overHTTP1 := via(t, server.URL, dying)
	for _, c := range []struct {
		name    string
		client  *brellium.Client
		body    any
		verdict brellium.Verdict
	}{
		{"refused, without a body", via(t, address, refusing), nil, brellium.VerdictUnknown},
		{"refused, with an empty object", via(t, address, refusing), struct{}{}, brellium.VerdictNeverSent},
		{"dead, without a body", overHTTP1, nil, brellium.VerdictUnknown},
		{"dead, with an empty object", overHTTP1, struct{}{}, brellium.VerdictUnknown},
	} {
		dead.Store(false)
		if c.client == overHTTP1 {
			_, err := post(c.client, nil)
			require.NoError(t, err)
			dead.Store(true)
		}
		a, err := post(c.client, c.body)
		require.Error(t, err)
		assert.Equal(t, c.verdict, a.Verdict, c.name)
		assert.Equal(t, c.verdict == brellium.VerdictUnknown, brellium.OutcomeUnknown(err), c.name)
	}
	assert.EqualValues(t, 2, requests.Load(), "that the server refused")
}
