package brellium_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
	"github.com/brellium/brellium-go/internal/testkit"
)

// LerianStudio/midaz-sdk-golang#241
func TestAllEndsAtARepeatedCursor(t *testing.T) {
	client, mock := resourceMock(t)
	page := `{"data":[{"audit_id":"x"}],"has_more":true,"next_cursor":"c1"}`
	queries := pagesByCursor(t, mock, "/v2/audits", map[string]string{"": page, "c1": page})

	audits, err := readAll(client.Audits.All(t.Context(), brellium.AuditListParams{}))
	var paging *brellium.PaginationError
	require.ErrorAs(t, err, &paging)
	assert.Contains(t, err.Error(), "repeated cursor")
	assert.Equal(t, "audits.list", paging.Operation)
	assert.Equal(t, "c1", paging.Cursor)
	assert.NoError(t, paging.Err)
	assert.LessOrEqual(t, len(*queries), 3)
	assert.Len(t, audits, 2, "the items of both pages")
}

// google/triage-party#213
func TestAllEndsAtACursorCycle(t *testing.T) {
	client, mock := resourceMock(t)
	page := func(id, next string) string {
		return fmt.Sprintf(`{"data":[{"audit_id":%q}],"has_more":true,"next_cursor":%q}`, id, next)
	}
	queries := pagesByCursor(t, mock, "/v2/audits", map[string]string{
		"": page("1", "c1"), "c1": page("2", "c2"), "c2": page("3", "c3"), "c3": page("4", "c1"),
	})
	audits, err := readAll(client.Audits.All(t.Context(), brellium.AuditListParams{}))
	var paging *brellium.PaginationError
	require.ErrorAs(t, err, &paging)
	assert.Equal(t, "c3", paging.Cursor)
	assert.Equal(t, []string{"1", "2", "3", "4"}, auditIDs(audits))
	assert.Len(t, *queries, 4)

	// So does a list that starts in the middle of the cycle.
	audits, err = readAll(client.Audits.All(t.Context(), brellium.AuditListParams{Cursor: "c2"}))
	require.ErrorAs(t, err, &paging)
	assert.Equal(t, []string{"3", "4", "2"}, auditIDs(audits))
}

// A server that ignores the cursor may still make a new one for each page.
func TestAllEndsAtAPageOfTheSameItems(t *testing.T) {
	for items, cycle := range map[string]bool{
		`{"user_id":"1"},{"user_id":"2"}`: true, `{"user_id":"1"},{"user_id":"2","name":"%d"}`: false, `{"user_id":"1"}`: false, ``: false,
	} {
		n := 0
		client := testkit.NewStubClient(t, func(*http.Request) (*http.Response, error) {
			n++
			return testkit.Reply(200, nil, strings.ReplaceAll(`{"data":[`+items+`],"has_more":`+strconv.FormatBool(n < 20)+`,"next_cursor":"c%d"}`, "%d", strconv.Itoa(n))), nil
		})
		_, err := brellium.Collect(client.Users.All(t.Context(), brellium.UserListParams{}))
		if !cycle {
			require.NoError(t, err, items)
			continue
		}
		var paging *brellium.PaginationError
		require.ErrorAs(t, err, &paging)
		assert.Equal(t, "a page with the items of an earlier one: the list is a cycle", paging.Reason)
		assert.Equal(t, 2, n)

		n = 0
		first, err := client.Users.List(t.Context(), brellium.UserListParams{})
		require.NoError(t, err)
		_, err = first.Next(t.Context())
		require.ErrorAs(t, err, &paging)
	}
}

// openai/openai-go#890
func TestEmptyPageWithACursorContinues(t *testing.T) {
	client, mock := resourceMock(t)
	queries := pagesByCursor(t, mock, "/v2/audits", map[string]string{
		"":   `{"data":[],"next_cursor":"c1"}`,
		"c1": `{"data":[{"audit_id":"1"},{"audit_id":"2"}],"next_cursor":"c2"}`,
		"c2": `{"data":[]}`,
	})
	audits, err := readAll(client.Audits.All(t.Context(), brellium.AuditListParams{}))
	require.NoError(t, err)
	assert.Equal(t, []string{"1", "2"}, auditIDs(audits))
	assert.Len(t, *queries, 3)
}

