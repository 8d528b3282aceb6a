package brellium

import (
	"context"
	"iter"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// AuditService reads audits and updates their flags.
type AuditService struct{ client *Client }

// AuditStatus is how far an audit has come. A status that this version does
// not know is kept as it was sent.
type AuditStatus string

// The statuses of an audit.
const (
	AuditStatusTodo       AuditStatus = "todo"
	AuditStatusProcessing AuditStatus = "processing"
	AuditStatusInProgress AuditStatus = "in_progress"
	AuditStatusError      AuditStatus = "error"
	AuditStatusComplete   AuditStatus = "complete"
)

// AuditAnswer is the answer to one question of an audit.
type AuditAnswer string

// The answers to a question.
const (
	AuditAnswerYes           AuditAnswer = "Yes"
	AuditAnswerNo            AuditAnswer = "No"
	AuditAnswerNotApplicable AuditAnswer = "N/A"
)

// Audit is the audit of one or more documents. Its fields but AuditID,
// Object, Status, Flags, DisplayInfo, People and Responses are carried over
// from v1.
type Audit struct {
	AuditID string `json:"audit_id"`
	// Object is always "audit".
	Object string      `json:"object"`
	Status AuditStatus `json:"status"`
	// Score is from 0 to 100, nil while there is none.
	Score      *float64 `json:"score"`
	Flags      []string `json:"flags"`
	ReviewedBy string   `json:"reviewed_by"`
	SetID      string   `json:"set_id"`
	// Timestamp is when the audit was created.
	Timestamp Time `json:"timestamp"`
	// Documents are the ids of the audited documents.
	Documents   []string        `json:"documents"`
	DisplayInfo []AuditItem     `json:"display_info"`
	People      []AuditItem     `json:"people"`
	Responses   []AuditResponse `json:"responses"`

	raw
}

// AuditItem is one line of an audit's display info or people.
type AuditItem struct {
	Key        string `json:"key"`
	Order      int    `json:"order"`
	Title      string `json:"title"`
	Value      string `json:"value"`
	Format     string `json:"format"`
	FilterType string `json:"filter_type"`
}

// AuditResponse is one question of an audit and its answer.
type AuditResponse struct {
	ResponseID string      `json:"response_id"`
	QuestionID string      `json:"question_id"`
	Query      string      `json:"query"`
	Answer     AuditAnswer `json:"answer"`
	Context    string      `json:"context"`
}

// AuditListParams filters a list of audits. The zero value lists all. The
// filters are assumed, from v1's.
type AuditListParams struct {
	Status     AuditStatus
	SetID      string
	DocumentID string
	// Flags lists audits with any of these flags.
	Flags []string
	// The times exclude audits at the very instant; the zero time is no filter.
	UpdatedAfter  time.Time
	UpdatedBefore time.Time
	CreatedAfter  time.Time
	CreatedBefore time.Time
	// Limit is the number of audits a page, 1 to 100; 0 leaves it to the server.
	Limit int
	// Cursor goes on from a page's NextCursor.
	Cursor string
}

func (p AuditListParams) query() (url.Values, error) {
	q := url.Values{}
	for _, filter := range [...][3]string{{"Status", "status", string(p.Status)}, {"SetID", "set_id", p.SetID}, {"DocumentID", "document_id", p.DocumentID}} {
		if filter[2] != "" && strings.TrimSpace(filter[2]) == "" {
			return nil, &ValidationError{Field: filter[0], Reason: "must not be blank"}
		}
		setString(q, filter[1], filter[2])
	}
	for i, flag := range p.Flags {
		if strings.TrimSpace(flag) == "" {
			return nil, &ValidationError{Field: "Flags[" + strconv.Itoa(i) + "]", Reason: "must not be blank"}
		}
		q.Add("flags", flag)
	}
	setTime(q, "updated_after", p.UpdatedAfter)
	setTime(q, "updated_before", p.UpdatedBefore)
	setTime(q, "created_after", p.CreatedAfter)
	setTime(q, "created_before", p.CreatedBefore)
	return q, setPage(q, p.Limit, p.Cursor)
}

// AuditUpdateParams is what Update changes.
type AuditUpdateParams struct {
	// Flags replaces the audit's flags: an empty slice clears them, nil
	// leaves them as they are.
	Flags []string `json:"flags,omitzero"`
}

// AuditBatchUpdateParams is what BatchUpdate changes.
type AuditBatchUpdateParams struct {
	// AuditIDs are the audits to change, at least one.
	AuditIDs []string `json:"audit_ids"`
	// Flags replaces the flags of each. An empty slice clears them; nil is
	// refused.
	Flags []string `json:"flags"`
}

// AuditBatchUpdateResult says what BatchUpdate did.
type AuditBatchUpdateResult struct {
	// UpdatedAuditIDs are the audits that have the flags now. (assumed, from v1)
	UpdatedAuditIDs []string `json:"updated_audit_ids"`

	raw
}

// Retrieve returns one audit. It is repeated after any failure that may pass.
func (s *AuditService) Retrieve(ctx context.Context, auditID string, opts ...CallOption) (*Audit, error) {
	return fetch[Audit](ctx, s.client, request{op: opAuditsRetrieve, id: auditID, idField: "auditID"}, opts)
}

// List returns one page of audits. It is repeated after any failure that may
// pass. See Page.Next for a page that is returned together with an error.
func (s *AuditService) List(ctx context.Context, params AuditListParams, opts ...CallOption) (*Page[Audit], error) {
	return list[Audit](ctx, s.client, opAuditsList, params.query, opts)
}

// All iterates over all audits that params describes, page by page: params.Limit
// is the size of a page, and each page is one request. Every range over it
// begins anew.
//
// It ends with the first error, after all items that came before it. A page
// after the first that cannot be fetched is a *PaginationError, and listing
// again with its Cursor goes on from there. So is a page whose link cannot be
// followed (it repeats a cursor, or promises another page without naming it);
// its own items come first, and Cursor names that page.
//
// Breaking out of the loop sends nothing more. With WithPrefetch the next page
// is fetched while the loop works on the one before; nothing of it is under
// way any more when the loop has ended. With WithResponseInto the Response is
// that of the page that the loop works on.
func (s *AuditService) All(ctx context.Context, params AuditListParams, opts ...CallOption) iter.Seq2[*Audit, error] {
	return all[Audit](ctx, s.client, opAuditsList, params.query, opts)
}

// Update replaces an audit's flags. A repeat leaves the same flags, so that it
// is repeated after any failure that may pass.
func (s *AuditService) Update(ctx context.Context, auditID string, params AuditUpdateParams, opts ...CallOption) (*Audit, error) {
	return fetch[Audit](ctx, s.client, request{op: opAuditsUpdate, id: auditID, idField: "auditID", body: params}, opts)
}

// BatchUpdate replaces the flags of many audits. A repeat leaves the same
// flags, so that it is repeated after any failure that may pass.
func (s *AuditService) BatchUpdate(ctx context.Context, params AuditBatchUpdateParams, opts ...CallOption) (*AuditBatchUpdateResult, error) {
	if len(params.AuditIDs) == 0 {
		return nil, &ValidationError{Field: "AuditIDs", Reason: "must hold at least one id"}
	}
	if params.Flags == nil {
		return nil, &ValidationError{Field: "Flags", Reason: "must be set; an empty slice clears the flags"}
	}
	for i, id := range params.AuditIDs {
		if err := validateID("AuditIDs["+strconv.Itoa(i)+"]", id); err != nil {
			return nil, err
		}
	}
	return fetch[AuditBatchUpdateResult](ctx, s.client, request{op: opAuditsBatchUpdate, body: params}, opts)
}

func setString(q url.Values, key, value string) {
	if value != "" {
		q.Set(key, value)
	}
}

func setTime(q url.Values, key string, t time.Time) {
	if !t.IsZero() {
		q.Set(key, t.Format(time.RFC3339Nano))
	}
}

// setPage adds the two parameters that every list has.
func setPage(q url.Values, limit int, cursor string) error {
	if limit < 0 || limit > 100 {
		return &ValidationError{Field: "Limit", Reason: "must be from 1 to 100, or 0 for the server's own"}
	}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	for i := 0; i < len(cursor); i++ {
		if cursor[i] < ' ' || cursor[i] == 0x7f {
			return &ValidationError{Field: "Cursor", Reason: "must not hold control characters; give a page's NextCursor as it is"}
		}
	}
	setString(q, "cursor", cursor)
	return nil
}

// newest returns the newest audit of a document, nil where the list has none.
func (s *AuditService) newest(ctx context.Context, documentID string, opts []CallOption) (*Audit, error) {
	page, err := s.List(ctx, AuditListParams{DocumentID: documentID, Limit: 100}, opts...)
	if err != nil {
		return nil, err
	}
	var newest *Audit
	for i := range page.Data {
		a := &page.Data[i]
		if slices.Contains(a.Documents, documentID) && (newest == nil || a.Timestamp.After(newest.Timestamp.Time)) {
			newest = a
		}
	}
	return newest, nil
}
