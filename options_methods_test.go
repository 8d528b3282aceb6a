package brellium_test

import (
	"context"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/internal/testkit"
)

// optionCheck is a CallOption and how to see that it has an effect.
type optionCheck struct {
	option brellium.CallOption
	// status is that of every response; 0 is no response until the attempt ends.
	status int
	works  func(seen optionSeen) bool
}

// optionSeen is what a call with an option did.
type optionSeen struct {
	err      error
	requests []*http.Request
	bodies   []string
	ended    time.Duration // the first attempt without a response, after
	priority brellium.Priority
}

func (s optionSeen) text() string {
	if s.err == nil {
		return ""
	}
	return s.err.Error()
}

func optionChecks() map[string]optionCheck {
	var response brellium.Response
	var outcome brellium.EnsureOutcome
	once := func(s optionSeen) bool { return len(s.requests) == 1 }
	return map[string]optionCheck{
		"WithMaxRetries":     {brellium.WithMaxRetries(0), 429, once},
		"WithAttemptTimeout": {brellium.WithAttemptTimeout(3 * time.Second), 0, func(s optionSeen) bool { return s.ended == 3*time.Second }},
		"WithTotalTimeout":   {brellium.WithTotalTimeout(3 * time.Second), 0, func(s optionSeen) bool { return s.ended == 3*time.Second }},
		"WithPriority":       {brellium.WithPriority(brellium.Background), 400, func(s optionSeen) bool { return s.priority == brellium.Background }},
		"WithHeader":         {brellium.WithHeader("X-Option", "a"), 400, func(s optionSeen) bool { return s.requests[0].Header.Get("X-Option") == "a" }},
		"WithIdempotent":     {brellium.WithIdempotent(), 503, func(s optionSeen) bool { return len(s.requests) > 1 }},
		"WithQuery":          {brellium.WithQuery("option", "a"), 400, func(s optionSeen) bool { return s.requests[0].URL.Query().Get("option") == "a" }},
		"WithBodyField":      {brellium.WithBodyField("option", "a"), 400, func(s optionSeen) bool { return strings.Contains(s.bodies[0], `"option":"a"`) }},
		"WithOperation":      {brellium.WithOperation("an.option"), 400, func(s optionSeen) bool { return strings.Contains(s.text(), "an.option") }},
		"WithResponseInto":   {brellium.WithResponseInto(&response), 400, func(optionSeen) bool { return response.StatusCode == 400 }},
		"WithEnsureOutcome":  {brellium.WithEnsureOutcome(&outcome), 201, func(optionSeen) bool { return outcome == brellium.EnsureCreated }},
		// The list has two pages: the second is requested before the first is read.
		"WithPrefetch": {brellium.WithPrefetch(), 200, func(s optionSeen) bool { return s.err == errStopAtFirstItem && len(s.requests) == 2 }},
	}
}

// rejected reports whether a method rejects an option. Every other option has an
// effect.
func rejected(option, method string) bool {
	has := func(list ...string) bool { return slices.Contains(list, method) }
	switch option {
	case "WithPrefetch":
		return !strings.HasSuffix(method, ".All")
	case "WithEnsureOutcome":
		return !strings.HasSuffix(method, ".Ensure")
	case "WithOperation":
		return method != "Client.Do"
	case "WithBodyField": // what sends no body
		return !has("Client.Do", "Audits.Update", "Audits.BatchUpdate", "Documents.Create", "Documents.Upload", "Users.Create", "Users.Ensure",
			"EmailRecipients.Create", "EmailRecipients.Ensure")
	case "WithResponseInto": // what makes many requests
		return has("Audits.Follow", "Documents.Upload")
	case "WithQuery", "WithAttemptTimeout", "WithTotalTimeout", "WithPriority":
		return has("OAuth.CreateToken", "Documents.Put")
	case "WithHeader", "WithMaxRetries":
		return has("OAuth.CreateToken")
	}
	return false
}

