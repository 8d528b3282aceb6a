package brelliumtest_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go/brelliumtest"
)

// session sends requests to an emulator, in process or to its port.
type session struct {
	t     *testing.T
	emu   *brelliumtest.Emulator
	http  *http.Client
	base  string
	token string
}

// reply is a response with its whole body.
type reply struct {
	status int
	header http.Header
	body   string
}

func (r reply) into(t *testing.T, v any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(r.body), v), r.body)
}

// failure is the error envelope.
type failure struct {
	Error struct {
		Type      string `json:"type"`
		Code      string `json:"code"`
		Message   string `json:"message"`
		RequestID string `json:"request_id"`
	} `json:"error"`
}

// requireFailure checks the status and the envelope with this code.
func (r reply) requireFailure(t *testing.T, status int, code string) failure {
	t.Helper()
	require.Equal(t, status, r.status, r.body)
	require.Equal(t, "application/json", r.header.Get("Content-Type"))
	var f failure
	r.into(t, &f)
	require.Equal(t, code, f.Error.Code)
	require.NotEmpty(t, f.Error.Type)
	require.NotEmpty(t, f.Error.Message)
	require.NotEmpty(t, f.Error.RequestID)
	require.Equal(t, r.header.Get("X-Request-Id"), f.Error.RequestID)
	return f
}

// requireBare checks a response of the gateway, which has no headers of the API.
func (r reply) requireBare(t *testing.T, status int) {
	t.Helper()
	require.Equal(t, status, r.status)
	for _, name := range []string{"X-Request-Id", "Retry-After", "RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"} {
		require.Empty(t, r.header.Get(name), name)
	}
	require.NotContains(t, r.header.Get("Content-Type"), "json")
}

func noRedirects(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func inProcess(t *testing.T, opts ...brelliumtest.Option) *session {
	t.Helper()
	emu := brelliumtest.New(opts...)
	return &session{
		t: t, emu: emu, base: emu.BaseURL(), token: emu.IssueToken(),
		http: &http.Client{Transport: emu.Transport(), CheckRedirect: noRedirects},
	}
}

func onPort(t *testing.T, opts ...brelliumtest.Option) *session {
	t.Helper()
	emu := brelliumtest.New(opts...)
	require.NoError(t, emu.Start())
	t.Cleanup(emu.Close)
	transport := &http.Transport{DisableKeepAlives: true} // so that net/http does not retry
	t.Cleanup(transport.CloseIdleConnections)
	return &session{
		t: t, emu: emu, base: emu.BaseURL(), token: emu.IssueToken(),
		http: &http.Client{Transport: transport, CheckRedirect: noRedirects},
	}
}

// both runs a test in process and on a port.
func both(t *testing.T, test func(t *testing.T, s *session), opts ...brelliumtest.Option) {
	t.Helper()
	t.Run("in process", func(t *testing.T) { test(t, inProcess(t, opts...)) })
	t.Run("on a port", func(t *testing.T) { test(t, onPort(t, opts...)) })
}

// request builds a request. A body is sent as JSON unless a header says
// otherwise. A header "Name:" without a value removes that header.
func (s *session) request(method, path, body string, headers ...string) *http.Request {
	s.t.Helper()
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	url := path
	if strings.HasPrefix(path, "/") {
		url = s.base + path
	}
	req, err := http.NewRequestWithContext(context.Background(), method, url, r)
	require.NoError(s.t, err)
	if strings.HasPrefix(path, "/") {
		req.Header.Set("Authorization", "Bearer "+s.token)
		if body != "" {
			req.Header.Set("Content-Type", "application/json")
		}
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ":")
		if value = strings.TrimSpace(value); value == "" {
			req.Header.Del(name)
		} else {
			req.Header.Set(name, value)
		}
	}
	return req
}

// try sends a request and reads the response.
func (s *session) try(req *http.Request) (reply, error) {
	resp, err := s.http.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(body)}, err
}

func (s *session) do(method, path, body string, headers ...string) reply {
	s.t.Helper()
	r, err := s.try(s.request(method, path, body, headers...))
	require.NoError(s.t, err)
	return r
}

func (s *session) get(path string) reply { s.t.Helper(); return s.do("GET", path, "") }

// mint requests a token.
func (s *session) mint(body string, headers ...string) reply {
	s.t.Helper()
	return s.do("POST", "/v2/oauth/token", body, append([]string{"Authorization:"}, headers...)...)
}

func (s *session) credentials() string {
	return `{"grant_type":"client_credentials","client_id":"` + s.emu.ClientID + `","client_secret":"` + s.emu.ClientSecret + `"}`
}

const sample = "/v2/audits/" + brelliumtest.SampleAuditID
