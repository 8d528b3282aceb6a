package brellium

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"log/slog"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const tokenSecret = "s3cret-t0ken-value"

// hetznercloud/hcloud-go#161: debug output held the bearer token.
func TestTokenHidesItsValue(t *testing.T) {
	token := NewToken("Bearer", tokenSecret, time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	type holder struct {
		Token   Token
		Pointer *Token
		private *Token
		value   Token
	}
	things := map[string]any{
		"pointer": token,
		"value":   *token,
		"holder":  holder{*token, token, token, *token},
		"holder*": &holder{*token, token, token, *token},
		"slice":   []*Token{token},
		"values":  []Token{*token},
		"map":     map[string]*Token{"k": token},
		"error":   fmt.Errorf("wrapped: %v", token),
	}
	for name, thing := range things {
		var out strings.Builder
		for _, verb := range "vTtbcdoOqxXUeEfFgGspw!" {
			for _, flag := range []string{"", "+", "#", "-10", "010", " ", ".3"} {
				fmt.Fprintf(&out, "%"+flag+string(verb)+"\n", thing)
			}
		}
		fmt.Fprintln(&out, thing)

		encoded, err := json.Marshal(thing)
		require.NoError(t, err, name)
		out.Write(encoded)
		if _, isMap := thing.(map[string]*Token); !isMap {
			_ = xml.NewEncoder(&out).Encode(thing)
		}
		_ = gob.NewEncoder(&out).Encode(thing)

		for _, handler := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
			slog.New(handler).Info("token", "thing", thing, slog.Group("g", "thing", thing))
		}
		assertHidden(t, out.String(), tokenSecret)
		walk(reflect.ValueOf(thing), func(s string) { assertHidden(t, s, tokenSecret) })
	}

	const text = "Bearer REDACTED (expires 2026-03-01T12:00:00Z)"
	assert.Equal(t, text, token.String())
	assert.Equal(t, text, fmt.Sprintf("%#v", *token))
	assert.Equal(t, strconv.Quote(text), fmt.Sprintf("%q", token))
	encoded, err := json.Marshal(token)
	require.NoError(t, err)
	assert.JSONEq(t, `"`+text+`"`, string(encoded))
	assert.Equal(t, text, slog.AnyValue(token).Resolve().String())
	assert.Equal(t, "Token REDACTED (expiry not known)", fmt.Sprint(Token{}))
	assert.Equal(t, "<nil>", fmt.Sprint((*Token)(nil)))
}

func TestEncodedTokenCannotBeDecoded(t *testing.T) {
	encoded, err := json.Marshal(NewToken("Bearer", tokenSecret, time.Time{}))
	require.NoError(t, err)
	assert.Error(t, json.Unmarshal(encoded, new(Token)))
}

func TestTokenReveal(t *testing.T) {
	token := NewToken("Bearer", tokenSecret, time.Time{})
	assert.Equal(t, tokenSecret, token.Reveal())
	assert.Equal(t, []string{"Bearer " + tokenSecret}, token.authorization())
	assert.Empty(t, (&Token{}).Reveal())
	assert.Empty(t, (*Token)(nil).Reveal())
	assert.Zero(t, testing.AllocsPerRun(10, func() { _, _ = token.Reveal(), token.authorization() }))
}

// walk calls visit for every string and byte slice that reflection reaches.
func walk(v reflect.Value, visit func(string)) {
	switch v.Kind() {
	case reflect.String:
		visit(v.String())
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() && v.Type() != reflect.TypeFor[*time.Location]() {
			walk(v.Elem(), visit)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			walk(v.Field(i), visit)
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			walk(v.Index(i), visit)
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			walk(v.MapIndex(key), visit)
		}
	}
}

// assertHidden looks for the secret in plain, in hex and cut short.
func assertHidden(t *testing.T, text, secret string) {
	t.Helper()
	for _, form := range []string{secret, secret[:6], fmt.Sprintf("%x", secret), fmt.Sprintf("%X", secret), fmt.Sprintf("% x", secret), fmt.Sprint([]byte(secret))} {
		assert.NotContains(t, text, form)
	}
}

func TestDecodeTokenReadsTheLifetime(t *testing.T) {
	now := time.Now()
	for expiresIn, want := range map[string]time.Duration{
		`3600`:       time.Hour,
		`3600.5`:     time.Hour + time.Second/2,
		`3.6e3`:      time.Hour,
		`"3600"`:     time.Hour,
		`" 3600.5 "`: time.Hour + time.Second/2,
		`1`:          time.Second,
		`315360000`:  maxTokenLifetime,
		// golang/oauth2#738 and others: expired at once, or an error.
		`null`:                 0,
		`0`:                    0,
		`-1`:                   0,
		`-0.0`:                 0,
		`""`:                   0,
		`"soon"`:               0,
		`"NaN"`:                0,
		`"Inf"`:                0,
		`true`:                 0,
		`{}`:                   0,
		`[3600]`:               0,
		`1e400`:                0,
		`9223372036854775807`:  0,
		`99999999999999999999`: 0,
		`315360001`:            0,
	} {
		token, err := decodeToken([]byte(`{"access_token":"t1","token_type":"Bearer","expires_in":`+expiresIn+`}`), now)
		require.NoError(t, err, expiresIn)
		if want == 0 {
			assert.True(t, token.ExpiresAt.IsZero(), expiresIn)
			continue
		}
		assert.Equal(t, want, token.ExpiresAt.Sub(now), expiresIn)
	}
}

