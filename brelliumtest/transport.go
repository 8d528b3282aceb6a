package brelliumtest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"syscall"
)

// Transport returns an [http.RoundTripper] that serves requests in process,
// whatever their host. It opens no socket, starts no goroutine and waits only
// on timers, so it works under testing/synctest. Errors, [httptrace] hooks and
// transparent gzip decoding are those of net/http.
func (e *Emulator) Transport() http.RoundTripper { return transport{e} }

type transport struct{ e *Emulator }

func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.roundTrip(req)
	if err != nil && req.Body != nil {
		req.Body.Close()
	}
	return resp, err
}

func (t transport) roundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if req.URL == nil || req.URL.Scheme != "https" && req.URL.Scheme != "http" || req.URL.Host == "" {
		return nil, fmt.Errorf("brelliumtest: unsupported URL scheme or missing host")
	}
	c := &call{
		method:        req.Method,
		host:          req.URL.Host,
		path:          req.URL.EscapedPath(),
		query:         req.URL.RawQuery,
		header:        req.Header,
		contentLength: req.ContentLength,
		secure:        req.URL.Scheme == "https",
		inProcess:     true,
	}
	if c.method == "" {
		c.method = http.MethodGet
	}
	if c.path == "" {
		c.path = "/"
	}
	var body io.Reader
	if req.Body == nil || req.Body == http.NoBody {
		c.contentLength = 0
	} else {
		body = req.Body
		if req.ContentLength <= 0 {
			c.contentLength, c.chunked = -1, true
		}
	}
	t.e.open(c)

	trace := httptrace.ContextClientTrace(ctx)
	if err := connect(trace, c); err != nil {
		return nil, err
	}
	if err := send(ctx, trace, c, body); err != nil {
		if err == errDropped {
			t.e.arrive(c)
			return nil, dropError(c)
		}
		return nil, err
	}
	if req.Body != nil {
		req.Body.Close()
	}

	r, err := t.e.exchange(ctx, c)
	if err == errDropped {
		return nil, dropError(c)
	}
	if err != nil {
		return nil, err
	}
	if trace != nil && trace.GotFirstResponseByte != nil {
		trace.GotFirstResponseByte()
	}
	return respond(req, c, &r)
}

// connect calls the trace hooks of getting a connection, and returns an error
// if the fault refuses or breaks it.
func connect(trace *httptrace.ClientTrace, c *call) error {
	if trace != nil && trace.GetConn != nil {
		trace.GetConn(c.host)
	}
	if c.conn() == connRefused {
		return &net.OpError{
			Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 443},
			Err: os.NewSyscallError("connect", syscall.ECONNREFUSED),
		}
	}
	if trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{Reused: c.conn() == connUnsent})
	}
	if c.conn() == connUnsent {
		err := &net.OpError{Op: "write", Net: "tcp", Err: os.NewSyscallError("write", syscall.EPIPE)}
		if trace != nil && trace.WroteRequest != nil {
			trace.WroteRequest(httptrace.WroteRequestInfo{Err: err})
		}
		return err
	}
	return nil
}

// send reads the request's body and calls the trace hooks for it.
func send(ctx context.Context, trace *httptrace.ClientTrace, c *call, body io.Reader) error {
	if trace != nil && trace.WroteHeaders != nil {
		trace.WroteHeaders()
	}
	err := readWhole(ctx, c, body)
	if trace != nil && trace.WroteRequest != nil {
		info := httptrace.WroteRequestInfo{Err: err}
		if err == errDropped {
			info.Err = dropError(c)
		}
		trace.WroteRequest(info)
	}
	return err
}

// readWhole reads the body and compares it with its Content-Length. It closes
// the body of an upload when the context ends, to unblock a blocked read.
func readWhole(ctx context.Context, c *call, body io.Reader) error {
	if body == nil {
		if c.conn() == connDropReading {
			return errDropped
		}
		return nil
	}
	if closer, ok := body.(io.Closer); ok && c.storage {
		stop := context.AfterFunc(ctx, func() { closer.Close() })
		defer stop()
	}
	err := c.readBody(ctx, body)
	if cause := context.Cause(ctx); err != nil && err != errDropped && cause != nil {
		return cause
	}
	if err == io.ErrUnexpectedEOF {
		return fmt.Errorf("http: ContentLength=%d with Body length %d", c.contentLength, c.size)
	}
	if err == nil && c.contentLength > 0 && c.contentLength <= maxBody && c.size == c.contentLength {
		if n, _ := body.Read(make([]byte, 1)); n > 0 {
			c.size++
		}
	}
	if err == nil && c.contentLength > 0 && c.size > c.contentLength {
		return fmt.Errorf("http: ContentLength=%d with Body length %d", c.contentLength, c.size)
	}
	if c.size == 0 && c.chunked {
		c.contentLength, c.chunked = 0, false // net/http detects an empty body
	}
	return err
}

// dropError returns the error of net/http for a connection that ends without a
// response.
func dropError(c *call) error {
	if c.fault.reset {
		return resetError()
	}
	return io.EOF
}

func resetError() error {
	return &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
}

// respond returns a response as an http.Response.
func respond(req *http.Request, c *call, r *response) (*http.Response, error) {
	w, err := c.wire(r, req.Header.Get("Accept-Encoding") == "" || acceptsGzip(req.Header))
	if err != nil {
		return nil, err
	}
	resp := &http.Response{
		StatusCode:    r.status,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        w.header,
		ContentLength: w.length,
		Request:       req,
		Status:        statusLine(r.status),
	}
	if w.length == 0 || req.Method == http.MethodHead || !allowsBody(r.status) {
		resp.Body = http.NoBody
		return resp, nil
	}
	if w.conn == connWhole && w.size == 0 {
		resp.Body = newWholeBody(w.body)
	} else {
		resp.Body = &cutBody{ctx: req.Context(), wire: w}
	}
	if w.gzipped && req.Header.Get("Accept-Encoding") == "" {
		// As net/http does when the caller sets no Accept-Encoding.
		resp.Body = &gzipBody{raw: resp.Body}
		resp.Header.Del("Content-Encoding")
		resp.Header.Del("Content-Length")
		resp.ContentLength, resp.Uncompressed = -1, true
	}
	return resp, nil
}
