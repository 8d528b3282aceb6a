package brellium

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/brellium/brellium-go/internal/redact"
)

// transfer is one file on its way to storage.
type transfer struct {
	client      *Client
	file        *UploadFile
	policy      retryPolicy
	header      http.Header // beside storageHeader
	response    *Response
	metadata    json.RawMessage
	batch       *batch // nil where the caller keeps it
	place       int
	duplicateOf *transfer // an earlier file that is the same document
	result      UploadResult

	call *call // the one under way

	mu   sync.Mutex
	body sentBody // the last that was opened
}

// putPolicy is how often and how long a PUT may try, for the retryPolicy of the
// call that it belongs to.
func putPolicy(t retryPolicy, idle time.Duration) retryPolicy {
	return retryPolicy{maxRetries: t.maxRetries, explicit: true, forced: t.forced, idleTimeout: idle}
}

// waiting reports whether the file has not been begun.
func (t *transfer) waiting() bool { return t.result.Status == UploadNotStarted }

func (t *transfer) fail(e *UploadError) {
	e.ExternalID = t.result.ExternalID
	t.result.Status, t.result.Err = UploadFailed, e
}

// send brings the file to storage, if it is not there, and fills in the
// result.
func (t *transfer) send(ctx context.Context) {
	for renewed := false; ; renewed = true {
		d, round := t.batch.document(t.place)
		t.result.DocumentID = d.DocumentID
		if d.arrived() {
			t.result.Status = UploadAlreadyThere
			return
		}
		if d.UploadURL.IsZero() {
			t.fail(&UploadError{reason: "the API's answer has no upload URL for the file"})
			return
		}
		err := t.put(ctx, d.UploadURL.Reveal())
		if err == nil {
			t.result.Status = UploadStored
			return
		}
		if !err.Expired || renewed {
			t.fail(err)
			return
		}
		if failure := t.batch.renew(ctx, round); failure != nil {
			err.Err = failure
			t.fail(err)
			return
		}
	}
}

// put sends the file to address, as often as that takes.
func (t *transfer) put(ctx context.Context, address string) *UploadError {
	u, reason := t.client.storageURL(address)
	if reason != "" {
		return &UploadError{reason: reason}
	}
	header := storageHeader
	if t.header != nil {
		header = maps.Clone(header)
		maps.Copy(header, t.header)
	}
	t.call = &call{
		client: t.client, op: opDocumentsPut, route: &t.client.storage, url: u, header: header,
		policy: t.policy, response: t.response, retryable: true,
		payload: payload{open: t.open, size: t.file.Size, contentType: []string{t.file.contentType()}, position: t.position},
	}
	if t.batch != nil {
		t.call.beforeRetry = t.askWhetherArrived
	}
	err := t.call.run(ctx, func(okResponse) error { return nil }) // a storage host's words do not matter
	t.result.Attempts += t.call.attempts
	if err == nil {
		return nil
	}
	e := &UploadError{Err: err}
	if answer, ok := asType[*APIError](err); ok {
		e.StatusCode = answer.StatusCode
		e.Code, e.Expired = readStorageError(answer.StatusCode, answer.Body)
	}
	return e
}

// storageHeader is what a PUT carries beside its type and length: nothing, not
// even the agent that net/http would name.
var storageHeader = http.Header{"User-Agent": {""}}

// open opens the file for the next attempt.
func (t *transfer) open() (io.ReadCloser, error) {
	body, err := t.file.openBody()
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.body = body
	if t.file.Size == 0 {
		return http.NoBody, body.Close() // else net/http would send it in chunks
	}
	return body, nil
}

func (t *transfer) position() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.body == nil {
		return 0
	}
	return t.body.position()
}

// askWhetherArrived runs before each retry of a PUT. Where the attempt before
// sent the whole file and its response was lost, it asks the API whether the
// file has arrived, so that it is not sent again.
func (t *transfer) askWhetherArrived(r *http.Request) error {
	e, ok := t.call.failure.(*ConnectionError)
	if !ok || !e.Sent || t.position() != t.file.Size || t.batch.renew(r.Context(), t.batch.round()) != nil {
		return nil
	}
	if d, _ := t.batch.document(t.place); d.arrived() {
		return errAlreadyDone
	}
	return nil
}

// storageURL reads an upload URL. What is sent is the very bytes of it, since
// a signature covers them. The reason, where there is one, says why it cannot
// be used.
func (c *Client) storageURL(address string) (u url.URL, reason string) {
	for i := 0; i < len(address); i++ {
		if address[i] <= ' ' || address[i] >= 0x7f || address[i] == '#' {
			return url.URL{}, "the upload URL is not escaped"
		}
	}
	parsed, err := url.Parse(address)
	switch {
	case err != nil || parsed.Opaque != "" || parsed.Host == "":
		return url.URL{}, "the upload URL is not one"
	case parsed.Scheme == "http" && loopback(parsed.Hostname()) && loopback(c.baseURL.Hostname()):
	case parsed.Scheme != "https":
		return url.URL{}, "the upload URL is not https"
	}
	_, rest, _ := strings.Cut(address, "://")
	if slash := strings.IndexByte(rest, '/'); slash >= 0 && parsed.RequestURI() != rest[slash:] {
		parsed.Opaque, _, _ = strings.Cut(rest[slash:], "?")
		if parsed.RequestURI() != rest[slash:] {
			return url.URL{}, "the upload URL cannot be sent as it is"
		}
	}
	return *parsed, ""
}

// readStorageError reads the code out of a storage host's error, and whether
// it says that the URL has expired. Both are up to the host; the forms known
// are those of S3 and of what imitates it. (assumed)
func readStorageError(status int, body []byte) (code string, expired bool) {
	var e struct {
		XMLName xml.Name `xml:"Error"`
		Code    string   `xml:"Code"`
		Message string   `xml:"Message"`
	}
	if xml.Unmarshal(body, &e) != nil {
		return "", false
	}
	code = redact.Code(strings.TrimSpace(e.Code))
	switch code {
	case "ExpiredToken", "RequestExpired", "TokenExpired":
		expired = true
	case "AccessDenied":
		expired = strings.Contains(strings.ToLower(e.Message), "expired")
	}
	return code, expired && status >= 400 && status < 500
}
