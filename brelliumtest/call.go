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

// The sizes from which on the edge in front of the API refuses a request.
// Only the first is documented.
const (
	maxQuery  = 2048
	maxPath   = 8 << 10
	maxHeader = 16 << 10
	maxBody   = 10 << 20
)

// maxRecorded is how much of an uploaded file is kept in its Request.
const maxRecorded = 1 << 20

// call is one request on its way through the emulator.
type call struct {
	method, host, path, query string
	header                    http.Header
	contentLength             int64 // -1: unknown
	chunked                   bool
	secure                    bool
	inProcess                 bool

	storage bool
	op      *operation // nil: none
	allow   string
	id      string

	fault  *queuedFault // nil: none
	rec    Request      // what is recorded
	record *Request     // its place in the records; nil: not recorded

	body   []byte // an API request's, or the head of an uploaded file
	keep   int    // how much of an uploaded file
	size   int64
	sha256 string
	now    time.Time
}

// errDropped ends an exchange whose connection the fault drops.
var errDropped = errors.New("brelliumtest: connection dropped")

// open routes a request and takes the fault that happens to it.
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
	e.mu.Unlock()
}

// conn returns what the fault does to the connection.
func (c *call) conn() connFault {
	if c.fault == nil {
		return connWhole
	}
	return c.fault.conn
}

