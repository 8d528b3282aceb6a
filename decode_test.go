package brellium_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jarcoal/httpmock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
	"github.com/brellium/brellium-go/internal/testkit"
)

// auditFrom retrieves an audit whose response is resp.
func auditFrom(t *testing.T, resp *http.Response) (*brellium.Audit, error) {
	t.Helper()
	client, mock := resourceMock(t)
	mock.RegisterResponder(http.MethodGet, "/v2/audits/x", httpmock.ResponderFromResponse(resp))
	audit, err := client.Audits.Retrieve(t.Context(), "x")
	assert.Equal(t, 1, mock.GetTotalCallCount())
	return audit, err
}

// okJSON is a response with status 200 and no Content-Type.
func okJSON(body string) *http.Response { return httpmock.NewStringResponse(200, body) }

// ory/sdk#482
func TestUnknownStatusIsKept(t *testing.T) {
	client, mock := resourceMock(t)
	pagesByCursor(t, mock, "/v2/audits", map[string]string{"": `{"data":[
		{"audit_id":"1","status":"complete","responses":[{"answer":"Maybe"}]},
		{"audit_id":"2","status":"awaiting_second_review"},
		{"audit_id":"3","status":"todo"}]}`})
	page, err := client.Audits.List(t.Context(), brellium.AuditListParams{})
	require.NoError(t, err)
	require.Len(t, page.Data, 3)
	assert.Equal(t, brellium.AuditStatusComplete, page.Data[0].Status)
	assert.Equal(t, brellium.AuditAnswer("Maybe"), page.Data[0].Responses[0].Answer)
	assert.Equal(t, brellium.AuditStatus("awaiting_second_review"), page.Data[1].Status)
	assert.Equal(t, brellium.AuditStatusTodo, page.Data[2].Status)
}

// digitalocean/godo#608, googleapis/google-api-go-client#195
func TestDeleteWithoutABodyIsASuccess(t *testing.T) {
	for _, contentType := range []string{"", "application/json"} {
		client, mock := resourceMock(t)
		mock.RegisterResponder(http.MethodDelete, "/v2/users/u", func(*http.Request) (*http.Response, error) {
			resp := httpmock.NewStringResponse(204, "")
			if contentType != "" {
				resp.Header.Set("Content-Type", contentType)
			}
			resp.Header.Set("RateLimit-Limit", "100")
			resp.Header.Set("RateLimit-Remaining", "41")
			return resp, nil
		})
		var resp brellium.Response
		require.NoError(t, client.Users.Delete(t.Context(), "u", brellium.WithResponseInto(&resp)))
		assert.Equal(t, 1, mock.GetTotalCallCount())
		assert.Equal(t, 41, resp.RateLimit.Remaining)
		assert.Equal(t, 41, client.RateLimit().Remaining)
		assert.Equal(t, 204, resp.StatusCode)
	}
}

// tailscale/tailscale-client-go#15, signalsciences/go-sigsci#66
func TestBlankNullOrAbsentTimeFailsNoPage(t *testing.T) {
	client, mock := resourceMock(t)
	pagesByCursor(t, mock, "/v2/audits", map[string]string{"": `{"data":[
		{"audit_id":"1","timestamp":""},{"audit_id":"2","timestamp":null},{"audit_id":"3"},
		{"audit_id":"4","timestamp":"2025-03-04T05:06:07.123456Z"}]}`})
	page, err := client.Audits.List(t.Context(), brellium.AuditListParams{})
	require.NoError(t, err)
	require.Len(t, page.Data, 4)
	for _, a := range page.Data[:3] {
		assert.True(t, a.Timestamp.IsZero())
	}
	assert.True(t, page.Data[3].Timestamp.Equal(time.Date(2025, 3, 4, 5, 6, 7, 123456000, time.UTC)))
}

