package brellium_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
	"github.com/brellium/brellium-go/internal/testkit"
)

func TestEmailRecipientsAreMadeAndFound(t *testing.T) {
	emu := brelliumtest.New()
	client := testkit.NewClient(t, emu)
	ctx := t.Context()
	made, err := client.EmailRecipients.Create(ctx, brellium.EmailRecipientCreateParams{Email: ada, Name: "Ada"})
	require.NoError(t, err)
	assert.JSONEq(t, `{"email":"ada.secret@example.test","name":"Ada"}`, string(emu.Requests(brelliumtest.OpEmailRecipientCreate)[0].Body))
	assert.Equal(t, "email_recipient", made.Object)
	assert.False(t, made.CreatedAt.IsZero())
	_, err = client.EmailRecipients.Create(ctx, brellium.EmailRecipientCreateParams{Email: "bo@example.test"})
	require.NoError(t, err)
	assert.JSONEq(t, `{"email":"bo@example.test"}`, string(emu.Requests(brelliumtest.OpEmailRecipientCreate)[1].Body))

	got, err := client.EmailRecipients.Retrieve(ctx, made.EmailRecipientID)
	require.NoError(t, err)
	assert.Equal(t, "Ada", got.Name)
	page, err := client.EmailRecipients.List(ctx, brellium.EmailRecipientListParams{Email: ada})
	require.NoError(t, err)
	require.Len(t, page.Data, 1)
	assert.Equal(t, made.EmailRecipientID, page.Data[0].EmailRecipientID)
	all, err := readAll(client.EmailRecipients.All(ctx, brellium.EmailRecipientListParams{Limit: 1}))
	require.NoError(t, err)
	assert.Len(t, all, 2)

	_, err = client.EmailRecipients.Create(ctx, brellium.EmailRecipientCreateParams{Email: ada})
	var apiErr *brellium.APIError
	require.ErrorAs(t, err, &apiErr)
	assert.Equal(t, brellium.CodeEmailRecipientExists, apiErr.Code)
}

func TestFindByEmailGoesByWhatTheItemsSay(t *testing.T) {
	item := func(id, email string) string { return fmt.Sprintf(`{"email_recipient_id":%q,"email":%q}`, id, email) }
	for name, c := range map[string]struct {
		pages map[string]string
		email string
		found string // none: not found
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
				assert.NotErrorAs(t, err, &apiErr, "the API has not answered 404")
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.found, got.EmailRecipientID)
			assert.Contains(t, string(got.RawJSON()), `"`+c.found+`"`)
		})
	}
}

func TestFindByEmailFailsLikeTheListDoes(t *testing.T) {
	emu := brelliumtest.New()
	client := testkit.NewClient(t, emu)
	emu.Inject(brelliumtest.OpEmailRecipientList, brelliumtest.Blocked())
	_, err := client.EmailRecipients.FindByEmail(t.Context(), ada)
	var blocked *brellium.BlockedError
	require.ErrorAs(t, err, &blocked)
	assert.NotErrorIs(t, err, brellium.ErrNotFound)
}

func TestEnsureMakesOneEmailRecipientWhateverHappens(t *testing.T) {
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

func TestEnsureOfARecipientGivesUpWithinItsBounds(t *testing.T) {
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

// A recipient's own repeats, asked for on the call, keep to the same rule.
func TestEnsureTakesTheCallsOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		emu := brelliumtest.New()
		client := testkit.NewClient(t, emu)
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
