package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A list that changes while it is read may show an audit on two pages.
func TestExportLeavesOutRepeatedAudits(t *testing.T) {
	broken := false
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v2/audits", func(w http.ResponseWriter, req *http.Request) {
		switch page := req.URL.Query().Get("cursor"); {
		case page == "":
			_, _ = w.Write([]byte(`{"object":"list","data":[{"audit_id":"a","object":"audit","status":"todo","score":-5,"flags":["=1+1"],"display_info":[],"people":[{"key":"p","value":"-3"}],"responses":[]},
				{"audit_id":"b","object":"audit","status":"todo","flags":null,"display_info":[],"people":[],"responses":[]}],"has_more":true,"next_cursor":"two"}`))
		case broken:
			w.WriteHeader(http.StatusBadRequest)
		default:
			_, _ = w.Write([]byte(`{"object":"list","data":[{"audit_id":"b","object":"audit","status":"todo","flags":[],"display_info":[],"people":[],"responses":[]},
				{"audit_id":"c","object":"audit","status":"todo","flags":["x","y"],"display_info":[],"people":[],"responses":[]}],"has_more":false,"next_cursor":null}`))
		}
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	t.Setenv("BRELLIUM_BASE_URL", server.URL)
	t.Setenv("BRELLIUM_ACCESS_TOKEN", "synthetic")
	t.Chdir(t.TempDir())
	run := func(args ...string) (string, int) {
		var out bytes.Buffer
		a := &app{output: &output{out: &out, err: &bytes.Buffer{}}}
		root := newRoot(a)
		root.SetArgs(args)
		return out.String(), a.finish(t.Context(), root.ExecuteContext(t.Context()))
	}
	export := []string{"audits", "export", "--columns", "score,audit_id,flags,people.p", "--out"}
	const want = "score,audit_id,flags,people.p\n-5,a,'=1+1,-3\n,b,,\n,c,x; y,\n"

	_, code := run(append(export, "audits.csv")...)
	assert.Equal(t, exitDone, code)
	data, err := os.ReadFile("audits.csv")
	require.NoError(t, err)
	assert.Equal(t, want, string(data))

	// Nor is it repeated by a run that resumes.
	broken = true
	_, code = run(append(export, "resumed.csv")...)
	assert.Equal(t, exitPartial, code)
	broken = false
	_, code = run(append(export, "resumed.csv")...)
	assert.Equal(t, exitDone, code)
	data, err = os.ReadFile("resumed.csv")
	require.NoError(t, err)
	assert.Equal(t, want, string(data))
}

func TestProgressFitsIntoANarrowTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // it fails if a goroutine goes on drawing
		var b bytes.Buffer
		o := &output{err: &b, errTTY: true, narrow: true}
		for i := range int64(100) {
			o.progress("10 of 60 files", i*20_000, 2_000_000, true)
		}
		for _, text := range strings.Split(b.String(), "\r") {
			assert.LessOrEqual(t, len(text), 40)
		}
		assert.Contains(t, b.String(), "10 of 60 files")
	})
}

func TestValuesCannotControlTheTerminal(t *testing.T) {
	for _, tty := range []bool{false, true} {
		var out bytes.Buffer
		o := &output{out: &out, tty: tty}
		require.NoError(t, o.table([]string{"A"}, [][]string{{"x\x1b[2Jy\nz\u202e"}, {"second\tcell"}}))
		assert.NotContains(t, out.String(), "\x1b")
		assert.NotContains(t, out.String(), "\u202e")
		assert.Contains(t, out.String(), "x [2Jy z")
		assert.Contains(t, out.String(), "second cell")
	}
}
