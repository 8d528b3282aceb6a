package e2e_test

import (
	"bytes"
	"compress/gzip"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/internal/testkit"
	"github.com/brellium/brellium-go/internal/wire"
)

// operation is a row of README's table of operations, which a test of the root
// package compares with the code.
type operation struct{ name, method, path, retried string }

// write reports whether the operation may change something.
func (o operation) write() bool { return o.method != http.MethodGet && o.name != "oauth.token" }

func operations(t *testing.T) (all []operation) {
	t.Helper()
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	_, table, _ := strings.Cut(string(readme), "<!-- operations -->")
	table, _, _ = strings.Cut(table, "<!-- /operations -->")
	for _, row := range strings.Split(strings.ReplaceAll(table, "`", ""), "\n") {
		if cells := strings.Split(row, " | "); len(cells) == 3 && strings.Contains(cells[0], ".") {
			method, path, _ := strings.Cut(cells[1], " ")
			all = append(all, operation{strings.TrimPrefix(cells[0], "| "), method, path, strings.TrimSuffix(cells[2], " |")})
		}
	}
	require.NotEmpty(t, all)
	return all
}

// via returns a client that sends over transport to the address of a server.
func via(t *testing.T, address string, transport http.RoundTripper, opts ...brellium.ClientOption) *brellium.Client {
	t.Helper()
	return testkit.NewTokenClient(t, append([]brellium.ClientOption{
		brellium.WithBaseURL(address), testkit.WithTransport(transport), brellium.WithoutRateLimiter(), brellium.WithAttemptTimeout(20 * time.Second),
	}, opts...)...)
}

// newTransport returns a transport of the client's kind that trusts server.
func newTransport(t *testing.T, server *httptest.Server) *http.Transport {
	t.Helper()
	transport := wire.NewTransport()
	if server != nil && server.Certificate() != nil {
		transport.TLSClientConfig.RootCAs = x509.NewCertPool()
		transport.TLSClientConfig.RootCAs.AddCert(server.Certificate())
	}
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// serve starts a server and counts the connections to it. setUp may change it
// before it starts.
func serve(t *testing.T, handler http.HandlerFunc, setUp func(*httptest.Server)) (server *httptest.Server, connections *atomic.Int64) {
	t.Helper()
	connections = new(atomic.Int64)
	server = httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = discard
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections.Add(1)
		}
	}
	if setUp == nil {
		setUp = (*httptest.Server).Start
	}
	setUp(server)
	t.Cleanup(server.Close)
	return server, connections
}

var discard = log.New(io.Discard, "", 0)

// silenceLog silences package log, to which net/http writes what arrives on a
// connection that nobody waits on. It returns how to undo that.
func silenceLog() (restore func()) {
	before := log.Writer()
	log.SetOutput(io.Discard)
	return func() { log.SetOutput(before) }
}

// attempt makes one attempt of POST /v2/users or GET /v2/audits/{audit_id}.
func attempt(t *testing.T, client *brellium.Client, write bool) (brellium.Attempt, error) {
	t.Helper()
	var resp brellium.Response
	call := testkit.Retrieve
	if write {
		call = testkit.CreateUser
	}
	err := call(t.Context(), client, brellium.WithMaxRetries(0), brellium.WithResponseInto(&resp))
	require.Len(t, resp.Attempts, 1)
	return resp.Attempts[0], err
}

func gzipped(s string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, s)
	_ = w.Close()
	return b.String()
}
