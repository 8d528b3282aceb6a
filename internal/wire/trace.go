package wire

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"
)

// trace records what the transport does with one request. Its hooks run in the
// transport's goroutines.
type trace struct {
	httptrace.ClientTrace
	cancel context.CancelFunc
	idle   atomic.Bool // the exchange was ended by watchIdle

	mu            sync.Mutex
	addr          string // where it connected last
	conn          net.Conn
	traced        bool
	connected     bool
	written       bool
	responded     bool
	dumped        bool // the last connection is that of a dump, which sends nothing
	replayStopped bool
}

// getConn is called again when the transport sends the request a second time by
// itself, as net/http does after some failures, over HTTP/2 even for a write that
// may have run. Once the headers are written that is stopped, since such an
// attempt would be neither counted nor paced. Only a transport that first sends
// something to another host, and gets a response, may continue.
func (t *trace) getConn(addr string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.written && (!t.responded || t.addr == addr) {
		t.stopReplay()
	}
	t.traced, t.connected, t.responded, t.dumped, t.addr = true, false, false, false, addr
}

// gotConn is also called without getConn, for some HTTP/2 connections that
// another request has opened.
func (t *trace) gotConn(info httptrace.GotConnInfo) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dumped = isDump(info.Conn); t.dumped {
		return
	}
	if t.written && t.connected {
		t.stopReplay()
	}
	t.traced, t.connected, t.conn = true, true, info.Conn
}

func (t *trace) wroteHeaders() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.written = t.written || !t.dumped
}

func (t *trace) gotFirstByte() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.responded = !t.dumped
}

// isDump reports whether c is what [httputil.DumpRequestOut] writes a request to.
// Transports that log or record requests use it before they send one.
func isDump(c net.Conn) bool {
	return c != nil && c.RemoteAddr() == nil && fmt.Sprintf("%T", c) == "*httputil.dumpConn"
}

// silent reports whether the request was written to an HTTP/2 connection and no
// byte of a response came. t.mu is held.
func (t *trace) silent() bool {
	c, ok := t.conn.(*tls.Conn)
	return ok && t.written && !t.responded && c.ConnectionState().NegotiatedProtocol == "h2"
}

func (t *trace) stopReplay() {
	t.replayStopped = true
	t.cancel()
}

// Body is a request's body that reports on itself. Its methods may be called at
// any time.
type Body interface {
	// Position returns how much of the body has been read.
	Position() int64
	// Err returns why the body could not be read as announced, or nil.
	Err() error
}

// waiting reports whether the exchange has no connection yet. For a transport
// that calls no trace, it has one when it has read some of the body; an empty
// body shows nothing, and then it counts as connected.
func (t *trace) waiting(position int64, empty bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.traced {
		return !t.connected
	}
	return position == 0 && !empty
}

// Bytes of a body that the transport has read may still be in buffers of the
// system or of a proxy, from which a slow line takes them without a sign.
const (
	maxBuffered = 4 << 20 // what the systems in use hold by default
	bufferedPer = 1 << 20 // another idle timeout for each of these
)

// watchIdle ends an exchange whose body makes no progress, because the server
// reads no more of it or sends no response: for timeout, and as long again for
// each MiB, up to four, that may be in buffers. The wait for a connection does not
// count. It checks four times per timeout, and returns when ctx ends.
func (t *trace) watchIdle(ctx context.Context, body Body, empty bool, timeout time.Duration) {
	const checks = 4
	ticker := time.NewTicker(max(timeout/checks, 1))
	defer ticker.Stop()
	for at, still := body.Position(), int64(0); still < checks+checks*min(at, maxBuffered)/bufferedPer; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if now := body.Position(); now != at || t.waiting(now, empty) {
			at, still = now, 0
		} else {
			still++
		}
	}
	t.idle.Store(true)
	t.cancel()
}