// Each option of a call has an effect on each method, or is rejected by name
// before anything is sent.
func TestEveryOptionWorksOrIsRejectedByEveryMethod(t *testing.T) {
	checks := optionChecks()
	assert.ElementsMatch(t, exportedCallOptions(t), slices.Collect(maps.Keys(checks)), "a line for each CallOption")
	methods := methodsWithOptions(t)
	assert.GreaterOrEqual(t, len(methods), 26)
	for _, method := range slices.Sorted(maps.Keys(methods)) {
		for _, name := range slices.Sorted(maps.Keys(checks)) {
			t.Run(method+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					check := optionChecks()[name]
					seen := callWithOption(t, methods[method], check)
					if rejected(name, method) {
						assert.Empty(t, seen.requests)
						testkit.IsInvalid(t, seen.err, name, "")
						return
					}
					require.NotEmpty(t, seen.requests, "%v", seen.err)
					assert.True(t, check.works(seen), "the option has no effect: %v, %d requests", seen.err, len(seen.requests))
				})
			})
		}
	}
}

// callWithOption calls a method of a client whose requests all get the response
// that the check needs.
func callWithOption(t *testing.T, method func(*brellium.Client) reflect.Value, check optionCheck) (seen optionSeen) {
	var mu sync.Mutex
	transport := testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
		body := ""
		if r.Body != nil {
			data, _ := io.ReadAll(r.Body)
			body = string(data)
		}
		mu.Lock()
		seen.requests, seen.bodies = append(seen.requests, r), append(seen.bodies, body)
		first := len(seen.requests) == 1
		mu.Unlock()
		if check.status == 0 {
			begun := time.Now()
			<-r.Context().Done()
			if first {
				seen.ended = time.Since(begun)
			}
			return nil, r.Context().Err()
		}
		if check.status == 200 {
			page := `{"data":[{"audit_id":"1","document_id":"1","user_id":"1","email_recipient_id":"1"}],"has_more":true,"next_cursor":"2"}`
			if r.URL.Query().Get("cursor") != "" {
				page = `{"data":[],"has_more":false,"next_cursor":null}`
			}
			return testkit.Reply(200, nil, page), nil
		}
		return testkit.Reply(check.status, nil, `{"user_id":"1","email_recipient_id":"1","email":"casey@example.test"}`), nil
	})
	limiter := testkit.LimiterFunc(func(ctx context.Context) (brellium.Permit, error) {
		seen.priority = brellium.PriorityFromContext(ctx)
		return testkit.Permit{Results: new([]brellium.LimiterResult)}, nil
	})
	opts := []brellium.ClientOption{brellium.WithBaseURL("https://api.example.test"), testkit.WithTransport(transport), brellium.WithRateLimiter(limiter)}
	client, err := brellium.NewClient(append(opts, brellium.WithAccessToken("t"))...)
	require.NoError(t, err)
	m := method(client)
	if m.Type().Out(0) == reflect.TypeFor[*brellium.Token]() {
		client, err = brellium.NewClient(append(opts, brellium.WithClientCredentials("a", "b"))...)
		require.NoError(t, err)
		m = method(client)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	seen.err = callByReflection(t, m, append(argumentsOf(ctx, t, m.Type()), reflect.ValueOf(check.option)))
	synctest.Wait()
	return seen
}

// errStopAtFirstItem says that an iterator returned an item without an error.
var errStopAtFirstItem = &brellium.ValidationError{Field: "none", Reason: "an item was read"}

// callByReflection calls a method, reads an iterator up to its first item or
// error, and returns the error.
func callByReflection(t *testing.T, method reflect.Value, args []reflect.Value) error {
	results := method.Call(args)
	last := results[len(results)-1]
	if last.Kind() == reflect.Func {
		var failure error
		yield := reflect.MakeFunc(last.Type().In(0), func(pair []reflect.Value) []reflect.Value {
			if failure, _ = pair[1].Interface().(error); failure == nil {
				failure = errStopAtFirstItem
				synctest.Wait()
			}
			return []reflect.Value{reflect.ValueOf(false)}
		})
		last.Call([]reflect.Value{yield})
		return failure
	}
	require.True(t, last.Type().Implements(reflect.TypeFor[error]()), "the last result of a method is an error or an iterator")
	err, _ := last.Interface().(error)
	return err
}

