package brellium

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"time"
)

// raw is embedded by every resource: the object as it was received. The bytes
// may hold what the fields hide, so they stand behind two pointers: package fmt
// follows one for some verbs.
type raw struct{ data **json.RawMessage }

// RawJSON returns the object as it was received, so that nothing the server
// adds is lost. It is nil for a value that did not come from the API.
func (r *raw) RawJSON() json.RawMessage {
	if r.data == nil {
		return nil
	}
	return **r.data
}

func (r *raw) setRaw(data *json.RawMessage)    { r.data = &data }
func (r *raw) setRawAt(data **json.RawMessage) { r.data = data }

// resource is a pointer to a T that keeps what it was decoded from.
type resource[T any] interface {
	*T
	RawJSON() json.RawMessage
	setRaw(*json.RawMessage)
	setRawAt(**json.RawMessage)
}

// setRaws gives each item its own of raws, at no allocation an item.
func setRaws[T any, P resource[T]](items []T, raws []json.RawMessage) {
	pointers := make([]*json.RawMessage, len(raws))
	for i := range raws {
		pointers[i] = &raws[i]
		P(&items[i]).setRawAt(&pointers[i])
	}
}

// answer is a 2xx on its way to the caller's type.
type answer struct {
	op        *operation
	status    int
	requestID string
	body      []byte
}

// decodeError builds the error of a 2xx that cannot be used. A write has then
// run, but what it did is not known.
func (a answer) decodeError(reason string) error {
	return &DecodeError{Operation: a.op.name, StatusCode: a.status, RequestID: a.requestID, Reason: reason, mayHaveRun: a.op.write}
}

// fetch makes one API call whose answer is one T.
func fetch[T any, P resource[T]](ctx context.Context, c *Client, r request, opts []CallOption) (*T, error) {
	cfg, err := c.callConfig(opts)
	if err != nil {
		return nil, err
	}
	v := new(T)
	if _, err := c.do(ctx, r, cfg, func(a answer) error { return decodeResource[T, P](a, v) }); err != nil {
		return nil, err
	}
	return v, nil
}

// decodeResource decodes an answer that is one T.
func decodeResource[T any, P resource[T]](a answer, v *T) error {
	if err := a.decode(v); err != nil {
		return err
	}
	own := &struct {
		body json.RawMessage
		at   *json.RawMessage
	}{body: a.json()}
	own.at = &own.body
	P(v).setRawAt(&own.at)
	return nil
}

var byteOrderMark = []byte("\xef\xbb\xbf")

// json is the answer's body without a byte-order mark.
func (a answer) json() json.RawMessage {
	return json.RawMessage(bytes.TrimPrefix(a.body, byteOrderMark))
}

// decode decodes the answer into v. Its error quotes nothing of it.
func (a answer) decode(v any) error {
	body := a.json()
	if len(bytes.TrimSpace(body)) == 0 {
		return a.decodeError("it is empty")
	}
	if len(body) > manyBytes && countValues(body) > maxValues {
		return a.decodeError("it holds more than 500,000 values")
	}
	if err := json.Unmarshal(body, v); err != nil {
		return a.decodeError(decodeReason(body, v, err))
	}
	if bytes.Equal(bytes.TrimSpace(body), []byte("null")) {
		return a.decodeError("it is null")
	}
	return nil
}

// decodeNothing is decode for an answer that says nothing, be it empty or not.
// A page is not the API's word that something was done.
func (a answer) decodeNothing() error {
	if body := bytes.TrimSpace(a.json()); len(body) > 0 && body[0] == '<' {
		return a.decodeError("it is a page instead of JSON")
	}
	return nil
}

// decodeReason says what is wrong with body in words of our own.
func decodeReason(body []byte, v any, err error) string {
	if e, ok := asType[*json.UnmarshalTypeError](err); ok {
		field := knownField(reflect.TypeOf(v), e.Field)
		if field == "" {
			return "it is not of the kind of JSON that was expected"
		}
		return "the field " + field + " is not of the type that was expected"
	}
	if _, ok := asType[*json.SyntaxError](err); ok {
		if body = bytes.TrimSpace(body); body[0] == '<' {
			return "it is a page instead of JSON"
		}
		return "it is not valid JSON"
	}
	return "it does not fit"
}

// A small value of an answer, such as {}, takes a hundred times its size once
// decoded, so that the size of an answer alone bounds nothing. Those of up to
// manyBytes are not counted.
const (
	manyBytes = 1 << 20
	maxValues = 500_000
)

// countValues counts the values in body, give or take those in containers that
// hold one.
func countValues(body []byte) (n int) {
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case ',', '{', '[':
			n++
		case '"':
			for i++; i < len(body) && body[i] != '"'; i++ {
				if body[i] == '\\' {
					i++
				}
			}
		}
	}
	return n
}