// stripe/stripe-python#221, okta/okta-sdk-golang#242
func TestEveryPageRequestHasFiltersAndLimit(t *testing.T) {
	after := time.Date(2025, 1, 2, 3, 4, 5, 600, time.FixedZone("", 2*3600))
	params := brellium.AuditListParams{
		Status: "complete", SetID: "a&b c", DocumentID: "d/é", Flags: []string{"Failed", "Missing Signature"},
		CreatedAfter: after, Limit: 2,
	}
	for _, opts := range [][]brellium.CallOption{nil, {brellium.WithPrefetch()}} {
		client, mock := resourceMock(t)
		queries := pagesByCursor(t, mock, "/v2/audits", map[string]string{
			"":        `{"data":[{"audit_id":"1"},{"audit_id":"2"}],"has_more":true,"next_cursor":"c1+/=&%"}`,
			"c1+/=&%": `{"data":[{"audit_id":"3"},{"audit_id":"4"}],"has_more":true,"next_cursor":"c 2?"}`,
			"c 2?":    `{"data":[{"audit_id":"5"}],"has_more":false,"next_cursor":null}`,
		})
		given := params
		audits, err := readAll(client.Audits.All(t.Context(), given, opts...))
		require.NoError(t, err)
		assert.Equal(t, []string{"1", "2", "3", "4", "5"}, auditIDs(audits))
		assert.Equal(t, params, given)
		require.Len(t, *queries, 3)
		for i, cursor := range []string{"", "c1+/=&%", "c 2?"} {
			want := url.Values{
				"status": {"complete"}, "set_id": {"a&b c"}, "document_id": {"d/é"}, "flags": {"Failed", "Missing Signature"},
				"created_after": {"2025-01-02T03:04:05.0000006+02:00"}, "limit": {"2"},
			}
			if cursor != "" {
				want.Set("cursor", cursor)
			}
			assert.Equal(t, want, (*queries)[i])
		}
	}
}

func TestMissingCursorIsAnErrorThatLosesNoItem(t *testing.T) {
	client, mock := resourceMock(t)
	pagesByCursor(t, mock, "/v2/users", map[string]string{
		"":   `{"data":[{"user_id":"1"}],"has_more":true,"next_cursor":"c1"}`,
		"c1": `{"data":[{"user_id":"2"}],"has_more":true,"next_cursor":null}`,
	})
	users, err := readAll(client.Users.All(t.Context(), brellium.UserListParams{}))
	var paging *brellium.PaginationError
	require.ErrorAs(t, err, &paging)
	assert.Equal(t, "c1", paging.Cursor)
	assert.Len(t, users, 2)

	// List returns the page with the error, and Next does not report the end of
	// the list.
	page, err := client.Users.List(t.Context(), brellium.UserListParams{Cursor: "c1"})
	require.ErrorAs(t, err, &paging)
	require.NotNil(t, page)
	assert.Equal(t, "2", page.Data[0].UserID)
	_, err = page.Next(t.Context())
	require.ErrorAs(t, err, &paging)
	assert.NotErrorIs(t, err, brellium.ErrNoMorePages)
}

func TestPageHasNext(t *testing.T) {
	for response, more := range map[string]bool{
		`{"data":[]}`:                                     false,
		`{"data":[],"has_more":false}`:                    false,
		`{"data":[],"has_more":null,"next_cursor":null}`:  false,
		`{"data":[],"next_cursor":""}`:                    false,
		`{"data":[],"next_cursor":"c"}`:                   true,
		`{"data":[],"has_more":null,"next_cursor":"c"}`:   true,
		`{"data":[],"has_more":true,"next_cursor":"c"}`:   true,
		`{"data":[],"has_more":false,"next_cursor":"c"}`:  false,
		`{"data":[],"has_more":false,"next_cursor":null}`: false,
	} {
		client, mock := resourceMock(t)
		pagesByCursor(t, mock, "/v2/users", map[string]string{"": response})
		page, err := client.Users.List(t.Context(), brellium.UserListParams{})
		require.NoError(t, err, response)
		assert.Equal(t, more, page.HasMore, response)
		assert.Equal(t, more, page.NextCursor != "", response)
		assert.JSONEq(t, response, string(page.RawJSON()))
		if !more {
			_, err = page.Next(t.Context())
			assert.ErrorIs(t, err, brellium.ErrNoMorePages, response)
		}
	}
	_, err := new(brellium.Page[brellium.User]).Next(t.Context())
	assert.ErrorIs(t, err, brellium.ErrNoMorePages)
}

