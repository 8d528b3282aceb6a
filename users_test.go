package brellium_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/jarcoal/httpmock"
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
		Email: ada, Name: "Ada", Metadata: map[string]any{"team": "north", "badge": int64(12345678901234567)}, Attributes: map[string]any{},
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

// textual is a key or a value that makes its own text.
type textual string

func (v textual) MarshalText() ([]byte, error) { return []byte(v), nil }

// own is a value that makes its own JSON.
type own string

func (v *own) MarshalJSON() ([]byte, error) { return []byte(`"` + *v + `"`), nil }

// encoding/json would replace the bytes, so that two ids could become one.
// golang/go#16282, golang/go#58511, margince/margince#442
func TestTextThatIsNotUTF8IsRejected(t *testing.T) {
	client, mock := resourceMock(t)
	ctx := t.Context()
	const bad = "Patient-M\xfcller"
	const badEmail = "m\xfcller@example.test"
	ok := brellium.FileFromBytes("a.pdf", nil)
	upload := func(change func(*brellium.UploadFile)) error {
		file := ok
		change(&file)
		_, err := client.Documents.Upload(ctx, []brellium.UploadFile{ok, file}, brellium.UploadOptions{})
		return err
	}
	create := func(bad brellium.DocumentInput) error {
		_, err := client.Documents.Create(ctx, brellium.DocumentCreateParams{Documents: []brellium.DocumentInput{{Filename: "a.pdf"}, bad}})
		return err
	}
	user := func(p brellium.UserCreateParams) error {
		_, err := client.Users.Create(ctx, p)
		_, err2 := client.Users.Ensure(ctx, p)
		assert.Equal(t, err, err2)
		return err
	}
	recipient := func(p brellium.EmailRecipientCreateParams) error {
		_, err := client.EmailRecipients.Create(ctx, p)
		_, err2 := client.EmailRecipients.Ensure(ctx, p)
		assert.Equal(t, err, err2)
		return err
	}
	audits := func(p brellium.AuditListParams) error {
		_, err := client.Audits.List(ctx, p)
		_, err2 := readAll(client.Audits.All(ctx, p))
		assert.Equal(t, err, err2)
		return err
	}
	documents := func(p brellium.DocumentListParams) error {
		_, err := client.Documents.List(ctx, p)
		_, err2 := readAll(client.Documents.All(ctx, p))
		assert.Equal(t, err, err2)
		return err
	}
	second := func(_ any, err error) error { return err }
	value := own(bad)
	for _, test := range []struct {
		field string
		err   error
	}{
		{"auditID", second(client.Audits.Retrieve(ctx, bad))},
		{"auditID", second(client.Audits.Update(ctx, bad, brellium.AuditUpdateParams{Flags: []string{}}))},
		{"Flags[1]", second(client.Audits.Update(ctx, "a", brellium.AuditUpdateParams{Flags: []string{"a", bad}}))},
		{"AuditIDs[1]", second(client.Audits.BatchUpdate(ctx, brellium.AuditBatchUpdateParams{AuditIDs: []string{"a", bad}, Flags: []string{}}))},
		{"Flags[0]", second(client.Audits.BatchUpdate(ctx, brellium.AuditBatchUpdateParams{AuditIDs: []string{"a"}, Flags: []string{bad}}))},
		{"Status", audits(brellium.AuditListParams{Status: bad})},
		{"SetID", audits(brellium.AuditListParams{SetID: bad})},
		{"DocumentID", audits(brellium.AuditListParams{DocumentID: bad})},
		{"Flags[1]", audits(brellium.AuditListParams{Flags: []string{"a", bad}})},
		{"Cursor", audits(brellium.AuditListParams{Cursor: bad})},

		{"documentID", second(client.Documents.Retrieve(ctx, bad))},
		{"documentID", second(client.Documents.WaitForAudit(ctx, bad))},
		{"ExternalID", documents(brellium.DocumentListParams{ExternalID: bad})},
		{"Cursor", documents(brellium.DocumentListParams{Cursor: bad})},
		{"Documents[1].Filename", create(brellium.DocumentInput{Filename: bad})},
		{"Documents[1].ExternalID", create(brellium.DocumentInput{Filename: "a", ExternalID: bad})},
		{"Documents[1].DocType", create(brellium.DocumentInput{Filename: "a", DocType: bad})},
		{"Documents[1].ExternalMetadata", create(brellium.DocumentInput{Filename: "a", ExternalMetadata: map[string]any{"k": bad}})},
		{"Documents[1].ExternalMetadata", create(brellium.DocumentInput{Filename: "a", ExternalMetadata: map[string]any{bad: 1}})},
		{"files[1].Filename", upload(func(f *brellium.UploadFile) { f.Filename = bad })},
		{"files[1].ExternalID", upload(func(f *brellium.UploadFile) { f.ExternalID = bad })},
		{"files[1].DocType", upload(func(f *brellium.UploadFile) { f.DocType = bad })},
		{"files[1].ExternalMetadata", upload(func(f *brellium.UploadFile) { f.ExternalMetadata = map[string]any{"k": bad} })},
		{"files[1].ExternalMetadata", upload(func(f *brellium.UploadFile) { f.ExternalMetadata = map[string]any{bad: 1} })},
		{"files[1].ExternalMetadata", upload(func(f *brellium.UploadFile) { f.ExternalMetadata = map[string]any{"k": &value} })},

		{"userID", second(client.Users.Retrieve(ctx, bad))},
		{"userID", client.Users.Delete(ctx, bad)},
		{"Email", second(client.Users.List(ctx, brellium.UserListParams{Email: badEmail}))},
		{"Cursor", second(client.Users.List(ctx, brellium.UserListParams{Cursor: bad}))},
		{"Email", user(brellium.UserCreateParams{Email: badEmail})},
		{"Name", user(brellium.UserCreateParams{Email: ada, Name: bad})},
		{"Attributes", user(brellium.UserCreateParams{Email: ada, Attributes: map[string]any{"k": bad}})},

		{"emailRecipientID", second(client.EmailRecipients.Retrieve(ctx, bad))},
		{"Email", second(client.EmailRecipients.FindByEmail(ctx, badEmail))},
		{"Email", second(client.EmailRecipients.List(ctx, brellium.EmailRecipientListParams{Email: badEmail}))},
		{"Cursor", second(client.EmailRecipients.List(ctx, brellium.EmailRecipientListParams{Cursor: bad}))},
		{"Email", recipient(brellium.EmailRecipientCreateParams{Email: badEmail})},
		{"Name", recipient(brellium.EmailRecipientCreateParams{Email: ada, Name: bad})},

		{"body", client.Do(ctx, "POST", "/v2/things", map[string]string{"k": bad}, nil)},
		{"body", client.Do(ctx, "POST", "/v2/things", bad, nil)},
		{"Name", client.Do(ctx, "POST", "/v2/things", &brellium.EmailRecipientCreateParams{Name: bad}, nil)},
	} {
		testkit.IsInvalid(t, test.err, test.field, "Patient")
	}

	// Wherever JSON has text.
	type inner struct{ Text string }
	type outer struct {
		inner
		Number int
	}
	for _, metadata := range []any{
		[]any{1, nil, map[string]any{"a": []string{"fine", bad}}}, [1]string{bad}, map[string][]any{bad: nil}, map[textual]int{bad: 1},
		inner{bad}, &inner{bad}, outer{inner: inner{bad}}, []*outer{nil, {inner: inner{bad}}}, textual(bad), struct{ V []textual }{[]textual{bad}},
		&value, []own{value}, json.RawMessage(`"` + bad + `"`),
	} {
		err := user(brellium.UserCreateParams{Email: ada, Metadata: map[string]any{"key": metadata}})
		testkit.IsInvalid(t, err, "Metadata", "Patient")
	}
	assert.Zero(t, mock.GetTotalCallCount())

	// What JSON does not send, or sends as it is.
	type unsent struct {
		text string
		Text string `json:"-"`
	}
	for _, metadata := range []any{unsent{bad, bad}, []byte(bad), "Müller", "\ufffd", textual("Müller"), json.Number("17"), time.Now(), (*own)(nil), (*textual)(nil)} {
		mock.RegisterResponder("POST", "/v2/users", httpmock.NewStringResponder(201, `{"user_id":"u"}`))
		_, err := client.Users.Create(ctx, brellium.UserCreateParams{Email: ada, Metadata: map[string]any{"key": metadata}})
		require.NoError(t, err)
	}
}

func TestMetadataThatIsNotJSONIsRejected(t *testing.T) {
	client, mock := resourceMock(t)
	_, err := client.Users.Create(t.Context(), brellium.UserCreateParams{Email: ada, Metadata: map[string]any{"secret": make(chan int)}})
	testkit.IsInvalid(t, err, "body", "secret")
	assert.Zero(t, mock.GetTotalCallCount())
}
