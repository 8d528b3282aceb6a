package brelliumtest

import (
	"encoding/json"
	"net/http"
	"slices"
	"time"
)

// maxBatch is the largest number of documents in one request.
const maxBatch = 100

// The states of a document.
const (
	docTodo       = "todo" // the file has not been uploaded
	docInProgress = "in_progress"
	docComplete   = "complete"
	docError      = "error"
)

// The statuses that an audit goes through by itself.
const (
	auditTodo       = "todo"
	auditInProgress = "in_progress"
	auditComplete   = "complete"
)

// Document is a document in the emulator, with its file.
type Document struct {
	// DocumentID, ExternalID, Filename and DocType are the API's fields of
	// these names.
	DocumentID, ExternalID, Filename, DocType string
	// Status is "todo", "in_progress", "error" or "complete".
	Status string
	// AuditID is the id of the document's audit, empty if it has none yet.
	AuditID string
	// Arrived is true once a file was stored.
	Arrived bool
	// Size is the size of the stored file, SHA256 the hexadecimal digest of
	// its content, and ContentType the Content-Type of its upload.
	Size        int64
	SHA256      string
	ContentType string
	// Puts is the number of times a file was stored. More than one means that
	// it was uploaded again after it had arrived.
	Puts int
}

type documentRecord struct {
	Document
	position uint64
	metadata json.RawMessage
}

// documentStore holds the documents in creation order and those waiting for
// their audits.
type documentStore struct {
	all        []*documentRecord
	byID       map[string]*documentRecord
	byExternal map[string]*documentRecord
	waiting    []waitingDocument
	auditing   []*auditRecord // audits that progress by themselves, in creation order
	urls       uint64         // number of upload URLs issued
	expired    uint64         // URLs up to this number were made to expire
}

type waitingDocument struct {
	doc *documentRecord
	due time.Time
}

func (s *documentStore) init() {
	s.byID = make(map[string]*documentRecord)
	s.byExternal = make(map[string]*documentRecord)
}

// settle creates the audits that are due, and lets them progress.
func (s *documentStore) settle(e *Emulator, now time.Time) {
	for len(s.waiting) > 0 && !now.Before(s.waiting[0].due) {
		w := s.waiting[0]
		s.waiting = s.waiting[1:]
		if w.doc.Status != docInProgress {
			continue
		}
		w.doc.Status, w.doc.AuditID = docComplete, e.newID()
		audit := &auditRecord{
			id: w.doc.AuditID, seed: -1, status: auditTodo, flags: []string{}, setID: seededSetID(0),
			documents: []string{w.doc.DocumentID}, created: w.due, updated: w.due, automatic: true,
		}
		e.addAudit(audit)
		s.auditing = append(s.auditing, audit)
	}
	s.auditing = slices.DeleteFunc(s.auditing, func(a *auditRecord) bool {
		return !a.progress(now, e.auditDuration)
	})
}

// progress sets the status of an audit that takes d, and reports whether there is
// more to come.
func (a *auditRecord) progress(now time.Time, d time.Duration) bool {
	for a.automatic {
		status, due := auditInProgress, a.created.Add(d/2)
		if a.status == auditInProgress {
			status, due = auditComplete, a.created.Add(d)
		}
		if now.Before(due) {
			return true
		}
		a.status, a.updated, a.json = status, due, nil
		a.automatic = status != auditComplete
	}
	return false
}

// Documents returns the documents in creation order.
func (e *Emulator) Documents() []Document {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.documents.settle(e, time.Now())
	docs := make([]Document, len(e.documents.all))
	for i, d := range e.documents.all {
		docs[i] = d.Document
	}
	return docs
}

// Document returns the document with this id or external id.
func (e *Emulator) Document(id string) (Document, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.documents.settle(e, time.Now())
	if d := e.findDocument(id); d != nil {
		return d.Document, true
	}
	return Document{}, false
}

// FailDocument makes the processing of the document with this id or external
// id fail: its status becomes "error" and it gets no audit. It reports whether
// there is such a document that has no audit yet.
func (e *Emulator) FailDocument(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.documents.settle(e, time.Now())
	d := e.findDocument(id)
	if d == nil || d.Status == docComplete {
		return false
	}
	d.Status = docError
	return true
}

func (e *Emulator) findDocument(id string) *documentRecord {
	if d := e.documents.byID[id]; d != nil {
		return d
	}
	return e.documents.byExternal[id]
}