// methodsWithOptions returns the methods that take CallOptions: those of every
// service of a client, and of the client.
func methodsWithOptions(t *testing.T) map[string]func(*brellium.Client) reflect.Value {
	methods := map[string]func(*brellium.Client) reflect.Value{}
	add := func(service string, typ reflect.Type, of func(*brellium.Client) reflect.Value) {
		for i := range typ.NumMethod() {
			m := typ.Method(i)
			if n := m.Type.NumIn(); m.Type.In(n-1) == reflect.TypeFor[[]brellium.CallOption]() {
				methods[service+"."+m.Name] = func(c *brellium.Client) reflect.Value { return of(c).Method(i) }
			}
		}
	}
	client := reflect.TypeFor[brellium.Client]()
	for i := range client.NumField() {
		if field := client.Field(i); field.IsExported() {
			add(field.Name, field.Type, func(c *brellium.Client) reflect.Value { return reflect.ValueOf(c).Elem().Field(i) })
		}
	}
	add("Client", reflect.PointerTo(client), func(c *brellium.Client) reflect.Value { return reflect.ValueOf(c) })
	require.NotEmpty(t, methods["Client.Do"])
	return methods
}

// argumentsOf returns valid arguments for a method, without its options.
func argumentsOf(ctx context.Context, t *testing.T, method reflect.Type) (args []reflect.Value) {
	var to brellium.UploadURL
	require.NoError(t, json.Unmarshal([]byte(`"https://storage.example.test/x"`), &to))
	if method.NumIn() == 6 { // Client.Do
		for _, arg := range []any{ctx, "POST", "/v2/things", map[string]string{"a": "b"}, new(struct{})} {
			args = append(args, reflect.ValueOf(arg))
		}
		return args
	}
	for i := range method.NumIn() - 1 {
		var arg any
		switch typ := method.In(i); typ {
		case reflect.TypeFor[context.Context]():
			arg = ctx
		case reflect.TypeFor[string]():
			arg = "casey@example.test" // an id and an email address
		case reflect.TypeFor[[]string]():
			arg = []string{"1"}
		case reflect.TypeFor[brellium.UploadURL]():
			arg = to
		case reflect.TypeFor[brellium.UploadFile]():
			arg = someFiles(1)[0]
		case reflect.TypeFor[[]brellium.UploadFile]():
			arg = someFiles(1)
		case reflect.TypeFor[brellium.AuditUpdateParams]():
			arg = brellium.AuditUpdateParams{Flags: []string{"a"}}
		case reflect.TypeFor[brellium.AuditBatchUpdateParams]():
			arg = brellium.AuditBatchUpdateParams{AuditIDs: []string{"1"}, Flags: []string{"a"}}
		case reflect.TypeFor[brellium.DocumentCreateParams]():
			arg = brellium.DocumentCreateParams{Documents: []brellium.DocumentInput{{Filename: "a.pdf"}}}
		case reflect.TypeFor[brellium.UserCreateParams]():
			arg = brellium.UserCreateParams{Email: "casey@example.test"}
		case reflect.TypeFor[brellium.EmailRecipientCreateParams]():
			arg = brellium.EmailRecipientCreateParams{Email: "casey@example.test"}
		default: // of a list, a checkpoint, options: the zero value is valid
			arg = reflect.Zero(typ).Interface()
		}
		args = append(args, reflect.ValueOf(arg))
	}
	return args
}

// exportedCallOptions returns the names of the functions that return a CallOption.
func exportedCallOptions(t *testing.T) (names []string) {
	entries, err := os.ReadDir(".")
	require.NoError(t, err)
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), ".go") || strings.HasSuffix(entry.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), entry.Name(), nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !f.Name.IsExported() || f.Type.Results == nil || len(f.Type.Results.List) != 1 {
				continue
			}
			if result, ok := f.Type.Results.List[0].Type.(*ast.Ident); ok && (result.Name == "CallOption" || result.Name == "Option") {
				names = append(names, f.Name.Name)
			}
		}
	}
	return names
}
