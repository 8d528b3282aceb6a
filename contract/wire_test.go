package contract_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

// apiHost is the host of the API in these tests.
const apiHost = "api.brellium.test"

// exchange is an operation and the status of a response.
type exchange struct {
	operation string
	status    int
}

// validator is a transport that validates every request and response against
// the document.
type validator struct {
	t      testing.TB
	next   http.RoundTripper
	router routers.Router

	mu     sync.Mutex
	seen   map[exchange]int
	record bool     // collect errors in bad instead of failing the test
	bad    []string // the errors
}

func newValidator(t testing.TB, document *openapi3.T, next http.RoundTripper) *validator {
	t.Helper()
	document.Servers = openapi3.Servers{{URL: "https://" + apiHost}}
	router, err := gorillamux.NewRouter(document)
	require.NoError(t, err)
	return &validator{t: t, next: next, router: router, seen: map[exchange]int{}}
}

func (v *validator) wrong(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	message, _, _ := strings.Cut(fmt.Sprintf(format, args...), "\n") // without the dump of the schema
	if v.record {
		v.bad = append(v.bad, message)
	} else {
		v.t.Error(message)
	}
}

func TestMain(m *testing.M) {
	openapi3filter.RegisterBodyDecoder("text/html", openapi3filter.PlainBodyDecoder)
	os.Exit(m.Run())
}

// options returns strict validation options.
func options() *openapi3filter.Options {
	return &openapi3filter.Options{
		IncludeResponseStatus:             true,
		RejectWhenRequestBodyNotSpecified: true,
		MultiError:                        true,
		AuthenticationFunc: func(_ context.Context, in *openapi3filter.AuthenticationInput) error {
			if header := in.RequestValidationInput.Request.Header["Authorization"]; len(header) != 1 || !strings.HasPrefix(header[0], "Bearer ") {
				return fmt.Errorf("no bearer token")
			}
			return nil
		},
	}
}

func (v *validator) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host != apiHost { // the storage host
		return v.next.RoundTrip(r)
	}
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		if err = r.Body.Close(); err != nil {
			return nil, err
		}
		if r.ContentLength != int64(len(body)) {
			v.wrong("%s %s: Content-Length %d, body %d bytes", r.Method, r.URL.Path, r.ContentLength, len(body))
		}
	}
	in, operation := v.request(r, body)
	sent := r.Clone(r.Context())
	if r.Body != nil {
		sent.Body = io.NopCloser(bytes.NewReader(body))
	}
	resp, err := v.next.RoundTrip(sent)
	if err != nil || in == nil {
		return resp, err
	}
	received, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(received))
	v.response(in, operation, resp, received)
	return resp, nil
}

// request validates a request and returns the input for validating its
// response, or nil if the document has no such operation.
func (v *validator) request(r *http.Request, body []byte) (*openapi3filter.RequestValidationInput, string) {
	copied := r.Clone(context.Background())
	copied.Body = io.NopCloser(bytes.NewReader(body))
	route, path, err := v.router.FindRoute(copied)
	if err != nil {
		v.wrong("%s %s: no operation in the document: %v", r.Method, r.URL.Path, err)
		return nil, ""
	}
	operation := route.Operation.OperationID
	in := &openapi3filter.RequestValidationInput{Request: copied, PathParams: path, Route: route, Options: options()}
	if err := openapi3filter.ValidateRequest(context.Background(), in); err != nil {
		v.wrong("%s: the request: %v", operation, err)
	}
	for key := range r.URL.Query() { // the validator accepts unknown ones
		if route.Operation.Parameters.GetByInAndName("query", key) == nil {
			v.wrong("%s: the document has no query parameter %s", operation, key)
		}
	}
	if len(body) > 0 && r.Header.Get("Content-Type") != "application/json" {
		v.wrong("%s: a body of type %q", operation, r.Header.Get("Content-Type"))
	}
	if len(r.URL.RawQuery) > 2048 {
		v.wrong("%s: a query of %d bytes", operation, len(r.URL.RawQuery))
	}
	return in, operation
}

