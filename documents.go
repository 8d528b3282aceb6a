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

// DocumentStatus is how far a document has come. A status that this version
// does not know is kept as it was sent.
type DocumentStatus string

// The statuses of a document.
const (
	DocumentStatusTodo       DocumentStatus = "todo"
	DocumentStatusInProgress DocumentStatus = "in_progress"
	DocumentStatusError      DocumentStatus = "error"
	DocumentStatusComplete   DocumentStatus = "complete"
)

// Document is a file that is to be audited, or has been. Its fields are
// carried over from v1.
type Document struct {
	DocumentID string `json:"document_id"`
	// Object is always "document". Create leaves it out.
	Object string `json:"object"`
	// ExternalID is your own id of the document, empty where it has none.
	ExternalID string         `json:"external_id"`
	Filename   string         `json:"filename"`
	Status     DocumentStatus `json:"status"`
	// Handler names what processes the document.
	Handler string `json:"handler"`
	// AuditCreated is true once the document's audit exists.
	AuditCreated bool `json:"audit_created"`
	// NeedsAudit is false where the document will get no audit.
	NeedsAudit       bool     `json:"needs_audit"`
	ExternalMetadata Metadata `json:"external_metadata"`
	// UploadURL is where to PUT the file. It is empty once the file has
	// arrived.
	UploadURL UploadURL `json:"upload_url"`

	raw
}

// UploadURL is a signed address that a file is PUT to: whoever has it can put
// a file there until it expires. It hides its value wherever it is printed,
// logged or encoded; only Reveal gives it.
type UploadURL struct {
	// text is a function since a dumper that walks structs cannot look
	// inside one.
	text func() string
	sent bool // the answer had the field, null or not
}

// Reveal returns the address, empty where there is none.
func (u UploadURL) Reveal() string {
	if u.text == nil {
		return ""
	}
	return u.text()
}

// IsZero reports whether there is no address.
func (u UploadURL) IsZero() bool { return u.text == nil }

// String says whether there is an address.
func (u UploadURL) String() string {
	if u.IsZero() {
		return ""
	}
	return "REDACTED"
}

// Format writes what String returns, under every verb and flag.
func (u UploadURL) Format(s fmt.State, verb rune) { redact.Format(s, verb, u.String()) }

// LogValue returns what String returns.
func (u UploadURL) LogValue() slog.Value { return slog.StringValue(u.String()) }

// MarshalJSON encodes null where there is no address, and else what String
// returns.
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
		u.text = func() string { return s }
	}
	return nil
}

// DocumentInput is one document to create.
type DocumentInput struct {
	// Filename is required.
	Filename string `json:"filename"`
	// ExternalID is your own id of the document. Creating a document again
	// with the same one creates nothing. It may not come twice in a batch.
	ExternalID string `json:"external_id,omitempty"`
	// DocType and ExternalMetadata are optional.
	DocType          string         `json:"doc_type,omitempty"`
	ExternalMetadata map[string]any `json:"external_metadata,omitempty"`
}

