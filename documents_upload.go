package brellium

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/brellium/brellium-go/internal/redact"
)

const (
	defaultUploads     = 4
	defaultIdleTimeout = 60 * time.Second
	progressInterval   = 100 * time.Millisecond
)

// UploadOptions are the options of Upload. The zero value is fine.
type UploadOptions struct {
	// Concurrency is how many files are sent side by side; 0 means 4.
	Concurrency int
	// BatchSize is how many documents are created with one request, 1 to 100;
	// 0 means 100.
	BatchSize int
	// IdleTimeout ends an attempt to send a file once nothing has moved for
	// so long, the wait for the answer included; 0 means 60 s. There is no
	// limit on the time in all: a slow line is not cut off.
	IdleTimeout time.Duration
	// OnProgress is told how far the upload has come: several times a second,
	// after files have ended, and once at the end, before Upload returns. Its
	// calls do not overlap, and one that takes long holds no file up.
	OnProgress func(UploadProgress)
}

// UploadProgress says how far an upload has come.
type UploadProgress struct {
	// Files is the number of files in all, FilesDone of those that are in
	// storage, and FilesFailed of those that have failed.
	Files, FilesDone, FilesFailed int
	// Bytes is the size of all files together, and BytesDone of what is in
	// storage or was read so far of the files under way. BytesDone falls when
	// a file has to be sent once more.
	Bytes, BytesDone int64
}

// UploadStatus says what became of one file of an upload.
type UploadStatus string

const (
	// UploadStored: the file was sent and has arrived.
	UploadStored UploadStatus = "stored"
	// UploadAlreadyThere: the file had arrived before and was not sent.
	UploadAlreadyThere UploadStatus = "already there"
	// UploadFailed: the file did not arrive, as far as is known.
	UploadFailed UploadStatus = "failed"
	// UploadNotStarted: the upload ended before it came to the file.
	UploadNotStarted UploadStatus = "not started"
)

// UploadResult is what became of one file of an upload.
type UploadResult struct {
	// ExternalID is the file's own, or the one that was made for it. It is
	// empty where the upload ended before that.
	ExternalID string
	// DocumentID is the document's id, empty where it was not created.
	DocumentID string
	Status     UploadStatus
	// Attempts is how often the file was sent, in part or whole.
	Attempts int
	// Err is nil where the file is in storage, an *UploadError where it has
	// failed, and else what ended the upload.
	Err error
}

// Upload creates a document for each file and sends the files to storage,
// several side by side. It returns a result for each file, in the order of
// files, and an error that joins those of the files. Each file that has failed
// has an *UploadError; the others go on. Files that cannot be uploaded at all
// (a blank name, an external id that comes twice, a wrong option) are a
// *ValidationError and no results, before anything is sent.
//
// Call it again with the same files, in another process too, and it sends only
// what has not arrived, and creates nothing twice: every file has an external
// id, see UploadFile. Files of one call with the same name and the same content
// are one document and are sent once; their results are alike, but for the
// Attempts, which the first one has. When ctx ends, what is under way ends and
// the rest is left as UploadNotStarted.
//
// Documents are created in batches, each just before its files are sent. A
// batch that the API rejects fails its own files; any other failure to create
// one ends the upload. Files do not spend from the API's rate limit, carry
// nothing of its credentials, and are streamed. A file is sent again, from its
// beginning, after a 408, a 429, a 5xx, a lost connection or idleness, up to
// WithMaxRetries times (4 by default). Where an answer was lost after the last
// byte, the API is asked first whether the file has arrived. An upload URL
// that has expired is replaced by a new one, once for each file. The total and
// the attempt timeout apply to the API's calls alone.
func (s *DocumentService) Upload(ctx context.Context, files []UploadFile, options UploadOptions, opts ...CallOption) ([]UploadResult, error) {
	u, err := s.newUpload(ctx, files, options, opts)
	if err != nil {
		return nil, err
	}
	return u.run()
}

// Put sends one file to an upload URL that Create returned, for callers that
// keep the batch themselves. It is repeated as Upload does, but a URL that has
// expired is an *UploadError with Expired set: where the document has an
// external id, Create returns a new one. The file's ExternalID, DocType and
// ExternalMetadata play no part. WithHeader adds a header that the URL's
// signature asks for.
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
	cfg, err := s.uploadConfig(opts)
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

