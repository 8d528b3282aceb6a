package brellium

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/brellium/brellium-go/internal/redact"
)

const (
	// maxTokenLifetime is the longest lifetime that is believed. A longer one is
	// taken for a mistake, and the token is used until the API rejects it.
	maxTokenLifetime = 10 * 365 * 24 * time.Hour
	// maxTokenResponse is the longest response that is decoded, in bytes.
	maxTokenResponse = 64 << 10
)

// Token is an access token. Printing, logging or encoding it does not reveal
// its value; only [Token.Reveal] returns that. A Token is shared by the calls
// that use it, so do not change its fields.
type Token struct {
	// Type is the kind of token: always "Bearer" for one the API issued.
	Type string
	// ExpiresAt is when the token expires, or the zero time if that is not
	// known: such a token is used until the API rejects it.
	ExpiresAt time.Time

	header redact.Sealed[[]string] // the value of the Authorization header
}

const bearer = "Bearer "

// NewToken returns a token with the given type, value and expiry. It is meant
// for implementations of [TokenStore]. A zero expiresAt means that the expiry is
// not known.
func NewToken(tokenType, value string, expiresAt time.Time) *Token {
	return &Token{Type: tokenType, ExpiresAt: expiresAt, header: redact.Seal([]string{bearer + value})}
}

// Reveal returns the token's value, which is a secret: whoever has it can act
// for the organization until the token expires. It is empty for the zero Token.
func (t *Token) Reveal() string {
	if t == nil || t.header.IsZero() {
		return ""
	}
	return t.header.Open()[0][len(bearer):]
}

// authorization returns the value of the Authorization header. The slice is
// shared by all requests that carry the token, and must not be written to.
func (t *Token) authorization() []string { return t.header.Open() }

// is reports whether both have the same value.
func (t *Token) is(other *Token) bool { return t.Reveal() == other.Reveal() }

// String describes the token without its value.
func (t Token) String() string {
	tokenType, expiry := t.Type, "expiry not known"
	if tokenType == "" {
		tokenType = "Token"
	}
	if !t.ExpiresAt.IsZero() {
		expiry = "expires " + t.ExpiresAt.UTC().Format(time.RFC3339)
	}
	return tokenType + " REDACTED (" + expiry + ")"
}

// Format writes what [Token.String] returns, under every verb and flag; %q
// quotes it.
func (t Token) Format(s fmt.State, verb rune) { redact.Format(s, verb, t.String()) }

// MarshalText returns what [Token.String] returns, so that JSON and other
// encodings do not contain the value. An encoded token cannot be decoded: a
// [TokenStore] saves [Token.Reveal], Type and ExpiresAt.
func (t Token) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// LogValue returns what [Token.String] returns.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.String()) }

// usable reports whether the token can be sent.
func (t *Token) usable() bool {
	return t != nil && (t.Type == "" || strings.EqualFold(t.Type, "Bearer")) && sendable(t.Reveal())
}

// sendable reports whether value can follow "Bearer " in a header: one or more
// visible ASCII characters.
func sendable(value string) bool {
	for i := range len(value) {
		if value[i] <= ' ' || value[i] > '~' {
			return false
		}
	}
	return value != ""
}

// decodeToken reads a 200 response of the token endpoint. The lifetime counts
// from now. The error is a [DecodeError] that quotes nothing of the body.
//
// A missing token_type means Bearer. If the lifetime is missing, not positive,
// longer than ten years or not a number, the expiry is not known.
func decodeToken(body []byte, now time.Time) (*Token, error) {
	fail := func(reason string) (*Token, error) {
		return nil, &DecodeError{Operation: opOAuthToken.name, StatusCode: http.StatusOK, Reason: reason}
	}
	body = bytes.TrimSpace(bytes.TrimPrefix(body, []byte("\ufeff")))
	if len(body) == 0 {
		return fail("the response is empty")
	}
	if body[0] == '{' && len(body) > maxTokenResponse {
		return fail("the response is too large for a token")
	}
	var response struct {
		AccessToken any             `json:"access_token"`
		TokenType   any             `json:"token_type"`
		ExpiresIn   json.RawMessage `json:"expires_in"`
	}
	if body[0] != '{' || json.Unmarshal(body, &response) != nil {
		return fail("the response is not a JSON object")
	}

	switch tokenType := response.TokenType.(type) {
	case nil:
	case string:
		if tokenType != "" && !strings.EqualFold(tokenType, "Bearer") {
			return fail("the token_type is not Bearer")
		}
	default:
		return fail("the token_type is not a string")
	}
	value, ok := response.AccessToken.(string)
	if !ok || strings.TrimSpace(value) == "" {
		return fail("the response contains no access_token")
	}
	if !sendable(value) {
		return fail("the access_token contains characters that are not allowed in a header")
	}

	var expiresAt time.Time
	if lifetime := decodeLifetime(response.ExpiresIn); lifetime > 0 {
		expiresAt = now.Add(lifetime)
	}
	return NewToken("Bearer", value, expiresAt), nil
}

// decodeLifetime reads expires_in: seconds, as a number or a string. It returns
// 0 if the lifetime is not known.
func decodeLifetime(raw json.RawMessage) time.Duration {
	text := strings.TrimSpace(strings.Trim(string(raw), `"`))
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(seconds) || seconds <= 0 || seconds > maxTokenLifetime.Seconds() {
		return 0
	}
	return time.Duration(seconds * float64(time.Second))
}
