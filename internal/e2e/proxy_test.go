package e2e_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jarcoal/httpmock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
	"github.com/brellium/brellium-go/internal/testkit"
	"github.com/brellium/brellium-go/internal/wire"
)

// treasure-data/digdag#395, golang/go#44118
func TestAProxyThatRejectsIsNamedAsThePlace(t *testing.T) {
	for _, c := range []struct {
		status  int
		reason  string
		verdict brellium.Verdict
	}{
		{407, "the proxy requires authentication", brellium.VerdictNotSendable},
		{401, "the proxy rejected the connection (status 401)", brellium.VerdictNotSendable},
		{403, "the proxy rejected the connection (status 403)", brellium.VerdictNotSendable},
		{502, "the proxy rejected the connection (status 502)", brellium.VerdictNeverSent},
	} {
		for name, transport := range map[string]func() (*http.Transport, http.RoundTripper){
			"the client's transport": func() (*http.Transport, http.RoundTripper) { tr := wire.NewTransport(); return tr, tr },
			"net/http's transport":   func() (*http.Transport, http.RoundTripper) { tr := new(http.Transport); return tr, tr },
			"a transport around it": func() (*http.Transport, http.RoundTripper) {
				tr := new(http.Transport)
				return tr, testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
					resp, err := tr.RoundTrip(r)
					if err != nil {
						err = fmt.Errorf("traced: %w", err)
					}
					return resp, err
				})
			},
		} {
			t.Run(fmt.Sprint(name, c.status), func(t *testing.T) {
				var connects atomic.Int64
				phrase := http.StatusText(c.status)
				if name == "the client's transport" {
					phrase = marker // it reads the status instead
				}
				proxy := listen(t, func(conn net.Conn) {
					if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
						connects.Add(1)
						_, _ = fmt.Fprintf(conn, "HTTP/1.1 %d %s\r\nX-Patient: %s\r\nContent-Length: 0\r\n\r\n", c.status, phrase, marker)
					}
				})
				tr, rt := transport()
				tr.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: proxy, User: url.UserPassword(marker, marker)})
				defer tr.CloseIdleConnections()
				client := via(t, "https://api.example.test", rt)
				var resp brellium.Response
				opts := []brellium.CallOption{brellium.WithResponseInto(&resp)}
				if c.verdict == brellium.VerdictNeverSent {
					opts = append(opts, brellium.WithMaxRetries(0)) // a retry would wait in real time
				}
				err := testkit.CreateUser(t.Context(), client, opts...)
				var failed *brellium.ConnectionError
				require.ErrorAs(t, err, &failed)
				assert.Equal(t, c.reason, failed.Reason)
				assert.False(t, failed.Sent)
				assert.False(t, brellium.OutcomeUnknown(err))
				assert.Equal(t, c.verdict == brellium.VerdictNeverSent, brellium.IsTransient(err))
				assert.EqualValues(t, 1, connects.Load(), "a rejected login is not retried")
				require.Len(t, resp.Attempts, 1)
				assert.Equal(t, c.verdict, resp.Attempts[0].Verdict)
				for _, e := range tree(err) {
					assert.Empty(t, find(printed(e), marker))
				}
			})
		}
	}
}

// treasure-data/digdag#395
func TestAProxyThatCannotBeReachedIsNamedAsThePlace(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	closed := listener.Addr().String()
	require.NoError(t, listener.Close())
	for host, reason := range map[string]string{
		closed:                        "cannot connect to the proxy: connection refused",
		marker + ".example.test:3128": "cannot connect to the proxy: no such host",
	} {
		transport := newTransport(t, nil)
		resolver(t)(transport)
		transport.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: host, User: url.UserPassword("proxy", marker)})
		a, err := attempt(t, via(t, "https://api.example.test", transport), true)
		assert.Equal(t, brellium.VerdictNeverSent, a.Verdict)
		assert.Equal(t, reason, a.Reason)
		var failed *brellium.ConnectionError
		require.ErrorAs(t, err, &failed)
		assert.Equal(t, reason, failed.Reason, "it does not name the host of the proxy")
		for _, e := range tree(err) {
			assert.Empty(t, find(printed(e), marker))
		}
	}
}

