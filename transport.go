package brellium

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brellium/brellium-go/internal/wait"
)

const (
	maxBody      = 64 << 20 // of a 2xx
	maxErrorBody = 64 << 10 // of any other answer
)

var errTooLarge = errors.New("the answer is larger than 64 MiB")

// sharedTransport is the pooled transport of every client without
// WithHTTPClient, so that clients may come and go without losing connections.
var sharedTransport = sync.OnceValue(newTransport)

func newTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dialer.DialContext,
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: 10 * time.Second,
		ForceAttemptHTTP2:   true,
		MaxIdleConns:        512,
		MaxIdleConnsPerHost: 256,
		// Far more than the rate limit can use; without a bound, a crowd of
		// calls makes connections that nobody needs a moment later.
		MaxConnsPerHost:        72,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: 256 << 10,
		// A connection that is dead but not closed is found by a ping.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 10 * time.Second},
	}
}

// outcome is what one attempt came to.
type outcome struct {
	status      int
	header      http.Header
	body        []byte
	err         error // why there is no usable answer
	admission   error // why the attempt was not even begun
	callerEnded error // the error of the caller's context, where it ended the attempt
	requestID   string
	rate        RateLimit
	retryAfter  time.Duration
	retryAt     time.Time // of a block
	token       *Token

	traced        bool // the transport reports what it does
	written       bool // bytes of the request may have gone out
	timedOut      bool // by the attempt's own clock
	replayStopped bool // net/http wanted to send the request again on its own

	verdict Verdict
	reason  string
}

// maySent reports whether the request may have reached the server.
func (o *outcome) maySent() bool {
	if o.status != 0 {
		return true
	}
	if o.admission != nil || errors.Is(o.err, ErrNotSendable) {
		return false
	}
	if o.traced {
		return o.written
	}
	return o.err == nil || !provesNotSent(o.err)
}

// payload is a request's body, opened anew for each attempt.
type payload struct {
	// open's error ends the call, since a repeat would not help: errDone says
	// that nothing is left to send, and a bodyError what is wrong.
	open        func() (io.ReadCloser, error)
	size        int64
	contentType []string
	// position is how much of the body that was opened last has been read. An
	// idle timeout needs it.
	position func() int64
}

// bodyError says that a request's body cannot be read as it was announced.
type bodyError struct {
	reason string // a fixed text
	err    error
}

func (e *bodyError) Error() string        { return e.reason }
func (e *bodyError) Unwrap() error        { return e.err }
func (e *bodyError) Is(target error) bool { return target == ErrNotSendable }

var (
	errDone = errors.New("nothing is left to send")
	errIdle = errors.New("nothing moved within the idle timeout")
)

var jsonContentType = []string{"application/json"}

func jsonPayload(body []byte) payload {
	return payload{
		open:        func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil },
		size:        int64(len(body)),
		contentType: jsonContentType,
	}
}

// attempts is the round tripper below the retries. Each round trip is one
// attempt of the call in the request's context: it waits for its turn, carries
// a fresh token, has a clock of its own, and reads the whole answer. What came
// of it stays with the call; the response that goes up only says that the
// attempt is over, so that nothing above follows a redirect, wraps an error in
// a URL, or reads a body. It has no CloseIdleConnections, since the pool below
// is shared.
type attempts struct{}

func (attempts) RoundTrip(r *http.Request) (*http.Response, error) {
	c := r.Context().Value(callKey{}).(*call)
	c.attempt()
	c.over.StatusCode, c.over.Body, c.over.Request = http.StatusOK, http.NoBody, r
	return &c.over, nil
}

// attempt makes one attempt and leaves what it came to in c.got. Where it is
// not even begun, the last answer stays there.
func (c *call) attempt() {
	c.afterRefusal = c.got.status == http.StatusTooManyRequests
	o := &c.got
	var queuedAt time.Time
	if c.watched() {
		queuedAt = time.Now()
	}
	var adm admission
	if o.admission = c.admit(&adm); o.admission == nil {
		c.send(o, &adm, queuedAt)
		return
	}
	o.verdict, o.reason = VerdictGivenUp, "not begun"
	if _, ok := o.admission.(*BlockedError); ok {
		o.verdict, o.reason = VerdictBlocked, "stopped by a block"
	}
}

// admission is what an attempt holds while it is under way.
type admission struct {
	token   *Token
	permit  Permit
	pass    blockPass
	entered bool // pass is to be settled
	slot    bool // a place of WithMaxConcurrency is held
}

// admit waits until an attempt may be sent. The waits run on the caller's
// context and, once the first attempt has been sent, within the total time.
func (c *call) admit(adm *admission) error {
	var ctx context.Context = c
	if c.attempts > 0 && c.timing.totalTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(c, c.started.Add(c.timing.totalTimeout))
		defer cancel()
	}
	for {
		if admitted, err := c.admitOnce(ctx, adm); err != nil {
			return c.admissionError(ctx, err)
		} else if admitted {
			return nil
		}
	}
}