func TestTimeFormats(t *testing.T) {
	utc := func(h, m, s, ns int) time.Time { return time.Date(2025, 3, 4, h, m, s, ns, time.UTC) }
	for text, want := range map[string]time.Time{
		`"2025-03-04T05:06:07Z"`:                utc(5, 6, 7, 0),
		`"2025-03-04T05:06:07.000000001Z"`:      utc(5, 6, 7, 1),
		`"2025-03-04T05:06:07.5+02:00"`:         utc(3, 6, 7, 5e8),
		`"2025-03-04T05:06:07-05:30"`:           utc(10, 36, 7, 0),
		`" 2025-03-04T05:06:07Z "`:              utc(5, 6, 7, 0),
		`"2025-03-04T05:06:07\u005a"`:           utc(5, 6, 7, 0),
		`"2025-03-04T05:06:07+24:00"`:           {},
		`"2025-03-04T05:06:07-23:60"`:           {},
		`"2025-03-04"`:                          {},
		`"2025-13-04T05:06:07Z"`:                {},
		`"N/A"`:                                 {},
		`"   "`:                                 {},
		`1741064767`:                            {},
		`{"seconds":1}`:                         {},
		`["2025-03-04T05:06:07Z"]`:              {},
		`true`:                                  {},
		`"2025-03-04T05:06:07Z\n<not a time>"`:  {},
		`"\""`:                                  {},
		`"2025-03-04T05:06:07.123456789+14:00"`: time.Date(2025, 3, 3, 15, 6, 7, 123456789, time.UTC),
	} {
		got := brellium.Time{Time: time.Unix(1, 0)} // must be overwritten
		require.NoError(t, json.Unmarshal([]byte(text), &got), text)
		assert.True(t, got.Equal(want), "%s: %s", text, got)
	}
	for want, at := range map[string]brellium.Time{
		`null`: {}, `"2025-03-04T05:06:07.5Z"`: {Time: utc(5, 6, 7, 5e8)},
	} {
		text, err := json.Marshal(at)
		require.NoError(t, err)
		assert.Equal(t, want, string(text))
	}
}

// coinbase/mesh-sdk-go#62, goccy/go-json#7
func TestNullAbsentAndNewFieldsAreNoError(t *testing.T) {
	const body = `{"audit_id":"x","flags":null,"people":null,"score":null,"reviewed_by":null,"brand_new":{"a":[1]}}`
	audit, err := auditFrom(t, okJSON(body))
	require.NoError(t, err)
	assert.Equal(t, "x", audit.AuditID)
	for range audit.Flags {
		t.Error("no flag was sent")
	}
	for range audit.Responses {
		t.Error("no response was sent")
	}
	assert.Nil(t, audit.Score)
	assert.Equal(t, body, string(audit.RawJSON()))
	var extra struct {
		BrandNew struct{ A []int } `json:"brand_new"`
	}
	require.NoError(t, json.Unmarshal(audit.RawJSON(), &extra))
	assert.Equal(t, []int{1}, extra.BrandNew.A, "what is unknown is reachable")

	client, mock := resourceMock(t)
	pagesByCursor(t, mock, "/v2/audits", map[string]string{"": `{"data":null}`})
	got, err := client.Audits.List(t.Context(), brellium.AuditListParams{})
	require.NoError(t, err)
	assert.Empty(t, got.Data)
	assert.False(t, got.HasMore)
}

func TestEachItemOfAListHasItsOwnRawJSON(t *testing.T) {
	items := []string{`{"user_id":"1","new":"]}"}`, `{ "user_id" : "2\\\"", "new" : {"data":[{}]} }`, `{"user_id":"3"}`}
	for _, form := range []string{
		`{"object":"list","data":[%s],"has_more":false}`,
		" {\"first\":\"\\\"data\\\":[\",\n\t\"data\" : [ %s\r\n] } ",
		`{"Data":[%s]}`, // encoding/json accepts it as data
		`{"d\u0061ta":[%s]}`,
	} {
		client, mock := resourceMock(t)
		body := fmt.Sprintf(form, strings.Join(items, ","))
		pagesByCursor(t, mock, "/v2/users", map[string]string{"": body})
		page, err := client.Users.List(t.Context(), brellium.UserListParams{})
		require.NoError(t, err, form)
		require.Len(t, page.Data, len(items), form)
		for i, item := range items {
			assert.Equal(t, item, string(page.Data[i].RawJSON()), form)
		}
		assert.Equal(t, body, string(page.RawJSON()))
	}
	assert.Nil(t, new(brellium.User).RawJSON())
}

func TestJSONMayBeWrapped(t *testing.T) {
	const body = `{"audit_id":"x"}`
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, err := io.WriteString(z, body)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	for name, c := range map[string]struct{ contentType, encoding, body string }{
		"a byte-order mark": {"application/json", "", "\xef\xbb\xbf" + body},
		"gzip":              {"application/json", "gzip", zipped.String()},
		"a charset":         {"application/json; charset=utf-8", "", body},
		"odd case":          {"Application/JSON;Charset=\"UTF-8\"", "", body},
		"a vendor's type":   {"application/vnd.brellium.v2+json", "", body},
		"no type":           {"", "", body},
		"a wrong type":      {"text/html", "", body},
		"spaces around":     {"application/json", "", " \r\n" + body + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			resp := okJSON(c.body)
			resp.Header = http.Header{}
			if c.contentType != "" {
				resp.Header.Set("Content-Type", c.contentType)
			}
			if c.encoding != "" {
				resp.Header.Set("Content-Encoding", c.encoding)
			}
			audit, err := auditFrom(t, resp)
			require.NoError(t, err)
			assert.Equal(t, "x", audit.AuditID)
			assert.True(t, json.Valid(audit.RawJSON()))
		})
	}
}

