package brellium_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
	"github.com/brellium/brellium-go/internal/testkit"
)

func TestWaitForAuditReturnsItOnceItExists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		emu := brelliumtest.New(brelliumtest.WithAuditDelay(5 * time.Minute))
		client := testkit.NewClient(t, emu)
		results, err := client.Documents.Upload(t.Context(), someFiles(2), brellium.UploadOptions{})
		require.NoError(t, err)
		start := time.Now()
		audit, err := client.Documents.WaitForAudit(t.Context(), results[1].DocumentID)
		require.NoError(t, err)
		assert.Equal(t, []string{results[1].DocumentID}, audit.Documents)
		assert.GreaterOrEqual(t, time.Since(start), 5*time.Minute)
		assert.Less(t, time.Since(start), 6*time.Minute)
		assert.LessOrEqual(t, emu.Count(brelliumtest.OpDocumentRetrieve), 20, "it asks too often")
	})
}

func TestWaitForAuditAsksLessAndLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []time.Time
		client := testkit.NewStubClient(t, func(r *http.Request) (*http.Response, error) {
			asked = append(asked, time.Now())
			assert.Equal(t, "/v2/documents/d", r.URL.Path)
			return testkit.Reply(200, nil, `{"document_id":"d","status":"in_progress"}`), nil
		})
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		_, err := client.Documents.WaitForAudit(ctx, "d")
		require.Error(t, err)
		require.Equal(t, begun, asked[0])
		for i, want := range []time.Duration{2 * time.Second, 3 * time.Second} {
			assert.InDelta(t, want.Seconds(), asked[i+1].Sub(asked[i]).Seconds(), 0.2*want.Seconds())
		}
		last := asked[len(asked)-1].Sub(asked[len(asked)-2])
		assert.InDelta(t, 30, last.Seconds(), 6)
	})
}

func TestWaitForAuditEndsIfThereWillBeNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		emu := brelliumtest.New(brelliumtest.WithAuditDelay(time.Hour))
		client := testkit.NewClient(t, emu)
		results, err := client.Documents.Upload(t.Context(), someFiles(2), brellium.UploadOptions{})
		require.NoError(t, err)

		require.True(t, emu.FailDocument(results[0].DocumentID))
		_, err = client.Documents.WaitForAudit(t.Context(), results[0].DocumentID)
		require.ErrorIs(t, err, brellium.ErrDocumentFailed)

		emu.Inject(brelliumtest.OpDocumentRetrieve, brelliumtest.Respond(200, "application/json",
			`{"document_id":"`+results[1].DocumentID+`","status":"complete","needs_audit":false,"audit_created":false}`))
		_, err = client.Documents.WaitForAudit(t.Context(), results[1].DocumentID)
		require.ErrorIs(t, err, brellium.ErrNoAudit)

		_, err = client.Documents.WaitForAudit(t.Context(), "none")
		require.ErrorIs(t, err, brellium.ErrNotFound)

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(7*time.Second, cancel)
		start := time.Now()
		_, err = client.Documents.WaitForAudit(ctx, results[1].DocumentID)
		require.ErrorIs(t, err, context.Canceled)
		var interrupted *brellium.InterruptedError
		require.ErrorAs(t, err, &interrupted)
		assert.Equal(t, 7*time.Second, time.Since(start))

		_, err = client.Documents.WaitForAudit(t.Context(), " ")
		testkit.IsInvalid(t, err, "documentID", "")
	})
}

func TestWaitForAuditWaitsForALaggingList(t *testing.T) {
	testkit.Bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		results, err := client.Documents.Upload(t.Context(), someFiles(1), brellium.UploadOptions{})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		emu.Inject(brelliumtest.OpAuditList,
			brelliumtest.Respond(200, "application/json", `{"object":"list","data":[],"has_more":false}`),
			brelliumtest.Respond(200, "application/json", `{"object":"list","data":[{"audit_id":"another's","documents":["x"]}],"has_more":false}`))
		audit, err := client.Documents.WaitForAudit(t.Context(), results[0].DocumentID)
		require.NoError(t, err)
		assert.Equal(t, []string{results[0].DocumentID}, audit.Documents)
		assert.Equal(t, 3, emu.Count(brelliumtest.OpDocumentRetrieve))
	})
}

// basecamp/basecamp-sdk#436, jmrplens/gitlab-mcp-server#274: absent is not no.
func TestWaitForAuditGoesOnWhereTheDocumentDoesNotSayWhetherItNeedsAnAudit(t *testing.T) {
	for _, fields := range []string{``, `,"needs_audit":null,"audit_created":null`, `,"audit_created":false`, `,"needs_audit":true`, `,"needs_audit":null,"audit_created":false`} {
		synctest.Test(t, func(t *testing.T) {
			emu := brelliumtest.New()
			client := testkit.NewClient(t, emu)
			results, err := client.Documents.Upload(t.Context(), someFiles(1), brellium.UploadOptions{})
			require.NoError(t, err)
			unknown := brelliumtest.Respond(200, "application/json", `{"document_id":"`+results[0].DocumentID+`","status":"complete"`+fields+`}`)
			emu.Inject(brelliumtest.OpDocumentRetrieve, unknown)
			audit, err := client.Documents.WaitForAudit(t.Context(), results[0].DocumentID)
			require.NoError(t, err)
			assert.Equal(t, []string{results[0].DocumentID}, audit.Documents)

			emu.Inject(brelliumtest.OpDocumentRetrieve, unknown)
			emu.Inject(brelliumtest.OpAuditList, brelliumtest.Respond(200, "application/json", `{"object":"list","data":[],"has_more":false}`))
			audit, err = client.Documents.WaitForFinishedAudit(t.Context(), results[0].DocumentID)
			require.NoError(t, err)
			assert.Equal(t, brellium.AuditStatusComplete, audit.Status)
		})
	}
}

