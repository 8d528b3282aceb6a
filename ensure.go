package brellium

import (
	"context"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/brellium/brellium-go/internal/redact"
)

// Ensure makes sure that a user with this email exists and has been invited,
// whatever happened before, and returns the user. A user who exists is
// returned as is: the other params are for a new one.
//
// It sends what Create sends, and takes a 409 with CodeInvitationPending or
// CodeUserExists for done: the user is then looked up by email, again and
// again for up to 15.5 s where the list does not show it yet. After
// CodeInviteFailed, and after an outcome that is unknown, it pauses and sends
// again, up to 3 times in all with pauses of 2 s and 4 s. That repeat is what
// settles an unknown outcome, for it invites nobody twice: where the first one
// ran, the API answers it with such a 409. (A look at the list would not show
// whether the invitation was sent.)
//
// The failure of the last one is returned as it is. Where OutcomeUnknown
// reports true for it, Ensure may be called again. A user whom no list showed
// is an error that matches both ErrNotFound and ErrConflict. The pauses end
// with ctx, and opts apply to each request.
func (s *UserService) Ensure(ctx context.Context, params UserCreateParams, opts ...CallOption) (*User, error) {
	if err := validateEmail(params.Email); err != nil {
		return nil, err
	}
	e := ensuring[User, *User]{
		client: s.client, opts: opts, email: params.Email, of: func(u *User) string { return u.Email },
		create: request{op: opUsersCreate, body: params}, list: opUsersList,
		done: []ErrorCode{CodeInvitationPending, CodeUserExists},
	}
	return e.run(ctx)
}

// Ensure makes sure that an email recipient with this address exists, whatever
// happened before, and returns it. One that exists is returned as is, whatever
// its name.
//
// It sends what Create sends, and takes a 409 with CodeEmailRecipientExists
// for done: the recipient is then looked up by email, again and again for up
// to 15.5 s where the list does not show it yet. After an outcome that is
// unknown it pauses and sends again, up to 3 times in all with pauses of 2 s
// and 4 s: where the first one ran, the API answers with such a 409 and makes
// nothing.
//
// The failure of the last one is returned as it is. Where OutcomeUnknown
// reports true for it, Ensure may be called again. A recipient whom no list
// showed is an error that matches both ErrNotFound and ErrConflict. The pauses
// end with ctx, and opts apply to each request.
func (s *EmailRecipientService) Ensure(ctx context.Context, params EmailRecipientCreateParams, opts ...CallOption) (*EmailRecipient, error) {
	if err := validateEmail(params.Email); err != nil {
		return nil, err
	}
	e := ensuring[EmailRecipient, *EmailRecipient]{
		client: s.client, opts: opts, email: params.Email, of: recipientEmail,
		create: request{op: opEmailRecipientsCreate, body: params}, list: opEmailRecipientsList,
		done: []ErrorCode{CodeEmailRecipientExists},
	}
	return e.run(ctx)
}

// FindByEmail returns the email recipient with this address; the case of
// ASCII letters does not matter, though one in the very same spelling comes
// first. Where the list shows none the error matches ErrNotFound. It looks
// once: a new recipient may be missing for some seconds.
func (s *EmailRecipientService) FindByEmail(ctx context.Context, email string, opts ...CallOption) (*EmailRecipient, error) {
	if err := validateEmail(email); err != nil {
		return nil, err
	}
	return findByEmail(ctx, s.client, opEmailRecipientsList, email, recipientEmail, opts)
}

func recipientEmail(r *EmailRecipient) string { return r.Email }

const (
	// ensureSends is how often Ensure sends its POST at most.
	ensureSends = 3
	// ensurePause is before the first repeat, and twice as long before the
	// second: time for a request whose answer was lost to come to its end.
	ensurePause = 2 * time.Second
	// listPause is before the first further look at a list that lags, and
	// doubles each time. With listLooks it adds up to 15.5 s.
	listPause = 500 * time.Millisecond
	listLooks = 6
)

// ensuring is what Ensure needs to know of a resource.
type ensuring[T any, P resource[T]] struct {
	client *Client
	create request
	done   []ErrorCode // of a 409: it is there already
	list   *operation
	email  string
	of     func(*T) string
	opts   []CallOption
}

