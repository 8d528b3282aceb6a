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
	"sync/atomic"
	"time"

	"github.com/brellium/brellium-go/internal/redact"
	"github.com/brellium/brellium-go/internal/wait"
)

const (
	defaultUploads     = 4
	defaultIdleTimeout = 60 * time.Second
	progressInterval   = 100 * time.Millisecond
)

// UploadOptions are the options of [DocumentService.Upload]. The zero value is
// ready to use.
type UploadOptions struct {
	// Concurrency is how many files are sent concurrently; 0 means 4.
	Concurrency int
	// BatchSize is how many documents one request creates, 1 to 100; 0 means
	// 100.
	BatchSize int
	// IdleTimeout ends an attempt to send a file that makes no progress for
	// this long, including the wait for the response; 0 means 60 s. For each
	// MiB read from the file it waits as long again, up to four times, since
	// that much may still be in the network's buffers. The wait for a
	// connection does not count, and there is no limit on the total time of an
	// attempt: with 60 s, a connection of 18 KB/s or more is not cut off.
	IdleTimeout time.Duration
	// Header is sent with each file to storage, and never to the API. It is
	// for a storage host that requires, for example,
	// X-Amz-Server-Side-Encryption. What [WithHeader] rejects is rejected
	// here too. (WithHeader itself adds to Upload's calls of the API.)
	Header http.Header
	// OnProgress is called with the progress of the upload: several times a
	// second, when files have finished, and once at the end, before Upload
	// returns. Calls do not overlap, and a slow call does not delay the files.
	OnProgress func(UploadProgress)
}

// UploadProgress is the progress of an upload.
type UploadProgress struct {
	// Files is the total number of files; FilesDone is how many are in storage;
	// FilesFailed is how many failed.
	Files, FilesDone, FilesFailed int
	// Bytes is the total size of all files. BytesDone is the size of the files
	// in storage, plus what has been read so far of the files in flight. It
	// decreases when a file is sent again.
	Bytes, BytesDone int64
}

// UploadStatus is the outcome of one file of an upload.
type UploadStatus string

const (
	// UploadStored means that the file was sent and has arrived.
	UploadStored UploadStatus = "stored"
	// UploadAlreadyThere means that the file had arrived before and was not
	// sent.
	UploadAlreadyThere UploadStatus = "already there"
	// UploadFailed means that the file did not arrive, as far as is known.
	UploadFailed UploadStatus = "failed"
	// UploadNotStarted means that the upload ended before the file was sent.
	UploadNotStarted UploadStatus = "not started"
)

// UploadResult is the result of one file of an upload.
type UploadResult struct {
	// ExternalID is the file's own, or the one that was made for it. It is
	// empty if the upload ended before that.
	ExternalID string
	// DocumentID is the document's id, empty if it was not created.
	DocumentID string
	// Status is the outcome of the file.
	Status UploadStatus
	// Attempts is how many times the file was sent, in part or in full.
	Attempts int
	// Err is nil if the file is in storage, an [UploadError] if it failed, and
	// otherwise the error that ended the upload.
	Err error
}

// Upload creates a document for each file and sends the files to storage,
// several concurrently. It returns a result for each file, in the order of
// files, and an error that joins the errors of the files. A file that fails has
// an [UploadError]; the others continue. If a file cannot be uploaded at all (a
// blank name, a duplicate external id, text that is not valid UTF-8) or an option
// is wrong, nothing is sent, and Upload returns no results and a
// [ValidationError].
//
// Call it again with the same files, in another process too, and it sends only
// the files that have not arrived and creates no document twice: every file has
// an external id, see [UploadFile.ExternalID]. Files of one call with the same
// id made from their content are one document and are sent once. They have the
// same result, except that Attempts is 0 for all but the first. When ctx ends, the
// files in flight fail, the rest are left as UploadNotStarted, and the error
// includes an [InterruptedError].
//
// Documents are created in batches, each just before its files are sent, and
// creating a batch is retried after transient failures. A batch that the API
// rejects fails its own files; any other failure to create one ends the upload.
//
// Files are streamed. They do not count against the API's rate limit and carry
// none of its credentials. A file is sent again, from its beginning, after a
// 408, a 429, a 5xx, a lost connection or an idle timeout, up to
// [WithMaxRetries] times (4 by default). If the response was lost after the
// whole file was sent, Upload first asks the API whether the file has arrived.
// An upload URL that has expired is replaced by a new one, once for each file. A
// file that changes during the upload fails, and storage gets no complete request.
// The total and the attempt timeout apply to the API's calls only.
func (s *DocumentService) Upload(ctx context.Context, files []UploadFile, options UploadOptions, opts ...CallOption) ([]UploadResult, error) {
	u, err := s.newUpload(ctx, files, options, opts)
	if err != nil {
		return nil, err
	}
	return u.run()
}

