package brelliumtest_test

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go/brelliumtest"
)

func TestScriptedStatus(t *testing.T) {
	both(t, func(t *testing.T, s *session) {
		s.emu.Inject(brelliumtest.OpAuditUpdate,
			brelliumtest.Status(503, "UNAVAILABLE").WithHeader("Retry-After", "7").WithMessage("Closed for now"),
			brelliumtest.Status(500, ""),
			brelliumtest.OK(),
			brelliumtest.Status(502, "BAD_GATEWAY").Times(2),
			brelliumtest.Status(504, "LATE").AfterWork(),
			brelliumtest.Status(502, "BAD_GATEWAY").WithoutRateLimit(),
		)
		assert.Equal(t, 7, s.emu.PendingFaults(brelliumtest.OpAuditUpdate))
		patch := func(flag string) reply { return s.do("PATCH", sample, `{"flags":["`+flag+`"]}`) }
		flag := func() string {
			flags, _ := s.emu.AuditFlags(brelliumtest.SampleAuditID)
			return flags[0]
		}

		r := patch("A")
		f := r.requireFailure(t, 503, "UNAVAILABLE")
		assert.Equal(t, "Closed for now", f.Error.Message)
		assert.Equal(t, "api_error", f.Error.Type)
		assert.Equal(t, "7", r.header.Get("Retry-After"))
		assert.Equal(t, "100", r.header.Get("RateLimit-Limit"))
		assert.Equal(t, "Failed", flag(), "the operation did not run")

		r = patch("B")
		assert.Equal(t, 500, r.status)
		assert.Empty(t, r.body)
		assert.NotEmpty(t, r.header.Get("X-Request-Id"))

		assert.Equal(t, 200, patch("C").status)
		assert.Equal(t, "C", flag())
		patch("D").requireFailure(t, 502, "BAD_GATEWAY")
		patch("D").requireFailure(t, 502, "BAD_GATEWAY")
		assert.Equal(t, "C", flag())
		patch("E").requireFailure(t, 504, "LATE")
		assert.Equal(t, "E", flag(), "the operation ran")
		r = patch("F")
		r.requireFailure(t, 502, "BAD_GATEWAY")
		assert.Empty(t, r.header.Get("RateLimit-Limit"))
		assert.Equal(t, 200, patch("G").status)
		assert.Zero(t, s.emu.PendingFaults(brelliumtest.OpAuditUpdate))

		worked := 0
		for _, r := range s.emu.Requests(brelliumtest.OpAuditUpdate) {
			require.True(t, r.Spent)
			if r.Worked {
				worked++
			}
		}
		assert.Equal(t, 3, worked)
	}, brelliumtest.WithRateLimit(100, 0.001))
}

func TestScripted401And429AreNotCharged(t *testing.T) {
	both(t, func(t *testing.T, s *session) {
		s.emu.Inject(brelliumtest.OpAuditRetrieve,
			brelliumtest.Status(429, "RATE_LIMITED"),
			brelliumtest.Status(429, "RATE_LIMITED").WithHeader("Retry-After", "120"),
			brelliumtest.Status(429, "RATE_LIMITED").WithHeader("Retry-After", ""),
			brelliumtest.Status(401, "UNAUTHORIZED"),
			brelliumtest.Respond(401, "application/json", `{"error":"invalid_token"}`),
		)
		for _, want := range []struct{ retryAfter, reset string }{{"1", "1"}, {"120", "120"}, {"", "1"}} {
			r := s.get(sample)
			r.requireFailure(t, 429, "RATE_LIMITED")
			assert.Equal(t, want.retryAfter, r.header.Get("Retry-After"))
			assert.Equal(t, want.reset, r.header.Get("RateLimit-Reset"))
			assert.Equal(t, "0", r.header.Get("RateLimit-Remaining"))
		}
		for range 2 {
			r := s.get(sample)
			require.Equal(t, 401, r.status)
			require.Empty(t, r.header.Get("RateLimit-Limit"))
		}
		assert.Equal(t, 100, s.emu.Remaining())
	})
}

