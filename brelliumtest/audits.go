package brelliumtest

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/brellium/brellium-go"
)

// SampleAuditID is the id of the sample audit from the API guide, which every
// emulator has. Its status is "complete" and its flags are "Failed" and
// "Missing Signature".
const SampleAuditID = "a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d"

// auditRecord is an audit held in memory. An unchanged seeded audit is nil in
// the list and generated from its position when requested.
type auditRecord struct {
	id        string
	seed      int // the position it was seeded at; -1: not seeded
	status    string
	flags     []string
	setID     string
	documents []string
	created   time.Time
	updated   time.Time
	json      []byte          // cached encoding; never modified
	content   *brellium.Audit // the fields that are not above; nil: generated
	automatic bool            // its status progresses by itself
}

// SeedAudits adds n synthetic audits of about 2.5 KB each. They are generated
// from their position in the list, so every emulator has the same ones and
// 100,000 of them use little memory.
func (e *Emulator) SeedAudits(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.audits = append(e.audits, make([]*auditRecord, n)...)
}

// AddAudit adds an audit with a status and flags, and returns its id.
func (e *Emulator) AddAudit(status string, flags ...string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	rec := &auditRecord{
		id: e.newID(), seed: -1, status: status, flags: slices.Clone(flags),
		setID: seededSetID(0), documents: []string{e.newID()}, created: now, updated: now,
	}
	e.addAudit(rec)
	return rec.id
}

// SetAudit adds an audit, or replaces the one with its AuditID. An empty AuditID
// stands for the audit of its first document, or else for a new id; a zero Timestamp
// for now, and an empty status for "complete". Its documents, if the emulator has
// them, are complete with this audit from now on. SetAudit returns the audit's id.
func (e *Emulator) SetAudit(audit brellium.Audit) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	e.documents.settle(e, now)
	if audit.AuditID == "" && len(audit.Documents) > 0 {
		if d := e.findDocument(audit.Documents[0]); d != nil {
			audit.AuditID = d.AuditID
		}
	}
	if audit.AuditID == "" {
		audit.AuditID = e.newID()
	}
	if audit.Timestamp.IsZero() {
		audit.Timestamp.Time = now
	}
	if audit.Status == "" {
		audit.Status = brellium.AuditStatusComplete
	}
	i, found := e.findAudit(audit.AuditID)
	if !found {
		i = len(e.audits)
		e.addAudit(&auditRecord{id: audit.AuditID, seed: -1})
	}
	e.putAudit(i, audit, now)
	return audit.AuditID
}

// UpdateAudit changes an audit, such as its Status, Flags, Score, People or
// Responses. The id is the audit's, or the id or external id of its document.
// UpdateAudit reports whether there is such an audit. If change sets the status,
// the audit no longer progresses by itself.
func (e *Emulator) UpdateAudit(id string, change func(*brellium.Audit)) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	e.documents.settle(e, now)
	if d := e.findDocument(id); d != nil {
		id = d.AuditID
	}
	i, found := e.findAudit(id)
	if !found {
		return false
	}
	var audit brellium.Audit
	if err := json.Unmarshal(e.auditJSON(i), &audit); err != nil {
		return false // not reached: the emulator encoded it
	}
	change(&audit)
	audit.AuditID = id
	e.putAudit(i, audit, now)
	return true
}

// putAudit replaces the audit at a position.
func (e *Emulator) putAudit(i int, audit brellium.Audit, now time.Time) {
	rec := e.ownAudit(i)
	rec.automatic = rec.automatic && rec.status == string(audit.Status)
	rec.status, rec.flags, rec.setID = string(audit.Status), slices.Clone(audit.Flags), audit.SetID
	rec.documents, rec.created = slices.Clone(audit.Documents), audit.Timestamp.Time
	rec.seed, rec.updated, rec.json = -1, now, nil
	audit.DisplayInfo, audit.People = slices.Clone(audit.DisplayInfo), slices.Clone(audit.People)
	audit.Responses = slices.Clone(audit.Responses)
	rec.content = &audit
	for n, id := range rec.documents {
		if d := e.findDocument(id); d != nil {
			d.Status, d.AuditID, rec.documents[n] = docComplete, rec.id, d.DocumentID
		}
	}
}

// ownAudit returns the record of the audit at a position, and makes one for an
// unchanged seeded audit.
func (e *Emulator) ownAudit(i int) *auditRecord {
	if e.audits[i] == nil {
		seeded := e.seededAudit(i)
		seeded.id = seededID(auditSpace, i)
		e.audits[i] = &seeded
		e.auditIndex[seeded.id] = i
	}
	return e.audits[i]
}

