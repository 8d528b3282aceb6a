package brelliumtest

import (
	"bytes"
	"net/http"
	"slices"
	"time"
)

// Request is a request that the emulator has received.
type Request struct {
	// Operation is the operation's name, such as "audits.retrieve", or
	// "unknown" if the request belongs to none.
	Operation string
	// Method, Host, Path and RawQuery are as received; Path is escaped.
	Method, Host, Path, RawQuery string
	// Header holds the request's headers.
	Header http.Header
	// Body is the request's body, or the first mebibyte of an uploaded file.
	Body []byte
	// BodySize is the number of bytes received as the body.
	BodySize int64
	// ContentLength is the request's Content-Length, -1 if there was none.
	ContentLength int64
	// Chunked reports whether the body had chunked encoding.
	Chunked bool
	// Token is the request's access token.
	Token string
	// Arrived is when the whole request had arrived.
	Arrived time.Time
	// Status and RequestID are those of the response, which may not have
	// reached the client. They are zero if there was no response.
	Status    int
	RequestID string
	// Spent reports whether the request took a token from the organization's
	// bucket.
	Spent bool
	// Worked reports whether the operation was run, successfully or not.
	Worked bool
}

// arrive counts and records a request.
func (e *Emulator) arrive(c *call) {
	c.rec.Body, c.rec.BodySize, c.rec.Arrived = c.body, c.size, time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.counts[c.rec.Operation]++
	if e.recordLimit == 0 {
		return
	}
	c.rec.Header = c.header.Clone() // the caller may reuse the original
	record := c.rec
	c.record = &record
	e.records = append(e.records, c.record)
	if e.recordLimit > 0 && len(e.records) > 2*e.recordLimit {
		n := copy(e.records, e.records[len(e.records)-e.recordLimit:])
		clear(e.records[n:])
		e.records = e.records[:n]
	}
}

// Requests returns the recorded requests of the given operations, or of all if
// none is given, in order of arrival.
func (e *Emulator) Requests(operations ...string) []Request {
	e.mu.Lock()
	defer e.mu.Unlock()
	records := e.records
	if e.recordLimit > 0 && len(records) > e.recordLimit {
		records = records[len(records)-e.recordLimit:]
	}
	var list []Request
	for _, r := range records {
		if len(operations) == 0 || slices.Contains(operations, r.Operation) || slices.Contains(operations, OpAny) {
			copied := *r
			copied.Header = r.Header.Clone()
			copied.Body = bytes.Clone(r.Body)
			list = append(list, copied)
		}
	}
	return list
}

// Count returns how many requests of an operation have arrived; with [OpAny],
// how many in all.
func (e *Emulator) Count(operation string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	if operation != OpAny {
		return e.counts[operation]
	}
	n := 0
	for _, count := range e.counts {
		n += count
	}
	return n
}

// operationStatus is an operation and the status of a response.
type operationStatus struct {
	operation string
	status    int
}

// CountStatus returns how many responses of an operation had a status; with
// [OpAny], how many in all. It includes responses that a fault kept from
// reaching the client.
func (e *Emulator) CountStatus(operation string, status int) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	if operation != OpAny {
		return e.responses[operationStatus{operation, status}]
	}
	n := 0
	for key, count := range e.responses {
		if key.status == status {
			n += count
		}
	}
	return n
}

// ClearRequests deletes the recorded requests and sets all counts to zero.
func (e *Emulator) ClearRequests() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.records = nil
	clear(e.counts)
	clear(e.responses)
}