func TestWaitForFinishedAudit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		emu := brelliumtest.New(brelliumtest.WithAuditDelay(time.Minute), brelliumtest.WithAuditDuration(10*time.Minute))
		client := testkit.NewClient(t, emu)
		results, err := client.Documents.Upload(t.Context(), someFiles(4), brellium.UploadOptions{})
		require.NoError(t, err)
		ids := make([]string, len(results))
		for i, r := range results {
			ids[i] = r.DocumentID
		}
		begun := time.Now()
		audit, err := client.Documents.WaitForAudit(t.Context(), ids[0])
		require.NoError(t, err)
		assert.Equal(t, brellium.AuditStatusTodo, audit.Status)
		audit, err = client.Documents.WaitForFinishedAudit(t.Context(), ids[0])
		require.NoError(t, err)
		assert.Equal(t, brellium.AuditStatusComplete, audit.Status)
		assert.GreaterOrEqual(t, time.Since(begun), 11*time.Minute)
		assert.Less(t, time.Since(begun), 12*time.Minute)
		assert.Less(t, emu.Count(brelliumtest.OpAuditRetrieve), 40)

		require.True(t, emu.UpdateAudit(ids[1], func(a *brellium.Audit) { a.Status = brellium.AuditStatusError }))
		audit, err = client.Documents.WaitForFinishedAudit(t.Context(), ids[1])
		require.ErrorIs(t, err, brellium.ErrAuditFailed)
		assert.Equal(t, []string{ids[1]}, audit.Documents)

		none := brelliumtest.Respond(200, "application/json", `{"object":"list","data":[],"has_more":false}`)
		emu.Inject(brelliumtest.OpAuditList, none, none)
		emu.Inject(brelliumtest.OpDocumentRetrieve,
			brelliumtest.Respond(200, "application/json", `{"document_id":"`+ids[2]+`","status":"error"}`),
			brelliumtest.Respond(200, "application/json", `{"document_id":"`+ids[3]+`","status":"complete","needs_audit":false}`))
		_, err = client.Documents.WaitForFinishedAudit(t.Context(), ids[2])
		require.ErrorIs(t, err, brellium.ErrDocumentFailed)
		_, err = client.Documents.WaitForFinishedAudit(t.Context(), ids[3])
		require.ErrorIs(t, err, brellium.ErrNoAudit)

		_, err = client.Documents.WaitForFinishedAudit(t.Context(), "none")
		require.ErrorIs(t, err, brellium.ErrNotFound)
		_, err = client.Documents.WaitForFinishedAudit(t.Context(), " ")
		testkit.IsInvalid(t, err, "documentID", "")

		require.True(t, emu.UpdateAudit(ids[2], func(a *brellium.Audit) { a.Status = brellium.AuditStatusProcessing }))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = client.Documents.WaitForFinishedAudit(ctx, ids[2])
		var interrupted *brellium.InterruptedError
		require.ErrorAs(t, err, &interrupted)
	})
}

// A document or an audit of another shape ends the wait, and does not leave it to the
// deadline.
func TestWaitingEndsAtAnOddAudit(t *testing.T) {
	const none, created = `{"data":[],"has_more":false}`, `{"document_id":"d","status":"complete","audit_created":true}`
	list := func(audits string) string { return `{"data":[` + audits + `],"has_more":false}` }
	const status = "the status of the audit is missing or not known"
	const documents, times = "an item of data has no documents that can be read", "one of several audits of a document has no timestamp"
	for name, test := range map[string]struct {
		list, document string
		reason         string // of the DecodeError
		notExists      bool   // WaitForAudit too
	}{
		"no status":                   {list(`{"audit_id":"a","documents":["d"]}`), created, status, false},
		"a blank status":              {list(`{"audit_id":"a","documents":["d"],"status":" "}`), created, status, false},
		"a status of another kind":    {list(`{"audit_id":"a","documents":["d"],"status":{"name":"complete"}}`), created, status, false},
		"an unknown status":           {list(`{"audit_id":"a","documents":["d"],"status":"Complete"}`), created, status, false},
		"no documents":                {list(`{"audit_id":"a","status":"complete"}`), created, documents, true},
		"documents that are objects":  {list(`{"audit_id":"a","status":"complete","documents":[{"document_id":"d"}]}`), created, documents, true},
		"document_ids":                {list(`{"audit_id":"a","status":"complete","document_ids":["d"]}`), created, documents, true},
		"documents that are null":     {list(`{"audit_id":"a","status":"complete","documents":null}`), created, documents, true},
		"an empty list of documents":  {list(`{"audit_id":"a","status":"complete","documents":[]}`), created, documents, true},
		"several without a time":      {list(`{"audit_id":"a","documents":["d"],"status":"complete"},{"audit_id":"b","documents":["d"],"status":"todo"}`), created, times, true},
		"one of two without a time":   {list(`{"audit_id":"a","documents":["d"],"status":"complete","timestamp":"2025-01-01T00:00:00Z"},{"audit_id":"b","documents":["d"],"timestamp":1}`), created, times, true},
		"audits of others, and more":  {`{"data":[{"audit_id":"a","documents":["x"]}],"has_more":true,"next_cursor":"c"}`, created, "the audits are of other documents than the one of the request", true},
		"others too, and more":        {`{"data":[{"audit_id":"a","documents":["x"]},{"audit_id":"b","documents":["d"],"status":"complete"}],"has_more":true,"next_cursor":"c"}`, created, "the audits are of other documents than the one of the request", true},
		"an audit without an id":      {list(`{"id":"a","documents":["d"]}`), created, "item 1 of data has no audit_id; it has id, documents", true},
		"a list of another shape":     {`{"audits":[]}`, created, "the body has no data; it has audits", true},
		"a document without a status": {none, `{"document_id":"d"}`, "the status of the document is missing or not known", true},
		"a document's unknown status": {none, `{"document_id":"d","status":"failed","audit_created":false}`, "the status of the document is missing or not known", true},
		"another document":            {none, `{"document_id":"e","status":"complete","audit_created":true}`, "the document_id of the body is not the one of the request", true},
		"an audit that never comes":   {none, created, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := testkit.NewStubClient(t, func(r *http.Request) (*http.Response, error) {
					body := test.list
					if strings.HasPrefix(r.URL.Path, "/v2/documents/") {
						body = test.document
					}
					return testkit.Reply(200, nil, body), nil
				})
				check := func(audit *brellium.Audit, err error) {
					t.Helper()
					var decode *brellium.DecodeError
					if test.reason == "" {
						require.ErrorIs(t, err, brellium.ErrNotFound)
					} else {
						require.ErrorAs(t, err, &decode)
						assert.Equal(t, test.reason, decode.Reason)
						assert.NotEmpty(t, decode.Body)
					}
					assert.Equal(t, !test.notExists, audit != nil)
				}
				begun := time.Now()
				ctx := t.Context() // without a deadline
				check(client.Documents.WaitForFinishedAudit(ctx, "d"))
				audit, err := client.Documents.WaitForAudit(ctx, "d")
				if test.notExists {
					check(audit, err)
				} else {
					require.NoError(t, err)
				}
				results := 0
				for result, err := range client.Documents.WaitForAudits(ctx, []string{"d", "d"}) {
					require.NoError(t, err)
					check(result.Audit, result.Err)
					results++
				}
				assert.Equal(t, 1, results)
				if test.reason == "" {
					took := time.Since(begun)
					assert.GreaterOrEqual(t, took, 3*10*time.Minute)
					assert.Less(t, took, 3*(10*time.Minute+75*time.Second), "two polls more each")
				} else {
					assert.Less(t, time.Since(begun), time.Minute)
				}
			})
		})
	}
}

