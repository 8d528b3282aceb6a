// Package wire makes one HTTP exchange. The result is the response, read into a
// bounded buffer, or the reason why there is none and whether the request may
// have reached the server. It does not depend on the API.
package wire

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"time"
)

const (
	MaxBody      = 64 << 20 // of a 2xx
	MaxErrorBody = 64 << 10 // of any other response
)

var (
	// ErrDoNotSend marks an error of a transport that did not send the request
	// and will not send it again.
	ErrDoNotSend = errors.New("brellium: do not send")
	// ErrTooLarge is the error of a 2xx whose body is longer than MaxBody.
	ErrTooLarge = errors.New("the response is larger than 64 MiB")
	// ErrIdle is the error of an exchange that made no progress for too long.
	ErrIdle = errors.New("no data moved within the idle timeout")
)

// Result is the result of one exchange.
type Result struct {
	Status int // 0 without a response
	Header http.Header
	Body   []byte
	At     time.Time // when the header had been read
	// Err is why there is no usable response. With a Status of 300 or more it
	// does not matter.
	Err error
	// Sent is whether the server may have processed the request.
	Sent bool
	// TimedOut is whether the exchange reached its own deadline.
	TimedOut bool
	// Silent is whether it did so on an HTTP/2 connection without a byte of a
	// response. net/http would use the connection again although it may be dead.
	Silent bool

	lost        bool // net/http was about to send the request again by itself
	refused     bool // the server did not process it, by the rules of HTTP/2
	unconnected bool // net/http certainly had no connection to send it on
	proxied     bool // unconnected, where the connection was to go through a proxy
}

// Exchange is one exchange that has not begun.
type Exchange struct {
	trace *trace
	ctx   context.Context
}

// New returns an exchange whose Context ends with parent or when cancel is
// called.
func New(parent context.Context, cancel context.CancelFunc) Exchange {
	t := &trace{cancel: cancel}
	t.GetConn, t.GotConn, t.WroteHeaders, t.GotFirstResponseByte = t.getConn, t.gotConn, t.wroteHeaders, t.gotFirstByte
	return Exchange{t, httptrace.WithClientTrace(parent, &t.ClientTrace)}
}

// Context is the context that the request must have.
func (x Exchange) Context() context.Context { return x.ctx }

// RoundTrip sends req through rt and reads the response. If body is not nil, it is
// that of req: the exchange ends when it makes no progress for idleTimeout, unless
// that is 0, and has no response if the body could not be read as announced.
func (x Exchange) RoundTrip(rt http.RoundTripper, req *http.Request, body Body, idleTimeout time.Duration) (r Result) {
	if body != nil && idleTimeout > 0 {
		go x.trace.watchIdle(x.ctx, body, req.ContentLength == 0, idleTimeout)
	}
	r.exchange(rt, req)
	ended := x.ctx.Err()
	if body != nil && body.Err() != nil {
		return Result{Err: body.Err()} // whatever the transport made of it
	}
	if r.Err != nil {
		r.TimedOut = ended == context.DeadlineExceeded
		if x.trace.idle.Load() {
			r.Err, r.TimedOut = ErrIdle, true
		}
	}
	t, traces := rt.(*http.Transport) // an *http.Transport always calls the trace
	r.Sent = r.mayHaveSent(x.trace, traces, ended != nil)
	if r.unconnected && traces && t.Proxy != nil {
		proxy, _ := t.Proxy(req)
		r.proxied = proxy != nil
	}
	return r
}