// run sends the POST until it is known to be done. This is no retry of the
// call below, which cannot know more than that its outcome is unknown: it goes
// by what the API says of the effect.
func (e *ensuring[T, P]) run(ctx context.Context) (*T, error) {
	cfg, err := e.client.callConfig(e.opts)
	if err != nil {
		return nil, err
	}
	attempts := 0
	for sends := 1; ; sends++ {
		made := new(T)
		sent, err := e.client.do(ctx, e.create, cfg, func(r okResponse) error { return decodeResource[T, P](r, made) })
		if err == nil {
			return made, nil
		}
		attempts += sent
		if answer, ok := asType[*APIError](err); ok && answer.Is(ErrConflict) && slices.Contains(e.done, answer.Code) {
			return e.lookUp(ctx, attempts, answer)
		}
		if sends == ensureSends || !worthSendingAgain(err) {
			return nil, err
		}
		if ended := pause(ctx, ensurePause<<(sends-1), e.create.op.name, attempts, err); ended != nil {
			return nil, ended
		}
	}
}

// worthSendingAgain reports whether a POST that failed with err is to be sent
// once more: it may have run, or it made the user and sent no invitation.
func worthSendingAgain(err error) bool {
	if _, blocked := asType[*BlockedError](err); blocked {
		return false
	}
	if _, ended := asType[*InterruptedError](err); ended {
		return false
	}
	answer, ok := asType[*APIError](err)
	return OutcomeUnknown(err) || ok && answer.Code == CodeInviteFailed
}

// lookUp finds what conflict says is there, in a list that may lag behind.
func (e *ensuring[T, P]) lookUp(ctx context.Context, attempts int, conflict *APIError) (*T, error) {
	for looks := 1; ; looks++ {
		found, err := findByEmail[T, P](ctx, e.client, e.list, e.email, e.of, e.opts)
		missing, ok := err.(*notFoundError)
		if !ok {
			return found, err
		}
		if looks == listLooks {
			missing.conflict = conflict
			return nil, missing
		}
		if ended := pause(ctx, listPause<<(looks-1), e.list.name, attempts+looks, conflict); ended != nil {
			return nil, ended
		}
	}
}

// findByEmail looks through the list for email. The filter may be no more than
// a hint to the server: what counts is what the items say.
func findByEmail[T any, P resource[T]](ctx context.Context, c *Client, op *operation, email string, of func(*T) string, opts []CallOption) (*T, error) {
	query := func() (url.Values, error) { return url.Values{"email": {email}}, nil }
	l, cursor, err := newLister[T, P](c, op, query, opts, false)
	if err != nil {
		return nil, err
	}
	var similar *T
	for p, err := l.page(ctx, 0, cursor, l.cfg.response); ; p, err = p.Next(ctx) {
		if p != nil {
			for i := range p.Data {
				switch item := &p.Data[i]; {
				case of(item) == email:
					return detached[T, P](item), nil
				case similar == nil && equalFoldASCII(of(item), email):
					similar = detached[T, P](item)
				}
			}
		}
		switch {
		case err != nil:
			return nil, err
		case p.HasMore:
		case similar != nil:
			return similar, nil
		default:
			return nil, &notFoundError{op: op}
		}
	}
}

// notFoundError says that a list does not have what was looked for. It matches
// ErrNotFound, and is no APIError since the API has not said so.
type notFoundError struct {
	op       *operation
	conflict *APIError // says that it is there all the same, or nil
}

func (e *notFoundError) Error() string {
	s := "brellium: " + e.op.name + ": not found: no item has this email"
	if e.conflict != nil {
		s += " after " + strconv.Itoa(listLooks) + " looks, though the API answered " + string(e.conflict.Code) + " (request id " + redact.Code(e.conflict.RequestID) + ")"
	}
	return s
}

func (e *notFoundError) Is(target error) bool { return target == ErrNotFound }

func (e *notFoundError) Unwrap() error {
	if e.conflict == nil {
		return nil
	}
	return e.conflict
}

func emailQuery(email string, limit int, cursor string) (url.Values, error) {
	q := url.Values{}
	if email != "" {
		if err := validateEmail(email); err != nil {
			return nil, err
		}
		q.Set("email", email)
	}
	return q, setPage(q, limit, cursor)
}

// validateEmail refuses what is certainly no email address. Whether it is one
// only the API can tell.
func validateEmail(email string) error {
	reason := ""
	at := strings.LastIndexByte(email, '@')
	switch {
	case strings.TrimSpace(email) == "":
		reason = "must not be blank"
	case !utf8.ValidString(email):
		reason = "must be valid UTF-8"
	case strings.ContainsFunc(email, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }):
		reason = "must not hold spaces or control characters"
	case at < 1 || at == len(email)-1:
		reason = "must be an address with something before and after an @"
	default:
		return nil
	}
	return &ValidationError{Field: "Email", Reason: reason}
}

// equalFoldASCII compares without regard to the case of ASCII letters alone:
// to take other letters for the same would take one person for another.
func equalFoldASCII(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	lower := func(c byte) byte {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		return c
	}
	for i := range len(a) {
		if lower(a[i]) != lower(b[i]) {
			return false
		}
	}
	return true
}