// response validates a response.
func (v *validator) response(in *openapi3filter.RequestValidationInput, operation string, resp *http.Response, body []byte) {
	v.mu.Lock()
	v.seen[exchange{operation, resp.StatusCode}]++
	v.mu.Unlock()
	if len(body) == 0 && resp.Header.Get("Content-Type") == "" && resp.Header.Get("X-Request-Id") == "" {
		// A bare response of a gateway, without a body and the API's headers.
		if documented := in.Route.Operation.Responses.Status(resp.StatusCode); documented == nil || documented.Value.Content["text/html"] == nil {
			v.wrong("%s: a bare %d is not in the document", operation, resp.StatusCode)
		}
		return
	}
	if len(body) > 0 && (resp.StatusCode == 204) {
		v.wrong("%s: a 204 with a body", operation)
	}
	out := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in, Status: resp.StatusCode, Header: resp.Header,
		Body: io.NopCloser(bytes.NewReader(body)), Options: options(),
	}
	if err := openapi3filter.ValidateResponse(context.Background(), out); err != nil {
		v.wrong("%s: the response %d: %v", operation, resp.StatusCode, err)
	}
}

// world is an emulator and a client whose exchanges are validated.
type world struct {
	*testing.T
	emu    *brelliumtest.Emulator
	client *brellium.Client
	wire   *validator
}

func newWorld(t *testing.T, wire *validator, opts ...brelliumtest.Option) *world {
	t.Helper()
	emu := brelliumtest.New(opts...)
	wire.next = emu.Transport()
	client, err := emu.Client(brellium.WithHTTPClient(&http.Client{Transport: wire}))
	require.NoError(t, err)
	require.Equal(t, "https://"+apiHost, emu.BaseURL())
	return &world{t, emu, client, wire}
}

const email = "casey@example.test"

// pages lists with each params, reads a second page if there is one, and checks
// that invalid params are an error.
func pages[P, T any](w *world, list func(context.Context, P, ...brellium.CallOption) (*brellium.Page[T], error), invalid P, params ...P) {
	for _, p := range params {
		page, err := list(w.Context(), p)
		require.NoError(w, err)
		if page.HasMore {
			require.NoError(w, errOf(page.Next(w.Context())))
		}
	}
	require.Error(w, errOf(list(w.Context(), invalid)))
}