// readBody reads the request's body: whole for an API request, as a stream
// that is summed for an upload. An API body that is too large is read no
// further than it takes to know.
func (c *call) readBody(ctx context.Context, r io.Reader) error {
	if r == nil {
		return nil
	}
	var pace time.Duration
	size := c.contentLength
	if c.fault != nil && c.fault.reading > 0 {
		r = &slowReader{ctx: ctx, r: r, left: c.fault.reading, size: size}
		pace = c.fault.reading
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
	if pace == 0 && size > 0 && size <= maxBody {
		c.body = make([]byte, size)
		n, err := io.ReadFull(r, c.body)
		c.body, c.size = c.body[:n], int64(n)
		return err
	}
	body, err := io.ReadAll(io.LimitReader(r, maxBody+1))
	c.body, c.size = body, int64(len(body))
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

// exchange lets a request whose body was read arrive, does its work, and
// returns the answer once it is time to send it.
func (e *Emulator) exchange(ctx context.Context, c *call) (answer, error) {
	var half time.Duration
	if e.latency != nil {
		e.mu.Lock()
		half = e.latency(e.delays) / 2
		e.mu.Unlock()
		if err := sleep(ctx, half); err != nil {
			return answer{}, err
		}
	}
	e.arrive(c)
	if f := c.fault; f != nil {
		if err := sleep(ctx, f.before); err != nil {
			return answer{}, err
		}
		if f.conn == connDropBefore {
			return answer{}, errDropped
		}
	}
	a := e.process(c)
	if err := sleep(ctx, half); err != nil {
		return answer{}, err
	}
	if f := c.fault; f != nil {
		if err := sleep(ctx, f.after); err != nil {
			return answer{}, err
		}
		switch f.conn {
		case connDropAfter:
			return answer{}, errDropped
		case connStallHeaders:
			if err := stall(ctx, f.stall); err != nil {
				return answer{}, err
			}
		}
	}
	return a, nil
}

// process does what the API does with a request, and records the answer.
func (e *Emulator) process(c *call) answer {
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
	a := e.decide(c)
	a.storage = c.storage
	if !a.bare {
		a.requestID = e.newID()
	}
	if c.fault != nil && c.fault.noLimit {
		a.limit = limitState{}
	}
	if a.failure != nil {
		if a.storage {
			a.contentType, a.body = "application/xml", a.failure.xml(a.requestID)
		} else {
			a.contentType, a.body = jsonType, a.failure.envelope(a.requestID)
		}
	}
	c.rec.Status, c.rec.RequestID = a.status, a.requestID
	e.answers[operationStatus{c.rec.Operation, a.status}]++
	if c.record != nil {
		*c.record = c.rec
	}
	return a
}

// decide finds the answer to a request: at the edge, or behind it.
func (e *Emulator) decide(c *call) answer {
	if s := c.scripted(); s != nil && s.bare && !c.fault.work {
		return c.script(answer{})
	}
	if status := c.refusedAtEdge(); status != 0 {
		return bare(status)
	}
	switch {
	case c.storage:
		return c.script(e.store(c))
	case c.op == &tokenCreate:
		// No token and none of the organization's budget is needed to mint.
		return e.mint(c)
	case c.op == nil && c.allow != "" && strings.HasSuffix(c.path, "/oauth/token"):
		return c.script(e.operate(c))
	}
	return e.serveAPI(c)
}

// refusedAtEdge returns the status with which the edge refuses a request, or 0.
func (c *call) refusedAtEdge() int {
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

// serveAPI checks the access token, takes a token from the bucket, and runs
// the operation.
func (e *Emulator) serveAPI(c *call) answer {
	if !e.authorized(c) {
		c.postpone(e)
		return fail(http.StatusUnauthorized, "UNAUTHORIZED", "The access token is missing, unknown, revoked or expired")
	}
	var a answer
	switch s := c.scripted(); {
	case s != nil && s.status == http.StatusUnauthorized:
		return c.script(answer{})
	case s != nil && s.status == http.StatusTooManyRequests:
		return c.scriptRefusal(&e.bucket, 1)
	}
	if !e.bucket.take(c.now) {
		c.postpone(e)
		return refuse(&e.bucket)
	}
	c.rec.Spent = true
	if s := c.scripted(); s != nil && !c.fault.work {
		a = c.script(answer{})
	} else {
		a = c.script(e.operate(c))
	}
	if !a.bare {
		a.limit = limitState{true, int(e.bucket.capacity), e.bucket.remaining(), 0}
	}
	return a
}

// operate runs the operation, if the request is one.
func (e *Emulator) operate(c *call) answer {
	if c.size > 0 && !isJSON(c.header.Get("Content-Type")) {
		return fail(http.StatusBadRequest, "INVALID_CONTENT_TYPE", "Content-Type must be application/json")
	}
	if c.op == nil {
		if c.allow != "" {
			a := fail(http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED", "The method is not allowed here")
			a.allow = c.allow
			return a
		}
		return notFound("Endpoint")
	}
	c.rec.Worked = true
	return c.op.work(e, c)
}

// scripted returns the answer that the fault gives, or nil.
func (c *call) scripted() *scripted {
	if c.fault == nil {
		return nil
	}
	return c.fault.answer
}

// script returns the scripted answer where there is one, and else the given.
func (c *call) script(a answer) answer {
	s := c.scripted()
	if s == nil {
		return a
	}
	a = answer{status: s.status, contentType: s.contentType, body: s.body, bare: s.bare}
	if s.code != "" {
		message := s.message
		if message == "" {
			message = "A scripted failure"
		}
		a.failure = &failure{errorType(s.status), s.code, message}
	}
	return a
}

// scriptRefusal returns a scripted 429: a bucket that is empty for as long as
// the script's Retry-After says.
func (c *call) scriptRefusal(b *bucket, seconds int) answer {
	for _, h := range c.fault.headers {
		if n, err := strconv.Atoi(h.value); err == nil && n > 0 && h.key == "Retry-After" {
			seconds = n
		}
	}
	a := c.script(answer{})
	a.retryAfter = seconds
	a.limit = limitState{true, int(b.capacity), 0, seconds}
	return a
}

// postpone returns a scripted answer to the script, since the API refused the
// request by itself.
func (c *call) postpone(e *Emulator) {
	if c.scripted() != nil {
		e.putBack(c.fault)
		c.fault = nil
	}
}

// refuse is the 429 of a bucket.
func refuse(b *bucket) answer {
	a := fail(http.StatusTooManyRequests, "RATE_LIMITED", "Too many requests")
	a.retryAfter = b.reset()
	a.limit = limitState{true, int(b.capacity), b.remaining(), b.reset()}
	return a
}

// isJSON reports whether a Content-Type is application/json, in whatever case
// and with whatever parameters.
func isJSON(contentType string) bool {
	if contentType == jsonType {
		return true
	}
	mediaType, _, err := mime.ParseMediaType(contentType)
	return err == nil && mediaType == jsonType
}

// sleep waits for d. It returns early, with the context's error, when the
// context ends.
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

// stall waits for d, or until the context ends where d is 0.
func stall(ctx context.Context, d time.Duration) error {
	if d > 0 {
		return sleep(ctx, d)
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// slowReader spreads the reading of a body over a time.
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
