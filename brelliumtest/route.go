package brelliumtest

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// The names of the operations, for [Emulator.Inject], [Emulator.Count] and
// [Request].
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

	// OpAny means every operation in [Emulator.Inject] and [Emulator.Count],
	// including token requests and uploads.
	OpAny = "*"
)

// opUnknown is recorded for a request that belongs to no operation.
const opUnknown = "unknown"

// uploadPrefix starts the path of every upload URL.
const uploadPrefix = "/uploads/"

// operation is a method on a path. run is called with the emulator's lock held.
type operation struct {
	name, method, path string
	run                func(*Emulator, *call) response
}

// operations are the API's operations. A path that ends in "/" is followed by
// an id. A fixed path comes before one with an id that would match it too.
var operations = [...]operation{
	{OpTokenCreate, http.MethodPost, "/v2/oauth/token", (*Emulator).createToken},
	{OpAuditList, http.MethodGet, "/v2/audits", (*Emulator).listAudits},
	{OpAuditBatchUpdate, http.MethodPost, "/v2/audits/batch_update", (*Emulator).batchUpdateAudits},
	{OpAuditRetrieve, http.MethodGet, "/v2/audits/", (*Emulator).retrieveAudit},
	{OpAuditUpdate, http.MethodPatch, "/v2/audits/", (*Emulator).updateAudit},
	{OpDocumentList, http.MethodGet, "/v2/documents", (*Emulator).listDocuments},
	{OpDocumentCreate, http.MethodPost, "/v2/documents", (*Emulator).createDocuments},
	{OpDocumentRetrieve, http.MethodGet, "/v2/documents/", (*Emulator).retrieveDocument},
	{OpUserList, http.MethodGet, "/v2/users", (*Emulator).listUsers},
	{OpUserCreate, http.MethodPost, "/v2/users", (*Emulator).createUser},
	{OpUserRetrieve, http.MethodGet, "/v2/users/", (*Emulator).retrieveUser},
	{OpUserDelete, http.MethodDelete, "/v2/users/", (*Emulator).deleteUser},
	{OpEmailRecipientList, http.MethodGet, "/v2/email_recipients", (*Emulator).listRecipients},
	{OpEmailRecipientCreate, http.MethodPost, "/v2/email_recipients", (*Emulator).createRecipient},
	{OpEmailRecipientRetrieve, http.MethodGet, "/v2/email_recipients/", (*Emulator).retrieveRecipient},
}

// documentPut is the one operation of the storage host.
var documentPut = operation{OpDocumentPut, http.MethodPut, uploadPrefix, (*Emulator).putDocument}

// injectable reports whether there can be faults for this operation.
func injectable(name string) bool {
	return name == OpAny || name == opUnknown || name == OpDocumentPut ||
		slices.ContainsFunc(operations[:], func(o operation) bool { return o.name == name })
}

// route returns the operation of a request and the id in its path. If the path
// exists, but not with this method, op is nil and allow lists the methods.
func route(method, path string) (op *operation, id, allow string) {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	matched := "" // the path of the first operation that matches
	for i := range operations {
		o := &operations[i]
		id, ok := o.match(path)
		switch {
		case !ok || matched != "" && matched != o.path:
		case o.method == method:
			return o, id, ""
		case matched == "":
			matched, allow = o.path, o.method
		default:
			allow += ", " + o.method
		}
	}
	return nil, "", allow
}

// match reports whether a path is the operation's, and returns the id in it.
func (o *operation) match(path string) (id string, ok bool) {
	if !strings.HasSuffix(o.path, "/") {
		return "", path == o.path
	}
	id, ok = strings.CutPrefix(path, o.path)
	if !ok || id == "" || strings.Contains(id, "/") {
		return "", false
	}
	id, err := url.PathUnescape(id)
	return id, err == nil
}