func TestWaitingFindsTheAuditOfAnIDInUpperCase(t *testing.T) {
	const upper, lower = "3F2504E0-4F89-41D3-9A0C-0305E82C3301", "3f2504e0-4f89-41d3-9a0c-0305e82c3301"
	synctest.Test(t, func(t *testing.T) {
		listed, begun := 0, time.Now()
		client := testkit.NewStubClient(t, func(r *http.Request) (*http.Response, error) {
			body := `{"audit_id":"a","status":"in_progress","documents":["` + lower + `"]}`
			if time.Since(begun) > time.Minute {
				body = strings.Replace(body, "in_progress", "complete", 1)
			}
			if r.URL.Path == "/v2/audits" {
				if body = `{"data":[` + body + `],"has_more":false}`; r.URL.Query().Has("updated_after") {
					listed++
				}
			}
			return testkit.Reply(200, nil, body), nil
		})
		results := 0
		for result, err := range client.Documents.WaitForAudits(t.Context(), []string{upper, lower, "3f2504e0-4f89-41d3-9a0c-0305e82c3302"}) {
			require.NoError(t, err)
			require.NoError(t, result.Err)
			assert.Equal(t, upper, result.DocumentID)
			results++
			break
		}
		assert.Equal(t, 1, results)
		assert.NotZero(t, listed)
		audit, err := client.Documents.WaitForFinishedAudit(t.Context(), upper)
		require.NoError(t, err)
		assert.Equal(t, "a", audit.AuditID)
	})
}

// Many documents: some finish soon, some late, some fail. A wait that is
// interrupted is resumed with those that are left.
func TestWaitForAuditsReportsEachDocumentOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 240
		emu := brelliumtest.New(brelliumtest.WithAuditDelay(time.Minute), brelliumtest.WithAuditDuration(3*time.Minute))
		emu.SeedAudits(1000)
		client := testkit.NewClient(t, emu)
		results, err := client.Documents.Upload(t.Context(), someFiles(n), brellium.UploadOptions{})
		require.NoError(t, err)
		left := map[string]bool{}
		var ids []string
		for _, r := range results {
			ids, left[r.DocumentID] = append(ids, r.DocumentID), true
		}
		all := slices.Clone(ids)
		ids = append(ids, ids[7]) // twice, and still one result
		for _, id := range all[n-10:] {
			require.True(t, emu.FailDocument(id))
		}
		time.AfterFunc(2*time.Minute, func() {
			for _, id := range all[10:20] {
				assert.True(t, emu.UpdateAudit(id, func(a *brellium.Audit) { a.Status = brellium.AuditStatusError }))
			}
			for _, id := range all[20:23] {
				assert.True(t, emu.UpdateAudit(id, func(a *brellium.Audit) { a.Status = brellium.AuditStatusProcessing }))
			}
		})
		time.AfterFunc(20*time.Minute, func() {
			for _, id := range all[20:23] {
				assert.True(t, emu.UpdateAudit(id, func(a *brellium.Audit) { a.Status = brellium.AuditStatusComplete }))
			}
		})
		emu.ClearRequests()
		outcomes := map[error]int{}
		for round := 0; len(left) > 0; round++ {
			require.Less(t, round, 20)
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute) // interrupted again and again
			for result, err := range client.Documents.WaitForAudits(ctx, ids) {
				if err != nil {
					require.ErrorIs(t, err, context.DeadlineExceeded)
					assert.Nil(t, result)
					break
				}
				require.True(t, left[result.DocumentID], "reported twice")
				delete(left, result.DocumentID)
				outcomes[result.Err]++
				if result.Err == nil || result.Err == brellium.ErrAuditFailed {
					assert.Equal(t, []string{result.DocumentID}, result.Audit.Documents)
				}
				if len(left) == 100 {
					break
				}
			}
			cancel()
			ids = slices.DeleteFunc(ids, func(id string) bool { return !left[id] })
		}
		assert.Equal(t, map[error]int{nil: n - 20, brellium.ErrAuditFailed: 10, brellium.ErrDocumentFailed: 10}, outcomes)
		assert.Less(t, emu.Count(brelliumtest.OpAny), 4*n, "more than a few requests for each document")
	})
}

