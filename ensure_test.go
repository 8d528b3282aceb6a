package brellium_test

import (
	"context"
	"fmt"
	"net/http"
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

func TestInvalidEmailIsRejected(t *testing.T) {
	client, mock := resourceMock(t)
	ctx := t.Context()
	for _, email := range []string{"", " ", "a b@example.test", " a@example.test", "a@example.test\n", "a@exa\x00mple.test", "a@exam\u00a0ple.test",
		"example.test", "@example.test", "a@", "a@\xff.test"} {
		_, err1 := client.Users.Create(ctx, brellium.UserCreateParams{Email: email})
		_, err2 := client.Users.Ensure(ctx, brellium.UserCreateParams{Email: email})
		_, err3 := client.EmailRecipients.Create(ctx, brellium.EmailRecipientCreateParams{Email: email})
		_, err4 := client.EmailRecipients.Ensure(ctx, brellium.EmailRecipientCreateParams{Email: email})
		_, err5 := client.EmailRecipients.FindByEmail(ctx, email)
		for _, err := range []error{err1, err2, err3, err4, err5} {
			testkit.IsInvalid(t, err, "Email", "")
			if len(strings.TrimSpace(email)) > 2 {
				assert.NotContains(t, err.Error(), strings.TrimSpace(email))
			}
		}
	}
	assert.Zero(t, mock.GetTotalCallCount())
	for _, email := range []string{"a@b", "o'brien+tag@example.test", `"a@b"@example.test`, "é@exämple.test"} {
		emu := brelliumtest.New()
		_, err := testkit.NewClient(t, emu).Users.Create(ctx, brellium.UserCreateParams{Email: email})
		assert.NoError(t, err, email)
	}
}

// oneUser checks that there is exactly one user, invited exactly once.
func oneUser(t *testing.T, emu *brelliumtest.Emulator, email string) {
	t.Helper()
	require.Len(t, emu.Users(), 1)
	assert.Equal(t, email, emu.Users()[0].Email)
	assert.Equal(t, 1, emu.Users()[0].Invitations)
	assert.Equal(t, 1, emu.Invitations(email))
}

func TestEnsureCreatesOneUserAndOneInvitation(t *testing.T) {
	drop := brelliumtest.DropBefore()
	lost := brelliumtest.DropAfter()
	uninvited := brelliumtest.InviteFailed()
	for name, c := range map[string]struct {
		faults []brelliumtest.Fault
		sends  int
	}{
		"nothing":                    {nil, 1},
		"dropped before":             {[]brelliumtest.Fault{drop}, 2},
		"dropped before, twice":      {[]brelliumtest.Fault{drop, drop}, 3},
		"dropped after":              {[]brelliumtest.Fault{lost}, 2},
		"dropped after, twice":       {[]brelliumtest.Fault{lost, lost}, 3},
		"dropped before, then after": {[]brelliumtest.Fault{drop, lost}, 3},
		"reset after":                {[]brelliumtest.Fault{lost.AsReset()}, 2},
		"invitation failed":          {[]brelliumtest.Fault{uninvited}, 2},
		"invitation failed, twice":   {[]brelliumtest.Fault{uninvited, uninvited}, 3},
		"invitation failed, and that response truncated": {[]brelliumtest.Fault{uninvited.Truncated()}, 2},
		"invitation failed, then dropped after":          {[]brelliumtest.Fault{uninvited, lost}, 3},
		"invitation failed, then dropped before":         {[]brelliumtest.Fault{uninvited, drop}, 3},
		"5xx before the work":                            {[]brelliumtest.Fault{brelliumtest.Status(503, "UNAVAILABLE")}, 2},
		"5xx after the work":                             {[]brelliumtest.Fault{brelliumtest.Status(500, "INTERNAL").AfterWork()}, 2},
		"a gateway's page after the work":                {[]brelliumtest.Fault{brelliumtest.HTML(502).AfterWork()}, 2},
		"a page for the created user":                    {[]brelliumtest.Fault{brelliumtest.Respond(200, "text/html", "<html>")}, 2},
		"an empty response for the created user":         {[]brelliumtest.Fault{brelliumtest.Respond(201, "", "")}, 2},
		"a truncated response for the created user":      {[]brelliumtest.Fault{brelliumtest.OK().Truncated()}, 2},
		"no response within the attempt timeout":         {[]brelliumtest.Fault{brelliumtest.StallHeaders(0)}, 2},
		"rate limited":                                   {[]brelliumtest.Fault{brelliumtest.Status(429, "")}, 2},
		"connection refused, three times":                {[]brelliumtest.Fault{brelliumtest.NeverSent().Times(3)}, 1},
		"rate limited, lost, token revoked":              {[]brelliumtest.Fault{brelliumtest.Status(429, ""), lost, brelliumtest.RevokedToken()}, 4},
	} {
		for _, lag := range []time.Duration{0, 5 * time.Second, 12 * time.Second} {
			t.Run(fmt.Sprint(name, ", lag ", lag), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					emu := brelliumtest.New(brelliumtest.WithUserListLag(lag))
					client := testkit.NewClient(t, emu)
					emu.Inject(brelliumtest.OpUserCreate, c.faults...)
					user, err := client.Users.Ensure(t.Context(), brellium.UserCreateParams{Email: ada, Name: "Ada"})
					require.NoError(t, err)
					oneUser(t, emu, ada)
					assert.Equal(t, emu.Users()[0].UserID, user.UserID)
					assert.NotEmpty(t, user.RawJSON())
					assert.Equal(t, c.sends, emu.Count(brelliumtest.OpUserCreate))
				})
			})
		}
	}
}

