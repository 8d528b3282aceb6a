package brelliumtest

import (
	"net/http"
	"strings"
	"time"
)

// AddCredentials adds a key pair of the same organization. It has its own
// limit at the token endpoint and shares everything else.
func (e *Emulator) AddCredentials(clientID, clientSecret string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.secrets[clientID] = clientSecret
}

// IssueToken returns a new access token without a request to the token
// endpoint, for clients with [brellium.WithAccessToken].
func (e *Emulator) IssueToken() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.newToken(time.Now())
}

// RevokeTokens revokes all access tokens issued so far.
func (e *Emulator) RevokeTokens() {
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(e.tokens)
}

// newToken issues an access token and deletes the expired ones.
func (e *Emulator) newToken(now time.Time) string {
	for token, expiry := range e.tokens {
		if !now.Before(expiry) {
			delete(e.tokens, token)
		}
	}
	token := "emulator-token-" + strings.ReplaceAll(e.newID(), "-", "")
	e.tokens[token] = now.Add(e.tokenLifetime)
	return token
}

// authorized reports whether the request has a valid access token.
func (e *Emulator) authorized(c *call) bool {
	expiry, found := e.tokens[c.rec.Token]
	return found && c.now.Before(expiry)
}

// mint serves the token endpoint.
func (e *Emulator) mint(c *call) response {
	if !isJSON(c.header.Get("Content-Type")) {
		return fail(http.StatusBadRequest, "INVALID_CONTENT_TYPE", "Content-Type must be application/json")
	}
	var in struct {
		GrantType    string `json:"grant_type"`
		ClientID     string `json:"client_id"`
		ClientSecret string `json:"client_secret"`
	}
	if err := c.decode(&in); err != nil {
		return invalid(err.Error())
	}
	b := e.mintBuckets[in.ClientID]
	if b == nil {
		fresh := newBucket(e.mintBurst, e.mintPerSecond)
		b = &fresh
		e.mintBuckets[in.ClientID] = b
	}
	s := c.scripted()
	if s != nil && s.status == http.StatusTooManyRequests {
		return c.scriptRateLimited(b, 10)
	}
	if !b.take(c.now) {
		c.postpone(e)
		return rateLimited(b)
	}
	if s != nil && !c.fault.work {
		return c.script(response{})
	}
	c.rec.Worked = true
	secret, known := e.secrets[in.ClientID]
	switch {
	case in.GrantType != "client_credentials":
		return c.script(fail(http.StatusBadRequest, "unsupported_grant_type", "grant_type must be client_credentials"))
	case !known || secret != in.ClientSecret:
		return c.script(fail(http.StatusUnauthorized, "invalid_client", "The client id or the client secret is wrong"))
	}
	return c.script(e.createToken(c))
}

// createToken issues a token for an accepted request.
func (e *Emulator) createToken(c *call) response {
	return jsonResponse(http.StatusOK, appendJSON(nil, struct {
		AccessToken string `json:"access_token"`
		TokenType   string `json:"token_type"`
		ExpiresIn   int64  `json:"expires_in"`
	}{e.newToken(c.now), "Bearer", int64(e.tokenLifetime / time.Second)}))
}