// DocumentCreateParams is a batch of documents to create, 1 to 100 (assumed).
type DocumentCreateParams struct {
	Documents []DocumentInput `json:"documents"`
}

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
		if err := validateDocument("Documents["+strconv.Itoa(i)+"]", d.Filename, d.ExternalID); err != nil {
			return false, err
		}
		if d.ExternalID == "" {
			everyExternalID = false
			continue
		}
		if seen[d.ExternalID] {
			return false, repeatedExternalID("Documents", i)
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

func repeatedExternalID(list string, i int) error {
	return &ValidationError{Field: list + "[" + strconv.Itoa(i) + "].ExternalID", Reason: "is the same as an earlier document's"}
}

// DocumentCreateResult is what Create returns.
type DocumentCreateResult struct {
	// Documents are the documents of the batch, those that existed included.
	Documents []Document `json:"documents"`

	raw
}

// Create creates a batch of documents and returns an upload URL for each file
// that has not arrived yet; Upload does the whole job.
//
// It is repeated after any failure that may pass where every document has an
// ExternalID: a repeat then creates nothing and returns the same documents,
// with a new upload URL for each file that is still missing. Where one has
// none, a repeat would create a second batch, so that only what provably did
// not run is sent again, unless WithMaxRetries is given on the call.
func (s *DocumentService) Create(ctx context.Context, params DocumentCreateParams, opts ...CallOption) (*DocumentCreateResult, error) {
	retryable, err := params.validate()
	if err != nil {
		return nil, err
	}
	return s.create(ctx, params, retryable, opts)
}

// create sends a batch that has been validated. body is its params, encoded or
// not.
func (s *DocumentService) create(ctx context.Context, body any, retryable bool, opts []CallOption) (*DocumentCreateResult, error) {
	cfg, err := s.client.callConfig(opts)
	if err != nil {
		return nil, err
	}
	var result *DocumentCreateResult
	_, err = s.client.do(ctx, request{op: opDocumentsCreate, body: body, retryable: retryable}, cfg, func(r okResponse) (err error) {
		result, err = decodeDocuments(r)
		return err
	})
	return result, err
}

func decodeDocuments(r okResponse) (*DocumentCreateResult, error) {
	var result DocumentCreateResult
	if err := r.decode(&result); err != nil {
		return nil, err
	}
	var items struct {
		Documents []json.RawMessage `json:"documents"`
	}
	whole := r.json()
	if json.Unmarshal(whole, &items) != nil || len(items.Documents) != len(result.Documents) {
		return nil, r.decodeError("the documents cannot be separated")
	}
	if len(result.Documents) == 0 {
		return nil, r.decodeError("the body has no documents")
	}
	result.setRaw(&whole)
	for i := range result.Documents {
		result.Documents[i].setRaw(&items.Documents[i])
	}
	return &result, nil
}

// Retrieve returns one document. It is repeated after any failure that may
// pass.
func (s *DocumentService) Retrieve(ctx context.Context, documentID string, opts ...CallOption) (*Document, error) {
	return fetch[Document](ctx, s.client, request{op: opDocumentsRetrieve, id: documentID, idField: "documentID"}, opts)
}

// DocumentListParams filters a list of documents. The zero value lists all.
// The names of the filters are assumed.
type DocumentListParams struct {
	// ExternalID lists the one document that has it.
	ExternalID string
	// Limit is the number of documents a page, 1 to 100; 0 leaves it to the
	// server.
	Limit int
	// Cursor goes on from a page's NextCursor.
	Cursor string
}

func (p DocumentListParams) query() (url.Values, error) {
	q := url.Values{}
	setString(q, "external_id", p.ExternalID)
	return q, setPage(q, p.Limit, p.Cursor)
}

// List returns one page of documents. It is repeated after any failure that
// may pass.
func (s *DocumentService) List(ctx context.Context, params DocumentListParams, opts ...CallOption) (*Page[Document], error) {
	return list[Document](ctx, s.client, opDocumentsList, params.query, opts)
}

// All iterates over all documents that params describes, page by page, and
// ends with the first error. A page that cannot be fetched after the first is
// a *PaginationError whose Cursor goes on from there.
func (s *DocumentService) All(ctx context.Context, params DocumentListParams, opts ...CallOption) iter.Seq2[*Document, error] {
	return all[Document](ctx, s.client, opDocumentsList, params.query, opts)
}

var (
	// ErrDocumentFailed is what WaitForAudit returns for a document that could
	// not be processed: its status is "error".
	ErrDocumentFailed = errors.New("brellium: the document could not be processed")
	// ErrNoAudit is what WaitForAudit returns for a document that is complete
	// and needs no audit.
	ErrNoAudit = errors.New("brellium: the document needs no audit")
)

const (
	firstAuditPoll = 2 * time.Second
	maxAuditPoll   = 30 * time.Second
)

// WaitForAudit waits until the audit of a document exists, and returns it; it
// may still be in progress. A document that cannot be processed is
// ErrDocumentFailed, and one that needs no audit ErrNoAudit.
//
// It asks for the document at once, then after about 2 s, and ever less often
// up to every 30 s, so that ctx should have a deadline. Each question spends
// one request of the rate limit: to wait for many documents, Follow the
// audits. The call options apply to each of its calls; a call that fails for
// good ends the wait.
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
			} // else the list lags behind
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
