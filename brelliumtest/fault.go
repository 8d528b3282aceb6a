package brelliumtest

import (
	"net/http"
	"slices"
	"strconv"
	"time"
)

// Fault is a failure of a request, scripted with [Emulator.Inject].
// Constructors such as [Status] and [DropAfter] return one; its methods return
// a changed copy:
//
//	brelliumtest.Status(503, "UNAVAILABLE").WithHeader("Retry-After", "2").Times(3)
//
// A Fault is a value that can be used with several operations and emulators.
type Fault struct {
	response  *scripted // replaces the usual response
	work      bool      // run the operation first
	conn      connFault
	stall     time.Duration // of stallHeaders and stallBody; 0: forever
	reset     bool          // RST instead of FIN
	gzip      bool
	cutGzip   bool
	noLimit   bool
	invite    bool // create the user, do not send the invitation
	revoke    bool
	burst     float64
	before    time.Duration
	after     time.Duration
	reading   time.Duration
	headers   []headerChange
	times     int // negative: forever
	sometimes bool
	chance    float64
	condition func(*Request) bool
}

// scripted is a response that replaces the usual one.
type scripted struct {
	status        int
	code, message string // in an envelope, if code is set
	contentType   string
	body          []byte
	size          int64 // of a body generated while it is sent
	bare          bool
}

type headerChange struct{ key, value string } // an empty value removes

// connFault is what happens to the connection.
type connFault int

const (
	connWhole connFault = iota
	connRefused
	connUnsent
	connDropReading
	connDropBefore
	connDropAfter
	connStallHeaders
	connStallBody
	connResetBody
	connTruncated
)

// OK responds as usual. Use it to let a request through, or as the base of
// another fault: OK().DelayResponse(time.Second), OK().Truncated().
func OK() Fault { return Fault{times: 1} }

// Status responds with a status and an error envelope with this code, or from
// the storage host with its XML error. The request is authenticated and charged
// to the rate limit as usual, but the operation does not run unless
// [Fault.AfterWork] is set. Scripted 401 and 429 responses are not charged; a
// 429 has Retry-After: 1 unless [Fault.WithHeader] sets another.
//
// With an empty code the response has an empty body, but still a request id and
// the RateLimit headers. For a response without those, see [Bare].
func Status(status int, code string) Fault {
	return Fault{times: 1, response: &scripted{status: status, code: code}}
}

// Bare responds with a status only, as the gateway in front of the API does for
// 403, 413, 414 and 431: no body, no request id, no RateLimit headers. The
// request does not reach the API and is not charged, unless [Fault.AfterWork]
// is set.
func Bare(status int) Fault {
	return Fault{times: 1, response: &scripted{status: status, bare: true}}
}

// HTML responds as [Bare] does, with an HTML page as the body.
func HTML(status int) Fault {
	title := http.StatusText(status)
	page := "<!DOCTYPE html>\n<html><head><title>" + title + "</title></head>\n<body><center><h1>" +
		title + "</h1></center><hr><p>The request could not be satisfied by the gateway.</p>" +
		"<p>Please try again in a few minutes, or contact the operator of this site.</p></body></html>\n"
	return Fault{times: 1, response: &scripted{status: status, bare: true, contentType: "text/html; charset=utf-8", body: []byte(page)}}
}

// Blocked is the bare 403 with an HTML page that a blocked client gets.
func Blocked() Fault { return HTML(http.StatusForbidden) }

// Respond responds with a status and any body, with a request id and the
// RateLimit headers. The content type may be empty. The operation runs first if
// the status is 2xx or [Fault.AfterWork] is set.
func Respond(status int, contentType, body string) Fault {
	return Fault{
		times:    1,
		work:     status >= 200 && status < 300,
		response: &scripted{status: status, contentType: contentType, body: []byte(body)},
	}
}

// Redirect responds with a status such as 302 and a Location.
func Redirect(status int, location string) Fault {
	return Respond(status, "", "").WithHeader("Location", location)
}

// LargeBody responds with a status and a body of n bytes, generated while it is
// read.
func LargeBody(status int, n int64) Fault {
	f := Respond(status, "text/plain", "")
	f.response.size = n
	return f
}

// NeverSent refuses the connection; the request is not recorded. With
// [Emulator.Transport] the error is that of a refused dial. On a port, the
// connection is reset at once.
func NeverSent() Fault { return Fault{times: 1, conn: connRefused} }

// Unsent fails the write of the first byte, as on a pooled connection that the
// server has closed. The request is not recorded. On a port it does the same as
// [NeverSent].
func Unsent() Fault { return Fault{times: 1, conn: connUnsent} }

// DropReading resets the connection halfway through the request's body.
func DropReading() Fault { return Fault{times: 1, conn: connDropReading, reset: true} }

// DropBefore reads the request and closes the connection without running the
// operation.
func DropBefore() Fault { return Fault{times: 1, conn: connDropBefore} }

// DropAfter runs the operation and closes the connection without a response.
func DropAfter() Fault { return Fault{times: 1, conn: connDropAfter} }

// StallHeaders runs the operation and sends the response after d. If d is 0 it
// sends none: the request hangs until its context or the connection ends.
func StallHeaders(d time.Duration) Fault {
	return Fault{times: 1, conn: connStallHeaders, stall: d}
}

// RevokedToken revokes all access tokens when the request arrives, so the
// request gets a 401. A newly minted token works.
func RevokedToken() Fault { return Fault{times: 1, revoke: true} }

// OtherWorker takes n tokens from the organization's bucket when the request
// arrives, like a burst of another worker.
func OtherWorker(n int) Fault { return Fault{times: 1, burst: float64(n)} }

// InviteFailed makes users.create keep the user, send no invitation and respond
// with 502 INVITE_FAILED.
func InviteFailed() Fault { return Fault{times: 1, invite: true} }

