package brelliumtest

import (
	"io"
	"net"
	"net/http"
	"strconv"
)

// Handler returns the emulator as an [http.Handler] for your own server. See
// [Emulator.Start] for a ready server.
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
	resp, err := e.exchange(ctx, c)
	if err != nil {
		abort(w, c.fault != nil && c.fault.reset)
	}
	out, err := c.wire(&resp, acceptsGzip(r.Header))
	if err != nil {
		abort(w, true)
	}
	out.send(w, r, resp.status)
}

// send writes the response, up to where the fault ends it.
func (w *wire) send(rw http.ResponseWriter, r *http.Request, status int) {
	h := rw.Header()
	for key, values := range w.header {
		h[documented(key)] = values
	}
	if _, set := w.header["Content-Type"]; !set {
		h["Content-Type"] = nil // keeps net/http from setting one
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

// copy writes the body's bytes from at to end, and reports whether it could.
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

// abort closes the connection and ends the handler with a panic.
func abort(w http.ResponseWriter, reset bool) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		if tcp, ok := conn.(*net.TCPConn); ok && reset {
			_ = tcp.SetLinger(0) // sends RST instead of FIN
		}
		conn.Close()
	}
	panic(http.ErrAbortHandler)
}

// documented returns the spelling of the RateLimit headers in the API guide,
// which differs from net/http's canonical form.
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
