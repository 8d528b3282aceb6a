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

const ada = "ada.secret@example.test"

func TestUsersLiveFromInvitationToDeletion(t *testing.T) {
	emu := brelliumtest.New()
	client := testkit.NewClient(t, emu)
	ctx := t.Context()

	created, err := client.Users.Create(ctx, brellium.UserCreateParams{
		Email: ada, Name: "Ada", Metadata: map[string]any{"team": "north", "badge": 12345678901234567}, Attributes: map[string]any{},
	})
	require.NoError(t, err)
	assert.JSONEq(t, `{"email":"ada.secret@example.test","name":"Ada","metadata":{"team":"north","badge":12345678901234567},"attributes":{}}`,
		string(emu.Requests(brelliumtest.OpUserCreate)[0].Body))
	assert.Equal(t, "user", created.Object)
	assert.Equal(t, ada, created.Email)
	assert.Equal(t, "Ada", created.Name)
	assert.False(t, created.CreatedAt.IsZero())
	assert.Equal(t, "12345678901234567", fmt.Sprint(created.Metadata["badge"]), "not rounded")
	assert.Equal(t, 1, emu.Invitations(ada))

	got, err := client.Users.Retrieve(ctx, created.UserID)
	require.NoError(t, err)
	assert.Equal(t, string(created.RawJSON()), string(got.RawJSON()))

	_, err = client.Users.Create(ctx, brellium.UserCreateParams{Email: "bo@example.test"})
	require.NoError(t, err)
	assert.JSONEq(t, `{"email":"bo@example.test"}`, string(emu.Requests(brelliumtest.OpUserCreate)[1].Body), "what is unset is left out")

	page, err := client.Users.List(ctx, brellium.UserListParams{Email: ada, Limit: 5})
	require.NoError(t, err)
	require.Len(t, page.Data, 1)
	assert.Equal(t, created.UserID, page.Data[0].UserID)
	users, err := readAll(client.Users.All(ctx, brellium.UserListParams{Limit: 1}))
	require.NoError(t, err)
	assert.Len(t, users, 2)

	require.NoError(t, client.Users.Delete(ctx, created.UserID))
	_, err = client.Users.Retrieve(ctx, created.UserID)
	assert.ErrorIs(t, err, brellium.ErrNotFound)
	assert.ErrorIs(t, client.Users.Delete(ctx, created.UserID), brellium.ErrNotFound, "a 404 on the first attempt is no success")
}

// MicrosoftDocs/architecture-center#4274, linkedin/brooklin#495
func TestOnlyWhatDidNotRunIsRepeatedAfterAnInvitation(t *testing.T) {
	for name, c := range map[string]struct {
		fault    brelliumtest.Fault
		code     brellium.ErrorCode // none: success
		requests int
		unknown  bool
	}{
		"invitation pending": {brelliumtest.Status(409, "INVITATION_PENDING"), brellium.CodeInvitationPending, 1, false},
		"user exists":        {brelliumtest.Status(409, "USER_EXISTS"), brellium.CodeUserExists, 1, false},
		"invitation failed":  {brelliumtest.InviteFailed(), brellium.CodeInviteFailed, 1, false},
		"bad gateway":        {brelliumtest.Status(502, "BAD_GATEWAY"), brellium.CodeBadGateway, 1, true},
		"rate limited":       {brelliumtest.Status(429, "RATE_LIMITED"), "", 2, false},
		"token revoked":      {brelliumtest.RevokedToken(), "", 2, false},
		"connection refused": {brelliumtest.NeverSent(), "", 1, false}, // the first is not even received
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				emu := brelliumtest.New()
				client := testkit.NewClient(t, emu)
				emu.Inject(brelliumtest.OpUserCreate, c.fault)
				user, err := client.Users.Create(t.Context(), brellium.UserCreateParams{Email: ada})
				assert.Equal(t, c.requests, emu.Count(brelliumtest.OpUserCreate))
				if c.code == "" {
					require.NoError(t, err)
					assert.Equal(t, ada, user.Email)
					assert.Equal(t, 1, emu.Invitations(ada))
					return
				}
				var apiErr *brellium.APIError
				require.ErrorAs(t, err, &apiErr)
				assert.Equal(t, c.code, apiErr.Code)
				assert.Equal(t, c.unknown, brellium.OutcomeUnknown(err))
				assert.Nil(t, user)
			})
		})
	}
}

// aiven/terraform-provider-aiven#2594, zededa/terraform-provider-zedcloud#216
func TestADeletionWhoseAnswerWasLostIsASuccess(t *testing.T) {
	for name, faults := range map[string][]brelliumtest.Fault{
		"dropped after the work": {brelliumtest.DropAfter()},
		"revocation failed":      {brelliumtest.RevokeFailed()},
		"gateway lost it":        {brelliumtest.Status(502, "BAD_GATEWAY").AfterWork()},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				emu := brelliumtest.New()
				client := testkit.NewClient(t, emu)
				user, err := client.Users.Create(t.Context(), brellium.UserCreateParams{Email: ada})
				require.NoError(t, err)
				emu.Inject(brelliumtest.OpUserDelete, faults...)
				require.NoError(t, client.Users.Delete(t.Context(), user.UserID))
				assert.Equal(t, 2, emu.Count(brelliumtest.OpUserDelete))
				assert.Empty(t, emu.Users())
			})
		})
	}
}

