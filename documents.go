package brellium

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/brellium/brellium-go/internal/redact"
)

// maxBatch is the largest number of documents in one request. (assumed)
const maxBatch = 100

// DocumentService uploads documents to be audited.
type DocumentService struct{ client *Client }

// DocumentStatus is the processing status of a document. A status that this
// version does not know is kept as the API sent it.
type DocumentStatus string

// The statuses of a document.
const (
	DocumentStatusTodo       DocumentStatus = "todo"
	DocumentStatusInProgress DocumentStatus = "in_progress"
	DocumentStatusError      DocumentStatus = "error"
	DocumentStatusComplete   DocumentStatus = "complete"
)

// Document is a file to be audited, or that has been audited. Its fields are
// those of v1. Compare documents with [Document.Equal].
type Document struct {
	DocumentID string `json:"document_id"`
	// Object is always "document"; it is empty in the result of Create.
	Object string `json:"object"`
	// ExternalID is your own id of the document, empty if it has none.
	ExternalID string         `json:"external_id"`
	Filename   string         `json:"filename"`
	Status     DocumentStatus `json:"status"`
	// Handler is the name of what processes the document.
	Handler string `json:"handler"`
	// AuditCreated is true once the document's audit exists.
	AuditCreated bool `json:"audit_created"`
	// NeedsAudit is false if the document will get no audit.
	NeedsAudit       bool     `json:"needs_audit"`
	ExternalMetadata Metadata `json:"external_metadata"`
	// UploadURL is the address to PUT the file to. It is empty once the file
	// has arrived.
	UploadURL UploadURL `json:"upload_url"`

	raw
}

func (d *Document) required() (field, kind string, set bool) {
	return "document_id", "text", !blank(d.DocumentID)
}

// Equal reports whether d and other have the same fields, the upload URL included.
// RawJSON is not compared.
func (d Document) Equal(other Document) bool { return sameFields(d, other) }

// UploadURL is a signed address to PUT a file to. Anybody who has it can store a
// file there until it expires, so its value is hidden wherever it is printed,
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
	// Documents are the documents of the batch, including those that existed.
	Documents []Document `json:"documents"`

	raw
}

// Create creates a batch of documents and returns an upload URL for each file
// that has not arrived yet. [DocumentService.Upload] does the whole job.
//
// If every document has an ExternalID, it is retried after transient failures:
// a retry creates nothing and returns the same documents, with a new upload URL
// for each missing file. If one has none, a retry would create a second batch.
// It is then retried only if the request certainly did not run, unless the call
// has [WithIdempotent].
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
	return s.create(ctx, params, everyExternalID, cfg)
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
	return q, setPage(q, p.Limit, p.Cursor)
}

// List returns one page of documents. It is retried after transient failures
// and returns the same errors as [DocumentService.Create], and a
// [PaginationError] or [DecodeError] next to the page as described at [Page.Next].
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
)

const (
	firstAuditPoll = 2 * time.Second
	maxAuditPoll   = 30 * time.Second
)

// WaitForAudit waits until the audit of a document exists, and returns it; the
// audit may still be in progress. The error is [ErrDocumentFailed] if the
// document cannot be processed, and [ErrNoAudit] if it needs no audit.
//
// It retrieves the document at once, then after about 2 s, and then less and
// less often, up to every 30 s. Give ctx a deadline; if it ends first, the error
// is an [InterruptedError]. Each look costs one request of the rate limit: to
// wait for many documents, use [AuditService.Follow]. The call options apply to
// each request. A request that fails after its retries ends the wait with its
// error, as described at [DocumentService.Create].
func (s *DocumentService) WaitForAudit(ctx context.Context, documentID string, opts ...CallOption) (*Audit, error) {
	for delay := firstAuditPoll; ; delay = min(delay*3/2, maxAuditPoll) {
		d, err := s.Retrieve(ctx, documentID, opts...)
		switch {
		case err != nil:
			return nil, err
		case d.AuditCreated:
			audit, err := s.client.Audits.newest(ctx, documentID, opts)
			if audit != nil || err != nil {
				return audit, err
			} // else the list is not up to date yet
		case d.Status == DocumentStatusError:
			return nil, ErrDocumentFailed
		case d.Status == DocumentStatusComplete && !d.NeedsAudit:
			return nil, ErrNoAudit
		}
		jitter := time.Duration((0.8 + 0.4*rand.Float64()) * float64(delay))
		if err := pause(ctx, jitter, "documents.wait_for_audit", 0, nil); err != nil {
			return nil, err
		}
	}
}