func TestScriptedMint(t *testing.T) {
	s := inProcess(t)
	s.emu.Inject(brelliumtest.OpTokenCreate,
		brelliumtest.Status(502, "BAD_GATEWAY").Times(2),
		brelliumtest.Status(403, "access_denied"),
		brelliumtest.Respond(403, "application/json", `{"error":"access_denied"}`),
		brelliumtest.Status(429, "RATE_LIMITED"),
		brelliumtest.Respond(200, "application/json", `{"access_token":"","token_type":"Bearer"}`),
		brelliumtest.DropAfter(),
	)
	s.mint(s.credentials()).requireFailure(t, 502, "BAD_GATEWAY")
	s.mint(s.credentials()).requireFailure(t, 502, "BAD_GATEWAY")
	s.mint(s.credentials()).requireFailure(t, 403, "access_denied")
	assert.JSONEq(t, `{"error":"access_denied"}`, s.mint(s.credentials()).body)
	assert.Equal(t, "10", s.mint(s.credentials()).header.Get("Retry-After"))
	assert.Contains(t, s.mint(s.credentials()).body, `"access_token":""`)
	_, err := s.try(s.request("POST", "/v2/oauth/token", s.credentials()))
	require.ErrorIs(t, err, io.EOF)
	for range 14 { // the scripted 429 was not charged, the other attempts were
		require.Equal(t, 200, s.mint(s.credentials()).status)
	}
	s.mint(s.credentials()).requireFailure(t, 429, "RATE_LIMITED")
}

func TestScriptedResponseWaitsWhileTheEmulatorRejects(t *testing.T) {
	s := inProcess(t, brelliumtest.WithRateLimit(1, 0.001))
	s.emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(503, "UNAVAILABLE"))
	s.emu.SetRemaining(0)
	s.get(sample).requireFailure(t, 429, "RATE_LIMITED")
	s.do("GET", sample, "", "Authorization:").requireFailure(t, 401, "UNAUTHORIZED")
	assert.Equal(t, 1, s.emu.PendingFaults(brelliumtest.OpAuditRetrieve))
	s.emu.SetRemaining(1)
	s.get(sample).requireFailure(t, 503, "UNAVAILABLE")
	assert.Zero(t, s.emu.PendingFaults(brelliumtest.OpAuditRetrieve))
}

func TestBareAndHTML(t *testing.T) {
	both(t, func(t *testing.T, s *session) {
		s.emu.Inject(brelliumtest.OpAuditUpdate,
			brelliumtest.Bare(413), brelliumtest.HTML(502), brelliumtest.Blocked(), brelliumtest.HTML(504).AfterWork())
		patch := func() reply { return s.do("PATCH", sample, `{"flags":["New"]}`) }
		r := patch()
		r.requireBare(t, 413)
		assert.Empty(t, r.body)
		assert.Empty(t, r.header.Get("Content-Type"))
		r = patch()
		r.requireBare(t, 502)
		assert.Contains(t, r.header.Get("Content-Type"), "text/html")
		assert.Contains(t, r.body, "<html>")
		patch().requireBare(t, 403)
		assert.Equal(t, 100, s.emu.Remaining(), "it never reached the API")
		flags, _ := s.emu.AuditFlags(brelliumtest.SampleAuditID)
		assert.Equal(t, "Failed", flags[0])
		patch().requireBare(t, 504)
		flags, _ = s.emu.AuditFlags(brelliumtest.SampleAuditID)
		assert.Equal(t, "New", flags[0])
	}, brelliumtest.WithRateLimit(100, 0.001))
}

func TestRespond(t *testing.T) {
	both(t, func(t *testing.T, s *session) {
		s.emu.Inject(brelliumtest.OpUserCreate,
			brelliumtest.Respond(200, "text/html", "<p>hello</p>"),
			brelliumtest.Respond(400, "application/json", "{"),
			brelliumtest.Respond(200, "", ""))
		r := s.do("POST", "/v2/users", `{"email":"a@example.test"}`)
		assert.Equal(t, "<p>hello</p>", r.body)
		assert.Equal(t, "text/html", r.header.Get("Content-Type"))
		assert.NotEmpty(t, r.header.Get("X-Request-Id"))
		assert.Len(t, s.emu.Users(), 1, "a 2xx runs the operation")
		r = s.do("POST", "/v2/users", `{"email":"b@example.test"}`)
		assert.Equal(t, "{", r.body)
		assert.Len(t, s.emu.Users(), 1)
		r = s.do("POST", "/v2/users", `{"email":"c@example.test"}`)
		assert.Empty(t, r.body)
		assert.Empty(t, r.header.Get("Content-Type"))
	})
}

