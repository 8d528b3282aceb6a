package brelliumtest

import (
	"io"
	"net"
	"net/http"
	"strconv"
)

// Handler returns the emulator as an http.Handler, to be put on a server of
// one's own. See Start for one that is ready.
func (e *Emulator) Handler() http.Handler { return http.HandlerFunc(e.serveHTTP) }

func (e *Emulator) serveHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{
		method:        r.Method,
		host:          r.Host,
		path:          r.URL.EscapedPath(),
		query:         r.URL.RawQuery,
		header:        r.Header,
		contentLength: r.ContentLength,
		chunked:       len(r.TransferEncoding) > 0,
		secure:        r.TLS != nil,
	}
	e.open(c)
	switch c.conn() {
	case connRefused, connUnsent:
		abort(w, true)
	}
	ctx := r.Context()
	if err := c.readBody(ctx, r.Body); err != nil {
		if err == errDropped {
			e.arrive(c)
		}
		abort(w, true)
	}
	a, err := e.exchange(ctx, c)
	if err != nil {
		abort(w, c.fault != nil && c.fault.reset)
	}
	out, err := c.wire(&a, acceptsGzip(r.Header))
	if err != nil {
		abort(w, true)
	}
	out.send(w, r, a.status)
}

// send writes the answer, as far as it goes.
func (w *wire) send(rw http.ResponseWriter, r *http.Request, status int) {
	h := rw.Header()
	for key, values := range w.header {
		h[documented(key)] = values
	}
	if _, set := w.header["Content-Type"]; !set {
		h["Content-Type"] = nil // net/http is not to guess one
	}
	if allowsBody(status) {
		h.Set("Content-Length", strconv.FormatInt(w.length, 10))
	}
	rw.WriteHeader(status)
	if r.Method == http.MethodHead || !allowsBody(status) || w.length == 0 {
		return
	}
	if !w.copy(rw, 0, w.sent()) || w.conn == connWhole {
		return
	}
	if err := http.NewResponseController(rw).Flush(); err != nil {
		return
	}
	switch w.conn {
	case connTruncated:
		abort(rw, false)
	case connResetBody:
		abort(rw, true)
	case connStallBody:
		if stall(r.Context(), w.stall) != nil {
			abort(rw, true)
		}
		w.copy(rw, w.sent(), w.length)
	}
}

// copy writes the body's bytes from at up to end, and reports whether it could.
func (w *wire) copy(to io.Writer, at, end int64) bool {
	if w.size == 0 {
		_, err := to.Write(w.body[at:end])
		return err == nil
	}
	buf := make([]byte, 32<<10)
	for at < end {
		n := w.fill(buf, at, end)
		if _, err := to.Write(buf[:n]); err != nil {
			return false
		}
		at += int64(n)
	}
	return true
}

// abort ends the connection without another byte, and the handler with it.
func abort(w http.ResponseWriter, reset bool) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		if tcp, ok := conn.(*net.TCPConn); ok && reset {
			_ = tcp.SetLinger(0) // without it the client sees an end of file
		}
		conn.Close()
	}
	panic(http.ErrAbortHandler)
}

// documented spells the RateLimit headers as the API's guide does; net/http
// has its own spelling for them.
func documented(key string) string {
	switch key {
	case "Ratelimit-Limit":
		return "RateLimit-Limit"
	case "Ratelimit-Remaining":
		return "RateLimit-Remaining"
	case "Ratelimit-Reset":
		return "RateLimit-Reset"
	}
	return key
}
