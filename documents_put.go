package brellium

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/brellium/brellium-go/internal/redact"
	"github.com/brellium/brellium-go/internal/storage"
	"github.com/brellium/brellium-go/internal/wire"
)

// Put sends one file to an upload URL that [DocumentService.Create] returned.
// Use it if you keep the batch yourself; [DocumentService.Upload] does the whole
// job. The file's ExternalID, DocType and ExternalMetadata are not sent.
// [WithHeader] adds a header that storage or the URL's signature requires.
//
// The file is sent again, from its beginning, after a 408, a 429, a 5xx, a lost
// connection or 60 s without progress (see [UploadOptions].IdleTimeout), up to
// [WithMaxRetries] times (4 by default). It is also sent again, once, as
// described at [UploadFile.ContentType]. [WithAttemptTimeout], [WithTotalTimeout]
// and [WithPriority] of the client have no effect here; as options of this call
// they are a [ValidationError].
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
	cfg, err := s.client.callConfigOf("Put", opts)
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
	version     *storage.Version // that the external id was made from; nil: any

	call *call                        // the current PUT
	body atomic.Pointer[storage.Body] // of the last attempt
}

// putPolicy is the retry policy of a PUT: the number of retries is p's, and
// there is no time limit but the idle timeout.
func putPolicy(p retryPolicy, idle time.Duration) retryPolicy {
	return retryPolicy{maxRetries: p.maxRetries, explicit: true, idleTimeout: idle}
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
		if d.DocumentID == "" {
			t.fail(&UploadError{reason: "the API's response does not say which document is the file's"})
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
		return wire.Loopback(host) && wire.Loopback(t.client.baseURL.Hostname())
	})
	if reason != "" {
		return &UploadError{reason: reason}
	}
	header, parts := storageHeader, t.client.parts.Open()
	if t.header != nil {
		header = maps.Clone(header)
		maps.Copy(header, t.header)
	}
	for contentType := t.file.contentType(); ; contentType = nil {
		t.call = &call{
			client: t.client, parts: parts, request: request{op: opDocumentsPut, retryable: true}, route: parts.storage,
			url: u, header: header, policy: t.policy, response: t.response,
			payload: payload{open: t.open, size: t.file.Size, contentType: contentType, body: t},
		}
		if t.batch != nil {
			t.call.beforeRetry = t.askWhetherArrived
		}
		err := t.call.run(ctx, func(okResponse) error { return nil }) // the body of a 2xx does not matter
		t.result.Attempts += t.call.attempts
		if err == nil {
			return nil
		}
		e := &UploadError{Err: err}
		if response, ok := asType[*APIError](err); ok {
			e.StatusCode = response.StatusCode
			e.Code, e.Expired = storage.ReadError(response.StatusCode, response.Body)
			e.Code = redact.Code(e.Code)
		}
		// The signature may cover another type than that of the extension, or none.
		guessed := t.file.ContentType == "" && contentType != nil
		if !guessed || e.StatusCode != http.StatusForbidden || e.Code != "SignatureDoesNotMatch" {
			return e
		}
	}
}

// storageHeader is all that a PUT carries besides its type and length: nothing,
// not even the user agent that net/http would add.
var storageHeader = http.Header{"User-Agent": {""}}

// open opens the file for the next attempt.
func (t *transfer) open() (io.ReadCloser, error) {
	body, err := t.file.open(t.version)
	if err != nil {
		return nil, err
	}
	t.body.Store(body)
	if t.file.Size > 0 {
		return body, nil
	}
	// net/http would send an empty body in chunks, and does not read NoBody.
	defer func() { _ = body.Close() }()
	_, err = body.Read(nil)
	body.Raise()
	if err != io.EOF {
		return nil, err
	}
	return http.NoBody, nil
}

// Position returns how much of the file the last attempt has read.
func (t *transfer) Position() int64 {
	if body := t.body.Load(); body != nil {
		return body.Position()
	}
	return 0
}

// Err returns why the last attempt could not read the file as announced, or nil.
// A panic of its reader is raised.
func (t *transfer) Err() error {
	if body := t.body.Load(); body != nil {
		body.Raise()
		return body.Err()
	}
	return nil
}