func TestFailureInTheMiddleGivesACursorToResumeFrom(t *testing.T) {
	for name, opts := range map[string][]brellium.CallOption{"plain": nil, "prefetch": {brellium.WithPrefetch()}} {
		testkit.Bubble(t, name, func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
			emu.SeedAudits(49)
			emu.Inject(brelliumtest.OpAuditList, brelliumtest.OK().Times(2), brelliumtest.Status(503, "UNAVAILABLE").Times(5))

			audits, err := readAll(client.Audits.All(t.Context(), brellium.AuditListParams{Limit: 10}, opts...))
			var paging *brellium.PaginationError
			require.ErrorAs(t, err, &paging)
			var exhausted *brellium.RetriesExhaustedError
			require.ErrorAs(t, err, &exhausted)
			assert.ErrorIs(t, err, brellium.ErrServer)
			assert.True(t, brellium.IsTransient(err))
			assert.False(t, brellium.OutcomeUnknown(err))
			assert.NotContains(t, err.Error(), paging.Cursor)
			require.Len(t, audits, 20)

			rest, err := readAll(client.Audits.All(t.Context(), brellium.AuditListParams{Limit: 10, Cursor: paging.Cursor}, opts...))
			require.NoError(t, err)
			assert.Equal(t, emu.AuditIDs(), auditIDs(append(audits, rest...)))
		})
	}
}

func TestFailureOfTheFirstPageIsNotWrapped(t *testing.T) {
	emu := brelliumtest.New()
	client := testkit.NewClient(t, emu)
	_, err := readAll(client.Audits.All(t.Context(), brellium.AuditListParams{Cursor: "not-a-cursor"}))
	var paging *brellium.PaginationError
	assert.NotErrorAs(t, err, &paging)
	var apiErr *brellium.APIError
	require.ErrorAs(t, err, &apiErr)
	assert.Equal(t, 400, apiErr.StatusCode)
}

func TestCanceledListCanBeResumed(t *testing.T) {
	testkit.Bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.SeedAudits(30)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		n := 0
		var err error
		for _, e := range client.Audits.All(ctx, brellium.AuditListParams{Limit: 10}) {
			if n++; n == 10 {
				cancel()
			}
			err = e
		}
		require.ErrorIs(t, err, context.Canceled)
		var paging *brellium.PaginationError
		require.ErrorAs(t, err, &paging)
		assert.NotEmpty(t, paging.Cursor)
		assert.Equal(t, 1, emu.Count(brelliumtest.OpAuditList))
	})
}

func TestCollectReturnsTheItemsBeforeTheError(t *testing.T) {
	emu := brelliumtest.New()
	emu.SeedAudits(29)
	client := testkit.NewClient(t, emu)
	params := brellium.AuditListParams{Limit: 10}
	audits, err := brellium.Collect(client.Audits.All(t.Context(), params))
	require.NoError(t, err)
	assert.Equal(t, emu.AuditIDs(), auditIDs(audits))

	emu.Inject(brelliumtest.OpAuditList, brelliumtest.OK(), brelliumtest.Status(400, "SOMETHING"))
	audits, err = brellium.Collect(client.Audits.All(t.Context(), params))
	require.Error(t, err)
	assert.Equal(t, emu.AuditIDs()[:10], auditIDs(audits))

	audits, err = brellium.Collect(client.Audits.All(t.Context(), brellium.AuditListParams{Limit: -1}))
	require.Error(t, err)
	assert.Nil(t, audits)
}

func TestBreakSendsNothingMore(t *testing.T) {
	emu := brelliumtest.New()
	emu.SeedAudits(30)
	client := testkit.NewClient(t, emu)
	all := client.Audits.All(t.Context(), brellium.AuditListParams{Limit: 10})
	assert.Zero(t, emu.Count(brelliumtest.OpAny), "nothing is sent before the loop")
	for range all {
		break
	}
	assert.Equal(t, 1, emu.Count(brelliumtest.OpAuditList))
	audits, err := readAll(all) // each range starts from the first page
	require.NoError(t, err)
	assert.Len(t, audits, 31)
	assert.Equal(t, 5, emu.Count(brelliumtest.OpAuditList))
}

