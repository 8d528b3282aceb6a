package brellium

import "net/http"

// repeatRule says whether an operation is retried after an attempt that may have
// run: a 5xx, a 408, a timeout or a lost connection.
type repeatRule string

const (
	repeatAlways        repeatRule = "yes"
	repeatNever         repeatRule = "no"
	repeatIfExternalIDs repeatRule = "if every document has an external_id"
)

// operation describes one operation of the API. Retry rules, errors, log records
// and spans are keyed by it.
type operation struct {
	// name is the resource and the action, in the API's names.
	name   string
	method string
	// path is the path template. It has at most one {placeholder}.
	path   string
	repeat repeatRule
	// write is false if the operation changes nothing. A lost response then
	// leaves no outcome unknown.
	write bool
	// goneIsDone: a 404 on a retry, after an attempt that may have run, is a
	// success.
	goneIsDone bool
}

// The operations of the API. The field repeat comes from the table "Decide what
// is safe to retry" of the API's guide. TestREADMEHasTheTables compares it with
// README.md.
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
	// A token request changes no data, but counts against the endpoint's own
	// limit, so it gets few attempts.
	opOAuthToken = &operation{name: "oauth.token", method: http.MethodPost, path: "/v2/oauth/token", repeat: repeatAlways}
)

// operations is the whole table, in the order of README.md.
var operations = []*operation{
	opAuditsList, opAuditsRetrieve, opAuditsUpdate, opAuditsBatchUpdate,
	opDocumentsCreate, opDocumentsList, opDocumentsRetrieve, opDocumentsPut,
	opUsersCreate, opUsersList, opUsersRetrieve, opUsersDelete,
	opEmailRecipientsCreate, opEmailRecipientsList, opEmailRecipientsRetrieve,
	opOAuthToken,
}

// customOperation returns the operation of one [Client.Do]. It has no path, since
// the caller's path may contain ids.
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