// mayHaveSent reports whether the server may have processed the request. traces
// is whether the transport certainly calls the trace; ended is whether the
// context has ended, in which case the connection may still be writing.
func (r *Result) mayHaveSent(t *trace, traces, ended bool) bool {
	if r.Status != 0 {
		return true
	}
	if errors.Is(r.Err, ErrDoNotSend) {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	r.lost = t.replayStopped
	r.unconnected = t.traced && !t.connected && !t.written
	r.Silent = r.TimedOut && t.silent()
	if r.refused = t.traced && !r.lost && refused(r.Err); r.refused {
		return false
	}
	if traces || t.traced {
		return t.written || t.connected && ended
	}
	return !provesNotSent(r.Err)
}

func (r *Result) exchange(rt http.RoundTripper, req *http.Request) {
	resp, err := rt.RoundTrip(req)
	switch {
	case err != nil:
		r.Err = err
		return
	case resp == nil:
		r.Err = errors.New("the transport returned neither a response nor an error")
		return
	case resp.StatusCode < 100 || resp.StatusCode > 999: // net/http lets 000 to 099 pass
		r.Err = errors.New("the response has no valid status")
		if resp.Body != nil {
			_ = resp.Body.Close()
		}
		return
	}
	resp.Header = canonical(resp.Header)
	r.Status, r.Header, r.At = resp.StatusCode, resp.Header, time.Now()
	switch {
	case resp.Body == nil:
	case r.Status < 200: // the body of a 101 is the connection, which has no end
		_ = resp.Body.Close()
	default:
		r.Body, r.Err = readBody(resp)
	}
}

// readBody reads a response to its end, so that the connection can be reused,
// but no further than its limit.
func readBody(resp *http.Response) ([]byte, error) {
	defer func() { _ = resp.Body.Close() }()
	limit := MaxBody
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		limit = MaxErrorBody
	}
	var r io.Reader = resp.Body
	size := resp.ContentLength
	if strings.EqualFold(resp.Header.Get("Content-Encoding"), "gzip") && !resp.Uncompressed {
		zr, err := gzip.NewReader(resp.Body)
		if err == io.EOF {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		r, size = zr, -1
	}
	// One byte more than announced, so that the read that returns io.EOF needs
	// no larger buffer; a very large announcement is not trusted.
	if size < 0 {
		size = 511
	}
	buf := make([]byte, 0, min(size, int64(limit), 1<<20)+1)
	for {
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case len(buf) > limit && limit == MaxErrorBody:
			return buf[:limit], nil
		case len(buf) > limit:
			return nil, ErrTooLarge
		case err == io.EOF:
			return buf, cutOff(resp, buf)
		case err != nil:
			return buf, err
		case len(buf) == cap(buf):
			buf = slices.Grow(buf, min(len(buf), limit+1-len(buf)))
		}
	}
}

// cutOff returns io.ErrUnexpectedEOF for a 2xx that may be cut off, since only the
// end of the connection ended it, and whose JSON is.
func cutOff(resp *http.Response, body []byte) error {
	if resp.ProtoMajor != 1 || resp.ContentLength >= 0 || resp.TransferEncoding != nil || resp.Uncompressed || resp.StatusCode > 299 {
		return nil
	}
	body = bytes.TrimSpace(bytes.TrimPrefix(body, []byte("\xef\xbb\xbf")))
	if len(body) == 0 || body[0] != '{' && body[0] != '[' {
		return nil
	}
	var value json.RawMessage
	if err := json.NewDecoder(bytes.NewReader(body)).Decode(&value); err == io.ErrUnexpectedEOF {
		return err
	}
	return nil
}

// canonical returns h with canonical keys and without white space around its
// values, as net/http's own transport leaves it and others may not.
func canonical(h http.Header) http.Header {
	clean := true
	for k, values := range h {
		clean = clean && k == http.CanonicalHeaderKey(k)
		for _, v := range values {
			clean = clean && v == strings.TrimSpace(v)
		}
	}
	if clean {
		return h
	}
	c := make(http.Header, len(h))
	for _, k := range slices.Sorted(maps.Keys(h)) { // in a fixed order, where a key comes in two cases
		if key := http.CanonicalHeaderKey(k); c[key] == nil {
			c[key] = []string{}
			for _, v := range h[k] {
				c[key] = append(c[key], strings.TrimSpace(v))
			}
		}
	}
	return c
}