func TestDecodeTokenAcceptsUsableResponses(t *testing.T) {
	for name, body := range map[string]string{
		"usual":              `{"access_token":"t1","token_type":"Bearer","expires_in":3600}`,
		"no expires_in":      `{"access_token":"t1","token_type":"Bearer"}`,
		"lower case":         `{"access_token":"t1","token_type":"bearer"}`,
		"upper case":         `{"access_token":"t1","token_type":"BEARER"}`,
		"no token_type":      `{"access_token":"t1"}`,
		"null token_type":    `{"access_token":"t1","token_type":null}`,
		"blank around":       "\r\n {\"access_token\":\"t1\"} \n",
		"byte order mark":    "\ufeff" + `{"access_token":"t1"}`,
		"more than expected": `{"access_token":"t1","scope":["a"],"issued":{"at":1}}`,
	} {
		token, err := decodeToken([]byte(body), time.Now())
		require.NoError(t, err, name)
		assert.Equal(t, "t1", token.Reveal(), name)
		assert.Equal(t, "Bearer", token.Type, name)
		assert.Equal(t, []string{"Bearer t1"}, token.authorization(), name)
	}
}

func TestDecodeTokenErrorsQuoteNothing(t *testing.T) {
	const marker = "zq7marker"
	quoted := func(s string) string { return fmt.Sprintf("%q", s) }
	for name, c := range map[string]struct{ body, reason string }{
		"empty":                   {"", "the response is empty"},
		"blank":                   {" \n", "the response is empty"},
		"null":                    {"null", "the response is not a JSON object"},
		"page":                    {"<html>" + marker + "</html>", "the response is not a JSON object"},
		"list":                    {`["` + marker + `"]`, "the response is not a JSON object"},
		"string":                  {quoted(marker), "the response is not a JSON object"},
		"cut off":                 {`{"access_token":"` + marker, "the response is not a JSON object"},
		"two objects":             {`{"access_token":"` + marker + `"}{}`, "the response is not a JSON object"},
		"no token":                {`{"token_type":"Bearer","x":"` + marker + `"}`, "the response contains no access_token"},
		"null token":              {`{"access_token":null}`, "the response contains no access_token"},
		"blank token":             {`{"access_token":" \t"}`, "the response contains no access_token"},
		"number as token":         {`{"access_token":12345678}`, "the response contains no access_token"},
		"object as token":         {`{"access_token":{"` + marker + `":1}}`, "the response contains no access_token"},
		"token with newline":      {`{"access_token":"` + marker + `\n"}`, "the access_token contains characters that are not allowed in a header"},
		"token with header":       {`{"access_token":"a\r\nX-A: ` + marker + `"}`, "the access_token contains characters that are not allowed in a header"},
		"token with NUL":          {`{"access_token":"` + marker + `\u0000"}`, "the access_token contains characters that are not allowed in a header"},
		"token with space":        {`{"access_token":"` + marker + ` b"}`, "the access_token contains characters that are not allowed in a header"},
		"token beyond ASCII":      {`{"access_token":"` + marker + `é"}`, "the access_token contains characters that are not allowed in a header"},
		"token not UTF-8":         {`{"access_token":"` + marker + "\xff" + `"}`, "the access_token contains characters that are not allowed in a header"},
		"another token_type":      {`{"access_token":"` + marker + `","token_type":"` + marker + `"}`, "the token_type is not Bearer"},
		"a number as token_type":  {`{"access_token":"` + marker + `","token_type":77}`, "the token_type is not a string"},
		"10 MB that are not JSON": {strings.Repeat(marker, 10<<20/len(marker)), "the response is not a JSON object"},
		"more than 64 KB":         {`{"access_token":"t","x":"` + strings.Repeat(marker, 64<<10/len(marker)) + `"}`, "the response is too large for a token"},
	} {
		token, err := decodeToken([]byte(c.body), time.Now())
		assert.Nil(t, token, name)
		var decodeErr *DecodeError
		require.ErrorAs(t, err, &decodeErr, name)
		assert.Equal(t, "oauth.token", decodeErr.Operation, name)
		assert.Equal(t, 200, decodeErr.StatusCode, name)
		assert.Equal(t, c.reason, decodeErr.Reason, name)
		assert.NotContains(t, fmt.Sprintf("%+v %#v", err, err), marker, name)
	}
}

func FuzzDecodeToken(f *testing.F) {
	for _, body := range []string{
		`{"access_token":"t1","token_type":"Bearer","expires_in":3600}`,
		`{"access_token":"t1","expires_in":"3600.5"}`,
		`{"access_token":"t\n1"}`, `{"access_token":1e999}`, `{"error":"invalid_client"}`,
		"\ufeff{}", "null", "", "<html>", `{"expires_in":-9223372036854775809,"access_token":"\u0000"}`,
	} {
		f.Add([]byte(body))
	}
	reasons := map[string]bool{
		"the response is empty": true, "the response is not a JSON object": true, "the response contains no access_token": true,
		"the access_token contains characters that are not allowed in a header": true,
		"the token_type is not Bearer":                                          true, "the token_type is not a string": true,
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, body []byte) {
		token, err := decodeToken(bytes.Clone(body), now)
		if err != nil {
			var decodeErr *DecodeError
			require.ErrorAs(t, err, &decodeErr)
			require.Nil(t, token)
			require.True(t, reasons[decodeErr.Reason], "unknown reason, which may quote the body: %q", decodeErr.Reason)
			return
		}
		require.True(t, token.usable())
		require.Equal(t, "Bearer", token.Type)
		for _, c := range []byte(token.Reveal()) {
			require.True(t, c > ' ' && c < 0x7f)
		}
		if !token.ExpiresAt.IsZero() {
			left := token.ExpiresAt.Sub(now)
			require.True(t, left >= 0 && left <= maxTokenLifetime, "%v", left)
		}
	})
}
