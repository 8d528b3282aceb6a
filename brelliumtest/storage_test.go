package brelliumtest_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

type document struct {
	DocumentID       string         `json:"document_id"`
	Object           string         `json:"object"`
	ExternalID       *string        `json:"external_id"`
	Filename         string         `json:"filename"`
	Status           string         `json:"status"`
	Handler          string         `json:"handler"`
	AuditCreated     *bool          `json:"audit_created"`
	NeedsAudit       *bool          `json:"needs_audit"`
	ExternalMetadata map[string]any `json:"external_metadata"`
	UploadURL        *string        `json:"upload_url"`
}

// create creates documents from JSON items.
func (s *session) create(items ...string) []document {
	s.t.Helper()
	r := s.do("POST", "/v2/documents", `{"documents":[`+strings.Join(items, ",")+`]}`)
	require.Equal(s.t, 201, r.status, r.body)
	var out struct {
		Documents []document `json:"documents"`
	}
	r.into(s.t, &out)
	require.Len(s.t, out.Documents, len(items))
	return out.Documents
}

const (
	first  = `{"filename":"a b (1)+é.pdf","external_id":"ext-1","doc_type":"note","external_metadata":{"n":12345678901234567890}}`
	second = `{"filename":"two.txt","external_id":"ext-2"}`
	third  = `{"filename":"three.txt"}`
)

func sum(content string) string {
	s := sha256.Sum256([]byte(content))
	return hex.EncodeToString(s[:])
}

func TestUpload(t *testing.T) {
	both(t, func(t *testing.T, s *session) {
		docs := s.create(first, third)
		d := docs[0]
		assert.Equal(t, "ext-1", *d.ExternalID)
		assert.Nil(t, docs[1].ExternalID)
		assert.Equal(t, "todo", d.Status)
		require.NotNil(t, d.UploadURL)

		u, err := url.Parse(*d.UploadURL)
		require.NoError(t, err)
		api, err := url.Parse(s.base)
		require.NoError(t, err)
		assert.NotEqual(t, api.Hostname(), u.Hostname(), "another host")
		assert.Equal(t, api.Port(), u.Port())
		assert.Equal(t, api.Scheme, u.Scheme)
		before := s.emu.Remaining()

		r := s.do("PUT", *d.UploadURL, "the content", "Content-Type: application/pdf")
		require.Equal(t, 200, r.status, r.body)
		assert.Empty(t, r.body)
		for _, name := range []string{"X-Request-Id", "RateLimit-Limit"} {
			assert.Empty(t, r.header.Get(name), name+" is set by the API only")
		}
		assert.GreaterOrEqual(t, s.emu.Remaining(), before, "an upload is not charged")

		stored, found := s.emu.Document(d.DocumentID)
		require.True(t, found)
		assert.True(t, stored.Arrived)
		assert.Equal(t, int64(11), stored.Size)
		assert.Equal(t, sum("the content"), stored.SHA256)
		assert.Equal(t, "application/pdf", stored.ContentType)
		assert.Equal(t, "note", stored.DocType)
		assert.Equal(t, 1, stored.Puts)
		put := s.emu.Requests(brelliumtest.OpDocumentPut)
		require.Len(t, put, 1)
		assert.Equal(t, int64(11), put[0].ContentLength)
		assert.Equal(t, "the content", string(put[0].Body))
		assert.True(t, put[0].Worked)
		assert.False(t, put[0].Spent)

		var got document
		r = s.get("/v2/documents/" + d.DocumentID)
		r.into(t, &got)
		assert.Contains(t, r.body, `"n":12345678901234567890`, "numbers keep their digits")
		assert.Contains(t, r.body, `"upload_url":null`)
		assert.Equal(t, "document", got.Object)
		assert.Equal(t, "in_progress", got.Status)
		assert.NotNil(t, got.AuditCreated)
		assert.NotNil(t, got.NeedsAudit)
		s.get("/v2/documents/nobody").requireFailure(t, 404, "NOT_FOUND")
	})
}