// upload is one call of Upload.
type upload struct {
	service *DocumentService
	ctx     context.Context
	cancel  context.CancelFunc
	broken  atomic.Pointer[wait.Ended] // a panic of the caller's reader, transport or OnProgress
	options UploadOptions
	cfg     callConfig // of the API's calls
	files   []*transfer
	byID    map[string]*transfer // by external id

	mu       sync.Mutex
	progress UploadProgress // without the files in flight
	inFlight map[*transfer]struct{}
	signal   chan struct{} // holds a value if files have finished
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
		return nil, &ValidationError{Field: "BatchSize", Reason: "must be from 1 to " + strconv.Itoa(maxBatch) + ", or 0 for " + strconv.Itoa(maxBatch)}
	case options.IdleTimeout < 0:
		return nil, &ValidationError{Field: "IdleTimeout", Reason: "must not be negative"}
	}
	var header http.Header
	for key, values := range options.Header {
		key = http.CanonicalHeaderKey(key)
		if invalid, ok := checkHeader(key, values...).(*ValidationError); ok {
			return nil, &ValidationError{Field: "Header", Reason: invalid.Reason}
		}
		if header == nil {
			header = http.Header{}
		}
		header[key] = append(header[key], values...)
	}
	options.Concurrency = orDefault(options.Concurrency, defaultUploads)
	options.BatchSize = orDefault(options.BatchSize, maxBatch)
	options.IdleTimeout = orDefault(options.IdleTimeout, defaultIdleTimeout)
	cfg, err := s.client.callConfig(opts)
	if err != nil {
		return nil, err
	}
	if cfg.response != nil {
		return nil, &ValidationError{Field: "WithResponseInto", Reason: "is for one request; Upload returns a result for each file"}
	}
	u := &upload{
		service: s, ctx: ctx, options: options, cfg: cfg,
		files: make([]*transfer, len(files)), byID: make(map[string]*transfer, len(files)),
		inFlight: make(map[*transfer]struct{}), signal: make(chan struct{}, 1),
	}
	u.progress.Files = len(files)
	policy := putPolicy(cfg.policy, options.IdleTimeout)
	given := make(map[string]bool)
	for i := range files {
		f := files[i]
		field := "files[" + strconv.Itoa(i) + "]"
		if err := f.validate(field); err != nil {
			return nil, err
		}
		if f.ExternalID != "" {
			if given[f.ExternalID] {
				return nil, duplicateExternalID(field)
			}
			given[f.ExternalID] = true
		}
		t := &transfer{client: s.client, file: &f, policy: policy, header: header}
		t.result.ExternalID, t.result.Status = f.ExternalID, UploadNotStarted
		if len(f.ExternalMetadata) > 0 { // encoded once, so that a retry sends the same
			if t.metadata, err = json.Marshal(f.ExternalMetadata); err != nil {
				return nil, &ValidationError{Field: field + ".ExternalMetadata", Reason: "cannot be encoded as JSON"}
			}
			if err := checkText(field+".ExternalMetadata", f.ExternalMetadata); err != nil {
				return nil, err
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

// run creates one batch after another and passes their files to the workers. A
// batch is created when the last file of the one before is in flight.
func (u *upload) run() ([]UploadResult, error) {
	u.ctx, u.cancel = context.WithCancel(u.ctx)
	defer u.cancel()
	stopReports := u.startReports()
	defer stopReports()
	cause := u.sendAll()
	for _, t := range u.files {
		if t.duplicateOf != nil {
			t.result = t.duplicateOf.result
			t.result.Attempts = 0
			u.finished(t)
		}
	}
	if cause == nil && slices.ContainsFunc(u.files, (*transfer).notStarted) {
		cause = u.interrupted() // after the last file was passed on
	}
	results := make([]UploadResult, len(u.files))
	for i, t := range u.files {
		if t.notStarted() {
			t.result.Err = cause
		}
		results[i] = t.result
	}
	stopReports()
	if c := u.broken.Load(); c != nil {
		c.Raise()
	}
	return results, joinUploads(results, cause)
}

// sendAll creates all documents and sends their files. It returns the error that
// ended the upload early.
func (u *upload) sendAll() (cause error) {
	work := make(chan *transfer)
	var workers sync.WaitGroup
	for range min(u.options.Concurrency, len(u.files)) {
		workers.Go(func() {
			for t := range work {
				if callerEnded(u.ctx) == nil {
					u.started(t)
					u.protect(func() { t.send(u.ctx) })
					u.finished(t)
				}
			}
		})
	}
	defer workers.Wait()
	defer close(work)
	u.protect(func() { cause = u.createAll(work) })
	return cause
}

// protect calls f, which runs code of the caller. If that panics, the upload ends,
// and run panics.
func (u *upload) protect(f func()) {
	var c wait.Ended
	defer func() {
		if c.Unfinished {
			u.broken.CompareAndSwap(nil, &c)
			u.cancel()
		}
	}()
	c.Run(f)
}

// createAll creates the documents and passes their files on. It returns the
// error that ended it early, nil if all files were passed on.
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
			err = b.create(u.ctx, 0)
		}
		if callerEnded(u.ctx) != nil {
			return u.interrupted()
		}
		if err != nil {
			for _, t := range files {
				u.failed(t, &UploadError{reason: "the document could not be created", Err: err})
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

// identify gives each file of a chunk its external id. It returns the files
// that are to become documents.
func (u *upload) identify(chunk []*transfer) ([]*transfer, error) {
	files := make([]*transfer, 0, len(chunk))
	for _, t := range chunk {
		if callerEnded(u.ctx) != nil {
			return nil, u.interrupted()
		}
		if t.result.ExternalID == "" {
			id, err := t.contentID(u.ctx)
			if callerEnded(u.ctx) != nil {
				return nil, u.interrupted()
			}
			if err != nil {
				u.failed(t, &UploadError{Err: err})
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

// started counts a file as in flight.
func (u *upload) started(t *transfer) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.inFlight[t] = struct{}{}
}

func (u *upload) failed(t *transfer, err *UploadError) {
	t.fail(err)
	u.finished(t)
}

// finished counts the result of a file.
func (u *upload) finished(t *transfer) {
	u.mu.Lock()
	delete(u.inFlight, t)
	switch t.result.Status {
	case UploadStored, UploadAlreadyThere:
		u.progress.FilesDone++
		u.progress.BytesDone += t.file.Size
	case UploadFailed:
		u.progress.FilesFailed++
	}
	u.mu.Unlock()
	select {
	case u.signal <- struct{}{}:
	default:
	}
}

func (u *upload) currentProgress() UploadProgress {
	u.mu.Lock()
	defer u.mu.Unlock()
	p := u.progress
	for t := range u.inFlight {
		p.BytesDone += t.Position()
	}
	return p
}

// startReports calls OnProgress from its own goroutine until stop is called,
// which returns after the last call.
func (u *upload) startReports() (stop func()) {
	onProgress := u.options.OnProgress
	if onProgress == nil {
		return func() {}
	}
	done := make(chan struct{})
	var reporter sync.WaitGroup
	reporter.Go(func() {
		u.protect(func() { u.report(onProgress, done) })
	})
	return sync.OnceFunc(func() {
		close(done)
		reporter.Wait()
	})
}

// report calls onProgress until done is closed.
func (u *upload) report(onProgress func(UploadProgress), done <-chan struct{}) {
	ticker := time.NewTicker(progressInterval)
	defer ticker.Stop()
	var last UploadProgress
	for {
		select {
		case <-ticker.C:
		case <-u.signal:
		case <-done:
			onProgress(u.currentProgress())
			return
		}
		if p := u.currentProgress(); p != last {
			last = p
			onProgress(p)
		}
	}
}

// uploadErrors joins the errors of an upload. Its text is short however many
// there are.
type uploadErrors struct {
	errs                      []error
	failed, notStarted, files int
}

func joinUploads(results []UploadResult, cause error) error {
	e := &uploadErrors{files: len(results)}
	for _, r := range results {
		switch r.Status {
		case UploadFailed:
			e.failed++
			e.errs = append(e.errs, r.Err)
		case UploadNotStarted:
			e.notStarted++
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

func (e *uploadErrors) Unwrap() []error {
	if e == nil {
		return nil
	}
	return e.errs
}

func (e *uploadErrors) Error() string {
	if e == nil {
		return nilText
	}
	var b strings.Builder
	fmt.Fprintf(&b, "brellium: documents.upload: %d of %s failed", e.failed, plural(e.files, "file"))
	if e.notStarted > 0 {
		fmt.Fprintf(&b, ", %d not started", e.notStarted)
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

// LogValue returns the numbers of files, and the first error.
func (e *uploadErrors) LogValue() slog.Value {
	if e == nil {
		return slog.Value{}
	}
	var first any
	if len(e.errs) > 0 {
		first = logError(e.errs[0])
	}
	return known(slog.Int("files", e.files), slog.Int("failed", e.failed), slog.Int("not_started", e.notStarted), slog.Any("first", first))
}

// MarshalJSON encodes what LogValue returns.
func (e *uploadErrors) MarshalJSON() ([]byte, error) { return redact.Marshal(e) }

func (e *uploadErrors) safe() {}
