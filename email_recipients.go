package brellium

import (
	"context"
	"iter"
	"net/url"
)

// EmailRecipientService manages who is sent email.
type EmailRecipientService struct{ client *Client }

// EmailRecipient is somebody who is sent email. Its fields are assumed.
type EmailRecipient struct {
	EmailRecipientID string `json:"email_recipient_id"`
	// Object is always "email_recipient".
	Object string `json:"object"`
	Email  string `json:"email"`
	Name   string `json:"name"`
	// CreatedAt is zero where the API gives no time.
	CreatedAt Time `json:"created_at"`

	raw
}

// EmailRecipientCreateParams describes a new email recipient.
type EmailRecipientCreateParams struct {
	// Email is required.
	Email string `json:"email"`
	// Name is left out where it is empty. (assumed)
	Name string `json:"name,omitempty"`
}

// EmailRecipientListParams filters a list of email recipients. The zero value
// lists all.
type EmailRecipientListParams struct {
	// Email lists the recipient with this address.
	Email string
	// Limit is the number of recipients a page, 1 to 100; 0 leaves it to the
	// server.
	Limit int
	// Cursor goes on from a page's NextCursor.
	Cursor string
}

func (p EmailRecipientListParams) query() (url.Values, error) {
	return emailQuery(p.Email, p.Limit, p.Cursor)
}

// Create makes an email recipient.
//
// It is sent once: only what certainly did not run (a refusal with 429, a
// connection that never came about) is sent again, unless a WithMaxRetries on
// the call itself says otherwise. An *APIError with CodeEmailRecipientExists
// says that there is one with this address already: see FindByEmail. After an
// error for which OutcomeUnknown reports true it may have been made; Ensure
// settles that.
func (s *EmailRecipientService) Create(ctx context.Context, params EmailRecipientCreateParams, opts ...CallOption) (*EmailRecipient, error) {
	if err := validateEmail(params.Email); err != nil {
		return nil, err
	}
	return fetch[EmailRecipient](ctx, s.client, request{op: opEmailRecipientsCreate, body: params}, opts)
}

// Retrieve returns one email recipient. It is repeated after any failure that
// may pass. (assumed: the guide names only the list)
func (s *EmailRecipientService) Retrieve(ctx context.Context, emailRecipientID string, opts ...CallOption) (*EmailRecipient, error) {
	return fetch[EmailRecipient](ctx, s.client, request{op: opEmailRecipientsRetrieve, id: emailRecipientID, idField: "emailRecipientID"}, opts)
}

// List returns one page of email recipients. It is repeated after any failure
// that may pass. A new recipient may be missing for some seconds. See
// Page.Next for a page that is returned together with an error.
func (s *EmailRecipientService) List(ctx context.Context, params EmailRecipientListParams, opts ...CallOption) (*Page[EmailRecipient], error) {
	return list[EmailRecipient](ctx, s.client, opEmailRecipientsList, params.query, opts)
}

// All iterates over all email recipients that params describes, page by page,
// as AuditService.All does.
func (s *EmailRecipientService) All(ctx context.Context, params EmailRecipientListParams, opts ...CallOption) iter.Seq2[*EmailRecipient, error] {
	return all[EmailRecipient](ctx, s.client, opEmailRecipientsList, params.query, opts)
}