func TestRetriedCreateReturnsTheSameDocuments(t *testing.T) {
	both(t, func(t *testing.T, s *session) {
		a := s.create(first, second)
		require.Equal(t, 200, s.do("PUT", *a[0].UploadURL, "x").status)
		b := s.create(first, second)
		assert.Equal(t, a[0].DocumentID, b[0].DocumentID)
		assert.Equal(t, a[1].DocumentID, b[1].DocumentID)
		assert.Nil(t, b[0].UploadURL, "the file has arrived")
		assert.Equal(t, "in_progress", b[0].Status)
		require.NotNil(t, b[1].UploadURL)
		assert.NotEqual(t, *a[1].UploadURL, *b[1].UploadURL, "a new upload URL")
		require.Equal(t, 200, s.do("PUT", *b[1].UploadURL, "y").status)
		assert.Len(t, s.emu.Documents(), 2)

		s.create(third)
		s.create(third)
		assert.Len(t, s.emu.Documents(), 4, "without an external id a retry creates another document")
	})
}

func TestInvalidDocumentBatches(t *testing.T) {
	s := inProcess(t)
	many := strings.TrimSuffix(strings.Repeat(third+",", 101), ",")
	for _, items := range []string{"", many, `{}`, first + "," + first, `{"filename":"x","external_metadata":[]}`, `1`} {
		s.do("POST", "/v2/documents", `{"documents":[`+items+`]}`).requireFailure(t, 400, "INVALID_REQUEST")
	}
	assert.Empty(t, s.emu.Documents())
}

func TestDocumentList(t *testing.T) {
	s := inProcess(t)
	for i := range 25 {
		s.create(fmt.Sprintf(`{"filename":"f","external_id":"e%d"}`, i))
	}
	all, pages := walk[document](t, s, "/v2/documents?limit=10")
	assert.Len(t, all, 25)
	assert.Equal(t, 3, pages)
	assert.Equal(t, "e0", *all[0].ExternalID)
	one, _ := walk[document](t, s, "/v2/documents?external_id=e7")
	require.Len(t, one, 1)
	assert.Equal(t, all[7].DocumentID, one[0].DocumentID)
	none, _ := walk[document](t, s, "/v2/documents?external_id=nobody")
	assert.Empty(t, none)
}

// requireXML checks an error of the storage host.
func (r reply) requireXML(t *testing.T, status int, code, message string) {
	t.Helper()
	require.Equal(t, status, r.status, r.body)
	require.Equal(t, "application/xml", r.header.Get("Content-Type"))
	require.Contains(t, r.body, "<Error><Code>"+code+"</Code><Message>"+message)
}

func TestUploadURLMustMatchByteForByte(t *testing.T) {
	both(t, func(t *testing.T, s *session) {
		d := s.create(first)[0]
		good := *d.UploadURL
		u, err := url.Parse(good)
		require.NoError(t, err)
		reencoded := *u
		reencoded.RawQuery = u.Query().Encode()
		changed := map[string]string{
			"re-encoded query": reencoded.String(),
			"other path":       strings.Replace(good, "/ext-1", "/", 1) + "x",
			"later expiry":     strings.Replace(good, "X-Expires=", "X-Expires=9", 1),
			"other file":       strings.Replace(good, d.DocumentID, brelliumtest.SampleAuditID, 1),
			"parameter added":  good + "&x=1",
			"no signature":     strings.Split(good, "?")[0],
			"other encoding":   strings.ReplaceAll(good, "%20", "+"),
		}
		for name, target := range changed {
			require.NotEqual(t, good, target, name)
			s.do("PUT", target, "x").requireXML(t, 403, "SignatureDoesNotMatch", "")
		}
		assert.False(t, s.emu.Documents()[0].Arrived)
		assert.Equal(t, 200, s.do("PUT", good, "x").status)
	})
}

func TestUploadURLExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inProcess(t, brelliumtest.WithUploadURLLifetime(time.Minute))
		old := *s.create(first)[0].UploadURL
		time.Sleep(time.Minute - time.Millisecond)
		fresh := *s.create(first)[0].UploadURL
		time.Sleep(time.Millisecond)
		r := s.do("PUT", old, "x")
		r.requireXML(t, 403, "AccessDenied", "Request has expired</Message>")
		assert.Empty(t, r.header.Get("X-Request-Id"))
		assert.Equal(t, 200, s.do("PUT", fresh, "x").status)
	})
}

func TestExpireUploadURLs(t *testing.T) {
	both(t, func(t *testing.T, s *session) {
		old := *s.create(first)[0].UploadURL
		s.emu.ExpireUploadURLs()
		s.do("PUT", old, "x").requireXML(t, 403, "AccessDenied", "Request has expired</Message>")
		assert.Equal(t, 200, s.do("PUT", *s.create(first)[0].UploadURL, "x").status)
	})
}

func TestStorageErrors(t *testing.T) {
	both(t, func(t *testing.T, s *session) {
		target := *s.create(first)[0].UploadURL
		s.do("PUT", target, "x", "Authorization: Bearer "+s.token).requireXML(t, 400, "InvalidArgument", "")
		s.do("PUT", target, "x", "Cookie: a=b").requireXML(t, 400, "InvalidArgument", "")
		s.do("GET", target, "").requireXML(t, 405, "MethodNotAllowed", "")

		req := s.request("PUT", target, "x")
		req.ContentLength = -1
		r, err := s.try(req)
		require.NoError(t, err)
		r.requireXML(t, 501, "NotImplemented", "")
		assert.True(t, s.emu.Requests(brelliumtest.OpDocumentPut)[2].Chunked)
		assert.False(t, s.emu.Documents()[0].Arrived)

		req = s.request("PUT", target, "")
		req.Body = http.NoBody
		r, err = s.try(req)
		require.NoError(t, err)
		assert.Equal(t, 200, r.status, "an empty file")
		assert.Equal(t, sum(""), s.emu.Documents()[0].SHA256)
	})
}

func TestStorageHostIsNotTheAPI(t *testing.T) {
	s := inProcess(t)
	u, err := url.Parse(*s.create(first)[0].UploadURL)
	require.NoError(t, err)
	s.do("GET", "https://"+u.Host+"/v2/audits", "").requireXML(t, 404, "NoSuchBucket", "")
}

func TestStorageURLOption(t *testing.T) {
	s := inProcess(t, brelliumtest.WithStorageURL("https://files.example.test/"))
	target := *s.create(first)[0].UploadURL
	require.True(t, strings.HasPrefix(target, "https://files.example.test/uploads/"))
	require.Equal(t, 200, s.do("PUT", target, "x").status)
}

func TestUploadOfALargeFile(t *testing.T) {
	both(t, func(t *testing.T, s *session) {
		content := strings.Repeat("0123456789abcdef", 3<<16) // 3 MiB
		target := *s.create(first)[0].UploadURL
		require.Equal(t, 200, s.do("PUT", target, content).status)
		assert.Equal(t, sum(content), s.emu.Documents()[0].SHA256)
		put := s.emu.Requests(brelliumtest.OpDocumentPut)[0]
		assert.Len(t, put.Body, 1<<20, "the start is kept")
		assert.Equal(t, int64(3<<20), put.BodySize)
		require.Equal(t, 200, s.do("PUT", target, "again").status)
		assert.Equal(t, 2, s.emu.Documents()[0].Puts)
	})
}

func TestBodyOfAnotherLengthThanContentLength(t *testing.T) {
	s := inProcess(t)
	target := *s.create(first)[0].UploadURL
	for _, length := range []int64{2, 4} {
		for _, path := range []string{target, "/v2/users"} {
			req := s.request("PUT", path, "abc")
			req.ContentLength = length
			_, err := s.try(req)
			require.ErrorContains(t, err, fmt.Sprintf("ContentLength=%d with Body length 3", length))
		}
	}
	broken := s.request("PUT", target, "abc")
	broken.Body = http.NoBody
	req, err := http.NewRequest("PUT", target, iotest.ErrReader(assert.AnError))
	require.NoError(t, err)
	req.ContentLength = 3
	_, err = s.try(req)
	require.ErrorIs(t, err, assert.AnError)
	assert.False(t, s.emu.Documents()[0].Arrived)
	assert.Zero(t, s.emu.Count(brelliumtest.OpDocumentPut), "the body was incomplete")
}

