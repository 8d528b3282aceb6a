package brellium

import (
	"context"
	"iter"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
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

// Retrieve returns one email recipient. It is repeated after any failure that
// may pass. (assumed: the guide names only the list)
func (s *EmailRecipientService) Retrieve(ctx context.Context, emailRecipientID string, opts ...CallOption) (*EmailRecipient, error) {
	return fetch[EmailRecipient](ctx, s.client, request{op: opEmailRecipientsRetrieve, id: emailRecipientID, idField: "emailRecipientID"}, opts)
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

func recipientEmail(r *EmailRecipient) string { return r.Email }

// What follows serves users and email recipients alike.

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
		sent, err := e.client.do(ctx, e.create, cfg, func(a answer) error { return decodeResource[T, P](a, made) })
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
		if ended := waitOut(ctx, ensurePause<<(sends-1)); ended != nil {
			return nil, interruptedPause(ctx, e.create.op, attempts, ended, err)
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
		if ended := waitOut(ctx, listPause<<(looks-1)); ended != nil {
			return nil, interruptedPause(ctx, e.list, attempts+looks, ended, conflict)
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
		s += " after " + strconv.Itoa(listLooks) + " looks, though the API answered " + string(e.conflict.Code) + " (request id " + printable(e.conflict.RequestID) + ")"
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

// waitOut waits for d. It returns the context's error when ctx ends, and at once
// where its deadline leaves no time for the pause.
func waitOut(ctx context.Context, d time.Duration) error {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= d {
		return context.DeadlineExceeded
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// interruptedPause is the error of a pause that ended with err, after last.
func interruptedPause(ctx context.Context, op *operation, attempts int, err, last error) error {
	return &InterruptedError{
		Operation: op.name, Attempts: attempts, Err: err, Last: last,
		cause: causeOf(ctx), mayHaveRun: OutcomeUnknown(last),
	}
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