// admitOnce reports false where a block began or ended while the attempt
// waited, which then starts over under its rules.
func (c *call) admitOnce(ctx context.Context, adm *admission) (admitted bool, err error) {
	*adm = admission{}
	defer func() { // also when a limiter panics
		if !admitted {
			c.release(adm, LimiterAnswer{Spent: SpentNo}, blockSilent)
		}
	}()
	if err = callerEnded(ctx); err != nil {
		return false, err
	}
	if c.guard != nil {
		if adm.pass, err = c.guard.enter(ctx, c.op.name, c.auth); err != nil {
			return false, err
		}
		adm.entered = true
	}
	if c.auth { // before queueing, so that a mint holds no place in the queue
		if _, err = c.client.tokens.get(ctx); err != nil {
			return false, err
		}
	}
	if c.slots != nil {
		select {
		case c.slots <- struct{}{}:
			adm.slot = true
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	if c.limiter != nil {
		if adm.permit, err = c.limiter.Acquire(ctx); err != nil {
			return false, c.limiterError(ctx, err)
		}
	}
	if c.auth { // and again, since it may have expired in the queue
		if adm.token, err = c.client.tokens.get(ctx); err != nil {
			return false, err
		}
	}
	return c.guard == nil || c.guard.current(adm.pass), nil
}

// limiterError makes the error of a limiter, which may be the caller's own,
// one that the call can tell from a token's.
func (c *call) limiterError(ctx context.Context, err error) error {
	if _, ok := err.(*InterruptedError); ok {
		return err
	}
	if _, ok := ctx.Deadline(); ok && errors.Is(err, context.DeadlineExceeded) {
		return &InterruptedError{Err: context.DeadlineExceeded}
	}
	return &ConnectionError{Operation: c.op.name, Reason: "the rate limiter failed", Err: hide(err)}
}

// release gives back what adm holds, with what the attempt said.
func (c *call) release(adm *admission, answer LimiterAnswer, news blockNews) {
	if adm.permit != nil {
		adm.permit.Done(answer)
	}
	if adm.slot {
		<-c.slots
	}
	if adm.entered {
		var changed bool
		if c.got.retryAt, changed = c.guard.settle(adm.pass, news); changed {
			c.tellBlock(news, c.got.retryAt)
		}
	}
	*adm = admission{}
}

// admissionError turns the error of a wait on ctx into the call's.
func (c *call) admissionError(ctx context.Context, err error) error {
	if ended := callerEnded(c.Context); ended != nil {
		return c.interrupted(ended)
	}
	if e, ok := err.(*InterruptedError); ok { // the limiter's: the deadline is too near
		if c.attempts == 0 {
			e := *e
			e.Operation = c.op.name
			return &e
		}
		limit, _ := ctx.Deadline()
		if own, ok := c.Deadline(); ok && !limit.Before(own) {
			return c.exhausted(ExhaustedDeadline)
		}
		return c.exhausted(ExhaustedTotalTime)
	}
	if c.attempts > 0 && callerEnded(ctx) != nil {
		return c.exhausted(ExhaustedTotalTime)
	}
	return withOutcome(err, c.mayHaveRun)
}

// send sends one attempt that has been admitted and reads its whole answer.
func (c *call) send(o *outcome, adm *admission, queuedAt time.Time) {
	sentAt := time.Now()
	if c.attempts == 0 {
		c.started = sentAt
	} else {
		*o = outcome{}
	}
	c.attempts++
	o.token = adm.token
	news := blockSilent
	var told context.Context = c
	defer func() { // also when a transport panics, so that nothing stays held
		var took time.Duration
		if c.watched() {
			took = time.Since(sentAt)
		}
		c.release(adm, o.limiterAnswer(), news)
		if c.watched() {
			c.record(told, sentAt.Sub(queuedAt), took)
		}
	}()

	told, extra := c.tellAttemptStart()
	ctx, cancel := c.attemptContext(told, sentAt)
	defer cancel()
	t := newSendTrace(cancel)
	req, err := c.newRequest(httptrace.WithClientTrace(ctx, &t.ClientTrace), adm.token, extra)
	if err != nil {
		o.err, o.traced = err, true // the body could not be opened: never sent
	} else {
		if c.timing.idleTimeout > 0 {
			go c.watchIdle(ctx, t)
		}
		c.exchange(o, req)
	}
	if o.err != nil {
		o.timedOut = ctx.Err() == context.DeadlineExceeded
		if t.idle.Load() {
			o.err, o.timedOut = errIdle, true
		}
		t.tell(o, ctx.Err() != nil)
		if _, ok := c.client.base.(*http.Transport); ok {
			o.traced = true // it always tells, so that its silence tells too
		}
		if o.status < 300 { // else the answer is known all the same
			o.callerEnded = callerEnded(c.Context)
		}
	}
	o.verdict, o.reason = judge(o)
	switch {
	case o.verdict == VerdictBlocked && c.guard != nil:
		news = blockRefused
	case o.verdict == VerdictBlocked: // a storage host refuses in its own way
		o.verdict, o.reason = VerdictRejected, "status 403"
	case o.status != 0:
		news = blockLifted
	}
	if c.auth && o.status != http.StatusUnauthorized && (o.verdict == VerdictDone || o.rate.Known()) {
		c.client.tokens.accepted(adm.token) // the API said so, not a gateway in its place
	}
}

// exchange does the round trip and reads the answer into o.
func (c *call) exchange(o *outcome, req *http.Request) {
	resp, err := c.client.base.RoundTrip(req)
	if err != nil {
		o.err = err
		return
	}
	if resp == nil {
		o.err = errors.New("the transport returned neither an answer nor an error")
		return
	}
	if resp.StatusCode < 100 || resp.StatusCode > 999 { // net/http lets 000 to 099 pass
		o.err = errors.New("the answer has no status")
		if resp.Body != nil {
			_ = resp.Body.Close()
		}
		return
	}
	now := time.Now()
	o.status, o.header = resp.StatusCode, resp.Header
	o.requestID = printable(headerValue(resp.Header, "X-Request-Id"))
	o.rate = readRateLimit(resp.Header, now)
	if o.status >= 300 {
		o.retryAfter = wait.RetryAfter(headerValues(resp.Header, "Retry-After"), headerValue(resp.Header, "Date"), now)
	}
	if o.status == http.StatusTooManyRequests && o.retryAfter == 0 && o.rate.Reset < 24*time.Hour {
		o.retryAfter = o.rate.Reset
	}
	if c.auth && o.rate.Known() {
		c.client.setRateLimit(o.rate)
	}
	switch {
	case resp.Body == nil:
	case o.status < 200: // a connection that has changed hands has no end to read to
		_ = resp.Body.Close()
	default:
		o.body, o.err = readBody(resp)
	}
}

// readBody reads an answer to its end, so that the connection can be used
// again, but no further than its bound.
func readBody(resp *http.Response) ([]byte, error) {
	defer func() { _ = resp.Body.Close() }()
	limit := maxBody
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		limit = maxErrorBody
	}
	var r io.Reader = resp.Body
	size := resp.ContentLength
	if strings.EqualFold(headerValue(resp.Header, "Content-Encoding"), "gzip") && !resp.Uncompressed {
		zr, err := gzip.NewReader(resp.Body)
		if err == io.EOF {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		r, size = zr, -1
	}
	// One byte more than announced, so that the read that meets the end needs
	// no more room; a huge announcement is not believed.
	if size < 0 {
		size = 511
	}
	buf := make([]byte, 0, min(size, int64(limit), 1<<20)+1)
	for {
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case len(buf) > limit && limit == maxErrorBody:
			return buf[:limit], nil
		case len(buf) > limit:
			return nil, errTooLarge
		case err == io.EOF:
			return buf, nil
		case err != nil:
			return buf, err
		case len(buf) == cap(buf):
			buf = slices.Grow(buf, min(len(buf), limit+1-len(buf)))
		}
	}
}

// attemptContext is the context of one attempt: the call's, cut at the
// attempt's own time and at what is left of the total.
func (c *call) attemptContext(parent context.Context, now time.Time) (context.Context, context.CancelFunc) {
	var end time.Time
	if limit := c.timing.attemptTimeout; limit > 0 {
		end = now.Add(limit)
	}
	if total := c.timing.totalTimeout; total > 0 {
		if over := c.started.Add(total); end.IsZero() || over.Before(end) {
			end = over
		}
	}
	if end.IsZero() {
		return context.WithCancel(parent)
	}
	return context.WithDeadline(parent, end)
}

// watchIdle ends an attempt whose body has stood still for the idle timeout, be
// it that the server takes no more of it or that it does not answer. It looks
// four times within one, and returns when the attempt has ended.
func (c *call) watchIdle(ctx context.Context, t *sendTrace) {
	const looks = 4
	ticker := time.NewTicker(max(c.timing.idleTimeout/looks, 1))
	defer ticker.Stop()
	for at, still := c.payload.position(), 0; still < looks; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if now := c.payload.position(); now != at {
			at, still = now, 0
		} else {
			still++
		}
	}
	t.idle.Store(true)
	t.cancel()
}

