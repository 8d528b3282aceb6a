package brellium

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"time"
)

// raw is embedded by every resource: the object as it was received.
// (Printing the resource shows a pointer: the bytes may hold what the fields
// hide.)
type raw struct{ data *json.RawMessage }

// RawJSON returns the object as it was received, so that nothing the server
// adds is lost. It is nil for a value that did not come from the API.
func (r *raw) RawJSON() json.RawMessage {
	if r.data == nil {
		return nil
	}
	return *r.data
}

func (r *raw) setRaw(data *json.RawMessage) { r.data = data }

// resource is a pointer to a T that keeps what it was decoded from.
type resource[T any] interface {
	*T
	setRaw(*json.RawMessage)
}

// fetch makes one API call whose answer is one T.
func fetch[T any, P resource[T]](ctx context.Context, c *Client, r request, opts []CallOption) (*T, error) {
	call, err := c.do(ctx, r, opts)
	if err != nil {
		return nil, err
	}
	v := new(T)
	if err := call.decode(v); err != nil {
		return nil, err
	}
	body := call.answer()
	P(v).setRaw(&body)
	return v, nil
}

var byteOrderMark = []byte("\xef\xbb\xbf")

// answer is the body of the call's answer, without a byte-order mark.
func (c *call) answer() json.RawMessage {
	return json.RawMessage(bytes.TrimPrefix(c.got.body, byteOrderMark))
}

// decode decodes the call's answer into v. Its error quotes nothing of it.
func (c *call) decode(v any) error {
	body := c.answer()
	if len(bytes.TrimSpace(body)) == 0 {
		return c.decodeError("it is empty")
	}
	if err := json.Unmarshal(body, v); err != nil {
		return c.decodeError(decodeReason(body, err))
	}
	if bytes.Equal(bytes.TrimSpace(body), []byte("null")) {
		return c.decodeError("it is null")
	}
	return nil
}

// decodeReason says what is wrong with body in words of our own.
func decodeReason(body []byte, err error) string {
	if e, ok := asType[*json.UnmarshalTypeError](err); ok {
		if e.Field == "" {
			return "it is not of the kind of JSON that was expected"
		}
		return "the field " + e.Field + " is not of the type that was expected"
	}
	if _, ok := asType[*json.SyntaxError](err); ok {
		if body = bytes.TrimSpace(body); body[0] == '<' {
			return "it is a page instead of JSON"
		}
		return "it is not valid JSON"
	}
	return "it does not fit"
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
		e.Type, e.Code, e.Message = printable(envelope.Type), readCode(envelope.Code), envelope.Message
		if e.RequestID == "" {
			e.RequestID = printable(envelope.RequestID)
		}
	}
}

func readCode(s string) ErrorCode {
	if s = printable(s); s == "" {
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
	if json.Unmarshal(data, &s) != nil {
		s = ""
	}
	parsed, err := time.Parse(time.RFC3339Nano, strings.TrimSpace(s))
	if err != nil {
		parsed = time.Time{}
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
