package brellium

import (
	"bytes"
	"cmp"
	"context"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/brellium/brellium-go/internal/jsonscan"
	"github.com/brellium/brellium-go/internal/wire"
)

// retryRule says when an operation may be retried although the attempt before
// may have run: after a 5xx, a 408, a timeout or a lost connection.
type retryRule string

const (
	retryAlways        retryRule = "yes"
	retryNever         retryRule = "no"
	retryIfExternalIDs retryRule = "if every document has an external_id"
)

// operation is one operation of the API. Retry policy, errors, log records and
// spans are keyed by it.
type operation struct {
	// name is the service and the method in the API's words.
	name   string
	method string
	// path is the template; it has at most one {placeholder}.
	path  string
	retry retryRule
	// write is false for a read, whose outcome does not matter where the
	// response is lost.
	write bool
	// goneIsDone: a 404 on a retry, after an attempt that may have run, means
	// that the earlier attempt succeeded.
	goneIsDone bool
}

// The operations of the API. The column retry is the guide's table "Decide what
// is safe to retry"; README.md prints it, and a test compares the two.
var (
	opAuditsList              = &operation{name: "audits.list", method: http.MethodGet, path: "/v2/audits", retry: retryAlways}
	opAuditsRetrieve          = &operation{name: "audits.retrieve", method: http.MethodGet, path: "/v2/audits/{audit_id}", retry: retryAlways}
	opAuditsUpdate            = &operation{name: "audits.update", method: http.MethodPatch, path: "/v2/audits/{audit_id}", retry: retryAlways, write: true}
	opAuditsBatchUpdate       = &operation{name: "audits.batch_update", method: http.MethodPost, path: "/v2/audits/batch_update", retry: retryAlways, write: true}
	opDocumentsCreate         = &operation{name: "documents.create", method: http.MethodPost, path: "/v2/documents", retry: retryIfExternalIDs, write: true}
	opDocumentsList           = &operation{name: "documents.list", method: http.MethodGet, path: "/v2/documents", retry: retryAlways}
	opDocumentsRetrieve       = &operation{name: "documents.retrieve", method: http.MethodGet, path: "/v2/documents/{document_id}", retry: retryAlways}
	opDocumentsPut            = &operation{name: "documents.put", method: http.MethodPut, path: "{upload_url}", retry: retryAlways, write: true}
	opUsersCreate             = &operation{name: "users.create", method: http.MethodPost, path: "/v2/users", retry: retryNever, write: true}
	opUsersList               = &operation{name: "users.list", method: http.MethodGet, path: "/v2/users", retry: retryAlways}
	opUsersRetrieve           = &operation{name: "users.retrieve", method: http.MethodGet, path: "/v2/users/{user_id}", retry: retryAlways}
	opUsersDelete             = &operation{name: "users.delete", method: http.MethodDelete, path: "/v2/users/{user_id}", retry: retryAlways, write: true, goneIsDone: true}
	opEmailRecipientsCreate   = &operation{name: "email_recipients.create", method: http.MethodPost, path: "/v2/email_recipients", retry: retryNever, write: true}
	opEmailRecipientsList     = &operation{name: "email_recipients.list", method: http.MethodGet, path: "/v2/email_recipients", retry: retryAlways}
	opEmailRecipientsRetrieve = &operation{name: "email_recipients.retrieve", method: http.MethodGet, path: "/v2/email_recipients/{email_recipient_id}", retry: retryAlways}
	// A token request changes no records, but each one counts against the
	// endpoint's own limit, so its attempts are few.
	opOAuthToken = &operation{name: "oauth.token", method: http.MethodPost, path: "/v2/oauth/token", retry: retryAlways}
)

// operations is the whole table, in the order in which it is printed.
var operations = []*operation{
	opAuditsList, opAuditsRetrieve, opAuditsUpdate, opAuditsBatchUpdate,
	opDocumentsCreate, opDocumentsList, opDocumentsRetrieve, opDocumentsPut,
	opUsersCreate, opUsersList, opUsersRetrieve, opUsersDelete,
	opEmailRecipientsCreate, opEmailRecipientsList, opEmailRecipientsRetrieve,
	opOAuthToken,
}

// customOperation is the operation of Client.Do. It has no path, since the
// caller's may contain ids.
func customOperation(method, name string) *operation {
	if name == "" {
		name = "client.do"
	}
	if method == http.MethodGet || method == http.MethodHead {
		return &operation{name: name, method: method, retry: retryAlways}
	}
	return &operation{name: name, method: method, retry: retryNever, write: true}
}

