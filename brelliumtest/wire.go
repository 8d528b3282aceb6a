package brelliumtest

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// wire is a response as it is sent.
type wire struct {
	header  http.Header
	length  int64 // Content-Length
	body    []byte
	size    int64 // of a body generated while it is sent; 0: none
	gzipped bool
	conn    connFault // one that affects the response's body, or connWhole
	stall   time.Duration
}

// wire applies the fault to the response.
func (c *call) wire(r *response, gzipAllowed bool) (*wire, error) {
	w := &wire{header: r.headers(), body: r.body, length: int64(len(r.body))}
	f := c.fault
	if f == nil {
		return w, nil
	}
	w.stall = f.stall
	switch f.conn {
	case connResetBody, connTruncated, connStallBody:
		w.conn = f.conn
	}
	if f.response != nil && f.response.size > 0 {
		w.size, w.length = f.response.size, f.response.size
	}
	if f.gzip && gzipAllowed {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		if _, err := z.Write(w.body); err != nil {
			return nil, err
		}
		if err := z.Close(); err != nil {
			return nil, err
		}
		w.body, w.gzipped = b.Bytes(), true
		if f.cutGzip {
			w.body = w.body[:len(w.body)/2]
		}
		w.length = int64(len(w.body))
		w.header.Set("Content-Encoding", "gzip")
	}
	for _, h := range f.headers {
		if h.value == "" {
			w.header.Del(h.key)
		} else {
			w.header.Set(h.key, h.value)
		}
	}
	return w, nil
}

// sent returns how much of the body is sent before the fault.
func (w *wire) sent() int64 {
	if w.conn != connWhole {
		return w.length / 2
	}
	return w.length
}

func acceptsGzip(h http.Header) bool {
	return strings.Contains(strings.ToLower(h.Get("Accept-Encoding")), "gzip")
}

func allowsBody(status int) bool {
	return status != http.StatusNoContent && status != http.StatusNotModified
}

// statusLine returns a status as http.Response.Status, without an allocation
// for 200.
func statusLine(status int) string {
	if status == http.StatusOK {
		return "200 OK"
	}
	return strconv.Itoa(status) + " " + http.StatusText(status)
}

// wholeBody is a complete body.
type wholeBody struct{ bytes.Reader }

func newWholeBody(b []byte) *wholeBody {
	body := new(wholeBody)
	body.Reset(b)
	return body
}

func (*wholeBody) Close() error { return nil }

// cutBody is a body that ends early, stalls, or is generated while it is read.
type cutBody struct {
	ctx context.Context
	*wire
	at int64
}

func (b *cutBody) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, context.Cause(b.ctx)
	}
	if b.at >= b.sent() {
		switch b.conn {
		case connResetBody:
			return 0, resetError()
		case connTruncated:
			return 0, io.ErrUnexpectedEOF
		case connStallBody:
			if err := stall(b.ctx, b.stall); err != nil {
				return 0, err
			}
			b.conn = connWhole
		default:
			return 0, io.EOF
		}
	}
	n := b.fill(p, b.at, b.sent())
	b.at += int64(n)
	return n, nil
}

func (*cutBody) Close() error { return nil }

// fill copies the body's bytes from at to end into p.
func (w *wire) fill(p []byte, at, end int64) int {
	if int64(len(p)) > end-at {
		p = p[:end-at]
	}
	if w.size == 0 {
		return copy(p, w.body[at:])
	}
	for n := copy(p, "x"); n < len(p); n *= 2 {
		copy(p[n:], p[:n])
	}
	return len(p)
}

// gzipBody decodes a body, starting with its first read, as net/http does.
type gzipBody struct {
	raw io.ReadCloser
	z   *gzip.Reader
}

func (b *gzipBody) Read(p []byte) (int, error) {
	if b.z == nil {
		z, err := gzip.NewReader(b.raw)
		if err != nil {
			return 0, err
		}
		b.z = z
	}
	return b.z.Read(p)
}

func (b *gzipBody) Close() error { return b.raw.Close() }