// uploadConfig reads call options as those of an upload.
func (s *DocumentService) uploadConfig(opts []CallOption) (callConfig, error) {
	cfg := callConfig{policy: s.client.policy}
	return cfg, cfg.apply(opts, false, false)
}

func (f *UploadFile) validate(field string) error {
	if err := validateDocument(field, f.Filename, f.ExternalID); err != nil {
		return err
	}
	switch {
	case f.Open == nil:
		return &ValidationError{Field: field + ".Open", Reason: "must not be nil"}
	case f.Size < 0:
		return &ValidationError{Field: field + ".Size", Reason: "must not be negative: the size must be known"}
	case !validHeaderValue(f.ContentType):
		return &ValidationError{Field: field + ".ContentType", Reason: "does not fit a header"}
	}
	return nil
}

// upload is one call of Upload.
type upload struct {
	service *DocumentService
	ctx     context.Context
	options UploadOptions
	opts    []CallOption // of the API's calls
	files   []*transfer
	byID    map[string]*transfer

	mu       sync.Mutex // of what the progress is made of
	progress UploadProgress
	underWay map[*transfer]struct{}
	news     chan struct{} // holds a value where files have ended
}

// newUpload checks everything that can be checked before sending.
func (s *DocumentService) newUpload(ctx context.Context, files []UploadFile, options UploadOptions, opts []CallOption) (*upload, error) {
	if ctx == nil {
		return nil, &ValidationError{Field: "ctx", Reason: "must not be nil"}
	}
	switch {
	case options.Concurrency < 0:
		return nil, &ValidationError{Field: "Concurrency", Reason: "must not be negative"}
	case options.BatchSize < 0 || options.BatchSize > maxBatch:
		return nil, &ValidationError{Field: "BatchSize", Reason: "must be from 1 to " + strconv.Itoa(maxBatch) + ", or 0 for that many"}
	case options.IdleTimeout < 0:
		return nil, &ValidationError{Field: "IdleTimeout", Reason: "must not be negative"}
	}
	options.Concurrency = orDefault(options.Concurrency, defaultUploads)
	options.BatchSize = orDefault(options.BatchSize, maxBatch)
	options.IdleTimeout = orDefault(options.IdleTimeout, defaultIdleTimeout)
	cfg, err := s.uploadConfig(opts)
	if err != nil {
		return nil, err
	}
	if cfg.response != nil {
		return nil, &ValidationError{Field: "WithResponseInto", Reason: "is for one request; the results of Upload tell of each file"}
	}
	u := &upload{
		service: s, ctx: ctx, options: options, opts: opts,
		files: make([]*transfer, len(files)), byID: make(map[string]*transfer, len(files)),
		underWay: make(map[*transfer]struct{}), news: make(chan struct{}, 1),
	}
	u.progress.Files = len(files)
	policy := putPolicy(cfg.policy, options.IdleTimeout)
	given := make(map[string]bool)
	for i := range files {
		f := files[i]
		if err := f.validate("files[" + strconv.Itoa(i) + "]"); err != nil {
			return nil, err
		}
		if f.ExternalID != "" {
			if given[f.ExternalID] {
				return nil, repeatedExternalID("files", i)
			}
			given[f.ExternalID] = true
		}
		t := &transfer{client: s.client, file: &f, policy: policy}
		t.result.ExternalID, t.result.Status = f.ExternalID, UploadNotStarted
		if len(f.ExternalMetadata) > 0 {
			var err error // encoded now, so that the body of a repeat is the same
			if t.metadata, err = json.Marshal(f.ExternalMetadata); err != nil {
				return nil, &ValidationError{Field: "files[" + strconv.Itoa(i) + "].ExternalMetadata", Reason: "cannot be encoded as JSON"}
			}
		}
		u.files[i] = t
		u.progress.Bytes += f.Size
	}
	return u, nil
}

func orDefault[T int | time.Duration](v, byDefault T) T {
	if v == 0 {
		return byDefault
	}
	return v
}