func TestUnusableSuccessIsADecodeErrorThatQuotesNothing(t *testing.T) {
	const secret = "Casey Example"
	for name, c := range map[string]struct{ body, reason string }{
		"empty":                   {"", "the body is empty"},
		"blank":                   {" \r\n", "the body is empty"},
		"only a byte-order mark":  {"\xef\xbb\xbf", "the body is empty"},
		"null":                    {"null", "the body is null"},
		"a page":                  {"<!DOCTYPE html><title>" + secret + "</title>", "the body is HTML instead of JSON"},
		"a page after blanks":     {"\n\n <html>" + secret, "the body is HTML instead of JSON"},
		"text":                    {secret, "the body is not valid JSON"},
		"cut off":                 {`{"audit_id":"` + secret, "the body is not valid JSON"},
		"something after it":      {`{"audit_id":"x"} ` + secret, "the body is not valid JSON"},
		"a list":                  {`["` + secret + `"]`, "the body is JSON of an unexpected type"},
		"a string":                {`"` + secret + `"`, "the body is JSON of an unexpected type"},
		"a number":                {`41`, "the body is JSON of an unexpected type"},
		"an id that is an object": {`{"audit_id":{"4471100":1}}`, "the audit_id of the body is an object instead of text"},
		"another resource":        {`{"audit":{"id":4471100},"4471100":1,"Casey Example":2}`, "the body has no audit_id; it has audit and 2 other keys"},
	} {
		t.Run(name, func(t *testing.T) {
			resp := okJSON(c.body)
			resp.Header.Set("X-Request-Id", "req_17")
			audit, err := auditFrom(t, resp)
			assert.Nil(t, audit)
			var decode *brellium.DecodeError
			require.ErrorAs(t, err, &decode)
			assert.Equal(t, &brellium.DecodeError{Operation: "audits.retrieve", StatusCode: 200, RequestID: "req_17", Reason: c.reason,
				Header: http.Header{"X-Request-Id": {"req_17"}}, Body: []byte(c.body)}, decode)
			assert.False(t, brellium.OutcomeUnknown(err), "a read")
			encoded, jsonErr := json.Marshal(err)
			require.NoError(t, jsonErr)
			for _, text := range []string{err.Error(), fmt.Sprintf("%+v %#v", err, err), string(encoded)} {
				assert.NotContains(t, text, "Casey")
				assert.NotContains(t, text, "4471100")
			}
		})
	}
}

func TestUnusableListIsADecodeError(t *testing.T) {
	for body, reason := range map[string]string{
		`[]`:             "the body is JSON of an unexpected type",
		`{"data":"x"}`:   "the field data is text instead of a list",
		`{"data":7}`:     "the field data is a number instead of a list",
		`{"data":false}`: "the field data is a boolean instead of a list",
		``:               "the body is empty",
		`<html>`:         "the body is HTML instead of JSON",
	} {
		client, mock := resourceMock(t)
		pagesByCursor(t, mock, "/v2/users", map[string]string{"": body})
		page, err := client.Users.List(t.Context(), brellium.UserListParams{})
		assert.Nil(t, page)
		var decode *brellium.DecodeError
		require.ErrorAs(t, err, &decode, body)
		assert.Equal(t, reason, decode.Reason, body)
	}
}

func TestWriteWithAnUnusableResponseMayHaveRun(t *testing.T) {
	emu := brelliumtest.New()
	client := testkit.NewClient(t, emu)
	emu.Inject(brelliumtest.OpUserCreate, brelliumtest.Respond(201, "text/html", "<html>"))
	_, err := client.Users.Create(t.Context(), brellium.UserCreateParams{Email: ada})
	var decode *brellium.DecodeError
	require.ErrorAs(t, err, &decode)
	assert.True(t, brellium.OutcomeUnknown(err))
	assert.Len(t, emu.Users(), 1)
}

