package brellium_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/jarcoal/httpmock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
	"github.com/brellium/brellium-go/internal/testkit"
)

func TestDocumentsCreateRetrieveAndList(t *testing.T) {
	testkit.Bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		created, err := client.Documents.Create(t.Context(), brellium.DocumentCreateParams{Documents: []brellium.DocumentInput{
			{Filename: "a.pdf", ExternalID: "visit-1", DocType: "note", ExternalMetadata: map[string]any{"big": json.Number("9007199254740993")}},
			{Filename: "b.pdf"},
		}})
		require.NoError(t, err)
		require.Len(t, created.Documents, 2)
		assert.JSONEq(t, `{"documents":[{"filename":"a.pdf","external_id":"visit-1","doc_type":"note","external_metadata":{"big":9007199254740993}},{"filename":"b.pdf"}]}`,
			string(emu.Requests(brelliumtest.OpDocumentCreate)[0].Body))
		first := created.Documents[0]
		assert.NotEmpty(t, first.DocumentID)
		assert.Equal(t, "visit-1", first.ExternalID)
		assert.Equal(t, brellium.DocumentStatusTodo, first.Status)
		assert.True(t, strings.HasPrefix(first.UploadURL.Reveal(), "https://"))
		assert.Contains(t, string(first.RawJSON()), first.UploadURL.Reveal())
		assert.Contains(t, string(created.RawJSON()), string(created.Documents[1].RawJSON()))
		assert.Empty(t, created.Documents[1].ExternalID)

		got, err := client.Documents.Retrieve(t.Context(), first.DocumentID)
		require.NoError(t, err)
		assert.Equal(t, "document", got.Object)
		assert.Equal(t, brellium.Metadata{"big": json.Number("9007199254740993")}, got.ExternalMetadata)
		assert.True(t, *got.NeedsAudit)
		assert.False(t, *got.AuditCreated)

		page, err := client.Documents.List(t.Context(), brellium.DocumentListParams{ExternalID: "visit-1"})
		require.NoError(t, err)
		require.Len(t, page.Data, 1)
		assert.Equal(t, first.DocumentID, page.Data[0].DocumentID)

		var names []string
		for d, err := range client.Documents.All(t.Context(), brellium.DocumentListParams{Limit: 1}) {
			require.NoError(t, err)
			names = append(names, d.Filename)
		}
		assert.Equal(t, []string{"a.pdf", "b.pdf"}, names)

		_, err = client.Documents.Retrieve(t.Context(), "none")
		require.ErrorIs(t, err, brellium.ErrNotFound)
	})
}

func TestDocumentsCreateIsRetriedOnlyWithExternalIDs(t *testing.T) {
	for _, test := range []struct {
		name      string
		ids       []string
		opts      []brellium.CallOption
		posts     int
		documents int
	}{
		{"every document has one", []string{"a", "b"}, nil, 2, 2},
		{"one has none", []string{"a", ""}, nil, 1, 2},
		{"none has one", []string{"", ""}, nil, 1, 2},
		{"none has one, and the call is idempotent", []string{"", ""}, []brellium.CallOption{brellium.WithIdempotent()}, 2, 4},
	} {
		testkit.Bubble(t, test.name, func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
			emu.Inject(brelliumtest.OpDocumentCreate, brelliumtest.DropAfter())
			var params brellium.DocumentCreateParams
			for _, id := range test.ids {
				params.Documents = append(params.Documents, brellium.DocumentInput{Filename: "a.pdf", ExternalID: id})
			}
			_, err := client.Documents.Create(t.Context(), params, test.opts...)
			assert.Equal(t, test.posts, emu.Count(brelliumtest.OpDocumentCreate))
			assert.Len(t, emu.Documents(), test.documents)
			if test.posts == 1 {
				require.Error(t, err)
				assert.True(t, brellium.OutcomeUnknown(err))
			} else {
				require.NoError(t, err)
			}
		})
	}
}

