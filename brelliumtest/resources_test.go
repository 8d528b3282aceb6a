package brelliumtest_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go/brelliumtest"
)

type audit struct {
	AuditID     string            `json:"audit_id"`
	Object      string            `json:"object"`
	Status      string            `json:"status"`
	Score       float64           `json:"score"`
	Flags       []string          `json:"flags"`
	ReviewedBy  string            `json:"reviewed_by"`
	SetID       string            `json:"set_id"`
	Timestamp   time.Time         `json:"timestamp"`
	Documents   []string          `json:"documents"`
	DisplayInfo []json.RawMessage `json:"display_info"`
	People      []json.RawMessage `json:"people"`
	Responses   []json.RawMessage `json:"responses"`
}

type page[T any] struct {
	Object     string  `json:"object"`
	Data       []T     `json:"data"`
	HasMore    bool    `json:"has_more"`
	NextCursor *string `json:"next_cursor"`
}

// walk reads all pages of a list.
func walk[T any](t *testing.T, s *session, path string) (items []T, pages int) {
	t.Helper()
	cursor := ""
	for {
		require.Less(t, pages, 1000, "too many pages")
		s.emu.SetRemaining(100)
		r := s.get(path + cursor)
		require.Equal(t, 200, r.status, r.body)
		var p page[T]
		r.into(t, &p)
		require.Equal(t, "list", p.Object)
		require.NotNil(t, p.Data)
		items = append(items, p.Data...)
		pages++
		if !p.HasMore {
			require.Nil(t, p.NextCursor)
			require.Contains(t, r.body, `"next_cursor":null`)
			return items, pages
		}
		require.NotContains(t, path, "cursor=")
		cursor = "&cursor=" + url.QueryEscape(*p.NextCursor)
	}
}

func TestSampleAudit(t *testing.T) {
	both(t, func(t *testing.T, s *session) {
		var a audit
		s.get(sample).into(t, &a)
		assert.Equal(t, brelliumtest.SampleAuditID, a.AuditID)
		assert.Equal(t, "audit", a.Object)
		assert.Equal(t, "complete", a.Status)
		assert.Equal(t, []string{"Failed", "Missing Signature"}, a.Flags)
		assert.NotEmpty(t, a.DisplayInfo)
		assert.NotEmpty(t, a.People)
		assert.NotEmpty(t, a.Responses)
		assert.Len(t, a.Documents, 1)
		assert.False(t, a.Timestamp.IsZero())
	})
}

func TestSeededAudits(t *testing.T) {
	s := inProcess(t)
	s.emu.SeedAudits(500)
	size, statuses, ids := 0, map[string]int{}, map[string]bool{}
	for _, id := range s.emu.AuditIDs() {
		s.emu.SetRemaining(100)
		r := s.get("/v2/audits/" + id)
		var a audit
		r.into(t, &a)
		require.Equal(t, id, a.AuditID)
		require.NotNil(t, a.Flags)
		require.Len(t, a.Documents, 1)
		require.Len(t, a.Documents[0], 36)
		require.True(t, a.Score >= 0 && a.Score <= 100)
		require.True(t, a.Timestamp.Before(time.Now()))
		size += len(r.body)
		statuses[a.Status]++
		ids[id] = true
	}
	assert.Len(t, ids, 501)
	assert.InDelta(t, 2560, size/501, 300)
	assert.Len(t, statuses, 5)

	other := inProcess(t, brelliumtest.WithSeed(7))
	other.emu.SeedAudits(400)
	other.emu.SeedAudits(100)
	assert.Equal(t, s.emu.AuditIDs(), other.emu.AuditIDs(), "the same in each emulator")
	s.get("/v2/audits/"+strings.Replace(s.emu.AuditIDs()[1], "-", "x", 1)).requireFailure(t, 404, "NOT_FOUND")
}

