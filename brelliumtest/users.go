package brelliumtest

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"
)

// User is a user in the emulator.
type User struct {
	UserID, Email, Name string
	// Invitations is the number of invitations sent to the user.
	Invitations int
	// SignedIn is true once the user has signed in.
	SignedIn bool
}

type userRecord struct {
	User
	position             uint64
	metadata, attributes json.RawMessage
	created              time.Time
}

// Users returns the users in creation order.
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
// including those to users deleted since.
func (e *Emulator) Invitations(email string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.invites[strings.ToLower(email)]
}

// SignIn signs in the user with this email address: from now on, inviting them
// gets 409 USER_EXISTS instead of INVITATION_PENDING. It reports whether there
// is such a user.
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

func (e *Emulator) createUser(c *call) response {
	var in struct {
		Email      string          `json:"email"`
		Name       string          `json:"name"`
		Metadata   json.RawMessage `json:"metadata"`
		Attributes json.RawMessage `json:"attributes"`
	}
	if err := c.decode(&in); err != nil {
		return invalid(err.Error())
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
			position:   e.userSeq,
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
	return jsonResponse(http.StatusCreated, u.appendTo(nil))
}

func (e *Emulator) findUser(id string) int {
	return slices.IndexFunc(e.users, func(u *userRecord) bool { return u.UserID == id })
}

func (e *Emulator) retrieveUser(c *call) response {
	i := e.findUser(c.id)
	if i < 0 {
		return notFound("User")
	}
	return jsonResponse(http.StatusOK, e.users[i].appendTo(nil))
}

func (e *Emulator) deleteUser(c *call) response {
	i := e.findUser(c.id)
	if i < 0 {
		return notFound("User")
	}
	e.users = slices.Delete(e.users, i, i+1)
	return response{status: http.StatusNoContent}
}

func (e *Emulator) listUsers(c *call) response {
	q, err := parseList(c, "users")
	if err != nil {
		return invalid(err.Error())
	}
	email := q.Get("email")
	l := newList(q, 384)
	for _, u := range e.users {
		if u.position < q.from || email != "" && !strings.EqualFold(u.Email, email) || c.now.Sub(u.created) < e.userListLag {
			continue
		}
		if !l.item(u.position) {
			break
		}
		l.body = u.appendTo(l.body)
	}
	return l.response()
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
