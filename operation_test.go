package brellium

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// methodOperations names the operations that each method of a service sends.
var methodOperations = map[string][]string{
	"Audits.Retrieve":    {"audits.retrieve"},
	"Audits.List":        {"audits.list"},
	"Audits.All":         {"audits.list"},
	"Audits.Update":      {"audits.update"},
	"Audits.BatchUpdate": {"audits.batch_update"},
	"Audits.Follow":      {"audits.list"},

	"Documents.Create":       {"documents.create"},
	"Documents.Retrieve":     {"documents.retrieve"},
	"Documents.List":         {"documents.list"},
	"Documents.All":          {"documents.list"},
	"Documents.Upload":       {"documents.create", "documents.put"},
	"Documents.Put":          {"documents.put"},
	"Documents.WaitForAudit": {"documents.retrieve", "audits.list"},

	"Documents.WaitForFinishedAudit": {"documents.retrieve", "audits.list", "audits.retrieve"},
	"Documents.WaitForAudits":        {"documents.retrieve", "audits.list", "audits.retrieve"},

	"Users.Create":   {"users.create"},
	"Users.Retrieve": {"users.retrieve"},
	"Users.List":     {"users.list"},
	"Users.All":      {"users.list"},
	"Users.Delete":   {"users.delete"},
	"Users.Ensure":   {"users.create", "users.list"},

	"EmailRecipients.Create":      {"email_recipients.create"},
	"EmailRecipients.Retrieve":    {"email_recipients.retrieve"},
	"EmailRecipients.List":        {"email_recipients.list"},
	"EmailRecipients.All":         {"email_recipients.list"},
	"EmailRecipients.FindByEmail": {"email_recipients.list"},
	"EmailRecipients.Ensure":      {"email_recipients.create", "email_recipients.list"},

	"OAuth.CreateToken": {"oauth.token"},
}

// The services are walked by reflection, so that a new method or operation is
// noticed.
func TestMethodsMatchOperations(t *testing.T) {
	known := map[string]bool{}
	for _, op := range operations {
		assert.False(t, known[op.name], "%s comes twice", op.name)
		known[op.name] = true
	}
	methods, sent := map[string]bool{}, map[string]bool{}
	client := reflect.TypeFor[Client]()
	for i := range client.NumField() {
		field := client.Field(i)
		if !field.IsExported() {
			continue
		}
		for j := range field.Type.NumMethod() {
			name := field.Name + "." + field.Type.Method(j).Name
			methods[name] = true
			ops := methodOperations[name]
			assert.NotEmpty(t, ops, "the method %s has no operation", name)
			for _, op := range ops {
				assert.True(t, known[op], "%s sends %s, which the table does not have", name, op)
				sent[op] = true
			}
		}
	}
	for name := range methodOperations {
		assert.True(t, methods[name], "there is no method %s", name)
	}
	for op := range known {
		assert.True(t, sent[op], "no method sends %s", op)
	}
}

// The table repeats the guide's "Decide what is safe to retry", so that a change of
// the code alone fails.
func TestOperationsMatchTheGuide(t *testing.T) {
	guide := map[string]string{
		"PATCH /v2/audits/{audit_id}":                   "yes",
		"POST /v2/audits/batch_update":                  "yes",
		"POST /v2/documents":                            "if every document has an external_id",
		"POST /v2/users":                                "no",
		"DELETE /v2/users/{user_id}":                    "yes",
		"POST /v2/email_recipients":                     "no",
		"POST /v2/oauth/token":                          "yes",
		"PUT {upload_url}":                              "yes", // not in the guide; a PUT stores the same bytes
		"GET /v2/audits":                                "yes",
		"GET /v2/audits/{audit_id}":                     "yes",
		"GET /v2/documents":                             "yes",
		"GET /v2/documents/{document_id}":               "yes",
		"GET /v2/users":                                 "yes",
		"GET /v2/users/{user_id}":                       "yes",
		"GET /v2/email_recipients":                      "yes",
		"GET /v2/email_recipients/{email_recipient_id}": "yes",
	}
	got := map[string]string{}
	for _, op := range operations {
		got[op.method+" "+op.path] = string(op.retry)
		assert.Equal(t, op.method != "GET" && op != opOAuthToken, op.write, "%s may change something", op.name)
	}
	assert.Equal(t, guide, got)
}

// operationTable renders the operation table for README.md.
func operationTable() string {
	var b strings.Builder
	b.WriteString("| operation | method and path | retried after a 5xx or a lost response |\n|---|---|---|\n")
	for _, op := range operations {
		b.WriteString("| `" + op.name + "` | `" + op.method + " " + op.path + "` | " + string(op.retry) + " |\n")
	}
	return b.String()
}