// rawItems returns the n items of the list answer body, which has been decoded
// already and so is valid JSON. They share its memory.
func rawItems(body []byte, n int) ([]json.RawMessage, error) {
	if items, ok := scanItems(body, n); ok {
		return items, nil
	}
	var list struct {
		Data []json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, err
	}
	if len(list.Data) != n {
		return nil, errors.New("the number of items differs")
	}
	return list.Data, nil
}

// scanItems finds the items of "data" in body, a valid JSON object, by their
// bounds alone, which is many times faster than decoding them once more. It
// reports false where it cannot be sure to find what encoding/json has found:
// the key comes twice, escaped or in another case, or there are not n items.
func scanItems(body []byte, n int) ([]json.RawMessage, bool) {
	items := make([]json.RawMessage, 0, n)
	found := false
	for i := skipSpace(body, skipSpace(body, 0)+1); body[i] != '}'; {
		key := i + 1
		i = skipString(body, i)
		name := body[key : i-1]
		i = skipSpace(body, skipSpace(body, i)+1) // past the colon
		switch isData := string(name) == "data"; {
		case isData && !found && body[i] == '[':
			found = true
			for i = skipSpace(body, i+1); body[i] != ']'; i = nextElement(body, i) {
				if len(items) == n {
					return nil, false
				}
				start := i
				i = skipValue(body, i)
				items = append(items, json.RawMessage(body[start:i:i]))
			}
			i++
		case !isData && bytes.EqualFold(name, []byte("data")), isData && found, bytes.IndexByte(name, '\\') >= 0:
			return nil, false
		default:
			i = skipValue(body, i)
			found = found || isData
		}
		i = nextElement(body, i)
	}
	return items, len(items) == n
}

// nextElement returns the index of the next key or element, or of the end of
// the object or array, for an i that is past an element.
func nextElement(b []byte, i int) int {
	if i = skipSpace(b, i); b[i] == ',' {
		i = skipSpace(b, i+1)
	}
	return i
}

// The three that follow walk over valid JSON, and return the index after what
// they skip.

func skipSpace(b []byte, i int) int {
	for b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t' {
		i++
	}
	return i
}

// skipString skips the string that begins at i.
func skipString(b []byte, i int) int {
	for i++; ; {
		i += bytes.IndexByte(b[i:], '"') + 1
		back := i - 2
		for b[back] == '\\' {
			back--
		}
		if (i-2-back)%2 == 0 { // an even number of backslashes escape each other
			return i
		}
	}
}

// skipValue skips the value that begins at i.
func skipValue(b []byte, i int) int {
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
	default:
		for i < len(b) && !strings.ContainsRune(" \n\r\t,]}", rune(b[i])) {
			i++
		}
		return i
	}
	for depth := 0; ; {
		switch b[i] {
		case '"':
			i = skipString(b, i)
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		if i++; depth == 0 {
			return i
		}
	}
}

// isObject reports whether body is a JSON object.
func isObject(body []byte) bool {
	body = bytes.TrimSpace(bytes.TrimPrefix(body, byteOrderMark))
	return len(body) > 0 && body[0] == '{' && json.Valid(body)
}

// readEnvelope fills in the type, code, message and request id from e.Body:
// the API's envelope, or the OAuth form with a string. Without either, or with
// a code that has not the form of one, the code is CodeHTTPError.
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
		e.Type, e.Code, e.Message = safeCode(envelope.Type), readCode(envelope.Code), envelope.Message
		if e.RequestID == "" {
			e.RequestID = safeCode(envelope.RequestID)
		}
	}
}

func readCode(s string) ErrorCode {
	if s = safeCode(s); s == "" {
		return CodeHTTPError
	}
	return ErrorCode(s)
}

// Time is a point in time as the API sends it. What is null, blank, absent or
// no RFC 3339 time reads as the zero Time, never as an error; RawJSON has the
// original.
type Time struct{ time.Time }

// UnmarshalJSON reads an RFC 3339 time, with or without a fraction.
func (t *Time) UnmarshalJSON(data []byte) error {
	var s string
	if len(data) >= 2 && data[0] == '"' && bytes.IndexByte(data, '\\') < 0 {
		s = string(data[1 : len(data)-1])
	} else if json.Unmarshal(data, &s) != nil {
		s = ""
	}
	parsed, err := time.Parse(time.RFC3339Nano, strings.TrimSpace(s))
	if _, offset := parsed.Zone(); err != nil || offset <= -24*3600 || offset >= 24*3600 {
		parsed = time.Time{} // time.Parse lets offsets of a day pass, which cannot be encoded again
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

// Metadata is a free-form object. Its numbers are json.Number, so that none is
// rounded.
type Metadata map[string]any

// UnmarshalJSON keeps numbers as they were written.
func (m *Metadata) UnmarshalJSON(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return d.Decode((*map[string]any)(m))
}
