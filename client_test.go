package brellium_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/jarcoal/httpmock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
	"github.com/brellium/brellium-go/internal/testkit"
)

func TestQueryThatIsTooLongIsNotSent(t *testing.T) {
	emu := brelliumtest.New()
	client := testkit.NewClient(t, emu)
	at := func(n int) error {
		_, err := client.Audits.List(t.Context(), brellium.AuditListParams{SetID: strings.Repeat("x", n-len("set_id="))})
		return err
	}
	testkit.IsInvalid(t, at(2049), "query", "xx")
	assert.Zero(t, emu.Count(brelliumtest.OpAny))
	require.NoError(t, at(2048))
}

func TestPrintedClientShowsOnlyItsHost(t *testing.T) {
	client := testkit.NewTokenClient(t, brellium.WithAccessToken("s3cret-token"), brellium.WithBaseURL("https://api.example.test/tenant-7"))
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%d", "%q"} {
		text := fmt.Sprintf(verb, client)
		assert.Contains(t, text, "api.example.test")
		assert.NotContains(t, text, "s3cret")
		assert.NotContains(t, text, "tenant")
	}
	data, err := json.Marshal(client)
	require.NoError(t, err)
	assert.JSONEq(t, `{"host":"api.example.test"}`, string(data))
}

func TestHTTPMockTransport(t *testing.T) {
	mock := httpmock.NewMockTransport()
	mock.RegisterResponder("POST", "https://api.example.test/v2/users",
		httpmock.NewStringResponder(503, "down").Then(httpmock.NewStringResponder(201, `{"user_id":"u"}`)))
	client := testkit.NewTokenClient(t, testkit.WithTransport(mock))
	err := testkit.CreateUser(t.Context(), client)
	testkit.IsAPIError(503, brellium.CodeHTTPError)(t, err)
	assert.True(t, brellium.OutcomeUnknown(err))
	require.NoError(t, testkit.CreateUser(t.Context(), client))
	assert.Equal(t, 2, mock.GetTotalCallCount())
	err = testkit.Retrieve(t.Context(), client, brellium.WithMaxRetries(0)) // no responder
	var e *brellium.ConnectionError
	require.ErrorAs(t, err, &e)
	assert.NotContains(t, err.Error(), "v2", "httpmock quotes the URL, we do not")
}

func TestDoCallsAnyEndpoint(t *testing.T) {
	client, mock := resourceMock(t)
	var body, contentType, uri string
	mock.RegisterResponder(http.MethodPost, `=~^/v2/question_sets`, func(r *http.Request) (*http.Response, error) {
		var b []byte
		var err error
		if r.Body != nil {
			b, err = io.ReadAll(r.Body)
		}
		body, contentType, uri = string(b), r.Header.Get("Content-Type"), r.URL.RequestURI()
		return httpmock.NewStringResponse(201, ` {"id":"q1","big":12345678901234567890} `), err
	})
	ctx := t.Context()

	var typed struct{ ID string }
	require.NoError(t, client.Do(ctx, "post", "/v2/question_sets/a%2Fb%20c?dry_run=true&x=%26", map[string]any{"name": "n"}, &typed))
	assert.Equal(t, "q1", typed.ID)
	assert.Equal(t, `{"name":"n"}`, body)
	assert.Equal(t, "application/json", contentType)
	assert.Equal(t, "/v2/question_sets/a%2Fb%20c?dry_run=true&x=%26", uri, "as it was given")

	var raw json.RawMessage
	require.NoError(t, client.Do(ctx, "POST", "/v2/question_sets", json.RawMessage(`{"b":1,"a":1.0}`), &raw))
	assert.Equal(t, `{"b":1,"a":1.0}`, body, "a json.RawMessage goes out as it is")
	assert.JSONEq(t, `{"id":"q1","big":12345678901234567890}`, string(raw))
	assert.Contains(t, string(raw), "12345678901234567890")

	require.NoError(t, client.Do(ctx, "POST", "/v2/question_sets", nil, nil))
	assert.Empty(t, body)
	assert.Empty(t, contentType, "no body, no type")
	var decode *brellium.DecodeError
	var list []string
	require.ErrorAs(t, client.Do(ctx, "POST", "/v2/question_sets", nil, &list), &decode)
	assert.Equal(t, "client.do", decode.Operation)
	assert.True(t, brellium.OutcomeUnknown(decode), "it has run")
}

