package brellium

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/brellium/brellium-go/internal/jsonscan"
	"github.com/brellium/brellium-go/internal/redact"
	"github.com/brellium/brellium-go/internal/wire"
)

// raw is embedded by every resource: the object as it was received. The bytes may
// contain what the fields hide, so they are behind a function, which no dumper
// looks into. All items of a page share one source, so that none costs an
// allocation, and a resource equals its own copy under [reflect.DeepEqual].
type raw struct {
	source *rawSource
	index  int
}

// rawSource returns the object of each index. A Page has the index wholePage.
type rawSource struct{ item func(int) json.RawMessage }

const wholePage = -1

// RawJSON returns the object as it was received, including fields that this
// version does not know. It is nil for a value that did not come from the API.
func (r *raw) RawJSON() json.RawMessage {
	if r.source == nil {
		return nil
	}
	return r.source.item(r.index)
}

func (r *raw) setRaw(source *rawSource, index int) { r.source, r.index = source, index }

// record is a resource that keeps what it was decoded from.
type record interface {
	RawJSON() json.RawMessage
	setRaw(source *rawSource, index int)
	// required returns the name, kind and value of the field without which a
	// response is something else. The value is blank if the field is not set.
	required() (field, kind, value string)
}

// resource is a record that is a *T.
type resource[T any] interface {
	*T
	record
}

func blank(id string) bool { return strings.TrimSpace(id) == "" }

// sameFields reports whether the exported fields of two structs of one type say the
// same: times by their instant, values with an Equal method by that, and an empty
// list or map like nil.
func sameFields(a, b any) bool { return same(reflect.ValueOf(a), reflect.ValueOf(b)) }

func same(a, b reflect.Value) bool {
	switch v := a.Interface().(type) {
	case Time:
		return v.Equal(b.Interface().(Time).Time)
	case UploadURL:
		return v.Equal(b.Interface().(UploadURL))
	}
	switch a.Kind() {
	case reflect.Struct:
		for i := range a.NumField() {
			if a.Type().Field(i).IsExported() && !same(a.Field(i), b.Field(i)) {
				return false
			}
		}
		return true
	case reflect.Slice:
		for i := range min(a.Len(), b.Len()) {
			if !same(a.Index(i), b.Index(i)) {
				return false
			}
		}
		return a.Len() == b.Len()
	case reflect.Map:
		return a.Len() == 0 && b.Len() == 0 || reflect.DeepEqual(a.Interface(), b.Interface())
	}
	return reflect.DeepEqual(a.Interface(), b.Interface())
}

// okResponse is a 2xx response that is to be decoded.
type okResponse struct {
	request   // whose resource the body must be
	status    int
	requestID string
	header    http.Header
	body      []byte
	strict    bool    // see WithStrictDecoding
	lost      *string // filled with what a tolerant decoding left empty
}

// decodeError builds the error of a 2xx that cannot be used. A write has run
// then, but its result is not known.
func (r okResponse) decodeError(reason string) error {
	body := r.body
	if len(body) > wire.MaxErrorBody { // a copy, so that the rest is not kept
		body = bytes.Clone(body[:wire.MaxErrorBody])
	}
	return &DecodeError{
		Operation: r.op.name, StatusCode: r.status, RequestID: r.requestID, Reason: reason,
		Header: r.header, Body: body, uncertain: uncertain{r.op.write},
	}
}

// oddRecord is the error of a record that was decoded and cannot be used.
func oddRecord(op *operation, v interface{ RawJSON() json.RawMessage }, reason string) error {
	return okResponse{request: request{op: op}, status: http.StatusOK, body: v.RawJSON()}.decodeError(reason)
}

// fetch makes one API call whose response is one T.
func fetch[T any, P resource[T]](ctx context.Context, c *Client, r request, opts []CallOption) (*T, error) {
	cfg, err := c.callConfig(opts)
	if err != nil {
		return nil, err
	}
	own := new(struct {
		value  T
		source rawSource
	})
	if _, err := c.do(ctx, r, cfg, func(resp okResponse) error { return decodeRecord(resp, P(&own.value), &own.source) }); err != nil {
		return nil, err
	}
	return &own.value, nil
}