func TestDocumentGetsItsAudit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inProcess(t, brelliumtest.WithAuditDelay(5*time.Second))
		docs := s.create(first, second)
		for _, d := range docs {
			require.Equal(t, 200, s.do("PUT", *d.UploadURL, "x").status)
		}
		require.True(t, s.emu.FailDocument("ext-2"))
		require.False(t, s.emu.FailDocument("nobody"))
		start := time.Now()
		time.Sleep(5*time.Second - time.Millisecond)
		var d document
		s.get("/v2/documents/"+docs[0].DocumentID).into(t, &d)
		assert.Equal(t, "in_progress", d.Status)
		assert.False(t, *d.AuditCreated)
		time.Sleep(time.Millisecond)
		s.get("/v2/documents/"+docs[0].DocumentID).into(t, &d)
		assert.Equal(t, "complete", d.Status)
		assert.True(t, *d.AuditCreated)
		s.get("/v2/documents/"+docs[1].DocumentID).into(t, &d)
		assert.Equal(t, "error", d.Status)
		assert.False(t, *d.AuditCreated)

		audits, _ := walk[audit](t, s, "/v2/audits?document_id="+docs[0].DocumentID)
		require.Len(t, audits, 1)
		assert.Equal(t, "complete", audits[0].Status)
		assert.Equal(t, []string{docs[0].DocumentID}, audits[0].Documents)
		stored, _ := s.emu.Document("ext-1")
		assert.Equal(t, audits[0].AuditID, stored.AuditID)
		fresh, _ := walk[audit](t, s, "/v2/audits?created_after="+start.UTC().Format(time.RFC3339))
		assert.Len(t, fresh, 1)
		require.False(t, s.emu.FailDocument("ext-1"), "too late")
	})
}

func TestAuditOfADocumentProgresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inProcess(t)
		doc := s.create(first)[0]
		require.Equal(t, 200, s.do("PUT", *doc.UploadURL, "x").status)
		start := time.Now().UTC().Add(-time.Second).Format(time.RFC3339)
		for _, want := range []string{"todo", "in_progress", "complete"} {
			if want == "todo" {
				time.Sleep(2 * time.Second)
			} else {
				time.Sleep(time.Second)
			}
			audits, _ := walk[audit](t, s, "/v2/audits?document_id="+doc.DocumentID)
			require.Len(t, audits, 1)
			assert.Equal(t, want, audits[0].Status)
			listed, _ := walk[audit](t, s, "/v2/audits?status="+want+"&updated_after="+start)
			assert.Len(t, listed, 1)
			start = time.Now().UTC().Add(-time.Nanosecond).Format(time.RFC3339Nano)
		}

		s = inProcess(t, brelliumtest.WithAuditDelay(time.Second), brelliumtest.WithAuditDuration(30*time.Minute))
		docs := s.create(first, second)
		for _, d := range docs {
			require.Equal(t, 200, s.do("PUT", *d.UploadURL, "x").status)
		}
		require.False(t, s.emu.UpdateAudit("ext-1", func(*brellium.Audit) {}), "it has no audit yet")
		time.Sleep(time.Minute)
		require.True(t, s.emu.UpdateAudit("ext-1", func(a *brellium.Audit) { a.Status = "processing" }))
		require.True(t, s.emu.UpdateAudit("ext-2", func(a *brellium.Audit) { a.Flags = []string{"Failed"} }))
		time.Sleep(30 * time.Minute)
		for i, want := range []string{"processing", "complete"} {
			audits, _ := walk[audit](t, s, "/v2/audits?document_id="+docs[i].DocumentID)
			require.Len(t, audits, 1)
			assert.Equal(t, want, audits[0].Status)
		}
	})
}