func TestAllReturnsEachItemOnceInOrder(t *testing.T) {
	for _, c := range []struct {
		audits int
		opts   []brellium.CallOption
	}{{10_000, nil}, {1_500, []brellium.CallOption{brellium.WithPrefetch()}}} {
		synctest.Test(t, func(t *testing.T) {
			emu := brelliumtest.New(brelliumtest.WithRecordLimit(0))
			emu.SeedAudits(c.audits - 1)
			client := testkit.NewClient(t, emu)
			ids := emu.AuditIDs()
			n := 0
			for audit, err := range client.Audits.All(t.Context(), brellium.AuditListParams{Limit: 100}, c.opts...) {
				if err != nil || audit.AuditID != ids[n] {
					t.Fatalf("audit %d: %v", n, err)
				}
				n++
			}
			assert.Equal(t, c.audits, n)
			assert.Equal(t, c.audits/100, emu.Count(brelliumtest.OpAuditList))
		})
	}
}

func TestPrefetchFetchesTheNextPageWhileTheCallerWorks(t *testing.T) {
	walk := func(t *testing.T, opts ...brellium.CallOption) (took time.Duration) {
		testkit.Bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
			emu.SeedAudits(49)
			emu.Inject(brelliumtest.OpAuditList, brelliumtest.OK().DelayResponse(time.Second).Forever())
			start := time.Now()
			n := 0
			for _, err := range client.Audits.All(t.Context(), brellium.AuditListParams{Limit: 10}, opts...) {
				require.NoError(t, err)
				n++
				time.Sleep(100 * time.Millisecond) // 1 s a page
			}
			assert.Equal(t, 50, n)
			assert.Equal(t, 5, emu.Count(brelliumtest.OpAuditList))
			took = time.Since(start)
		})
		return took
	}
	assert.Equal(t, 10*time.Second, walk(t))
	assert.Equal(t, 6*time.Second, walk(t, brellium.WithPrefetch()))
}

// busyTransport counts the round trips in flight.
type busyTransport struct {
	http.RoundTripper
	busy atomic.Int32
}

func (b *busyTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	b.busy.Add(1)
	defer b.busy.Add(-1)
	return b.RoundTripper.RoundTrip(r)
}

func TestBreakWithPrefetchLeavesNothingInFlight(t *testing.T) {
	ends := map[string]func(t *testing.T, all func(func(*brellium.Audit, error) bool)){
		"break": func(t *testing.T, all func(func(*brellium.Audit, error) bool)) {
			for range all {
				synctest.Wait() // until the page ahead is stalled
				break
			}
		},
		"panic": func(t *testing.T, all func(func(*brellium.Audit, error) bool)) {
			assert.PanicsWithValue(t, "the caller's own", func() {
				for range all {
					synctest.Wait()
					panic("the caller's own")
				}
			})
		},
	}
	for name, end := range ends {
		testkit.Bubble(t, name, func(t *testing.T, emu *brelliumtest.Emulator, _ *brellium.Client) {
			emu.SeedAudits(30)
			wire := &busyTransport{RoundTripper: emu.Transport()}
			client := testkit.NewClient(t, emu, testkit.WithTransport(wire))
			emu.Inject(brelliumtest.OpAuditList, brelliumtest.OK(), brelliumtest.StallHeaders(0))
			start := time.Now()
			end(t, client.Audits.All(t.Context(), brellium.AuditListParams{Limit: 10}, brellium.WithPrefetch()))
			assert.Zero(t, wire.busy.Load(), "the request has ended before the loop has")
			assert.Zero(t, time.Since(start), "without waiting for the stalled page")
			assert.Equal(t, 2, emu.Count(brelliumtest.OpAuditList))
		})
	}
}