func TestWaitForAuditsSendsAtMostOneRequestPerDocumentAndPoll(t *testing.T) {
	for _, test := range []struct{ documents, others, most int }{{1, 0, 1}, {2, 0, 2}, {40, 0, 6}, {3, 450, 3}} {
		synctest.Test(t, func(t *testing.T) {
			emu := brelliumtest.New(brelliumtest.WithAuditDelay(time.Hour), brelliumtest.WithAuditDuration(time.Hour))
			client := testkit.NewClient(t, emu, brellium.WithoutRateLimiter())
			results, err := client.Documents.Upload(t.Context(), someFiles(test.documents), brellium.UploadOptions{})
			require.NoError(t, err)
			var ids []string
			for _, r := range results {
				ids = append(ids, r.DocumentID)
			}
			emu.ClearRequests()
			go func() {
				for range 20 { // an organization in which other audits change all the time
					for range test.others {
						emu.AddAudit("complete")
					}
					time.Sleep(10 * time.Second)
				}
			}()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			for _, err := range client.Documents.WaitForAudits(ctx, ids) {
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
			polls := map[time.Time]int{}
			for i, r := range emu.Requests() {
				if i > 0 && r.Operation != brelliumtest.OpTokenCreate {
					polls[r.Arrived]++
				}
			}
			require.Greater(t, len(polls), 15)
			first := emu.Requests()[0].Arrived
			for at, requests := range polls {
				if at != first {
					assert.LessOrEqual(t, requests, test.most)
				}
			}
			assert.LessOrEqual(t, polls[first], test.documents)
			if test.others > 0 { // it asks for each document in each poll instead
				assert.Greater(t, emu.Count(brelliumtest.OpDocumentRetrieve), 45)
			}
		})
	}
}

func TestWaitForAuditsOfNoneAndOfWrongOnes(t *testing.T) {
	emu := brelliumtest.New()
	client := testkit.NewClient(t, emu)
	var finished []string
	emu.SetAudit(brellium.Audit{Documents: []string{"a", "b"}})
	for result, err := range client.Documents.WaitForAudits(t.Context(), []string{"a", "a", "b", "a"}) {
		require.NoError(t, err)
		finished = append(finished, result.DocumentID)
	}
	assert.Equal(t, []string{"a", "b"}, finished)
	emu.ClearRequests()
	for range client.Documents.WaitForAudits(t.Context(), nil) {
		t.Fatal("there is nothing to report")
	}
	for result, err := range client.Documents.WaitForAudits(t.Context(), []string{"a", " "}) {
		assert.Nil(t, result)
		testkit.IsInvalid(t, err, "documentIDs[1]", "")
	}
	var none context.Context
	for _, err := range client.Documents.WaitForAudits(none, []string{"a"}) {
		testkit.IsInvalid(t, err, "ctx", "")
	}
	assert.Zero(t, emu.Count(brelliumtest.OpAny))
}

// A consumer that crashes at every batch, before or after it has saved the
// checkpoint, while audits are updated all the time: it sees every update at
// least once, and never an older state after a newer one.
func TestFollowLosesNothingThroughCrashes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const audits, updates = 250, 150
		emu := brelliumtest.New(brelliumtest.WithSeedStart(time.Now().Add(-24 * time.Hour)))
		emu.SeedAudits(audits - 1)
		ids := emu.AuditIDs()
		writer := testkit.NewClient(t, emu)
		var writing sync.WaitGroup
		writing.Go(func() {
			for i := range updates {
				// 7 and 250 have no common divisor; many are changed twice.
				_, err := writer.Audits.Update(t.Context(), ids[i*7%97], brellium.AuditUpdateParams{Flags: []string{fmt.Sprintf("v%03d", i)}})
				assert.NoError(t, err)
				time.Sleep(3*time.Second + time.Duration(i)*time.Millisecond)
			}
		})

		seen := map[string][]string{} // the states of an audit, as they came
		var saved []byte              // what survives a crash
		crashes, batches := 0, 0
		end := time.Now().Add(20 * time.Minute)
		for time.Now().Before(end) {
			var from brellium.FollowCheckpoint
			if saved != nil {
				require.NoError(t, json.Unmarshal(saved, &from))
			}
			ctx, cancel := context.WithDeadline(t.Context(), end)
			for batch, err := range testkit.NewClient(t, emu).Audits.Follow(ctx, from, brellium.FollowOptions{Filter: brellium.AuditListParams{Limit: 40}}) {
				if err != nil {
					require.ErrorIs(t, err, context.DeadlineExceeded)
					time.Sleep(time.Until(end))
					break
				}
				batches++
				for _, a := range batch.Audits {
					seen[a.AuditID] = append(seen[a.AuditID], fmt.Sprint(a.Flags))
				}
				if batches%3 == 1 {
					crashes++ // before it is saved
					break
				}
				var err error
				saved, err = json.Marshal(batch.Checkpoint)
				require.NoError(t, err)
				if batches%3 == 2 {
					crashes++ // after
					break
				}
			}
			cancel()
		}
		writing.Wait()
		require.Greater(t, crashes, 20)

		assert.Len(t, seen, audits, "an audit was never seen")
		for id, states := range seen {
			flags, _ := emu.AuditFlags(id)
			assert.Equal(t, fmt.Sprint(flags), states[len(states)-1], "the newest state of an audit was not the last that came")
			var versions []string
			for _, s := range states {
				if len(s) == len("[v000]") && s[1] == 'v' {
					versions = append(versions, s)
				}
			}
			assert.True(t, slices.IsSorted(versions), "an older state came after a newer one: %v", versions)
		}
	})
}

func TestFollowReturnsUnchangedAuditsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		emu := brelliumtest.New(brelliumtest.WithSeedStart(time.Now().Add(-24 * time.Hour)))
		client := testkit.NewClient(t, emu)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		go func() {
			for range 20 {
				time.Sleep(11 * time.Second)
				emu.AddAudit("complete", "Failed")
			}
		}()
		counts := map[string]int{}
		var last brellium.FollowCheckpoint
		for batch, err := range client.Audits.Follow(ctx, brellium.FollowCheckpoint{}, brellium.FollowOptions{Interval: 5 * time.Second}) {
			if err != nil {
				require.ErrorIs(t, err, context.DeadlineExceeded)
				break
			}
			for _, a := range batch.Audits {
				counts[a.AuditID]++
			}
			assert.False(t, batch.Checkpoint.From.Before(last.From), "a checkpoint went back")
			last = batch.Checkpoint
		}
		assert.Len(t, counts, 21)
		for id, n := range counts {
			assert.Equal(t, 1, n, id)
		}
	})
}

func TestFollowCatchesUpAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		emu := brelliumtest.New(brelliumtest.WithSeedStart(time.Now().Add(-24 * time.Hour)))
		emu.SeedAudits(130)
		client := testkit.NewClient(t, emu)
		start := time.Now()
		follow := func(from brellium.FollowCheckpoint, filter brellium.AuditListParams) (n int, last brellium.FollowCheckpoint) {
			last = from
			for batch, err := range client.Audits.Follow(t.Context(), from, brellium.FollowOptions{CatchUp: true, Filter: filter}) {
				require.NoError(t, err)
				n += len(batch.Audits)
				last = batch.Checkpoint
			}
			return n, last
		}
		n, last := follow(brellium.FollowCheckpoint{}, brellium.AuditListParams{})
		assert.Equal(t, 131, n)
		assert.Equal(t, start.Add(-30*time.Second).UTC().Truncate(time.Second), last.From)
		assert.Empty(t, last.Cursor)
		assert.Zero(t, time.Since(start), "it waited for more")

		n, again := follow(last, brellium.AuditListParams{})
		assert.Zero(t, n)
		assert.Equal(t, last, again)

		failed, _ := follow(brellium.FollowCheckpoint{}, brellium.AuditListParams{Flags: []string{"Failed"}})
		assert.Positive(t, failed)
		assert.Less(t, failed, 131)
	})
}

func TestFollowRestartsAWindowWhoseCursorIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		emu := brelliumtest.New(brelliumtest.WithSeedStart(time.Now().Add(-24 * time.Hour)))
		emu.SeedAudits(20)
		from := brellium.FollowCheckpoint{Until: time.Now().Add(-time.Hour), Cursor: "of-an-earlier-release"}
		ids := map[string]bool{}
		for batch, err := range testkit.NewClient(t, emu).Audits.Follow(t.Context(), from, brellium.FollowOptions{CatchUp: true}) {
			require.NoError(t, err)
			for _, a := range batch.Audits {
				ids[a.AuditID] = true
			}
		}
		assert.Len(t, ids, 21)
	})
}

// A checkpoint whose window ends before it begins is no reason to ask for it forever.
func TestFollowGoesOnAfterAWindowThatIsEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		emu := brelliumtest.New(brelliumtest.WithSeedStart(time.Now().Add(-24 * time.Hour)))
		emu.SeedAudits(20)
		past := time.Now().Add(-48 * time.Hour)
		for _, until := range []time.Time{past, past.Add(-time.Hour)} {
			from := brellium.FollowCheckpoint{From: past, Until: until, Cursor: "c"}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			n := 0
			for batch, err := range testkit.NewClient(t, emu).Audits.Follow(ctx, from, brellium.FollowOptions{CatchUp: true}) {
				require.NoError(t, err)
				n += len(batch.Audits)
			}
			cancel()
			assert.Equal(t, 21, n)
		}
	})
}

func TestFollowEndsAWindowByTheAPIsClock(t *testing.T) {
	// The local clock is an hour fast, or slow: the window must end half a minute
	// before the API's present all the same.
	for _, ahead := range []time.Duration{-time.Hour, 0, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			emu := brelliumtest.New(brelliumtest.WithSeedStart(time.Now().Add(-24 * time.Hour)))
			inner := emu.Transport()
			client := testkit.NewClient(t, emu, testkit.WithTransport(testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
				resp, err := inner.RoundTrip(r)
				if err == nil {
					resp.Header.Set("Date", time.Now().Add(-ahead).UTC().Format(http.TimeFormat))
				}
				return resp, err
			})))
			var last brellium.FollowCheckpoint
			for batch, err := range client.Audits.Follow(t.Context(), brellium.FollowCheckpoint{}, brellium.FollowOptions{CatchUp: true}) {
				require.NoError(t, err)
				last = batch.Checkpoint
			}
			want := time.Now().Add(-ahead - 30*time.Second)
			assert.Equal(t, want.UTC().Format(time.RFC3339), last.From.Format(time.RFC3339))
			assert.LessOrEqual(t, emu.Count(brelliumtest.OpAuditList), 2)
		})
	}
}

// followed is the version of an audit that a list shows.
type followed struct {
	id      string
	version int
	stamp   time.Time     // updated_at
	shown   time.Duration // the age from which a list shows it
}

// followAPI is the list of audits of an API whose clock is not the local one. Its
// age is the time for which it has run, and passes only outside of jump.
type followAPI struct {
	rng     *rand.Rand
	born    time.Time
	frozen  time.Duration
	clock   time.Time // the API's clock at age 0
	lag     time.Duration
	latency time.Duration
	seconds bool // stamps are whole seconds
	closed  bool // the filters are inclusive
	byStamp bool // the order of the list; otherwise by id
	next    time.Duration
	backAt  time.Duration // the age at which the API's clock is set back
	back    time.Duration // by how much; 0 once done
	audits  map[string][]followed
	deleted map[string]bool
	noDate  bool
	dates   func(time.Time) time.Time // changes the Date header; nil does not
	queries []url.Values
	arrived []time.Time // by the local clock
}

func newFollowAPI(seed uint64, clockError time.Duration) *followAPI {
	rng := rand.New(rand.NewPCG(seed, 0))
	a := &followAPI{
		rng: rng, born: time.Now(), clock: time.Now().Add(clockError), lag: 30 * time.Second, latency: 4 * time.Second,
		seconds: seed%2 == 0, closed: seed%3 == 0, byStamp: seed%5 < 2, audits: map[string][]followed{}, deleted: map[string]bool{},
	}
	for range 30 {
		a.update(0)
	}
	return a
}

func (a *followAPI) age() time.Duration { return time.Since(a.born) - a.frozen }

// jump moves the local clock by d, while the API's runs on.
func (a *followAPI) jump(d time.Duration) {
	a.tick()
	if d < 0 { // virtual time cannot run back: the API's clock jumps ahead instead, over any lag
		a.clock = a.clock.Add(-d)
		for _, versions := range a.audits {
			for i := range versions {
				versions[i].shown = min(versions[i].shown, a.age())
			}
		}
		return
	}
	a.frozen += d
	time.Sleep(d)
}

