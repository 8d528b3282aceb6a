package brellium

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxTokenLifetime is the longest lifetime that is believed. A longer one is
// taken for a mistake, and the token is used until the API refuses it.
const maxTokenLifetime = 10 * 365 * 24 * time.Hour

// maxTokenAnswer is the longest answer of the token endpoint that is decoded.
const maxTokenAnswer = 64 << 10

// Token is an access token. It hides its value wherever it is printed, logged
// or encoded; only [Token.Reveal] gives it. A Token is shared by the calls
// that use it, so its fields are not to be changed.
type Token struct {
	// Type is the kind of token: always "Bearer" for one the API issued.
	Type string
	// ExpiresAt is when the token stops being valid, or the zero time where
	// that is not known: such a token is used until the API refuses it.
	ExpiresAt time.Time

	// hidden returns the value and the Authorization header's value. It is a
	// function since a dumper that walks structs cannot look inside one.
	hidden func() (value string, header []string)
}

// NewToken returns a token with the given type, value and expiry. It is meant
// for implementations of [TokenStore]; a zero expiresAt says that the expiry
// is not known.
func NewToken(tokenType, value string, expiresAt time.Time) *Token {
	header := []string{"Bearer " + value}
	return &Token{
		Type:      tokenType,
		ExpiresAt: expiresAt,
		hidden:    func() (string, []string) { return value, header },
	}
}

// Reveal returns the token's value, which is a secret: whoever has it can act
// for the organization until the token expires. It is empty for the zero Token.
func (t *Token) Reveal() string {
	if t == nil || t.hidden == nil {
		return ""
	}
	value, _ := t.hidden()
	return value
}

// authorization returns the value of the Authorization header. The slice is
// shared by all requests that carry the token, and must not be written to.
func (t *Token) authorization() []string {
	_, header := t.hidden()
	return header
}

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

// Format writes what [Token.String] returns, under every verb and flag.
func (t Token) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, t.String()) }

// MarshalText returns what [Token.String] returns, so that JSON and other
// encodings do not hold the value. An encoded token cannot be decoded again:
// a [TokenStore] keeps [Token.Reveal], Type and ExpiresAt.
func (t Token) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// LogValue returns what [Token.String] returns.
func (t Token) LogValue() slog.Value { return slog.StringValue(t.String()) }

// usable reports whether the token can be sent at all.
func (t *Token) usable() bool {
	return t != nil && (t.Type == "" || strings.EqualFold(t.Type, "Bearer")) && sendable(t.Reveal())
}

// sendable reports whether value can stand behind "Bearer " in a header:
// visible ASCII, and at least one of it.
func sendable(value string) bool {
	for i := range len(value) {
		if value[i] <= ' ' || value[i] > '~' {
			return false
		}
	}
	return value != ""
}

// decodeToken reads a 200 answer of the token endpoint. The lifetime counts
// from now, which is best the time just before the request was sent. The error
// is a *DecodeError that quotes nothing of the body.
//
// A missing token_type is taken for Bearer. A lifetime that is missing, not
// above zero, beyond ten years or not a number leaves the expiry unknown.
func decodeToken(body []byte, now time.Time) (*Token, error) {
	fail := func(reason string) (*Token, error) {
		return nil, &DecodeError{Operation: opOAuthToken.name, StatusCode: http.StatusOK, Reason: reason}
	}
	body = bytes.TrimSpace(bytes.TrimPrefix(body, []byte("\ufeff")))
	if len(body) == 0 {
		return fail("the answer is empty")
	}
	if body[0] == '{' && len(body) > maxTokenAnswer {
		return fail("the answer is too large for a token")
	}
	var answer struct {
		AccessToken any             `json:"access_token"`
		TokenType   any             `json:"token_type"`
		ExpiresIn   json.RawMessage `json:"expires_in"`
	}
	if body[0] != '{' || json.Unmarshal(body, &answer) != nil {
		return fail("the answer is not a JSON object")
	}

	switch tokenType := answer.TokenType.(type) {
	case nil:
	case string:
		if tokenType != "" && !strings.EqualFold(tokenType, "Bearer") {
			return fail("the token_type is not Bearer")
		}
	default:
		return fail("the token_type is not a string")
	}
	value, ok := answer.AccessToken.(string)
	if !ok || strings.TrimSpace(value) == "" {
		return fail("the answer holds no access_token")
	}
	if !sendable(value) {
		return fail("the access_token holds characters that a header cannot carry")
	}

	var expiresAt time.Time
	if lifetime := decodeLifetime(answer.ExpiresIn); lifetime > 0 {
		expiresAt = now.Add(lifetime)
	}
	return NewToken("Bearer", value, expiresAt), nil
}

// decodeLifetime reads expires_in: seconds, as a number or as a string that
// holds one. It returns 0 where that tells nothing.
func decodeLifetime(raw json.RawMessage) time.Duration {
	text := strings.TrimSpace(strings.Trim(string(raw), `"`))
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(seconds) || seconds <= 0 || seconds > maxTokenLifetime.Seconds() {
		return 0
	}
	return time.Duration(seconds * float64(time.Second))
}
