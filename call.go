package brellium

import (
	"context"
	"maps"
	"math"
	"net/http"
	"net/url"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/brellium/brellium-go/internal/block"
	"github.com/brellium/brellium-go/internal/wire"
)

// This file is one call from top to bottom:
//
//	do          checks the request, then runs it
//	run         go-retryablehttp makes attempts until checkRetry ends the call
//	attempt     waits for admission, sends, reads the whole response, judges it
//	checkRetry  decides: retry after a wait, or end the call with an error
//	decode      turns the response into the caller's type
//
// It uses operation.go for requests, retry.go to judge an attempt, decode.go for
// responses, observe.go to report, and internal/wire for one HTTP exchange.

// do makes one API call. The call succeeds only if decode does. do returns how
// many requests were sent, and one of:
//
//	nil                     a 2xx that decode accepted
//	*ValidationError        the input is unusable; nothing was sent
//	*APIError               an error response that is not retried
//	*BlockedError           a bare 403, or a stop that followed one
//	*ConnectionError        no usable response, and no retry: the failure would
//	                        recur, or the operation may have run and is not
//	                        safe to retry
//	*DecodeError            a 2xx that cannot be used
//	*RetriesExhaustedError  no attempt, or no time, was left for another retry;
//	                        it wraps the last *APIError or *ConnectionError
//	*InterruptedError       the caller's context ended, or its deadline is too
//	                        near for the wait that the rate limit requires
//
// An error of the token endpoint ends the call as it is, as an *APIError,
// *BlockedError, *ConnectionError, *DecodeError or *RetriesExhaustedError whose
// Operation is "oauth.token". OutcomeUnknown reports true for each of them where
// the call is a write that may have run.
func (c *Client) do(ctx context.Context, r request, cfg callConfig, decode func(okResponse) error) (attempts int, err error) {
	p := c.parts.Open()
	call, err := c.newCall(ctx, r, cfg, p, p.api)
	if err != nil {
		return 0, err
	}
	err = call.run(ctx, decode)
	return call.attempts, err
}

// route is what a kind of call passes through on its way. There are three: the
// API, the token endpoint, and storage.
type route struct {
	tokens      *tokenSource  // supplies the access token; nil: none is sent
	guard       *block.Guard  // stops while requests are blocked; nil: a 403 is no block
	limiter     Limiter       // paces attempts; nil: none
	sem         chan struct{} // bounds the attempts in flight; nil: no bound
	host        string        // reported in events; "" for storage, whose host is not reported
	signed      bool          // the URL's signature covers the headers: an observer adds none
	longestHold time.Duration // of a 429 that holds the limiter; 0: any
}

// call is one call in progress.
type call struct {
	client   *Client
	parts    *parts // of client
	request         // retryable also where the rule or the caller allows it
	route    *route
	url      url.URL
	header   http.Header // of each attempt, except the token and content type; read-only
	payload  payload
	policy   retryPolicy
	response *Response // nil unless the caller asked for it
	// beforeRetry runs after the wait before each retry. Its error ends the
	// call; errAlreadyDone ends it as a success. nil does nothing.
	beforeRetry func(*http.Request) error

	attempts   int           // sent so far
	retries    int           // sent again after a failure other than a 429
	throttled  int           // sent again after a 429
	replays    int           // sent again with a new token after a 401
	waiting    bool          // before a retry
	sawUnknown bool          // a write whose outcome was unknown at some attempt
	uncertain                // a write that may have taken effect
	waited     time.Duration // for tokens before the first attempt
	started    time.Time     // when the total time began
	last       outcome       // of the last attempt
	failure    error         // of the last attempt; nil for success
	lost       string        // what decoding left empty, for the report

	retry retryablehttp.Client
	http  http.Client
}