// tick makes the changes that are due.
func (a *followAPI) tick() {
	for a.next <= a.age() {
		at := a.next
		a.turnBack(at)
		for range 1 + a.rng.IntN(2)*a.rng.IntN(8) { // often several at the same time
			a.update(at)
		}
		if a.rng.IntN(10) == 0 {
			for id := range maps.Keys(a.audits) { // any
				delete(a.audits, id)
				a.deleted[id] = true
				break
			}
		}
		a.next += time.Duration(a.rng.Int64N(int64(20 * time.Second)))
	}
	a.turnBack(a.age())
}

func (a *followAPI) turnBack(at time.Duration) {
	if at >= a.backAt {
		a.clock, a.back = a.clock.Add(-a.back), 0
	}
}

func (a *followAPI) update(at time.Duration) {
	id := fmt.Sprintf("a%03d", a.rng.IntN(400))
	if a.deleted[id] {
		return
	}
	v := followed{id: id, version: 1, stamp: a.clock.Add(at), shown: at + time.Duration(a.rng.Int64N(int64(a.lag)))}
	if a.seconds {
		v.stamp = v.stamp.Truncate(time.Second)
	}
	if all := a.audits[id]; len(all) > 0 {
		last := all[len(all)-1]
		v.version, v.shown = last.version+1, max(v.shown, last.shown)
	}
	a.audits[id] = append(a.audits[id], v)
}

func (a *followAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	a.arrived = append(a.arrived, time.Now())
	time.Sleep(time.Duration(a.rng.Int64N(int64(a.latency) + 1)))
	a.tick()
	q := r.URL.Query()
	a.queries = append(a.queries, q)
	limit, cursor := 7, q.Get("cursor")
	if n, err := strconv.Atoi(q.Get("limit")); err == nil {
		limit = n
	}
	after, _ := time.Parse(time.RFC3339Nano, q.Get("updated_after"))
	before, _ := time.Parse(time.RFC3339Nano, q.Get("updated_before"))
	if a.closed {
		after, before = after.Add(-1), before.Add(1)
	}
	key := func(v followed) string {
		if a.byStamp {
			return v.stamp.UTC().Format("20060102150405.000000000") + v.id
		}
		return v.id
	}
	var list []followed
	for _, versions := range a.audits {
		i := len(versions) - 1
		for i >= 0 && versions[i].shown > a.age() {
			i--
		}
		if i >= 0 && versions[i].stamp.After(after) && versions[i].stamp.Before(before) && key(versions[i]) > cursor {
			list = append(list, versions[i])
		}
	}
	slices.SortFunc(list, func(x, y followed) int { return strings.Compare(key(x), key(y)) })
	more, next := len(list) > limit, "null"
	if more {
		list = list[:limit]
		next = strconv.Quote(key(list[limit-1]))
	}
	body := `{"object":"list","data":[`
	for i, v := range list {
		body += strings.Repeat(",", min(i, 1)) + fmt.Sprintf(`{"audit_id":%q,"score":%d}`, v.id, v.version)
	}
	body += fmt.Sprintf(`],"has_more":%v,"next_cursor":%s}`, more, next)
	date := a.clock.Add(a.age())
	if a.dates != nil {
		date = a.dates(date)
	}
	header := http.Header{}
	if !a.noDate {
		header.Set("Date", date.UTC().Format(http.TimeFormat))
	}
	time.Sleep(time.Duration(a.rng.Int64N(int64(a.latency) + 1)))
	return testkit.Reply(200, header, body), nil
}

// followConsumer remembers what Follow has reported.
type followConsumer struct {
	t     *testing.T
	api   *followAPI
	seen  map[string]int
	saved []byte
}

func newFollowConsumer(t *testing.T, api *followAPI) *followConsumer {
	return &followConsumer{t: t, api: api, seen: map[string]int{}, saved: []byte("{}")}
}

// run follows from the saved checkpoint until a deadline, or the first batch
// after whose processing each returns false.
func (c *followConsumer) run(d time.Duration, options brellium.FollowOptions, each func() bool) {
	var from brellium.FollowCheckpoint
	require.NoError(c.t, json.Unmarshal(c.saved, &from))
	ctx, cancel := context.WithTimeout(c.t.Context(), d)
	defer cancel()
	client := testkit.NewStubClient(c.t, c.api.RoundTrip)
	for batch, err := range client.Audits.Follow(ctx, from, options) {
		if err != nil {
			require.ErrorIs(c.t, err, context.DeadlineExceeded)
			return
		}
		for _, a := range batch.Audits {
			version := int(*a.Score)
			assert.GreaterOrEqual(c.t, version, c.seen[a.AuditID], "an older state came after a newer one")
			c.seen[a.AuditID] = version
		}
		keep := each == nil || each()
		if keep || c.api.rng.IntN(2) == 0 {
			c.saved, err = json.Marshal(batch.Checkpoint)
			require.NoError(c.t, err)
		}
		if !keep {
			return
		}
	}
}

// complete checks that the newest state of each audit was reported.
func (c *followConsumer) complete() {
	c.t.Helper()
	for id, versions := range c.api.audits {
		assert.Equal(c.t, versions[len(versions)-1].version, c.seen[id], "%s of %s", id, c.api.clock)
	}
}