// methods calls each method of each service with everything it can send.
var methods = map[string]func(w *world){
	"Audits.Retrieve": func(w *world) {
		require.NoError(w, errOf(w.client.Audits.Retrieve(w.Context(), brelliumtest.SampleAuditID)))
		require.ErrorIs(w, errOf(w.client.Audits.Retrieve(w.Context(), "a/b c%2F?#")), brellium.ErrNotFound)
	},
	"Audits.List": func(w *world) {
		w.emu.SeedAudits(200)
		at := time.Date(2025, 1, 2, 3, 4, 5, 678, time.FixedZone("", 3600))
		pages(w, w.client.Audits.List, brellium.AuditListParams{Cursor: "no-cursor"}, []brellium.AuditListParams{
			{}, {Limit: 1}, {Limit: 100}, {Status: brellium.AuditStatusTodo}, {Flags: []string{"Failed", "Missing Signature"}},
			{SetID: "s", DocumentID: "d & e", CreatedAfter: at, CreatedBefore: at, UpdatedAfter: at, UpdatedBefore: at},
		}...)
	},
	"Audits.All": func(w *world) {
		w.emu.SeedAudits(50)
		for _, err := range w.client.Audits.All(w.Context(), brellium.AuditListParams{Limit: 20}, brellium.WithPrefetch()) {
			require.NoError(w, err)
		}
	},
	"Audits.Update": func(w *world) {
		for _, flags := range [][]string{{}, {"Failed", "é\u2028<>&"}} {
			require.NoError(w, errOf(w.client.Audits.Update(w.Context(), brelliumtest.SampleAuditID, brellium.AuditUpdateParams{Flags: flags})))
		}
		require.ErrorIs(w, errOf(w.client.Audits.Update(w.Context(), "none", brellium.AuditUpdateParams{Flags: []string{}})), brellium.ErrNotFound)
	},
	"Audits.BatchUpdate": func(w *world) {
		for _, flags := range [][]string{{}, {"Failed"}} {
			_, err := w.client.Audits.BatchUpdate(w.Context(), brellium.AuditBatchUpdateParams{
				AuditIDs: []string{brelliumtest.SampleAuditID, "none"}, Flags: flags,
			})
			require.NoError(w, err)
		}
	},
	"Audits.Follow": func(w *world) {
		w.emu.SeedAudits(30)
		n := 0
		for batch, err := range w.client.Audits.Follow(w.Context(), brellium.FollowCheckpoint{}, brellium.FollowOptions{CatchUp: true}) {
			require.NoError(w, err)
			n += len(batch.Audits)
		}
		require.NotZero(w, n)
	},
	"Documents.Create": func(w *world) {
		for range 2 {
			_, err := w.client.Documents.Create(w.Context(), brellium.DocumentCreateParams{Documents: []brellium.DocumentInput{
				{Filename: "a.pdf"},
				{Filename: "b.pdf", ExternalID: "b", DocType: "note", ExternalMetadata: map[string]any{"n": 1.5, "deep": map[string]any{"list": []int{1}}}},
			}})
			require.NoError(w, err)
		}
	},
	"Documents.Retrieve": func(w *world) {
		for _, input := range []brellium.DocumentInput{{Filename: "a.pdf"}, {Filename: "b.pdf", ExternalID: "b", ExternalMetadata: map[string]any{"n": 1}}} {
			made, err := w.client.Documents.Create(w.Context(), brellium.DocumentCreateParams{Documents: []brellium.DocumentInput{input}})
			require.NoError(w, err)
			require.NoError(w, errOf(w.client.Documents.Retrieve(w.Context(), made.Documents[0].DocumentID)))
		}
		require.ErrorIs(w, errOf(w.client.Documents.Retrieve(w.Context(), "none")), brellium.ErrNotFound)
	},
	"Documents.List": func(w *world) {
		w.documents(30)
		pages(w, w.client.Documents.List, brellium.DocumentListParams{Cursor: "no-cursor"},
			[]brellium.DocumentListParams{{}, {Limit: 5}, {ExternalID: "external-1"}}...)
	},
	"Documents.All": func(w *world) {
		w.documents(30)
		for _, err := range w.client.Documents.All(w.Context(), brellium.DocumentListParams{}) {
			require.NoError(w, err)
		}
	},
	"Documents.Upload": func(w *world) {
		files := []brellium.UploadFile{brellium.FileFromBytes("a.pdf", []byte("one")), brellium.FileFromBytes("b.pdf", []byte("two"))}
		files[1].ExternalMetadata, files[1].DocType = map[string]any{"n": 1}, "note"
		for range 2 {
			require.NoError(w, errOf(w.client.Documents.Upload(w.Context(), files, brellium.UploadOptions{})))
		}
		w.emu.FailDocument(w.emu.Documents()[0].DocumentID)
		time.Sleep(time.Minute) // until the other document has its audit
		for _, err := range w.client.Documents.All(w.Context(), brellium.DocumentListParams{}) {
			require.NoError(w, err)
		}
	},
	"Documents.WaitForAudit": func(w *world) {
		results, err := w.client.Documents.Upload(w.Context(), []brellium.UploadFile{brellium.FileFromBytes("a.pdf", []byte("one"))}, brellium.UploadOptions{})
		require.NoError(w, err)
		require.NoError(w, errOf(w.client.Documents.WaitForAudit(w.Context(), results[0].DocumentID)))
	},
	"Documents.WaitForFinishedAudit": func(w *world) {
		results, err := w.client.Documents.Upload(w.Context(), []brellium.UploadFile{brellium.FileFromBytes("a.pdf", []byte("one"))}, brellium.UploadOptions{})
		require.NoError(w, err)
		require.NoError(w, errOf(w.client.Documents.WaitForFinishedAudit(w.Context(), results[0].DocumentID)))
	},
	"Documents.WaitForAudits": func(w *world) {
		results, err := w.client.Documents.Upload(w.Context(), []brellium.UploadFile{brellium.FileFromBytes("a.pdf", []byte("one")), brellium.FileFromBytes("b.pdf", []byte("two"))}, brellium.UploadOptions{})
		require.NoError(w, err)
		for result, err := range w.client.Documents.WaitForAudits(w.Context(), []string{results[0].DocumentID, results[1].DocumentID}) {
			require.NoError(w, err)
			require.NoError(w, result.Err)
		}
	},
	"Documents.Put": func(w *world) {
		made, err := w.client.Documents.Create(w.Context(), brellium.DocumentCreateParams{Documents: []brellium.DocumentInput{{Filename: "a.pdf"}}})
		require.NoError(w, err)
		require.NoError(w, w.client.Documents.Put(w.Context(), made.Documents[0].UploadURL, brellium.FileFromBytes("a.pdf", []byte("one"))))
		got, err := w.client.Documents.Retrieve(w.Context(), made.Documents[0].DocumentID)
		require.NoError(w, err)
		require.True(w, got.UploadURL.IsZero())
	},
	"Users.Create": func(w *world) {
		require.NoError(w, errOf(w.client.Users.Create(w.Context(), brellium.UserCreateParams{Email: email})))
		_, err := w.client.Users.Create(w.Context(), brellium.UserCreateParams{
			Email: "robin@example.test", Name: "Robin", Metadata: map[string]any{"n": 1}, Attributes: map[string]any{},
		})
		require.NoError(w, err)
		require.ErrorIs(w, errOf(w.client.Users.Create(w.Context(), brellium.UserCreateParams{Email: email})), brellium.ErrConflict)
		require.Error(w, errOf(w.client.Users.Create(w.Context(), brellium.UserCreateParams{Email: "@@"})))
	},
	"Users.Ensure": func(w *world) {
		for _, fault := range []brelliumtest.Fault{brelliumtest.OK(), brelliumtest.OK(), brelliumtest.InviteFailed()} {
			w.emu.Inject(brelliumtest.OpUserCreate, fault)
			require.NoError(w, errOf(w.client.Users.Ensure(w.Context(), brellium.UserCreateParams{Email: email})))
			w.emu.SignIn(email)
		}
	},
	"Users.Retrieve": func(w *world) {
		made, err := w.client.Users.Create(w.Context(), brellium.UserCreateParams{Email: email, Name: "Casey"})
		require.NoError(w, err)
		require.NoError(w, errOf(w.client.Users.Retrieve(w.Context(), made.UserID)))
		require.ErrorIs(w, errOf(w.client.Users.Retrieve(w.Context(), "none")), brellium.ErrNotFound)
	},
	"Users.List": func(w *world) {
		w.people(30)
		pages(w, w.client.Users.List, brellium.UserListParams{Cursor: "no-cursor"},
			[]brellium.UserListParams{{}, {Limit: 5}, {Email: "1+tag@example.test"}}...)
	},
	"Users.All": func(w *world) {
		w.people(30)
		for _, err := range w.client.Users.All(w.Context(), brellium.UserListParams{}) {
			require.NoError(w, err)
		}
	},
	"Users.Delete": func(w *world) {
		made, err := w.client.Users.Create(w.Context(), brellium.UserCreateParams{Email: email})
		require.NoError(w, err)
		w.emu.Inject(brelliumtest.OpUserDelete, brelliumtest.RevokeFailed())
		require.NoError(w, w.client.Users.Delete(w.Context(), made.UserID))
		require.ErrorIs(w, w.client.Users.Delete(w.Context(), made.UserID), brellium.ErrNotFound)
	},
	"EmailRecipients.Create": func(w *world) {
		for _, params := range []brellium.EmailRecipientCreateParams{{Email: email}, {Email: "robin@example.test", Name: "Robin"}} {
			require.NoError(w, errOf(w.client.EmailRecipients.Create(w.Context(), params)))
		}
		require.ErrorIs(w, errOf(w.client.EmailRecipients.Create(w.Context(), brellium.EmailRecipientCreateParams{Email: email})), brellium.ErrConflict)
		require.Error(w, errOf(w.client.EmailRecipients.Create(w.Context(), brellium.EmailRecipientCreateParams{Email: "@@"})))
	},
	"EmailRecipients.Ensure": func(w *world) {
		for range 2 {
			require.NoError(w, errOf(w.client.EmailRecipients.Ensure(w.Context(), brellium.EmailRecipientCreateParams{Email: email, Name: "Casey"})))
		}
	},
	"EmailRecipients.Retrieve": func(w *world) {
		made, err := w.client.EmailRecipients.Create(w.Context(), brellium.EmailRecipientCreateParams{Email: email})
		require.NoError(w, err)
		require.NoError(w, errOf(w.client.EmailRecipients.Retrieve(w.Context(), made.EmailRecipientID)))
		require.ErrorIs(w, errOf(w.client.EmailRecipients.Retrieve(w.Context(), "none")), brellium.ErrNotFound)
	},
	"EmailRecipients.List": func(w *world) {
		w.people(30)
		pages(w, w.client.EmailRecipients.List, brellium.EmailRecipientListParams{Cursor: "no-cursor"},
			[]brellium.EmailRecipientListParams{{}, {Limit: 5}, {Email: "1+tag@example.test"}}...)
	},
	"EmailRecipients.All": func(w *world) {
		w.people(30)
		for _, err := range w.client.EmailRecipients.All(w.Context(), brellium.EmailRecipientListParams{}) {
			require.NoError(w, err)
		}
	},
	"EmailRecipients.FindByEmail": func(w *world) {
		w.people(3)
		require.NoError(w, errOf(w.client.EmailRecipients.FindByEmail(w.Context(), "1+tag@example.test")))
		require.ErrorIs(w, errOf(w.client.EmailRecipients.FindByEmail(w.Context(), email)), brellium.ErrNotFound)
	},
	"OAuth.CreateToken": func(w *world) {
		require.NoError(w, errOf(w.client.OAuth.CreateToken(w.Context())))
		w.emu.RevokeTokens()
		require.NoError(w, errOf(w.client.Audits.Retrieve(w.Context(), brelliumtest.SampleAuditID)))
	},
}

