package brelliumtest

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
)

// answer is what the emulator says to a request.
type answer struct {
	status      int
	contentType string
	body        []byte
	requestID   string
	limit       limitState
	retryAfter  int // seconds; 0: no Retry-After
	allow       string
	storage     bool // from the storage host
	bare        bool // from the edge in front of the API: no envelope, no request id

	// failure is set where the body is still to be made from it, since the
	// API and the storage host spell errors differently.
	failure *failure
}

// limitState is what the three RateLimit headers say.
type limitState struct {
	known                   bool // false: there are no such headers
	limit, remaining, reset int
}

// failure is an error before it is put into an envelope.
type failure struct{ kind, code, message string }

// The types of errors in the envelope.
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

// fail returns an error answer.
func fail(status int, code, message string) answer {
	return answer{status: status, failure: &failure{errorType(status), code, message}}
}

func notFound(what string) answer {
	return fail(http.StatusNotFound, "NOT_FOUND", what+" not found")
}

func invalid(message string) answer {
	return fail(http.StatusBadRequest, "INVALID_REQUEST", message)
}

// bare returns an answer of the edge in front of the API.
func bare(status int) answer {
	return answer{status: status, bare: true}
}

// ok returns a JSON answer that is already encoded.
func ok(body []byte) answer {
	return answer{status: http.StatusOK, contentType: jsonType, body: body}
}

// encoded returns a JSON answer of a value that can always be encoded.
func encoded(status int, v any) answer {
	return answer{status: status, contentType: jsonType, body: appendJSON(nil, v)}
}

// appendJSON appends the encoding of a value that can always be encoded.
func appendJSON(dst []byte, v any) []byte {
	b := bytes.NewBuffer(dst)
	encoder := json.NewEncoder(b)
	encoder.SetEscapeHTML(false) // leaves the & of upload URLs alone
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

// envelope encodes a failure the way the API does.
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

// xml encodes a failure the way the storage host does.
func (f *failure) xml(requestID string) []byte {
	escape := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace
	return []byte(`<?xml version="1.0" encoding="UTF-8"?>` + "\n" +
		"<Error><Code>" + escape(f.code) + "</Code><Message>" + escape(f.message) +
		"</Message><RequestId>" + requestID + "</RequestId></Error>")
}

// headers returns the answer's headers, in the canonical spelling.
func (a *answer) headers() http.Header {
	h := make(http.Header, 6)
	values := make([]string, 0, 8) // one array for all of them
	set := func(key, value string) {
		values = append(values, value)
		h[key] = values[len(values)-1 : len(values) : len(values)]
	}
	if a.contentType != "" {
		set("Content-Type", a.contentType)
	}
	switch {
	case a.requestID == "":
	case a.storage:
		set("X-Storage-Request-Id", a.requestID)
	default:
		set("X-Request-Id", a.requestID)
	}
	if a.limit.known {
		set("Ratelimit-Limit", strconv.Itoa(a.limit.limit))
		set("Ratelimit-Remaining", strconv.Itoa(a.limit.remaining))
		set("Ratelimit-Reset", strconv.Itoa(a.limit.reset))
	}
	if a.retryAfter > 0 {
		set("Retry-After", strconv.Itoa(a.retryAfter))
	}
	if a.allow != "" {
		set("Allow", a.allow)
	}
	return h
}
