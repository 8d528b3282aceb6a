package brellium

import (
	"context"
	"errors"
	"time"

	"github.com/brellium/brellium-go/internal/redact"
)

// The token endpoint's own limits: a burst of 20 requests for each client id,
// then one every 10 seconds. Each attempt counts, so that they are few.
const (
	mintBurst          = 20
	mintPerSecond      = 0.1
	mintMaxRetries     = 2
	mintAttemptTimeout = 10 * time.Second
	mintTotalTimeout   = 15 * time.Second
)

// OAuthService mints access tokens. A Client does so by itself; use it to hand
// a token to something else.
type OAuthService struct{ client *Client }

// tokenRequest is the body of POST /v2/oauth/token. Its names are assumed.
type tokenRequest struct {
	GrantType    string `json:"grant_type"`
	ClientID     string `json:"client_id"`
	ClientSecret string `json:"client_secret"`
}

// CreateToken mints a fresh access token, which the client uses from then on.
// Each mint counts against the endpoint's limit: a burst of 20, then one every
// 10 seconds. A 5xx is repeated with backoff and a 429 after its Retry-After,
// 3 attempts and 15 s in all; call options do not change that, but for
// WithResponseInto, which is filled if this call's own request was the one.
// With a fixed token (WithAccessToken) it is a *ValidationError.
func (s *OAuthService) CreateToken(ctx context.Context, opts ...CallOption) (*Token, error) {
	if ctx == nil {
		return nil, &ValidationError{Field: "ctx", Reason: "must not be nil"}
	}
	if s.client.credentials.id.IsZero() {
		return nil, &ValidationError{Field: "credentials", Reason: "a client with a fixed access token cannot mint one"}
	}
	if err := (&callConfig{}).apply(opts, false, false); err != nil {
		return nil, err
	}
	t, err := s.client.api.tokens.fresh(ctx)
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil, &InterruptedError{Operation: opOAuthToken.name, Err: err, cause: redact.Cause(ctx)}
	}
	return t, err
}

// setUpTokens gives the client its source of tokens.
func (c *Client) setUpTokens(cfg *clientConfig) error {
	if !cfg.accessToken.IsZero() {
		if cfg.tokenStore != nil {
			return &ValidationError{Field: "WithTokenStore", Reason: "a fixed access token is not shared"}
		}
		c.api.tokens = newStaticTokenSource(cfg.accessToken.Open())
		return nil
	}
	limiter, err := NewFixedLimiter(mintBurst, mintPerSecond)
	if err != nil {
		return err
	}
	c.tokenEndpoint.limiter = limiter
	c.credentials = credentials{id: cfg.clientID, secret: cfg.clientSecret}
	c.api.tokens = newTokenSource(tokenSourceConfig{
		mint:   c.mint,
		store:  cfg.tokenStore,
		key:    tokenKey(c.baseURL.String(), cfg.clientID.Open(), cfg.clientSecret.Open()),
		notify: c.observers.reportTokenStore,
	})
	return nil
}

// mint asks the token endpoint for a token, through the same pipeline as
// every call, but for the token and the API's limiter.
func (c *Client) mint(ctx context.Context) (*Token, error) {
	var t *Token
	decode := func(r okResponse) (err error) {
		t, err = decodeToken(r.body, time.Now())
		if e, ok := err.(*DecodeError); ok {
			e.StatusCode, e.RequestID = r.status, r.requestID
		}
		return err
	}
	call, err := c.newCall(ctx, request{op: opOAuthToken, body: tokenRequest{
		GrantType:    "client_credentials",
		ClientID:     c.credentials.id.Open(),
		ClientSecret: c.credentials.secret.Open(),
	}}, callConfig{policy: retryPolicy{maxRetries: mintMaxRetries, explicit: true, attemptTimeout: mintAttemptTimeout, totalTimeout: mintTotalTimeout}}, &c.tokenEndpoint)
	if err != nil {
		return nil, err
	}
	if err := call.run(ctx, decode); err != nil {
		// No caller's context ended, but the mint's own.
		if e, ok := err.(*InterruptedError); ok && e.Last != nil {
			call.failure = e.Last
			return nil, call.exhausted(ExhaustedTotalTime)
		} else if ok {
			return nil, &ConnectionError{Operation: opOAuthToken.name, Reason: "no token within the time of a mint", Err: errMintLimit}
		}
		return nil, err
	}
	return t, nil
}

var errMintLimit = errors.New("a burst of 20 token requests, then one every 10 seconds")