func TestEnsureFindsAnExistingUser(t *testing.T) {
	for name, prepare := range map[string]func(*brelliumtest.Emulator){
		"invited":   func(*brelliumtest.Emulator) {},
		"signed in": func(emu *brelliumtest.Emulator) { emu.SignIn(ada) },
	} {
		testkit.Bubble(t, name, func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
			for i := range 30 { // other users, some with addresses that contain it
				_, err := client.Users.Create(t.Context(), brellium.UserCreateParams{Email: fmt.Sprintf("%d.%s", i, ada)})
				require.NoError(t, err)
			}
			first, err := client.Users.Create(t.Context(), brellium.UserCreateParams{Email: ada, Name: "Ada"})
			require.NoError(t, err)
			prepare(emu)
			user, err := client.Users.Ensure(t.Context(), brellium.UserCreateParams{Email: strings.ToUpper(ada), Name: "Other"})
			require.NoError(t, err)
			assert.Equal(t, first.UserID, user.UserID)
			assert.Equal(t, "Ada", user.Name)
			assert.Equal(t, 1, emu.Invitations(ada))
			assert.Equal(t, 1, emu.Count(brelliumtest.OpUserList))
		})
	}
}

func TestEnsureInvitesAUserWhoseInvitationFailed(t *testing.T) {
	emu := brelliumtest.New()
	client := testkit.NewClient(t, emu)
	emu.Inject(brelliumtest.OpUserCreate, brelliumtest.InviteFailed())
	_, err := client.Users.Create(t.Context(), brellium.UserCreateParams{Email: ada})
	require.Error(t, err)
	_, err = client.Users.Ensure(t.Context(), brellium.UserCreateParams{Email: ada})
	require.NoError(t, err)
	oneUser(t, emu, ada)
}

