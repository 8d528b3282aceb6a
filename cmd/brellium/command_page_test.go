package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"text/template"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go/brelliumtest"
)

// TestCommandPage runs each command against an emulator, and compares the output
// with that in docs/command.md. With -update it writes the page.
func TestCommandPage(t *testing.T) {
	page, err := filepath.Abs("../../docs/command.md")
	require.NoError(t, err)
	tmpl, err := os.ReadFile("testdata/command.md.tmpl")
	require.NoError(t, err)
	emulator := brelliumtest.New(brelliumtest.WithSeed(1), brelliumtest.WithAuditDelay(0), brelliumtest.WithTokenLimit(1000, time.Second),
		brelliumtest.WithSeedStart(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)))
	emulator.SeedAudits(240)
	require.NoError(t, seed(t.Context(), emulator))
	var alter func([]byte) []byte
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		emulator.SetRemaining(100)
		resp := httptest.NewRecorder()
		emulator.Handler().ServeHTTP(resp, req)
		body := resp.Body.Bytes()
		if alter != nil {
			body = alter(body)
		}
		for name, values := range resp.Header() {
			if name != "Content-Length" {
				w.Header()[name] = values
			}
		}
		w.WriteHeader(resp.Code)
		_, _ = w.Write(body)
	}))
	defer server.Close()
	t.Setenv("BRELLIUM_BASE_URL", server.URL)
	t.Setenv("BRELLIUM_CLIENT_ID", emulator.ClientID)
	t.Setenv("BRELLIUM_CLIENT_SECRET", emulator.ClientSecret)
	t.Chdir(t.TempDir())
	require.NoError(t, os.Mkdir("notes", 0o700))
	for name, text := range map[string]string{
		"notes/note-1.txt": "A synthetic note.", "notes/note-2.txt": "Another synthetic note.",
		"people.csv": "email,name\ncasey@example.test,Casey Example\nrobin@example.test,Robin Sample\n",
		"list.txt":   "notes/note-1.txt\nnotes/note-9.txt\n",
		"wrong.csv":  "email,name\ncasey@example.test,Casey Example\nrobin,Robin Sample\n",
	} {
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}

	// The ids of what the commands create depend on the number of requests.
	known := map[string]string{}
	stable := func(text string) string {
		var ids []string
		for _, d := range emulator.Documents() {
			ids = append(ids, d.DocumentID)
		}
		for _, u := range emulator.Users() {
			ids = append(ids, u.UserID)
		}
		for _, r := range emulator.EmailRecipients() {
			ids = append(ids, r.EmailRecipientID)
		}
		for _, id := range append(ids, emulator.AuditIDs()[241:]...) {
			if known[id] == "" {
				known[id] = fmt.Sprintf("7d1f0c3a-52b6-4e0d-9a41-%012d", len(known)+1)
			}
		}
		for id, with := range known {
			text = strings.ReplaceAll(text, id, with)
		}
		return stableText(strings.ReplaceAll(text, server.URL, "http://127.0.0.1:8080"))
	}
	document := emulator.Documents()[0].DocumentID
	run := func(command string, lines ...int) string {
		command = strings.ReplaceAll(command, "DOCUMENT", document)
		var out bytes.Buffer
		// As on a terminal, but without colors and progress bars.
		a := &app{output: &output{in: strings.NewReader(""), out: &out, err: &out, tty: true}}
		root := newRoot(a)
		args := strings.Fields(command)[1:]
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if command == "brellium emulator" {
			args = append(args, "--addr", "127.0.0.1:0") // its usual port may be in use
			cancel()                                     // it runs until then
		}
		root.SetArgs(args)
		code := a.finish(ctx, root.ExecuteContext(ctx))
		text := cut(out.String(), lines)
		text = regexp.MustCompile(`(?m)^(\{.{150}).*`).ReplaceAllString(text, "$1…")
		text = regexp.MustCompile(`(BASE_URL=http://127\.0\.0\.1):\d+`).ReplaceAllString(text, "$1:8080")
		if code != exitDone {
			text += fmt.Sprintf("$ echo $?\n%d\n", code)
		}
		return block(stable("$ " + command + "\n" + text))
	}
	parsed, err := template.New("page").Funcs(template.FuncMap{
		"run":  run,
		"help": func(name string) string { return run("brellium " + name + " --help") },
		"altered": func(command string) string {
			alter = func(body []byte) []byte {
				body = bytes.ReplaceAll(body, []byte(`"status":"complete"`), []byte(`"status":"archived"`))
				return bytes.ReplaceAll(body, []byte(`"data":[{"user_id"`), []byte(`"users":[{"user_id"`))
			}
			defer func() { alter = nil }()
			return run(command)
		},
		"file": func(name string, lines int) (string, error) {
			data, err := os.ReadFile(name)
			return block(stable(cut(string(data), []int{lines}))), err
		},
	}).Parse(string(tmpl))
	require.NoError(t, err)
	var got bytes.Buffer
	require.NoError(t, parsed.Execute(&got, nil))
	for _, name := range commandNames() {
		assert.Contains(t, got.String(), "\n## brellium "+name+"\n")
	}
	if *update {
		require.NoError(t, os.WriteFile(page, got.Bytes(), 0o644))
		return
	}
	want, err := os.ReadFile(page)
	require.NoError(t, err)
	assert.Equal(t, string(want), got.String(), "run go test -run TestCommandPage -update")
}

func block(text string) string { return "```\n" + strings.TrimRight(text, "\n") + "\n```" }

// cut returns the first lines of a text, if a number is given.
func cut(text string, lines []int) string {
	all := strings.SplitAfter(text, "\n")
	if len(lines) == 0 || len(all) <= lines[0] {
		return text
	}
	return strings.Join(all[:lines[0]], "") + "…\n"
}

// stableText replaces what differs from run to run.
func stableText(text string) string {
	for _, r := range []struct{ pattern, with string }{
		{`request [0-9a-f-]{36}`, "request 5f0c2d1e-7a64-4c1b-9a55-3f6f1c1d2e3f"},
		{`Bearer( +)\S+`, "Bearer${1}2026-01-31T09:00:00Z"},
		{`brellium \S+, brellium-go (\S+), go\S+ \S+`, "brellium v$1, brellium-go $1, go1.25.0 linux/amd64"},
		{`doctor", \d{4}-\d\d-\d\d`, `doctor", 2026-01-31`},
	} {
		text = regexp.MustCompile(r.pattern).ReplaceAllString(text, r.with)
	}
	return text
}