func TestPrefetchKeepsTheResponseOfTheCurrentPage(t *testing.T) {
	testkit.Bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.SeedAudits(29)
		emu.Inject(brelliumtest.OpAuditList, brelliumtest.OK(), brelliumtest.Status(503, ""), brelliumtest.OK().Forever())
		var resp brellium.Response
		var attempts []int
		for _, err := range client.Audits.All(t.Context(), brellium.AuditListParams{Limit: 10}, brellium.WithPrefetch(), brellium.WithResponseInto(&resp)) {
			require.NoError(t, err)
			time.Sleep(time.Second)
			attempts = append(attempts, len(resp.Attempts))
			assert.NotEmpty(t, resp.RequestID)
		}
		require.Len(t, attempts, 30)
		for i, n := range attempts {
			want := 1
			if i >= 10 && i < 20 {
				want = 2
			}
			assert.Equal(t, want, n, "item %d", i)
		}
	})
}

// panicTransport panics on the second list request.
type panicTransport struct {
	http.RoundTripper
	lists int
}

func (p *panicTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/audits") {
		if p.lists++; p.lists == 2 {
			panic("the transport's own")
		}
	}
	return p.RoundTripper.RoundTrip(r)
}

func TestTransportPanicReachesThePrefetchingCaller(t *testing.T) {
	emu := brelliumtest.New()
	emu.SeedAudits(30)
	client := testkit.NewClient(t, emu, testkit.WithTransport(&panicTransport{RoundTripper: emu.Transport()}))
	n := 0
	assert.PanicsWithValue(t, "the transport's own", func() {
		for range client.Audits.All(t.Context(), brellium.AuditListParams{Limit: 10}, brellium.WithPrefetch()) {
			n++
		}
	})
	assert.Equal(t, 10, n)
}

func TestOnlyAllAcceptsWithPrefetch(t *testing.T) {
	client, mock := resourceMock(t)
	ctx, opt := t.Context(), brellium.WithPrefetch()
	_, err1 := client.Audits.Retrieve(ctx, "x", opt)
	_, err2 := client.Audits.List(ctx, brellium.AuditListParams{}, opt)
	_, err3 := client.Audits.Update(ctx, "x", brellium.AuditUpdateParams{Flags: []string{}}, opt)
	_, err4 := client.Audits.BatchUpdate(ctx, brellium.AuditBatchUpdateParams{AuditIDs: []string{"x"}, Flags: []string{}}, opt)
	_, err5 := client.Users.Create(ctx, brellium.UserCreateParams{Email: "a@example.test"}, opt)
	_, err6 := client.Users.Ensure(ctx, brellium.UserCreateParams{Email: "a@example.test"}, opt)
	_, err7 := client.Users.Retrieve(ctx, "x", opt)
	_, err8 := client.Users.List(ctx, brellium.UserListParams{}, opt)
	err9 := client.Users.Delete(ctx, "x", opt)
	_, err10 := client.EmailRecipients.Create(ctx, brellium.EmailRecipientCreateParams{Email: "a@example.test"}, opt)
	_, err11 := client.EmailRecipients.Ensure(ctx, brellium.EmailRecipientCreateParams{Email: "a@example.test"}, opt)
	_, err12 := client.EmailRecipients.Retrieve(ctx, "x", opt)
	_, err13 := client.EmailRecipients.List(ctx, brellium.EmailRecipientListParams{}, opt)
	_, err14 := client.EmailRecipients.FindByEmail(ctx, "a@example.test", opt)
	err15 := client.Do(ctx, "GET", "/v2/things", nil, nil, opt)
	_, err16 := client.Documents.Create(ctx, brellium.DocumentCreateParams{Documents: []brellium.DocumentInput{{Filename: "a.pdf"}}}, opt)
	_, err17 := client.Documents.Retrieve(ctx, "x", opt)
	_, err18 := client.Documents.List(ctx, brellium.DocumentListParams{}, opt)
	file := brellium.FileFromBytes("a.pdf", []byte("one"))
	_, err19 := client.Documents.Upload(ctx, []brellium.UploadFile{file}, brellium.UploadOptions{}, opt)
	_, err20 := client.Documents.WaitForAudit(ctx, "x", opt)
	_, err23 := client.Documents.WaitForFinishedAudit(ctx, "x", opt)
	_, err21 := testkit.NewClient(t, brelliumtest.New()).OAuth.CreateToken(ctx, opt)
	var err22 error
	for _, err := range client.Audits.Follow(ctx, brellium.FollowCheckpoint{}, brellium.FollowOptions{CatchUp: true}, opt) {
		err22 = err
	}
	for _, err := range []error{err1, err2, err3, err4, err5, err6, err7, err8, err9, err10, err11, err12, err13, err14, err15, err16, err17, err18, err19, err20, err21, err22, err23} {
		testkit.IsInvalid(t, err, "WithPrefetch", "")
	}
	assert.Zero(t, mock.GetTotalCallCount())
}

