package brellium

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/brellium/brellium-go/internal/wait"
	"github.com/brellium/brellium-go/internal/wire"
)

// This file is one call's way, top to bottom:
//
//	do          check everything that can be checked, then run
//	run         go-retryablehttp repeats RoundTrip as long as checkRetry says so
//	RoundTrip   one attempt: admit, send, read the whole answer, judge it
//	checkRetry  repeat, or end the call with an error (retry.go)
//	decode      the answer as the caller's type (decode.go)

// request is what a resource method hands over: an operation and its values.
type request struct {
	op *operation
	// id fills the path's placeholder, and idField names it in errors.
	id, idField string
	query       string
	body        any
	// repeatable overrides the operation's rule where it depends on the body.
	repeatable bool
	// path replaces the operation's template (Client.Do).
	path string
}

// call is one call on its way: an API call, a token request, or a PUT of a
// file to storage.
type call struct {
	client     *Client
	op         *operation
	url        url.URL
	header     http.Header // of each attempt, but for the token and the content type; read-only
	payload    payload
	policy     retryPolicy
	repeatable bool
	response   *Response // nil unless the caller wants it
	// beforeRetry runs after the wait before each retry; its error ends the
	// call, and errAlreadyDone as a success. nil for nothing.
	beforeRetry func(*http.Request) error

	// What the call passes through: API calls all of it, a token request all
	// but the token, a PUT nothing.
	auth    bool
	guard   *blockGuard
	limiter Limiter
	sem     chan struct{}

	attempts   int       // sent so far
	repeats    int       // sent again, but for refusals
	refusals   int       // sent again after a refusal
	replayed   bool      // sent again with a new token
	mayHaveRun bool      // a write that may have taken effect
	sawUnknown bool      // a write whose outcome was unknown, or is settled by its code
	started    time.Time // when the first attempt was sent
	last       outcome   // of the last attempt that was sent
	failure    error     // of the last attempt; nil for success

	retry retryablehttp.Client
	http  http.Client
}

// do makes one API call and hands its answer to decode, without whose consent
// it has not succeeded. It returns how many requests were sent.
func (c *Client) do(ctx context.Context, r request, cfg callConfig, decode func(answer) error) (attempts int, err error) {
	call, err := c.newCall(ctx, r, cfg)
	if err != nil {
		return 0, err
	}
	err = call.run(ctx, decode)
	return call.attempts, err
}

// newCall checks everything that can be checked before sending.
func (c *Client) newCall(ctx context.Context, r request, cfg callConfig) (*call, error) {
	if ctx == nil {
		return nil, &ValidationError{Field: "ctx", Reason: "must not be nil"}
	}
	if len(r.query) > maxQuery {
		return nil, &ValidationError{Field: "query", Reason: "is longer than 2,048 bytes, which the API refuses; use fewer or shorter filters"}
	}
	u, err := c.url(r)
	if err != nil {
		return nil, err
	}
	call := &call{
		client: c, op: r.op, url: u, header: c.header, policy: cfg.policy, response: cfg.response,
		repeatable: r.repeatable || r.op.repeat == repeatAlways,
		auth:       true, guard: c.guard, limiter: c.limiter, sem: c.sem,
	}
	if cfg.header != nil {
		call.header = maps.Clone(c.header)
		maps.Copy(call.header, cfg.header)
	}
	if r.body != nil {
		body, err := encode(r.body)
		if err != nil {
			return nil, err
		}
		call.payload = jsonPayload(body)
	}
	return call, nil
}

// url is the one place where a path is made: base path, template, and the id
// escaped once.
func (c *Client) url(r request) (url.URL, error) {
	prefix, last, escaped := r.op.path, "", ""
	if r.path != "" {
		last, _ = url.PathUnescape(r.path)
		escaped = r.path
	} else if open := strings.IndexByte(r.op.path, '{'); open >= 0 {
		if err := validateID(r.idField, r.id); err != nil {
			return url.URL{}, err
		}
		prefix, last, escaped = r.op.path[:open], r.id, url.PathEscape(r.id)
	}
	base := &c.baseURL
	u := url.URL{Scheme: base.Scheme, Host: base.Host, Path: base.Path + prefix + last, RawQuery: r.query}
	if escaped != last || base.RawPath != "" {
		u.RawPath = base.EscapedPath() + prefix + escaped
	}
	return u, nil
}

func validateID(field, id string) error {
	switch {
	case strings.TrimSpace(id) == "":
		return &ValidationError{Field: field, Reason: "must not be blank"}
	case id == "." || id == "..":
		return &ValidationError{Field: field, Reason: "must not be . or .."}
	}
	return nil
}

