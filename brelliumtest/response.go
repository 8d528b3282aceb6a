package brelliumtest

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
)

// response is a response of the emulator.
type response struct {
	status      int
	contentType string
	body        []byte
	requestID   string
	limit       limitState
	retryAfter  int // seconds; 0: no Retry-After
	allow       string
	storage     bool // from the storage host
	bare        bool // from the edge in front of the API: no envelope, no request id

	// failure is encoded as the body: JSON from the API, XML from storage.
	failure *failure
}

// limitState holds the values of the three RateLimit headers.
type limitState struct {
	known                   bool // false: the headers are absent
	limit, remaining, reset int
}

// failure is an error before it is encoded.
type failure struct{ kind, code, message string }

// The values of "type" in the error envelope.
const (
	typeInvalidRequest = "invalid_request_error"
	typeAuthentication = "authentication_error"
	typePermission     = "permission_error"
	typeNotFound       = "not_found_error"
	typeConflict       = "conflict_error"
	typeRateLimit      = "rate_limit_error"
	typeAPI            = "api_error"
)

const jsonType = "application/json"

// fail returns an error response.
func fail(status int, code, message string) response {
	return response{status: status, failure: &failure{errorType(status), code, message}}
}

func notFound(what string) response {
	return fail(http.StatusNotFound, "NOT_FOUND", what+" not found")
}

func invalid(message string) response {
	return fail(http.StatusBadRequest, "INVALID_REQUEST", message)
}

// jsonResponse returns a response with a JSON body.
func jsonResponse(status int, body []byte) response {
	return response{status: status, contentType: jsonType, body: body}
}

// appendJSON appends the JSON of a value that can always be encoded.
func appendJSON(dst []byte, v any) []byte {
	b := bytes.NewBuffer(dst)
	encoder := json.NewEncoder(b)
	encoder.SetEscapeHTML(false) // keeps the & in upload URLs
	if err := encoder.Encode(v); err != nil {
		return append(dst, "null"...)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

func errorType(status int) string {
	switch {
	case status == http.StatusUnauthorized:
		return typeAuthentication
	case status == http.StatusForbidden:
		return typePermission
	case status == http.StatusNotFound:
		return typeNotFound
	case status == http.StatusConflict:
		return typeConflict
	case status == http.StatusTooManyRequests:
		return typeRateLimit
	case status >= 500:
		return typeAPI
	}
	return typeInvalidRequest
}

// envelope encodes a failure as the API does.
func (f *failure) envelope(requestID string) []byte {
	type inner struct {
		Type      string `json:"type"`
		Code      string `json:"code"`
		Message   string `json:"message"`
		RequestID string `json:"request_id"`
	}
	return appendJSON(nil, struct {
		Error inner `json:"error"`
	}{inner{f.kind, f.code, f.message, requestID}})
}

// xml encodes a failure as the storage host does.
func (f *failure) xml(requestID string) []byte {
	escape := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace
	return []byte(`<?xml version="1.0" encoding="UTF-8"?>` + "\n" +
		"<Error><Code>" + escape(f.code) + "</Code><Message>" + escape(f.message) +
		"</Message><RequestId>" + requestID + "</RequestId></Error>")
}

// headers returns the response's headers in canonical form.
func (r *response) headers() http.Header {
	h := make(http.Header, 6)
	values := make([]string, 0, 8) // one allocation for all values
	set := func(key, value string) {
		values = append(values, value)
		h[key] = values[len(values)-1 : len(values) : len(values)]
	}
	if r.contentType != "" {
		set("Content-Type", r.contentType)
	}
	switch {
	case r.requestID == "":
	case r.storage:
		set("X-Storage-Request-Id", r.requestID)
	default:
		set("X-Request-Id", r.requestID)
	}
	if r.limit.known {
		set("Ratelimit-Limit", strconv.Itoa(r.limit.limit))
		set("Ratelimit-Remaining", strconv.Itoa(r.limit.remaining))
		set("Ratelimit-Reset", strconv.Itoa(r.limit.reset))
	}
	if r.retryAfter > 0 {
		set("Retry-After", strconv.Itoa(r.retryAfter))
	}
	if r.allow != "" {
		set("Allow", r.allow)
	}
	return h
}