func TestAuditListPaging(t *testing.T) {
	s := inProcess(t)
	s.emu.SeedAudits(234)
	for _, limit := range []int{7, 20, 100} {
		audits, pages := walk[audit](t, s, fmt.Sprintf("/v2/audits?limit=%d", limit))
		require.Len(t, audits, 235)
		require.Equal(t, (235+limit-1)/limit, pages)
		for i, id := range s.emu.AuditIDs() {
			require.Equal(t, id, audits[i].AuditID)
		}
	}
	var p page[audit]
	s.get("/v2/audits").into(t, &p)
	assert.Len(t, p.Data, 20, "the default")
}

func TestCursorIsStableAfterAnInsert(t *testing.T) {
	s := inProcess(t)
	s.emu.SeedAudits(9)
	var p page[audit]
	s.get("/v2/audits?limit=5").into(t, &p)
	s.emu.AddAudit("todo")
	rest, _ := walk[audit](t, s, "/v2/audits?limit=100&cursor="+url.QueryEscape(*p.NextCursor))
	require.Len(t, rest, 6)
	assert.Equal(t, s.emu.AuditIDs()[5], rest[0].AuditID)
}

func TestInvalidListParameters(t *testing.T) {
	both(t, func(t *testing.T, s *session) {
		s.emu.SeedAudits(2)
		var p page[audit]
		s.get("/v2/audits?limit=1").into(t, &p)
		require.NotEqual(t, *p.NextCursor, url.QueryEscape(*p.NextCursor), "a cursor needs escaping")
		for _, query := range []string{
			"limit=0", "limit=101", "limit=-1", "limit=x", "limit=", "cursor=x", "cursor=", "cursor=MQ==", "a=%zz",
			"created_after=yesterday", "updated_before=2025-01-01",
		} {
			s.get("/v2/audits?"+query).requireFailure(t, 400, "INVALID_REQUEST")
		}
		s.get("/v2/users?cursor="+url.QueryEscape(*p.NextCursor)).requireFailure(t, 400, "INVALID_REQUEST")
		assert.Equal(t, 200, s.get("/v2/audits?limit=100&unknown=1").status)
	})
}

func TestAuditFilters(t *testing.T) {
	start := time.Date(2025, 3, 4, 5, 0, 0, 0, time.UTC)
	s := inProcess(t, brelliumtest.WithSeedStart(start))
	s.emu.SeedAudits(250)
	all, _ := walk[audit](t, s, "/v2/audits?limit=100")

	check := func(query string, keep func(audit) bool) {
		t.Helper()
		got, _ := walk[audit](t, s, "/v2/audits?limit=9&"+query)
		var want []audit
		for _, a := range all {
			if keep(a) {
				want = append(want, a)
			}
		}
		require.NotEmpty(t, want, query)
		require.NotEqual(t, len(all), len(want), query)
		require.Equal(t, want, got, query)
	}
	has := func(a audit, flag string) bool { return strings.Contains(strings.Join(a.Flags, "|"), flag) }
	check("status=error", func(a audit) bool { return a.Status == "error" })
	check("status=error&status=todo", func(a audit) bool { return a.Status == "error" || a.Status == "todo" })
	check("flags=Failed", func(a audit) bool { return has(a, "Failed") })
	check("flags=Failed&flags=Late%20Entry", func(a audit) bool { return has(a, "Failed") || has(a, "Late Entry") })
	check("set_id="+all[5].SetID, func(a audit) bool { return a.SetID == all[5].SetID })
	check("document_id="+all[5].Documents[0], func(a audit) bool { return a.AuditID == all[5].AuditID })
	check("document_id="+all[0].Documents[0], func(a audit) bool { return a.AuditID == all[0].AuditID })
	at := all[120].Timestamp
	check("created_after="+at.Format(time.RFC3339), func(a audit) bool { return a.Timestamp.After(at) })
	check("created_before="+at.Format(time.RFC3339), func(a audit) bool { return a.Timestamp.Before(at) })
	check("status=complete&flags=Failed&created_after="+at.Format(time.RFC3339), func(a audit) bool {
		return a.Status == "complete" && has(a, "Failed") && a.Timestamp.After(at)
	})

	none, pages := walk[audit](t, s, "/v2/audits?status=nothing")
	assert.Empty(t, none)
	assert.Equal(t, 1, pages)

	before := time.Now().Add(-time.Minute).UTC().Format(time.RFC3339Nano)
	s.do("PATCH", "/v2/audits/"+all[77].AuditID, `{"flags":["New"]}`)
	updated, _ := walk[audit](t, s, "/v2/audits?updated_after="+url.QueryEscape(before))
	require.Len(t, updated, 1)
	assert.Equal(t, all[77].AuditID, updated[0].AuditID)
	older, _ := walk[audit](t, s, "/v2/audits?limit=100&updated_before="+url.QueryEscape(before))
	assert.Len(t, older, 250)
	found, _ := walk[audit](t, s, "/v2/audits?document_id="+all[77].Documents[0])
	require.Len(t, found, 1, "a changed audit keeps its document")
	assert.Equal(t, []string{"New"}, found[0].Flags)
}