func TestNumbersInMetadataAreNotRounded(t *testing.T) {
	client, mock := resourceMock(t)
	mock.RegisterResponder(http.MethodGet, "/v2/users/u", httpmock.NewStringResponder(200,
		`{"user_id":"u","metadata":{"id":12345678901234567890,"rate":0.1000,"deep":[{"n":1e400}],"none":null},"attributes":null}`))
	user, err := client.Users.Retrieve(t.Context(), "u")
	require.NoError(t, err)
	assert.Equal(t, brellium.Metadata{
		"id": json.Number("12345678901234567890"), "rate": json.Number("0.1000"),
		"deep": []any{map[string]any{"n": json.Number("1e400")}}, "none": nil,
	}, user.Metadata)
	assert.Nil(t, user.Attributes)
	again, err := json.Marshal(user.Metadata)
	require.NoError(t, err)
	assert.Contains(t, string(again), "12345678901234567890")
}

// The raw bytes may contain more than the fields.
func TestPrintingAResourceDoesNotPrintItsRawJSON(t *testing.T) {
	audit, err := auditFrom(t, okJSON(`{"audit_id":"x","not_a_field":"4471100"}`))
	require.NoError(t, err)
	encoded, err := json.Marshal(audit)
	require.NoError(t, err)
	for _, text := range []string{fmt.Sprintf("%v %+v %#v", *audit, *audit, *audit), string(encoded)} {
		assert.Contains(t, text, "x")
		assert.NotContains(t, text, "4471100")
		assert.NotContains(t, text, fmt.Sprint([]byte("4471100")))
	}
}

// stmcginnis/gofish#409, googleapis/google-api-go-client#39, google/go-github#3996
func TestFieldsOfAnotherKindAreToleratedAndTheRestIsKept(t *testing.T) {
	whole := func(field string) string {
		return `{"audit_id":"2","status":"complete","flags":["f"],"people":[{"key":"k","order":1,"value":"v"}],` + field + `}`
	}
	score := func(f float64) *float64 { return &f }
	for field, change := range map[string]func(a *brellium.Audit){
		`"score":"87.5"`:                         func(a *brellium.Audit) { a.Score = score(87.5) },
		`"score":" 12 "`:                         func(a *brellium.Audit) { a.Score = score(12) },
		`"score":"high"`:                         nil,
		`"score":""`:                             nil,
		`"score":"null"`:                         nil,
		`"score":true`:                           nil,
		`"score":1e999`:                          nil,
		`"score":{"value":1}`:                    nil,
		`"people":[{"order":1.0}]`:               func(a *brellium.Audit) { a.People = []brellium.AuditItem{{Order: 1}} },
		`"people":[{"order":"3","key":"x"}]`:     func(a *brellium.Audit) { a.People = []brellium.AuditItem{{Order: 3, Key: "x"}} },
		`"people":[{"order":1.5,"key":"x"}]`:     func(a *brellium.Audit) { a.People = []brellium.AuditItem{{Key: "x"}} },
		`"people":[{"order":1e30,"key":"x"}]`:    func(a *brellium.Audit) { a.People = []brellium.AuditItem{{Key: "x"}} },
		`"people":[{"value":12.50}]`:             func(a *brellium.Audit) { a.People = []brellium.AuditItem{{Value: "12.50"}} },
		`"people":[{"value":true}]`:              func(a *brellium.Audit) { a.People = []brellium.AuditItem{{Value: "true"}} },
		`"people":[{"value":["a"],"key":"x"}]`:   func(a *brellium.Audit) { a.People = []brellium.AuditItem{{Key: "x"}} },
		`"people":{"KEY":"x"}`:                   func(a *brellium.Audit) { a.People = []brellium.AuditItem{{Key: "x"}} },
		`"people":{"provider":{"key":"x"}}`:      func(a *brellium.Audit) { a.People = nil },
		`"people":[{"key":"x"},7]`:               func(a *brellium.Audit) { a.People = nil },
		`"flags":"Failed"`:                       func(a *brellium.Audit) { a.Flags = []string{"Failed"} },
		`"flags":[1,"b"]`:                        func(a *brellium.Audit) { a.Flags = []string{"1", "b"} },
		`"flags":[{"name":"Failed"},"b"]`:        func(a *brellium.Audit) { a.Flags = nil },
		`"documents":[{"document_id":"d"}]`:      nil,
		`"reviewed_by":{"email":"a@b"}`:          nil,
		`"reviewed_by":7`:                        func(a *brellium.Audit) { a.ReviewedBy = "7" },
		`"display_info":{"a":1}`:                 nil,
		`"set_id":17,"timestamp":1741064767`:     func(a *brellium.Audit) { a.SetID = "17" },
		`"\u0073et_id":17,"new":{"a":[1,"}\""]}`: func(a *brellium.Audit) { a.SetID = "17" },
		`"set_id":17,"set_id":{}`:                nil,
	} {
		client, mock := resourceMock(t)
		pagesByCursor(t, mock, "/v2/audits", map[string]string{"": `{"data":[{"audit_id":"1","flags":[]},` + whole(field) + `,{"audit_id":"3"}],"has_more":true,"next_cursor":"c"}`})
		page, err := client.Audits.List(t.Context(), brellium.AuditListParams{})
		require.NoError(t, err, field)
		require.Len(t, page.Data, 3, field)
		assert.Equal(t, "c", page.NextCursor)
		want := brellium.Audit{AuditID: "2", Status: "complete", Flags: []string{"f"}, People: []brellium.AuditItem{{Key: "k", Order: 1, Value: "v"}}}
		if change != nil {
			change(&want)
		}
		assert.EqualExportedValues(t, want, page.Data[1], field)
		assert.Equal(t, whole(field), string(page.Data[1].RawJSON()))
		assert.Equal(t, "1", page.Data[0].AuditID)
		assert.Equal(t, "3", page.Data[2].AuditID)
	}
	client, mock := resourceMock(t)
	mock.RegisterResponder(http.MethodGet, "/v2/documents/d", httpmock.NewStringResponder(200, `{"document_id":"d","external_metadata":"x",
		"upload_url":["https://storage.test/x"],"needs_audit":"TRUE","audit_created":1,"filename":null}`))
	document, err := client.Documents.Retrieve(t.Context(), "d")
	require.NoError(t, err)
	yes := true
	assert.EqualExportedValues(t, brellium.Document{DocumentID: "d", NeedsAudit: &yes, AuditCreated: &yes}, *document)
}