// decodeInto decodes the response into v, in the way of its type.
func (r okResponse) decodeInto(v any) error {
	switch v := v.(type) {
	case *DocumentCreateResult:
		return v.decodeResponse(r)
	case record:
		reflect.ValueOf(v).Elem().SetZero() // an id of an earlier call is none of this one
		return decodeRecord(r, v, new(rawSource))
	}
	if list := reflect.ValueOf(v).Elem(); list.Kind() == reflect.Slice {
		list.SetZero() // encoding/json would keep fields of the items before
	}
	if _, err := r.decode(v); err != nil {
		return err
	}
	var err error
	jsonscan.Visit(v, func(pointer any, sent bool) (deeper bool) {
		resource, ok := pointer.(record)
		if !ok {
			return true
		}
		if field, _, id := required(resource); sent && blank(id) && err == nil {
			err = r.decodeError("a resource in the body has no " + field)
		}
		return false
	})
	return err
}

// decodeRecord decodes a response that is one resource, which keeps source.
func decodeRecord(r okResponse, v record, source *rawSource) error {
	body := r.json()
	odd, err := r.decode(v)
	if odd || err == nil && r.strict {
		err = r.decodeTolerantly(body, v, new(jsonscan.Tolerant))
	}
	if err != nil {
		return err
	}
	if reason := cmp.Or(missing(v, body, "the body"), r.another(v)); reason != "" {
		return r.decodeError(reason)
	}
	source.item = func(int) json.RawMessage { return body }
	v.setRaw(source, 0)
	return nil
}

// decodeTolerantly decodes an object into v field by field. The error says that
// data is not an object, or with WithStrictDecoding what is odd.
func (r okResponse) decodeTolerantly(data []byte, v any, d *jsonscan.Tolerant) error {
	reflect.ValueOf(v).Elem().SetZero() // from what decode left
	if !d.Decode(data, v) {
		return r.decodeError("the body is JSON of an unexpected type")
	}
	if r.strict && d.Odd != "" {
		return r.decodeError(d.Odd)
	}
	if r.lost != nil && d.Lost != "" {
		*r.lost = d.Lost
	}
	return nil
}

// another says that v is not the resource that was requested, "" if it is.
func (r okResponse) another(v record) string {
	field, _, id := required(v)
	of, ok := v.(addressed)
	switch {
	case r.id != "" && canonicalID(id) != canonicalID(r.id):
	case r.email != "" && ok && !blank(of.address()) && !sameAddress(of.address(), r.email):
		field = "email"
	default:
		return ""
	}
	return "the " + field + " of the body is not the one of the request"
}

// canonicalID returns a UUID in lower case, since an API may accept it in either, and
// any other id as it is.
func canonicalID(id string) string {
	if u, err := uuid.Parse(id); err == nil {
		return u.String()
	}
	return id
}

// required calls v.required. It is not set where v is a type of the caller's that
// embeds a nil pointer to a resource.
func required(v record) (field, want, value string) {
	defer func() {
		if recover() != nil {
			field, want, value = "id", "text", ""
		}
	}()
	return v.required()
}

// missing returns what v lacks to be a resource, "" for nothing. what names data,
// the object that v was decoded from.
func missing(v record, data []byte, what string) string {
	field, want, value := required(v)
	if !blank(value) {
		return ""
	}
	if kind := jsonscan.Kind(data); kind != "an object" {
		return what + " is " + kind + " instead of an object"
	}
	received, found := jsonscan.Member(data, field)
	switch kind := jsonscan.Kind(received); {
	case !found:
		return what + " has no " + field + keysOf(data)
	case want == "a list" && kind == "null":
		return "" // an empty list
	case kind == want && kind == "a list":
		return "the " + field + " of " + what + " has an element of another kind"
	case kind == want || kind == "null":
		return "the " + field + " of " + what + " is blank"
	default:
		return "the " + field + " of " + what + " is " + kind + " instead of " + want
	}
}

// keysOf lists the first keys of an object for an error text. A key that could be
// data, such as an id, is only counted.
func keysOf(data []byte) string {
	const most = 5
	var named []string
	others := 0
	for key := range jsonscan.Members(data) {
		if len(named) < most && jsonscan.Plain(key) {
			named = append(named, key)
		} else {
			others++
		}
	}
	switch {
	case len(named) == 0 && others == 0:
		return "; it is empty"
	case others == 0:
		return "; it has " + strings.Join(named, ", ")
	case len(named) == 0:
		return "; it has " + plural(others, "other key")
	}
	return "; it has " + strings.Join(named, ", ") + " and " + plural(others, "other key")
}