// golang/go#10887, oapi-codegen/oapi-codegen#340
func TestAnIDIsEscapedOnce(t *testing.T) {
	for _, base := range []string{"", "/gate/way"} {
		emu := brelliumtest.New(brelliumtest.WithBasePath(base))
		client := testkit.NewClient(t, emu)
		_, err := client.Users.Retrieve(t.Context(), "a/b c%2F")
		require.ErrorIs(t, err, brellium.ErrNotFound)
		requests := emu.Requests(brelliumtest.OpUserRetrieve)
		require.Len(t, requests, 1)
		assert.Equal(t, base+"/v2/users/a%2Fb%20c%252F", requests[0].Path)
		assert.Empty(t, requests[0].RawQuery)
		assert.NotContains(t, err.Error(), "a/b")
	}
}

func TestAnIDThatWouldLeadElsewhereIsRefused(t *testing.T) {
	client, mock := resourceMock(t)
	ctx := t.Context()
	for _, id := range []string{"", " ", "\t\n", ".", ".."} {
		_, err1 := client.Users.Retrieve(ctx, id)
		err2 := client.Users.Delete(ctx, id)
		_, err3 := client.EmailRecipients.Retrieve(ctx, id)
		_, err4 := client.Audits.Retrieve(ctx, id)
		_, err5 := client.Audits.Update(ctx, id, brellium.AuditUpdateParams{})
		_, err6 := client.Audits.BatchUpdate(ctx, brellium.AuditBatchUpdateParams{AuditIDs: []string{"x", id}, Flags: []string{}})
		for i, err := range []error{err1, err2, err3, err4, err5, err6} {
			var invalid *brellium.ValidationError
			require.ErrorAs(t, err, &invalid, id)
			assert.Equal(t, []string{"userID", "userID", "emailRecipientID", "auditID", "auditID", "AuditIDs[1]"}[i], invalid.Field)
		}
	}
	assert.Zero(t, mock.GetTotalCallCount())
}