// errOf returns the error of a call.
func errOf[T any](_ T, err error) error { return err }

// documents creates n documents.
func (w *world) documents(n int) {
	for i := range n {
		_, err := w.client.Documents.Create(w.Context(), brellium.DocumentCreateParams{Documents: []brellium.DocumentInput{
			{Filename: "a.pdf", ExternalID: fmt.Sprint("external-", i)},
		}})
		require.NoError(w, err)
	}
}

// people creates n users and n email recipients.
func (w *world) people(n int) {
	for i := range n {
		require.NoError(w, errOf(w.client.Users.Create(w.Context(), brellium.UserCreateParams{Email: fmt.Sprint(i, "+tag@example.test")})))
		require.NoError(w, errOf(w.client.EmailRecipients.Create(w.Context(), brellium.EmailRecipientCreateParams{Email: fmt.Sprint(i, "+tag@example.test")})))
	}
}

// faults are the faults that any call can have.
var faults = map[string]brelliumtest.Fault{
	"429":      brelliumtest.Status(429, "RATE_LIMITED"),
	"401":      brelliumtest.RevokedToken(),
	"503":      brelliumtest.Status(503, "UNAVAILABLE"),
	"502":      brelliumtest.Status(502, "BAD_GATEWAY").AfterWork(),
	"HTML 504": brelliumtest.HTML(504),
	"bare 502": brelliumtest.Bare(502),
	"bare 403": brelliumtest.Bare(403),
	"HTML 403": brelliumtest.Blocked(),
	"414":      brelliumtest.Bare(414),
	"431":      brelliumtest.Bare(431),
}