func TestDocumentsCreateRejectsABadBatch(t *testing.T) {
	emu := brelliumtest.New()
	client := testkit.NewClient(t, emu)
	many := make([]brellium.DocumentInput, 101)
	for i := range many {
		many[i].Filename = "a.pdf"
	}
	for field, documents := range map[string][]brellium.DocumentInput{
		"Documents":               nil,
		"Documents[1].Filename":   {{Filename: "a.pdf"}, {Filename: "\n "}},
		"Documents[2].ExternalID": {{Filename: "a.pdf", ExternalID: "x"}, {Filename: "b.pdf"}, {Filename: "c.pdf", ExternalID: "x"}},
		"Documents[0].ExternalID": {{Filename: "a.pdf", ExternalID: " "}},
		"body":                    {{Filename: "a.pdf", ExternalMetadata: map[string]any{"x": make(chan int)}}},
	} {
		_, err := client.Documents.Create(t.Context(), brellium.DocumentCreateParams{Documents: documents})
		testkit.IsInvalid(t, err, field, "")
	}
	_, err := client.Documents.Create(t.Context(), brellium.DocumentCreateParams{Documents: many})
	var invalid *brellium.ValidationError
	require.ErrorAs(t, err, &invalid)
	assert.Contains(t, invalid.Reason, "100")
	assert.Zero(t, emu.Count(brelliumtest.OpAny))
	_, err = client.Documents.Create(t.Context(), brellium.DocumentCreateParams{Documents: many[:100]})
	require.NoError(t, err)
}

// Documents[i] of the result is that of Documents[i] of the request, or there is no
// result: a file must not be sent to the URL of another one's document.
func TestDocumentsCreateReturnsTheDocumentsOfTheRequest(t *testing.T) {
	const a, b, none = `{"document_id":"1","external_id":"a"}`, `{"document_id":"2","external_id":"b"}`, `{"document_id":"3"}`
	const other = "the external_id of a document of the body is not one of the request"
	for body, reason := range map[string]string{
		a + "," + b: "", b + "," + a: "", none + "," + b: "", a + "," + none: "", a: "the body has 1 document instead of 2", a + "," + b + "," + none: "the body has 3 documents instead of 2",
		a + "," + a: other, b + "," + b: other, a + `,{"document_id":"4","external_id":"4471100"}`: other,
	} {
		client, mock := resourceMock(t)
		mock.RegisterResponder(http.MethodPost, "/v2/documents", httpmock.NewStringResponder(201, `{"documents":[`+body+`]}`))
		result, err := client.Documents.Create(t.Context(), brellium.DocumentCreateParams{Documents: []brellium.DocumentInput{{Filename: "a", ExternalID: "a"}, {Filename: "b", ExternalID: "b"}}})
		if reason != "" {
			var decode *brellium.DecodeError
			require.ErrorAs(t, err, &decode, body)
			assert.Equal(t, reason, decode.Reason)
			assert.True(t, brellium.OutcomeUnknown(err))
			continue
		}
		require.NoError(t, err, body)
		for i, id := range []string{"a", "b"} {
			assert.Contains(t, []string{id, ""}, result.Documents[i].ExternalID)
			assert.Contains(t, string(result.Documents[i].RawJSON()), result.Documents[i].DocumentID)
		}
	}
}