func TestEnsureReportsWhatItDid(t *testing.T) {
	refused := brelliumtest.Status(400, "INVALID_REQUEST")
	for name, c := range map[string]struct {
		existing bool
		faults   []brelliumtest.Fault
		want     brellium.EnsureOutcome
	}{
		"created":                 {false, nil, brellium.EnsureCreated},
		"created after a 429":     {false, []brelliumtest.Fault{brelliumtest.Status(429, "")}, brellium.EnsureCreated},
		"created, nothing ran":    {false, []brelliumtest.Fault{brelliumtest.DropBefore()}, brellium.EnsureCreated},
		"found":                   {true, nil, brellium.EnsureFound},
		"perhaps created by this": {false, []brelliumtest.Fault{brelliumtest.DropAfter()}, brellium.EnsureFound},
		"reinvited":               {false, []brelliumtest.Fault{brelliumtest.InviteFailed()}, brellium.EnsureReinvited},
		"reinvited, lost":         {false, []brelliumtest.Fault{brelliumtest.InviteFailed(), brelliumtest.DropBefore()}, brellium.EnsureReinvited},
		"failed":                  {false, []brelliumtest.Fault{refused}, ""},
	} {
		testkit.Bubble(t, name, func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
			if c.existing {
				_, err := client.Users.Create(t.Context(), brellium.UserCreateParams{Email: ada})
				require.NoError(t, err)
			}
			emu.Inject(brelliumtest.OpUserCreate, c.faults...)
			got := brellium.EnsureOutcome("of an earlier call")
			_, err := client.Users.Ensure(t.Context(), brellium.UserCreateParams{Email: ada}, brellium.WithEnsureOutcome(&got), brellium.WithHeader("X-A", "b"))
			assert.Equal(t, c.want == "", err != nil)
			assert.Equal(t, c.want, got)
			for _, r := range emu.Requests(brelliumtest.OpUserList) {
				assert.Equal(t, "b", r.Header.Get("X-A"))
			}
		})
	}
	testkit.Bubble(t, "email recipients", func(t *testing.T, _ *brelliumtest.Emulator, client *brellium.Client) {
		var first, second brellium.EnsureOutcome
		for _, got := range []*brellium.EnsureOutcome{&first, &second} {
			_, err := client.EmailRecipients.Ensure(t.Context(), brellium.EmailRecipientCreateParams{Email: ada}, brellium.WithEnsureOutcome(got))
			require.NoError(t, err)
		}
		assert.Equal(t, brellium.EnsureCreated, first)
		assert.Equal(t, brellium.EnsureFound, second)
	})
	client := testkit.NewClient(t, brelliumtest.New())
	_, err := client.Users.Ensure(t.Context(), brellium.UserCreateParams{Email: ada}, brellium.WithEnsureOutcome(nil))
	testkit.IsInvalid(t, err, "WithEnsureOutcome", "")
	got := brellium.EnsureFound
	option := brellium.WithEnsureOutcome(&got)
	testkit.IsInvalid(t, testkit.Retrieve(t.Context(), client, option), "WithEnsureOutcome", "")
	_, err = client.EmailRecipients.FindByEmail(t.Context(), ada, option)
	testkit.IsInvalid(t, err, "WithEnsureOutcome", "")
	_, err = client.OAuth.CreateToken(t.Context(), option)
	testkit.IsInvalid(t, err, "WithEnsureOutcome", "")
}

func TestConcurrentEnsureInvitesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		emu := brelliumtest.New(brelliumtest.WithUserListLag(3 * time.Second))
		client := testkit.NewClient(t, emu)
		emu.Inject(brelliumtest.OpUserCreate, brelliumtest.DropAfter().Times(3), brelliumtest.InviteFailed().Times(2))
		ids := make([]string, 10)
		var wg sync.WaitGroup
		for i := range ids {
			wg.Go(func() {
				user, err := client.Users.Ensure(t.Context(), brellium.UserCreateParams{Email: ada})
				if assert.NoError(t, err) {
					ids[i] = user.UserID
				}
			})
		}
		wg.Wait()
		oneUser(t, emu, ada)
		for _, id := range ids {
			assert.Equal(t, emu.Users()[0].UserID, id)
		}
	})
}