func TestNextMayBeCalledConcurrently(t *testing.T) {
	emu := brelliumtest.New()
	emu.SeedAudits(30)
	client := testkit.NewClient(t, emu)
	first, err := client.Audits.List(t.Context(), brellium.AuditListParams{Limit: 10})
	require.NoError(t, err)

	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			second, err := first.Next(t.Context())
			if !assert.NoError(t, err) {
				return
			}
			third, err := second.Next(t.Context())
			if assert.NoError(t, err) {
				assert.Equal(t, emu.AuditIDs()[20], third.Data[0].AuditID)
			}
		})
	}
	wg.Wait()

	// After a failure it continues.
	emu.Inject(brelliumtest.OpAuditList, brelliumtest.Status(400, "SOMETHING"))
	_, err = first.Next(t.Context())
	var paging *brellium.PaginationError
	require.ErrorAs(t, err, &paging)
	assert.Equal(t, first.NextCursor, paging.Cursor)
	_, err = first.Next(t.Context())
	require.NoError(t, err)
}

func TestInvalidListParamsAreNamed(t *testing.T) {
	client, mock := resourceMock(t)
	many := make([]string, 300)
	for i := range many {
		many[i] = "flag number " + fmt.Sprint(i)
	}
	for field, params := range map[string]brellium.AuditListParams{
		"Limit": {Limit: 101}, "Cursor": {Cursor: "c\n"}, "Status": {Status: " "}, "SetID": {SetID: "\t"},
		"DocumentID": {DocumentID: " "}, "Flags[1]": {Flags: []string{"a", ""}}, "query": {Flags: many},
	} {
		_, err := client.Audits.List(t.Context(), params)
		testkit.IsInvalid(t, err, field, "")
		_, err = readAll(client.Audits.All(t.Context(), params))
		testkit.IsInvalid(t, err, field, "")
	}
	for _, cursor := range []string{" ", "a b", " a", "a\t", "a\u00a0b", "\x7f"} {
		_, err := client.Users.List(t.Context(), brellium.UserListParams{Cursor: cursor})
		testkit.IsInvalid(t, err, "Cursor", "")
	}
	_, err := client.Users.List(t.Context(), brellium.UserListParams{Limit: -1})
	require.Error(t, err)
	_, err = client.EmailRecipients.List(t.Context(), brellium.EmailRecipientListParams{Email: "no address"})
	require.Error(t, err)
	assert.Zero(t, mock.GetTotalCallCount())
}

// endlessPages returns pages of n items of the given size, total
// items in all.
type endlessPages struct{ n, size, total int }

