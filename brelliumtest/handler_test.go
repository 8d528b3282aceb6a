package brelliumtest_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go/brelliumtest"
)

// onHTTP2 serves the emulator's Handler over HTTP/2 and TLS.
func onHTTP2(t *testing.T) *session {
	t.Helper()
	emu := brelliumtest.New()
	server := httptest.NewUnstartedServer(emu.Handler())
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	return &session{t: t, emu: emu, http: server.Client(), base: server.URL, token: emu.IssueToken()}
}

func TestHandlerOverHTTP2(t *testing.T) {
	s := onHTTP2(t)
	resp, err := s.http.Do(s.request("GET", sample, ""))
	require.NoError(t, err)
	resp.Body.Close()
	assert.Equal(t, 2, resp.ProtoMajor)
	assert.Equal(t, "100", resp.Header.Get("RateLimit-Limit"))

	d := s.create(first)[0]
	u, err := url.Parse(*d.UploadURL)
	require.NoError(t, err)
	assert.Equal(t, "https", u.Scheme)
	assert.Equal(t, "localhost", u.Hostname())
	u.Host = "127.0.0.1:" + u.Port() // the test certificate is valid for this name
	require.Equal(t, 200, s.do("PUT", u.String(), "x").status, "the signature leaves the host alone")

	s.emu.Inject(brelliumtest.OpAuditUpdate, brelliumtest.DropAfter(), brelliumtest.OK().Truncated(), brelliumtest.OK().ResetInBody())
	for range 3 {
		_, err = s.try(s.request("PATCH", sample, `{"flags":["New"]}`))
		require.Error(t, err)
	}
	flags, _ := s.emu.AuditFlags(brelliumtest.SampleAuditID)
	assert.Equal(t, []string{"New"}, flags)

	s.emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.StallHeaders(0))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = s.try(s.request("GET", sample, "").WithContext(ctx))
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestUploadURLHost(t *testing.T) {
	emu := brelliumtest.New()
	for host, want := range map[string]string{
		"127.0.0.1:81":       "http://localhost:81/uploads/",
		"localhost:81":       "http://127.0.0.1:81/uploads/",
		"localhost":          "http://127.0.0.1/uploads/",
		"[::1]:81":           "http://localhost:81/uploads/",
		"api.example.test:1": "http://api.example.test:1/uploads/",
	} {
		s := &session{t: t, emu: emu, base: "http://" + host, token: emu.IssueToken()}
		req := s.request("POST", "/v2/documents", `{"documents":[`+third+`]}`)
		req.RequestURI, req.RemoteAddr = "/v2/documents", "127.0.0.1:1"
		w := httptest.NewRecorder()
		emu.Handler().ServeHTTP(w, req)
		require.Equal(t, http.StatusCreated, w.Code, w.Body)
		assert.Contains(t, w.Body.String(), `"upload_url":"`+want, host)
	}
}

func TestStartReturnsAnErrorForAnAddressInUse(t *testing.T) {
	s := onPort(t)
	u, err := url.Parse(s.emu.URL)
	require.NoError(t, err)
	other := brelliumtest.New(brelliumtest.WithAddr(u.Host))
	require.Error(t, other.Start())
	assert.Empty(t, other.URL)
	assert.Equal(t, brelliumtest.InProcessURL, other.BaseURL())
	other.Close()
}

func TestTokenLimitOption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inProcess(t, brelliumtest.WithTokenLimit(1, time.Minute))
		require.Equal(t, 200, s.mint(s.credentials()).status)
		require.Equal(t, "60", s.mint(s.credentials()).header.Get("Retry-After"))
		time.Sleep(time.Minute)
		require.Equal(t, 200, s.mint(s.credentials()).status)
	})
}

func TestBucketThatNeverRefills(t *testing.T) {
	s := inProcess(t, brelliumtest.WithRateLimit(1, 0))
	require.Equal(t, 200, s.get(sample).status)
	require.Equal(t, "3600", s.get(sample).header.Get("Retry-After"))
}

// The body of a request without a valid token does not fill the memory.
func TestBodyBeforeLoginIsLimited(t *testing.T) {
	emu := brelliumtest.New()
	server := httptest.NewServer(emu.Handler())
	defer server.Close()
	for _, tc := range []struct {
		path, token  string
		size, status int
		kept         int
	}{
		{"/v2/users", "", 64 << 10, 401, 64 << 10},
		{"/v2/users", "wrong", 1 << 20, 401, 64 << 10},
		{"/v2/users", "", 10<<20 + 1, 413, 64 << 10},
		{"/v2/users", emu.IssueToken(), 1 << 20, 400, 1 << 20},
		{"/v2/oauth/token", "", 1 << 20, 400, 64 << 10},
		{"/v2/nothing", "", 1 << 20, 401, 64 << 10},
	} {
		for _, chunked := range []bool{false, true} {
			var body io.Reader = strings.NewReader(strings.Repeat(" ", tc.size))
			if chunked {
				body = io.MultiReader(body)
			}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+tc.path, body)
			require.NoError(t, err)
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Authorization", "Bearer "+tc.token)
			resp, err := http.DefaultClient.Do(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			assert.Equal(t, tc.status, resp.StatusCode, tc)
			requests := emu.Requests(brelliumtest.OpAny)
			assert.Len(t, requests[len(requests)-1].Body, tc.kept, tc)
		}
	}
}