func TestRedirect(t *testing.T) {
	both(t, func(t *testing.T, s *session) {
		s.emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Redirect(302, "https://elsewhere.example.test/x"))
		r := s.get(sample)
		assert.Equal(t, 302, r.status)
		assert.Equal(t, "https://elsewhere.example.test/x", r.header.Get("Location"))
	})
}

func TestLargeBody(t *testing.T) {
	both(t, func(t *testing.T, s *session) {
		s.emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.LargeBody(500, 8<<20))
		resp, err := s.http.Do(s.request("GET", sample, ""))
		require.NoError(t, err)
		defer resp.Body.Close()
		assert.Equal(t, 500, resp.StatusCode)
		assert.Equal(t, int64(8<<20), resp.ContentLength)
		n, err := io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
		assert.Equal(t, int64(8<<20), n)
	})
}

func TestDrops(t *testing.T) {
	for name, c := range map[string]struct {
		fault  brelliumtest.Fault
		worked bool
		target error
	}{
		"before":       {brelliumtest.DropBefore(), false, io.EOF},
		"before reset": {brelliumtest.DropBefore().AsReset(), false, syscall.ECONNRESET},
		"after":        {brelliumtest.DropAfter(), true, io.EOF},
		"after reset":  {brelliumtest.DropAfter().AsReset(), true, syscall.ECONNRESET},
		"reading":      {brelliumtest.DropReading(), false, syscall.ECONNRESET},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, s *session) {
				s.emu.Inject(brelliumtest.OpUserCreate, c.fault)
				_, err := s.try(s.request("POST", "/v2/users", `{"email":"a@example.test"}`))
				require.ErrorIs(t, err, c.target)
				requests := s.emu.Requests(brelliumtest.OpUserCreate)
				require.Len(t, requests, 1)
				assert.Equal(t, c.worked, requests[0].Worked)
				assert.Equal(t, c.worked, len(s.emu.Users()) == 1)
				assert.Equal(t, 201, s.do("POST", "/v2/users", `{"email":"b@example.test"}`).status)
			})
		})
	}
}

func TestNeverSent(t *testing.T) {
	s := inProcess(t)
	s.emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.NeverSent(), brelliumtest.Unsent())
	_, err := s.try(s.request("GET", sample, ""))
	var dial *net.OpError
	require.ErrorAs(t, err, &dial)
	assert.Equal(t, "dial", dial.Op)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	_, err = s.try(s.request("GET", sample, ""))
	require.ErrorIs(t, err, syscall.EPIPE)
	assert.Zero(t, s.emu.Count(brelliumtest.OpAny))
	assert.Empty(t, s.emu.Requests())
	assert.Equal(t, 200, s.get(sample).status)

	s = onPort(t)
	s.emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.NeverSent())
	_, err = s.try(s.request("GET", sample, ""))
	require.Error(t, err)
	assert.Zero(t, s.emu.Count(brelliumtest.OpAny))
}

func TestTruncatedBodies(t *testing.T) {
	both(t, func(t *testing.T, s *session) {
		whole := s.get(sample).body
		s.emu.Inject(brelliumtest.OpAuditRetrieve,
			brelliumtest.OK().Truncated(),
			brelliumtest.OK().ResetInBody(),
			brelliumtest.Status(500, "BROKEN").Truncated())
		r, err := s.try(s.request("GET", sample, ""))
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		assert.Equal(t, whole[:len(whole)/2], r.body)
		r, err = s.try(s.request("GET", sample, ""))
		require.ErrorIs(t, err, syscall.ECONNRESET)
		assert.Equal(t, 200, r.status)
		assert.True(t, strings.HasPrefix(whole, r.body))
		r, err = s.try(s.request("GET", sample, ""))
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		assert.Equal(t, 500, r.status)
	})
}

