package brellium

import "net/http"

// repeatRule says when an operation may be sent again although the attempt
// before may have run: after a 5xx, a 408, a timeout or a lost connection.
type repeatRule string

const (
	repeatAlways        repeatRule = "yes"
	repeatNever         repeatRule = "no"
	repeatIfExternalIDs repeatRule = "if every document has an external_id"
)

// operation is one thing that the API does, as the guide's table has it. Every
// policy, error, log record and span keys on it.
type operation struct {
	// name is the service and the method in the API's words.
	name   string
	method string
	// path is the template; it holds at most one {placeholder}.
	path   string
	repeat repeatRule
	// write is false where nothing changes, so that the outcome of a lost
	// answer is of no concern.
	write bool
	// goneIsDone: a 404 on a repeat, after an attempt that may have run, is
	// the success of that attempt.
	goneIsDone bool
}

// The operations of the API. The column repeat is the guide's table "Decide
// what is safe to retry"; README.md prints it, and a test compares the two.
var (
	opAuditsList              = &operation{name: "audits.list", method: http.MethodGet, path: "/v2/audits", repeat: repeatAlways}
	opAuditsRetrieve          = &operation{name: "audits.retrieve", method: http.MethodGet, path: "/v2/audits/{audit_id}", repeat: repeatAlways}
	opAuditsUpdate            = &operation{name: "audits.update", method: http.MethodPatch, path: "/v2/audits/{audit_id}", repeat: repeatAlways, write: true}
	opAuditsBatchUpdate       = &operation{name: "audits.batch_update", method: http.MethodPost, path: "/v2/audits/batch_update", repeat: repeatAlways, write: true}
	opDocumentsCreate         = &operation{name: "documents.create", method: http.MethodPost, path: "/v2/documents", repeat: repeatIfExternalIDs, write: true}
	opDocumentsList           = &operation{name: "documents.list", method: http.MethodGet, path: "/v2/documents", repeat: repeatAlways}
	opDocumentsRetrieve       = &operation{name: "documents.retrieve", method: http.MethodGet, path: "/v2/documents/{document_id}", repeat: repeatAlways}
	opDocumentsPut            = &operation{name: "documents.put", method: http.MethodPut, path: "{upload_url}", repeat: repeatAlways, write: true}
	opUsersCreate             = &operation{name: "users.create", method: http.MethodPost, path: "/v2/users", repeat: repeatNever, write: true}
	opUsersList               = &operation{name: "users.list", method: http.MethodGet, path: "/v2/users", repeat: repeatAlways}
	opUsersRetrieve           = &operation{name: "users.retrieve", method: http.MethodGet, path: "/v2/users/{user_id}", repeat: repeatAlways}
	opUsersDelete             = &operation{name: "users.delete", method: http.MethodDelete, path: "/v2/users/{user_id}", repeat: repeatAlways, write: true, goneIsDone: true}
	opEmailRecipientsCreate   = &operation{name: "email_recipients.create", method: http.MethodPost, path: "/v2/email_recipients", repeat: repeatNever, write: true}
	opEmailRecipientsList     = &operation{name: "email_recipients.list", method: http.MethodGet, path: "/v2/email_recipients", repeat: repeatAlways}
	opEmailRecipientsRetrieve = &operation{name: "email_recipients.retrieve", method: http.MethodGet, path: "/v2/email_recipients/{email_recipient_id}", repeat: repeatAlways}
	// A mint changes no records, but each one counts against the endpoint's
	// own limit, so that its attempts are few.
	opOAuthToken = &operation{name: "oauth.token", method: http.MethodPost, path: "/v2/oauth/token", repeat: repeatAlways}
)

// operations is the whole table, in the order in which it is printed.
var operations = []*operation{
	opAuditsList, opAuditsRetrieve, opAuditsUpdate, opAuditsBatchUpdate,
	opDocumentsCreate, opDocumentsList, opDocumentsRetrieve, opDocumentsPut,
	opUsersCreate, opUsersList, opUsersRetrieve, opUsersDelete,
	opEmailRecipientsCreate, opEmailRecipientsList, opEmailRecipientsRetrieve,
	opOAuthToken,
}

// customOperation is what Client.Do sends. Its path is the caller's and may
// hold ids, so the operation has none.
func customOperation(method string, idempotent bool) *operation {
	op := &operation{name: "client.do", method: method, repeat: repeatNever, write: true}
	if method == http.MethodGet || method == http.MethodHead {
		op.write = false
	}
	if idempotent || !op.write {
		op.repeat = repeatAlways
	}
	return op
}
