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

// wire is an answer as it goes over the connection.
type wire struct {
	header  http.Header
	length  int64 // as announced
	body    []byte
	size    int64 // of a body that is made up while it is sent; 0: none
	gzipped bool
	conn    connFault
	stall   time.Duration
}

// wire applies what the fault does to an answer on its way.
func (c *call) wire(a *answer, gzipAllowed bool) (*wire, error) {
	w := &wire{header: a.headers(), body: a.body, length: int64(len(a.body))}
	f := c.fault
	if f == nil {
		return w, nil
	}
	w.conn, w.stall = f.conn, f.stall
	switch f.conn {
	case connResetBody, connTruncated, connStallBody:
	default:
		w.conn = connWhole
	}
	if f.answer != nil && f.answer.size > 0 {
		w.size, w.length = f.answer.size, f.answer.size
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

// sent is how much of the body arrives before something happens.
func (w *wire) sent() int64 {
	switch w.conn {
	case connResetBody, connTruncated, connStallBody:
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

// statusLine spells a status as http.Response.Status does, without making a
// string for the usual ones.
func statusLine(status int) string {
	if status == http.StatusOK {
		return "200 OK"
	}
	return strconv.Itoa(status) + " " + http.StatusText(status)
}

// wholeBody is a body that arrives whole.
type wholeBody struct{ bytes.Reader }

func newWholeBody(b []byte) *wholeBody {
	body := new(wholeBody)
	body.Reset(b)
	return body
}

func (*wholeBody) Close() error { return nil }

// cutBody is a body that breaks off or stalls in the middle, or is made up
// while it is read.
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

// fill copies the body's bytes from at up to end into p.
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

// gzipBody decodes a body from its first read on, as net/http does.
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
