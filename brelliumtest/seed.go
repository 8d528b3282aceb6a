package brelliumtest

import (
	"strconv"
	"time"
)

// auditSize is the capacity reserved for an audit's JSON.
const auditSize = 3 << 10

// seedSpacing is the time between the creation of two seeded audits.
const seedSpacing = 30 * time.Second

// The namespaces of seeded ids.
const (
	auditSpace    = 0x5eed_a0d1
	documentSpace = 0x5eed_d0c5
)

// mix hashes its argument (splitmix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// appendSeededID appends the id of the seeded object at a position. Its last 32
// bits are the position, so no index is needed to find it.
func appendSeededID(dst []byte, space uint64, position int) []byte {
	h := mix(space<<32 | uint64(position))
	return appendUUID(dst, h, h<<7&^0xffffffff|uint64(uint32(position)))
}

func seededID(space uint64, position int) string {
	var b [36]byte
	return string(appendSeededID(b[:0], space, position))
}

// seededPosition returns the position of the seeded object with this id.
func seededPosition(space uint64, id string) (int, bool) {
	if len(id) != 36 {
		return 0, false
	}
	position, err := strconv.ParseUint(id[28:], 16, 32)
	if err != nil {
		return 0, false
	}
	return int(position), seededID(space, int(position)) == id
}

// sampleAudit returns the audit with [SampleAuditID].
func sampleAudit(created time.Time) *auditRecord {
	return &auditRecord{
		id:        SampleAuditID,
		seed:      -1,
		status:    "complete",
		flags:     []string{"Failed", "Missing Signature"},
		setID:     seededSetID(0),
		documents: []string{"b2c3d4e5-f6a7-4b8c-9d0e-1f2a3b4c5d6e"},
		created:   created,
		updated:   created.Add(10 * time.Minute),
	}
}

// seededAudit generates the seeded audit at a position. It leaves out the ids
// of the audit and its document, so that filters run fast over many audits.
func (e *Emulator) seededAudit(position int) auditRecord {
	h := mix(uint64(position))
	created := e.seedStart.Add(time.Duration(position) * seedSpacing)
	return auditRecord{
		seed:    position,
		status:  pick(seededStatuses[:], h),
		flags:   pick(seededFlags[:], h>>8),
		setID:   seededSetID(h >> 16),
		created: created,
		updated: created.Add(time.Duration(h>>24%600) * time.Second),
	}
}

func pick[T any](from []T, h uint64) T { return from[h%uint64(len(from))] }

func seededSetID(h uint64) string { return pick(seededSets[:], h) }

// The values of seeded audits. These variables are never modified.
var (
	seededStatuses = [...]string{
		"complete", "complete", "complete", "complete", "complete", "complete", "complete", "complete",
		"complete", "complete", "complete", "complete", "in_progress", "processing", "todo", "error",
	}
	seededFlags = [...][]string{
		{}, {}, {}, {}, {},
		{"Failed"}, {"Failed", "Missing Signature"}, {"Missing Signature"}, {"Late Entry"}, {"Needs Review"},
	}
	seededSets = [...]string{
		"6c1f0a52-8f1e-4c59-9b61-2f0d7a4e1b01",
		"6c1f0a52-8f1e-4c59-9b61-2f0d7a4e1b02",
		"6c1f0a52-8f1e-4c59-9b61-2f0d7a4e1b03",
	}
	seededNames = [...]string{
		"Casey Example", "Robin Sample", "Alex Placeholder", "Jordan Fixture",
		"Morgan Specimen", "Riley Mockup", "Quinn Prototype", "Avery Template",
	}
	seededQuestions = [...]string{
		"Does the note state the start and the end time of the session?",
		"Is the note signed by the provider who gave the session?",
		"Does the note describe progress towards each goal of the plan?",
		"Is the place of service given and one that the payer accepts?",
		"Does the note name everybody who was present during the session?",
		"Was the note completed within 48 hours of the session?",
	}
	seededContexts = [...]string{
		"The header of the first page gives both times, and their difference agrees with the units that were billed.",
		"The signature block on the last page is filled in, with a date that is later than that of the session.",
		"Two of the three goals are described with data; the third is mentioned without any and could not be judged.",
		"The section was not found in the document. The closest match is a heading on page two that has no text below it.",
	}
	seededAnswers = [...]string{"Yes", "Yes", "Yes", "No", "N/A"}
)

// appendContent appends the fields of an audit's JSON that depend only on its
// position and status.
func appendContent(dst []byte, position int, status string) []byte {
	h := mix(uint64(position) ^ 0xc0ffee)
	dst = append(dst, `,"score":`...)
	if status == "complete" {
		dst = strconv.AppendUint(dst, 40+h%61, 10)
	} else {
		dst = append(dst, '0')
	}
	dst = append(dst, `,"reviewed_by":"reviewer`...)
	dst = strconv.AppendUint(dst, h>>8%20, 10)
	dst = append(dst, `@example.test"`...)

	dst = append(dst, `,"display_info":[`...)
	dst = appendInfo(dst, "episode_id", 1, "Episode ID", "text", "search")
	dst = strconv.AppendUint(dst, 10_000_000+h>>16%90_000_000, 10)
	dst = append(dst, `"},`...)
	dst = appendInfo(dst, "session_type", 2, "Session type", "text", "search")
	dst = append(dst, "Direct session"...)
	dst = append(dst, `"},`...)
	dst = appendInfo(dst, "units", 3, "Units billed", "number", "range")
	dst = strconv.AppendUint(dst, 1+h>>20%16, 10)
	dst = append(dst, `"}]`...)

	dst = append(dst, `,"people":[`...)
	dst = appendInfo(dst, "provider", 1, "Provider", "text", "people")
	dst = append(dst, pick(seededNames[:], h>>24)...)
	dst = append(dst, `"},`...)
	dst = appendInfo(dst, "supervisor", 2, "Supervisor", "text", "people")
	dst = append(dst, pick(seededNames[:], h>>28)...)
	dst = append(dst, `"}]`...)

	dst = append(dst, `,"responses":[`...)
	for n, question := range seededQuestions {
		if n > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"response_id":"`...)
		dst = appendUUID(dst, mix(h+uint64(n)), mix(h^uint64(n)))
		dst = append(dst, `","question_id":"6c1f0a52-8f1e-4c59-9b61-2f0d7a4e2c0`...)
		dst = strconv.AppendInt(dst, int64(n), 10)
		dst = append(dst, `","query":"`...)
		dst = append(dst, question...)
		dst = append(dst, `","answer":"`...)
		dst = append(dst, pick(seededAnswers[:], h>>(3*n))...)
		dst = append(dst, `","context":"`...)
		dst = append(dst, pick(seededContexts[:], h>>(32+2*n))...)
		dst = append(dst, `"}`...)
	}
	return append(dst, `]}`...)
}

// appendInfo starts an item of display_info or people, up to its value.
func appendInfo(dst []byte, key string, order int64, title, format, filter string) []byte {
	dst = append(dst, `{"key":"`...)
	dst = append(dst, key...)
	dst = append(dst, `","order":`...)
	dst = strconv.AppendInt(dst, order, 10)
	dst = append(dst, `,"title":"`...)
	dst = append(dst, title...)
	dst = append(dst, `","format":"`...)
	dst = append(dst, format...)
	dst = append(dst, `","filter_type":"`...)
	dst = append(dst, filter...)
	return append(dst, `","value":"`...)
}