func TestAuditUpdate(t *testing.T) {
	both(t, func(t *testing.T, s *session) {
		s.emu.SeedAudits(3)
		for _, id := range []string{brelliumtest.SampleAuditID, s.emu.AuditIDs()[2]} {
			path := "/v2/audits/" + id
			var before, after audit
			s.get(path).into(t, &before)
			s.do("PATCH", path, `{"flags":["One","Two \"quoted\""]}`).into(t, &after)
			before.Flags = []string{"One", `Two "quoted"`}
			assert.Equal(t, before, after)
			s.do("PATCH", path, `{}`).into(t, &after)
			assert.Equal(t, before, after, "no flags, no change")
			r := s.do("PATCH", path, `{"flags":[]}`)
			assert.Contains(t, r.body, `"flags":[]`)
			assert.Equal(t, r.body, s.get(path).body)
		}
		assert.Len(t, s.emu.AuditIDs(), 4)
		s.do("PATCH", "/v2/audits/nobody", `{"flags":[]}`).requireFailure(t, 404, "NOT_FOUND")
		for _, body := range []string{`{"flags":null}`, `{"flags":"x"}`, `{"flags":[1]}`, `[]`, `null`, `{} {}`, `{"flags":["x"]`} {
			s.do("PATCH", sample, body).requireFailure(t, 400, "INVALID_REQUEST")
		}
	})
}

func TestAuditBatchUpdate(t *testing.T) {
	both(t, func(t *testing.T, s *session) {
		s.emu.SeedAudits(3)
		ids := s.emu.AuditIDs()
		body := fmt.Sprintf(`{"audit_ids":[%q,%q,"nobody"],"flags":["Batch"]}`, ids[1], ids[3])
		for range 2 {
			r := s.do("POST", "/v2/audits/batch_update", body)
			require.Equal(t, 200, r.status)
			assert.JSONEq(t, fmt.Sprintf(`{"updated_audit_ids":[%q,%q]}`, ids[1], ids[3]), r.body)
		}
		for i, want := range [][]string{{"Failed", "Missing Signature"}, {"Batch"}, nil, {"Batch"}} {
			flags, found := s.emu.AuditFlags(ids[i])
			require.True(t, found)
			if want != nil {
				assert.Equal(t, want, flags)
			}
		}
		s.do("POST", "/v2/audits/batch_update", `{"audit_ids":[],"flags":[]}`).requireFailure(t, 400, "INVALID_REQUEST")
		s.do("POST", "/v2/audits/batch_update", `{"audit_ids":["x"]}`).requireFailure(t, 400, "INVALID_REQUEST")
	})
}

