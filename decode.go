package brellium

import (
	"bytes"
	"context"
	"encoding/json"
	"reflect"
	"strings"
	"time"

	"github.com/brellium/brellium-go/internal/jsonscan"
	"github.com/brellium/brellium-go/internal/redact"
)

// raw is embedded by every resource: the object as it was received. The bytes
// may contain what the fields hide, so they are behind two pointers: package fmt
// follows one for some verbs. (A redact.Sealed would cost an allocation for each
// item of a page.)
type raw struct{ data **json.RawMessage }

// RawJSON returns the object as it was received, including fields that this
// version does not know. It is nil for a value that did not come from the API.
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

// setRaws gives each item its raw JSON, without an allocation for each.
func setRaws[T any, P resource[T]](items []T, raws []json.RawMessage) {
	pointers := make([]*json.RawMessage, len(raws))
	for i := range raws {
		pointers[i] = &raws[i]
		P(&items[i]).setRawAt(&pointers[i])
	}
}

// okResponse is a 2xx response that is to be decoded.
type okResponse struct {
	op        *operation
	status    int
	requestID string
	body      []byte
}

// decodeError builds the error of a 2xx that cannot be used. A write has run
// then, but its result is not known.
func (r okResponse) decodeError(reason string) error {
	return &DecodeError{Operation: r.op.name, StatusCode: r.status, RequestID: r.requestID, Reason: reason, uncertain: uncertain{r.op.write}}
}

// fetch makes one API call whose response is one T.
func fetch[T any, P resource[T]](ctx context.Context, c *Client, r request, opts []CallOption) (*T, error) {
	cfg, err := c.callConfig(opts)
	if err != nil {
		return nil, err
	}
	v := new(T)
	if _, err := c.do(ctx, r, cfg, func(resp okResponse) error { return decodeResource[T, P](resp, v) }); err != nil {
		return nil, err
	}
	return v, nil
}

// decodeResource decodes a response that is one T.
func decodeResource[T any, P resource[T]](r okResponse, v *T) error {
	if err := r.decode(v); err != nil {
		return err
	}
	own := &struct {
		body json.RawMessage
		at   *json.RawMessage
	}{body: r.json()}
	own.at = &own.body
	P(v).setRawAt(&own.at)
	return nil
}

var byteOrderMark = []byte("\xef\xbb\xbf")

// json is the response's body without a byte-order mark.
func (r okResponse) json() json.RawMessage {
	return json.RawMessage(bytes.TrimPrefix(r.body, byteOrderMark))
}

// decode decodes the response into v. Its error quotes nothing of the body.
func (r okResponse) decode(v any) error {
	body := r.json()
	if len(bytes.TrimSpace(body)) == 0 {
		return r.decodeError("the body is empty")
	}
	if len(body) > manyBytes && jsonscan.Count(body) > maxValues {
		return r.decodeError("the body has more than 500,000 values")
	}
	if err := json.Unmarshal(body, v); err != nil {
		return r.decodeError(decodeReason(body, v, err))
	}
	if bytes.Equal(bytes.TrimSpace(body), []byte("null")) {
		return r.decodeError("the body is null")
	}
	return nil
}

// decodeNothing is decode for a response whose content does not matter. HTML is
// an error all the same: it is not the API that sent it.
func (r okResponse) decodeNothing() error {
	if body := bytes.TrimSpace(r.json()); len(body) > 0 && body[0] == '<' {
		return r.decodeError(htmlInstead)
	}
	return nil
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
	return d.Decode((*map[string]any)(m))
}