// maxQuery is the longest query string that the API accepts, in bytes; a longer
// one gets a bare 403.
const maxQuery = 2048

// request is what a resource method passes to the core: an operation and its
// values.
type request struct {
	op          *operation
	id, idField string // fills the path's placeholder; the field's name in errors
	query       string
	body        any
	email       string // that the resource of the response must have
	retryable   bool   // a retry does no harm although an earlier attempt may have run
	path        string // replaces the operation's template (Client.Do)
}

// url is the one place where a URL is built: base path, template, and the id
// escaped once.
func (r *request) url(base *url.URL) (url.URL, error) {
	if len(r.query) > maxQuery {
		return url.URL{}, &ValidationError{Field: "query", Reason: "is longer than 2,048 bytes, which the API rejects; use fewer or shorter filters"}
	}
	prefix, last, escaped := r.op.path, "", ""
	if r.path != "" {
		last, _ = url.PathUnescape(r.path)
		escaped = r.path
	} else if start, _, ok := strings.Cut(r.op.path, "{"); ok {
		if err := validateID(r.idField, r.id); err != nil {
			return url.URL{}, err
		}
		prefix, last, escaped = start, r.id, url.PathEscape(r.id)
	}
	u := url.URL{Scheme: base.Scheme, Host: base.Host, Path: base.Path + prefix + last, RawQuery: r.query}
	if escaped != last || base.RawPath != "" {
		u.RawPath = base.EscapedPath() + prefix + escaped
	}
	return u, nil
}

// withParameter sets a parameter of an encoded query, and leaves the others as they
// are.
func withParameter(query, key, value string) string {
	if query = withoutParameter(query, key); query != "" {
		query += "&"
	}
	return query + url.QueryEscape(key) + "=" + url.QueryEscape(value)
}

func withoutParameter(query, key string) string {
	var kept []string
	for part := range strings.SplitSeq(query, "&") {
		escaped, _, _ := strings.Cut(part, "=")
		if name, err := url.QueryUnescape(escaped); part != "" && (err != nil || name != key) {
			kept = append(kept, part)
		}
	}
	return strings.Join(kept, "&")
}

// apply changes the request as the options of the call say.
func (r *request) apply(cfg *callConfig) error {
	if cfg.operation != "" && r.path == "" {
		return &ValidationError{Field: "WithOperation", Reason: "applies to Client.Do only"}
	}
	if cfg.query == nil && cfg.body == nil {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(cfg.query)) {
		r.query = withParameter(r.query, key, cfg.query[key])
	}
	if cfg.body == nil {
		return nil
	}
	var fields map[string]json.RawMessage
	if r.body != nil {
		data, err := encode(r.body)
		if err != nil {
			return err
		}
		_ = json.Unmarshal(data, &fields)
	}
	if fields == nil {
		return &ValidationError{Field: "WithBodyField", Reason: "applies to calls whose body is a JSON object only"}
	}
	for name, value := range cfg.body {
		if fields[name] != nil {
			return &ValidationError{Field: "WithBodyField", Reason: "the request has a field " + name + " already"}
		}
		data, err := encode(value)
		if invalid, ok := err.(*ValidationError); ok {
			return &ValidationError{Field: "WithBodyField", Reason: "the value of " + name + " is invalid: " + invalid.Reason}
		}
		fields[name] = data
	}
	r.body = fields
	return nil
}

func validateID(field, id string) error {
	switch {
	case strings.TrimSpace(id) == "":
		return &ValidationError{Field: field, Reason: "must not be blank"}
	case id == "." || id == "..":
		return &ValidationError{Field: field, Reason: "must not be . or .."}
	case !utf8.ValidString(id): // checkText would allocate
		return &ValidationError{Field: field, Reason: notUTF8}
	}
	return nil
}

const notUTF8 = "must be valid UTF-8"

// checkText returns an error that names the first string in v that is not valid
// UTF-8, or is JSON with half of a surrogate pair, as a field of v in field. What is
// invalid would be replaced, so that different ids could become the same. Names do
// not contain keys of maps.
func checkText(field string, v any) error {
	path, bad := invalidText(reflect.ValueOf(v))
	if !bad {
		return nil
	}
	if field == "" {
		path = cmp.Or(strings.TrimPrefix(path, "."), "body")
	}
	return &ValidationError{Field: field + path, Reason: notUTF8}
}