// AuditIDs returns the ids of all audits in list order.
func (e *Emulator) AuditIDs() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	ids := make([]string, len(e.audits))
	for i := range e.audits {
		ids[i] = e.auditIDAt(i)
	}
	return ids
}

// AuditFlags returns an audit's flags, and whether there is such an audit.
func (e *Emulator) AuditFlags(auditID string) ([]string, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	i, found := e.findAudit(auditID)
	if !found {
		return nil, false
	}
	return slices.Clone(e.auditAt(i).flags), true
}

// addAudit appends an audit to the list. The caller holds e.mu.
func (e *Emulator) addAudit(rec *auditRecord) {
	e.auditIndex[rec.id] = len(e.audits)
	e.audits = append(e.audits, rec)
}

func (e *Emulator) auditIDAt(i int) string {
	if rec := e.audits[i]; rec != nil {
		return rec.id
	}
	return seededID(auditSpace, i)
}

// findAudit returns an audit's position in the list.
func (e *Emulator) findAudit(id string) (int, bool) {
	if i, found := e.auditIndex[id]; found {
		return i, true
	}
	i, found := seededPosition(auditSpace, id)
	return i, found && i < len(e.audits) && e.audits[i] == nil
}

// auditAt returns an audit. An unchanged seeded audit comes without its id.
func (e *Emulator) auditAt(i int) auditRecord {
	if rec := e.audits[i]; rec != nil {
		return *rec
	}
	return e.seededAudit(i)
}

func (e *Emulator) retrieveAudit(c *call) response {
	i, found := e.findAudit(c.id)
	if !found {
		return notFound("Audit")
	}
	return jsonResponse(http.StatusOK, e.auditJSON(i))
}

func (e *Emulator) listAudits(c *call) response {
	q, err := parseList(c, "audits")
	if err != nil {
		return invalid(err.Error())
	}
	filter, err := newAuditFilter(q)
	if err != nil {
		return invalid(err.Error())
	}
	l := newList(q, auditSize)
	for i := int(min(q.from, uint64(len(e.audits)))); i < len(e.audits); i++ {
		if filter != nil && !filter.match(e, i) {
			continue
		}
		if !l.item(uint64(i)) {
			break
		}
		l.body = e.appendAudit(l.body, i)
	}
	return l.response()
}

// flagsInput is the optional "flags" of an update.
type flagsInput struct {
	set   bool
	flags []string
}

func (f *flagsInput) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		data = []byte(`0`) // invalid, as any value that is not a list
	}
	f.set = true
	return json.Unmarshal(data, &f.flags)
}

func (e *Emulator) updateAudit(c *call) response {
	var in struct {
		Flags flagsInput `json:"flags"`
	}
	if err := c.decode(&in); err != nil {
		return invalid(err.Error())
	}
	i, found := e.findAudit(c.id)
	if !found {
		return notFound("Audit")
	}
	if in.Flags.set {
		e.setFlags(i, in.Flags.flags, c.now)
	}
	return jsonResponse(http.StatusOK, e.auditJSON(i))
}

func (e *Emulator) batchUpdateAudits(c *call) response {
	var in struct {
		AuditIDs []string   `json:"audit_ids"`
		Flags    flagsInput `json:"flags"`
	}
	if err := c.decode(&in); err != nil {
		return invalid(err.Error())
	}
	if len(in.AuditIDs) == 0 || !in.Flags.set {
		return invalid("audit_ids and flags are required")
	}
	updated := make([]string, 0, len(in.AuditIDs))
	for _, id := range in.AuditIDs {
		if i, found := e.findAudit(id); found && !slices.Contains(updated, id) {
			e.setFlags(i, in.Flags.flags, c.now)
			updated = append(updated, id)
		}
	}
	return jsonResponse(http.StatusOK, appendJSON(nil, map[string][]string{"updated_audit_ids": updated}))
}

// setFlags replaces an audit's flags.
func (e *Emulator) setFlags(i int, flags []string, now time.Time) {
	rec := e.ownAudit(i)
	rec.flags, rec.updated, rec.json = flags, now, nil
}

// auditFilter holds the filters of a list of audits.
type auditFilter struct {
	statuses, flags               []string
	setID, documentID             string
	seededDocument                int // the position of documentID's seeded audit; -1: none
	createdAfter, createdBefore   time.Time
	updatedAfter, updatedBefore   time.Time
	byCreation, byUpdate, byFlags bool
}