// run creates the batches one after the other and hands their files to the
// workers, so that a batch is created when the files of the one before are
// under way.
func (u *upload) run() ([]UploadResult, error) {
	stopReports := u.report()
	work := make(chan *transfer)
	var workers sync.WaitGroup
	for range min(u.options.Concurrency, len(u.files)) {
		workers.Go(func() {
			for t := range work {
				if callerEnded(u.ctx) == nil {
					u.begin(t)
					t.send(u.ctx)
					u.end(t)
				}
			}
		})
	}
	cause := u.createAll(work)
	close(work)
	workers.Wait()
	for _, t := range u.files {
		if t.duplicateOf != nil {
			t.result = t.duplicateOf.result
			t.result.Attempts = 0
			u.end(t)
		}
	}
	if cause == nil && slices.ContainsFunc(u.files, (*transfer).waiting) {
		cause = u.interrupted() // after the last file was handed out
	}
	results := make([]UploadResult, len(u.files))
	for i, t := range u.files {
		if t.waiting() {
			t.result.Err = cause
		}
		results[i] = t.result
	}
	stopReports()
	return results, joinUploads(results, cause)
}

// createAll creates the documents and hands out their files. It returns what
// ended it early, nil where all were handed out.
func (u *upload) createAll(work chan<- *transfer) error {
	for chunk := range slices.Chunk(u.files, u.options.BatchSize) {
		files, err := u.identify(chunk)
		if err != nil {
			return err
		}
		if len(files) == 0 {
			continue
		}
		b, err := u.newBatch(files)
		if err == nil {
			err = b.renew(u.ctx, 0)
		}
		if callerEnded(u.ctx) != nil {
			return u.interrupted()
		}
		if err != nil {
			for _, t := range files {
				t.fail(&UploadError{reason: "the document could not be created", Err: err})
				u.end(t)
			}
			if !rejectedBatch(err) {
				return err
			}
			continue
		}
		for _, t := range files {
			select {
			case work <- t:
			case <-u.ctx.Done():
				return u.interrupted()
			}
		}
	}
	return nil
}

// identify gives each file of a chunk its external id. It returns those files
// that are to become documents.
func (u *upload) identify(chunk []*transfer) ([]*transfer, error) {
	files := make([]*transfer, 0, len(chunk))
	for _, t := range chunk {
		if callerEnded(u.ctx) != nil {
			return nil, u.interrupted()
		}
		if t.result.ExternalID == "" {
			id, err := contentID(u.ctx, t.file)
			if callerEnded(u.ctx) != nil {
				return nil, u.interrupted()
			}
			if err != nil {
				t.fail(&UploadError{Err: err})
				u.end(t)
				continue
			}
			t.result.ExternalID = id
		}
		if t.duplicateOf = u.byID[t.result.ExternalID]; t.duplicateOf == nil {
			u.byID[t.result.ExternalID] = t
			files = append(files, t)
		}
	}
	return files, nil
}

func (u *upload) interrupted() error {
	return &InterruptedError{Operation: "documents.upload", Err: callerEnded(u.ctx), cause: redact.Cause(u.ctx)}
}

// rejectedBatch reports whether err speaks of the documents in a batch, so
// that another batch may well be created.
func rejectedBatch(err error) bool {
	e, ok := err.(*APIError)
	return ok && slices.Contains([]int{http.StatusBadRequest, http.StatusConflict,
		http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity}, e.StatusCode)
}

// begin notes that a file is under way.
func (u *upload) begin(t *transfer) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.underWay[t] = struct{}{}
}

// end notes what became of a file.
func (u *upload) end(t *transfer) {
	u.mu.Lock()
	delete(u.underWay, t)
	switch t.result.Status {
	case UploadStored, UploadAlreadyThere:
		u.progress.FilesDone++
		u.progress.BytesDone += t.file.Size
	case UploadFailed:
		u.progress.FilesFailed++
	}
	u.mu.Unlock()
	select {
	case u.news <- struct{}{}:
	default:
	}
}

func (u *upload) now() UploadProgress {
	u.mu.Lock()
	defer u.mu.Unlock()
	p := u.progress
	for t := range u.underWay {
		p.BytesDone += t.position()
	}
	return p
}

