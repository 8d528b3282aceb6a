package jsonscan

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// value has a field of each kind that resources have.
type value struct {
	Text   string   `json:"text"`
	Number *float64 `json:"number"`
	Int    int      `json:"int"`
	Yes    bool     `json:"yes"`
	List   []string `json:"list"`
	Items  []struct {
		Key string `json:"key"`
		N   int    `json:"n"`
	} `json:"items"`
	Free map[string]any `json:"free"`
	Raw  json.RawMessage
}

// FuzzTolerant decodes objects: what encoding/json decodes comes out the same and
// is not odd, and anything else does no harm.
func FuzzTolerant(f *testing.F) {
	for _, seed := range append(seeds, `{"text":"a","number":1.5,"int":2,"yes":true,"list":["a"],"items":[{"key":"k","n":1}],"free":{"a":[1]},"Raw":{}}`,
		`{"text":1,"number":"1.5","int":"2","yes":"true","list":"a","items":{"key":2,"n":1.0},"free":[]}`, `{"TEXT":null,"items":[[],7,{"N":1e400}],"te\u0078t":{}}`) {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if trimmed := bytes.TrimSpace(data); len(trimmed) == 0 || trimmed[0] != '{' || !json.Valid(data) {
			return
		}
		before := bytes.Clone(data)
		names := map[string]int{}
		for key, member := range Members(data) {
			names[string(bytes.ToLower([]byte(key)))]++
			require.True(t, json.Valid(member))
			require.NotEmpty(t, Kind(member))
		}
		var members map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(data, &members))
		for key, want := range members {
			got, ok := Member(data, key)
			require.True(t, ok)
			if names[string(bytes.ToLower([]byte(key)))] == 1 {
				require.Equal(t, string(want), string(got))
			}
		}
		var exact, tolerant value
		var d Tolerant
		require.True(t, d.Decode(data, &tolerant))
		require.Equal(t, string(before), string(data), "the data stays")
		for _, n := range names {
			if n > 1 { // encoding/json merges what comes twice
				return
			}
		}
		if json.Unmarshal(data, &exact) == nil && d.Odd == "" {
			if !bytes.Contains(data, []byte(`"items"`)) { // whose keys may come twice as well
				require.Equal(t, exact, tolerant)
			}
		}
		if d.Lost != "" {
			require.NotEmpty(t, d.Odd)
		}
	})
}

func TestKindsAreNamed(t *testing.T) {
	for data, kind := range map[string]string{
		`{}`: "an object", ` [1]`: "a list", "\n\"a\"": "text", `true`: "a boolean", `false`: "a boolean", `null`: "null", `-1.5`: "a number",
	} {
		assert.Equal(t, kind, Kind([]byte(data)))
	}
	assert.Equal(t, "", kindOf(reflect.TypeFor[struct{}]()))
	for range Members([]byte(`[{"a":1}]`)) {
		t.Error("a list has no members")
	}
	for range Members(nil) {
		t.Error("nothing has no members")
	}
}
