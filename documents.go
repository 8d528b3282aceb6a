package brellium

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/brellium/brellium-go/internal/redact"
)

// maxBatch is the largest number of documents in one request. (assumed)
const maxBatch = 100

// DocumentService uploads documents to be audited. Use it as Client.Documents.
type DocumentService struct{ client *Client }

// DocumentStatus is the processing status of a document. A status that this
// version does not know is kept as the API sent it.
type DocumentStatus string

// The statuses of a document. Their meanings are assumed.
const (
	// DocumentStatusTodo means that processing has not started.
	DocumentStatusTodo DocumentStatus = "todo"
	// DocumentStatusInProgress means that processing is not finished.
	DocumentStatusInProgress DocumentStatus = "in_progress"
	// DocumentStatusError means that the document could not be processed.
	DocumentStatusError DocumentStatus = "error"
	// DocumentStatusComplete means that processing is finished.
	DocumentStatusComplete DocumentStatus = "complete"
)

// Document is a file to be audited, or that has been audited. Its fields are
// those of v1. Compare documents with [Document.Equal].
type Document struct {
	// DocumentID is the id of the document.
	DocumentID string `json:"document_id"`
	// Object is always "document"; it is empty in the result of Create.
	Object string `json:"object"`
	// ExternalID is your own id of the document, empty if it has none.
	ExternalID string `json:"external_id"`
	// Filename is the name of the file.
	Filename string `json:"filename"`
	// Status is the processing status of the document.
	Status DocumentStatus `json:"status"`
	// Handler is the name of what processes the document.
	Handler string `json:"handler"`
	// AuditCreated is true once the document's audit exists, and nil if the
	// response does not say.
	AuditCreated *bool `json:"audit_created"`
	// NeedsAudit is false if the document will get no audit, and nil if the
	// response does not say.
	NeedsAudit *bool `json:"needs_audit"`
	// ExternalMetadata is free-form. Its numbers are json.Number.
	ExternalMetadata Metadata `json:"external_metadata"`
	// UploadURL is the address to PUT the file to. It is empty once the file
	// has arrived.
	UploadURL UploadURL `json:"upload_url"`

	raw
}

func (d *Document) required() (field, kind, id string) { return "document_id", "text", d.DocumentID }

// Equal reports whether d and other have the same fields, the upload URL
// included. RawJSON is not compared.
func (d Document) Equal(other Document) bool { return sameFields(d, other) }

// UploadURL is a signed address to PUT a file to. Anybody who has it can store
// a file there until it expires, so its value is hidden wherever it is printed,
// logged or encoded. Only [UploadURL.Reveal] returns it.
type UploadURL struct {
	address *redact.Sealed[string] // a pointer, so that an UploadURL equals its copy
	sent    bool                   // the response had the field, null or not
}

// Reveal returns the address, empty if there is none.
func (u UploadURL) Reveal() string {
	if u.address == nil {
		return ""
	}
	return u.address.Open()
}

// IsZero reports whether there is no address.
func (u UploadURL) IsZero() bool { return u.address == nil }

// Equal reports whether u and other are the same address.
func (u UploadURL) Equal(other UploadURL) bool { return u.Reveal() == other.Reveal() }

// String returns "REDACTED", or "" if there is no address.
func (u UploadURL) String() string {
	if u.IsZero() {
		return ""
	}
	return "REDACTED"
}

// Format prints what String returns, under every verb and flag.
func (u UploadURL) Format(s fmt.State, verb rune) { redact.Format(s, verb, u.String()) }

// LogValue returns what String returns.
func (u UploadURL) LogValue() slog.Value { return slog.StringValue(u.String()) }

// MarshalJSON encodes what String returns, or null if there is no address.
func (u UploadURL) MarshalJSON() ([]byte, error) {
	if u.IsZero() {
		return []byte("null"), nil
	}
	return json.Marshal(u.String())
}

// UnmarshalJSON reads an address or null.
func (u *UploadURL) UnmarshalJSON(data []byte) error {
	var s string
	if err := json.Unmarshal(data, &s); err != nil {
		return err
	}
	*u = UploadURL{sent: true}
	if s != "" {
		address := redact.Seal(s)
		u.address = &address
	}
	return nil
}

