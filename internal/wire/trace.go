package wire

import (
	"context"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"
)

// trace notes what the transport does with one request. Its hooks run in
// the transport's goroutines.
type trace struct {
	httptrace.ClientTrace
	cancel context.CancelFunc
	idle   atomic.Bool // the exchange was ended by Idle.watch

	mu            sync.Mutex
	addr          string // where it connected last
	traced        bool
	connected     bool
	written       bool
	answered      bool
	replayStopped bool
}

func newTrace(cancel context.CancelFunc) *trace {
	t := &trace{cancel: cancel}
	t.GetConn, t.GotConn, t.WroteHeaders, t.GotFirstResponseByte = t.getConn, t.gotConn, t.wroteHeaders, t.gotFirstByte
	return t
}

// getConn comes again when a transport sends a request once more on its own,
// as net/http does after some failures, over HTTP/2 even with a write that may
// have run. Once the headers are out that is stopped: it would be an attempt
// that nobody counts, paces or decides on. Only a transport that first asks
// another host something, and is answered, may go on.
func (t *trace) getConn(addr string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.written && (!t.answered || t.addr == addr) {
		t.stopReplay()
	}
	t.traced, t.connected, t.answered, t.addr = true, false, false, addr
}

// gotConn also comes without a getConn, for some connections over HTTP/2 that
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
	t.answered = true
}

func (t *trace) stopReplay() {
	t.replayStopped = true
	t.cancel()
}

// mayHaveSent reports whether the request may have reached the server. tells
// is whether the transport is known to report what it does; ended, whether the
// context has ended, since a connection may then be writing still.
func (r *Result) mayHaveSent(t *trace, tells, ended bool) bool {
	if r.Status != 0 {
		return true
	}
	if NotSendable(r.Err) {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	r.lost = t.replayStopped
	if tells || t.traced {
		return t.written || t.connected && ended
	}
	return !provesNotSent(r.Err)
}

// Idle ends an exchange whose body has stood still for Timeout, be it that the
// server takes no more of it or that it does not answer. 0 means never.
type Idle struct {
	Timeout time.Duration
	// Position is how much of the body has been read.
	Position func() int64
}

// watch looks four times within one timeout, and returns when ctx ends.
func (i Idle) watch(ctx context.Context, t *trace) {
	const looks = 4
	ticker := time.NewTicker(max(i.Timeout/looks, 1))
	defer ticker.Stop()
	for at, still := i.Position(), 0; still < looks; {
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
