package brelliumtest

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

// EmailRecipient is an email recipient in the emulator.
type EmailRecipient struct{ EmailRecipientID, Email, Name string }

type recipientRecord struct {
	EmailRecipient
	created time.Time
}

// EmailRecipients returns the email recipients in creation order.
func (e *Emulator) EmailRecipients() []EmailRecipient {
	e.mu.Lock()
	defer e.mu.Unlock()
	recipients := make([]EmailRecipient, len(e.recipients))
	for i, r := range e.recipients {
		recipients[i] = r.EmailRecipient
	}
	return recipients
}

func (e *Emulator) createRecipient(c *call) response {
	var in struct {
		Email string `json:"email"`
		Name  string `json:"name"`
	}
	if err := c.decode(&in); err != nil {
		return invalid(err.Error())
	}
	if !isEmail(in.Email) {
		return invalid("email must be an email address")
	}
	if slices.ContainsFunc(e.recipients, func(r *recipientRecord) bool { return strings.EqualFold(r.Email, in.Email) }) {
		return fail(http.StatusConflict, "EMAIL_RECIPIENT_EXISTS", "An email recipient with this address exists")
	}
	r := &recipientRecord{EmailRecipient{e.newID(), in.Email, in.Name}, c.now}
	e.recipients = append(e.recipients, r)
	return jsonResponse(http.StatusCreated, r.appendTo(nil))
}

func (e *Emulator) retrieveRecipient(c *call) response {
	i := slices.IndexFunc(e.recipients, func(r *recipientRecord) bool { return r.EmailRecipientID == c.id })
	if i < 0 {
		return notFound("Email recipient")
	}
	return jsonResponse(http.StatusOK, e.recipients[i].appendTo(nil))
}

func (e *Emulator) listRecipients(c *call) response {
	q, err := parseList(c, "email_recipients")
	if err != nil {
		return invalid(err.Error())
	}
	email := q.Get("email")
	l := newList(q, 256)
	for i := int(min(q.from, uint64(len(e.recipients)))); i < len(e.recipients); i++ {
		r := e.recipients[i]
		if email != "" && !strings.EqualFold(r.Email, email) || c.now.Sub(r.created) < e.recipientListLag {
			continue
		}
		if !l.item(uint64(i)) {
			break
		}
		l.body = r.appendTo(l.body)
	}
	return l.response()
}

// appendTo appends the email recipient's JSON.
func (r *recipientRecord) appendTo(dst []byte) []byte {
	return appendJSON(dst, struct {
		EmailRecipientID string  `json:"email_recipient_id"`
		Object           string  `json:"object"`
		Email            string  `json:"email"`
		Name             *string `json:"name"`
		CreatedAt        string  `json:"created_at"`
	}{r.EmailRecipientID, "email_recipient", r.Email, orNull(r.Name), r.created.UTC().Format(time.RFC3339Nano)})
}