func TestEveryRequestAndResponseIsInTheDocument(t *testing.T) {
	wire := newValidator(t, strictDocument(t), nil)
	for name, call := range methods {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				wire.t = t
				call(newWorld(t, wire))
			})
		})
	}
	t.Run("faults", func(t *testing.T) {
		for name, fault := range faults {
			for operation, send := range simplest() {
				synctest.Test(t, func(t *testing.T) {
					wire.t = t
					w := newWorld(t, wire)
					_, err := w.client.OAuth.CreateToken(t.Context())
					require.NoError(t, err)
					w.emu.Inject(operation, fault)
					_ = send(w) // only the exchange is checked
					assert.Zero(t, w.emu.PendingFaults(operation), "%s did not apply to %s", name, operation)
				})
			}
		}
	})
	t.Run("the token endpoint", func(t *testing.T) {
		for _, fault := range []brelliumtest.Fault{
			brelliumtest.Status(429, "RATE_LIMITED"), brelliumtest.Status(502, "BAD_GATEWAY"), brelliumtest.Status(403, "access_denied"),
			brelliumtest.Status(401, "invalid_client"), brelliumtest.Bare(413), brelliumtest.HTML(503), brelliumtest.Bare(403), brelliumtest.Bare(414), brelliumtest.Bare(431),
			brelliumtest.Respond(400, "application/json", `{"error":"invalid_request","error_description":"what is missing"}`),
			brelliumtest.Respond(403, "application/json", `{"error":"access_denied"}`),
		} {
			synctest.Test(t, func(t *testing.T) {
				wire.t = t
				w := newWorld(t, wire)
				w.emu.Inject(brelliumtest.OpTokenCreate, fault)
				_, _ = w.client.OAuth.CreateToken(t.Context())
				assert.Zero(t, w.emu.PendingFaults(brelliumtest.OpTokenCreate))
			})
		}
	})
	t.Run("bodies that are too large", func(t *testing.T) {
		for operation, send := range simplest() {
			if !slices.Contains([]string{"POST", "PATCH"}, strings.ToUpper(methodOf(t, operation))) {
				continue
			}
			synctest.Test(t, func(t *testing.T) {
				wire.t = t
				w := newWorld(t, wire)
				w.emu.Inject(operation, brelliumtest.Bare(413))
				assert.Error(t, send(w))
			})
		}
	})
	t.Run("invalid requests", func(t *testing.T) {
		for operation, send := range simplest() {
			synctest.Test(t, func(t *testing.T) {
				wire.t = t
				w := newWorld(t, wire)
				if !documented(t, operation, "400") {
					return
				}
				w.emu.Inject(operation, brelliumtest.Status(400, "INVALID_REQUEST"))
				assert.Error(t, send(w))
			})
		}
	})

	wire.t = t
	t.Run("every documented status occurred", func(t *testing.T) {
		document, _ := readDocument(t)
		for path, item := range at(document, "paths") {
			for method, op := range item.(node) {
				op, ok := op.(node)
				if !ok {
					continue
				}
				for status := range at(op, "responses") {
					seen := 0
					for x, n := range wire.seen {
						if x.operation == op["operationId"] && strings.HasPrefix(fmt.Sprint(x.status), strings.TrimRight(status, "X")) {
							seen += n
						}
					}
					assert.NotZero(t, seen, "%s %s: no response with %s", method, path, status)
				}
			}
		}
	})
}