// newAuditFilter returns nil if the query has no filter.
func newAuditFilter(q listQuery) (*auditFilter, error) {
	f := &auditFilter{
		statuses:       q.Values["status"],
		flags:          q.Values["flags"],
		setID:          q.Get("set_id"),
		documentID:     q.Get("document_id"),
		seededDocument: -1,
	}
	times := []struct {
		name string
		to   *time.Time
	}{
		{"created_after", &f.createdAfter}, {"created_before", &f.createdBefore},
		{"updated_after", &f.updatedAfter}, {"updated_before", &f.updatedBefore},
	}
	for _, t := range times {
		value := q.Get(t.name)
		if value == "" {
			continue
		}
		parsed, err := time.Parse(time.RFC3339Nano, value)
		if err != nil {
			return nil, errors.New(t.name + " must be an RFC 3339 time")
		}
		*t.to = parsed
	}
	f.byFlags = len(f.flags) > 0
	f.byCreation = !f.createdAfter.IsZero() || !f.createdBefore.IsZero()
	f.byUpdate = !f.updatedAfter.IsZero() || !f.updatedBefore.IsZero()
	if position, found := seededPosition(documentSpace, f.documentID); found {
		f.seededDocument = position
	}
	if len(f.statuses) == 0 && !f.byFlags && !f.byCreation && !f.byUpdate && f.setID == "" && f.documentID == "" {
		return nil, nil
	}
	return f, nil
}

// match reports whether the audit passes all filters: it has one of the
// statuses, one of the flags, the set and the document, and its times are
// within the bounds, which are exclusive.
func (f *auditFilter) match(e *Emulator, i int) bool {
	rec := e.audits[i]
	if f.documentID != "" {
		if rec == nil || rec.seed >= 0 {
			position := i
			if rec != nil {
				position = rec.seed
			}
			if position != f.seededDocument {
				return false
			}
		} else if !slices.Contains(rec.documents, f.documentID) {
			return false
		}
	}
	a := e.auditAt(i)
	if len(f.statuses) > 0 && !slices.Contains(f.statuses, a.status) ||
		f.setID != "" && f.setID != a.setID ||
		f.byFlags && !slices.ContainsFunc(f.flags, func(flag string) bool { return slices.Contains(a.flags, flag) }) {
		return false
	}
	return (!f.byCreation || between(a.created, f.createdAfter, f.createdBefore)) &&
		(!f.byUpdate || between(a.updated, f.updatedAfter, f.updatedBefore))
}

func between(t, after, before time.Time) bool {
	return (after.IsZero() || t.After(after)) && (before.IsZero() || t.Before(before))
}

// auditJSON returns an audit's JSON, which must not be modified.
func (e *Emulator) auditJSON(i int) []byte {
	rec := e.audits[i]
	if rec == nil {
		return e.appendAudit(make([]byte, 0, auditSize), i)
	}
	if rec.json == nil {
		rec.json = e.appendAudit(nil, i)
	}
	return rec.json
}

// appendAudit appends an audit's JSON.
func (e *Emulator) appendAudit(dst []byte, i int) []byte {
	a := e.auditAt(i)
	if a.content != nil {
		return appendJSON(dst, a.value())
	}
	position := i
	if a.seed >= 0 {
		position = a.seed
	}
	dst = append(dst, `{"audit_id":"`...)
	if a.id == "" {
		dst = appendSeededID(dst, auditSpace, i)
	} else {
		dst = append(dst, a.id...)
	}
	dst = append(dst, `","object":"audit","status":"`...)
	dst = append(dst, a.status...)
	dst = append(dst, `","flags":[`...)
	for n, flag := range a.flags {
		if n > 0 {
			dst = append(dst, ',')
		}
		dst = appendString(dst, flag)
	}
	dst = append(dst, `],"set_id":"`...)
	dst = append(dst, a.setID...)
	dst = append(dst, `","timestamp":"`...)
	dst = a.created.UTC().AppendFormat(dst, time.RFC3339)
	dst = append(dst, `","documents":[`...)
	for n, id := range a.documents {
		if n > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(append(dst, '"'), id...), '"')
	}
	if a.seed >= 0 {
		dst = append(dst, '"')
		dst = appendSeededID(dst, documentSpace, a.seed)
		dst = append(dst, '"')
	}
	dst = append(dst, ']')
	return appendContent(dst, position, a.status)
}

// value returns an audit that was set as a value.
func (a *auditRecord) value() *brellium.Audit {
	v := *a.content
	v.AuditID, v.Object, v.Status, v.SetID = a.id, "audit", brellium.AuditStatus(a.status), a.setID
	v.Timestamp.Time = a.created.UTC()
	v.Flags, v.Documents = orEmpty(a.flags), orEmpty(a.documents)
	v.DisplayInfo, v.People, v.Responses = orEmpty(v.DisplayInfo), orEmpty(v.People), orEmpty(v.Responses)
	return &v
}

// orEmpty returns a slice that is not encoded as null.
func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// appendString appends a string as JSON, with a fast path for strings that
// need no escaping.
func appendString(dst []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			return appendJSON(dst, s)
		}
	}
	return strconv.AppendQuote(dst, s)
}
