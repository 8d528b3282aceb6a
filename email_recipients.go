package brellium

import (
	"context"
	"iter"
	"net/url"
)

// EmailRecipientService manages the recipients of email. Use it as
// Client.EmailRecipients.
type EmailRecipientService struct{ client *Client }

// EmailRecipient is a recipient of email. Its fields are assumed.
type EmailRecipient struct {
	// EmailRecipientID is the id of the recipient.
	EmailRecipientID string `json:"email_recipient_id"`
	// Object is always "email_recipient".
	Object string `json:"object"`
	// Email is the address of the recipient.
	Email string `json:"email"`
	// Name is the name of the recipient, empty if there is none.
	Name string `json:"name"`
	// CreatedAt is zero if the API gives no time.
	CreatedAt Time `json:"created_at"`

	raw
}

func (r *EmailRecipient) required() (field, kind, id string) {
	return "email_recipient_id", "text", r.EmailRecipientID
}

func (r *EmailRecipient) address() string { return r.Email }

// Equal reports whether r and other have the same fields. RawJSON is not compared.
func (r EmailRecipient) Equal(other EmailRecipient) bool { return sameFields(r, other) }

// EmailRecipientCreateParams describes a new email recipient.
type EmailRecipientCreateParams struct {
	// Email is required.
	Email string `json:"email"`
	// Name is omitted if empty. (assumed)
	Name string `json:"name,omitempty"`
}

// EmailRecipientListParams selects the recipients of a list. The zero value
// selects all.
type EmailRecipientListParams struct {
	// Email selects the recipient with this address.
	Email string
	// Limit is the page size, 1 to 100; 0 uses the server's default.
	Limit int
	// Cursor resumes a list from the NextCursor of a page.
	Cursor string
}

func (p EmailRecipientListParams) query() (url.Values, error) {
	return emailQuery(p.Email, p.Limit, p.Cursor)
}

// Create creates an email recipient.
//
// It is retried only if the request did not run (a 429, or a request that never
// reached the server). Only [WithIdempotent] overrides that protection. If
// [OutcomeUnknown] reports true for the error, the recipient may have been
// created; [EmailRecipientService.Ensure] resolves that.
//
// It returns the errors of any call (see the package overview). An [APIError] with
// [CodeEmailRecipientExists] means that the address already has a recipient; see
// [EmailRecipientService.FindByEmail].
func (s *EmailRecipientService) Create(ctx context.Context, params EmailRecipientCreateParams, opts ...CallOption) (*EmailRecipient, error) {
	if err := validateEmail(params.Email); err != nil {
		return nil, err
	}
	return fetch[EmailRecipient](ctx, s.client, request{op: opEmailRecipientsCreate, body: params, email: params.Email}, opts)
}

// Retrieve returns one email recipient. It is retried after transient failures.
// (assumed: the API's guide names only the list)
//
// It returns the errors of any call (see the package overview). If the recipient
// does not exist, the error is an [APIError] that matches [ErrNotFound].
func (s *EmailRecipientService) Retrieve(ctx context.Context, emailRecipientID string, opts ...CallOption) (*EmailRecipient, error) {
	return fetch[EmailRecipient](ctx, s.client, request{op: opEmailRecipientsRetrieve, id: emailRecipientID, idField: "emailRecipientID"}, opts)
}

// List returns one page of email recipients; [Page.Next] returns the page after
// it. A new recipient may be missing from the list for some seconds. It is retried
// after transient failures.
//
// It returns the errors of any call (see the package overview). A page whose link
// to the next page is broken is returned together with a [PaginationError], and one
// with an item that is not an object or has no id, without that item, together with
// a [DecodeError].
func (s *EmailRecipientService) List(ctx context.Context, params EmailRecipientListParams, opts ...CallOption) (*Page[EmailRecipient], error) {
	return list[EmailRecipient](ctx, s.client, opEmailRecipientsList, params.query, opts)
}

// All iterates over all email recipients that params selects. Each page is one
// request, retried after transient failures. Each range loop starts at
// params.Cursor, or at the first page if it is empty. Errors and options are those
// of [AuditService.All].
func (s *EmailRecipientService) All(ctx context.Context, params EmailRecipientListParams, opts ...CallOption) iter.Seq2[*EmailRecipient, error] {
	return all[EmailRecipient](ctx, s.client, opEmailRecipientsList, params.query, opts)
}
