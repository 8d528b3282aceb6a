package brellium_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
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
			`{"document_id":"d","status":"complete","needs_audit":false,"audit_created":false}`))
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

// A consumer crashes at every batch, before or after it has saved the checkpoint,
// while audits are updated. It sees every update at least once, and never an older
// state after a newer one.
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

func TestFollowEndsAWindowByTheAPIsClock(t *testing.T) {
	// The local clock is an hour ahead or behind. The window still ends half a
	// minute before the time of the API.
	for _, ahead := range []time.Duration{-time.Hour, 0, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			var until []string
			emu := brelliumtest.New(brelliumtest.WithSeedStart(time.Now().Add(-24 * time.Hour)))
			inner := emu.Transport()
			client := testkit.NewClient(t, emu, testkit.WithTransport(testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
				if before := r.URL.Query().Get("updated_before"); before != "" {
					until = append(until, before)
				}
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
			if ahead < 0 {
				want = time.Now().Add(-30 * time.Second) // early, which is harmless
			}
			assert.Equal(t, want.UTC().Format(time.RFC3339), last.From.Format(time.RFC3339))
			assert.LessOrEqual(t, len(until), 2)
		})
	}
}

func TestFollowReturnsAPageWithABrokenLink(t *testing.T) {
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