func TestEnsureGivesUp(t *testing.T) {
	for name, c := range map[string]struct {
		fault   brelliumtest.Fault
		sends   int
		took    time.Duration
		unknown bool
		check   func(*testing.T, error)
	}{
		"the invitation always fails": {brelliumtest.InviteFailed().Forever(), 3, 6 * time.Second, false, func(t *testing.T, err error) {
			var apiErr *brellium.APIError
			require.ErrorAs(t, err, &apiErr)
			assert.Equal(t, brellium.CodeInviteFailed, apiErr.Code)
		}},
		"always dropped": {brelliumtest.DropBefore().Forever(), 3, 6 * time.Second, true, func(t *testing.T, err error) {
			var conn *brellium.ConnectionError
			require.ErrorAs(t, err, &conn)
		}},
		"rejected": {brelliumtest.Status(400, "INVALID_REQUEST").Forever(), 1, 0, false, func(t *testing.T, err error) {
			var apiErr *brellium.APIError
			require.ErrorAs(t, err, &apiErr)
			assert.Equal(t, 400, apiErr.StatusCode)
		}},
		"another conflict": {brelliumtest.Status(409, "SOMETHING_ELSE").Forever(), 1, 0, false, func(t *testing.T, err error) {
			assert.ErrorIs(t, err, brellium.ErrConflict)
		}},
		"blocked": {brelliumtest.Blocked().Forever(), 1, 0, false, func(t *testing.T, err error) {
			var blocked *brellium.BlockedError
			require.ErrorAs(t, err, &blocked)
		}},
	} {
		testkit.Bubble(t, name, func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
			emu.Inject(brelliumtest.OpUserCreate, c.fault)
			start := time.Now()
			user, err := client.Users.Ensure(t.Context(), brellium.UserCreateParams{Email: ada})
			require.Error(t, err)
			assert.Nil(t, user)
			assert.Equal(t, c.sends, emu.Count(brelliumtest.OpUserCreate))
			assert.Equal(t, c.took, time.Since(start))
			assert.Equal(t, c.unknown, brellium.OutcomeUnknown(err))
			c.check(t, err)
			assert.NotContains(t, fmt.Sprintf("%v %+v %#v", err, err, err), ada)
		})
	}
}

func TestEnsureLooksForALimitedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		emu := brelliumtest.New(brelliumtest.WithUserListLag(time.Hour))
		client := testkit.NewClient(t, emu)
		_, err := client.Users.Create(t.Context(), brellium.UserCreateParams{Email: ada})
		require.NoError(t, err)
		start := time.Now()
		_, err = client.Users.Ensure(t.Context(), brellium.UserCreateParams{Email: ada})
		require.Error(t, err)
		assert.Equal(t, 15500*time.Millisecond, time.Since(start))
		assert.Equal(t, 6, emu.Count(brelliumtest.OpUserList))
		assert.ErrorIs(t, err, brellium.ErrNotFound)
		assert.ErrorIs(t, err, brellium.ErrConflict)
		var apiErr *brellium.APIError
		require.ErrorAs(t, err, &apiErr)
		assert.Equal(t, brellium.CodeInvitationPending, apiErr.Code)
		assert.Contains(t, err.Error(), apiErr.RequestID)
		assert.NotContains(t, err.Error(), ada)
		assert.False(t, brellium.OutcomeUnknown(err))
	})
}

func TestEnsureEndsWithItsContext(t *testing.T) {
	testkit.Bubble(t, "a deadline that leaves no time for the pause", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpUserCreate, brelliumtest.DropAfter())
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := client.Users.Ensure(ctx, brellium.UserCreateParams{Email: ada})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Zero(t, time.Since(start), "the pause is not started")
		var conn *brellium.ConnectionError
		require.ErrorAs(t, err, &conn)
		assert.True(t, brellium.OutcomeUnknown(err))
		var interrupted *brellium.InterruptedError
		require.ErrorAs(t, err, &interrupted)
		assert.Equal(t, 1, interrupted.Attempts)
	})
	t.Run("canceled while it looks", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			emu := brelliumtest.New(brelliumtest.WithUserListLag(time.Hour))
			client := testkit.NewClient(t, emu)
			_, err := client.Users.Create(t.Context(), brellium.UserCreateParams{Email: ada})
			require.NoError(t, err)
			ctx, cancel := context.WithCancelCause(t.Context())
			reason := fmt.Errorf("shutting down")
			time.AfterFunc(4*time.Second, func() { cancel(reason) })
			start := time.Now()
			_, err = client.Users.Ensure(ctx, brellium.UserCreateParams{Email: ada})
			require.ErrorIs(t, err, context.Canceled)
			assert.ErrorIs(t, err, reason)
			assert.ErrorIs(t, err, brellium.ErrConflict, "the last failure stays reachable")
			assert.Equal(t, 4*time.Second, time.Since(start))
			assert.False(t, brellium.OutcomeUnknown(err), "the API has said that the user exists")
		})
	})
	testkit.Bubble(t, "canceled in an attempt", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpUserCreate, brelliumtest.StallHeaders(0))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := client.Users.Ensure(ctx, brellium.UserCreateParams{Email: ada})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.True(t, brellium.OutcomeUnknown(err))
		assert.Equal(t, 1, emu.Count(brelliumtest.OpUserCreate))
	})
}

