package brellium_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jarcoal/httpmock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

// hashicorp/nomad#10301, hashicorp/go-tfe#1416
func TestHeadersOfParallelCallsDoNotMix(t *testing.T) {
	var n atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/v2/audits/"))
		assert.NoError(t, err)
		assert.Equal(t, []string{strconv.Itoa(id)}, r.Header["X-Job"])
		assert.Equal(t, id%3 == 0, r.Header.Get("X-Third") != "")
		assert.Equal(t, "application/json", r.Header.Get("Accept"))
		if n.Add(1)%2 == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, `{"audit_id":"a"}`)
	}))
	defer server.Close()
	client := newClient(t, brellium.WithBaseURL(server.URL), brellium.WithoutRateLimiter())
	var calls sync.WaitGroup
	for id := range 100 {
		calls.Go(func() {
			opts := []brellium.CallOption{brellium.WithHeader("x-job", strconv.Itoa(id)), brellium.WithMaxRetries(id % 2)}
			if id%3 == 0 {
				opts = append(opts, brellium.WithHeader("X-Third", "yes"))
			}
			var resp brellium.Response
			_, err := client.Audits.Retrieve(t.Context(), strconv.Itoa(id), append(opts, brellium.WithResponseInto(&resp))...)
			assert.LessOrEqual(t, len(resp.Attempts), 1+id%2)
			assert.Equal(t, err == nil, resp.StatusCode == 200)
		})
	}
	calls.Wait()
	n.Store(1)
	_, err := client.Audits.Retrieve(t.Context(), "7", brellium.WithHeader("X-Job", "7"))
	require.NoError(t, err, "nothing of a call stays with the client")
}

func TestACallOptionIsRefusedByName(t *testing.T) {
	emu := brelliumtest.New()
	client, err := emu.Client()
	require.NoError(t, err)
	for _, tc := range []struct {
		field, value string
		opt          brellium.CallOption
	}{
		{"CallOption", "", nil},
		{"WithResponseInto", "", brellium.WithResponseInto(nil)},
		{"WithHeader", "", brellium.WithHeader("", "x")},
		{"WithHeader", "", brellium.WithHeader("a b", "x")},
		{"WithHeader", "s3cret", brellium.WithHeader("X-Key", "s3cret\r\nX-Other: 1")},
		{"WithHeader", "s3cret", brellium.WithHeader("authorization", "Bearer s3cret")},
		{"WithHeader", "", brellium.WithHeader("content-type", "text/plain")},
		{"WithHeader", "", brellium.WithHeader("Content-Length", "1")},
		{"WithHeader", "", brellium.WithHeader("transfer-encoding", "chunked")},
		{"WithHeader", "", brellium.WithHeader("HOST", "elsewhere.example.test")},
		{"WithHeader", "", brellium.WithHeader("Idempotency-Key", "1")},
	} {
		for _, c := range callers {
			if c.op == opPut {
				continue // its batch is sent first
			}
			refusedOption(t, c.call(t.Context(), client, tc.opt), tc.field, tc.value)
		}
	}
	for _, c := range callers {
		if c.op != opPut {
			var none context.Context
			refusedOption(t, c.call(none, client), "ctx", "")
		}
	}
	assert.Zero(t, emu.Count(brelliumtest.OpAny), "nothing is sent")
}

func TestAQueryThatWouldBeBlockedIsNeverSent(t *testing.T) {
	emu := brelliumtest.New()
	client, err := emu.Client()
	require.NoError(t, err)
	at := func(n int) error {
		_, err := client.Audits.List(t.Context(), brellium.AuditListParams{SetID: strings.Repeat("x", n-len("set_id="))})
		return err
	}
	refusedOption(t, at(2049), "query", "xx")
	assert.Zero(t, emu.Count(brelliumtest.OpAny))
	require.NoError(t, at(2048))
}

