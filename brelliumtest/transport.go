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

// Transport returns a RoundTripper that hands requests to the emulator in
// process, whatever host they are for. It opens no socket, starts no goroutine
// and waits with timers only, so that it works under testing/synctest. Errors,
// trace hooks and the transparent decoding of gzip are as net/http would have
// them.
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

	a, err := t.e.exchange(ctx, c)
	if err == errDropped {
		return nil, dropError(c)
	}
	if err != nil {
		return nil, err
	}
	if trace != nil && trace.GotFirstResponseByte != nil {
		trace.GotFirstResponseByte()
	}
	return respond(req, c, &a)
}

// connect calls the trace hooks of getting a connection, and fails where the
// fault has none.
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

// send reads the request's body, with the trace hooks around it.
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

// readWhole reads the body and holds it against the announced length. The
// body is closed when the context ends, which frees a reader that blocks.
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
		c.contentLength, c.chunked = 0, false // net/http finds out that there is no body
	}
	return err
}

// dropError is what net/http returns for a connection that ends without an
// answer.
func dropError(c *call) error {
	if c.fault.reset {
		return resetError()
	}
	return io.EOF
}

func resetError() error {
	return &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
}

// respond makes the http.Response of an answer.
func respond(req *http.Request, c *call, a *answer) (*http.Response, error) {
	w, err := c.wire(a, req.Header.Get("Accept-Encoding") == "" || acceptsGzip(req.Header))
	if err != nil {
		return nil, err
	}
	resp := &http.Response{
		StatusCode:    a.status,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        w.header,
		ContentLength: w.length,
		Request:       req,
		Status:        statusLine(a.status),
	}
	if w.length == 0 || req.Method == http.MethodHead || !allowsBody(a.status) {
		resp.Body = http.NoBody
		return resp, nil
	}
	if w.conn == connWhole && w.size == 0 {
		resp.Body = newWholeBody(w.body)
	} else {
		resp.Body = &cutBody{ctx: req.Context(), wire: w}
	}
	if w.gzipped && req.Header.Get("Accept-Encoding") == "" {
		// net/http asked for gzip by itself, and so decodes it by itself.
		resp.Body = &gzipBody{raw: resp.Body}
		resp.Header.Del("Content-Encoding")
		resp.Header.Del("Content-Length")
		resp.ContentLength, resp.Uncompressed = -1, true
	}
	return resp, nil
}