func TestAuditsAreSetAsValues(t *testing.T) {
	emu := brelliumtest.New(brelliumtest.WithAuditDelay(time.Hour))
	emu.SeedAudits(3)
	client, err := emu.Client()
	require.NoError(t, err)
	files := []brellium.UploadFile{brellium.FileFromBytes("a.pdf", []byte("one"))}
	files[0].ExternalID = "visit-1"
	results, err := client.Documents.Upload(t.Context(), files, brellium.UploadOptions{})
	require.NoError(t, err)

	score := 12.5
	want := brellium.Audit{
		AuditID: "audit-1", Object: "audit", Status: "error", Score: &score, Flags: []string{"Late \"Entry\""}, ReviewedBy: "r@example.test", SetID: "set-9",
		Timestamp: brellium.Time{Time: time.Date(2024, 2, 3, 4, 5, 6, 0, time.UTC)}, Documents: []string{"visit-1"},
		DisplayInfo: []brellium.AuditItem{{Key: "k", Order: 2, Title: "T", Value: "v", Format: "text", FilterType: "search"}},
		People:      []brellium.AuditItem{{Key: "provider", Value: "Casey Example"}},
		Responses:   []brellium.AuditResponse{{ResponseID: "r", QuestionID: "q", Query: "Signed?", Answer: "N/A", Context: "c"}},
	}
	require.Equal(t, "audit-1", emu.SetAudit(want))
	want.Documents = []string{results[0].DocumentID}
	got, err := client.Audits.Retrieve(t.Context(), "audit-1")
	require.NoError(t, err)
	assert.EqualExportedValues(t, want, *got)
	doc, err := client.Documents.Retrieve(t.Context(), results[0].DocumentID)
	require.NoError(t, err)
	assert.True(t, *doc.AuditCreated)
	assert.Equal(t, brellium.DocumentStatusComplete, doc.Status)
	stored, _ := emu.Document("visit-1")
	assert.Equal(t, "audit-1", stored.AuditID)

	// The audit of a document is replaced.
	require.Equal(t, "audit-1", emu.SetAudit(brellium.Audit{Documents: []string{"visit-1"}}))
	got, err = client.Audits.Retrieve(t.Context(), "audit-1")
	require.NoError(t, err)
	assert.Equal(t, brellium.AuditStatusComplete, got.Status)
	assert.Nil(t, got.Score)
	assert.NotContains(t, string(got.RawJSON()), `"flags":null`)
	assert.WithinDuration(t, time.Now(), got.Timestamp.Time, time.Minute)

	// A seeded one keeps what is not changed, and the API's update works on it.
	id := emu.AuditIDs()[2]
	before, err := client.Audits.Retrieve(t.Context(), id)
	require.NoError(t, err)
	require.True(t, emu.UpdateAudit(id, func(a *brellium.Audit) {
		a.People, a.Score, a.Documents = nil, &score, append(a.Documents, "second")
	}))
	_, err = client.Audits.Update(t.Context(), id, brellium.AuditUpdateParams{Flags: []string{"New"}})
	require.NoError(t, err)
	page, err := client.Audits.List(t.Context(), brellium.AuditListParams{DocumentID: "second"})
	require.NoError(t, err)
	require.Len(t, page.Data, 1)
	after := page.Data[0]
	assert.Equal(t, before.Responses, after.Responses)
	assert.Equal(t, []string{"New"}, after.Flags)
	assert.Equal(t, score, *after.Score)
	assert.Empty(t, after.People)
	assert.Len(t, emu.AuditIDs(), 5)

	require.False(t, emu.UpdateAudit("nobody", func(*brellium.Audit) {}))
	require.NotEmpty(t, emu.SetAudit(brellium.Audit{}))
	assert.Len(t, emu.AuditIDs(), 6)
}
