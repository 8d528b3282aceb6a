package jsonscan

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// seeds are list responses, which the fuzzer mutates.
var seeds = []string{
	`{"object":"list","data":[{"audit_id":"1","flags":["]","}"]},{"audit_id":"\"2\\"}],"has_more":true,"next_cursor":"c"}`,
	`{"data":null}`, `{}`, `{"data":[null,{}]}`, `{"has_more":null,"data":[{}],"extra":{"data":[1]}}`,
	`{"data":[{}],"data":[{},{}]}`, `{"DATA":[{"audit_id":"x"}]}`, `{"data":[{}],"Data":[{"audit_id":"x"}]}`,
	`{"d\u0061ta":[{"audit_id":"x"}]}`, `{"\\":0,"data":[{}]}`, `{"data":[[],"",1,-1.5e+3,true,false,null,{}]}`,
	" {\t\"data\"\r:\n[ { \"audit_id\" : \"\\\\\\\"\" } , { } ] , \"a\" : -0.1E-5 } ", `{"dat\"a":[],"data":[{"a":"\\\\"}]}`,
	`{"metadata":{"a":[1.0,1e400,{"b":null}]},"attributes":null}`, `{"name":"\u0041\"\\"}`,
}

// FuzzItems holds the scanner against encoding/json: it finds the same
// bytes, or says that it cannot, and that only where a key leaves it in doubt.
func FuzzItems(f *testing.F) {
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var list struct {
			Data []json.RawMessage `json:"data"`
		}
		if trimmed := bytes.TrimSpace(body); len(trimmed) == 0 || trimmed[0] != '{' || json.Unmarshal(body, &list) != nil {
			return
		}
		n := len(list.Data)
		items, ok := Items(body, "data", n)
		if ok {
			require.Len(t, items, n)
			for i := range items {
				require.Equal(t, string(list.Data[i]), string(items[i]))
				require.Equal(t, len(items[i]), cap(items[i]))
			}
			_, ok = Items(body, "data", n+1)
			require.False(t, ok)
			if n > 0 {
				_, ok = Items(body, "data", n-1)
				require.False(t, ok)
			}
			return
		}
		require.True(t, inDoubt(t, body), "the scanner gave up without a reason")
	})
}

// inDoubt reports whether an object has an escaped key, or one that is "data"
// in another spelling or a second time.
func inDoubt(t *testing.T, body []byte) bool {
	exact, doubt := 0, bytes.Contains(body, []byte(`\`))
	d := json.NewDecoder(bytes.NewReader(body))
	_, err := d.Token()
	require.NoError(t, err)
	for d.More() {
		key, err := d.Token()
		require.NoError(t, err)
		switch name := key.(string); {
		case name == "data":
			exact++
		case strings.EqualFold(name, "data"):
			doubt = true
		}
		var value json.RawMessage
		require.NoError(t, d.Decode(&value))
	}
	return doubt || exact > 1
}

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
		R []*inner         `json:"r"`
	}
	for path, want := range map[string]string{
		"": "", "marker": "", "data": "data", "DATA.x_name": "data.x_name", "data.1.x_name": "data.x_name", "data.17.marker": "data",
		"p.m": "p.m", "p.m.marker": "p.m", "q.marker.x_name": "q", "x_name": "x_name", "p.n": "p.N", "data.x_name.marker": "data.x_name",
		"s.1.2.x_name": "s.x_name", "s.x_name": "s.x_name", "r.x_name": "r.x_name", "r.3.x_name": "r.x_name", "data.marker": "data", "marker.x_name": "",
	} {
		assert.Equal(t, want, KnownField(reflect.TypeFor[*outer](), path), path)
	}
	assert.Empty(t, KnownField(reflect.TypeFor[map[string]int](), "marker"))
	assert.Empty(t, KnownField(reflect.TypeFor[*int](), "marker.a"))
}

func TestValuesAreCountedAsTheyStand(t *testing.T) {
	for body, n := range map[string]int{
		``: 0, `1`: 0, `{}`: 1, `[1,2,3]`: 3, `{"a,b":"[{\",","c":[]}`: 3, `"` + strings.Repeat(",", 100): 0, `"\`: 0, `"\\",`: 1,
	} {
		assert.Equal(t, n, Count([]byte(body)), body)
	}
}
