package brellium

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/brellium/brellium-go/internal/storage"
)

// Put sends one file to an upload URL that [DocumentService.Create] returned.
// Use it if you keep the batch yourself; [DocumentService.Upload] does the whole
// job. The file's ExternalID, DocType and ExternalMetadata are not sent.
// [WithHeader] adds a header that the URL's signature requires.
//
// The file is sent again, from its beginning, after a 408, a 429, a 5xx, a lost
// connection or 60 s without progress, up to [WithMaxRetries] times (4 by
// default). The total and the attempt timeout do not apply.
//
// The error is a [ValidationError] if nothing could be sent, and otherwise an
// [UploadError]. Its Expired is set if the URL has expired; if the document has
// an external id, Create then returns a new URL.
func (s *DocumentService) Put(ctx context.Context, to UploadURL, file UploadFile, opts ...CallOption) error {
	if ctx == nil {
		return &ValidationError{Field: "ctx", Reason: "must not be nil"}
	}
	if to.IsZero() {
		return &ValidationError{Field: "to", Reason: "must not be empty: the file has arrived"}
	}
	if err := file.validate("file"); err != nil {
		return err
	}
	cfg, err := s.client.callConfig(opts)
	if err != nil {
		return err
	}
	t := &transfer{client: s.client, file: &file, policy: putPolicy(cfg.policy, defaultIdleTimeout), header: cfg.header, response: cfg.response}
	if err := t.put(ctx, to.Reveal()); err != nil {
		err.ExternalID = file.ExternalID
		return err
	}
	return nil
}

// transfer is one file to be sent to storage.
type transfer struct {
	client      *Client
	file        *UploadFile
	policy      retryPolicy
	header      http.Header // besides storageHeader
	response    *Response
	metadata    json.RawMessage
	batch       *batch // nil in Put
	place       int    // in the batch
	duplicateOf *transfer
	result      UploadResult

	call *call                        // the current PUT
	body atomic.Pointer[storage.Body] // of the last attempt
}

// putPolicy is the retry policy of a PUT: the number of retries is p's, and
// there is no time limit but the idle timeout.
func putPolicy(p retryPolicy, idle time.Duration) retryPolicy {
	return retryPolicy{maxRetries: p.maxRetries, explicit: true, forced: p.forced, idleTimeout: idle}
}

func (t *transfer) notStarted() bool { return t.result.Status == UploadNotStarted }

func (t *transfer) fail(e *UploadError) {
	e.ExternalID = t.result.ExternalID
	t.result.Status, t.result.Err = UploadFailed, e
}

// send puts the file into storage, unless it is there, and fills in the result.
func (t *transfer) send(ctx context.Context) {
	for renewed := false; ; renewed = true {
		d, request := t.batch.document(t.place)
		t.result.DocumentID = d.DocumentID
		if d.arrived() {
			t.result.Status = UploadAlreadyThere
			return
		}
		if d.UploadURL.IsZero() {
			t.fail(&UploadError{reason: "the API's response has no upload URL for the file"})
			return
		}
		err := t.put(ctx, d.UploadURL.Reveal())
		if err == nil {
			t.result.Status = UploadStored
			return
		}
		if err.Expired && !renewed {
			failure := t.batch.create(ctx, request)
			if failure == nil {
				continue
			}
			err.Err = failure
		}
		t.fail(err)
		return
	}
}

// put sends the file to address, with retries.
func (t *transfer) put(ctx context.Context, address string) *UploadError {
	u, reason := storage.ParseURL(address, func(host string) bool {
		return loopback(host) && loopback(t.client.baseURL.Hostname())
	})
	if reason != "" {
		return &UploadError{reason: reason}
	}
	header := storageHeader
	if t.header != nil {
		header = maps.Clone(header)
		maps.Copy(header, t.header)
	}
	t.call = &call{
		client: t.client, op: opDocumentsPut, url: u, header: header,
		policy: t.policy, response: t.response, repeatable: true,
		payload: payload{open: t.open, size: t.file.Size, contentType: []string{t.file.contentType()}, position: t.position},
	}
	if t.batch != nil {
		t.call.beforeRetry = t.askWhetherArrived
	}
	err := t.call.run(ctx, func(answer) error { return nil }) // the body of a 2xx does not matter
	t.result.Attempts += t.call.attempts
	if err == nil {
		return nil
	}
	e := &UploadError{Err: err}
	if response, ok := asType[*APIError](err); ok {
		e.StatusCode = response.StatusCode
		e.Code, e.Expired = storage.ReadError(response.StatusCode, response.Body)
		e.Code = safeCode(e.Code)
	}
	return e
}

// storageHeader is all that a PUT carries besides its type and length: nothing,
// not even the user agent that net/http would add.
var storageHeader = http.Header{"User-Agent": {""}}

// open opens the file for the next attempt.
func (t *transfer) open() (io.ReadCloser, error) {
	body, err := t.file.open()
	if err != nil {
		return nil, err
	}
	t.body.Store(body)
	if t.file.Size > 0 {
		return body, nil
	}
	// net/http would send an empty body in chunks, and does not read NoBody.
	defer func() { _ = body.Close() }()
	if _, err = body.Read(nil); err != io.EOF {
		return nil, err
	}
	return http.NoBody, nil
}

// position returns how much of the file the last attempt has read.
func (t *transfer) position() int64 {
	if body := t.body.Load(); body != nil {
		return body.Position()
	}
	return 0
}

// askWhetherArrived runs before each retry of a PUT. If the last attempt sent
// the whole file and its response was lost, it asks the API whether the file
// has arrived, so that it is not sent again.
func (t *transfer) askWhetherArrived(r *http.Request) error {
	lost, ok := t.call.failure.(*ConnectionError)
	if !ok || !lost.Sent || t.position() != t.file.Size {
		return nil
	}
	if t.batch.create(r.Context(), t.batch.lastRequest()) != nil {
		return nil // not known: send the file again
	}
	if d, _ := t.batch.document(t.place); d.arrived() {
		return errAlreadyDone
	}
	return nil
}
