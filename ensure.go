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

// Ensure makes sure that a user with this email exists and was invited, and
// returns the user. It may be called again at any time: nobody is invited twice.
// An existing user is returned unchanged; the other params apply to a new user.
//
// Ensure sends the request of [UserService.Create]. A 409 with
// [CodeInvitationPending] or [CodeUserExists] means that the user exists. The user
// is then looked up by email, for up to 15.5 s if the list does not show it yet.
// After an unknown outcome or [CodeInviteFailed], Ensure sends the request again,
// up to 3 times in all, with pauses of 2 s and 4 s. This is safe: if an earlier
// request ran, the API responds with such a 409 and sends no invitation. (The list
// would not show whether the invitation was sent.)
//
// It returns the errors of any call (see the package overview), from the last
// request. If [OutcomeUnknown] reports true for it, call Ensure again. If the list
// never shows the user, the error matches [ErrNotFound] and [ErrConflict]. Pauses
// end with ctx; opts apply to each request. [WithEnsureOutcome] reports what Ensure
// did.
func (s *UserService) Ensure(ctx context.Context, params UserCreateParams, opts ...CallOption) (*User, error) {
	if err := validateEmail(params.Email); err != nil {
		return nil, err
	}
	e := ensuring[User, *User]{
		client: s.client, opts: opts,
		create: request{op: opUsersCreate, body: params, email: params.Email}, list: opUsersList,
		done: []ErrorCode{CodeInvitationPending, CodeUserExists},
	}
	return e.run(ctx)
}

// Ensure makes sure that an email recipient with this address exists, and returns
// it. It may be called again at any time. An existing recipient is returned
// unchanged, even if its name differs.
//
// Ensure sends the request of [EmailRecipientService.Create]. A 409 with
// [CodeEmailRecipientExists] means that the recipient exists. It is then looked up
// by email, for up to 15.5 s if the list does not show it yet. After an unknown
// outcome, Ensure sends the request again, up to 3 times in all, with pauses of
// 2 s and 4 s: if an earlier request ran, the API responds with such a 409 and
// creates nothing.
//
// It returns the errors of any call (see the package overview), from the last
// request. If [OutcomeUnknown] reports true for it, call Ensure again. If the list
// never shows the recipient, the error matches [ErrNotFound] and [ErrConflict].
// Pauses end with ctx; opts apply to each request. [WithEnsureOutcome] reports what
// Ensure did.
func (s *EmailRecipientService) Ensure(ctx context.Context, params EmailRecipientCreateParams, opts ...CallOption) (*EmailRecipient, error) {
	if err := validateEmail(params.Email); err != nil {
		return nil, err
	}
	e := ensuring[EmailRecipient, *EmailRecipient]{
		client: s.client, opts: opts,
		create: request{op: opEmailRecipientsCreate, body: params, email: params.Email}, list: opEmailRecipientsList,
		done: []ErrorCode{CodeEmailRecipientExists},
	}
	return e.run(ctx)
}

// FindByEmail returns the email recipient with this address. An exact match is
// preferred; otherwise the case of ASCII letters is ignored. Each page of the list
// is retried after transient failures.
//
// It returns the errors of any call (see the package overview), and a
// [PaginationError] if the list cannot be read to its end. If the list has no such
// recipient, the error matches [ErrNotFound]. The list is read once; a new
// recipient may be missing from it for some seconds.
func (s *EmailRecipientService) FindByEmail(ctx context.Context, email string, opts ...CallOption) (*EmailRecipient, error) {
	if err := validateEmail(email); err != nil {
		return nil, err
	}
	return findByEmail[EmailRecipient](ctx, s.client, opEmailRecipientsList, email, opts)
}

// EnsureOutcome is what a successful Ensure did.
type EnsureOutcome string

const (
	// EnsureCreated: the user was created and invited, or the email recipient
	// was created. Also a user who had been kept without an invitation before
	// this call, since the API's response is the same.
	EnsureCreated EnsureOutcome = "created"
	// EnsureFound: it existed. Also if a request of this call, whose response was
	// lost, may have created it.
	EnsureFound EnsureOutcome = "found"
	// EnsureReinvited: the user existed or was created, the invitation failed
	// ([CodeInviteFailed]), and another request of this call sent it.
	EnsureReinvited EnsureOutcome = "reinvited"
)

// WithEnsureOutcome sets outcome to what [UserService.Ensure] or
// [EmailRecipientService.Ensure] did, or to "" if it fails. outcome must not be
// read before the call ends. Other methods reject the option.
func WithEnsureOutcome(outcome *EnsureOutcome) CallOption { return ensureOutcomeOption{outcome} }

// ensureOutcomeOption is taken out of the options by Ensure.
type ensureOutcomeOption struct{ outcome *EnsureOutcome }

func (o ensureOutcomeOption) applyCall(*callConfig) error {
	return &ValidationError{Field: "WithEnsureOutcome", Reason: "applies to the Ensure methods only"}
}

const (
	// ensureSends is the maximum number of POSTs of one Ensure.
	ensureSends = 3
	// ensurePause is the pause before the second POST; it doubles for the third.
	// It gives a request whose response was lost time to finish.
	ensurePause = 2 * time.Second
	// listPause is the pause before the second lookup; it doubles each time.
	// The pauses of listLooks lookups add up to 15.5 s.
	listPause = 500 * time.Millisecond
	listLooks = 6
)

