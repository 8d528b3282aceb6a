package brelliumtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The gateway in front of the API rejects larger requests. Only the first
// limit is documented.
const (
	maxQuery  = 2048
	maxPath   = 8 << 10
	maxHeader = 16 << 10
	maxBody   = 10 << 20
	// maxAnonymous is how much of a body is kept without a valid access token, so
	// that nobody can fill the memory.
	maxAnonymous = 64 << 10
)

// maxRecorded is how much of an uploaded file is kept in Request.Body.
const maxRecorded = 1 << 20

// call is one request to the emulator.
type call struct {
	method, host, path, query string
	header                    http.Header
	contentLength             int64 // -1: unknown
	chunked                   bool
	secure                    bool
	inProcess                 bool
	known                     bool // it has an access token of the emulator

	storage bool
	op      *operation // nil: none
	allow   string
	id      string

	fault  *queuedFault // nil: none
	rec    Request      // the record so far
	record *Request     // the recorded copy; nil: not recorded

	body   []byte // an API request's body, or the start of an uploaded file
	keep   int    // how much of an uploaded file to keep in body
	size   int64
	sha256 string
	now    time.Time
}

// errDropped ends an exchange if the fault drops its connection.
var errDropped = errors.New("brelliumtest: connection dropped")

// open routes a request and takes its fault from the script.
func (e *Emulator) open(c *call) {
	host, _, _ := strings.Cut(c.host, ":")
	c.storage = host == storageHost || strings.HasPrefix(c.path, uploadPrefix)
	operation := opUnknown
	if c.storage {
		if c.method == http.MethodPut && strings.HasPrefix(c.path, uploadPrefix) {
			c.op = &documentPut
		}
	} else if path, ok := strings.CutPrefix(c.path, e.basePath); ok {
		c.op, c.id, c.allow = route(c.method, path)
	}
	if c.op != nil {
		operation = c.op.name
	}
	c.rec = Request{
		Operation:     operation,
		Method:        c.method,
		Host:          c.host,
		Path:          c.path,
		RawQuery:      c.query,
		Header:        c.header,
		ContentLength: c.contentLength,
		Chunked:       c.chunked,
	}
	if auth := c.header.Get("Authorization"); auth != "" {
		if scheme, token, ok := strings.Cut(auth, " "); ok && strings.EqualFold(scheme, "Bearer") {
			c.rec.Token = token
		}
	}
	if e.recordLimit != 0 {
		c.keep = maxRecorded
	}
	e.mu.Lock()
	c.fault = e.takeFault(&c.rec)
	_, c.known = e.tokens[c.rec.Token]
	e.mu.Unlock()
}

// conn returns what the fault does to the connection.
func (c *call) conn() connFault {
	if c.fault == nil {
		return connWhole
	}
	return c.fault.conn
}

// readBody reads the request's body. The body of an API request is kept, up to
// one byte more than the limit, or to maxAnonymous; an uploaded file is hashed.
func (c *call) readBody(ctx context.Context, r io.Reader) error {
	if r == nil {
		return nil
	}
	size := c.contentLength
	slow := c.fault != nil && c.fault.reading > 0
	if slow {
		r = &slowReader{ctx: ctx, r: r, left: c.fault.reading, size: size}
	}
	if c.conn() == connDropReading {
		_, err := io.CopyN(io.Discard, r, max(1, size/2))
		if err != nil && err != io.EOF {
			return err
		}
		return errDropped
	}
	if c.storage {
		return c.readFile(r)
	}
	if !slow && size > 0 && (size <= maxAnonymous || c.known && size <= maxBody) {
		c.body = make([]byte, size)
		n, err := io.ReadFull(r, c.body)
		c.body, c.size = c.body[:n], int64(n)
		return err
	}
	limit := int64(maxBody + 1)
	if !c.known {
		limit = maxAnonymous
	}
	body, err := io.ReadAll(io.LimitReader(r, limit))
	c.body, c.size = body, int64(len(body))
	if err == nil && c.size == limit && !c.known {
		var rest int64
		rest, err = io.Copy(io.Discard, io.LimitReader(r, maxBody+1-limit))
		c.size += rest
	}
	return err
}

