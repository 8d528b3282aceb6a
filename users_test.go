package brellium_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
	"github.com/brellium/brellium-go/internal/testkit"
)

func TestUsers(t *testing.T) {
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

// golang/go#10887, oapi-codegen/oapi-codegen#340
func TestIDIsEscapedOnce(t *testing.T) {
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

func TestInvalidIDIsRejected(t *testing.T) {
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
			testkit.IsInvalid(t, err, []string{"userID", "userID", "emailRecipientID", "auditID", "auditID", "AuditIDs[1]"}[i], "")
		}
	}
	assert.Zero(t, mock.GetTotalCallCount())
}

func TestMetadataThatIsNotJSONIsRejected(t *testing.T) {
	client, mock := resourceMock(t)
	_, err := client.Users.Create(t.Context(), brellium.UserCreateParams{Email: ada, Metadata: map[string]any{"secret": make(chan int)}})
	testkit.IsInvalid(t, err, "body", "secret")
	assert.Zero(t, mock.GetTotalCallCount())
}