func TestGzip(t *testing.T) {
	both(t, func(t *testing.T, s *session) {
		whole := s.get(sample).body
		s.emu.Inject(brelliumtest.OpAuditRetrieve,
			brelliumtest.OK().Gzipped(), brelliumtest.OK().GzipTruncated(),
			brelliumtest.OK().Gzipped(), brelliumtest.OK().Gzipped())

		// Without an Accept-Encoding header, the body is decoded.
		resp, err := s.http.Do(s.request("GET", sample, ""))
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		resp.Body.Close()
		assert.Equal(t, whole, string(body))
		assert.True(t, resp.Uncompressed)
		assert.Empty(t, resp.Header.Get("Content-Encoding"))
		assert.Equal(t, int64(-1), resp.ContentLength)

		_, err = s.try(s.request("GET", sample, ""))
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)

		resp, err = s.http.Do(s.request("GET", sample, "", "Accept-Encoding: gzip"))
		require.NoError(t, err)
		assert.Equal(t, "gzip", resp.Header.Get("Content-Encoding"))
		z, err := gzip.NewReader(resp.Body)
		require.NoError(t, err)
		body, err = io.ReadAll(z)
		require.NoError(t, err)
		resp.Body.Close()
		assert.Equal(t, whole, string(body))

		r := s.do("GET", sample, "", "Accept-Encoding: identity")
		assert.Equal(t, whole, r.body, "not compressed unless accepted")
	})
}

func TestStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inProcess(t)
		s.emu.Inject(brelliumtest.OpAuditUpdate,
			brelliumtest.StallHeaders(0), brelliumtest.StallHeaders(3*time.Second),
			brelliumtest.OK().StallInBody(0), brelliumtest.OK().StallInBody(5*time.Second))
		patch := func(flag string, timeout time.Duration) (reply, time.Duration, error) {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			start := time.Now()
			r, err := s.try(s.request("PATCH", sample, `{"flags":["`+flag+`"]}`).WithContext(ctx))
			return r, time.Since(start), err
		}
		_, took, err := patch("A", 10*time.Second)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 10*time.Second, took)
		flags, _ := s.emu.AuditFlags(brelliumtest.SampleAuditID)
		assert.Equal(t, "A", flags[0], "the operation ran")

		r, took, err := patch("B", 10*time.Second)
		require.NoError(t, err)
		assert.Equal(t, 200, r.status)
		assert.Equal(t, 3*time.Second, took)

		r, took, err = patch("C", 10*time.Second)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 200, r.status)
		assert.NotEmpty(t, r.body)
		assert.Equal(t, 10*time.Second, took)

		r, took, err = patch("D", 10*time.Second)
		require.NoError(t, err)
		assert.Contains(t, r.body, `"flags":["D"]`)
		assert.Equal(t, 5*time.Second, took)
	})
}

func TestStallsOnAPort(t *testing.T) {
	s := onPort(t)
	s.emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.StallHeaders(0), brelliumtest.OK().StallInBody(0))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := s.try(s.request("GET", sample, "").WithContext(ctx))
	require.ErrorIs(t, err, context.DeadlineExceeded)

	resp, err := s.http.Do(s.request("GET", sample, ""))
	require.NoError(t, err)
	defer resp.Body.Close()
	_, err = io.ReadFull(resp.Body, make([]byte, 100))
	require.NoError(t, err)
	s.emu.Close() // ends the stalled request too
	_, err = io.ReadAll(resp.Body)
	require.Error(t, err)
}

func TestCloseEndsStalledExchanges(t *testing.T) {
	s := onPort(t)
	s.emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.StallHeaders(0))
	failed := make(chan error, 1)
	go func() {
		_, err := s.try(s.request("GET", sample, ""))
		failed <- err
	}()
	require.Eventually(t, func() bool { return s.emu.Count(brelliumtest.OpAuditRetrieve) == 1 }, 5*time.Second, time.Millisecond)
	s.emu.Close()
	require.Error(t, <-failed)
	s.emu.Close()
}

func TestDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inProcess(t)
		start := time.Now()
		s.emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.OK().Delay(time.Second).DelayResponse(2*time.Second))
		require.Equal(t, 200, s.get(sample).status)
		assert.Equal(t, 3*time.Second, time.Since(start))

		for _, f := range []brelliumtest.Fault{brelliumtest.OK().Delay(time.Minute), brelliumtest.OK().DelayResponse(time.Minute)} {
			s.emu.ClearRequests()
			s.emu.Inject(brelliumtest.OpAuditRetrieve, f)
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(errTest) })
			_, err := s.try(s.request("GET", sample, "").WithContext(ctx))
			require.ErrorIs(t, err, errTest)
			require.Len(t, s.emu.Requests(), 1)
		}
		assert.True(t, s.emu.Requests()[0].Worked, "canceled after the operation ran")
	})
}

var errTest = errors.New("canceled by the test")

func TestSlowRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inProcess(t)
		target := *s.create(first)[0].UploadURL
		s.emu.Inject(brelliumtest.OpDocumentPut, brelliumtest.OK().SlowRead(10*time.Second))
		content := strings.Repeat("x", 1<<20)
		start := time.Now()
		require.Equal(t, 200, s.do("PUT", target, content).status)
		assert.InDelta(t, 10, time.Since(start).Seconds(), 0.1)
		assert.Equal(t, sum(content), s.emu.Documents()[0].SHA256)

		s.emu.Inject(brelliumtest.OpDocumentPut, brelliumtest.OK().SlowRead(10*time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start = time.Now()
		_, err := s.try(s.request("PUT", target, content).WithContext(ctx))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(start))
		assert.Equal(t, 1, s.emu.Documents()[0].Puts)
	})
}

func TestContextUnblocksABodyRead(t *testing.T) {
	s := inProcess(t)
	target := *s.create(first)[0].UploadURL
	r, w := io.Pipe()
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "PUT", target, r)
	require.NoError(t, err)
	req.ContentLength = 10
	go func() {
		_, _ = w.Write([]byte("12345"))
		cancel()
	}()
	_, err = s.try(req)
	require.ErrorIs(t, err, context.Canceled)
}

func TestStorageFaults(t *testing.T) {
	both(t, func(t *testing.T, s *session) {
		target := *s.create(first)[0].UploadURL
		s.emu.Inject(brelliumtest.OpDocumentPut,
			brelliumtest.Status(503, "SlowDown").WithMessage("Reduce <your> request rate"),
			brelliumtest.DropReading(),
			brelliumtest.HTML(502),
			brelliumtest.Status(500, "InternalError").AfterWork())
		s.do("PUT", target, "x").requireXML(t, 503, "SlowDown", "Reduce &lt;your&gt; request rate")
		_, err := s.try(s.request("PUT", target, strings.Repeat("x", 1<<20)))
		require.Error(t, err)
		assert.Equal(t, 502, s.do("PUT", target, "x").status)
		assert.False(t, s.emu.Documents()[0].Arrived)
		s.do("PUT", target, "x").requireXML(t, 500, "InternalError", "")
		assert.True(t, s.emu.Documents()[0].Arrived)
		assert.Equal(t, 4, s.emu.Count(brelliumtest.OpDocumentPut))
	})
}

func TestRevokedToken(t *testing.T) {
	both(t, func(t *testing.T, s *session) {
		s.emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.RevokedToken())
		s.get(sample).requireFailure(t, 401, "UNAUTHORIZED")
		s.get(sample).requireFailure(t, 401, "UNAUTHORIZED")
		s.token = s.emu.IssueToken()
		require.Equal(t, 200, s.get(sample).status)
		assert.Equal(t, 99, s.emu.Remaining())
	}, brelliumtest.WithRateLimit(100, 0.001))
}

func TestOtherWorker(t *testing.T) {
	both(t, func(t *testing.T, s *session) {
		s.emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.OtherWorker(60), brelliumtest.OtherWorker(60))
		require.Equal(t, "39", s.get(sample).header.Get("RateLimit-Remaining"))
		s.get(sample).requireFailure(t, 429, "RATE_LIMITED")
	}, brelliumtest.WithRateLimit(100, 0.001))
}