// newCall checks everything that can be checked before sending.
func (c *Client) newCall(ctx context.Context, r request, cfg callConfig, p *parts, via *route) (*call, error) {
	if ctx == nil {
		return nil, &ValidationError{Field: "ctx", Reason: "must not be nil"}
	}
	if err := r.apply(&cfg); err != nil {
		return nil, err
	}
	u, err := r.url(&c.baseURL)
	if err != nil {
		return nil, err
	}
	r.retryable = r.retryable || cfg.idempotent || r.op.retry == retryAlways
	call := &call{client: c, parts: p, request: r, route: via, url: u, header: p.header, policy: cfg.policy, response: cfg.response}
	if cfg.header != nil {
		call.header = maps.Clone(call.header)
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

// run makes attempts until one ends the call, and decodes its response.
func (c *call) run(ctx context.Context, decode func(okResponse) error) error {
	begun := time.Now()
	if c.response != nil {
		*c.response = Response{} // it may have served another call
	}
	ctx = c.reportStart(ctx)
	c.http.Transport = c
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
	case err != nil && c.waiting:
		err = c.interrupted(ctx, err)
	}
	if r := c.response; r != nil {
		r.StatusCode, r.Header, r.RequestID, r.RateLimit = c.last.Status, c.last.Header, c.last.requestID, c.last.rate
	}
	if err == nil {
		err = decode(okResponse{c.request, c.last.Status, c.last.requestID, c.last.Header, c.last.Body, c.client.strict, &c.lost})
	}
	c.reportEnd(ctx, begun, err)
	return err
}

// minWait is the wait that checkRetry has set.
func minWait(wait, _ time.Duration, _ int, _ *http.Response) time.Duration   { return wait }
func returnError(_ *http.Response, err error, _ int) (*http.Response, error) { return nil, err }

// attemptOver is all that go-retryablehttp learns of an attempt, so that
// nothing above follows a redirect, wraps an error in a URL, or reads a body.
var attemptOver = &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}

// RoundTrip makes one attempt: the call is the transport of its retry layer.
func (c *call) RoundTrip(r *http.Request) (*http.Response, error) {
	c.waiting = false
	c.attempt(r.Context())
	return attemptOver, nil
}

// attempt makes one attempt and leaves the result in c.last and c.failure.
func (c *call) attempt(ctx context.Context) {
	queuedAt := time.Now()
	adm, err := c.admit(ctx)
	if err != nil {
		c.failure = err
		c.last.verdict, c.last.reason = VerdictCanceled, "not begun"
		if _, ok := err.(*BlockedError); ok {
			c.last.verdict, c.last.reason = VerdictBlocked, "stopped by a block"
		}
		return
	}
	c.send(ctx, adm, queuedAt)
	c.failure = c.failureOf(ctx)
}

// admission is what an attempt holds while it is in flight.
type admission struct {
	token   *Token
	permit  Permit
	pass    block.Pass
	entered bool // pass must be settled
	slot    bool // holds a place in the semaphore
}

// admit waits until an attempt may be sent, on the caller's context and within
// the total time, which does not include the queue before the first attempt.
func (c *call) admit(caller context.Context) (admission, error) {
	ctx := caller
	if c.attempts > 0 && c.policy.totalTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, c.started.Add(c.policy.totalTimeout))
		defer cancel()
	}
	if c.last.verdict == VerdictThrottled {
		ctx = context.WithValue(ctx, rateLimitRetryKey{}, true)
	}
	if c.policy.priority != Normal {
		ctx = context.WithValue(ctx, priorityKey{}, c.policy.priority)
	}
	for {
		switch adm, admitted, err := c.admitOnce(ctx); {
		case err != nil:
			return admission{}, c.admissionError(caller, ctx, err)
		case admitted:
			return adm, nil
		}
	}
}

// admitOnce reports false where a block began or ended while the attempt
// waited, which then starts over under the new state.
func (c *call) admitOnce(ctx context.Context) (adm admission, admitted bool, err error) {
	defer func() { // also when a limiter panics
		if !admitted {
			c.release(ctx, adm, LimiterResult{Spent: SpentNo}, block.Silent)
		}
	}()
	if err = callerEnded(ctx); err != nil {
		return adm, false, err
	}
	r := c.route
	if r.guard != nil {
		if adm.pass, err = r.guard.Enter(ctx, r.tokens != nil); err != nil {
			return adm, false, err
		}
		adm.entered = true
	}
	if r.tokens != nil && r.tokens.ready() == nil { // before queueing, where it would hold a place
		if _, err = c.waitForToken(ctx); err != nil {
			return adm, false, err
		}
	}
	if r.sem != nil {
		select {
		case r.sem <- struct{}{}:
			adm.slot = true
		case <-ctx.Done():
			return adm, false, ctx.Err()
		}
	}
	if r.limiter != nil {
		if adm.permit, err = r.limiter.Acquire(ctx); err != nil {
			return adm, false, c.limiterError(ctx, err)
		}
	}
	if r.tokens != nil { // and again, since it may have expired in the queue
		if adm.token = r.tokens.ready(); adm.token == nil {
			if adm.token, err = c.waitForToken(ctx); err != nil {
				return adm, false, err
			}
		}
	}
	return adm, r.guard == nil || r.guard.Current(adm.pass), nil
}