// simplest sends each operation once, except oauth.token.
func simplest() map[string]func(w *world) error {
	return map[string]func(w *world) error{
		brelliumtest.OpAuditList:     func(w *world) error { return errOf(w.client.Audits.List(w.Context(), brellium.AuditListParams{})) },
		brelliumtest.OpAuditRetrieve: func(w *world) error { return errOf(w.client.Audits.Retrieve(w.Context(), brelliumtest.SampleAuditID)) },
		brelliumtest.OpAuditUpdate: func(w *world) error {
			return errOf(w.client.Audits.Update(w.Context(), brelliumtest.SampleAuditID, brellium.AuditUpdateParams{Flags: []string{"Failed"}}))
		},
		brelliumtest.OpAuditBatchUpdate: func(w *world) error {
			return errOf(w.client.Audits.BatchUpdate(w.Context(), brellium.AuditBatchUpdateParams{AuditIDs: []string{"x"}, Flags: []string{}}))
		},
		brelliumtest.OpDocumentCreate: func(w *world) error {
			return errOf(w.client.Documents.Create(w.Context(), brellium.DocumentCreateParams{Documents: []brellium.DocumentInput{{Filename: "a.pdf"}}}))
		},
		brelliumtest.OpDocumentRetrieve: func(w *world) error { return errOf(w.client.Documents.Retrieve(w.Context(), "x")) },
		brelliumtest.OpDocumentList: func(w *world) error {
			return errOf(w.client.Documents.List(w.Context(), brellium.DocumentListParams{}))
		},
		brelliumtest.OpUserCreate: func(w *world) error {
			return errOf(w.client.Users.Create(w.Context(), brellium.UserCreateParams{Email: email}))
		},
		brelliumtest.OpUserRetrieve: func(w *world) error { return errOf(w.client.Users.Retrieve(w.Context(), "x")) },
		brelliumtest.OpUserList:     func(w *world) error { return errOf(w.client.Users.List(w.Context(), brellium.UserListParams{})) },
		brelliumtest.OpUserDelete: func(w *world) error {
			return w.client.Users.Delete(w.Context(), "x")
		},
		brelliumtest.OpEmailRecipientCreate: func(w *world) error {
			return errOf(w.client.EmailRecipients.Create(w.Context(), brellium.EmailRecipientCreateParams{Email: email}))
		},
		brelliumtest.OpEmailRecipientRetrieve: func(w *world) error { return errOf(w.client.EmailRecipients.Retrieve(w.Context(), "x")) },
		brelliumtest.OpEmailRecipientList: func(w *world) error {
			return errOf(w.client.EmailRecipients.List(w.Context(), brellium.EmailRecipientListParams{}))
		},
	}
}

