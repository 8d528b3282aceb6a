package brellium

import (
	"context"
	"iter"
	"net/url"
)

// UserService invites and removes users. Use it as Client.Users.
type UserService struct{ client *Client }

// User is a user of the organization. Its fields are carried over from v1.
type User struct {
	// UserID is the id of the user.
	UserID string `json:"user_id"`
	// Object is always "user".
	Object string `json:"object"`
	// Email is the address of the user.
	Email string `json:"email"`
	// Name is the name of the user, empty if there is none.
	Name string `json:"name"`
	// CreatedAt and UpdatedAt are zero if the API gives no time.
	CreatedAt Time `json:"created_at"`
	UpdatedAt Time `json:"updated_at"`
	// Metadata and Attributes are free-form. Their numbers are json.Number.
	Metadata   Metadata `json:"metadata"`
	Attributes Metadata `json:"attributes"`

	raw
}

func (u *User) required() (field, kind, id string) { return "user_id", "text", u.UserID }
func (u *User) address() string                    { return u.Email }

// Equal reports whether u and other have the same fields. RawJSON is not compared.
func (u User) Equal(other User) bool { return sameFields(u, other) }

// UserCreateParams describes the user to invite.
type UserCreateParams struct {
	// Email is the address that the invitation is sent to. Required.
	Email string `json:"email"`
	// Name is omitted if empty.
	Name string `json:"name,omitempty"`
	// Metadata is omitted if nil; an empty map is sent as {}.
	Metadata map[string]any `json:"metadata,omitzero"`
	// Attributes is omitted if nil; an empty map is sent as {}.
	Attributes map[string]any `json:"attributes,omitzero"`
}

// UserListParams selects the users of a list. The zero value selects all.
type UserListParams struct {
	// Email selects the user with this address. (assumed)
	Email string
	// Limit is the page size, 1 to 100; 0 uses the server's default.
	Limit int
	// Cursor resumes a list from the NextCursor of a page.
	Cursor string
}

func (p UserListParams) query() (url.Values, error) { return emailQuery(p.Email, p.Limit, p.Cursor) }

// Create creates a user and sends the invitation.
//
// It is retried only if the request did not run (a 429, or a request that never
// reached the server), so that nobody is invited twice. Only [WithIdempotent]
// overrides that protection. If [OutcomeUnknown] reports true for the error, the
// user may have been invited; [UserService.Ensure] resolves that.
//
// It returns the errors of any call (see the package overview). An [APIError] with
// [CodeInvitationPending] or [CodeUserExists] means that the user already exists.
// With [CodeInviteFailed] the user was created but not invited; calling Create
// again sends the invitation.
func (s *UserService) Create(ctx context.Context, params UserCreateParams, opts ...CallOption) (*User, error) {
	if err := validateEmail(params.Email); err != nil {
		return nil, err
	}
	return fetch[User](ctx, s.client, request{op: opUsersCreate, body: params, email: params.Email}, opts)
}

// Retrieve returns one user. It is retried after transient failures.
//
// It returns the errors of any call (see the package overview). If the user does
// not exist, the error is an [APIError] that matches [ErrNotFound].
func (s *UserService) Retrieve(ctx context.Context, userID string, opts ...CallOption) (*User, error) {
	return fetch[User](ctx, s.client, request{op: opUsersRetrieve, id: userID, idField: "userID"}, opts)
}

// List returns one page of users; [Page.Next] returns the page after it. A new
// user may be missing from the list for some seconds. It is retried after
// transient failures.
//
// It returns the errors of any call (see the package overview). A page whose link
// to the next page is broken is returned together with a [PaginationError], and one
// with an item that is not an object or has no id, without that item, together with
// a [DecodeError].
func (s *UserService) List(ctx context.Context, params UserListParams, opts ...CallOption) (*Page[User], error) {
	return list[User](ctx, s.client, opUsersList, params.query, opts)
}

// All iterates over all users that params selects. Each page is one request,
// retried after transient failures. Each range loop starts at params.Cursor, or at
// the first page if it is empty. Errors and options are those of
// [AuditService.All].
func (s *UserService) All(ctx context.Context, params UserListParams, opts ...CallOption) iter.Seq2[*User, error] {
	return all[User](ctx, s.client, opUsersList, params.query, opts)
}

// Delete removes a user and revokes their access. It is retried after transient
// failures, including [CodeRevokeFailed], which leaves the user in place. A 404 on
// a retry means that an earlier attempt succeeded, and is a success.
//
// It returns the errors of any call (see the package overview). If the user does
// not exist, the error is an [APIError] that matches [ErrNotFound].
func (s *UserService) Delete(ctx context.Context, userID string, opts ...CallOption) error {
	cfg, err := s.client.callConfig(opts)
	if err != nil {
		return err
	}
	_, err = s.client.do(ctx, request{op: opUsersDelete, id: userID, idField: "userID"}, cfg, okResponse.decodeNothing)
	return err
}