// release returns what adm holds, with what the attempt learned.
func (c *call) release(ctx context.Context, adm admission, result LimiterResult, signal block.Signal) {
	defer func() { // also when Done of the caller's own limiter panics
		if adm.slot {
			<-c.route.sem
		}
		if adm.entered {
			var changed bool
			if c.last.retryAt, changed = c.route.guard.Settle(adm.pass, signal); changed {
				c.reportBlock(ctx, signal, c.last.retryAt)
			}
		}
	}()
	if adm.permit != nil {
		adm.permit.Done(result)
	}
}

// send sends an attempt that has been admitted and judges what came back.
func (c *call) send(caller context.Context, adm admission, queuedAt time.Time) {
	sentAt := time.Now()
	if c.attempts == 0 {
		c.started = sentAt.Add(-c.waited)
	}
	c.attempts++
	c.last = outcome{token: adm.token, Result: wire.Result{Sent: true}} // in case the transport panics
	o := &c.last
	signal, observed := block.Silent, caller
	defer func() { // also when a transport panics, so that nothing stays held
		took := time.Since(sentAt)
		c.release(caller, adm, o.limiterResult(c.route.longestHold), signal)
		c.record(caller, observed, sentAt.Sub(queuedAt), took)
	}()

	observed, extra := c.reportAttemptStart(caller)
	ctx, cancel := c.attemptContext(observed, sentAt)
	defer cancel()
	x := wire.New(ctx, cancel)
	if req, err := c.newRequest(x.Context(), adm.token, extra); err != nil {
		o.Result = wire.Result{Err: err} // the body could not be opened: never sent
	} else {
		if c.client.seen.silent.Load() && c.client.seen.silent.Swap(false) {
			c.client.CloseIdleConnections()
		}
		o.Result = x.RoundTrip(wire.Transport(c.parts.httpClient), req, c.payload.body, c.policy.idleTimeout)
		if o.Silent {
			c.client.seen.silent.Store(true)
		}
		o.readHeader()
	}
	if o.Err != nil && o.Status < 300 { // otherwise the response counts all the same
		o.callerEnded = callerEnded(caller)
	}
	o.verdict, o.reason = judge(o, c.route.guard != nil)
	switch {
	case o.verdict == VerdictBlocked:
		signal = block.Blocked
	case o.Status != 0:
		signal = block.Lifted
	}
	if c.route.tokens == nil {
		return
	}
	if o.rate.Known() {
		c.client.setRateLimit(o.rate)
	}
	if o.Status != http.StatusUnauthorized && (o.verdict == VerdictDone || o.rate.Known()) {
		c.route.tokens.accepted(adm.token) // the API responded, not a gateway in its place
	}
}

// attemptContext is the context of one attempt: the call's, limited by the
// attempt timeout and by what is left of the total time.
func (c *call) attemptContext(parent context.Context, now time.Time) (context.Context, context.CancelFunc) {
	left := c.policy.attemptTimeout
	if total := c.policy.totalTimeout; total > 0 {
		if rest := max(total-now.Sub(c.started), 1); left == 0 || rest < left {
			left = rest
		}
	}
	if left == 0 {
		return context.WithCancel(parent)
	}
	return context.WithDeadline(parent, now.Add(left))
}

// checkRetry decides what follows an attempt: another one after
// c.retry.RetryWaitMin, or the end of the call with its error. It is the hook
// of go-retryablehttp, and reads c.last and c.failure.
func (c *call) checkRetry(ctx context.Context, _ *http.Response, _ error) (retry bool, err error) {
	if c.failure == nil {
		return false, nil
	}
	if c.last.verdict == VerdictUnauthorized && c.replay() {
		return c.retryAfter(ctx, 0)
	}
	budget, used := c.retryBudget()
	if budget == 0 {
		return false, c.failure
	}
	if err := callerEnded(ctx); err != nil {
		return false, c.interrupted(ctx, err)
	}
	now, wait := time.Now(), c.nextWait()
	deadline, limited := ctx.Deadline()
	switch {
	case used >= budget:
		return false, c.exhausted(ExhaustedAttempts)
	case c.policy.totalTimeout > 0 && now.Sub(c.started)+wait >= c.policy.totalTimeout,
		c.policy.totalTimeout == 0 && c.last.retryAfter > longestHold:
		return false, c.exhausted(ExhaustedTotalTime)
	case limited && !now.Add(wait).Before(deadline):
		return false, c.exhausted(ExhaustedDeadline)
	}
	if c.last.verdict == VerdictThrottled {
		c.throttled++
	} else {
		c.retries++
	}
	return c.retryAfter(ctx, wait)
}

// retryAfter starts the next attempt after wait, which minWait passes on.
func (c *call) retryAfter(ctx context.Context, wait time.Duration) (retry bool, err error) {
	c.retry.RetryWaitMin, c.waiting = wait, true
	c.reportWait(ctx, wait)
	return true, nil
}
