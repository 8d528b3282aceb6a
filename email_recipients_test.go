package brellium_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
	"github.com/brellium/brellium-go/internal/testkit"
)

func TestEmailRecipients(t *testing.T) {
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