// DocumentInput is one document to create.
type DocumentInput struct {
	// Filename is required.
	Filename string `json:"filename"`
	// ExternalID is your own id of the document. Creating a document again
	// with the same id creates nothing. It must be unique in a batch.
	ExternalID string `json:"external_id,omitempty"`
	// DocType and ExternalMetadata are optional.
	DocType          string         `json:"doc_type,omitempty"`
	ExternalMetadata map[string]any `json:"external_metadata,omitempty"`
}

// DocumentCreateParams is a batch of documents to create, 1 to 100 (assumed).
type DocumentCreateParams struct {
	// Documents are the documents to create, at least one.
	Documents []DocumentInput `json:"documents"`
}

// validate also reports whether every document has an external id.
func (p DocumentCreateParams) validate() (everyExternalID bool, err error) {
	if len(p.Documents) == 0 {
		return false, &ValidationError{Field: "Documents", Reason: "must contain at least one"}
	}
	if len(p.Documents) > maxBatch {
		return false, &ValidationError{Field: "Documents", Reason: "must contain at most " + strconv.Itoa(maxBatch)}
	}
	seen := make(map[string]bool, len(p.Documents))
	everyExternalID = true
	for i, d := range p.Documents {
		field := "Documents[" + strconv.Itoa(i) + "]"
		if err := validateDocument(field, d.Filename, d.ExternalID); err != nil {
			return false, err
		}
		if d.ExternalID == "" {
			everyExternalID = false
			continue
		}
		if seen[d.ExternalID] {
			return false, duplicateExternalID(field)
		}
		seen[d.ExternalID] = true
	}
	return everyExternalID, nil
}

func validateDocument(field, filename, externalID string) error {
	if strings.TrimSpace(filename) == "" {
		return &ValidationError{Field: field + ".Filename", Reason: "must not be blank"}
	}
	if externalID != "" && strings.TrimSpace(externalID) == "" {
		return &ValidationError{Field: field + ".ExternalID", Reason: "must not be blank; leave it empty for none"}
	}
	return nil
}

func duplicateExternalID(field string) error {
	return &ValidationError{Field: field + ".ExternalID", Reason: "is the same as an earlier document's"}
}

// DocumentCreateResult is the result of [DocumentService.Create].
type DocumentCreateResult struct {
	// Documents are the documents of the batch, including those that existed, in
	// the order of the request.
	Documents []Document `json:"documents"`

	raw
}

// Create creates a batch of documents and returns an upload URL for each file
// that has not arrived yet. [DocumentService.Upload] does the whole job.
//
// If every document has an ExternalID, it is retried after transient failures:
// a retry creates nothing and returns the same documents, with a new upload URL
// for each missing file. If any document has no ExternalID, a retry would
// create a second batch. It is then retried only if the request certainly did
// not run, unless the call has [WithIdempotent].
//
// The error is a [ValidationError] if nothing could be sent, and otherwise as
// for every call an [APIError], [BlockedError], [ConnectionError],
// [DecodeError], [RetriesExhaustedError] or [InterruptedError].
func (s *DocumentService) Create(ctx context.Context, params DocumentCreateParams, opts ...CallOption) (*DocumentCreateResult, error) {
	everyExternalID, err := params.validate()
	if err != nil {
		return nil, err
	}
	cfg, err := s.client.callConfig(opts)
	if err != nil {
		return nil, err
	}
	result, err := s.create(ctx, params, everyExternalID, cfg)
	if err != nil {
		return nil, err
	}
	if reason := result.arrange(params.Documents); reason != "" {
		return nil, oddRecord(opDocumentsCreate, result, reason)
	}
	return result, nil
}