func (e *Emulator) createDocuments(c *call) response {
	type input struct {
		Filename         string          `json:"filename"`
		ExternalID       string          `json:"external_id"`
		DocType          string          `json:"doc_type"`
		ExternalMetadata json.RawMessage `json:"external_metadata"`
	}
	var in struct {
		Documents []input `json:"documents"`
	}
	if err := c.decode(&in); err != nil {
		return invalid(err.Error())
	}
	if len(in.Documents) == 0 || len(in.Documents) > maxBatch {
		return invalid("documents must have 1 to 100 items")
	}
	seen := make(map[string]bool)
	for _, d := range in.Documents {
		switch {
		case d.Filename == "":
			return invalid("filename is required")
		case d.ExternalID != "" && seen[d.ExternalID]:
			return invalid("external_id must not repeat within a batch")
		case !isObjectOrNull(d.ExternalMetadata):
			return invalid("external_metadata must be an object")
		}
		seen[d.ExternalID] = true
	}

	type item struct {
		DocumentID string  `json:"document_id"`
		ExternalID *string `json:"external_id"`
		Filename   string  `json:"filename"`
		Status     string  `json:"status"`
		UploadURL  *string `json:"upload_url"`
	}
	out := struct {
		Documents []item `json:"documents"`
	}{make([]item, 0, len(in.Documents))}
	for _, d := range in.Documents {
		var rec *documentRecord
		if d.ExternalID != "" {
			rec = e.documents.byExternal[d.ExternalID]
		}
		if rec == nil {
			rec = &documentRecord{
				Document: Document{
					DocumentID: e.newID(),
					ExternalID: d.ExternalID,
					Filename:   d.Filename,
					DocType:    d.DocType,
					Status:     docTodo,
				},
				position: uint64(len(e.documents.all)),
				metadata: d.ExternalMetadata,
			}
			e.documents.all = append(e.documents.all, rec)
			e.documents.byID[rec.DocumentID] = rec
			if rec.ExternalID != "" {
				e.documents.byExternal[rec.ExternalID] = rec
			}
		}
		out.Documents = append(out.Documents, item{
			rec.DocumentID, orNull(rec.ExternalID), rec.Filename, rec.Status, e.uploadURL(c, rec),
		})
	}
	return jsonResponse(http.StatusCreated, appendJSON(nil, out))
}

func (e *Emulator) retrieveDocument(c *call) response {
	d := e.documents.byID[c.id]
	if d == nil {
		return notFound("Document")
	}
	return jsonResponse(http.StatusOK, e.appendDocument(nil, c, d))
}

func (e *Emulator) listDocuments(c *call) response {
	q, err := parseList(c, "documents")
	if err != nil {
		return invalid(err.Error())
	}
	l := newList(q, 512)
	all := e.documents.all
	external := q.Get("external_id")
	if external != "" {
		all = nil
		if d := e.documents.byExternal[external]; d != nil && d.position >= q.from {
			all = []*documentRecord{d}
		}
	} else {
		all = all[min(q.from, uint64(len(all))):]
	}
	for _, d := range all {
		if !l.item(d.position) {
			break
		}
		l.body = e.appendDocument(l.body, c, d)
	}
	return l.response()
}

// appendDocument appends a document's JSON.
func (e *Emulator) appendDocument(dst []byte, c *call, d *documentRecord) []byte {
	metadata := d.metadata
	if len(metadata) == 0 {
		metadata = json.RawMessage("{}")
	}
	return appendJSON(dst, struct {
		DocumentID       string          `json:"document_id"`
		Object           string          `json:"object"`
		ExternalID       *string         `json:"external_id"`
		Filename         string          `json:"filename"`
		Status           string          `json:"status"`
		Handler          string          `json:"handler"`
		AuditCreated     bool            `json:"audit_created"`
		NeedsAudit       bool            `json:"needs_audit"`
		ExternalMetadata json.RawMessage `json:"external_metadata"`
		UploadURL        *string         `json:"upload_url"`
	}{
		d.DocumentID, "document", orNull(d.ExternalID), d.Filename, d.Status, "default",
		d.AuditID != "", true, metadata, e.uploadURL(c, d),
	})
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func isObjectOrNull(raw json.RawMessage) bool {
	return len(raw) == 0 || raw[0] == '{' || string(raw) == "null"
}