type user struct {
	UserID    string         `json:"user_id"`
	Object    string         `json:"object"`
	Email     string         `json:"email"`
	Name      *string        `json:"name"`
	CreatedAt time.Time      `json:"created_at"`
	UpdatedAt time.Time      `json:"updated_at"`
	Metadata  map[string]any `json:"metadata"`
}

func TestUserLifecycle(t *testing.T) {
	both(t, func(t *testing.T, s *session) {
		const body = `{"email":"Casey@example.test","name":"Casey Example","metadata":{"n":1}}`
		r := s.do("POST", "/v2/users", body)
		require.Equal(t, 201, r.status)
		var u user
		r.into(t, &u)
		assert.Equal(t, "user", u.Object)
		assert.Equal(t, "Casey@example.test", u.Email)
		assert.Equal(t, "Casey Example", *u.Name)
		assert.Equal(t, map[string]any{"n": 1.0}, u.Metadata)
		assert.False(t, u.CreatedAt.IsZero())
		assert.Equal(t, 1, s.emu.Invitations("casey@example.test"))

		s.do("POST", "/v2/users", body).requireFailure(t, 409, "INVITATION_PENDING")
		s.do("POST", "/v2/users", `{"email":"casey@EXAMPLE.test"}`).requireFailure(t, 409, "INVITATION_PENDING")
		require.True(t, s.emu.SignIn("casey@example.test"))
		require.False(t, s.emu.SignIn("nobody@example.test"))
		s.do("POST", "/v2/users", body).requireFailure(t, 409, "USER_EXISTS")
		assert.Equal(t, 1, s.emu.Invitations("casey@example.test"))

		assert.Equal(t, r.body, s.get("/v2/users/"+u.UserID).body)
		found, _ := walk[user](t, s, "/v2/users?email=casey%40example.test")
		require.Len(t, found, 1)
		assert.Equal(t, u, found[0])

		deleted := s.do("DELETE", "/v2/users/"+u.UserID, "")
		assert.Equal(t, 204, deleted.status)
		assert.Empty(t, deleted.body)
		assert.Empty(t, deleted.header.Get("Content-Type"))
		assert.NotEmpty(t, deleted.header.Get("RateLimit-Remaining"))
		s.do("DELETE", "/v2/users/"+u.UserID, "").requireFailure(t, 404, "NOT_FOUND")
		s.get("/v2/users/"+u.UserID).requireFailure(t, 404, "NOT_FOUND")
		assert.Empty(t, s.emu.Users())
		require.Equal(t, 201, s.do("POST", "/v2/users", body).status, "can be invited again")
		assert.Equal(t, 2, s.emu.Invitations("casey@example.test"))

		for _, bad := range []string{`{}`, `{"email":""}`, `{"email":"x"}`, `{"email":1}`, `{"email":"a@example.test","metadata":[]}`} {
			s.do("POST", "/v2/users", bad).requireFailure(t, 400, "INVALID_REQUEST")
		}
	})
}

func TestInviteFailedKeepsTheUser(t *testing.T) {
	both(t, func(t *testing.T, s *session) {
		s.emu.Inject(brelliumtest.OpUserCreate, brelliumtest.InviteFailed())
		s.do("POST", "/v2/users", `{"email":"casey@example.test"}`).requireFailure(t, 502, "INVITE_FAILED")
		require.Len(t, s.emu.Users(), 1)
		require.Zero(t, s.emu.Invitations("casey@example.test"))
		var u user
		r := s.do("POST", "/v2/users", `{"email":"casey@example.test"}`)
		require.Equal(t, 201, r.status)
		r.into(t, &u)
		users := s.emu.Users()
		require.Len(t, users, 1, "no second user")
		assert.Equal(t, u.UserID, users[0].UserID)
		assert.Equal(t, 1, users[0].Invitations)
	})
}