func TestDocumentsCreateMatchesFileNamesWhereExternalIDsAreMissing(t *testing.T) {
	const order, one = "the documents of the body are in another order", "the body has one document for two of the request"
	document := func(id, filename, externalID string) string {
		return `{"document_id":"` + id + `","filename":"` + filename + `","external_id":"` + externalID + `"}`
	}
	for name, tc := range map[string]struct {
		documents []string
		ids       string
		reason    string
	}{
		"in order":                     {[]string{document("1", "a.pdf", ""), document("2", "b.pdf", ""), document("3", "c.pdf", "c")}, "1 2 3", ""},
		"in another order":             {[]string{document("2", "b.pdf", ""), document("3", "c.pdf", "c"), document("1", "a.pdf", "")}, "1 2 3", ""},
		"only the name":                {[]string{document("3", "c.pdf", ""), document("2", "b.pdf", ""), document("1", "a.pdf", "")}, "1 2 3", ""},
		"with ids of the server's":     {[]string{document("2", "b.pdf", "y"), document("1", "a.pdf", "x"), document("3", "c.pdf", "c")}, "1 2 3", ""},
		"one other name":               {[]string{document("3", "c.pdf", "c"), document("1", "a.pdf", ""), document("2", "b_.pdf", "")}, "1 2 3", ""},
		"other names, in order":        {[]string{document("1", "a_.pdf", ""), document("2", "b_.pdf", ""), document("3", "c.pdf", "c")}, "1 2 3", ""},
		"other names, not in order":    {[]string{document("3", "c.pdf", "c"), document("2", "b_.pdf", ""), document("1", "a_.pdf", "")}, "", order},
		"no names":                     {[]string{document("1", "", ""), document("2", "", ""), document("3", "", "")}, "1 2 3", ""},
		"one document for two of them": {[]string{document("1", "a.pdf", ""), document("1", "b.pdf", ""), document("3", "c.pdf", "c")}, "", one},
	} {
		client, mock := resourceMock(t)
		mock.RegisterResponder(http.MethodPost, "/v2/documents", httpmock.NewStringResponder(201, `{"documents":[`+strings.Join(tc.documents, ",")+`]}`))
		result, err := client.Documents.Create(t.Context(), brellium.DocumentCreateParams{Documents: []brellium.DocumentInput{{Filename: "a.pdf"}, {Filename: "b.pdf"}, {Filename: "c.pdf", ExternalID: "c"}}})
		if tc.reason != "" {
			var decode *brellium.DecodeError
			require.ErrorAs(t, err, &decode, name)
			assert.Equal(t, tc.reason, decode.Reason, name)
			continue
		}
		require.NoError(t, err, name)
		var ids []string
		for i := range result.Documents {
			ids = append(ids, result.Documents[i].DocumentID)
		}
		assert.Equal(t, tc.ids, strings.Join(ids, " "), name)
	}
}

func TestDocumentsCreateResponseWithoutDocumentsIsADecodeError(t *testing.T) {
	for _, body := range []string{`{}`, `{"documents":[]}`, `{"documents":null}`, `{"documents":{}}`, `[]`} {
		testkit.Bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
			emu.Inject(brelliumtest.OpDocumentCreate, brelliumtest.Respond(201, "application/json", body))
			_, err := client.Documents.Create(t.Context(), brellium.DocumentCreateParams{Documents: []brellium.DocumentInput{{Filename: "a.pdf"}}})
			var unusable *brellium.DecodeError
			require.ErrorAs(t, err, &unusable, body)
			assert.True(t, brellium.OutcomeUnknown(err))
		})
	}
}

func TestUploadURLIsHiddenHoweverItIsPrinted(t *testing.T) {
	const address = "https://storage.example.com/a?X-Signature=5ecre7"
	var d brellium.Document
	require.NoError(t, json.Unmarshal([]byte(`{"document_id":"d1","filename":"a.pdf","upload_url":"`+address+`"}`), &d))
	assert.Equal(t, address, d.UploadURL.Reveal())
	assert.False(t, d.UploadURL.IsZero())

	result := brellium.DocumentCreateResult{Documents: []brellium.Document{d}}
	for _, v := range []any{d.UploadURL, &d.UploadURL, d, &d, result, &result, []brellium.Document{d}, map[string]any{"x": d.UploadURL}, struct{ U *brellium.UploadURL }{&d.UploadURL}} {
		var out bytes.Buffer
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%10.3s"} {
			_, _ = fmt.Fprintf(&out, verb+"\n", v)
		}
		encoded, err := json.Marshal(v)
		require.NoError(t, err)
		out.Write(encoded)
		slog.New(slog.NewTextHandler(&out, nil)).Info("x", "v", v)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "v", v)
		text := strings.ToLower(out.String())
		for _, part := range []string{"5ecre7", "storage.example", fmt.Sprintf("%x", "5ecre7")} {
			assert.NotContains(t, text, part, "%T", v)
		}
	}
	encoded, err := json.Marshal(d)
	require.NoError(t, err)
	assert.Contains(t, string(encoded), `"upload_url":"REDACTED"`)

	for _, none := range []string{`{"upload_url":null}`, `{}`, `{"upload_url":""}`} {
		var d brellium.Document
		require.NoError(t, json.Unmarshal([]byte(none), &d))
		assert.True(t, d.UploadURL.IsZero())
		assert.Empty(t, d.UploadURL.Reveal())
		assert.Empty(t, d.UploadURL.String())
		encoded, err := json.Marshal(d)
		require.NoError(t, err)
		assert.Contains(t, string(encoded), `"upload_url":null`)
	}
	assert.Error(t, json.Unmarshal([]byte(`{"upload_url":7}`), &d))
}