func TestDoRetriesOnlyIdempotentRequests(t *testing.T) {
	for name, c := range map[string]struct {
		method string
		opts   []brellium.CallOption
		sent   int
	}{
		"GET":                        {"GET", nil, 2},
		"HEAD":                       {"HEAD", nil, 2},
		"POST":                       {"POST", nil, 1},
		"PUT":                        {"PUT", nil, 1},
		"DELETE":                     {"DELETE", nil, 1},
		"POST, idempotent":           {"POST", []brellium.CallOption{brellium.WithIdempotent()}, 2},
		"POST, with retries":         {"POST", []brellium.CallOption{brellium.WithMaxRetries(1)}, 1},
		"POST, idempotent, no retry": {"POST", []brellium.CallOption{brellium.WithIdempotent(), brellium.WithMaxRetries(0)}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, mock := resourceMock(t)
				mock.RegisterResponder(c.method, "/v2/things", httpmock.ResponderFromMultipleResponses([]*http.Response{
					httpmock.NewStringResponse(503, ""), httpmock.NewStringResponse(200, `{"ok":true}`),
				}))
				err := client.Do(t.Context(), c.method, "/v2/things", nil, nil, c.opts...)
				assert.Equal(t, c.sent, mock.GetTotalCallCount())
				if c.sent == 2 {
					assert.NoError(t, err)
					return
				}
				assert.ErrorIs(t, err, brellium.ErrServer)
				assert.True(t, brellium.OutcomeUnknown(err))
			})
		})
	}
}

func TestDoRejectsInvalidArguments(t *testing.T) {
	client, mock := resourceMock(t)
	var nilInto *struct{}
	for name, c := range map[string]struct {
		method, path string
		body, into   any
		field        string
	}{
		"no method":              {"", "/v2/x", nil, nil, "method"},
		"a method with a space":  {"GET X", "/v2/x", nil, nil, "method"},
		"CONNECT":                {"CONNECT", "/v2/x", nil, nil, "method"},
		"no path":                {"GET", "", nil, nil, "path"},
		"a relative path":        {"GET", "v2/x", nil, nil, "path"},
		"a whole URL":            {"GET", "https://example.test/v2/x", nil, nil, "path"},
		"another host":           {"GET", "//example.test/v2", nil, nil, "path"},
		"dots":                   {"GET", "/v2/../x", nil, nil, "path"},
		"escaped dots":           {"GET", "/v2/%2e%2E/x", nil, nil, "path"},
		"a backslash":            {"GET", `/v2/..\x`, nil, nil, "path"},
		"a fragment":             {"GET", "/v2/x#y", nil, nil, "path"},
		"a space":                {"GET", "/v2/a b", nil, nil, "path"},
		"a line break":           {"GET", "/v2/x\r\nHost: y", nil, nil, "path"},
		"not ASCII":              {"GET", "/v2/é", nil, nil, "path"},
		"half an escape":         {"GET", "/v2/%4", nil, nil, "path"},
		"a nil pointer":          {"GET", "/v2/x", nil, nilInto, "into"},
		"a body that is no JSON": {"POST", "/v2/x", json.RawMessage(`{"a":`), nil, "body"},
		"a reader as the body":   {"POST", "/v2/x", strings.NewReader(`{"a":1}`), nil, "body"},
		"a buffer as the body":   {"POST", "/v2/x", bytes.NewBufferString(`{"a":1}`), nil, "body"},
		"bytes as the body":      {"POST", "/v2/x", []byte(`{"a":1}`), nil, "body"},
		"a writer as the target": {"GET", "/v2/x", nil, new(bytes.Buffer), "into"},
		"a body of channels":     {"POST", "/v2/x", []chan int{nil}, nil, "body"},
	} {
		t.Run(name, func(t *testing.T) {
			err := client.Do(t.Context(), c.method, c.path, c.body, c.into)
			testkit.IsInvalid(t, err, c.field, "")
		})
	}
	assert.Zero(t, mock.GetTotalCallCount())
}

func TestDoUsesTheBasePathAndCredentials(t *testing.T) {
	emu := brelliumtest.New(brelliumtest.WithBasePath("/gate%2Fway"))
	client := testkit.NewClient(t, emu)
	var audit struct {
		AuditID string `json:"audit_id"`
	}
	require.NoError(t, client.Do(t.Context(), "GET", "/v2/audits/"+brelliumtest.SampleAuditID, nil, &audit))
	assert.Equal(t, brelliumtest.SampleAuditID, audit.AuditID)
	assert.ErrorIs(t, client.Do(t.Context(), "GET", "/v2/nothing", nil, nil), brellium.ErrNotFound)
}