func TestStrictDecodingNamesTheFieldAndTheKinds(t *testing.T) {
	client, mock := resourceMock(t, brellium.WithStrictDecoding())
	loose, looseMock := resourceMock(t)
	derived, err := loose.With(brellium.WithStrictDecoding())
	require.NoError(t, err)
	derived, err = derived.With(brellium.WithMaxRetries(1)) // which keeps it
	require.NoError(t, err)
	for field, reason := range map[string]string{
		`"score":"87.5"`:                    "score is text instead of a number",
		`"score":1e999`:                     "score has an unexpected form",
		`"people":[{"order":1.0}]`:          "people.order is a number instead of an integer",
		`"people":[{"order":"1"}]`:          "people.order is text instead of an integer",
		`"people":[{"value":1}]`:            "people.value is a number instead of text",
		`"people":{"key":"x"}`:              "people is an object instead of a list",
		`"people":[7]`:                      "people has an element of another kind",
		`"flags":[true]`:                    "flags is a boolean instead of text",
		`"documents":[{"document_id":"d"}]`: "documents has an element of another kind",
		`"reviewed_by":{"4471100":"a@b"}`:   "reviewed_by is an object instead of text",
		`"timestamp":"today"`:               "timestamp has an unexpected form",
		`"timestamp":"","new":1,"score":1`:  "",
		`"flags":null,"score":null`:         "",
	} {
		audit := `{"audit_id":"x",` + field + `}`
		for _, m := range []*httpmock.MockTransport{mock, looseMock} {
			m.RegisterResponder(http.MethodGet, "/v2/audits/x", httpmock.NewStringResponder(200, audit))
			m.RegisterResponder(http.MethodGet, "/v2/audits", httpmock.NewStringResponder(200, `{"data":[`+audit+`]}`))
		}
		_, err1 := client.Audits.Retrieve(t.Context(), "x")
		_, err2 := derived.Audits.Retrieve(t.Context(), "x")
		page, err3 := client.Audits.List(t.Context(), brellium.AuditListParams{})
		for err, want := range map[error]string{err1: "the field " + reason, err2: "the field " + reason, err3: "the field data." + reason} {
			var decode *brellium.DecodeError
			if reason == "" {
				require.NoError(t, err, field)
			} else {
				require.ErrorAs(t, err, &decode, field)
				assert.Equal(t, want, decode.Reason)
				assert.Nil(t, page)
			}
		}
		_, err := loose.Audits.Retrieve(t.Context(), "x")
		require.NoError(t, err, field)
	}
	for body, reason := range map[string]string{
		`{"data":[],"has_more":"true"}`: "the field has_more is text instead of a boolean",
		`{"data":{"audit_id":"x"}}`:     "the field data is an object instead of a list",
	} {
		mock.RegisterResponder(http.MethodGet, "/v2/audits", httpmock.NewStringResponder(200, body))
		_, err := client.Audits.List(t.Context(), brellium.AuditListParams{})
		var decode *brellium.DecodeError
		require.ErrorAs(t, err, &decode)
		assert.Equal(t, reason, decode.Reason)
	}
}