// report calls OnProgress from a goroutine of its own until stop is called,
// which waits for the last call.
func (u *upload) report() (stop func()) {
	onProgress := u.options.OnProgress
	if onProgress == nil {
		return func() {}
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(progressInterval)
		defer ticker.Stop()
		var last UploadProgress
		for {
			select {
			case <-ticker.C:
			case <-u.news:
			case <-done:
				onProgress(u.now())
				return
			}
			if now := u.now(); now != last {
				last = now
				onProgress(now)
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// batch is the documents of some files, and the request that creates them.
type batch struct {
	service *DocumentService
	opts    []CallOption
	body    json.RawMessage
	files   []*transfer

	turn chan struct{} // holds a value while a request is under way

	mu        sync.Mutex
	begun     int // requests
	answered  int // the number of the last one that was answered
	documents []Document
}

func (u *upload) newBatch(files []*transfer) (*batch, error) {
	type input struct {
		Filename         string          `json:"filename"`
		ExternalID       string          `json:"external_id"`
		DocType          string          `json:"doc_type,omitempty"`
		ExternalMetadata json.RawMessage `json:"external_metadata,omitempty"`
	}
	b := &batch{service: u.service, opts: u.opts, files: files, turn: make(chan struct{}, 1)}
	inputs := make([]input, len(files))
	for i, t := range files {
		inputs[i] = input{t.file.Filename, t.result.ExternalID, t.file.DocType, t.metadata}
		t.batch, t.place = b, i
	}
	var err error
	b.body, err = encode(map[string][]input{"documents": inputs})
	return b, err
}

// round is the number of the last request that has begun.
func (b *batch) round() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.begun
}

// renew sends the batch, unless that was done after the given round already:
// files that need it at the same time share one request.
func (b *batch) renew(ctx context.Context, round int) error {
	select {
	case b.turn <- struct{}{}:
		defer func() { <-b.turn }()
	case <-ctx.Done():
		return &InterruptedError{Operation: opDocumentsCreate.name, Err: ctx.Err(), cause: redact.Cause(ctx)}
	}
	b.mu.Lock()
	if b.answered > round {
		b.mu.Unlock()
		return nil
	}
	b.begun++
	number := b.begun
	b.mu.Unlock()
	result, err := b.service.create(ctx, b.body, true, b.opts)
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
	b.answered, b.documents = number, documents
	return nil
}

// document is what the last answer says of a file's document, with the number
// of the request.
func (b *batch) document(place int) (d *Document, round int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return &b.documents[place], b.answered
}

// arrived reports whether the API says that the document's file is in storage:
// it gives no upload URL. Where the answer has no such field at all, a status
// beyond the first must confirm it, so that an answer of another form is not
// taken for a success.
func (d *Document) arrived() bool {
	return d.UploadURL.IsZero() && (d.UploadURL.sent || d.Status != "" && d.Status != DocumentStatusTodo)
}

// uploadErrors joins the errors of an upload. It is fit to be printed however
// many there are.
type uploadErrors struct {
	errs                []error
	failed, idle, files int
}

func joinUploads(results []UploadResult, cause error) error {
	e := &uploadErrors{files: len(results)}
	for _, r := range results {
		switch r.Status {
		case UploadFailed:
			e.failed++
			e.errs = append(e.errs, r.Err)
		case UploadNotStarted:
			e.idle++
		}
	}
	if cause != nil {
		e.errs = append(e.errs, cause)
	}
	if len(e.errs) == 0 {
		return nil
	}
	return e
}

func (e *uploadErrors) Unwrap() []error { return e.errs }

func (e *uploadErrors) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "brellium: documents.upload: %d of %s failed", e.failed, plural(e.files, "file"))
	if e.idle > 0 {
		fmt.Fprintf(&b, ", %d not started", e.idle)
	}
	const shown = 3
	for i, err := range e.errs {
		if i == shown && len(e.errs) > shown+1 {
			fmt.Fprintf(&b, "; and %d more errors", len(e.errs)-shown)
			break
		}
		_, _ = io.WriteString(&b, "; "+err.Error())
	}
	return b.String()
}

// Format prints Error under every verb.
func (e *uploadErrors) Format(s fmt.State, verb rune) { redact.Format(s, verb, e.Error()) }

// LogValue gives the numbers of files, and the first error.
func (e *uploadErrors) LogValue() slog.Value {
	return slog.GroupValue(slog.Int("files", e.files), slog.Int("failed", e.failed), slog.Int("not_started", e.idle),
		slog.Any("first", logError(e.errs[0])))
}

// MarshalJSON encodes what LogValue gives.
func (e *uploadErrors) MarshalJSON() ([]byte, error) { return redact.Marshal(e) }

func (e *uploadErrors) safe() {}