// arrange puts the documents into the order of the inputs, by their external ids and
// file names. Those that have neither stay where they are, if the others do. It
// returns why they are not those of the inputs, "" if they are.
func (d *DocumentCreateResult) arrange(inputs []DocumentInput) string {
	if len(d.Documents) != len(inputs) {
		return "the body has " + plural(len(d.Documents), "document") + " instead of " + strconv.Itoa(len(inputs))
	}
	placed, left, moved := make([]bool, len(inputs)), len(inputs), false
	for _, of := range []func(DocumentInput, Document) bool{
		func(in DocumentInput, d Document) bool { return in.ExternalID != "" && d.ExternalID == in.ExternalID },
		func(in DocumentInput, d Document) bool {
			return d.Filename == in.Filename && (d.ExternalID == "" || in.ExternalID == "")
		},
	} {
		for i, in := range inputs {
			for n := range d.Documents { // that at the same place first
				at := (i + n) % len(inputs)
				if !placed[i] && !placed[at] && of(in, d.Documents[at]) {
					d.Documents[i], d.Documents[at] = d.Documents[at], d.Documents[i]
					placed[i], moved = true, moved || n > 0
					left--
				}
			}
		}
	}
	documents := map[string]bool{}
	for i, in := range inputs {
		received := d.Documents[i]
		switch {
		case in.ExternalID != "" && received.ExternalID != "" && in.ExternalID != received.ExternalID:
			return "the external_id of a document of the body is not one of the request"
		case documents[received.DocumentID]:
			return "the body has one document for two of the request"
		}
		documents[received.DocumentID] = true
	}
	if moved && left > 1 {
		return "the documents of the body are in another order"
	}
	return ""
}

// create sends a batch that has been validated. body is its params, encoded or
// not.
func (s *DocumentService) create(ctx context.Context, body any, retryable bool, cfg callConfig) (*DocumentCreateResult, error) {
	result := new(DocumentCreateResult)
	if _, err := s.client.do(ctx, request{op: opDocumentsCreate, body: body, retryable: retryable}, cfg, result.decodeResponse); err != nil {
		return nil, err
	}
	return result, nil
}

func (d *DocumentCreateResult) decodeResponse(r okResponse) error {
	var body struct {
		Documents []Document `json:"documents"`
	}
	odd, err := r.decode(&body)
	if err != nil && !odd {
		return err
	}
	items, source, unusable, err := decodeItems(r, "documents", body.Documents, odd)
	switch {
	case err != nil:
		return err
	case unusable != nil:
		return unusable
	case len(items) == 0:
		return r.decodeError("the body has no documents")
	}
	d.Documents = items
	d.setRaw(source, wholePage)
	return nil
}

// Equal reports whether d and other have the same documents. RawJSON is not
// compared.
func (d DocumentCreateResult) Equal(other DocumentCreateResult) bool { return sameFields(d, other) }

// Retrieve returns one document. It is retried after transient failures and
// returns the same errors as [DocumentService.Create].
func (s *DocumentService) Retrieve(ctx context.Context, documentID string, opts ...CallOption) (*Document, error) {
	return fetch[Document](ctx, s.client, request{op: opDocumentsRetrieve, id: documentID, idField: "documentID"}, opts)
}

// DocumentListParams filters a list of documents. The zero value lists all
// documents. The names of the filters are assumed.
type DocumentListParams struct {
	// ExternalID lists the one document that has it.
	ExternalID string
	// Limit is the page size, 1 to 100; 0 uses the server's default.
	Limit int
	// Cursor is the NextCursor of a page, to continue after it.
	Cursor string
}

func (p DocumentListParams) query() (url.Values, error) {
	q := url.Values{}
	setString(q, "external_id", p.ExternalID)
	return q, cmp.Or(checkText("", p), setPage(q, p.Limit, p.Cursor))
}

// List returns one page of documents. It is retried after transient failures
// and returns the same errors as [DocumentService.Create], and a
// [PaginationError] or [DecodeError] next to the page as described at
// [Page.Next].
func (s *DocumentService) List(ctx context.Context, params DocumentListParams, opts ...CallOption) (*Page[Document], error) {
	return list[Document](ctx, s.client, opDocumentsList, params.query, opts)
}

// All iterates over all documents that match params, page by page, and stops at
// the first error; see [AuditService.All]. If a page after the first cannot be
// fetched, the error is a [PaginationError], and its Cursor resumes there.
func (s *DocumentService) All(ctx context.Context, params DocumentListParams, opts ...CallOption) iter.Seq2[*Document, error] {
	return all[Document](ctx, s.client, opDocumentsList, params.query, opts)
}

var (
	// ErrDocumentFailed is the error of [DocumentService.WaitForAudit] for a
	// document that could not be processed: its status is "error".
	ErrDocumentFailed = errors.New("brellium: the document could not be processed")
	// ErrNoAudit is the error of [DocumentService.WaitForAudit] for a document
	// that is complete and needs no audit.
	ErrNoAudit = errors.New("brellium: the document needs no audit")
	// ErrAuditFailed is the error of [DocumentService.WaitForFinishedAudit] for
	// an audit whose status is "error".
	ErrAuditFailed = errors.New("brellium: the audit failed")
)