// What decoding leaves empty is a warning, once for each field of a client.
func TestAFieldThatIsLeftEmptyIsLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	client, mock := resourceMock(t, brellium.WithLogger(testkit.JSONLogger(&log, slog.LevelWarn)))
	for _, body := range []string{
		`{"audit_id":"x","score":"12"}`, `{"audit_id":"x","score":{"4471100":1}}`, `{"audit_id":"x","score":{"4471100":2}}`, `{"audit_id":"x","flags":{}}`,
	} {
		mock.RegisterResponder(http.MethodGet, "/v2/audits/x", httpmock.NewStringResponder(200, body))
		_, err := client.Audits.Retrieve(t.Context(), "x")
		require.NoError(t, err)
	}
	assert.NotContains(t, log.String(), "4471100")
	var reasons []any
	for _, record := range testkit.Records(t, &log) {
		reasons = append(reasons, record["reason"])
	}
	assert.Equal(t, []any{"decoded in part: the field score is an object instead of a number", "decoded in part: the field flags is an object instead of a list"}, reasons)
}

// One warning for each response at most, however many of its items are odd, and none
// for what was reported before.
func TestTheFieldsThatAPageLeavesEmptyAreOneWarning(t *testing.T) {
	var log bytes.Buffer
	client, mock := resourceMock(t, brellium.WithLogger(testkit.JSONLogger(&log, slog.LevelWarn)))
	const odd = `{"audit_id":"1","score":"high"},{"audit_id":"2","score":"high","flags":{}},{"audit_id":"3","score":"low","people":[7],"status":[]}`
	pagesByCursor(t, mock, "/v2/audits", map[string]string{
		"":  `{"data":[` + odd + `],"next_cursor":"b"}`,
		"b": `{"data":[` + strings.ReplaceAll(odd, `"audit_id":"`, `"audit_id":"b`) + `],"next_cursor":"c"}`,
		"c": `{"data":[{"audit_id":"4","score":"high","reviewed_by":{}}],"has_more":false}`,
	})
	audits, err := brellium.Collect(client.Audits.All(t.Context(), brellium.AuditListParams{}))
	require.NoError(t, err)
	assert.Len(t, audits, 7)
	var reasons []any
	for _, record := range testkit.Records(t, &log) {
		reasons = append(reasons, record["reason"])
	}
	assert.Equal(t, []any{
		"decoded in part: the field data.score is text instead of a number; the field data.flags is an object instead of a list; " +
			"the field data.people has an element of another kind; the field data.status is a list instead of text",
		"decoded in part: the field data.score is text instead of a number; the field data.reviewed_by is an object instead of text",
	}, reasons)
}

// null in a list is left out: a blank flag or answer could be taken for one.
func TestNullInAListIsLeftOut(t *testing.T) {
	const body = `{"audit_id":"x","flags":[null,"a", null],"documents":[null],"people":[null,{"key":"k"}],"display_info":[ null ],"responses":[{"answer":"Yes"},null]}`
	const user = `{"user_id":"u","metadata":{"list":[1,null]},"attributes":{"text":"a,null"}}`
	for name, opts := range map[string][]brellium.ClientOption{"tolerant": nil, "strict": {brellium.WithStrictDecoding()}} {
		client, mock := resourceMock(t, opts...)
		mock.RegisterResponder(http.MethodGet, "/v2/audits/x", httpmock.NewStringResponder(200, body))
		mock.RegisterResponder(http.MethodGet, "/v2/audits", httpmock.NewStringResponder(200, `{"data":[`+body+`],"has_more":false}`))
		mock.RegisterResponder(http.MethodPost, "/v2/audits/batch_update", httpmock.NewStringResponder(200, `{"updated_audit_ids":["x",null]}`))
		mock.RegisterResponder(http.MethodGet, "/v2/users/u", httpmock.NewStringResponder(200, user))
		kept, err := client.Users.Retrieve(t.Context(), "u")
		require.NoError(t, err)
		assert.Equal(t, brellium.Metadata{"list": []any{json.Number("1"), nil}}, kept.Metadata, "free-form values stay as they are")
		audit, err := client.Audits.Retrieve(t.Context(), "x")
		page, listErr := client.Audits.List(t.Context(), brellium.AuditListParams{})
		result, batchErr := client.Audits.BatchUpdate(t.Context(), brellium.AuditBatchUpdateParams{AuditIDs: []string{"x", "y"}, Flags: []string{}})
		if name == "strict" {
			for _, err := range []error{err, listErr, batchErr} {
				var decode *brellium.DecodeError
				require.ErrorAs(t, err, &decode)
				assert.Contains(t, decode.Reason, " has an element of another kind")
			}
			continue
		}
		require.NoError(t, err)
		require.NoError(t, listErr)
		require.NoError(t, batchErr)
		assert.True(t, audit.Equal(brellium.Audit{AuditID: "x", Flags: []string{"a"}, People: []brellium.AuditItem{{Key: "k"}}, Responses: []brellium.AuditResponse{{Answer: "Yes"}}}), "%+v", audit)
		assert.True(t, audit.Equal(page.Data[0]))
		assert.Equal(t, body, string(page.Data[0].RawJSON()))
		assert.Equal(t, []string{"x"}, result.UpdatedAuditIDs)
		assert.Equal(t, []string{"y"}, result.NotUpdated)
	}
}

