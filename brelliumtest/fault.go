package brelliumtest

import (
	"net/http"
	"slices"
	"strconv"
	"time"
)

// Fault is something that goes wrong with a request, scripted with
// [Emulator.Inject]. A constructor such as [Status] or [DropAfter] says what
// happens; methods add to it and return the changed fault:
//
//	brelliumtest.Status(503, "UNAVAILABLE").WithHeader("Retry-After", "2").Times(3)
//
// A Fault is a value and may be used for several operations and emulators.
type Fault struct {
	answer    *scripted // what to answer instead
	work      bool      // the operation's work is done first
	conn      connFault
	stall     time.Duration // of stallHeaders and stallBody; 0: for ever
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
	times     int // negative: for ever
	sometimes bool
	chance    float64
	condition func(*Request) bool
}

// scripted is an answer that takes the place of the usual one.
type scripted struct {
	status        int
	code, message string // with envelope where code is set
	contentType   string
	body          []byte
	size          int64 // of a body that is made up while it is sent
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

// OK answers as usual. It fills a place in a script, and is what other faults
// are made of: OK().DelayAnswer(time.Second), OK().Truncated().
func OK() Fault { return Fault{times: 1} }

// Status answers with a status and the error envelope with this code (on the
// storage host, with its XML). The request is authenticated and charged as
// usual, but the work is not done unless AfterWork says so. Scripted answers
// of 401 and 429 cost nothing; the latter have Retry-After: 1 unless
// WithHeader sets another.
//
// With an empty code the answer has an empty body, but still a request id and
// the RateLimit headers. For an answer without these, see [Bare].
func Status(status int, code string) Fault {
	return Fault{times: 1, answer: &scripted{status: status, code: code}}
}

// Bare answers with a status and nothing else, as the edge in front of the API
// does for 403, 413, 414 and 431: no body, no envelope, no request id, no
// RateLimit headers. The request never reaches the API and costs nothing,
// unless AfterWork says that it was the answer that got lost.
func Bare(status int) Fault {
	return Fault{times: 1, answer: &scripted{status: status, bare: true}}
}

// HTML answers as Bare does, with an HTML page as the body.
func HTML(status int) Fault {
	title := http.StatusText(status)
	page := "<!DOCTYPE html>\n<html><head><title>" + title + "</title></head>\n<body><center><h1>" +
		title + "</h1></center><hr><p>The request could not be satisfied by the gateway.</p>" +
		"<p>Please try again in a few minutes, or contact the operator of this site.</p></body></html>\n"
	return Fault{times: 1, answer: &scripted{status: status, bare: true, contentType: "text/html; charset=utf-8", body: []byte(page)}}
}

// Blocked is the bare 403 of a client that sent too much, with an HTML page.
func Blocked() Fault { return HTML(http.StatusForbidden) }

// Respond answers with a status and any body, with a request id and the
// RateLimit headers. The content type may be empty. With a 2xx status the work
// is done, with any other it is not unless AfterWork says so.
func Respond(status int, contentType, body string) Fault {
	return Fault{
		times:  1,
		work:   status >= 200 && status < 300,
		answer: &scripted{status: status, contentType: contentType, body: []byte(body)},
	}
}

// Redirect answers with a redirect status such as 302 to the location.
func Redirect(status int, location string) Fault {
	return Respond(status, "", "").WithHeader("Location", location)
}

// LargeBody answers with a status and a body of n bytes that is made while it
// is read.
func LargeBody(status int, n int64) Fault {
	f := Respond(status, "text/plain", "")
	f.answer.size = n
	return f
}

// NeverSent refuses the connection. Over Transport the error is the one of a
// refused dial, and the request is not recorded; on a port the connection is
// reset at once.
func NeverSent() Fault { return Fault{times: 1, conn: connRefused} }

// Unsent breaks the connection before a byte of the request was written, as
// happens to a pooled one that the server has closed. The request is not
// recorded. On a port it does the same as NeverSent.
func Unsent() Fault { return Fault{times: 1, conn: connUnsent} }

// DropReading breaks the connection in the middle of the request's body.
func DropReading() Fault { return Fault{times: 1, conn: connDropReading, reset: true} }

// DropBefore reads the request and closes the connection without doing
// anything.
func DropBefore() Fault { return Fault{times: 1, conn: connDropBefore} }

// DropAfter does the work and closes the connection without an answer.
func DropAfter() Fault { return Fault{times: 1, conn: connDropAfter} }

// StallHeaders does the work, and sends the answer only after d, or never
// where d is 0: then the exchange lasts until the request's context or the
// connection ends.
func StallHeaders(d time.Duration) Fault {
	return Fault{times: 1, conn: connStallHeaders, stall: d}
}

// RevokedToken revokes all access tokens when the request comes in, so that it
// gets a 401 and a newly minted token works again.
func RevokedToken() Fault { return Fault{times: 1, revoke: true} }

// OtherWorker takes n tokens from the organization's bucket when the request
// comes in, as another worker's burst just before would.
func OtherWorker(n int) Fault { return Fault{times: 1, burst: float64(n)} }

// InviteFailed makes users.create keep the user and answer 502 INVITE_FAILED,
// no invitation being sent.
func InviteFailed() Fault {
	return Fault{times: 1, invite: true}
}

// RevokeFailed makes users.delete keep the user and answer 502 REVOKE_FAILED.
func RevokeFailed() Fault { return Status(http.StatusBadGateway, "REVOKE_FAILED") }

// Times lets the fault happen to n requests instead of one.
func (f Fault) Times(n int) Fault { f.times = n; return f }

// Forever lets the fault happen to every request from now on.
func (f Fault) Forever() Fault { f.times = -1; return f }

// Sometimes lets the fault happen with probability p to each request that
// comes to it; the others go on to the next fault of the script. The chance
// is drawn from the emulator's seed.
func (f Fault) Sometimes(p float64) Fault { f.sometimes, f.chance = true, p; return f }

// When lets the fault happen only to requests that match. What is known of
// the request at that time is its operation, method, host, path, query,
// header and content length. The function must not call the emulator.
func (f Fault) When(match func(*Request) bool) Fault { f.condition = match; return f }

// AfterWork does the operation's work before the scripted answer is given, as
// when a gateway loses the API's answer.
func (f Fault) AfterWork() Fault { f.work = true; return f }

// WithMessage sets the message in the envelope of Status.
func (f Fault) WithMessage(message string) Fault {
	if f.answer != nil {
		a := *f.answer
		a.message = message
		f.answer = &a
	}
	return f
}

// WithHeader sets a header of the answer. An empty value removes it.
func (f Fault) WithHeader(key, value string) Fault {
	f.headers = append(slices.Clone(f.headers), headerChange{http.CanonicalHeaderKey(key), value})
	return f
}

// WithoutRateLimit leaves the RateLimit headers out.
func (f Fault) WithoutRateLimit() Fault { f.noLimit = true; return f }

// Delay lets d pass before the request is looked at.
func (f Fault) Delay(d time.Duration) Fault { f.before = d; return f }

// DelayAnswer lets d pass between the work and the answer.
func (f Fault) DelayAnswer(d time.Duration) Fault { f.after = d; return f }

// SlowRead reads the request's body at a pace that takes d in all.
func (f Fault) SlowRead(d time.Duration) Fault { f.reading = d; return f }

// Gzipped compresses the answer.
func (f Fault) Gzipped() Fault { f.gzip = true; return f }

// GzipTruncated compresses the answer and leaves out the second half of it,
// with a Content-Length that fits what is sent.
func (f Fault) GzipTruncated() Fault { f.gzip, f.cutGzip = true, true; return f }

// Truncated announces the whole body, sends half of it, and closes the
// connection.
func (f Fault) Truncated() Fault { f.conn = connTruncated; return f }

// ResetInBody sends half of the body and resets the connection.
func (f Fault) ResetInBody() Fault { f.conn, f.reset = connResetBody, true; return f }

// StallInBody sends half of the body and the rest only after d, or never where
// d is 0.
func (f Fault) StallInBody(d time.Duration) Fault {
	f.conn, f.stall = connStallBody, d
	return f
}

// AsReset resets the connection where the fault would close it, so that the
// client sees ECONNRESET rather than an end of file.
func (f Fault) AsReset() Fault { f.reset = true; return f }

// queuedFault is a fault in an emulator's script.
type queuedFault struct {
	Fault
	operation string // whose script it is in
	left      int    // negative: for ever
}

// Inject adds faults to the script of an operation, such as
// "audits.retrieve"; the constants that begin with Op name them all. They
// happen in this order, each to one request unless Times or Forever says
// otherwise. Where an operation has none left, the script of OpAny applies.
//
// A fault that scripts an answer waits for the next request where the API
// itself refuses this one, with a 401 or a 429.
//
// An operation that does not exist is a mistake in the test, which would then
// test nothing: Inject panics.
func (e *Emulator) Inject(operation string, faults ...Fault) {
	if !knownOperation(operation) {
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

// PendingFaults returns how many faults of an operation's script are still to
// happen, and -1 where one of them lasts for ever.
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

// takeFault returns the fault that happens to a request, or nil. The caller
// holds e.mu.
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
		e.dropSpent(operation)
		return q
	}
	return nil
}

// dropSpent removes the used-up faults at the head of a script.
func (e *Emulator) dropSpent(operation string) {
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

// putBack returns a fault that did not come to pass to the head of its script.
func (e *Emulator) putBack(q *queuedFault) {
	if q.left < 0 {
		return
	}
	q.left++
	if queue := e.faults[q.operation]; !slices.Contains(queue, q) {
		e.faults[q.operation] = slices.Insert(queue, 0, q)
	}
}