func (c *call) readFile(r io.Reader) error {
	sum := sha256.New()
	buf := make([]byte, 64<<10)
	for {
		n, err := r.Read(buf)
		sum.Write(buf[:n])
		c.size += int64(n)
		if room := c.keep - len(c.body); room > 0 {
			c.body = append(c.body, buf[:min(n, room)]...)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	c.sha256 = hex.EncodeToString(sum.Sum(nil))
	if c.contentLength >= 0 && c.size < c.contentLength {
		return io.ErrUnexpectedEOF
	}
	return nil
}

// exchange processes a request whose body was read, and returns the response
// when it is due.
func (e *Emulator) exchange(ctx context.Context, c *call) (response, error) {
	var half time.Duration
	if e.latency != nil {
		e.mu.Lock()
		half = e.latency(e.delays) / 2
		e.mu.Unlock()
		if err := sleep(ctx, half); err != nil {
			return response{}, err
		}
	}
	e.arrive(c)
	if f := c.fault; f != nil {
		if err := sleep(ctx, f.before); err != nil {
			return response{}, err
		}
		if f.conn == connDropBefore {
			return response{}, errDropped
		}
	}
	r := e.process(c)
	if err := sleep(ctx, half); err != nil {
		return response{}, err
	}
	if f := c.fault; f != nil {
		if err := sleep(ctx, f.after); err != nil {
			return response{}, err
		}
		switch f.conn {
		case connDropAfter:
			return response{}, errDropped
		case connStallHeaders:
			if err := stall(ctx, f.stall); err != nil {
				return response{}, err
			}
		}
	}
	return r, nil
}

// process runs a request and records its response.
func (e *Emulator) process(c *call) response {
	e.mu.Lock()
	defer e.mu.Unlock()
	c.now = time.Now()
	e.documents.settle(e, c.now)
	if c.fault != nil {
		if c.fault.burst > 0 {
			e.bucket.drain(c.fault.burst, c.now)
		}
		if c.fault.revoke {
			clear(e.tokens)
		}
	}
	r := e.serve(c)
	r.storage = c.storage
	if !r.bare {
		r.requestID = e.newID()
	}
	if c.fault != nil && c.fault.noLimit {
		r.limit = limitState{}
	}
	if r.failure != nil {
		if r.storage {
			r.contentType, r.body = "application/xml", r.failure.xml(r.requestID)
		} else {
			r.contentType, r.body = jsonType, r.failure.envelope(r.requestID)
		}
	}
	c.rec.Status, c.rec.RequestID = r.status, r.requestID
	e.responses[operationStatus{c.rec.Operation, r.status}]++
	if c.record != nil {
		*c.record = c.rec
	}
	return r
}

// serve returns the response of the gateway, the storage host, the token
// endpoint or the API.
func (e *Emulator) serve(c *call) response {
	if s := c.scripted(); s != nil && s.bare && !c.fault.work {
		return c.script(response{})
	}
	if status := c.gatewayStatus(); status != 0 {
		return response{status: status, bare: true}
	}
	switch {
	case c.storage:
		return c.script(e.store(c))
	case c.rec.Operation == OpTokenCreate:
		return e.mint(c) // needs no access token and does not use the rate limit
	case c.op == nil && c.allow != "" && strings.HasSuffix(c.path, "/oauth/token"):
		return c.script(e.operate(c))
	}
	return e.serveAPI(c)
}

// gatewayStatus returns the status with which the gateway rejects a request, or
// 0.
func (c *call) gatewayStatus() int {
	if len(c.query) > maxQuery {
		return http.StatusForbidden
	}
	if len(c.path) > maxPath {
		return http.StatusRequestURITooLong
	}
	size := 0
	for key, values := range c.header {
		for _, value := range values {
			size += len(key) + len(value) + 4
		}
	}
	if size > maxHeader {
		return http.StatusRequestHeaderFieldsTooLarge
	}
	if !c.storage && (c.size > maxBody || c.contentLength > maxBody) {
		return http.StatusRequestEntityTooLarge
	}
	return 0
}

// serveAPI checks the access token, charges the rate limit and runs the
// operation.
func (e *Emulator) serveAPI(c *call) response {
	if !e.authorized(c) {
		c.postpone(e)
		return fail(http.StatusUnauthorized, "UNAUTHORIZED", "The access token is missing, unknown, revoked or expired")
	}
	s := c.scripted()
	switch {
	case s != nil && s.status == http.StatusUnauthorized:
		return c.script(response{})
	case s != nil && s.status == http.StatusTooManyRequests:
		return c.scriptRateLimited(&e.bucket, 1)
	}
	if !e.bucket.take(c.now) {
		c.postpone(e)
		return rateLimited(&e.bucket)
	}
	c.rec.Spent = true
	var r response
	if s == nil || c.fault.work {
		r = e.operate(c)
	}
	r = c.script(r)
	if !r.bare {
		r.limit = limitState{true, int(e.bucket.capacity), e.bucket.remaining(), 0}
	}
	return r
}

// operate runs the operation, if there is one.
func (e *Emulator) operate(c *call) response {
	if c.size > 0 && !isJSON(c.header.Get("Content-Type")) {
		return fail(http.StatusBadRequest, "INVALID_CONTENT_TYPE", "Content-Type must be application/json")
	}
	if c.op == nil {
		if c.allow != "" {
			r := fail(http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED", "The method is not allowed here")
			r.allow = c.allow
			return r
		}
		return notFound("Endpoint")
	}
	c.rec.Worked = true
	return c.op.run(e, c)
}

// scripted returns the scripted response, or nil.
func (c *call) scripted() *scripted {
	if c.fault == nil {
		return nil
	}
	return c.fault.response
}

// script returns the scripted response, or r if there is none.
func (c *call) script(r response) response {
	s := c.scripted()
	if s == nil {
		return r
	}
	r = response{status: s.status, contentType: s.contentType, body: s.body, bare: s.bare}
	if s.code != "" {
		message := s.message
		if message == "" {
			message = "A scripted failure"
		}
		r.failure = &failure{errorType(s.status), s.code, message}
	}
	return r
}

// scriptRateLimited returns a scripted 429. Its RateLimit headers describe a
// bucket that is empty until the script's Retry-After.
func (c *call) scriptRateLimited(b *bucket, seconds int) response {
	for _, h := range c.fault.headers {
		if n, err := strconv.Atoi(h.value); err == nil && n > 0 && h.key == "Retry-After" {
			seconds = n
		}
	}
	r := c.script(response{})
	r.retryAfter = seconds
	r.limit = limitState{true, int(b.capacity), 0, seconds}
	return r
}

// postpone puts a scripted response back into the script, because the emulator
// rejected the request by itself.
func (c *call) postpone(e *Emulator) {
	if c.scripted() != nil {
		e.putBack(c.fault)
		c.fault = nil
	}
}

// rateLimited returns the 429 of an empty bucket.
func rateLimited(b *bucket) response {
	r := fail(http.StatusTooManyRequests, "RATE_LIMITED", "Too many requests")
	r.retryAfter = b.reset()
	r.limit = limitState{true, int(b.capacity), b.remaining(), b.reset()}
	return r
}

// isJSON reports whether a Content-Type is application/json, ignoring case and
// parameters.
func isJSON(contentType string) bool {
	if contentType == jsonType {
		return true
	}
	mediaType, _, err := mime.ParseMediaType(contentType)
	return err == nil && mediaType == jsonType
}

// sleep waits for d, or returns the context's error when the context ends.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// stall waits for d, or until the context ends if d is 0.
func stall(ctx context.Context, d time.Duration) error {
	if d > 0 {
		return sleep(ctx, d)
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// slowReader spreads the reading of a body over a duration.
type slowReader struct {
	ctx  context.Context
	r    io.Reader
	left time.Duration
	size int64
}

func (s *slowReader) Read(p []byte) (int, error) {
	const steps = 16
	if chunk := s.size/steps + 1; s.size > 0 && int64(len(p)) > chunk {
		p = p[:chunk]
	}
	n, err := s.r.Read(p)
	pause := s.left
	if s.size > 0 {
		pause = time.Duration(float64(s.left) * min(1, float64(n)/float64(s.size)))
		s.left -= pause
		s.size -= int64(n)
	} else {
		s.left = 0
	}
	if serr := sleep(s.ctx, pause); serr != nil {
		return n, serr
	}
	return n, err
}