var (
	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

// invalidText finds the first string that JSON would alter, in v or in the output of
// a [json.Marshaler]. It visits what encoding/json does. v must not contain itself.
func invalidText(v reflect.Value) (path string, bad bool) {
	if !v.IsValid() || (v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface) && v.IsNil() {
		return "", false
	}
	if v.CanAddr() && v.Kind() != reflect.Pointer && v.Kind() != reflect.Interface {
		if p := reflect.PointerTo(v.Type()); p.Implements(jsonMarshaler) || p.Implements(textMarshaler) {
			v = v.Addr()
		}
	}
	switch t := v.Type(); {
	case t.Implements(jsonMarshaler) && v.CanInterface():
		data, _ := v.Interface().(json.Marshaler).MarshalJSON()
		return "", !jsonscan.ValidText(data)
	case t.Implements(jsonMarshaler):
		return "", false
	case t.Implements(textMarshaler) && v.CanInterface():
		text, _ := v.Interface().(encoding.TextMarshaler).MarshalText()
		return "", !utf8.Valid(text)
	}
	switch v.Kind() {
	case reflect.String:
		return "", !utf8.ValidString(v.String())
	case reflect.Pointer, reflect.Interface:
		return invalidText(v.Elem())
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() <= reflect.Complex128 {
			return "", false // numbers, of which a file may have many
		}
		for i := range v.Len() {
			if path, bad := invalidText(v.Index(i)); bad {
				return "[" + strconv.Itoa(i) + "]" + path, true
			}
		}
	case reflect.Map:
		for entry := v.MapRange(); entry.Next(); {
			if _, bad := invalidText(entry.Key()); bad {
				return "", true
			}
			if _, bad := invalidText(entry.Value()); bad {
				return "", true
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if f.Tag.Get("json") == "-" || !f.IsExported() && !f.Anonymous {
				continue
			}
			if path, bad := invalidText(v.Field(i)); bad && f.Anonymous {
				return path, true
			} else if bad {
				return "." + f.Name + path, true
			}
		}
	}
	return "", false
}

// encode encodes a request body as JSON. Its error quotes nothing of it.
func encode(body any) ([]byte, error) {
	data, err := json.Marshal(body)
	if err != nil {
		reason := fmt.Sprintf("a value of type %T cannot be encoded as JSON", body)
		var unsupported *json.UnsupportedTypeError
		if errors.As(err, &unsupported) {
			reason += ": it contains a " + unsupported.Type.String()
		}
		return nil, &ValidationError{Field: "body", Reason: reason}
	}
	if err := checkText("", body); err != nil {
		return nil, err
	}
	if !jsonscan.ValidText(data) { // of a json.Marshaler that checkText cannot call
		return nil, &ValidationError{Field: "body", Reason: notUTF8}
	}
	return data, nil
}

// payload is a request's body, opened anew for each attempt.
type payload struct {
	open        func() (io.ReadCloser, error) // its error ends the call
	size        int64
	contentType []string
	// body reports on the body that was opened last. nil: no idle timeout.
	body wire.Body
}

var jsonContentType = []string{"application/json"}

func jsonPayload(body []byte) payload {
	return payload{
		open:        func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil },
		size:        int64(len(body)),
		contentType: jsonContentType,
	}
}

// newRequest builds the request of one attempt, with its own header and body:
// the transport may still be using those of an earlier attempt.
func (c *call) newRequest(ctx context.Context, token *Token, extra http.Header) (*http.Request, error) {
	req := c.client.requestTemplate.WithContext(ctx)
	req.Method, req.URL, req.Host = c.op.method, &c.url, c.url.Host
	req.Header = maps.Clone(c.header)
	for k, v := range extra {
		if req.Header[k] == nil {
			req.Header[k] = v
		}
	}
	if token != nil {
		req.Header["Authorization"] = token.authorization()
	}
	if c.payload.open == nil {
		return req, nil
	}
	if c.payload.contentType != nil {
		req.Header["Content-Type"] = c.payload.contentType
	}
	body, err := c.payload.open()
	if err != nil {
		return nil, err
	}
	req.Body, req.ContentLength = body, c.payload.size
	if c.retryable { // otherwise net/http must not send it again, but show why it failed
		req.GetBody = c.payload.open
	}
	return req, nil
}