func (e endlessPages) RoundTrip(r *http.Request) (*http.Response, error) {
	from := 0
	_, _ = fmt.Sscanf(r.URL.Query().Get("cursor"), "from-%d", &from)
	var b strings.Builder
	b.WriteString(`{"data":[`)
	for i := from; i < from+e.n; i++ {
		if i > from {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"audit_id":"%d","pad":"%s"}`, i, strings.Repeat("x", e.size))
	}
	if next := from + e.n; next < e.total {
		fmt.Fprintf(&b, `],"has_more":true,"next_cursor":"from-%d"}`, next)
	} else {
		b.WriteString(`],"has_more":false}`)
	}
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(b.String())), Request: r}, nil
}

// liveHeap is the size of the live heap.
func liveHeap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

func TestAllUsesConstantMemory(t *testing.T) {
	client, err := brellium.NewClient(testkit.WithTransport(endlessPages{n: 100, size: 100, total: 100_000}),
		brellium.WithAccessToken("token-of-a-test"), brellium.WithoutRateLimiter())
	require.NoError(t, err)
	var peaks [10]int // of each tenth
	n := 0
	for _, err := range client.Audits.All(t.Context(), brellium.AuditListParams{Limit: 100}) {
		if err != nil {
			t.Fatal(err)
		}
		if n%2_000 == 1_050 { // always at the same position in a page
			peaks[n/10_000] = max(peaks[n/10_000], liveHeap())
		}
		n++
	}
	require.Equal(t, 100_000, n)
	const slack = 64 << 10 // for connections of other tests
	assert.LessOrEqual(t, float64(peaks[9]), 1.1*float64(peaks[0])+slack, "%v", peaks)
}

func TestKeptItemDoesNotKeepItsPage(t *testing.T) {
	client, err := brellium.NewClient(testkit.WithTransport(endlessPages{n: 100, size: 2500, total: 5_000}),
		brellium.WithAccessToken("token-of-a-test"), brellium.WithoutRateLimiter())
	require.NoError(t, err)
	before := liveHeap()
	var kept []*brellium.Audit
	n := 0
	for audit, err := range client.Audits.All(t.Context(), brellium.AuditListParams{}) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n%100 == 50 {
			kept = append(kept, audit)
		}
	}
	assert.Less(t, liveHeap()-before, 2<<20, "50 pages are 12 MB")
	for _, audit := range kept {
		assert.Greater(t, len(audit.RawJSON()), 2500)
	}
}

func TestRawJSONOfOneItemDoesNotReachIntoTheNext(t *testing.T) {
	client, mock := resourceMock(t)
	pagesByCursor(t, mock, "/v2/users", map[string]string{"": ` { "data" : [ {"user_id":"1"} , {"user_id":"2"} ] } `})
	page, err := client.Users.List(t.Context(), brellium.UserListParams{})
	require.NoError(t, err)
	_ = append(page.Data[0].RawJSON(), "overwrites what follows"...)
	assert.Equal(t, `{"user_id":"1"}`, string(page.Data[0].RawJSON()))
	assert.Equal(t, `{"user_id":"2"}`, string(page.Data[1].RawJSON()))
}

func TestCursorIsNotPrinted(t *testing.T) {
	client, mock := resourceMock(t)
	page := `{"data":[],"has_more":true,"next_cursor":"c-secret"}`
	pagesByCursor(t, mock, "/v2/audits", map[string]string{"": page, "c-secret": page})
	_, err := readAll(client.Audits.All(t.Context(), brellium.AuditListParams{}))
	for _, text := range []string{err.Error(), fmt.Sprintf("%+v %#v", err, err), errors.Join(err).Error()} {
		assert.NotContains(t, text, "c-secret")
	}
}

// A list of empty pages that never ends would spend the rate limit for nothing.
func TestEmptyPagesWithNewCursorsEnd(t *testing.T) {
	sent := 0
	client := testkit.NewStubClient(t, func(r *http.Request) (*http.Response, error) {
		sent++
		return testkit.Reply(200, nil, `{"data":[],"has_more":true,"next_cursor":"c`+strconv.Itoa(sent)+`"}`), nil
	})
	_, err := brellium.Collect(client.Audits.All(t.Context(), brellium.AuditListParams{}))
	var broken *brellium.PaginationError
	require.ErrorAs(t, err, &broken)
	assert.Equal(t, "100 empty pages in a row", broken.Reason)
	assert.Equal(t, "c99", broken.Cursor, "it can be resumed")
	assert.Equal(t, 100, sent)
	sent = 0
	_, err = client.EmailRecipients.FindByEmail(t.Context(), "a@example.test")
	require.ErrorAs(t, err, &broken)
	assert.Equal(t, 100, sent)

	// 99 of them, then an item, are not that many in a row.
	sent = 0
	client = testkit.NewStubClient(t, func(r *http.Request) (*http.Response, error) {
		sent++
		data := `[]`
		if sent%100 == 0 {
			data = `[{"audit_id":"a"}]`
		}
		return testkit.Reply(200, nil, `{"data":`+data+`,"has_more":`+strconv.FormatBool(sent < 350)+`,"next_cursor":"c`+strconv.Itoa(sent)+`"}`), nil
	})
	audits, err := brellium.Collect(client.Audits.All(t.Context(), brellium.AuditListParams{}))
	require.NoError(t, err)
	assert.Len(t, audits, 3)
}