const (
	firstAuditPoll = 2 * time.Second
	maxAuditPoll   = 30 * time.Second
	// maxAuditLag is how long no list may have an audit that is said to exist.
	maxAuditLag = 10 * time.Minute
	// While the updated audits are listed, one in auditTurns of the documents
	// is asked for by itself every maxAuditPoll.
	auditTurns = 8
)

// WaitForAudit waits until the audit of a document exists, and returns it; the
// audit may still be in progress. Otherwise it works as
// [DocumentService.WaitForFinishedAudit], with the same errors, and a second request
// of a poll once the document says that its audit exists.
func (s *DocumentService) WaitForAudit(ctx context.Context, documentID string, opts ...CallOption) (*Audit, error) {
	return s.waitForOne(ctx, documentID, true, opts)
}

// audited reports whether the document's audit may exist. The error is that of
// a document that will have none, or that does not say.
func (d *Document) audited() (bool, error) {
	complete := d.Status == DocumentStatusComplete
	switch {
	case d.AuditCreated != nil && *d.AuditCreated:
		return true, nil
	case d.Status == DocumentStatusError:
		return false, ErrDocumentFailed
	case complete && d.NeedsAudit != nil && !*d.NeedsAudit:
		return false, ErrNoAudit
	case !complete && d.Status != DocumentStatusTodo && d.Status != DocumentStatusInProgress:
		return false, oddRecord(opDocumentsRetrieve, d, "the status of the document is missing or not known")
	}
	return complete && d.AuditCreated == nil, nil
}

// pausePoll waits for about delay.
func pausePoll(ctx context.Context, delay time.Duration) error {
	jitter := time.Duration((0.8 + 0.4*rand.Float64()) * float64(delay))
	return pause(ctx, jitter, "documents.wait_for_audit", 0, nil)
}

// WaitForFinishedAudit waits until the audit of a document is finished, and
// returns it. If the audit's status is "error", it is returned together with
// [ErrAuditFailed].
//
// It sends a request at once, then after about 2 s, and then less and less often,
// up to every 30 s. Give ctx a deadline; if it ends first, the error is an
// [InterruptedError]. The call options apply to each request. To wait for many
// documents, use [DocumentService.WaitForAudits].
//
// The error is [ErrDocumentFailed] if the document cannot be processed, and
// [ErrNoAudit] if it needs no audit. It matches [ErrNotFound] if the document does
// not exist, or if for 10 minutes no list has had the audit that the document says
// exists. It is a [DecodeError] if the document or the audit has no status or one
// that this version does not know (with such an audit, which is returned too), or if
// the list does not say which audit is the document's newest. Otherwise it is that
// of the request that failed after its retries, as described at
// [DocumentService.Create].
func (s *DocumentService) WaitForFinishedAudit(ctx context.Context, documentID string, opts ...CallOption) (audit *Audit, err error) {
	return s.waitForOne(ctx, documentID, false, opts)
}

// waitForOne waits until the audit of a document exists, or is finished.
func (s *DocumentService) waitForOne(ctx context.Context, documentID string, exists bool, opts []CallOption) (*Audit, error) {
	if err := validateID("documentID", documentID); err != nil {
		return nil, err
	}
	w, err := s.newAuditWait(ctx, []string{documentID}, opts)
	if err != nil {
		return nil, err
	}
	var result AuditResult
	w.untilExists, w.left[0].listed = exists, exists // begins with the document
	w.report = func(r *AuditResult) bool { result = *r; return true }
	if err := w.run(ctx); err != nil {
		return nil, err
	}
	return result.Audit, result.Err
}

// AuditResult is the outcome of [DocumentService.WaitForAudits] for one
// document.
type AuditResult struct {
	// DocumentID is the id of the document.
	DocumentID string
	// Audit is the document's audit: its status is "complete", "error" with
	// [ErrAuditFailed], or another one with a [DecodeError]. It is nil if there is
	// none.
	Audit *Audit
	// Err is nil if the audit is complete. Otherwise it is one of the errors of
	// [DocumentService.WaitForFinishedAudit] about the document or its audit.
	Err error
}