// encode encodes a request body. Its error quotes nothing of it.
func encode(body any) ([]byte, error) {
	data, err := json.Marshal(body)
	if err != nil {
		reason := fmt.Sprintf("a value of type %T cannot be encoded as JSON", body)
		var unsupported *json.UnsupportedTypeError
		if errors.As(err, &unsupported) {
			reason += ": it holds a " + unsupported.Type.String()
		}
		return nil, &ValidationError{Field: "body", Reason: reason}
	}
	return data, nil
}

// run sends the call until an attempt ends it, and decodes its answer.
func (c *call) run(ctx context.Context, decode func(answer) error) error {
	var begun time.Time
	if c.client.observers.on() {
		begun = time.Now()
	}
	if c.response != nil {
		*c.response = Response{} // it may have served another call
	}
	ctx = c.reportStart(ctx)
	c.http.Transport = c // each RoundTrip is one attempt
	c.retry.HTTPClient = &c.http
	c.retry.RetryMax = math.MaxInt // checkRetry counts
	c.retry.CheckRetry = c.checkRetry
	c.retry.Backoff = minWait
	c.retry.PrepareRetry = c.beforeRetry
	c.retry.ErrorHandler = returnError
	_, err := c.retry.Do(&retryablehttp.Request{Request: c.client.requestTemplate.WithContext(ctx)})
	switch {
	case err == errAlreadyDone:
		c.last.verdict, c.last.reason, err = VerdictDone, errAlreadyDone.Error(), nil
	case err != nil && err == ctx.Err(): // it ended in a wait
		err = c.interrupted(ctx, err)
	}
	if r := c.response; r != nil {
		r.StatusCode, r.Header, r.RequestID, r.RateLimit = c.last.Status, c.last.Header, c.last.requestID, c.last.rate
	}
	if err == nil {
		err = decode(answer{c.op, c.last.Status, c.last.requestID, c.last.Body})
	}
	c.reportEnd(ctx, begun, err)
	return err
}

// minWait is the wait that checkRetry has set.
func minWait(wait, _ time.Duration, _ int, _ *http.Response) time.Duration { return wait }

func returnError(_ *http.Response, err error, _ int) (*http.Response, error) { return nil, err }

// attemptOver is all that go-retryablehttp learns of an attempt, so that
// nothing above follows a redirect, wraps an error in a URL, or reads a body.
var attemptOver = &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}

// RoundTrip makes one attempt and leaves what it came to in c.last and
// c.failure. Where the attempt is not even begun, the last answer stays.
func (c *call) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx := r.Context()
	var queuedAt time.Time
	if c.watched() {
		queuedAt = time.Now()
	}
	adm, err := c.admit(ctx)
	if err != nil {
		c.failure = err
		c.last.verdict, c.last.reason = VerdictCanceled, "not begun"
		if _, ok := err.(*BlockedError); ok {
			c.last.verdict, c.last.reason = VerdictBlocked, "stopped by a block"
		}
		return attemptOver, nil
	}
	c.send(ctx, &adm, queuedAt)
	c.failure = c.failureOf(ctx)
	return attemptOver, nil
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
func (c *call) admit(caller context.Context) (adm admission, err error) {
	ctx := caller
	if c.attempts > 0 && c.policy.totalTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, c.started.Add(c.policy.totalTimeout))
		defer cancel()
	}
	if c.last.Status == http.StatusTooManyRequests {
		ctx = context.WithValue(ctx, rateLimitRetryKey{}, true)
	}
	for {
		if admitted, err := c.admitOnce(ctx, &adm); err != nil {
			return adm, c.admissionError(caller, ctx, err)
		} else if admitted {
			return adm, nil
		}
	}
}