// operation returns an operation of the document and its method.
func operation(t testing.TB, id string) (string, node) {
	t.Helper()
	document, _ := readDocument(t)
	for _, item := range at(document, "paths") {
		for method, op := range item.(node) {
			if op, ok := op.(node); ok && op["operationId"] == id {
				return method, op
			}
		}
	}
	t.Fatalf("the document has no operation %s", id)
	return "", nil
}

func methodOf(t testing.TB, id string) string {
	method, _ := operation(t, id)
	return method
}

func documented(t testing.TB, id, status string) bool {
	_, op := operation(t, id)
	return at(op, "responses")[status] != nil
}

// Every new method of a service must be added to methods.
func TestMethodsIsComplete(t *testing.T) {
	client := reflect.TypeFor[brellium.Client]()
	n := 0
	for i := range client.NumField() {
		field := client.Field(i)
		if !field.IsExported() {
			continue
		}
		for j := range field.Type.NumMethod() {
			method := field.Type.Method(j)
			if method.Type.NumIn() < 2 || method.Type.In(1) != reflect.TypeFor[context.Context]() {
				continue // it sends nothing
			}
			n++
			assert.NotNil(t, methods[field.Name+"."+method.Name], "%s.%s", field.Name, method.Name)
		}
	}
	assert.Equal(t, len(methods), n)
}