// WaitForAudits waits for the audits of many documents, and iterates over the
// results in the order in which they are seen to be finished. Each document has
// one result, also one whose audit failed or that will have no audit.
//
// It asks for each document at once. After that it polls every 2 s while audits
// progress, and otherwise less and less often, up to every 30 s. A poll lists
// the audits that were updated since the previous one, 100 with each request.
// Every 30 s it also asks for an eighth of the documents by itself, so that a
// document that will have no audit is reported within about 4 minutes. Where so
// many other audits change that this would take more requests, it asks for each
// document instead. A poll never sends more requests than documents are left.
//
// Iteration ends after the last result, or with the first error. The error is
// an [InterruptedError] if ctx ends first, and otherwise that of the request
// that failed after its retries, as described at [DocumentService.Create]. To
// resume, call WaitForAudits with the documents that had no result: none is
// lost.
func (s *DocumentService) WaitForAudits(ctx context.Context, documentIDs []string, opts ...CallOption) iter.Seq2[*AuditResult, error] {
	return func(yield func(*AuditResult, error) bool) {
		w, err := s.newAuditWait(ctx, documentIDs, opts)
		if err == nil {
			w.report = func(r *AuditResult) bool { return yield(r, nil) }
			err = w.run(ctx)
		}
		if err != nil && err != errStopped {
			yield(nil, err)
		}
	}
}

// errStopped ends a wait whose caller has broken out of the loop.
var errStopped = errors.New("stopped")

// auditWait is one WaitForAudits.
type auditWait struct {
	client   *Client
	opts     []CallOption
	response *Response
	report   func(*AuditResult) bool
	left     []*awaitedDocument // those to ask for by themselves first come first
	byID     map[string]*awaitedDocument
	changed  bool      // since the last pause
	since    time.Time // updates before this time have been seen; zero: none yet
	asked    time.Time // when documents were last asked for by themselves
	singly   bool      // too many other audits change to list them

	untilExists bool // an audit need not be finished
}

// awaitedDocument is a document whose audit is not finished.
type awaitedDocument struct {
	id     string
	audit  *Audit    // nil: none known
	listed bool      // the list had no audit of it when it was last asked
	exists bool      // its audit exists although no list has it yet
	since  time.Time // when the document first said so; zero: it has not
}

func (s *DocumentService) newAuditWait(ctx context.Context, documentIDs []string, opts []CallOption) (*auditWait, error) {
	if ctx == nil {
		return nil, &ValidationError{Field: "ctx", Reason: "must not be nil"}
	}
	var cfg callConfig
	if err := cfg.apply(opts, false); err != nil {
		return nil, err
	}
	w := &auditWait{client: s.client, response: cfg.response, byID: make(map[string]*awaitedDocument, len(documentIDs))}
	if w.response == nil {
		w.response = new(Response)
	}
	w.opts = append(slices.Clip(opts), WithResponseInto(w.response))
	for i, id := range documentIDs {
		if err := validateID("documentIDs["+strconv.Itoa(i)+"]", id); err != nil {
			return nil, err
		}
		key := canonicalID(id)
		if w.byID[key] == nil {
			w.byID[key] = &awaitedDocument{id: id}
			w.left = append(w.left, w.byID[key])
		}
	}
	return w, nil
}

// run polls until no document is left.
func (w *auditWait) run(ctx context.Context) error {
	for delay := firstAuditPoll; len(w.left) > 0; delay = min(delay*3/2, maxAuditPoll) {
		singly := len(w.left)
		if !w.since.IsZero() && !w.singly && len(w.left) > 1 {
			if singly = 0; time.Since(w.asked) >= maxAuditPoll {
				singly = (len(w.left) + auditTurns - 1) / auditTurns
			}
			if err := w.listUpdated(ctx, len(w.left)-singly); err != nil {
				return err
			}
		}
		if singly > 0 {
			w.asked = time.Now()
		}
		for range min(singly, len(w.left)) {
			if err := w.ask(ctx); err != nil {
				return err
			}
		}
		if len(w.left) == 0 {
			return nil
		}
		if w.changed {
			w.changed, delay = false, firstAuditPoll
		}
		if err := pausePoll(ctx, delay); err != nil {
			return err
		}
	}
	return nil
}

