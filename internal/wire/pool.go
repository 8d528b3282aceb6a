package wire

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"
)

// sharedTransport returns the pooled transport of every client that has none of
// its own, so that clients may come and go without losing connections.
var sharedTransport = sync.OnceValue(NewTransport)

// netHTTPTransport is the transport that package http starts with.
var netHTTPTransport, _ = http.DefaultTransport.(*http.Transport)

// Transport returns the transport of an attempt of a client with hc, or of one
// without, where hc is nil. It is read at each attempt, as net/http does, since a
// test may set a mock, and a program its own, after the client was made. Without
// hc it is the shared one, unless the program has replaced
// [http.DefaultTransport].
func Transport(hc *http.Client) http.RoundTripper {
	if hc != nil && hc.Transport != nil {
		return hc.Transport
	}
	if t, ok := http.DefaultTransport.(*http.Transport); hc == nil && (ok && t == netHTTPTransport || http.DefaultTransport == nil) {
		return sharedTransport()
	}
	return http.DefaultTransport
}

// NewTransport returns a transport like the shared one.
func NewTransport() *http.Transport {
	return &http.Transport{
		Proxy: proxy,
		// The response of a proxy to CONNECT as an error with its status.
		OnProxyConnectResponse: checkProxy,
		DialContext:            newDialer().DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    10 * time.Second,
		ForceAttemptHTTP2:      true,
		MaxIdleConns:           512,
		MaxIdleConnsPerHost:    256,
		// Far more than the rate limit can use. Without a bound, a burst of calls
		// opens connections that are not needed a moment later.
		MaxConnsPerHost:        72,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: 256 << 10,
		// A ping finds a connection that is dead but not closed.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 10 * time.Second},
	}
}

func newDialer() *net.Dialer {
	return &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}
}

// proxy returns the proxy of the environment, and none for a host that counts as
// loopback in any spelling.
func proxy(r *http.Request) (*url.URL, error) {
	host, _, _ := strings.Cut(r.URL.Hostname(), "%")
	if Loopback(strings.ToLower(strings.TrimSuffix(host, "."))) {
		return nil, nil
	}
	return http.ProxyFromEnvironment(r)
}

// Loopback reports whether host is certainly this machine, in a spelling for
// which net/http uses no proxy of the environment: localhost in lower case, or a
// loopback address without a zone. Subdomains of localhost do not count, since a
// resolver may send them elsewhere.
func Loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Zone() == "" && ip.Unmap().IsLoopback()
}