// A list without a method is followed like any other.
func TestDoDecodesAPage(t *testing.T) {
	type set struct {
		ID   string `json:"set_id"`
		Size int    `json:"size"`
	}
	client, mock := resourceMock(t)
	queries := pagesByCursor(t, mock, "/v2/sets", map[string]string{
		"c1": `{"data":[{"set_id":"1"},{"set_id":"2","size":"odd"},{"set_id":"3","size":3}],"has_more":true,"next_cursor":"c2"}`,
		"c2": `{"data":[{"set_id":"4"}],"next_cursor":"c3"}`,
		"c3": `{"data":[{"set_id":"5"}],"has_more":true,"next_cursor":"c2"}`,
	})
	ctx := t.Context()
	var first brellium.Page[set]
	err := client.Do(ctx, "GET", "/v2/sets?cursor=c1&x=%26&limit=3", nil, &first, brellium.WithOperation("sets.list"), brellium.WithQuery("y", "z"))
	var decode *brellium.DecodeError
	require.ErrorAs(t, err, &decode)
	assert.Equal(t, "sets.list", decode.Operation)
	assert.Equal(t, "item 2 of data: the field size has an unexpected type", decode.Reason)
	assert.Equal(t, []set{{"1", 0}, {"3", 3}}, first.Data)
	assert.True(t, first.HasMore)
	assert.Equal(t, "c2", first.NextCursor)
	assert.Contains(t, string(first.RawJSON()), `"odd"`)

	second, err := first.Next(ctx)
	require.NoError(t, err)
	assert.Equal(t, []set{{"4", 0}}, second.Data)
	third, err := second.Next(ctx)
	var paging *brellium.PaginationError
	require.ErrorAs(t, err, &paging, "a cycle")
	assert.Equal(t, "sets.list", paging.Operation)
	assert.Equal(t, []set{{"5", 0}}, third.Data)
	for _, q := range *queries {
		assert.Equal(t, []string{"&", "z", "3"}, []string{q.Get("x"), q.Get("y"), q.Get("limit")})
	}

	var last brellium.Page[set]
	mock.RegisterResponder("POST", "/v2/sets", httpmock.NewStringResponder(200, `{"data":[{"set_id":"1"}],"has_more":false}`))
	require.NoError(t, client.Do(ctx, "POST", "/v2/sets", struct{}{}, &last))
	_, err = last.Next(ctx)
	assert.ErrorIs(t, err, brellium.ErrNoMorePages)
	mock.RegisterResponder("POST", "/v2/sets", httpmock.NewStringResponder(200, `{"data":[{"set_id":"1"}],"next_cursor":"c"}`))
	require.ErrorAs(t, client.Do(ctx, "POST", "/v2/sets", struct{}{}, &last), &paging)
	mock.RegisterResponder("POST", "/v2/sets", httpmock.NewStringResponder(200, `{"sets":[]}`))
	require.ErrorAs(t, client.Do(ctx, "POST", "/v2/sets", struct{}{}, &last), &decode)
	assert.True(t, brellium.OutcomeUnknown(decode))
}

func TestDoDecodesAResourceLikeItsMethod(t *testing.T) {
	emu := brelliumtest.New()
	client := testkit.NewClient(t, emu)
	var audit brellium.Audit
	require.NoError(t, client.Do(t.Context(), "GET", "/v2/audits/"+brelliumtest.SampleAuditID, nil, &audit))
	assert.True(t, json.Valid(audit.RawJSON()))
	var page brellium.Page[brellium.Audit]
	require.NoError(t, client.Do(t.Context(), "GET", "/v2/audits", nil, &page))
	assert.True(t, audit.Equal(page.Data[0]))
	assert.JSONEq(t, string(audit.RawJSON()), string(page.Data[0].RawJSON()))

	var own struct { // with a field of the caller's own
		brellium.User
		Team string `json:"team"`
	}
	stub := testkit.NewStubClient(t, func(*http.Request) (*http.Response, error) {
		return testkit.Reply(200, nil, `{"user_id":7,"team":"t"}`), nil
	})
	require.NoError(t, stub.Do(t.Context(), "GET", "/v2/users/u", nil, &own))
	assert.Equal(t, "7", own.UserID)
	assert.Equal(t, "t", own.Team)
	assert.JSONEq(t, `{"user_id":7,"team":"t"}`, string(own.RawJSON()))
	var decode *brellium.DecodeError
	require.ErrorAs(t, stub.Do(t.Context(), "GET", "/v2/users/u", nil, &audit), &decode)
	assert.Equal(t, "the body has no audit_id; it has user_id, team", decode.Reason)
}

func TestDoNamesItsOperation(t *testing.T) {
	emu := brelliumtest.New()
	var seen []string
	client := testkit.NewClient(t, emu, brellium.WithObserver(brellium.ObserverFunc(func(ctx context.Context, e brellium.Event) context.Context {
		if e.Kind == brellium.EventCallEnd && e.Operation != "oauth.token" {
			seen = append(seen, e.Operation)
		}
		return ctx
	})))
	err := client.Do(t.Context(), "POST", "/v2/nothing", nil, nil, brellium.WithOperation("sets.create_2"))
	assert.ErrorIs(t, err, brellium.ErrNotFound)
	assert.Contains(t, err.Error(), "brellium: sets.create_2: 404")
	assert.Equal(t, []string{"sets.create_2"}, seen)
	for _, name := range []string{"", "Sets", "1sets", "sets-a", "sets a", "/v2/sets", "a@b", strings.Repeat("a", 65)} {
		testkit.IsInvalid(t, client.Do(t.Context(), "GET", "/v2/x", nil, nil, brellium.WithOperation(name)), "WithOperation", "/v2")
	}
	_, err = client.Audits.Retrieve(t.Context(), "x", brellium.WithOperation("sets.retrieve"))
	testkit.IsInvalid(t, err, "WithOperation", "")
}
