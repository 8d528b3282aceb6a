package brellium

import (
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

// sharedTransport is the pooled transport of every client without
// WithHTTPClient, so that clients may come and go without losing connections.
var sharedTransport = sync.OnceValue(newTransport)

func newTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dialer.DialContext,
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: 10 * time.Second,
		ForceAttemptHTTP2:   true,
		MaxIdleConns:        512,
		MaxIdleConnsPerHost: 256,
		// Far more than the rate limit can use; without a bound, a crowd of
		// calls makes connections that nobody needs a moment later.
		MaxConnsPerHost:        72,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: 256 << 10,
		// A connection that is dead but not closed is found by a ping.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 10 * time.Second},
	}
}