// encoding/json decodes into the values that it finds, and so mixes two records.
func TestNoRecordKeepsFieldsOfAnother(t *testing.T) {
	list := func(body string) *brellium.Page[brellium.Audit] {
		client, mock := resourceMock(t)
		mock.RegisterResponder(http.MethodGet, "/v2/audits", httpmock.NewStringResponder(200, body))
		page, err := client.Audits.List(t.Context(), brellium.AuditListParams{})
		require.NoError(t, err)
		return page
	}
	for _, key := range []string{"data", "Data", `d\u0061ta`} {
		page := list(`{"data":[{"audit_id":"1","status":"complete","flags":["Failed"],"people":[{"value":"a"}]}],"` + key + `":[{"audit_id":"2"}],"has_more":false}`)
		require.Len(t, page.Data, 1, key)
		assert.True(t, page.Data[0].Equal(brellium.Audit{AuditID: "2"}), "%+v", page.Data[0])
		assert.JSONEq(t, `{"audit_id":"2"}`, string(page.Data[0].RawJSON()))
	}

	var audits []brellium.Audit
	for _, fields := range []string{`"audit_id":"1","status":"complete","flags":["Failed"]`, `"audit_id":"2"`} {
		client, mock := resourceMock(t)
		mock.RegisterResponder(http.MethodGet, "/v2/x", httpmock.NewStringResponder(200, `[{`+fields+`}]`))
		require.NoError(t, client.Do(t.Context(), http.MethodGet, "/v2/x", nil, &audits))
	}
	assert.True(t, audits[0].Equal(brellium.Audit{AuditID: "2"}), "%+v", audits[0])

	var document brellium.Document
	for _, metadata := range []string{`{"patient":"1","ward":"3"}`, `{"patient":"2"}`} {
		require.NoError(t, json.Unmarshal([]byte(`{"external_metadata":`+metadata+`}`), &document))
	}
	assert.Equal(t, brellium.Metadata{"patient": "2"}, document.ExternalMetadata)
}

func TestTheBodyOfADecodeErrorIsBounded(t *testing.T) {
	_, err := auditFrom(t, okJSON(`{"other":"`+strings.Repeat("x", 1<<20)+`"}`))
	var decode *brellium.DecodeError
	require.ErrorAs(t, err, &decode)
	assert.Len(t, decode.Body, 64<<10)
	assert.Equal(t, 64<<10, cap(decode.Body))
}

// google/go-github#2056, stretchr/testify#480, gotestyourself/gotest.tools#43
func TestAResourceEqualsItsCopyAndOneThatSaysTheSame(t *testing.T) {
	const audit = `{"audit_id":"a","score":1,"timestamp":"2025-03-04T05:06:07Z","flags":["f"],"people":[{"key":"k"}]}`
	const same = `{"timestamp":"2025-03-04T07:06:07+02:00","score":1.0,"audit_id":"a","flags":["f"],"documents":[],"people":[{"key":"k"}],"new":1}`
	const document = `{"document_id":"d","external_metadata":{"n":1},"upload_url":"https://storage.test/x?sig=1"}`
	decode := func(t *testing.T, body string, into any) {
		client, mock := resourceMock(t)
		mock.RegisterResponder(http.MethodGet, "/v2/x", httpmock.NewStringResponder(200, body))
		require.NoError(t, client.Do(t.Context(), http.MethodGet, "/v2/x", nil, into))
	}
	var a, b brellium.Audit
	decode(t, audit, &a)
	decode(t, same, &b)
	twin := a
	assert.Equal(t, a, twin)
	assert.True(t, a.Equal(b))
	assert.False(t, reflect.DeepEqual(a, b), "their RawJSON differs")
	score := 1.0
	assert.True(t, a.Equal(brellium.Audit{AuditID: "a", Score: &score, Flags: []string{"f"}, People: []brellium.AuditItem{{Key: "k"}},
		Timestamp: brellium.Time{Time: time.Date(2025, 3, 4, 5, 6, 7, 0, time.UTC)}}))

	var c, d brellium.Document
	decode(t, document, &c)
	decode(t, document, &d)
	twins := c
	assert.Equal(t, c, twins)
	assert.Equal(t, &c, &twins)
	assert.Equal(t, c.UploadURL, twins.UploadURL)
	assert.True(t, c.Equal(d))
	assert.True(t, c.UploadURL.Equal(d.UploadURL))
	decode(t, strings.ReplaceAll(document, "sig=1", "sig=2"), &d)
	assert.False(t, c.Equal(d))
	assert.False(t, c.UploadURL.Equal(d.UploadURL))
	assert.False(t, c.UploadURL.Equal(brellium.UploadURL{}))

	var p, q brellium.DocumentCreateResult
	decode(t, `{"documents":[`+document+`]}`, &p)
	decode(t, `{"documents":[`+document+`]}`, &q)
	assert.True(t, p.Equal(q))
	assert.Equal(t, p.Documents[0], slices.Clone(p.Documents)[0])
	assert.False(t, p.Equal(brellium.DocumentCreateResult{}))
	var page brellium.Page[brellium.Document]
	decode(t, `{"data":[`+document+`,`+document+`]}`, &page)
	assert.Equal(t, page.Data, slices.Clone(page.Data))
}

