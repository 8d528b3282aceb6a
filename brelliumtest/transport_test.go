package brelliumtest_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go/brelliumtest"
)

// traced sends a request and returns the trace hooks in the order they were
// called.
func traced(s *session, req *http.Request) []string {
	var hooks []string
	note := func(format string, args ...any) { hooks = append(hooks, fmt.Sprintf(format, args...)) }
	ctx := httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GetConn:              func(host string) { note("GetConn %s", host) },
		GotConn:              func(info httptrace.GotConnInfo) { note("GotConn reused=%t", info.Reused) },
		WroteHeaders:         func() { note("WroteHeaders") },
		WroteRequest:         func(info httptrace.WroteRequestInfo) { note("WroteRequest failed=%t", info.Err != nil) },
		GotFirstResponseByte: func() { note("GotFirstResponseByte") },
	})
	if resp, err := s.http.Do(req.WithContext(ctx)); err == nil {
		resp.Body.Close()
	}
	return hooks
}

func TestTraceHooks(t *testing.T) {
	const getConn = "GetConn api.brellium.test"
	sent := []string{getConn, "GotConn reused=false", "WroteHeaders", "WroteRequest failed=false"}
	for name, c := range map[string]struct {
		fault brelliumtest.Fault
		want  []string
	}{
		"response":    {brelliumtest.OK(), append(sent[:len(sent):len(sent)], "GotFirstResponseByte")},
		"dropped":     {brelliumtest.DropBefore(), sent},
		"never sent":  {brelliumtest.NeverSent(), []string{getConn}},
		"unsent":      {brelliumtest.Unsent(), []string{getConn, "GotConn reused=true", "WroteRequest failed=true"}},
		"in the body": {brelliumtest.DropReading(), []string{getConn, "GotConn reused=false", "WroteHeaders", "WroteRequest failed=true"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := inProcess(t)
			s.emu.Inject(brelliumtest.OpAuditUpdate, c.fault)
			assert.Equal(t, c.want, traced(s, s.request("PATCH", sample, `{"flags":[]}`)))
		})
	}
}

// closeCounter is a body that counts how often it is closed.
type closeCounter struct {
	io.Reader
	closed int
}

func (c *closeCounter) Close() error { c.closed++; return nil }

func TestTransportClosesTheBody(t *testing.T) {
	s := inProcess(t)
	for _, fault := range []brelliumtest.Fault{
		brelliumtest.OK(), brelliumtest.NeverSent(), brelliumtest.Unsent(), brelliumtest.DropReading(),
		brelliumtest.DropBefore(), brelliumtest.DropAfter(), brelliumtest.Bare(413),
	} {
		s.emu.Inject(brelliumtest.OpAuditUpdate, fault)
		body := &closeCounter{Reader: strings.NewReader(`{"flags":[]}`)}
		req := s.request("PATCH", sample, "")
		req.Header.Set("Content-Type", "application/json")
		req.Body, req.ContentLength = body, 12
		if resp, err := s.emu.Transport().RoundTrip(req); err == nil {
			resp.Body.Close()
		}
		assert.Positive(t, body.closed)
	}
}

func TestTransportReturnsTheErrorOfAnEndedContext(t *testing.T) {
	s := inProcess(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.try(s.request("GET", sample, "").WithContext(ctx))
	require.ErrorIs(t, err, context.Canceled)
	assert.Zero(t, s.emu.Count(brelliumtest.OpAny))
}

func TestTransportRejectsOtherSchemes(t *testing.T) {
	s := inProcess(t)
	for _, url := range []string{"ftp://api.brellium.test/v2/audits", "/v2/audits"} {
		req, err := http.NewRequest("GET", url, nil)
		require.NoError(t, err)
		_, err = s.try(req)
		require.Error(t, err)
	}
}

func TestTransportStartsNoGoroutine(t *testing.T) {
	s := inProcess(t)
	s.get(sample)
	before := runtime.NumGoroutine()
	for range 50 {
		s.get(sample)
		s.do("PATCH", sample, `{"flags":[]}`)
	}
	assert.LessOrEqual(t, runtime.NumGoroutine(), before)
}

func TestConcurrentUse(t *testing.T) {
	both(t, func(t *testing.T, s *session) {
		s.emu.SeedAudits(50)
		s.emu.Inject(brelliumtest.OpAny, brelliumtest.Status(503, "X").Forever().Sometimes(0.2), brelliumtest.DropAfter().Times(5))
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				for i := range 6 {
					_, _ = s.try(s.request("GET", "/v2/audits?limit=5", ""))
					_, _ = s.try(s.request("PATCH", sample, `{"flags":["x"]}`))
					_, _ = s.try(s.request("POST", "/v2/users", fmt.Sprintf(`{"email":"u%d-%d@example.test"}`, g, i)))
					_, _ = s.try(s.request("POST", "/v2/documents", `{"documents":[`+first+`]}`))
					s.emu.Requests()
					s.emu.Users()
					s.emu.Documents()
				}
			})
		}
		wg.Wait()
		assert.Equal(t, 8*6*4, s.emu.Count(brelliumtest.OpAny))
		assert.Len(t, s.emu.Requests(), 8*6*4)
		assert.LessOrEqual(t, len(s.emu.Documents()), 1)
	}, brelliumtest.WithRateLimit(1000, 100))
}

func BenchmarkTransport(b *testing.B) {
	emu := brelliumtest.New(brelliumtest.WithRecordLimit(0), brelliumtest.WithRateLimit(1<<30, 1<<30))
	emu.SeedAudits(100_000)
	transport, token := emu.Transport(), emu.IssueToken()
	for name, path := range map[string]string{
		"retrieve":      sample,
		"page":          "/v2/audits?limit=100",
		"filtered page": "/v2/audits?limit=100&flags=Failed",
		"full scan":     "/v2/audits?limit=100&flags=Nothing",
	} {
		b.Run(name, func(b *testing.B) {
			req, err := http.NewRequest("GET", emu.BaseURL()+path, nil)
			require.NoError(b, err)
			req.Header.Set("Authorization", "Bearer "+token)
			b.ReportAllocs()
			for b.Loop() {
				resp, err := transport.RoundTrip(req)
				if err != nil || resp.StatusCode != http.StatusOK {
					b.Fatal(err, resp)
				}
			}
		})
	}
}