func TestRevokeFailedKeepsTheUser(t *testing.T) {
	both(t, func(t *testing.T, s *session) {
		s.do("POST", "/v2/users", `{"email":"casey@example.test"}`)
		path := "/v2/users/" + s.emu.Users()[0].UserID
		s.emu.Inject(brelliumtest.OpUserDelete, brelliumtest.RevokeFailed())
		s.do("DELETE", path, "").requireFailure(t, 502, "REVOKE_FAILED")
		require.Len(t, s.emu.Users(), 1)
		require.Equal(t, 204, s.do("DELETE", path, "").status)
	})
}

func TestUserCursorSurvivesADeletion(t *testing.T) {
	s := inProcess(t)
	for i := range 6 {
		s.do("POST", "/v2/users", fmt.Sprintf(`{"email":"user%d@example.test"}`, i))
	}
	var p page[user]
	s.get("/v2/users?limit=3").into(t, &p)
	s.do("DELETE", "/v2/users/"+p.Data[0].UserID, "")
	rest, _ := walk[user](t, s, "/v2/users?limit=100&cursor="+url.QueryEscape(*p.NextCursor))
	require.Len(t, rest, 3)
	assert.Equal(t, "user3@example.test", rest[0].Email)
}

type recipient struct {
	EmailRecipientID string    `json:"email_recipient_id"`
	Object           string    `json:"object"`
	Email            string    `json:"email"`
	Name             *string   `json:"name"`
	CreatedAt        time.Time `json:"created_at"`
}

func TestEmailRecipients(t *testing.T) {
	both(t, func(t *testing.T, s *session) {
		r := s.do("POST", "/v2/email_recipients", `{"email":"robin+reports@example.test","name":"Robin"}`)
		require.Equal(t, 201, r.status)
		var made recipient
		r.into(t, &made)
		assert.Equal(t, "email_recipient", made.Object)
		assert.False(t, made.CreatedAt.IsZero())
		s.do("POST", "/v2/email_recipients", `{"email":"Robin+reports@example.test"}`).requireFailure(t, 409, "EMAIL_RECIPIENT_EXISTS")
		s.do("POST", "/v2/email_recipients", `{"email":"nonsense"}`).requireFailure(t, 400, "INVALID_REQUEST")
		s.do("POST", "/v2/email_recipients", `{"email":"other@example.test"}`)

		assert.Equal(t, r.body, s.get("/v2/email_recipients/"+made.EmailRecipientID).body)
		s.get("/v2/email_recipients/nobody").requireFailure(t, 404, "NOT_FOUND")
		found, _ := walk[recipient](t, s, "/v2/email_recipients?email="+url.QueryEscape("robin+reports@example.test"))
		require.Len(t, found, 1)
		assert.Equal(t, made, found[0])
		all, pages := walk[recipient](t, s, "/v2/email_recipients?limit=1")
		assert.Len(t, all, 2)
		assert.Equal(t, 2, pages)
		assert.Len(t, s.emu.EmailRecipients(), 2)
	})
}

func TestListsLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inProcess(t, brelliumtest.WithListLag(3*time.Second), brelliumtest.WithUserListLag(time.Second))
		s.do("POST", "/v2/email_recipients", `{"email":"robin@example.test"}`)
		s.do("POST", "/v2/users", `{"email":"robin@example.test"}`)
		count := func(path string) int {
			var p page[json.RawMessage]
			s.get(path).into(t, &p)
			return len(p.Data)
		}
		assert.Zero(t, count("/v2/email_recipients?email=robin@example.test"))
		assert.Zero(t, count("/v2/users"))
		time.Sleep(time.Second)
		assert.Zero(t, count("/v2/email_recipients?email=robin@example.test"))
		assert.Equal(t, 1, count("/v2/users"))
		s.do("POST", "/v2/email_recipients", `{"email":"robin@example.test"}`).requireFailure(t, 409, "EMAIL_RECIPIENT_EXISTS")
		time.Sleep(2 * time.Second)
		assert.Equal(t, 1, count("/v2/email_recipients?email=robin@example.test"))
	})
}