// outcomeTable is the table of outcomes for docs/retries.md, by verdict.
var outcomeTable = func() string {
	var b strings.Builder
	b.WriteString("| outcome of an attempt | what happened | retried |\n|---|---|---|\n")
	for _, row := range []struct {
		verdict     Verdict
		what, again string
	}{
		{VerdictDone, "2xx, and the whole body was read", "–"},
		{VerdictNeverSent, "the DNS lookup, the dial or the TLS handshake failed, the connection was lost before a byte was written, or HTTP/2 says that the request was not processed (`REFUSED_STREAM`, `GOAWAY`)", "every operation; twice at most if the host does not exist"},
		{VerdictNotSendable, "a certificate that does not verify, a proxy that responds with 401, 403 or 407, or a transport that returned `ErrDoNotSend`", "never"},
		{VerdictThrottled, "429: rate limited, the request did not run", "every operation"},
		{VerdictUnauthorized, "401: the request did not run", "every operation, once, with a new token, unless the token is fixed; once more if that token was from a `TokenStore` and is rejected too"},
		{VerdictUnknown, "5xx, 408, a lost connection, a truncated response, or a timeout after bytes were written: the request may have run", "only if a retry does no harm"},
		{VerdictRejected, "any other 4xx, or a 3xx", "never"},
		{VerdictBlocked, "a 403 without JSON", "never; the client sends one request at a time, then stops for a while"},
		{VerdictCanceled, "your context ended", "never"},
	} {
		b.WriteString("| " + string(row.verdict) + " | " + row.what + " | " + row.again + " |\n")
	}
	return b.String()
}()

// TestPagesHaveTheTables compares README.md and docs/retries.md with the code.
func TestPagesHaveTheTables(t *testing.T) {
	for _, table := range []struct{ page, marker, want string }{
		{"README.md", "operations", operationTable()},
		{"docs/retries.md", "outcomes", outcomeTable},
	} {
		page, err := os.ReadFile(table.page)
		require.NoError(t, err)
		_, rest, found := strings.Cut(string(page), "<!-- "+table.marker+" -->")
		require.True(t, found, "%s lacks the marker <!-- %s -->", table.page, table.marker)
		got, _, found := strings.Cut(rest, "<!-- /"+table.marker+" -->")
		require.True(t, found, "%s lacks the marker <!-- /%s -->", table.page, table.marker)
		assert.Equal(t, table.want, strings.TrimSpace(got)+"\n", "the table between the markers %s", table.marker)
	}
}

func TestVersionIsFromBuildInfo(t *testing.T) {
	module := func(version string, replace *debug.Module) *debug.Module {
		return &debug.Module{Path: "github.com/brellium/brellium-go", Version: version, Replace: replace}
	}
	other := &debug.Module{Path: "example.com/clinic", Version: "v9.9.9"}
	for name, tt := range map[string]struct {
		info *debug.BuildInfo
		want string
	}{
		"a dependency":              {&debug.BuildInfo{Main: *other, Deps: []*debug.Module{other, module("v0.3.1", nil)}}, "0.3.1"},
		"replaced by a version":     {&debug.BuildInfo{Main: *other, Deps: []*debug.Module{module("v0.3.1", module("v0.3.2", nil))}}, "0.3.2"},
		"replaced by a directory":   {&debug.BuildInfo{Main: *other, Deps: []*debug.Module{module("v0.3.1", &debug.Module{Path: "../brellium-go"})}}, release},
		"the module itself":         {&debug.BuildInfo{Main: *module("v0.4.0", nil)}, "0.4.0"},
		"the module in development": {&debug.BuildInfo{Main: *module("(devel)", nil)}, release},
		"another program":           {&debug.BuildInfo{Main: *other}, release},
		"no build information":      {nil, release},
	} {
		assert.Equal(t, tt.want, versionIn(tt.info), name)
	}
}

// TestREADMEHasEveryMethod compares the table of services with the methods of the
// services, in any order.
func TestREADMEHasEveryMethod(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(readme), "| service | methods |\n|---|---|\n")
	require.True(t, found, "README.md lacks the table of services")
	table, _, _ = strings.Cut(table, "\n\n")
	got := map[string][]string{}
	for row := range strings.Lines(table) {
		names := strings.Split(row, "`")
		require.Greater(t, len(names), 3, row)
		for i := 3; i < len(names); i += 2 {
			got[names[1]] = append(got[names[1]], names[i])
		}
		slices.Sort(got[names[1]])
	}
	want := map[string][]string{}
	for i := range reflect.TypeFor[Client]().NumField() {
		field := reflect.TypeFor[Client]().Field(i)
		if !field.IsExported() {
			continue
		}
		for j := range field.Type.NumMethod() {
			want[field.Name] = append(want[field.Name], field.Type.Method(j).Name)
		}
	}
	assert.Equal(t, want, got)
}

// A call is one file, and the root has few: see CONTRIBUTING.md.
func TestTheLayoutStaysSmall(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	files = slices.DeleteFunc(files, func(name string) bool { return strings.HasSuffix(name, "_test.go") })
	assert.LessOrEqual(t, len(files), 25, "%q", files)
	call, err := os.ReadFile("call.go")
	require.NoError(t, err)
	assert.Less(t, bytes.Count(call, []byte("\n")), 400)
}
