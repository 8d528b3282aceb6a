package wire

import (
	"context"
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
	idle   atomic.Bool // the exchange was ended by Idle.watch

	mu            sync.Mutex
	addr          string // where it connected last
	traced        bool
	connected     bool
	written       bool
	responded     bool
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
	t.traced, t.connected, t.responded, t.addr = true, false, false, addr
}

// gotConn is also called without getConn, for some HTTP/2 connections that
// another request has opened.
func (t *trace) gotConn(httptrace.GotConnInfo) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.written && t.connected {
		t.stopReplay()
	}
	t.traced, t.connected = true, true
}

func (t *trace) wroteHeaders() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.written = true
}

func (t *trace) gotFirstByte() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.responded = true
}

func (t *trace) stopReplay() {
	t.replayStopped = true
	t.cancel()
}

// Idle ends an exchange whose body makes no progress for Timeout, because the
// server reads no more of it or sends no response. 0 means never.
type Idle struct {
	Timeout time.Duration
	// Position is how much of the body has been read.
	Position func() int64
}

// watch checks the position four times per timeout. It returns when ctx ends.
func (i Idle) watch(ctx context.Context, t *trace) {
	const checks = 4
	ticker := time.NewTicker(max(i.Timeout/checks, 1))
	defer ticker.Stop()
	for at, still := i.Position(), 0; still < checks; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if now := i.Position(); now != at {
			at, still = now, 0
		} else {
			still++
		}
	}
	t.idle.Store(true)
	t.cancel()
}