// Qabel/qabel-desktop#154, mozilla-services/go-syncstorage#151: clocks are wrong by
// weeks, jump, and are wrong in another way after each restart.
func TestFollowLosesNothingWhateverTheLocalClockSays(t *testing.T) {
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			wrong := func(rng *rand.Rand) time.Duration { // from minus to plus a month, often little
				most := []time.Duration{time.Second, time.Minute, time.Hour, 30 * 24 * time.Hour}[rng.IntN(4)]
				return time.Duration(rng.Int64N(2*int64(most))) - most
			}
			api := newFollowAPI(seed, wrong(rand.New(rand.NewPCG(seed, 1))))
			api.latency = []time.Duration{time.Second, 6 * time.Second}[seed/2%2]
			c := newFollowConsumer(t, api)
			for range 25 {
				api.jump(wrong(api.rng))
				options := brellium.FollowOptions{CatchUp: api.rng.IntN(3) == 0}
				c.run(time.Duration(api.rng.Int64N(int64(20*time.Minute))), options, func() bool {
					switch api.rng.IntN(12) {
					case 0:
						return false // crash
					case 1: // a jump that the elapsed time includes is noticed if it exceeds the latency
						if d := wrong(api.rng); d < 0 || d > time.Minute {
							api.jump(d)
						}
					}
					return true
				})
			}
			api.tick()
			api.next = time.Duration(math.MaxInt64) // no more changes
			time.Sleep(api.lag + 10*time.Second)    // and the latency
			c.run(time.Hour, brellium.FollowOptions{CatchUp: true}, nil)
			c.complete()
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// Qabel/qabel-desktop#154: a checkpoint later than the local clock is no reason to
// wait. mozilla-services/go-syncstorage#151: the local clock is fast by days.
func TestFollowReportsWithinTheIntervalAndTheLagAfterARestart(t *testing.T) {
	for _, clockError := range []time.Duration{10 * time.Minute, -23 * time.Hour, -25 * time.Hour, -48 * time.Hour, -30 * 24 * time.Hour, 30 * 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			api := newFollowAPI(1, clockError)
			api.latency, api.next = 0, math.MaxInt64
			c := newFollowConsumer(t, api)
			c.run(5*time.Minute, brellium.FollowOptions{}, nil)
			c.complete()
			for range 24 {
				api.update(api.age())
				c.run(63*time.Second, brellium.FollowOptions{}, nil) // a restart
				c.complete()
				time.Sleep(time.Hour)
			}
			api.update(api.age())
			time.Sleep(33 * time.Second)
			before := len(api.queries)
			c.run(time.Minute, brellium.FollowOptions{CatchUp: true}, nil)
			c.complete()
			assert.LessOrEqual(t, len(api.queries)-before, 2)
			before = len(api.queries)
			c.run(time.Minute, brellium.FollowOptions{CatchUp: true}, nil)
			assert.Greater(t, len(api.queries), before, "it ended without a request")
		})
	}
}

// The Date header of a slow response is later than the list that it contains.
func TestFollowMeasuresTheLagFromWhenTheListWasRead(t *testing.T) {
	for _, clockError := range []time.Duration{-15 * time.Second, -8 * time.Second, 0, 8 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			api := newFollowAPI(1, clockError)
			api.latency, api.next = 0, math.MaxInt64
			var read time.Time
			client := testkit.NewStubClient(t, func(r *http.Request) (*http.Response, error) {
				read = api.clock.Add(api.age())
				resp, err := api.RoundTrip(r)
				time.Sleep(10 * time.Second)
				resp.Header.Set("Date", api.clock.Add(api.age()).UTC().Format(http.TimeFormat))
				return resp, err
			})
			for batch, err := range client.Audits.Follow(t.Context(), brellium.FollowCheckpoint{}, brellium.FollowOptions{CatchUp: true, Filter: brellium.AuditListParams{Limit: 100}}) {
				require.NoError(t, err)
				assert.False(t, batch.Checkpoint.From.After(read.Add(-30*time.Second)))
			}
		})
	}
}

// Where responses have no Date header, the local clock counts.
func TestFollowWithoutADateHeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newFollowAPI(1, 0)
		api.noDate = true
		c := newFollowConsumer(t, api)
		c.run(time.Hour, brellium.FollowOptions{}, nil)
		assert.Less(t, len(api.queries), 400)
		api.next = math.MaxInt64
		time.Sleep(time.Minute)
		c.run(time.Hour, brellium.FollowOptions{CatchUp: true}, nil)
		c.complete()
	})
}

// The API's own clock is set back: later updates have earlier times.
func TestFollowLosesNothingWhenTheAPIsClockIsSetBack(t *testing.T) {
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			api := newFollowAPI(seed, 0)
			c := newFollowConsumer(t, api)
			back := []time.Duration{20 * time.Second, time.Minute, 2 * time.Minute, time.Hour, 30 * 24 * time.Hour}[seed%5]
			api.backAt, api.back = 10*time.Minute+time.Duration(seed)*time.Second, back
			c.run(40*time.Minute, brellium.FollowOptions{}, func() bool { return true })
			api.tick()
			api.next = math.MaxInt64
			time.Sleep(back + api.lag + 10*time.Second) // until what was updated last before is past
			c.run(time.Hour, brellium.FollowOptions{CatchUp: true}, nil)
			c.complete()
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func TestFollowStartsFromTheAPIsPresentWhenTheCheckpointIsLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newFollowAPI(1, -time.Hour)
		api.latency, api.next = 0, math.MaxInt64
		c := newFollowConsumer(t, api)
		c.saved = []byte(fmt.Sprintf(`{"from":%q}`, time.Now().Format(time.RFC3339))) // "from now on", by a fast clock
		c.run(time.Minute, brellium.FollowOptions{CatchUp: true}, nil)
		api.update(api.age())
		time.Sleep(time.Minute)
		c.run(time.Minute, brellium.FollowOptions{CatchUp: true}, nil)
		require.Len(t, c.seen, 1+len(api.audits)-1, "the updates of the last half minute and the new one")
		c.complete()
	})
}