func TestWhatIsNoProxyIsNamedAsThePlace(t *testing.T) {
	for _, c := range []struct {
		reason  string
		respond func(net.Conn)
	}{
		{"connection failed", func(c net.Conn) { _, _ = io.WriteString(c, "SSH-2.0-"+marker+"\r\n") }},
		{"connection closed before a response", func(net.Conn) {}},
		{"connection closed before a response", func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
			_, _ = c.Read(make([]byte, 64<<10)) // what is not read makes the system reset the connection
		}},
		{"the attempt timed out", func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }},
	} {
		proxy := listen(t, func(conn net.Conn) {
			if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				c.respond(conn)
			}
		})
		transport := newTransport(t, nil)
		transport.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: proxy, User: url.UserPassword(marker, marker)})
		a, err := attempt(t, via(t, "https://api.example.test", transport, brellium.WithAttemptTimeout(500*time.Millisecond)), true)
		assert.Equal(t, brellium.VerdictNeverSent, a.Verdict)
		assert.Equal(t, "cannot connect through the proxy: "+c.reason, a.Reason)
		for _, e := range tree(err) {
			assert.Empty(t, find(printed(e), marker))
		}
	}
}

// A transport that returns a status text of its own is no proxy.
func TestAStatusTextIsAProxysOnlyBeforeTheConnection(t *testing.T) {
	client := testkit.NewStubClient(t, func(*http.Request) (*http.Response, error) { return nil, errors.New("Forbidden") })
	var failed *brellium.ConnectionError
	require.ErrorAs(t, testkit.CreateUser(t.Context(), client), &failed)
	assert.Equal(t, "connection failed", failed.Reason)
	assert.True(t, failed.Sent)
}

type ownError struct{}

func (*ownError) Error() string { return marker }

// nock/nock#1523, TryGhost/Ghost#16483, jarcoal/httpmock#118
func TestTheTypeOfATransportsErrorIsNamed(t *testing.T) {
	for _, c := range []struct {
		err    error
		reason string
	}{
		{&ownError{}, "connection failed (*e2e_test.ownError)"},
		{fmt.Errorf(marker+": %w", errors.Join(io.ErrNoProgress, &ownError{})), "connection failed (*e2e_test.ownError)"},
		{errors.New(marker), "connection failed"},
		{&net.OpError{Op: "read", Err: errors.New(marker)}, "connection failed"},
		{fmt.Errorf("%w: %w", &ownError{}, io.ErrUnexpectedEOF), "the response was cut off"},
	} {
		client := testkit.NewStubClient(t, func(*http.Request) (*http.Response, error) { return nil, c.err })
		err := testkit.Retrieve(t.Context(), client, brellium.WithMaxRetries(0))
		assert.ErrorContains(t, err, "audits.retrieve: "+c.reason)
		assert.Empty(t, find(printed(err), marker))
	}

	mock := httpmock.NewMockTransport()
	mock.RegisterResponder("PUT", "https://api.example.test/v2/audits/"+brelliumtest.SampleAuditID, httpmock.NewStringResponder(200, "{}"))
	err := testkit.Retrieve(t.Context(), testkit.NewStubClient(t, mock.RoundTrip), brellium.WithMaxRetries(0))
	assert.ErrorContains(t, err, "connection failed (*internal.ErrorNoResponderFoundMistake)")
	assert.ErrorIs(t, err, httpmock.NoResponderFound)
}

// AdRoll/hologram#73, sourcegraph/sourcegraph-public-snapshot#23460
func TestAHostThatIsUnknownForAMomentIsFoundAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		emu := brelliumtest.New()
		failures := 0
		client := testkit.NewClient(t, emu, testkit.WithTransport(testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
			if failures > 0 {
				failures--
				return nil, &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: r.URL.Hostname(), IsNotFound: true}}
			}
			return emu.Transport().RoundTrip(r)
		})))
		failures = 2
		require.NoError(t, testkit.CreateUser(t.Context(), client))
		failures = 100
		err := testkit.CreateUser(t.Context(), client)
		assert.Equal(t, 97, failures)
		base, urlErr := url.Parse(emu.BaseURL())
		require.NoError(t, urlErr)
		assert.ErrorContains(t, err, "no such host: "+base.Hostname())
	})
}