func TestEnsureReturnsTheErrorOfTheList(t *testing.T) {
	testkit.Bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		_, err := client.Users.Create(t.Context(), brellium.UserCreateParams{Email: ada})
		require.NoError(t, err)
		emu.Inject(brelliumtest.OpUserList, brelliumtest.Status(http.StatusForbidden, "NOT_YOURS"))
		_, err = client.Users.Ensure(t.Context(), brellium.UserCreateParams{Email: ada})
		var apiErr *brellium.APIError
		require.ErrorAs(t, err, &apiErr)
		assert.Equal(t, "users.list", apiErr.Operation)
	})
}

func TestFindByEmailComparesTheItems(t *testing.T) {
	item := func(id, email string) string { return fmt.Sprintf(`{"email_recipient_id":%q,"email":%q}`, id, email) }
	for name, c := range map[string]struct {
		pages map[string]string
		email string
		found string // "": not found
	}{
		"the filter is ignored, and the list is long": {map[string]string{
			"":   `{"data":[` + item("1", "x"+ada) + `,` + item("2", ada+".x") + `],"next_cursor":"c1"}`,
			"c1": `{"data":[],"next_cursor":"c2"}`,
			"c2": `{"data":[` + item("3", ada) + `]}`,
		}, ada, "3"},
		"in another case": {map[string]string{"": `{"data":[` + item("1", "Ada.Secret@EXAMPLE.test") + `]}`}, ada, "1"},
		"the very same spelling comes first": {map[string]string{
			"":   `{"data":[` + item("1", "ADA.secret@example.test") + `],"next_cursor":"c1"}`,
			"c1": `{"data":[` + item("2", ada) + `]}`,
		}, ada, "2"},
		"letters that only look alike":      {map[string]string{"": `{"data":[` + item("1", "\u017fam@example.test") + `,` + item("2", "\u212aim@example.test") + `]}`}, "kim@example.test", ""},
		"none":                              {map[string]string{"": `{"data":[]}`}, ada, ""},
		"null":                              {map[string]string{"": `{"data":null}`}, ada, ""},
		"found on a page whose link is bad": {map[string]string{"": `{"data":[` + item("1", ada) + `],"has_more":true}`}, ada, "1"},
	} {
		t.Run(name, func(t *testing.T) {
			client, mock := resourceMock(t)
			queries := pagesByCursor(t, mock, "/v2/email_recipients", c.pages)
			got, err := client.EmailRecipients.FindByEmail(t.Context(), c.email)
			assert.Equal(t, c.email, (*queries)[0].Get("email"))
			if c.found == "" {
				require.ErrorIs(t, err, brellium.ErrNotFound)
				assert.Nil(t, got)
				assert.NotContains(t, fmt.Sprintf("%v %+v %#v", err, err, err), c.email)
				var apiErr *brellium.APIError
				assert.NotErrorAs(t, err, &apiErr, "the API did not return a 404")
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.found, got.EmailRecipientID)
			assert.Contains(t, string(got.RawJSON()), `"`+c.found+`"`)
		})
	}
}