// newRequest builds the request of one attempt, with a header and a body of
// its own: an earlier attempt's may still be in the transport's hands.
func (c *call) newRequest(ctx context.Context, token *Token, extra http.Header) (*http.Request, error) {
	req := c.client.blank.WithContext(ctx)
	req.Method, req.URL, req.Host = c.op.method, &c.url, c.url.Host
	req.Header = maps.Clone(c.header)
	for k, v := range extra {
		if c.guard != nil && req.Header[k] == nil { // nothing for a storage host
			req.Header[k] = v
		}
	}
	if token != nil {
		req.Header["Authorization"] = token.authorization()
	}
	if c.payload.open == nil {
		return req, nil
	}
	req.Header["Content-Type"] = c.payload.contentType
	body, err := c.payload.open()
	if err != nil {
		return nil, err
	}
	req.Body, req.GetBody, req.ContentLength = body, c.payload.open, c.payload.size
	return req, nil
}

// sendTrace notes what the transport does with one attempt. Its hooks run in
// the transport's goroutines.
type sendTrace struct {
	httptrace.ClientTrace
	cancel context.CancelFunc
	idle   atomic.Bool // the attempt was ended by watchIdle

	mu            sync.Mutex
	addr          string // where it connected last
	traced        bool
	connected     bool
	written       bool
	answered      bool
	replayStopped bool
}