// influxdata/influxdb-client-go#183, googleapis/google-cloud-go#10948
func TestCloseIdleConnections(t *testing.T) {
	closed := make(chan struct{}, 10)
	respond := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, testkit.SampleAudit) }
	server, connections := serve(t, respond, func(server *httptest.Server) {
		count := server.Config.ConnState
		server.Config.ConnState = func(c net.Conn, s http.ConnState) {
			count(c, s)
			if s == http.StateClosed {
				closed <- struct{}{}
			}
		}
		server.Start()
	})
	client := via(t, server.URL, newTransport(t, nil))
	require.NoError(t, testkit.Retrieve(t.Context(), client))
	require.NoError(t, testkit.Retrieve(t.Context(), client))
	assert.EqualValues(t, 1, connections.Load())
	client.CloseIdleConnections()
	<-closed
	require.NoError(t, testkit.Retrieve(t.Context(), client))
	assert.EqualValues(t, 2, connections.Load())
	testkit.NewStubClient(t, func(*http.Request) (*http.Response, error) { return nil, io.EOF }).CloseIdleConnections() // whose transport has no such method
}

// loopbackHosts are spellings of this machine. net/http bypasses the proxy of the
// environment only for those of the first line.
var loopbackHosts = []string{
	"localhost", "127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "127.9.9.9",
	"LOCALHOST", "LocalHost", "localhost.", "LOCALHOST.", "[::1%25lo]", "[::ffff:127.0.0.1%25lo]", "localhoſt",
	"127.0.0.1.", "2130706433", "127.1", "0x7f000001", "0177.0.0.1", "a.localhost",
}

func TestNothingInPlainTextGoesToAProxy(t *testing.T) {
	if os.Getenv("PROXY_TEST_CHILD") != "" {
		sendToLoopback(t)
		return
	}
	var control atomic.Int64
	recorder := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Host == "control.test" {
			control.Add(1)
			return
		}
		body, _ := io.ReadAll(r.Body)
		t.Errorf("the proxy got %s %s %v %q", r.Method, r.RequestURI, r.Header, body)
	}))
	defer recorder.Close()
	// net/http reads the environment once per process.
	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1")
	child.Env = append(os.Environ(), "HTTP_PROXY="+recorder.URL, "http_proxy="+recorder.URL, "NO_PROXY=", "no_proxy=", "PROXY_TEST_CHILD=1")
	output, err := child.CombinedOutput()
	require.NoError(t, err, "%s", output)
	assert.EqualValues(t, 1, control.Load(), "the proxy is in use")
}

// sendToLoopback sends a call and a file to every spelling that a client accepts.
func sendToLoopback(t *testing.T) {
	server, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{}`) }, nil)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	require.NoError(t, err)
	for _, hc := range []*http.Client{nil, {}, {Transport: new(http.Transport)}} {
		opts := []brellium.ClientOption{brellium.WithAccessToken(marker), brellium.WithMaxRetries(0), brellium.WithoutRateLimiter()}
		if hc != nil {
			if t, ok := hc.Transport.(*http.Transport); ok {
				t.Proxy = http.ProxyFromEnvironment
			}
			opts = append(opts, brellium.WithHTTPClient(hc))
		}
		base, err := brellium.NewClient(append(opts, brellium.WithBaseURL(server.URL))...)
		require.NoError(t, err)
		sent, stored := 0, 0
		for _, host := range loopbackHosts {
			address := "http://" + host + ":" + port
			var to brellium.UploadURL
			require.NoError(t, json.Unmarshal([]byte(`"`+address+`/bucket/file"`), &to))
			if base.Documents.Put(t.Context(), to, brellium.FileFromBytes("a.pdf", []byte(marker))) == nil {
				stored++
			}
			client, err := brellium.NewClient(append(opts, brellium.WithBaseURL(address))...)
			if err == nil && client.Users.Delete(t.Context(), marker) == nil {
				sent++
			}
		}
		assert.GreaterOrEqual(t, sent, 4, "in lower case or not")
		assert.GreaterOrEqual(t, stored, 2)
	}
	resp, err := http.Get("http://control.test/")
	require.NoError(t, err)
	_ = resp.Body.Close()

	// The client's own transport, whatever the client accepts.
	transport := wire.NewTransport()
	for _, host := range loopbackHosts[:11] {
		u, err := url.Parse("http://" + host + ":1")
		require.NoError(t, err)
		proxy, err := transport.Proxy(&http.Request{URL: u})
		assert.NoError(t, err)
		assert.Nil(t, proxy, host)
	}
}