func TestFindByEmailReturnsTheErrorOfTheList(t *testing.T) {
	emu := brelliumtest.New()
	client := testkit.NewClient(t, emu)
	emu.Inject(brelliumtest.OpEmailRecipientList, brelliumtest.Blocked())
	_, err := client.EmailRecipients.FindByEmail(t.Context(), ada)
	var blocked *brellium.BlockedError
	require.ErrorAs(t, err, &blocked)
	assert.NotErrorIs(t, err, brellium.ErrNotFound)
}

func TestEnsureCreatesOneEmailRecipient(t *testing.T) {
	for name, faults := range map[string][]brelliumtest.Fault{
		"nothing":                   nil,
		"dropped before":            {brelliumtest.DropBefore()},
		"dropped after":             {brelliumtest.DropAfter()},
		"dropped after, twice":      {brelliumtest.DropAfter().Times(2)},
		"5xx before the work":       {brelliumtest.Status(503, "UNAVAILABLE")},
		"5xx after the work":        {brelliumtest.HTML(504).AfterWork()},
		"a page instead of it":      {brelliumtest.Respond(200, "text/html", "<html>")},
		"rate limited, then lost":   {brelliumtest.Status(429, ""), brelliumtest.DropAfter()},
		"attempt ran out of time":   {brelliumtest.StallHeaders(0)},
		"connection refused, twice": {brelliumtest.NeverSent().Times(2)},
	} {
		for _, lag := range []time.Duration{0, 5 * time.Second, 12 * time.Second} {
			t.Run(fmt.Sprint(name, ", lag ", lag), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					emu := brelliumtest.New(brelliumtest.WithListLag(lag))
					client := testkit.NewClient(t, emu)
					emu.Inject(brelliumtest.OpEmailRecipientCreate, faults...)
					for range 2 { // the second time it exists
						got, err := client.EmailRecipients.Ensure(t.Context(), brellium.EmailRecipientCreateParams{Email: ada})
						require.NoError(t, err)
						require.Len(t, emu.EmailRecipients(), 1)
						assert.Equal(t, emu.EmailRecipients()[0].EmailRecipientID, got.EmailRecipientID)
					}
				})
			})
		}
	}
}

func TestEnsureOfARecipientGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		emu := brelliumtest.New(brelliumtest.WithListLag(time.Minute))
		client := testkit.NewClient(t, emu)
		emu.Inject(brelliumtest.OpEmailRecipientCreate, brelliumtest.DropAfter().Times(3))
		start := time.Now()
		_, err := client.EmailRecipients.Ensure(t.Context(), brellium.EmailRecipientCreateParams{Email: ada})
		assert.True(t, brellium.OutcomeUnknown(err))
		assert.Equal(t, 6*time.Second, time.Since(start))

		_, err = client.EmailRecipients.Ensure(t.Context(), brellium.EmailRecipientCreateParams{Email: ada})
		require.ErrorIs(t, err, brellium.ErrNotFound)
		assert.ErrorIs(t, err, brellium.ErrConflict)
		assert.NotContains(t, err.Error(), ada)
		assert.Len(t, emu.EmailRecipients(), 1)
	})
}

// WithMaxRetries of the call does not create a second recipient.
func TestEnsurePassesOptionsOn(t *testing.T) {
	testkit.Bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpEmailRecipientCreate, brelliumtest.DropAfter())
		var resp brellium.Response
		got, err := client.EmailRecipients.Ensure(t.Context(), brellium.EmailRecipientCreateParams{Email: ada},
			brellium.WithMaxRetries(1), brellium.WithResponseInto(&resp), brellium.WithHeader("X-Trace", "7"))
		require.NoError(t, err)
		assert.Equal(t, emu.EmailRecipients()[0].EmailRecipientID, got.EmailRecipientID)
		assert.Equal(t, 200, resp.StatusCode, "of the last request")
		assert.Len(t, resp.Attempts, 1)
		for _, r := range emu.Requests(brelliumtest.OpEmailRecipientCreate, brelliumtest.OpEmailRecipientList) {
			assert.Equal(t, "7", r.Header.Get("X-Trace"))
		}
	})
}