// decodeItems completes the decoding of the list at key. fast are its items as
// decode left them, and odd is what decode reported. The items that can be used
// are returned with the source of all raw JSON; unusable is the error of the
// first other one.
func decodeItems[T any](r okResponse, key string, fast []T, odd bool) (items []T, source *rawSource, unusable, err error) {
	body := r.json()
	var raws []json.RawMessage
	separated := false
	if !odd && !r.strict && fast != nil {
		raws, separated = jsonscan.Items(body, key, len(fast))
	}
	if !separated { // also if the key comes twice: encoding/json merges the items then
		value, found := jsonscan.Member(body, key)
		if !found {
			return nil, nil, nil, r.decodeError("the body has no " + key + keysOf(body))
		}
		if fast, raws, unusable, err = decodeOddItems[T](r, key, value); err != nil {
			return nil, nil, nil, err
		}
	}
	source = &rawSource{func(i int) json.RawMessage {
		if i == wholePage {
			return body
		}
		return raws[i]
	}}
	items = fast[:0]
	for i := range fast {
		if v, ok := jsonscan.Innermost(&fast[i]).(record); ok {
			if _, _, id := required(v); blank(id) {
				if unusable == nil {
					unusable = r.decodeError(missing(v, raws[i], itemName(key, i)))
				}
				continue
			}
			v.setRaw(source, i)
		}
		if len(items) < i {
			fast[len(items)] = fast[i]
		}
		items = fast[:len(items)+1]
	}
	clear(fast[len(items):])
	return items, source, unusable, nil
}

func itemName(key string, i int) string { return "item " + strconv.Itoa(i+1) + " of " + key }

// decodeOddItems decodes the items of a list one by one. One object in place of
// the list is its only item. An item that is no object stays zero.
func decodeOddItems[T any](r okResponse, key string, list json.RawMessage) (items []T, raws []json.RawMessage, unusable, err error) {
	d := jsonscan.NewTolerant(key)
	switch jsonscan.Kind(list) {
	case "a list":
		err = json.Unmarshal(list, &raws)
	case "null":
	case "an object":
		raws = []json.RawMessage{list}
		if r.strict {
			return nil, nil, nil, r.decodeError("the field " + key + " is an object instead of a list")
		}
	default:
		return nil, nil, nil, r.decodeError("the field " + key + " is " + jsonscan.Kind(list) + " instead of a list")
	}
	for i, data := range raws {
		var item T
		if v, ok := jsonscan.Innermost(&item).(record); !ok {
			reason := ""
			if err := json.Unmarshal(data, &item); err != nil {
				reason = itemName(key, i) + ": " + decodeReason(data, &item, err)
			} else if kind := reflect.TypeFor[T]().Kind(); jsonscan.Kind(data) == "null" && (kind == reflect.Struct || kind == reflect.Pointer) {
				reason = itemName(key, i) + " is null" // a blank T is not what was sent
			}
			if reason != "" {
				if unusable == nil {
					unusable = r.decodeError(reason)
				}
				continue // without RawJSON, it needs no place in raws
			}
		} else if jsonscan.Kind(data) == "an object" {
			if err := r.decodeTolerantly(data, v, d); err != nil {
				return nil, nil, nil, err
			}
		}
		items = append(items, item)
	}
	return items, raws, unusable, err
}

var byteOrderMark = []byte("\xef\xbb\xbf")

// json is the response's body without a byte-order mark.
func (r okResponse) json() json.RawMessage {
	return json.RawMessage(bytes.TrimPrefix(r.body, byteOrderMark))
}

// decode decodes the response into v. Its error quotes nothing of the body. odd
// reports whether the body is an object with a value that does not fit v, or with a
// list that seems to contain null.
func (r okResponse) decode(v any) (odd bool, err error) {
	body := r.json()
	if len(bytes.TrimSpace(body)) == 0 {
		return false, r.decodeError("the body is empty")
	}
	if len(body) > manyBytes && jsonscan.Count(body) > maxValues {
		return false, r.decodeError("the body has more than 500,000 values")
	}
	if err := json.Unmarshal(body, v); err != nil {
		return isObject(body), r.decodeError(decodeReason(body, v, err))
	}
	if bytes.Equal(bytes.TrimSpace(body), []byte("null")) {
		return false, r.decodeError("the body is null")
	}
	return jsonscan.NullInList(body) && isObject(body), nil
}

// decodeNothing is decode for a response whose content does not matter, unless it
// says that the request failed or was about another resource. HTML is an error: it
// is not the API that sent it.
func (r okResponse) decodeNothing() error {
	body := r.json()
	if text := bytes.TrimSpace(body); len(text) > 0 && text[0] == '<' {
		return r.decodeError(htmlInstead)
	}
	if !isObject(body) {
		return nil
	}
	if reason := r.failure(); reason != "" {
		return r.decodeError(reason)
	}
	var user User // the only resource that can be deleted
	if r.id != "" && new(jsonscan.Tolerant).Decode(body, &user) && !blank(user.UserID) {
		if reason := r.another(&user); reason != "" {
			return r.decodeError(reason)
		}
	}
	return nil
}

