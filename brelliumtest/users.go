package brelliumtest

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"
)

// User is what the emulator holds of a user.
type User struct {
	UserID, Email, Name string
	// Invitations is the number of invitations that were sent to this user.
	Invitations int
	// SignedIn is true once the user has signed in.
	SignedIn bool
}

type userRecord struct {
	User
	place                uint64
	metadata, attributes json.RawMessage
	created              time.Time
}

// Users returns the users in the order of their creation.
func (e *Emulator) Users() []User {
	e.mu.Lock()
	defer e.mu.Unlock()
	users := make([]User, len(e.users))
	for i, u := range e.users {
		users[i] = u.User
	}
	return users
}

// Invitations returns how many invitations were sent to an email address,
// those to users included who were deleted since.
func (e *Emulator) Invitations(email string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.invites[strings.ToLower(email)]
}

// SignIn lets the user with this email address sign in: from now on an
// invitation gets 409 USER_EXISTS instead of INVITATION_PENDING. It reports
// false where there is no such user.
func (e *Emulator) SignIn(email string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, u := range e.users {
		if strings.EqualFold(u.Email, email) {
			u.SignedIn = true
			return true
		}
	}
	return false
}

func (e *Emulator) createUser(c *call) answer {
	var in struct {
		Email      string          `json:"email"`
		Name       string          `json:"name"`
		Metadata   json.RawMessage `json:"metadata"`
		Attributes json.RawMessage `json:"attributes"`
	}
	if refused := c.decode(&in); refused != nil {
		return *refused
	}
	switch {
	case !isEmail(in.Email):
		return invalid("email must be an email address")
	case !isObjectOrNull(in.Metadata), !isObjectOrNull(in.Attributes):
		return invalid("metadata and attributes must be objects")
	}
	i := slices.IndexFunc(e.users, func(u *userRecord) bool { return strings.EqualFold(u.Email, in.Email) })
	var u *userRecord
	if i >= 0 {
		u = e.users[i]
		switch {
		case u.SignedIn:
			return fail(http.StatusConflict, "USER_EXISTS", "A user with this email address exists")
		case u.Invitations > 0:
			return fail(http.StatusConflict, "INVITATION_PENDING", "An invitation to this email address is pending")
		}
	} else {
		e.userSeq++
		u = &userRecord{
			User:       User{UserID: e.newID(), Email: in.Email, Name: in.Name},
			place:      e.userSeq,
			metadata:   in.Metadata,
			attributes: in.Attributes,
			created:    c.now,
		}
		e.users = append(e.users, u)
	}
	if c.fault != nil && c.fault.invite {
		return fail(http.StatusBadGateway, "INVITE_FAILED", "The invitation could not be sent")
	}
	u.Invitations++
	e.invites[strings.ToLower(u.Email)]++
	return answer{status: http.StatusCreated, contentType: jsonType, body: u.appendTo(nil)}
}

func (e *Emulator) findUser(id string) int {
	return slices.IndexFunc(e.users, func(u *userRecord) bool { return u.UserID == id })
}

func (e *Emulator) retrieveUser(c *call) answer {
	i := e.findUser(c.id)
	if i < 0 {
		return notFound("User")
	}
	return ok(e.users[i].appendTo(nil))
}

func (e *Emulator) deleteUser(c *call) answer {
	i := e.findUser(c.id)
	if i < 0 {
		return notFound("User")
	}
	e.users = slices.Delete(e.users, i, i+1)
	return answer{status: http.StatusNoContent}
}

func (e *Emulator) listUsers(c *call) answer {
	q, refused := parseList(c, "users")
	if refused != nil {
		return *refused
	}
	email := q.Get("email")
	l := newList(q, 384)
	for _, u := range e.users {
		if u.place < q.from || email != "" && !strings.EqualFold(u.Email, email) || c.now.Sub(u.created) < e.userListLag {
			continue
		}
		if !l.item(u.place) {
			break
		}
		l.body = u.appendTo(l.body)
	}
	return l.answer()
}

// appendTo appends the user's JSON.
func (u *userRecord) appendTo(dst []byte) []byte {
	object := func(raw json.RawMessage) json.RawMessage {
		if len(raw) == 0 || string(raw) == "null" {
			return json.RawMessage("{}")
		}
		return raw
	}
	created := u.created.UTC().Format(time.RFC3339Nano)
	return appendJSON(dst, struct {
		UserID     string          `json:"user_id"`
		Object     string          `json:"object"`
		Email      string          `json:"email"`
		Name       *string         `json:"name"`
		CreatedAt  string          `json:"created_at"`
		UpdatedAt  string          `json:"updated_at"`
		Metadata   json.RawMessage `json:"metadata"`
		Attributes json.RawMessage `json:"attributes"`
	}{u.UserID, "user", u.Email, orNull(u.Name), created, created, object(u.metadata), object(u.attributes)})
}

// isEmail reports whether a string looks like an email address.
func isEmail(s string) bool {
	local, domain, found := strings.Cut(s, "@")
	return found && local != "" && domain != "" && !strings.ContainsAny(s, " \t\r\n")
}