// RevokeFailed makes users.delete keep the user and respond with 502
// REVOKE_FAILED.
func RevokeFailed() Fault { return Status(http.StatusBadGateway, "REVOKE_FAILED") }

// Times applies the fault to n requests instead of one.
func (f Fault) Times(n int) Fault { f.times = n; return f }

// Forever applies the fault to every request from now on.
func (f Fault) Forever() Fault { f.times = -1; return f }

// Sometimes applies the fault to each request with probability p. The other
// requests get the next fault of the script. See [WithSeed].
func (f Fault) Sometimes(p float64) Fault { f.sometimes, f.chance = true, p; return f }

// When applies the fault only to requests for which match returns true. Of the
// [Request], only the operation, method, host, path, query, header and content
// length are set. match must not call the emulator.
func (f Fault) When(match func(*Request) bool) Fault { f.condition = match; return f }

// AfterWork runs the operation before the scripted response, as if a gateway
// had lost the API's response.
func (f Fault) AfterWork() Fault { f.work = true; return f }

// WithMessage sets the error message of [Status].
func (f Fault) WithMessage(message string) Fault {
	if f.response != nil {
		a := *f.response
		a.message = message
		f.response = &a
	}
	return f
}

// WithHeader sets a header of the response. An empty value removes it.
func (f Fault) WithHeader(key, value string) Fault {
	f.headers = append(slices.Clone(f.headers), headerChange{http.CanonicalHeaderKey(key), value})
	return f
}

// WithoutRateLimit removes the RateLimit headers.
func (f Fault) WithoutRateLimit() Fault { f.noLimit = true; return f }

// Delay waits for d before processing the request.
func (f Fault) Delay(d time.Duration) Fault { f.before = d; return f }

// DelayResponse waits for d after running the operation.
func (f Fault) DelayResponse(d time.Duration) Fault { f.after = d; return f }

// SlowRead takes d to read the request's body.
func (f Fault) SlowRead(d time.Duration) Fault { f.reading = d; return f }

// Gzipped compresses the response.
func (f Fault) Gzipped() Fault { f.gzip = true; return f }

// GzipTruncated compresses the response and sends the first half of it, with
// the Content-Length of that half.
func (f Fault) GzipTruncated() Fault { f.gzip, f.cutGzip = true, true; return f }

// Truncated sends half of the body, with the Content-Length of the whole, and
// closes the connection.
func (f Fault) Truncated() Fault { f.conn = connTruncated; return f }

// ResetInBody sends half of the body and resets the connection.
func (f Fault) ResetInBody() Fault { f.conn, f.reset = connResetBody, true; return f }

// StallInBody sends half of the body and the rest after d, or never if d is 0.
func (f Fault) StallInBody(d time.Duration) Fault {
	f.conn, f.stall = connStallBody, d
	return f
}

// AsReset resets the connection instead of closing it, so the client sees
// ECONNRESET instead of EOF.
func (f Fault) AsReset() Fault { f.reset = true; return f }

// queuedFault is a fault in the script of an operation.
type queuedFault struct {
	Fault
	operation string
	left      int // negative: forever
}

// Inject appends faults to the script of an operation, such as
// [OpAuditRetrieve]. They apply in this order, each to one request unless
// [Fault.Times] or [Fault.Forever] is set. An operation whose script is empty
// uses the script of [OpAny].
//
// If the emulator itself responds to a request with 401 or 429, a fault with a
// scripted response stays in the script for the next request.
//
// Inject panics if there is no such operation, since the test would then test
// nothing.
func (e *Emulator) Inject(operation string, faults ...Fault) {
	if !injectable(operation) {
		panic("brelliumtest: Inject: there is no operation " + strconv.Quote(operation))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, f := range faults {
		if f.times != 0 {
			e.faults[operation] = append(e.faults[operation], &queuedFault{f, operation, f.times})
		}
	}
}

// ClearFaults empties the scripts of all operations.
func (e *Emulator) ClearFaults() {
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(e.faults)
}

// PendingFaults returns how many more requests the faults in an operation's
// script apply to, or -1 if one applies forever.
func (e *Emulator) PendingFaults(operation string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	for _, q := range e.faults[operation] {
		if q.left < 0 {
			return -1
		}
		n += q.left
	}
	return n
}

// takeFault returns the fault for a request, or nil. The caller holds e.mu.
func (e *Emulator) takeFault(r *Request) *queuedFault {
	if len(e.faults) == 0 {
		return nil
	}
	if q := e.takeFrom(r.Operation, r); q != nil {
		return q
	}
	return e.takeFrom(OpAny, r)
}

func (e *Emulator) takeFrom(operation string, r *Request) *queuedFault {
	for _, q := range e.faults[operation] {
		if q.left == 0 ||
			q.condition != nil && !q.condition(r) ||
			q.sometimes && e.chances.Float64() >= q.chance {
			continue
		}
		if q.left > 0 {
			q.left--
		}
		e.trimScript(operation)
		return q
	}
	return nil
}

// trimScript removes the used faults from the front of a script.
func (e *Emulator) trimScript(operation string) {
	queue := e.faults[operation]
	for len(queue) > 0 && queue[0].left == 0 {
		queue = queue[1:]
	}
	if len(queue) == 0 {
		delete(e.faults, operation)
		return
	}
	e.faults[operation] = queue
}

// putBack returns a fault that was not applied to the front of its script.
func (e *Emulator) putBack(q *queuedFault) {
	if q.left < 0 {
		return
	}
	q.left++
	if queue := e.faults[q.operation]; !slices.Contains(queue, q) {
		e.faults[q.operation] = slices.Insert(queue, 0, q)
	}
}