// failure returns what the keys of the body, an object, say of a failure, "" if they
// say nothing. Of a list, deleted is a filter.
func (r okResponse) failure() string {
	for key, value := range jsonscan.Members(r.json()) {
		switch key = strings.ToLower(key); {
		case (key == "error" || key == "errors") && jsonscan.Given(value):
			return "the body has an error although the status is a success"
		case (key == "success" || key == "ok" || key == "deleted" && r.op.method != http.MethodGet) && string(value) == "false":
			return "the field " + key + " is false although the status is a success"
		}
	}
	return ""
}

const htmlInstead = "the body is HTML instead of JSON"

// decodeReason says what is wrong with body without quoting it.
func decodeReason(body []byte, v any, err error) string {
	if e, ok := asType[*json.UnmarshalTypeError](err); ok {
		field := jsonscan.KnownField(reflect.TypeOf(v), e.Field)
		if field == "" {
			return "the body is JSON of an unexpected type"
		}
		return "the field " + field + " has an unexpected type"
	}
	if _, ok := asType[*json.SyntaxError](err); ok {
		if body = bytes.TrimSpace(body); body[0] == '<' {
			return htmlInstead
		}
		return "the body is not valid JSON"
	}
	return "the body cannot be decoded"
}

// {} takes about 100 times its size once decoded, so the number of values is
// capped too. Those of a body of up to manyBytes are not counted.
const (
	manyBytes = 1 << 20
	maxValues = 500_000
)

// isObject reports whether body is a JSON object.
func isObject(body []byte) bool {
	body = bytes.TrimSpace(bytes.TrimPrefix(body, byteOrderMark))
	return len(body) > 0 && body[0] == '{' && json.Valid(body)
}

// readEnvelope sets the type, code, message and request id from e.Body, which is
// the API's envelope or the OAuth form with a string. Without either, or where
// the code does not look like one, the code is CodeHTTPError.
func readEnvelope(e *APIError) {
	e.Code = CodeHTTPError
	var form struct {
		Error       json.RawMessage `json:"error"`
		Description string          `json:"error_description"`
	}
	if json.Unmarshal(bytes.TrimPrefix(e.Body, byteOrderMark), &form) != nil {
		return
	}
	var envelope struct {
		Type      string `json:"type"`
		Code      string `json:"code"`
		Message   string `json:"message"`
		RequestID string `json:"request_id"`
	}
	var code string
	switch {
	case json.Unmarshal(form.Error, &code) == nil && code != "":
		e.Code, e.Message = readCode(code), form.Description
	case json.Unmarshal(form.Error, &envelope) == nil && (envelope.Code != "" || envelope.Message != "" || envelope.Type != ""):
		e.Type, e.Code, e.Message = redact.Code(envelope.Type), readCode(envelope.Code), envelope.Message
		if e.RequestID == "" {
			e.RequestID = redact.Code(envelope.RequestID)
		}
	}
}

func readCode(s string) ErrorCode {
	if s = redact.Code(s); s == "" {
		return CodeHTTPError
	}
	return ErrorCode(s)
}

// Time is a point in time as the API sends it. A value that is null, blank,
// absent or not an RFC 3339 time decodes to the zero Time, never to an error;
// RawJSON has the original.
type Time struct{ time.Time }

// UnmarshalJSON reads an RFC 3339 time, with or without fractional seconds.
func (t *Time) UnmarshalJSON(data []byte) error {
	var s string
	if len(data) >= 2 && data[0] == '"' && bytes.IndexByte(data, '\\') < 0 {
		s = string(data[1 : len(data)-1])
	} else if json.Unmarshal(data, &s) != nil {
		s = ""
	}
	parsed, err := time.Parse(time.RFC3339Nano, strings.TrimSpace(s))
	if _, offset := parsed.Zone(); err != nil || offset <= -24*3600 || offset >= 24*3600 {
		parsed = time.Time{} // time.Parse accepts offsets of a day, which cannot be encoded again
	}
	t.Time = parsed
	return nil
}

// MarshalJSON encodes the zero Time as null.
func (t Time) MarshalJSON() ([]byte, error) {
	if t.IsZero() {
		return []byte("null"), nil
	}
	return t.Time.MarshalJSON()
}

// Metadata is a free-form object. Its numbers are [json.Number], so that none is
// rounded.
type Metadata map[string]any

// UnmarshalJSON keeps numbers as they were written.
func (m *Metadata) UnmarshalJSON(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	*m = nil // keys of an earlier value are none of this one
	return d.Decode((*map[string]any)(m))
}