// ensuring is one Ensure of either resource.
type ensuring[T any, P person[T]] struct {
	client *Client
	create request
	done   []ErrorCode // codes of a 409 that mean that the item exists
	list   *operation
	opts   []CallOption
}

// run sends the POST until its effect is known. This is not a second retry layer:
// a call cannot resolve an unknown outcome, but the 409 of the next one can.
func (e *ensuring[T, P]) run(ctx context.Context) (*T, error) {
	outcome := new(EnsureOutcome)
	var opts []CallOption
	for _, o := range e.opts {
		own, ok := o.(ensureOutcomeOption)
		switch {
		case !ok:
			opts = append(opts, o)
		case own.outcome == nil:
			return nil, &ValidationError{Field: "WithEnsureOutcome", Reason: "must not be nil"}
		default:
			outcome = own.outcome
		}
	}
	e.opts, *outcome = opts, ""
	cfg, err := e.client.callConfig(opts)
	if err != nil {
		return nil, err
	}
	attempts, done := 0, EnsureCreated
	for sends := 1; ; sends++ {
		made := new(T)
		sent, err := e.client.do(ctx, e.create, cfg, func(r okResponse) error { return decodeRecord(r, P(made), new(rawSource)) })
		if err == nil {
			*outcome = done
			return made, nil
		}
		attempts += sent
		answer, ok := asType[*APIError](err)
		if ok && answer.Is(ErrConflict) && slices.Contains(e.done, answer.Code) {
			found, err := e.lookUp(ctx, attempts, answer)
			if err == nil {
				*outcome = EnsureFound
			}
			return found, err
		}
		if ok && answer.Code == CodeInviteFailed {
			done = EnsureReinvited
		}
		if sends == ensureSends || !worthSendingAgain(err) {
			return nil, err
		}
		if ended := pause(ctx, ensurePause<<(sends-1), e.create.op.name, attempts, err); ended != nil {
			return nil, ended
		}
	}
}

// worthSendingAgain reports whether to send the POST again after err: it may have
// run, or it created the user without sending the invitation.
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

// lookUp finds the item that conflict reports, in a list that may lag behind.
func (e *ensuring[T, P]) lookUp(ctx context.Context, attempts int, conflict *APIError) (*T, error) {
	for looks := 1; ; looks++ {
		found, err := findByEmail[T, P](ctx, e.client, e.list, e.create.email, append(slices.Clip(e.opts), withoutBodyFields()))
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

// addressed is a record with an email address, and person one that is a *T.
type (
	addressed interface {
		record
		address() string
	}
	person[T any] interface {
		*T
		addressed
	}
)

// findByEmail searches the list for email. It compares the items' own addresses,
// since the server may ignore the filter.
func findByEmail[T any, P person[T]](ctx context.Context, c *Client, op *operation, email string, opts []CallOption) (*T, error) {
	query := func() (url.Values, error) { return url.Values{"email": {email}}, nil }
	l, cursor, err := newLister[T](c, op, query, opts, false)
	if err != nil {
		return nil, err
	}
	var similar *T
	blank := false
	for p, err := l.page(ctx, place{}, cursor, l.cfg.response); ; p, err = p.Next(ctx) {
		if p != nil {
			for i := range p.Data {
				item := &p.Data[i]
				switch address := P(item).address(); {
				case strings.TrimSpace(address) == "":
					blank = true
				case address == email:
					return detached(item), nil
				case similar == nil && sameAddress(address, email):
					similar = detached(item)
				}
			}
		}
		switch {
		case err != nil:
			return nil, err
		case p.HasMore:
		case similar != nil:
			return similar, nil
		case blank: // it may be the one
			return nil, oddRecord(op, p, "an item of data has no email")
		default:
			return nil, &notFoundError{op: op, reason: "no item has this email"}
		}
	}
}

// notFoundError means that a list does not have the item. It matches
// [ErrNotFound]. It is not an [APIError], since the API returned no 404.
type notFoundError struct {
	op       *operation
	reason   string
	conflict *APIError // the 409 that says that the item exists, or nil
}

func (e *notFoundError) Error() string {
	s := "brellium: " + e.op.name + ": not found: " + e.reason
	if e.conflict != nil {
		s += " after " + strconv.Itoa(listLooks) + " lookups, although the API responded with " + string(e.conflict.Code) + " (request id " + redact.Code(e.conflict.RequestID) + ")"
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

// validateEmail rejects what cannot be an email address. The API validates the
// rest.
func validateEmail(email string) error {
	reason := ""
	at := strings.LastIndexByte(email, '@')
	switch {
	case strings.TrimSpace(email) == "":
		reason = "must not be blank"
	case !utf8.ValidString(email):
		reason = "must be valid UTF-8"
	case strings.ContainsFunc(email, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }):
		reason = "must not contain spaces or control characters"
	case at < 1 || at == len(email)-1:
		reason = "must be an address with something before and after an @"
	default:
		return nil
	}
	return &ValidationError{Field: "Email", Reason: reason}
}

// sameAddress ignores spaces around an address and the case of ASCII letters only.
// Folding other letters could confuse two people.
func sameAddress(a, b string) bool {
	a, b = strings.TrimSpace(a), strings.TrimSpace(b)
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
