package brellium

import (
	"context"
	"iter"
	"net/url"
)

// UserService invites and removes users.
type UserService struct{ client *Client }

// User is a user of the organization. Its fields are carried over from v1.
type User struct {
	UserID string `json:"user_id"`
	// Object is always "user".
	Object string `json:"object"`
	Email  string `json:"email"`
	Name   string `json:"name"`
	// CreatedAt and UpdatedAt are zero where the API gives no time.
	CreatedAt Time `json:"created_at"`
	UpdatedAt Time `json:"updated_at"`
	// Metadata and Attributes are free-form; their numbers are json.Number.
	Metadata   Metadata `json:"metadata"`
	Attributes Metadata `json:"attributes"`

	raw
}

// UserCreateParams describes the user to invite.
type UserCreateParams struct {
	// Email is the address that the invitation goes to. It is required.
	Email string `json:"email"`
	// Name is left out where it is empty.
	Name string `json:"name,omitempty"`
	// Metadata is left out where it is nil; an empty map is sent as {}.
	Metadata map[string]any `json:"metadata,omitzero"`
	// Attributes is left out where it is nil; an empty map is sent as {}.
	Attributes map[string]any `json:"attributes,omitzero"`
}

// UserListParams filters a list of users. The zero value lists all.
type UserListParams struct {
	// Email lists the user with this address. (assumed)
	Email string
	// Limit is the number of users a page, 1 to 100; 0 leaves it to the server.
	Limit int
	// Cursor goes on from a page's NextCursor.
	Cursor string
}

func (p UserListParams) query() (url.Values, error) { return emailQuery(p.Email, p.Limit, p.Cursor) }

// Create makes a user and sends the invitation.
//
// It is sent once: only what certainly did not run (a refusal with 429, a
// connection that never came about) is sent again, unless a WithMaxRetries on
// the call itself says otherwise. An *APIError with CodeInvitationPending or
// CodeUserExists says that there is such a user already. One with
// CodeInviteFailed says that the user was kept but not invited: calling again
// does no harm and sends the invitation. After an error for which
// OutcomeUnknown reports true the user may have been invited; Ensure settles
// that.
func (s *UserService) Create(ctx context.Context, params UserCreateParams, opts ...CallOption) (*User, error) {
	if err := validateEmail(params.Email); err != nil {
		return nil, err
	}
	return fetch[User](ctx, s.client, request{op: opUsersCreate, body: params}, opts)
}

// Retrieve returns one user. It is repeated after any failure that may pass.
func (s *UserService) Retrieve(ctx context.Context, userID string, opts ...CallOption) (*User, error) {
	return fetch[User](ctx, s.client, request{op: opUsersRetrieve, id: userID, idField: "userID"}, opts)
}

// List returns one page of users. It is repeated after any failure that may
// pass. A new user may be missing for some seconds. See Page.Next for a page
// that is returned together with an error.
func (s *UserService) List(ctx context.Context, params UserListParams, opts ...CallOption) (*Page[User], error) {
	return list[User](ctx, s.client, opUsersList, params.query, opts)
}

// All iterates over all users that params describes, page by page, as
// AuditService.All does.
func (s *UserService) All(ctx context.Context, params UserListParams, opts ...CallOption) iter.Seq2[*User, error] {
	return all[User](ctx, s.client, opUsersList, params.query, opts)
}

// Delete removes a user and revokes their access. It is repeated after any
// failure that may pass, CodeRevokeFailed included (the user is then still
// there), and a 404 on such a repeat is the success of the attempt before.
func (s *UserService) Delete(ctx context.Context, userID string, opts ...CallOption) error {
	cfg, err := s.client.callConfig(opts)
	if err != nil {
		return err
	}
	_, err = s.client.do(ctx, request{op: opUsersDelete, id: userID, idField: "userID"}, cfg, okResponse.decodeNothing)
	return err
}