// listUpdated reads the audits that were updated since the last time, with at
// most this many requests.
func (w *auditWait) listUpdated(ctx context.Context, pages int) error {
	sent := time.Now()
	page, err := w.client.Audits.List(ctx, AuditListParams{UpdatedAfter: w.since.UTC().Truncate(time.Second), Limit: 100}, w.opts...)
	since := w.response.timeAt(sent).Add(-defaultFollowLag)
	for n := 1; ; n++ {
		if _, unusable := err.(*DecodeError); unusable && page != nil {
			err, w.singly = nil, true // an item that cannot be used may be one of these
		}
		if page != nil {
			for i := range page.Data {
				if err := w.saw(detached(&page.Data[i])); err != nil {
					return err
				}
			}
		}
		switch {
		case err != nil:
			return err
		case !page.HasMore:
			w.since = since
			return nil
		case n == pages:
			w.singly = true
			return nil
		}
		page, err = page.Next(ctx)
	}
}

// ask asks for the document whose turn it is, with one request.
func (w *auditWait) ask(ctx context.Context) (err error) {
	d, sent := w.left[0], time.Now()
	var audit *Audit
	switch {
	case d.audit != nil:
		audit, err = w.client.Audits.Retrieve(ctx, d.audit.AuditID, w.opts...)
	case !d.listed:
		audit, err = w.client.Audits.newest(ctx, d.id, w.opts)
		d.listed = err == nil
	default:
		var doc *Document
		if doc, err = w.client.Documents.Retrieve(ctx, d.id, w.opts...); err == nil {
			known := d.exists
			if d.exists, err = doc.audited(); err == nil && doc.AuditCreated != nil && *doc.AuditCreated {
				if d.since.IsZero() {
					d.since = time.Now()
				} else if time.Since(d.since) > maxAuditLag {
					err = &notFoundError{op: opAuditsList, reason: "the document's audit, which the document says exists"}
				}
			}
			if err != nil {
				return w.finish(d, nil, err)
			}
			d.listed, w.changed = !d.exists || w.untilExists, w.changed || d.exists && !known
			if d.exists && w.untilExists {
				audit, err = w.client.Audits.newest(ctx, d.id, w.opts)
			}
		}
	}
	if _, odd := err.(*DecodeError); odd || errors.Is(err, ErrNotFound) {
		return w.finish(d, nil, err)
	}
	if err != nil {
		return err
	}
	if w.since.IsZero() {
		w.since = w.response.timeAt(sent).Add(-defaultFollowLag)
	}
	w.left = append(w.left[1:], d)
	if audit == nil {
		return nil
	}
	return w.update(d, audit)
}

// saw takes note of an audit from the list.
func (w *auditWait) saw(audit *Audit) error {
	for _, id := range audit.Documents {
		if d := w.byID[canonicalID(id)]; d != nil {
			if err := w.update(d, audit); err != nil {
				return err
			}
		}
	}
	return nil
}

// update takes note of a document's audit, unless the known one is newer.
func (w *auditWait) update(d *awaitedDocument, audit *Audit) error {
	if known := d.audit; known != nil && known.AuditID != audit.AuditID {
		if known.Timestamp.IsZero() || audit.Timestamp.IsZero() {
			return w.finish(d, nil, oddRecord(opAuditsList, audit, noTimestamp))
		}
		if audit.Timestamp.Before(known.Timestamp.Time) {
			return nil
		}
	}
	w.changed = w.changed || d.audit == nil || d.audit.Status != audit.Status
	d.audit = audit
	switch status := audit.Status; {
	case w.untilExists || status == AuditStatusComplete:
		return w.finish(d, audit, nil)
	case status == AuditStatusError:
		return w.finish(d, audit, ErrAuditFailed)
	case status == AuditStatusTodo || status == AuditStatusProcessing || status == AuditStatusInProgress:
		return nil
	}
	return w.finish(d, audit, oddRecord(opAuditsList, audit, "the status of the audit is missing or not known"))
}

// finish reports the result of a document.
func (w *auditWait) finish(d *awaitedDocument, audit *Audit, err error) error {
	delete(w.byID, canonicalID(d.id))
	w.left = slices.DeleteFunc(w.left, func(other *awaitedDocument) bool { return other == d })
	w.changed = true
	if !w.report(&AuditResult{DocumentID: d.id, Audit: audit, Err: err}) {
		return errStopped
	}
	return nil
}