// askWhetherArrived runs before each retry of a PUT. If the last attempt sent
// the whole file and its response was lost, it asks the API whether the file
// has arrived, so that it is not sent again.
func (t *transfer) askWhetherArrived(r *http.Request) error {
	lost, ok := t.call.failure.(*ConnectionError)
	if !ok || !lost.Sent || t.Position() != t.file.Size {
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

// batch is the documents of some files of an upload, and the request that
// creates them. Sent again, the request creates nothing: it returns the
// documents as they are now, with a new upload URL for each missing file.
type batch struct {
	service *DocumentService
	cfg     callConfig
	body    json.RawMessage
	files   []*transfer

	sending chan struct{} // holds a value while a request is in flight

	mu        sync.Mutex
	sent      int        // number of the last request
	succeeded int        // number of the last request that succeeded
	documents []Document // of its response
}

func (u *upload) newBatch(files []*transfer) (*batch, error) {
	type input struct {
		Filename         string          `json:"filename"`
		ExternalID       string          `json:"external_id"`
		DocType          string          `json:"doc_type,omitempty"`
		ExternalMetadata json.RawMessage `json:"external_metadata,omitempty"`
	}
	b := &batch{service: u.service, cfg: u.cfg, files: files, sending: make(chan struct{}, 1)}
	inputs := make([]input, len(files))
	for i, t := range files {
		inputs[i] = input{t.file.Filename, t.result.ExternalID, t.file.DocType, t.metadata}
		t.batch, t.place = b, i
	}
	var err error
	b.body, err = encode(map[string][]input{"documents": inputs})
	return b, err
}

// lastRequest returns the number of the last request that was sent.
func (b *batch) lastRequest() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sent
}

// create sends the request, unless one later than the given number has
// succeeded: files that need it at the same time share one request.
func (b *batch) create(ctx context.Context, after int) error {
	select {
	case b.sending <- struct{}{}:
		defer func() { <-b.sending }()
	case <-ctx.Done():
		return &InterruptedError{Operation: opDocumentsCreate.name, Err: ctx.Err(), cause: redact.Cause(ctx)}
	}
	b.mu.Lock()
	if b.succeeded > after {
		b.mu.Unlock()
		return nil
	}
	b.sent++
	number := b.sent
	b.mu.Unlock()
	result, err := b.service.create(ctx, b.body, true, b.cfg)
	if err != nil {
		return err
	}
	documents := b.match(result.Documents)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.succeeded, b.documents = number, documents
	return nil
}

// match returns the document of each file, and the zero Document for a file whose
// document is not certain: a file must never be sent for another one's document.
func (b *batch) match(received []Document) []Document {
	byID, names, uses := map[string]*Document{}, map[string]int{}, map[string]int{}
	for i := range received {
		byID[received[i].ExternalID] = &received[i]
	}
	for _, t := range b.files {
		names[t.file.Filename]++
	}
	documents := make([]Document, len(b.files))
	for i, t := range b.files {
		if d := byID[t.result.ExternalID]; d != nil {
			documents[i] = *d
		} else if len(received) == len(b.files) && received[i].ExternalID == "" {
			// Without external ids the order counts, where the names confirm it.
			if name := received[i].Filename; len(b.files) == 1 || name == t.file.Filename && names[name] == 1 {
				documents[i] = received[i]
			}
		}
		uses[documents[i].DocumentID]++
	}
	for i, d := range documents {
		if uses[d.DocumentID] > 1 { // one document for several files
			documents[i] = Document{}
		}
	}
	return documents
}

// document returns the document of a file as the last response has it, and the
// number of that request.
func (b *batch) document(place int) (d *Document, request int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return &b.documents[place], b.succeeded
}

// arrived reports whether the API says that the document's file is in storage:
// there is no upload URL. If the response has no such field at all, the status
// must confirm it, so that a response of another shape is not a success.
func (d *Document) arrived() bool {
	return d.UploadURL.IsZero() && (d.UploadURL.sent || d.Status != "" && d.Status != DocumentStatusTodo)
}

// rejectedBatch reports whether err is about the documents of a batch, so that
// another batch may still succeed.
func rejectedBatch(err error) bool {
	e, ok := err.(*APIError)
	return ok && slices.Contains([]int{http.StatusBadRequest, http.StatusConflict,
		http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity}, e.StatusCode)
}