func TestWhatIsNoEmailIsRefusedByName(t *testing.T) {
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
			var invalid *brellium.ValidationError
			require.ErrorAs(t, err, &invalid, email)
			assert.Equal(t, "Email", invalid.Field)
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

func TestMetadataThatCannotBeSentIsRefused(t *testing.T) {
	client, mock := resourceMock(t)
	_, err := client.Users.Create(t.Context(), brellium.UserCreateParams{Email: ada, Metadata: map[string]any{"secret": make(chan int)}})
	var invalid *brellium.ValidationError
	require.ErrorAs(t, err, &invalid)
	assert.NotContains(t, err.Error(), "secret")
	assert.Zero(t, mock.GetTotalCallCount())
}

// oneUser checks that there is exactly one user, invited exactly once.
func oneUser(t *testing.T, emu *brelliumtest.Emulator, email string) {
	t.Helper()
	require.Len(t, emu.Users(), 1)
	assert.Equal(t, email, emu.Users()[0].Email)
	assert.Equal(t, 1, emu.Users()[0].Invitations)
	assert.Equal(t, 1, emu.Invitations(email))
}

func TestEnsureMakesOneUserAndOneInvitationWhateverHappens(t *testing.T) {
	drop := brelliumtest.DropBefore()
	lost := brelliumtest.DropAfter()
	uninvited := brelliumtest.InviteFailed()
	for name, c := range map[string]struct {
		faults []brelliumtest.Fault
		sends  int
	}{
		"nothing":                                 {nil, 1},
		"dropped before":                          {[]brelliumtest.Fault{drop}, 2},
		"dropped before, twice":                   {[]brelliumtest.Fault{drop, drop}, 3},
		"dropped after":                           {[]brelliumtest.Fault{lost}, 2},
		"dropped after, twice":                    {[]brelliumtest.Fault{lost, lost}, 3},
		"dropped before, then after":              {[]brelliumtest.Fault{drop, lost}, 3},
		"reset after":                             {[]brelliumtest.Fault{lost.AsReset()}, 2},
		"invitation failed":                       {[]brelliumtest.Fault{uninvited}, 2},
		"invitation failed, twice":                {[]brelliumtest.Fault{uninvited, uninvited}, 3},
		"invitation failed, and that answer cut":  {[]brelliumtest.Fault{uninvited.Truncated()}, 2},
		"invitation failed, then dropped after":   {[]brelliumtest.Fault{uninvited, lost}, 3},
		"invitation failed, then dropped before":  {[]brelliumtest.Fault{uninvited, drop}, 3},
		"5xx before the work":                     {[]brelliumtest.Fault{brelliumtest.Status(503, "UNAVAILABLE")}, 2},
		"5xx after the work":                      {[]brelliumtest.Fault{brelliumtest.Status(500, "INTERNAL").AfterWork()}, 2},
		"a gateway's page after the work":         {[]brelliumtest.Fault{brelliumtest.HTML(502).AfterWork()}, 2},
		"a page for the created user":             {[]brelliumtest.Fault{brelliumtest.Respond(200, "text/html", "<html>")}, 2},
		"an empty answer for the created user":    {[]brelliumtest.Fault{brelliumtest.Respond(201, "", "")}, 2},
		"a truncated answer for the created user": {[]brelliumtest.Fault{brelliumtest.OK().Truncated()}, 2},
		"no answer until the attempt has run out": {[]brelliumtest.Fault{brelliumtest.StallHeaders(0)}, 2},
		"rate limited":                            {[]brelliumtest.Fault{brelliumtest.Status(429, "")}, 2},
		"connection refused, three times":         {[]brelliumtest.Fault{brelliumtest.NeverSent().Times(3)}, 1},
		"rate limited, lost, token revoked":       {[]brelliumtest.Fault{brelliumtest.Status(429, ""), lost, brelliumtest.RevokedToken()}, 4},
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

func TestEnsureFindsTheUserWhoExists(t *testing.T) {
	for name, prepare := range map[string]func(*brelliumtest.Emulator){
		"invited":   func(*brelliumtest.Emulator) {},
		"signed in": func(emu *brelliumtest.Emulator) { emu.SignIn(ada) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				emu := brelliumtest.New()
				client := testkit.NewClient(t, emu)
				for i := range 30 { // and others, some with addresses that contain it
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
		})
	}
}

func TestEnsureInvitesTheUserWhoWasKeptWithoutAnInvitation(t *testing.T) {
	emu := brelliumtest.New()
	client := testkit.NewClient(t, emu)
	emu.Inject(brelliumtest.OpUserCreate, brelliumtest.InviteFailed())
	_, err := client.Users.Create(t.Context(), brellium.UserCreateParams{Email: ada})
	require.Error(t, err)
	_, err = client.Users.Ensure(t.Context(), brellium.UserCreateParams{Email: ada})
	require.NoError(t, err)
	oneUser(t, emu, ada)
}

func TestEnsureByManyAtOnceInvitesOnce(t *testing.T) {
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

func TestEnsureGivesUpWithinItsBounds(t *testing.T) {
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
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				emu := brelliumtest.New()
				client := testkit.NewClient(t, emu)
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
		})
	}
}

func TestEnsureLooksForABoundedTime(t *testing.T) {
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
	t.Run("a deadline that leaves no time for the pause", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			emu := brelliumtest.New()
			client := testkit.NewClient(t, emu)
			emu.Inject(brelliumtest.OpUserCreate, brelliumtest.DropAfter())
			ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
			defer cancel()
			start := time.Now()
			_, err := client.Users.Ensure(ctx, brellium.UserCreateParams{Email: ada})
			require.ErrorIs(t, err, context.DeadlineExceeded)
			assert.Zero(t, time.Since(start), "the pause is not begun")
			var conn *brellium.ConnectionError
			require.ErrorAs(t, err, &conn)
			assert.True(t, brellium.OutcomeUnknown(err))
			var interrupted *brellium.InterruptedError
			require.ErrorAs(t, err, &interrupted)
			assert.Equal(t, 1, interrupted.Attempts)
		})
	})
	t.Run("cancelled while it looks", func(t *testing.T) {
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
	t.Run("cancelled in an attempt", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			emu := brelliumtest.New()
			client := testkit.NewClient(t, emu)
			emu.Inject(brelliumtest.OpUserCreate, brelliumtest.StallHeaders(0))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := client.Users.Ensure(ctx, brellium.UserCreateParams{Email: ada})
			require.ErrorIs(t, err, context.DeadlineExceeded)
			assert.True(t, brellium.OutcomeUnknown(err))
			assert.Equal(t, 1, emu.Count(brelliumtest.OpUserCreate))
		})
	})
}

func TestEnsureReturnsTheListsFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		emu := brelliumtest.New()
		client := testkit.NewClient(t, emu)
		_, err := client.Users.Create(t.Context(), brellium.UserCreateParams{Email: ada})
		require.NoError(t, err)
		emu.Inject(brelliumtest.OpUserList, brelliumtest.Status(http.StatusForbidden, "NOT_YOURS"))
		_, err = client.Users.Ensure(t.Context(), brellium.UserCreateParams{Email: ada})
		var apiErr *brellium.APIError
		require.ErrorAs(t, err, &apiErr)
		assert.Equal(t, "users.list", apiErr.Operation)
	})
}