func TestValidatorFindsErrors(t *testing.T) {
	respond := func(status int, header http.Header, body string) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
		})
	}
	good := http.Header{
		"Content-Type": {"application/json"}, "X-Request-Id": {"r"}, "Authorization": {"Bearer x"},
		"Ratelimit-Limit": {"100"}, "Ratelimit-Remaining": {"99"}, "Ratelimit-Reset": {"0"},
	}
	without := func(key string) http.Header {
		h := good.Clone()
		delete(h, key)
		return h
	}
	with := func(key, value string) http.Header {
		h := good.Clone()
		h.Set(key, value)
		return h
	}
	const user = `{"user_id":"u","object":"user","email":"a@b","created_at":"2025-01-02T03:04:05Z"}`
	for name, c := range map[string]struct {
		method, path, body string
		request            http.Header
		status             int
		header             http.Header
		response           string
		wrong              string // part of the error, empty if valid
	}{
		"valid":                       {"GET", "/v2/users/u", "", good, 200, good, user, ""},
		"an unknown path":             {"GET", "/v2/things", "", good, 200, good, user, "no operation"},
		"an unknown method":           {"PUT", "/v2/users/u", "", good, 200, good, user, "no operation"},
		"an unknown query parameter":  {"GET", "/v2/users?mail=a@b", "", good, 400, good, `{"error":{"type":"t","code":"c","message":"m","request_id":"r"}}`, "no query parameter mail"},
		"a limit out of range":        {"GET", "/v2/users?limit=101", "", good, 429, good, user, "limit"},
		"an invalid time":             {"GET", "/v2/audits?created_after=today", "", good, 200, good, `{"object":"list","data":[],"has_more":false}`, "created_after"},
		"no token":                    {"GET", "/v2/users/u", "", without("Authorization"), 200, good, user, "no bearer token"},
		"an unexpected body":          {"GET", "/v2/users/u", "{}", good, 200, good, user, "not allowed"},
		"an unknown field sent":       {"POST", "/v2/users", `{"email":"a@b","mail":"x"}`, good, 201, good, user, "mail"},
		"a missing field":             {"POST", "/v2/users", `{"name":"x"}`, good, 201, good, user, "email"},
		"flags that are null":         {"PATCH", "/v2/audits/a", `{"flags":null}`, good, 404, good, `{"error":{"type":"t","code":"RATE_LIMITED","message":"m","request_id":"r"}}`, "flags"},
		"another type of body":        {"POST", "/v2/users", `{"email":"a@b"}`, with("Content-Type", "text/plain"), 201, good, user, "text/plain"},
		"an unknown field received":   {"GET", "/v2/users/u", "", good, 200, good, `{"user_id":"u","email":"a@b","extra":1}`, "extra"},
		"a missing id":                {"GET", "/v2/users/u", "", good, 200, good, `{"email":"a@b"}`, "user_id"},
		"a field of another type":     {"GET", "/v2/users/u", "", good, 200, good, `{"user_id":7,"email":"a@b"}`, "user_id"},
		"an invalid time received":    {"GET", "/v2/users/u", "", good, 200, good, `{"user_id":"u","email":"a@b","created_at":"now"}`, "created_at"},
		"an unknown field in an item": {"GET", "/v2/users", "", good, 200, good, `{"object":"list","data":[{"user_id":"u","email":"a@b","extra":1}],"has_more":false}`, "extra"},
		"an unknown field of a list":  {"GET", "/v2/users", "", good, 200, good, `{"object":"list","data":[],"has_more":false,"total":1}`, "total"},
		"an unknown status":           {"GET", "/v2/users/u", "", good, 202, good, user, "status is not supported"},
		"no request id":               {"GET", "/v2/users/u", "", good, 200, without("X-Request-Id"), user, "x-request-id"},
		"no rate limit":               {"GET", "/v2/users/u", "", good, 200, without("Ratelimit-Remaining"), user, "Remaining"},
		"an invalid rate limit":       {"GET", "/v2/users/u", "", good, 200, with("Ratelimit-Reset", "soon"), user, "Reset"},
		"a 429 without Retry-After":   {"GET", "/v2/users/u", "", good, 429, good, `{"error":{"type":"t","code":"RATE_LIMITED","message":"m","request_id":"r"}}`, "Retry-After"},
		"no envelope":                 {"GET", "/v2/users/u", "", good, 404, good, `{"message":"m"}`, "error"},
		"an HTML response":            {"GET", "/v2/users/u", "", good, 200, with("Content-Type", "text/html"), "<html>", "text/html"},
		"an empty response":           {"GET", "/v2/users/u", "", good, 200, http.Header{}, "", "bare 200"},
	} {
		t.Run(name, func(t *testing.T) {
			wire := newValidator(t, strictDocument(t), respond(c.status, c.header, c.response))
			wire.record = true
			target, err := url.Parse("https://" + apiHost + c.path)
			require.NoError(t, err)
			r := &http.Request{Method: c.method, URL: target, Host: apiHost, Header: c.request.Clone(), ContentLength: int64(len(c.body))}
			if c.body == "" {
				r.Header.Del("Content-Type")
			} else {
				r.Body = io.NopCloser(strings.NewReader(c.body))
			}
			resp, err := wire.RoundTrip(r)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			if c.wrong == "" {
				assert.Empty(t, wire.bad)
				return
			}
			assert.Contains(t, strings.Join(wire.bad, "\n"), c.wrong)
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