func newSendTrace(cancel context.CancelFunc) *sendTrace {
	t := &sendTrace{cancel: cancel}
	t.GetConn, t.GotConn, t.WroteHeaders, t.GotFirstResponseByte = t.getConn, t.gotConn, t.wroteHeaders, t.gotFirstByte
	return t
}

// getConn comes again when a transport sends a request once more on its own,
// as net/http does after some failures, over HTTP/2 even with a write that may
// have run. Once the headers are out that is stopped: it would be an attempt
// that nobody counts, paces or decides on. Only a transport that first asks
// another host something, and is answered, may go on.
func (t *sendTrace) getConn(addr string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.written && (!t.answered || t.addr == addr) {
		t.stopReplay()
	}
	t.traced, t.connected, t.answered, t.addr = true, false, false, addr
}

// gotConn also comes without a getConn, for some connections over HTTP/2 that
// another request has opened.
func (t *sendTrace) gotConn(httptrace.GotConnInfo) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.written && t.connected {
		t.stopReplay()
	}
	t.traced, t.connected = true, true
}

func (t *sendTrace) wroteHeaders() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.written = true
}

func (t *sendTrace) gotFirstByte() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.answered = true
}

func (t *sendTrace) stopReplay() {
	t.replayStopped = true
	t.cancel()
}

// tell says in o what was noted. Where the attempt's context has ended, a
// connection may be writing still.
func (t *sendTrace) tell(o *outcome, ended bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o.traced = o.traced || t.traced
	o.written = t.written || (t.connected && ended)
	o.replayStopped = t.replayStopped
}

// limiterAnswer is what the attempt tells the limiter.
func (o *outcome) limiterAnswer() LimiterAnswer {
	a := LimiterAnswer{RateLimit: o.rate}
	switch {
	case o.status == http.StatusTooManyRequests:
		a.Spent, a.Refused, a.RetryAfter = SpentNo, true, o.retryAfter
	case o.status == http.StatusUnauthorized, !o.maySent():
		a.Spent = SpentNo
	case o.verdict == VerdictBlocked:
		a.Blocked = true
	case o.rate.Known(), o.verdict == VerdictDone, o.verdict == VerdictRejected:
		a.Spent = SpentYes
	}
	return a
}

// readRateLimit reads the three headers. Absent or unreadable ones leave it
// unknown.
func readRateLimit(h http.Header, now time.Time) RateLimit {
	remaining, err := strconv.Atoi(headerValue(h, "Ratelimit-Remaining"))
	if err != nil || remaining < 0 {
		return RateLimit{}
	}
	r := RateLimit{Remaining: remaining, ObservedAt: now}
	if limit, err := strconv.Atoi(headerValue(h, "Ratelimit-Limit")); err == nil && limit > 0 {
		r.Limit = limit
	}
	r.Reset, _ = wait.Seconds(headerValue(h, "Ratelimit-Reset"))
	return r
}

// headerValue is Header.Get, and headerValues Header.Values, for a canonical
// key, that also find one which a transport of the caller's left in another
// case.
func headerValue(h http.Header, key string) string {
	if v := headerValues(h, key); len(v) > 0 {
		return strings.TrimSpace(v[0])
	}
	return ""
}

func headerValues(h http.Header, key string) []string {
	if v := h[key]; len(v) > 0 {
		return v
	}
	for k, v := range h {
		if len(k) == len(key) && strings.EqualFold(k, key) {
			return v
		}
	}
	return nil
}
