package brellium

import (
	"cmp"
	"context"
	"iter"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// AuditService reads audits and updates their flags. Use it as Client.Audits.
type AuditService struct{ client *Client }

// AuditStatus is the progress of an audit. A status without a constant here is
// kept as the server sent it.
type AuditStatus string

// The statuses of an audit. Their meanings are assumed.
const (
	// AuditStatusTodo means that the audit has not started.
	AuditStatusTodo AuditStatus = "todo"
	// AuditStatusProcessing means that the documents are being processed.
	AuditStatusProcessing AuditStatus = "processing"
	// AuditStatusInProgress means that the audit has started and is not finished.
	AuditStatusInProgress AuditStatus = "in_progress"
	// AuditStatusError means that the audit failed.
	AuditStatusError AuditStatus = "error"
	// AuditStatusComplete means that the audit is finished.
	AuditStatusComplete AuditStatus = "complete"
)

// AuditAnswer is the answer to one question of an audit. An answer without a
// constant here is kept as the server sent it.
type AuditAnswer string

// The answers to a question.
const (
	// AuditAnswerYes is the answer yes.
	AuditAnswerYes AuditAnswer = "Yes"
	// AuditAnswerNo is the answer no.
	AuditAnswerNo AuditAnswer = "No"
	// AuditAnswerNotApplicable means that the question does not apply.
	AuditAnswerNotApplicable AuditAnswer = "N/A"
)

// Audit is the audit of one or more documents. The fields AuditID, Object,
// Status, Flags, DisplayInfo, People and Responses are documented; the others are
// carried over from v1.
type Audit struct {
	// AuditID is the id of the audit.
	AuditID string `json:"audit_id"`
	// Object is always "audit".
	Object string `json:"object"`
	// Status is the progress of the audit.
	Status AuditStatus `json:"status"`
	// Score is from 0 to 100. It is nil if the audit has no score yet.
	Score *float64 `json:"score"`
	// Flags are the flags of the audit. [AuditService.Update] replaces them.
	Flags []string `json:"flags"`
	// ReviewedBy is the reviewer's email address, empty if there is none.
	ReviewedBy string `json:"reviewed_by"`
	// SetID is the id of the question set.
	SetID string `json:"set_id"`
	// Timestamp is the time when the audit was created.
	Timestamp Time `json:"timestamp"`
	// Documents are the ids of the audited documents.
	Documents []string `json:"documents"`
	// DisplayInfo are the lines to show with the audit.
	DisplayInfo []AuditItem `json:"display_info"`
	// People are the people that the audit concerns.
	People []AuditItem `json:"people"`
	// Responses are the questions of the audit and their answers.
	Responses []AuditResponse `json:"responses"`

	raw
}

func (a *Audit) required() (field, kind, id string) { return "audit_id", "text", a.AuditID }

// Equal reports whether a and b have the same fields. RawJSON is not compared.
func (a Audit) Equal(b Audit) bool { return sameFields(a, b) }

// AuditItem is one line of an audit's display info or people.
type AuditItem struct {
	// Key identifies the item.
	Key string `json:"key"`
	// Order is the position of the item.
	Order int `json:"order"`
	// Title is the label to show.
	Title string `json:"title"`
	// Value is the value to show.
	Value string `json:"value"`
	// Format is the format of the value. Its values are not documented.
	Format string `json:"format"`
	// FilterType is the kind of filter. Its values are not documented.
	FilterType string `json:"filter_type"`
}

// AuditResponse is one question of an audit and its answer.
type AuditResponse struct {
	// ResponseID is the id of the response.
	ResponseID string `json:"response_id"`
	// QuestionID is the id of the question.
	QuestionID string `json:"question_id"`
	// Query is the text of the question.
	Query string `json:"query"`
	// Answer is the answer to the question.
	Answer AuditAnswer `json:"answer"`
	// Context is the text that explains the answer.
	Context string `json:"context"`
}

// AuditListParams selects the audits of a list. The zero value selects all. The
// filters are assumed from those of v1.
type AuditListParams struct {
	// Status selects audits with this status.
	Status AuditStatus
	// SetID selects audits of this question set.
	SetID string
	// DocumentID selects audits of this document.
	DocumentID string
	// Flags selects audits that have any of these flags.
	Flags []string
	// The four times are bounds, and the zero time means no bound. The bounds are
	// exclusive: an audit with exactly that time is not selected.
	UpdatedAfter  time.Time
	UpdatedBefore time.Time
	CreatedAfter  time.Time
	CreatedBefore time.Time
	// Limit is the page size, 1 to 100; 0 uses the server's default.
	Limit int
	// Cursor resumes a list from the NextCursor of a page.
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
	if err := validateFlags(p.Flags); err != nil {
		return nil, err
	}
	for _, flag := range p.Flags {
		q.Add("flags", flag)
	}
	setTime(q, "updated_after", p.UpdatedAfter)
	setTime(q, "updated_before", p.UpdatedBefore)
	setTime(q, "created_after", p.CreatedAfter)
	setTime(q, "created_before", p.CreatedBefore)
	return q, cmp.Or(checkText("", p), setPage(q, p.Limit, p.Cursor))
}

// validateFlags rejects blank flags, which no audit can have.
func validateFlags(flags []string) error {
	for i, flag := range flags {
		if strings.TrimSpace(flag) == "" {
			return &ValidationError{Field: "Flags[" + strconv.Itoa(i) + "]", Reason: "must not be blank"}
		}
	}
	return nil
}

// validateNewFlags rejects flags that cannot replace those of an audit.
func validateNewFlags(flags []string) error {
	if flags == nil {
		return &ValidationError{Field: "Flags", Reason: "must be set; an empty slice clears the flags"}
	}
	return validateFlags(flags)
}

// AuditUpdateParams is the change that [AuditService.Update] makes.
type AuditUpdateParams struct {
	// Flags replaces the audit's flags. An empty slice clears them; nil is
	// invalid.
	Flags []string `json:"flags,omitzero"`
}

// AuditBatchUpdateParams is the change that [AuditService.BatchUpdate] makes.
type AuditBatchUpdateParams struct {
	// AuditIDs are the audits to change. At least one is required.
	AuditIDs []string `json:"audit_ids"`
	// Flags replaces the flags of each audit. An empty slice clears them; nil is
	// invalid.
	Flags []string `json:"flags"`
}

// AuditBatchUpdateResult is the result of [AuditService.BatchUpdate].
type AuditBatchUpdateResult struct {
	// UpdatedAuditIDs are the audits that now have the flags. (assumed from v1)
	UpdatedAuditIDs []string `json:"updated_audit_ids"`
	// NotUpdated are the ids of the request that are not in UpdatedAuditIDs, such
	// as those of audits that do not exist, in the order of the request. It is
	// not part of the response.
	NotUpdated []string `json:"-"`

	raw
}

func (r *AuditBatchUpdateResult) required() (field, kind, value string) {
	if r.UpdatedAuditIDs != nil {
		value = "set"
	}
	return "updated_audit_ids", "a list", value
}

// Equal reports whether r and other have the same fields. RawJSON is not compared.
func (r AuditBatchUpdateResult) Equal(other AuditBatchUpdateResult) bool { return sameFields(r, other) }

// Retrieve returns one audit. It is retried after transient failures.
//
// It returns the errors of any call (see the package overview). If the audit does
// not exist, the error is an [APIError] that matches [ErrNotFound].
func (s *AuditService) Retrieve(ctx context.Context, auditID string, opts ...CallOption) (*Audit, error) {
	return fetch[Audit](ctx, s.client, request{op: opAuditsRetrieve, id: auditID, idField: "auditID"}, opts)
}

// List returns one page of audits; [Page.Next] returns the page after it. It is
// retried after transient failures.
//
// It returns the errors of any call (see the package overview). A page whose link
// to the next page is broken is returned together with a [PaginationError], and one
// with an item that is not an object or has no id, without that item, together with
// a [DecodeError].
func (s *AuditService) List(ctx context.Context, params AuditListParams, opts ...CallOption) (*Page[Audit], error) {
	return list[Audit](ctx, s.client, opAuditsList, params.query, opts)
}

// All iterates over all audits that params selects. Each page is one request,
// retried after transient failures. Each range loop starts at params.Cursor, or at
// the first page if it is empty.
//
// Iteration ends with the first error, after all audits that were read before
// it. For the first page it is one of the errors of any call (see the package
// overview). After that it is a [PaginationError], whose Cursor resumes the
// list: put it into params.Cursor. Its cause is either a page that could not be
// fetched, or a page whose link to the next one is broken (a repeated cursor,
// none although HasMore is true, or nothing about a next page where one may
// follow). In the second case the page's own audits come first, and Cursor
// names that page. A page with an item that is not an object or has no id ends
// the iteration with a [DecodeError], after its other audits; use List and
// [Page.Next] to continue after it.
//
// Breaking out of the loop stops the requests. [WithPrefetch] fetches the next
// page while the loop processes the current one; that request has ended when the
// loop ends. [WithResponseInto] gives the [Response] of the current page.
func (s *AuditService) All(ctx context.Context, params AuditListParams, opts ...CallOption) iter.Seq2[*Audit, error] {
	return all[Audit](ctx, s.client, opAuditsList, params.query, opts)
}

// Update replaces an audit's flags. It is retried after transient failures, since
// sending the same flags twice has the same effect.
//
// It returns the errors of any call (see the package overview), and a
// [ValidationError] if Flags is nil or contains a blank flag. If the audit does
// not exist, the error is an [APIError] that matches [ErrNotFound].
func (s *AuditService) Update(ctx context.Context, auditID string, params AuditUpdateParams, opts ...CallOption) (*Audit, error) {
	if err := validateID("auditID", auditID); err != nil {
		return nil, err
	}
	if err := validateNewFlags(params.Flags); err != nil {
		return nil, err
	}
	return fetch[Audit](ctx, s.client, request{op: opAuditsUpdate, id: auditID, idField: "auditID", body: params}, opts)
}

// BatchUpdate replaces the flags of many audits with one request. It is retried
// after transient failures, since sending the same flags twice has the same
// effect. An id of no audit is not an error: see
// [AuditBatchUpdateResult].NotUpdated.
//
// It returns the errors of any call (see the package overview), and a
// [ValidationError] if AuditIDs is empty, or Flags is nil or contains a blank flag.
func (s *AuditService) BatchUpdate(ctx context.Context, params AuditBatchUpdateParams, opts ...CallOption) (*AuditBatchUpdateResult, error) {
	if len(params.AuditIDs) == 0 {
		return nil, &ValidationError{Field: "AuditIDs", Reason: "must contain at least one id"}
	}
	if err := validateNewFlags(params.Flags); err != nil {
		return nil, err
	}
	for i, id := range params.AuditIDs {
		if err := validateID("AuditIDs["+strconv.Itoa(i)+"]", id); err != nil {
			return nil, err
		}
	}
	result, err := fetch[AuditBatchUpdateResult](ctx, s.client, request{op: opAuditsBatchUpdate, body: params}, opts)
	if err != nil {
		return nil, err
	}
	waiting := make(map[string]bool, len(params.AuditIDs))
	for _, id := range params.AuditIDs {
		waiting[canonicalID(id)] = true
	}
	for _, id := range result.UpdatedAuditIDs {
		if _, asked := waiting[canonicalID(id)]; !asked {
			return nil, oddRecord(opAuditsBatchUpdate, result, "updated_audit_ids has an id that is not in the request")
		}
		waiting[canonicalID(id)] = false
	}
	for _, id := range params.AuditIDs {
		if waiting[canonicalID(id)] {
			waiting[canonicalID(id)] = false // once, even if it is in the request twice
			result.NotUpdated = append(result.NotUpdated, id)
		}
	}
	return result, nil
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

// setPage adds the limit and the cursor, which every list has.
func setPage(q url.Values, limit int, cursor string) error {
	if limit < 0 || limit > 100 {
		return &ValidationError{Field: "Limit", Reason: "must be from 1 to 100, or 0 for the server's default"}
	}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	if strings.ContainsFunc(cursor, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
		return &ValidationError{Field: "Cursor", Reason: "must not contain white space or control characters; use the NextCursor of a page unchanged"}
	}
	setString(q, "cursor", cursor)
	return checkText("Cursor", cursor)
}

// newest returns the newest audit of a document, or nil if there is none. It is an
// error if the list does not say which one that is.
func (s *AuditService) newest(ctx context.Context, documentID string, opts []CallOption) (*Audit, error) {
	page, err := s.List(ctx, AuditListParams{DocumentID: documentID, Limit: 100}, opts...)
	if page == nil {
		return nil, err
	}
	var newest *Audit
	reason := ""
	for i := range page.Data {
		a := &page.Data[i]
		switch {
		case len(a.Documents) == 0:
			reason = "an item of data has no documents that can be read"
		case !slices.ContainsFunc(a.Documents, func(id string) bool { return canonicalID(id) == canonicalID(documentID) }):
			if page.HasMore { // the filter was ignored, and a newer one may follow
				return nil, oddRecord(opAuditsList, page, "the audits are of other documents than the one of the request")
			}
		case newest == nil:
			newest = a
		case a.Timestamp.IsZero() || newest.Timestamp.IsZero():
			return nil, oddRecord(opAuditsList, page, noTimestamp)
		case a.Timestamp.After(newest.Timestamp.Time):
			newest = a
		}
	}
	switch {
	case newest != nil:
		return newest, nil
	case err != nil: // an item that cannot be used may be the one
		return nil, err
	case reason != "":
		return nil, oddRecord(opAuditsList, page, reason)
	}
	return nil, nil
}

const noTimestamp = "one of several audits of a document has no timestamp"