// A Date header that runs back, stands still, or jumps about: neither a spin nor a
// loss of what the list shows.
func TestFollowDoesNotSpinWhateverTheDateHeaderSays(t *testing.T) {
	n := 0
	for name, dates := range map[string]func(time.Time) time.Time{
		"runs back by 2 s":     func(now time.Time) time.Time { n++; return now.Add(-2 * time.Second * time.Duration(n)) },
		"runs back by an hour": func(now time.Time) time.Time { n++; return now.Add(-time.Hour * time.Duration(n)) },
		"jumps ahead":          func(now time.Time) time.Time { n++; return now.Add(time.Hour * time.Duration(n)) },
		"alternates":           func(now time.Time) time.Time { n++; return now.Add(time.Hour * time.Duration(n%2)) },
		"alternates back":      func(now time.Time) time.Time { n++; return now.Add(-time.Hour * time.Duration(n%2)) },
		"stands still":         func(time.Time) time.Time { return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) },
		"is ancient":           func(time.Time) time.Time { return time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC) },
	} {
		for _, interval := range []time.Duration{1, 30 * time.Second} {
			t.Run(fmt.Sprint(name, interval), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					n = 0
					api := newFollowAPI(1, 0)
					api.latency, api.next, api.dates = 0, math.MaxInt64, dates
					c := newFollowConsumer(t, api)
					c.run(time.Hour, brellium.FollowOptions{Interval: interval, Filter: brellium.AuditListParams{Limit: 100}}, nil)
					assert.LessOrEqual(t, len(api.queries), int(2*time.Hour/max(interval, time.Second))+5)
					for i := 5; i < len(api.arrived); i++ {
						assert.GreaterOrEqual(t, api.arrived[i].Sub(api.arrived[i-5]), time.Second)
					}
					c.run(time.Hour, brellium.FollowOptions{CatchUp: true}, nil) // it ends
				})
			})
		}
	}
}

// One odd Date header, from a cache for example, starts nothing again.
func TestFollowIgnoresOneOddDateHeader(t *testing.T) {
	for _, odd := range []time.Duration{-30 * 24 * time.Hour, 30 * 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			api := newFollowAPI(1, 0)
			api.latency = 0
			api.dates = func(now time.Time) time.Time {
				if len(api.queries)%10 == 9 {
					now = now.Add(odd)
				}
				return now
			}
			c := newFollowConsumer(t, api)
			c.run(time.Hour, brellium.FollowOptions{}, nil)
			for _, q := range api.queries[5:] {
				after, err := time.Parse(time.RFC3339, q.Get("updated_after"))
				require.NoError(t, err)
				assert.Less(t, api.clock.Sub(after), 2*time.Minute)
			}
			api.next = math.MaxInt64
			time.Sleep(time.Minute)
			c.run(time.Hour, brellium.FollowOptions{CatchUp: true}, nil)
			c.complete()
		})
	}
}

func TestFollowRejectsACheckpointOfAnotherFilter(t *testing.T) {
	testkit.Bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.SeedAudits(30)
		follow := func(from brellium.FollowCheckpoint, filter brellium.AuditListParams) (last brellium.FollowCheckpoint, err error) {
			for batch, err := range client.Audits.Follow(t.Context(), from, brellium.FollowOptions{CatchUp: true, Filter: filter}) {
				if err != nil {
					return last, err
				}
				last = batch.Checkpoint
			}
			return last, nil
		}
		created := time.Now().Add(-48 * time.Hour)
		filter := brellium.AuditListParams{Flags: []string{"Failed", "Late Entry"}, CreatedAfter: created, Limit: 5}
		saved, err := follow(brellium.FollowCheckpoint{From: created}, filter) // an empty one fits
		require.NoError(t, err)
		assert.NotEmpty(t, saved.Filter)
		assert.NotContains(t, saved.Filter, "Failed")

		same := brellium.AuditListParams{Flags: []string{"Late Entry", "Failed", "Failed"}, CreatedAfter: created.In(time.FixedZone("", 3600)), Limit: 100}
		_, err = follow(saved, same)
		require.NoError(t, err)

		sent := emu.Count(brelliumtest.OpAuditList)
		for _, other := range []brellium.AuditListParams{
			{}, {Flags: []string{"Failed"}, CreatedAfter: created}, {Flags: filter.Flags},
			{Flags: filter.Flags, CreatedAfter: created, SetID: "s"}, {Flags: filter.Flags, CreatedBefore: created},
		} {
			_, err = follow(saved, other)
			testkit.IsInvalid(t, err, "Filter", saved.Filter)
			assert.ErrorContains(t, err, "checkpoint")
		}
		unfiltered, err := follow(brellium.FollowCheckpoint{}, brellium.AuditListParams{})
		require.NoError(t, err)
		_, err = follow(unfiltered, brellium.AuditListParams{SetID: "s"})
		testkit.IsInvalid(t, err, "Filter", "")
		assert.Greater(t, emu.Count(brelliumtest.OpAuditList), sent)
	})
}

func TestFollowHandsOverAPageWhoseLinkIsBroken(t *testing.T) {
	testkit.Bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAuditList, brelliumtest.Respond(200, "application/json", `{"object":"list","data":[{"audit_id":"a"}],"has_more":true}`))
		var got []string
		var failure error
		for batch, err := range client.Audits.Follow(t.Context(), brellium.FollowCheckpoint{}, brellium.FollowOptions{}) {
			if err != nil {
				failure = err
				continue
			}
			assert.Zero(t, batch.Checkpoint.From, "the window is not done")
			for _, a := range batch.Audits {
				got = append(got, a.AuditID)
			}
		}
		var broken *brellium.PaginationError
		require.ErrorAs(t, failure, &broken)
		assert.Equal(t, []string{"a"}, got)
	})
}

func TestFollowRejectsInvalidOptions(t *testing.T) {
	emu := brelliumtest.New()
	client := testkit.NewClient(t, emu)
	for field, test := range map[string]struct {
		options brellium.FollowOptions
		opts    []brellium.CallOption
	}{
		"Filter":           {options: brellium.FollowOptions{Filter: brellium.AuditListParams{UpdatedAfter: time.Now()}}},
		"Interval":         {options: brellium.FollowOptions{Interval: -1}},
		"Lag":              {options: brellium.FollowOptions{Lag: -1}},
		"Limit":            {options: brellium.FollowOptions{Filter: brellium.AuditListParams{Limit: 101}}},
		"WithResponseInto": {opts: []brellium.CallOption{brellium.WithResponseInto(&brellium.Response{})}},
	} {
		n := 0
		for batch, err := range client.Audits.Follow(t.Context(), brellium.FollowCheckpoint{}, test.options, test.opts...) {
			testkit.IsInvalid(t, err, field, "")
			assert.Nil(t, batch)
			n++
		}
		assert.Equal(t, 1, n, field)
	}
	assert.Zero(t, emu.Count(brelliumtest.OpAny))
}
