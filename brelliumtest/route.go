package brelliumtest

import (
	"net/http"
	"net/url"
	"strings"
)

// The names of the operations, as Inject, Count and Request use them.
const (
	OpTokenCreate            = "oauth.token"
	OpAuditList              = "audits.list"
	OpAuditRetrieve          = "audits.retrieve"
	OpAuditUpdate            = "audits.update"
	OpAuditBatchUpdate       = "audits.batch_update"
	OpDocumentCreate         = "documents.create"
	OpDocumentRetrieve       = "documents.retrieve"
	OpDocumentList           = "documents.list"
	OpDocumentPut            = "documents.put" // the PUT of a file to the storage host
	OpUserCreate             = "users.create"
	OpUserRetrieve           = "users.retrieve"
	OpUserList               = "users.list"
	OpUserDelete             = "users.delete"
	OpEmailRecipientCreate   = "email_recipients.create"
	OpEmailRecipientRetrieve = "email_recipients.retrieve"
	OpEmailRecipientList     = "email_recipients.list"

	// OpAny stands for every operation in Inject and Count, mints of tokens
	// and uploads included.
	OpAny = "*"
)

// knownOperation reports whether a script can be for operation.
func knownOperation(operation string) bool {
	switch operation {
	case OpTokenCreate, OpAuditList, OpAuditRetrieve, OpAuditUpdate, OpAuditBatchUpdate,
		OpDocumentCreate, OpDocumentRetrieve, OpDocumentList, OpDocumentPut,
		OpUserCreate, OpUserRetrieve, OpUserList, OpUserDelete,
		OpEmailRecipientCreate, OpEmailRecipientRetrieve, OpEmailRecipientList,
		OpAny, opUnknown:
		return true
	}
	return false
}

// opUnknown is recorded for a request that belongs to no operation.
const opUnknown = "unknown"

// uploadPrefix is where the storage host keeps its files.
const uploadPrefix = "/uploads/"

// operation is a method on a path, with what it does. The work runs with the
// emulator's lock held.
type operation struct {
	name string
	work func(*Emulator, *call) answer
}

// route finds the operation of a request, and the id in its path. Where the
// path exists but not with this method, op is nil and allow names the methods.
func route(method, path string) (op *operation, id, allow string) {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	rest, ok := strings.CutPrefix(path, "/v2/")
	if !ok {
		return nil, "", ""
	}
	collection, element, hasElement := strings.Cut(rest, "/")
	if !hasElement {
		switch collection {
		case "audits":
			return choose(method, http.MethodGet, &auditList, "", nil)
		case "documents":
			return choose(method, http.MethodGet, &documentList, http.MethodPost, &documentCreate)
		case "users":
			return choose(method, http.MethodGet, &userList, http.MethodPost, &userCreate)
		case "email_recipients":
			return choose(method, http.MethodGet, &recipientList, http.MethodPost, &recipientCreate)
		}
		return nil, "", ""
	}
	if strings.Contains(element, "/") || element == "" {
		return nil, "", ""
	}
	switch collection {
	case "oauth":
		if element == "token" {
			return choose(method, http.MethodPost, &tokenCreate, "", nil)
		}
		return nil, "", ""
	case "audits":
		if element == "batch_update" {
			return choose(method, http.MethodPost, &auditBatchUpdate, "", nil)
		}
		op, _, allow = choose(method, http.MethodGet, &auditRetrieve, http.MethodPatch, &auditUpdate)
	case "documents":
		op, _, allow = choose(method, http.MethodGet, &documentRetrieve, "", nil)
	case "users":
		op, _, allow = choose(method, http.MethodGet, &userRetrieve, http.MethodDelete, &userDelete)
	case "email_recipients":
		op, _, allow = choose(method, http.MethodGet, &recipientRetrieve, "", nil)
	}
	if op == nil {
		return nil, "", allow
	}
	id, err := url.PathUnescape(element)
	if err != nil {
		return nil, "", ""
	}
	return op, id, ""
}

func choose(method, m1 string, op1 *operation, m2 string, op2 *operation) (*operation, string, string) {
	switch {
	case method == m1:
		return op1, "", ""
	case method == m2:
		return op2, "", ""
	case m2 != "":
		return nil, "", m1 + ", " + m2
	}
	return nil, "", m1
}

var (
	tokenCreate       = operation{OpTokenCreate, (*Emulator).createToken}
	auditList         = operation{OpAuditList, (*Emulator).listAudits}
	auditRetrieve     = operation{OpAuditRetrieve, (*Emulator).retrieveAudit}
	auditUpdate       = operation{OpAuditUpdate, (*Emulator).updateAudit}
	auditBatchUpdate  = operation{OpAuditBatchUpdate, (*Emulator).batchUpdateAudits}
	documentCreate    = operation{OpDocumentCreate, (*Emulator).createDocuments}
	documentRetrieve  = operation{OpDocumentRetrieve, (*Emulator).retrieveDocument}
	documentList      = operation{OpDocumentList, (*Emulator).listDocuments}
	documentPut       = operation{OpDocumentPut, (*Emulator).putDocument}
	userCreate        = operation{OpUserCreate, (*Emulator).createUser}
	userRetrieve      = operation{OpUserRetrieve, (*Emulator).retrieveUser}
	userList          = operation{OpUserList, (*Emulator).listUsers}
	userDelete        = operation{OpUserDelete, (*Emulator).deleteUser}
	recipientCreate   = operation{OpEmailRecipientCreate, (*Emulator).createRecipient}
	recipientRetrieve = operation{OpEmailRecipientRetrieve, (*Emulator).retrieveRecipient}
	recipientList     = operation{OpEmailRecipientList, (*Emulator).listRecipients}
)
