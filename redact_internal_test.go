package brellium

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// The newer engine of encoding/json names the keys of maps in its errors, and
// the spelling of a field in the answer.
func TestAFieldIsNamedOnlyAsFarAsOurTypesNameIt(t *testing.T) {
	type inner struct {
		X int            `json:"x_name,omitempty"`
		M map[string]int `json:"m"`
		N int
	}
	type outer struct {
		inner
		D []inner          `json:"data"`
		P *inner           `json:"p"`
		Q map[string]inner `json:"q"`
		S [][]inner        `json:"s"`
	}
	for path, want := range map[string]string{
		"": "", "marker": "", "data": "data", "DATA.x_name": "data.x_name", "data.1.x_name": "data.x_name", "data.17.marker": "data",
		"p.m": "p.m", "p.m.marker": "p.m", "q.marker.x_name": "q", "x_name": "x_name", "p.n": "p.N", "data.x_name.marker": "data.x_name",
		"s.1.2.x_name": "s.x_name", "data.marker": "data", "marker.x_name": "",
	} {
		assert.Equal(t, want, knownField(reflect.TypeFor[*outer](), path), path)
	}
	assert.Empty(t, knownField(reflect.TypeFor[map[string]int](), "marker"))
	assert.Empty(t, knownField(reflect.TypeFor[*int](), "marker.a"))
	for _, v := range []any{new(Audit), new(Document), new(User), new(map[string]inner), new([]inner), new(any)} {
		for _, body := range []string{`{"marker":{"marker":"marker"}}`, `{"metadata":"marker","flags":{"marker":1}}`, `[{"marker":1,"m":{"marker":"marker"}}]`} {
			if e, ok := asType[*json.UnmarshalTypeError](json.Unmarshal([]byte(body), v)); ok {
				assert.NotContains(t, decodeReason([]byte(body), v, e), "marker", "%T", v)
			}
		}
	}
}

func TestValuesAreCountedAsTheyStand(t *testing.T) {
	for body, n := range map[string]int{
		``: 0, `1`: 0, `{}`: 1, `[1,2,3]`: 3, `{"a,b":"[{\",","c":[]}`: 3, `"` + strings.Repeat(",", 100): 0, `"\`: 0, `"\\",`: 1,
	} {
		assert.Equal(t, n, countValues([]byte(body)), body)
	}
}

func TestAServersWordIsACodeOnlyWhereItLooksLikeOne(t *testing.T) {
	for s, ok := range map[string]bool{
		"RATE_LIMITED": true, "access_denied": true, "AccessDenied": true, "a1b2c3d4-e5f6": true, "x.y:z": true,
		"two words": false, "a@example.test": false, "a/b": false, "a\nb": false, "é": false, "a?b": false, "a%20b": false, "\"": false,
		strings.Repeat("a", 128): true, strings.Repeat("a", 129): false,
	} {
		if ok {
			assert.Equal(t, s, safeCode(s))
		} else {
			assert.Empty(t, safeCode(s), s)
		}
	}
	assert.Equal(t, CodeHTTPError, readCode("two words"))
	assert.Equal(t, "a b  c \u00e9 \ufffd", strings.ReplaceAll(oneLine("a\nb\r\nc\x1b\u00e9\u202e\ufffd"), "\u202e", "!"))
	assert.Len(t, oneLine(strings.Repeat("é", 5000)), maxMessage+len("…"))
	assert.NotContains(t, oneLine(strings.Repeat("a", maxMessage-1)+"é"), "\ufffd", "no character is cut in two")
}