func TestScriptOrder(t *testing.T) {
	s := inProcess(t)
	only := func(r *brelliumtest.Request) bool { return strings.Contains(r.RawQuery, "only") }
	s.emu.Inject(brelliumtest.OpAny, brelliumtest.Status(500, "ANY"))
	s.emu.Inject(brelliumtest.OpAuditList, brelliumtest.Status(501, "ONLY").When(only).Forever(), brelliumtest.Status(503, "LIST"))
	status := func(path string) int { return s.get(path).status }
	assert.Equal(t, 503, status("/v2/audits"))
	assert.Equal(t, 501, status("/v2/audits?only=1"))
	assert.Equal(t, 500, status("/v2/audits"), "the script for any operation comes last")
	assert.Equal(t, 200, status("/v2/audits"))
	assert.Equal(t, 501, status("/v2/audits?only=1"))
	assert.Equal(t, -1, s.emu.PendingFaults(brelliumtest.OpAuditList))
	s.emu.ClearFaults()
	assert.Equal(t, 200, status("/v2/audits?only=1"))

	s.emu.Inject(brelliumtest.OpAny, brelliumtest.OK().Times(0), brelliumtest.Bare(500))
	assert.Equal(t, 500, status("/v2/audits"))
}

func TestSometimes(t *testing.T) {
	failures := func(p float64) (n int) {
		s := inProcess(t, brelliumtest.WithRateLimit(1e6, 1))
		s.emu.Inject(brelliumtest.OpAny, brelliumtest.Status(503, "UNAVAILABLE").Forever().Sometimes(p))
		for range 1000 {
			if s.get(sample).status == 503 {
				n++
			}
		}
		return n
	}
	assert.Zero(t, failures(0))
	assert.Equal(t, 1000, failures(1))
	n := failures(0.05)
	assert.InDelta(t, 50, n, 25)
	assert.Equal(t, n, failures(0.05), "the same with the same seed")
}

func TestFaultIsAValue(t *testing.T) {
	base := brelliumtest.Status(500, "ONE").WithHeader("X-One", "1")
	a, b := base.WithHeader("X-Two", "a").WithMessage("a"), base.WithHeader("X-Two", "b").WithMessage("b")
	s := inProcess(t)
	s.emu.Inject(brelliumtest.OpAuditRetrieve, a, b, base)
	for _, want := range []string{"a", "b", ""} {
		r := s.get(sample)
		assert.Equal(t, want, r.header.Get("X-Two"))
		assert.Equal(t, "1", r.header.Get("X-One"))
		if want != "" {
			assert.Equal(t, want, r.requireFailure(t, 500, "ONE").Error.Message)
		}
	}
}

func TestLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inProcess(t, brelliumtest.WithSeed(3), brelliumtest.WithLatency(func(r *rand.Rand) time.Duration {
			return 100*time.Millisecond + time.Duration(r.Int64N(int64(100*time.Millisecond)))
		}))
		var all []time.Duration
		for range 20 {
			start := time.Now()
			require.Equal(t, 200, s.get(sample).status)
			took := time.Since(start)
			require.True(t, took >= 99*time.Millisecond && took < 200*time.Millisecond, took)
			requests := s.emu.Requests()
			arrived := requests[len(requests)-1].Arrived
			require.InDelta(t, took.Seconds()/2, arrived.Sub(start).Seconds(), 0.001, "half before the request, half after")
			all = append(all, took)
		}
		assert.NotEqual(t, all[0], all[1])

		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err := s.try(s.request("GET", sample, "").WithContext(ctx))
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestParseFault(t *testing.T) {
	operation, fault, err := brelliumtest.ParseFault("users.create=503,code=UNAVAILABLE,retry-after=7,times=2,delay=1ms")
	require.NoError(t, err)
	assert.Equal(t, brelliumtest.OpUserCreate, operation)
	assert.Equal(t, brelliumtest.Status(503, "UNAVAILABLE").WithHeader("Retry-After", "7").Times(2).DelayResponse(time.Millisecond), fault)
	for _, text := range []string{"", "nothing=503", "users.create", "users.create=99", "users.create=503,times=0", "users.create=503,chance=2", "users.create=503,odd=1"} {
		_, _, err := brelliumtest.ParseFault(text)
		assert.Error(t, err, "%q", text)
	}
}