// admitOnce reports false where a block began or ended while the attempt
// waited, which then starts over under its rules.
func (c *call) admitOnce(ctx context.Context, adm *admission) (admitted bool, err error) {
	defer func() { // also when a limiter panics
		if !admitted {
			c.release(ctx, adm, LimiterResult{Spent: SpentNo}, blockSilent)
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
	if c.sem != nil {
		select {
		case c.sem <- struct{}{}:
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

// release gives back what adm holds, with what the attempt said.
func (c *call) release(ctx context.Context, adm *admission, answer LimiterResult, news blockNews) {
	if adm.permit != nil {
		adm.permit.Done(answer)
	}
	if adm.slot {
		<-c.sem
	}
	if adm.entered {
		var changed bool
		if c.last.retryAt, changed = c.guard.settle(adm.pass, news); changed {
			c.reportBlock(ctx, news, c.last.retryAt)
		}
	}
	*adm = admission{}
}

// send sends one attempt that has been admitted and reads its whole answer.
func (c *call) send(caller context.Context, adm *admission, queuedAt time.Time) {
	sentAt := time.Now()
	if c.attempts == 0 {
		c.started = sentAt
	}
	c.attempts++
	c.last = outcome{token: adm.token}
	o := &c.last
	news, told := blockSilent, caller
	defer func() { // also when a transport panics, so that nothing stays held
		var took time.Duration
		if c.watched() {
			took = time.Since(sentAt)
		}
		c.release(caller, adm, o.limiterAnswer(), news)
		if c.watched() {
			c.record(caller, told, sentAt.Sub(queuedAt), took)
		}
	}()

	told, extra := c.reportAttemptStart(caller)
	ctx, cancel := c.attemptContext(told, sentAt)
	defer cancel()
	x := wire.New(ctx, cancel)
	if req, err := c.newRequest(x.Context(), adm.token, extra); err != nil {
		o.Err = err // the body could not be opened: never sent
	} else {
		o.Result = x.RoundTrip(c.client.base, req, wire.Idle{Timeout: c.policy.idleTimeout, Position: c.payload.position})
		o.readHeader()
	}
	if o.Err != nil && o.Status < 300 { // else the answer is known all the same
		o.callerEnded = callerEnded(caller)
	}
	o.verdict, o.reason = judge(o)
	switch {
	case o.verdict == VerdictBlocked && c.guard != nil:
		news = blockRefused
	case o.verdict == VerdictBlocked: // a storage host refuses in its own way
		o.verdict, o.reason = VerdictRejected, "status 403"
	case o.Status != 0:
		news = blockLifted
	}
	if c.auth {
		if o.rate.Known() {
			c.client.setRateLimit(o.rate)
		}
		if o.Status != http.StatusUnauthorized && (o.verdict == VerdictDone || o.rate.Known()) {
			c.client.tokens.accepted(adm.token) // the API said so, not a gateway in its place
		}
	}
}

// attemptContext is the context of one attempt: the call's, cut at the
// attempt's own time and at what is left of the total.
func (c *call) attemptContext(parent context.Context, now time.Time) (context.Context, context.CancelFunc) {
	var end time.Time
	if limit := c.policy.attemptTimeout; limit > 0 {
		end = now.Add(limit)
	}
	if total := c.policy.totalTimeout; total > 0 {
		if over := c.started.Add(total); end.IsZero() || over.Before(end) {
			end = over
		}
	}
	if end.IsZero() {
		return context.WithCancel(parent)
	}
	return context.WithDeadline(parent, end)
}

// newRequest builds the request of one attempt, with a header and a body of
// its own: an earlier attempt's may still be in the transport's hands.
func (c *call) newRequest(ctx context.Context, token *Token, extra http.Header) (*http.Request, error) {
	req := c.client.requestTemplate.WithContext(ctx)
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

// payload is a request's body, opened anew for each attempt.
type payload struct {
	// open's error ends the call, since a retry would not help.
	open        func() (io.ReadCloser, error)
	size        int64
	contentType []string
	// position is how much of the body that was opened last has been read. An
	// idle timeout needs it.
	position func() int64
}

// errAlreadyDone is beforeRetry's word that the call has succeeded already.
var errAlreadyDone = errors.New("nothing is left to send")

var jsonContentType = []string{"application/json"}

func jsonPayload(body []byte) payload {
	return payload{
		open:        func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil },
		size:        int64(len(body)),
		contentType: jsonContentType,
	}
}

// outcome is what one attempt came to.
type outcome struct {
	wire.Result
	callerEnded error // the error of the caller's context, where it ended the attempt
	requestID   string
	rate        RateLimit
	retryAfter  time.Duration
	retryAt     time.Time // of a block
	token       *Token

	verdict Verdict
	reason  string
}

// readHeader reads what the API says in the answer's header.
func (o *outcome) readHeader() {
	now := o.At
	o.requestID = safeCode(wire.HeaderValue(o.Header, "X-Request-Id"))
	o.rate = readRateLimit(o.Header, now)
	if o.Status >= 300 {
		o.retryAfter = wait.RetryAfter(wire.HeaderValues(o.Header, "Retry-After"), wire.HeaderValue(o.Header, "Date"), now)
	}
	if o.Status == http.StatusTooManyRequests && o.retryAfter == 0 && o.rate.Reset < 24*time.Hour {
		o.retryAfter = o.rate.Reset
	}
}
