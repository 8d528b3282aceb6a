package brellium

import (
	"context"
	"errors"
	"time"

	"github.com/brellium/brellium-go/internal/redact"
)

// The token endpoint has a rate limit of its own: a burst of 20 requests per
// client id, then one every 10 seconds. Each attempt counts, so there are few.
const (
	mintBurst          = 20
	mintPerSecond      = 0.1
	mintMaxRetries     = 2
	mintAttemptTimeout = 10 * time.Second
	mintTotalTimeout   = 15 * time.Second
)

// OAuthService requests access tokens. A [Client] requests its own; use the
// service only to pass a token to something else.
type OAuthService struct{ client *Client }

// tokenRequest is the body of POST /v2/oauth/token. Its names are assumed.
type tokenRequest struct {
	GrantType    string `json:"grant_type"`
	ClientID     string `json:"client_id"`
	ClientSecret string `json:"client_secret"`
}

// CreateToken requests a new access token, which the client uses from then on.
// Concurrent calls share one token request, which continues even if ctx ends. Each
// request counts against the token endpoint's rate limit: a burst of 20, then once
// every 10 seconds.
//
// The request is retried after transient failures, and after its Retry-After
// when rate limited: 3 attempts in 15 seconds at most. A 429 that asks for a longer
// wait is the error of all calls until then, for at most 5 minutes: then one
// request is sent, whatever it asked for. [WithMaxRetries], [WithAttemptTimeout],
// [WithTotalTimeout] and [WithPriority] of the client have no effect here. As
// options of this call, they and [WithHeader] are a [ValidationError].
// [WithResponseInto] is filled only if this call started the token request and
// waited for its end; otherwise it is left zero.
//
// The error is a [ValidationError] (including for a client with
// [WithAccessToken]); an [APIError], [BlockedError], [ConnectionError],
// [DecodeError] or [RetriesExhaustedError] of the token request; or an
// [InterruptedError] if ctx ended.
func (s *OAuthService) CreateToken(ctx context.Context, opts ...CallOption) (*Token, error) {
	if ctx == nil {
		return nil, &ValidationError{Field: "ctx", Reason: "must not be nil"}
	}
	if s.client.parts.Open().credentials.id.IsZero() {
		return nil, &ValidationError{Field: "credentials", Reason: "a client with a fixed access token cannot request one"}
	}
	cfg, err := s.client.callConfigOf("CreateToken", opts)
	if err != nil {
		return nil, err
	}
	if cfg.response != nil {
		*cfg.response = Response{}
	}
	t, err := s.client.parts.Open().api.tokens.fresh(ctx, cfg.response)
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil, &InterruptedError{Operation: opOAuthToken.name, Err: err, cause: redact.Cause(ctx)}
	}
	return t, err
}

// setUpTokens sets the client's token source.
func (c *Client) setUpTokens(p *parts, cfg *clientConfig) error {
	if !cfg.accessToken.IsZero() {
		if cfg.tokenStore != nil {
			return &ValidationError{Field: "WithTokenStore", Reason: "a fixed access token is not shared"}
		}
		p.api.tokens = newStaticTokenSource(cfg.accessToken.Open())
		return nil
	}
	limiter, err := NewFixedLimiter(mintBurst, mintPerSecond)
	if err != nil {
		return err
	}
	p.tokenEndpoint.limiter, p.tokenEndpoint.longestHold = limiter, longestHold
	p.credentials = credentials{id: cfg.clientID, secret: cfg.clientSecret}
	p.api.tokens = newTokenSource(tokenSourceConfig{
		mint:   c.mint,
		store:  cfg.tokenStore,
		key:    tokenKey(c.baseURL.String(), cfg.clientID.Open(), cfg.clientSecret.Open()),
		notify: p.observers.reportTokenStore,
	})
	return nil
}

// mint requests a token and fills response. The request is a call like any
// other, but without a token, and with the token endpoint's own limiter.
func (c *Client) mint(ctx context.Context, response *Response) (*Token, error) {
	var t *Token
	p := c.parts.Open()
	decode := func(r okResponse) (err error) {
		t, err = decodeToken(r.body, time.Now())
		if e, ok := err.(*DecodeError); ok {
			e.StatusCode, e.RequestID, e.Header = r.status, r.requestID, r.header
		}
		return err
	}
	call, err := c.newCall(ctx, request{op: opOAuthToken, body: tokenRequest{
		GrantType:    "client_credentials",
		ClientID:     p.credentials.id.Open(),
		ClientSecret: p.credentials.secret.Open(),
	}}, callConfig{response: response, policy: retryPolicy{maxRetries: mintMaxRetries, explicit: true, attemptTimeout: mintAttemptTimeout, totalTimeout: mintTotalTimeout}}, p, p.tokenEndpoint)
	if err != nil {
		return nil, err
	}
	err = call.run(ctx, decode)
	switch e := err.(type) { // the mint's own context ended, not a caller's
	case nil:
		return t, nil
	case *RetriesExhaustedError:
		if e.Reason == ExhaustedDeadline {
			e.Reason = ExhaustedTotalTime
		}
	case *InterruptedError:
		if call.failure = e.Last; e.Last != nil {
			return nil, call.exhausted(ExhaustedTotalTime)
		}
		return nil, &ConnectionError{Operation: opOAuthToken.name, Reason: "no token within the time of a mint", Sent: e.Attempts > 0, Err: errMintLimit}
	}
	return nil, err
}

var errMintLimit = errors.New("a burst of 20 token requests, then one every 10 seconds")