func TestResponseTellsWhatTheCallMet(t *testing.T) {
	bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		assert.False(t, client.RateLimit().Known())
		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.NeverSent(), refusal("2"), brelliumtest.Status(401, "UNAUTHORIZED"), brelliumtest.Bare(502), brelliumtest.OK().Delay(3*time.Second))
		var resp brellium.Response
		require.NoError(t, retrieve(t.Context(), client, brellium.WithResponseInto(&resp)))
		requests := emu.Requests(brelliumtest.OpAuditRetrieve)
		assert.Equal(t, 200, resp.StatusCode)
		assert.Equal(t, requests[3].RequestID, resp.RequestID)
		assert.Equal(t, resp.RequestID, resp.Header.Get("X-Request-Id"))
		assert.Equal(t, 100, resp.RateLimit.Limit)
		assert.Equal(t, resp.RateLimit, client.RateLimit())
		require.Len(t, resp.Attempts, 5)
		var verdicts []string
		for i, a := range resp.Attempts {
			assert.Equal(t, i+1, a.Number)
			verdicts = append(verdicts, fmt.Sprint(a.StatusCode, " ", a.Verdict))
		}
		assert.Equal(t, []string{"0 never sent", "429 throttled", "401 unauthorized", "502 unknown", "200 done"}, verdicts)
		assert.Zero(t, resp.Attempts[0].Wait)
		assert.LessOrEqual(t, resp.Attempts[1].Wait, 500*time.Millisecond)
		assert.GreaterOrEqual(t, resp.Attempts[2].Wait, 2*time.Second)
		assert.Zero(t, resp.Attempts[3].Wait, "a 401 is replayed at once")
		assert.Equal(t, 3*time.Second, resp.Attempts[4].Duration)

		// It is emptied when it is used again, and holds the last answer even
		// where the repeat is never begun.
		emu.Inject(brelliumtest.OpAuditRetrieve, refusal("3600"))
		require.Error(t, retrieve(t.Context(), client, brellium.WithResponseInto(&resp)))
		assert.Equal(t, 429, resp.StatusCode)
		require.Len(t, resp.Attempts, 1)
		refusedOption(t, retrieve(t.Context(), client, brellium.WithMaxRetries(-1), brellium.WithResponseInto(&resp)), "WithMaxRetries", "")
	}, brellium.WithoutRateLimiter())
}

// TestTheLastAnswerStaysWhenTheRepeatIsNotBegun since a token for it cannot be
// had.
func TestTheLastAnswerStaysWhenTheRepeatIsNotBegun(t *testing.T) {
	bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		require.NoError(t, retrieve(t.Context(), client))
		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(401, "UNAUTHORIZED"))
		emu.Inject(opToken, brelliumtest.Status(400, "invalid_client"))
		var resp brellium.Response
		isAPIError(400, "invalid_client")(t, retrieve(t.Context(), client, brellium.WithResponseInto(&resp)))
		assert.Equal(t, 401, resp.StatusCode)
		assert.Len(t, resp.Attempts, 1)
	})
}

// TestNewTokensThatAreRefusedLeadToAPause, in which the calls fail at once.
func TestNewTokensThatAreRefusedLeadToAPause(t *testing.T) {
	bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAny, brelliumtest.OK().When(func(r *brelliumtest.Request) bool { return r.Operation == opToken }).Forever(),
			brelliumtest.Status(401, "UNAUTHORIZED").Forever())
		var err error
		for range 3 {
			err = createUser(t.Context(), client)
			isAPIError(401, "")(t, err)
		}
		var e *brellium.APIError
		require.ErrorAs(t, err, &e)
		assert.Equal(t, "oauth.token", e.Operation)
		assert.LessOrEqual(t, emu.Count(opToken), 2, "no mint per call")
		wait, ok := brellium.RetryAfter(err)
		assert.True(t, ok)
		assert.Positive(t, wait)
	})
}

func TestPrintingAClientShowsItsHostAlone(t *testing.T) {
	client := newClient(t, brellium.WithAccessToken("s3cret-token"), brellium.WithBaseURL("https://api.example.test/tenant-7"))
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

// TestAMockedTransportWillDo: whoever tests with httpmock gives it to
// WithHTTPClient, and the pipeline is the real one.
func TestAMockedTransportWillDo(t *testing.T) {
	mock := httpmock.NewMockTransport()
	mock.RegisterResponder("POST", "https://api.example.test/v2/users",
		httpmock.NewStringResponder(503, "down").Then(httpmock.NewStringResponder(201, `{"user_id":"u"}`)))
	client := newClient(t, brellium.WithHTTPClient(&http.Client{Transport: mock}))
	err := createUser(t.Context(), client)
	isAPIError(503, brellium.CodeHTTPError)(t, err)
	assert.True(t, brellium.OutcomeUnknown(err))
	require.NoError(t, createUser(t.Context(), client))
	assert.Equal(t, 2, mock.GetTotalCallCount())
	err = retrieve(t.Context(), client, brellium.WithMaxRetries(0)) // no responder
	var e *brellium.ConnectionError
	require.ErrorAs(t, err, &e)
	assert.NotContains(t, err.Error(), "v2", "httpmock quotes the URL, we do not")
}

func TestTheCallersValuesReachTheTransport(t *testing.T) {
	type key struct{}
	client := answering(t, func(r *http.Request) (*http.Response, error) {
		assert.Equal(t, "v", r.Context().Value(key{}))
		return reply(200, nil, `{"audit_id":"a"}`), nil
	})
	require.NoError(t, retrieve(context.WithValue(t.Context(), key{}, "v"), client))
}
