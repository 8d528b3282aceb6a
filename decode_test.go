package brellium_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
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

	for _, page := range []string{`{"data":null}`, `{"object":"list"}`, `{}`} {
		client, mock := resourceMock(t)
		pagesByCursor(t, mock, "/v2/audits", map[string]string{"": page})
		got, err := client.Audits.List(t.Context(), brellium.AuditListParams{})
		require.NoError(t, err, page)
		assert.Empty(t, got.Data)
		assert.False(t, got.HasMore)
	}
}

func TestEachItemOfAListHasItsOwnRawJSON(t *testing.T) {
	items := []string{`{"user_id":"1","new":"]}"}`, `{ "user_id" : "2\\\"", "new" : {"data":[{}]} }`, `null`, `{}`}
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
		"empty":                    {"", "the body is empty"},
		"blank":                    {" \r\n", "the body is empty"},
		"only a byte-order mark":   {"\xef\xbb\xbf", "the body is empty"},
		"null":                     {"null", "the body is null"},
		"a page":                   {"<!DOCTYPE html><title>" + secret + "</title>", "the body is HTML instead of JSON"},
		"a page after blanks":      {"\n\n <html>" + secret, "the body is HTML instead of JSON"},
		"text":                     {secret, "the body is not valid JSON"},
		"cut off":                  {`{"audit_id":"` + secret, "the body is not valid JSON"},
		"something after it":       {`{"audit_id":"x"} ` + secret, "the body is not valid JSON"},
		"a list":                   {`["` + secret + `"]`, "the body is JSON of an unexpected type"},
		"a string":                 {`"` + secret + `"`, "the body is JSON of an unexpected type"},
		"a number":                 {`41`, "the body is JSON of an unexpected type"},
		"an id that is a number":   {`{"audit_id":4471100}`, "the field audit_id has an unexpected type"},
		"flags that are a string":  {`{"flags":"` + secret + `"}`, "the field flags has an unexpected type"},
		"a flag that is an object": {`{"flags":[{"name":"` + secret + `"}]}`, "the field flags has an unexpected type"},
		"a score that is a string": {`{"score":"4471100"}`, "the field score has an unexpected type"},
		"a score beyond a float":   {`{"score":4471100e999}`, "the field score has an unexpected type"},
		"an order with a fraction": {`{"people":[{"order":4471100.5}]}`, "the field people.order has an unexpected type"},
	} {
		t.Run(name, func(t *testing.T) {
			resp := okJSON(c.body)
			resp.Header.Set("X-Request-Id", "req_17")
			audit, err := auditFrom(t, resp)
			assert.Nil(t, audit)
			var decode *brellium.DecodeError
			require.ErrorAs(t, err, &decode)
			assert.Equal(t, &brellium.DecodeError{Operation: "audits.retrieve", StatusCode: 200, RequestID: "req_17", Reason: c.reason}, decode)
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
		`[]`:                           "the body is JSON of an unexpected type",
		`{"data":{}}`:                  "the field data has an unexpected type",
		`{"data":["x"]}`:               "the field data has an unexpected type",
		`{"data":[{"user_id":1}]}`:     "the field data.user_id has an unexpected type",
		`{"data":[{"metadata":"x"}]}`:  "the field data.metadata has an unexpected type",
		`{"data":[],"has_more":"yes"}`: "the field has_more has an unexpected type",
		`{"data":[],"next_cursor":7}`:  "the field next_cursor has an unexpected type",
		``:                             "the body is empty",
		`<html>`:                       "the body is HTML instead of JSON",
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
