package brellium

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
)

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
		return &InterruptedError{Operation: opDocumentsCreate.name, Err: ctx.Err(), cause: causeOf(ctx)}
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
	documents := make([]Document, len(b.files))
	byID := make(map[string]*Document, len(result.Documents))
	for i := range result.Documents {
		byID[result.Documents[i].ExternalID] = &result.Documents[i]
	}
	for i, t := range b.files {
		if d := byID[t.result.ExternalID]; d != nil {
			documents[i] = *d
		} else if len(result.Documents) == len(b.files) && result.Documents[i].ExternalID == "" {
			documents[i] = result.Documents[i]
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.succeeded, b.documents = number, documents
	return nil
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