// Each exported field counts in Equal.
func TestEqualComparesEveryField(t *testing.T) {
	for _, v := range []any{brellium.Audit{}, brellium.AuditBatchUpdateResult{}, brellium.Document{}, brellium.DocumentCreateResult{}, brellium.User{}, brellium.EmailRecipient{}} {
		equal := func(other reflect.Value) bool {
			return reflect.ValueOf(v).MethodByName("Equal").Call([]reflect.Value{other})[0].Bool()
		}
		assert.True(t, equal(reflect.ValueOf(v)))
		for i := range reflect.TypeOf(v).NumField() {
			if !reflect.TypeOf(v).Field(i).IsExported() {
				continue
			}
			other := reflect.New(reflect.TypeOf(v)).Elem()
			field := other.Field(i)
			name := reflect.TypeOf(v).Field(i).Name
			switch into := field.Addr().Interface().(type) {
			case *brellium.Time:
				into.Time = time.Unix(1, 0)
			case *brellium.UploadURL:
				require.NoError(t, json.Unmarshal([]byte(`"https://storage.test/x"`), into))
			default:
				switch field.Kind() {
				case reflect.Slice:
					field.Set(reflect.MakeSlice(field.Type(), 1, 1))
				case reflect.Map:
					require.NoError(t, json.Unmarshal([]byte(`{"a":1}`), into))
				case reflect.Pointer:
					field.Set(reflect.New(field.Type().Elem()))
				case reflect.Bool:
					field.SetBool(true)
				default:
					field.SetString("x")
				}
			}
			assert.False(t, equal(other), "%T.%s", v, name)
		}
	}
}

// failed keeps what a failed assertion prints.
type failed struct{ text string }

func (f *failed) Errorf(format string, args ...any) { f.text += fmt.Sprintf(format, args...) }

// mvanhorn/cli-printing-press#3000
func TestAFailedComparisonPrintsNoUploadURL(t *testing.T) {
	client, mock := resourceMock(t)
	body := `{"document_id":"d","filename":"shown","upload_url":"https://storage.test/4471100","not_a_field":"4471100"}`
	mock.RegisterResponder(http.MethodGet, "/v2/documents/d", httpmock.NewStringResponder(200, body))
	mock.RegisterResponder(http.MethodGet, "/v2/documents", httpmock.NewStringResponder(200, `{"data":[`+body+`]}`))
	one, err := client.Documents.Retrieve(t.Context(), "d")
	require.NoError(t, err)
	page, err := client.Documents.List(t.Context(), brellium.DocumentListParams{})
	require.NoError(t, err)
	items, err := brellium.Collect(client.Documents.All(t.Context(), brellium.DocumentListParams{}))
	require.NoError(t, err)
	var f failed
	assert.Equal(&f, one, &brellium.Document{})
	assert.Equal(&f, page.Data, []brellium.Document{{}})
	assert.Equal(&f, page, &brellium.Page[brellium.Document]{})
	assert.Equal(&f, items, []*brellium.Document{{}})
	assert.Equal(&f, one.UploadURL, brellium.UploadURL{})
	assert.Contains(t, f.text, "shown")
	assert.NotContains(t, f.text, "4471100")
	assert.NotContains(t, f.text, "34 34 37 31 31 30 30", "nor as a hex dump")
}
