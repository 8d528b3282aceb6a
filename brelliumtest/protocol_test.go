package brelliumtest_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go/brelliumtest"
)

func TestMintedTokenWorks(t *testing.T) {
	both(t, func(t *testing.T, s *session) {
		r := s.mint(s.credentials())
		require.Equal(t, 200, r.status, r.body)
		require.Equal(t, "application/json", r.header.Get("Content-Type"))
		require.Empty(t, r.header.Get("RateLimit-Limit"), "a mint is not an authenticated request")
		var token struct {
			AccessToken string `json:"access_token"`
			TokenType   string `json:"token_type"`
			ExpiresIn   int    `json:"expires_in"`
		}
		r.into(t, &token)
		assert.Equal(t, "Bearer", token.TokenType)
		assert.Equal(t, 3600, token.ExpiresIn)

		s.token = token.AccessToken
		require.Equal(t, 200, s.get(sample).status)
		assert.Equal(t, 99, s.emu.Remaining(), "a token request is not charged")
	})
}

func TestMintErrors(t *testing.T) {
	both(t, func(t *testing.T, s *session) {
		s.mint(`{"grant_type":"client_credentials","client_id":"x","client_secret":"y"}`).requireFailure(t, 401, "invalid_client")
		s.mint(strings.Replace(s.credentials(), "client_credentials", "password", 1)).requireFailure(t, 400, "unsupported_grant_type")
		s.mint(`{`).requireFailure(t, 400, "INVALID_REQUEST")
		s.mint(s.credentials(), "Content-Type: application/x-www-form-urlencoded").requireFailure(t, 400, "INVALID_CONTENT_TYPE")
		s.mint(s.credentials(), "Content-Type:").requireFailure(t, 400, "INVALID_CONTENT_TYPE")
		r := s.do("GET", "/v2/oauth/token", "", "Authorization:")
		r.requireFailure(t, 405, "METHOD_NOT_ALLOWED")
		assert.Equal(t, "POST", r.header.Get("Allow"))
	})
}

func TestSecondKeyPairSharesTheRateLimit(t *testing.T) {
	s := inProcess(t, brelliumtest.WithCredentials("id-1", "secret-1"))
	s.emu.AddCredentials("id-2", "secret-2")
	for range 20 {
		require.Equal(t, 200, s.mint(s.credentials()).status)
	}
	s.mint(s.credentials()).requireFailure(t, 429, "RATE_LIMITED")
	r := s.mint(`{"grant_type":"client_credentials","client_id":"id-2","client_secret":"secret-2"}`)
	require.Equal(t, 200, r.status, "each client id has its own limit")
	require.Equal(t, 200, s.get(sample).status)
	require.Equal(t, 99, s.emu.Remaining())
}

func TestMintLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inProcess(t)
		for range 20 {
			require.Equal(t, 200, s.mint(s.credentials()).status)
		}
		r := s.mint(s.credentials())
		r.requireFailure(t, 429, "RATE_LIMITED")
		assert.Equal(t, "10", r.header.Get("Retry-After"))
		assert.Equal(t, "20", r.header.Get("RateLimit-Limit"))
		assert.Equal(t, "0", r.header.Get("RateLimit-Remaining"))
		assert.Equal(t, "10", r.header.Get("RateLimit-Reset"))
		time.Sleep(6500 * time.Millisecond)
		assert.Equal(t, "4", s.mint(s.credentials()).header.Get("Retry-After"), "rounded up")
		time.Sleep(3500 * time.Millisecond)
		require.Equal(t, 200, s.mint(s.credentials()).status, "one every 10 seconds")
		s.mint(s.credentials()).requireFailure(t, 429, "RATE_LIMITED")
	})
}

func TestTokensExpireAndAreRevoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inProcess(t, brelliumtest.WithTokenLifetime(90*time.Second))
		require.Contains(t, s.mint(s.credentials()).body, `"expires_in":90`)
		require.Equal(t, 200, s.get(sample).status)
		time.Sleep(90*time.Second - time.Nanosecond)
		require.Equal(t, 200, s.get(sample).status)
		time.Sleep(time.Nanosecond)
		s.get(sample).requireFailure(t, 401, "UNAUTHORIZED")

		s.token = s.emu.IssueToken()
		require.Equal(t, 200, s.get(sample).status)
		s.emu.RevokeTokens()
		s.get(sample).requireFailure(t, 401, "UNAUTHORIZED")
	})
}

func TestUnauthorizedIsNotChargedAndHasNoRateLimitHeaders(t *testing.T) {
	both(t, func(t *testing.T, s *session) {
		for _, auth := range []string{"", "Bearer", "Bearer nonsense", "Basic Zm9v"} {
			r := s.do("GET", sample, "", "Authorization: "+auth)
			r.requireFailure(t, 401, "UNAUTHORIZED")
			for _, name := range []string{"RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"} {
				assert.Empty(t, r.header.Get(name))
			}
		}
		// The token is checked before anything else.
		s.do("POST", "/v2/users", "{}", "Authorization:", "Content-Type: text/plain").requireFailure(t, 401, "UNAUTHORIZED")
		s.do("GET", "/v2/nothing", "", "Authorization:").requireFailure(t, 401, "UNAUTHORIZED")
		assert.Equal(t, 100, s.emu.Remaining())
	})
}

func TestRateLimitHeaders(t *testing.T) {
	both(t, func(t *testing.T, s *session) {
		r := s.get(sample)
		require.Equal(t, 200, r.status)
		assert.Equal(t, "100", r.header.Get("RateLimit-Limit"))
		assert.Equal(t, "99", r.header.Get("RateLimit-Remaining"))
		assert.Equal(t, "0", r.header.Get("RateLimit-Reset"))
		assert.Len(t, r.header.Get("X-Request-Id"), 36)
		assert.Empty(t, r.header.Get("Retry-After"))
	}, brelliumtest.WithRateLimit(100, 0.001))
}

func TestErrorsCostOneToken(t *testing.T) {
	both(t, func(t *testing.T, s *session) {
		replies := []reply{
			s.get("/v2/audits/nobody"),
			s.get("/v2/nothing"),
			s.get("/v2/audits?limit=0"),
			s.do("POST", "/v2/users", "{", "Content-Type: application/json"),
			s.do("PUT", "/v2/users", ""),
			s.do("POST", "/v2/users", "{}", "Content-Type: text/plain"),
		}
		for i, want := range []int{404, 404, 400, 400, 405, 400} {
			assert.Equal(t, want, replies[i].status)
			assert.Equal(t, string("9876543210"[i]), replies[i].header.Get("RateLimit-Remaining"))
		}
	}, brelliumtest.WithRateLimit(10, 0.001))
}

func TestBurstThenRateLimited(t *testing.T) {
	both(t, func(t *testing.T, s *session) {
		for range 100 {
			require.Equal(t, 200, s.get(sample).status)
		}
		r := s.get(sample)
		f := r.requireFailure(t, 429, "RATE_LIMITED")
		assert.Equal(t, "rate_limit_error", f.Error.Type)
		assert.Equal(t, "0", r.header.Get("RateLimit-Remaining"))
		assert.Equal(t, "100", r.header.Get("RateLimit-Limit"))
		assert.NotEmpty(t, r.header.Get("Retry-After"))
		assert.Equal(t, r.header.Get("Retry-After"), r.header.Get("RateLimit-Reset"))
	}, brelliumtest.WithRateLimit(100, 0.001))
}

func TestBucketInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inProcess(t)
		for range 100 {
			require.Equal(t, 200, s.get(sample).status)
		}
		r := s.get(sample)
		r.requireFailure(t, 429, "RATE_LIMITED")
		require.Equal(t, "1", r.header.Get("Retry-After"))
		require.Equal(t, "1", r.header.Get("RateLimit-Reset"))
		for range 50 {
			time.Sleep(200*time.Millisecond - time.Microsecond)
			require.Equal(t, 429, s.get(sample).status, "a 429 is not charged")
			time.Sleep(time.Microsecond)
			require.Equal(t, 200, s.get(sample).status, "exactly 5 per second")
		}
		time.Sleep(time.Minute)
		require.Equal(t, 100, s.emu.Remaining(), "the bucket does not overflow")
	})
}

func TestBucketCanBeChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inProcess(t, brelliumtest.WithRateLimit(50, 2.5), brelliumtest.WithRateLimitLevel(2))
		require.Equal(t, "1", s.get(sample).header.Get("RateLimit-Remaining"))
		require.Equal(t, "50", s.get(sample).header.Get("RateLimit-Limit"))
		s.get(sample).requireFailure(t, 429, "RATE_LIMITED")
		time.Sleep(400 * time.Millisecond)
		require.Equal(t, 200, s.get(sample).status)

		s.emu.SetRateLimit(200, 0.1)
		r := s.get(sample)
		require.Equal(t, "10", r.header.Get("Retry-After"))
		require.Equal(t, "200", r.header.Get("RateLimit-Limit"))
		s.emu.SetRemaining(1)
		require.True(t, s.emu.Spend())
		require.False(t, s.emu.Spend())
	})
}

func TestEmulatorMadeOutsideABubble(t *testing.T) {
	emu := brelliumtest.New(brelliumtest.WithRateLimit(2, 5))
	require.True(t, emu.Spend())
	synctest.Test(t, func(t *testing.T) { // where the time is the year 2000
		require.True(t, emu.Spend())
		require.False(t, emu.Spend())
		time.Sleep(200 * time.Millisecond)
		require.True(t, emu.Spend())
	})
}

func TestContentTypeOfBodies(t *testing.T) {
	both(t, func(t *testing.T, s *session) {
		for _, contentType := range []string{"", "text/plain", "application/x-www-form-urlencoded", "application/jsonp", "json"} {
			s.do("POST", "/v2/users", `{"email":"casey@example.test"}`, "Content-Type: "+contentType).
				requireFailure(t, 400, "INVALID_CONTENT_TYPE")
			s.do("PATCH", sample, `{"flags":[]}`, "Content-Type: "+contentType).
				requireFailure(t, 400, "INVALID_CONTENT_TYPE")
		}
		assert.Empty(t, s.emu.Users(), "nothing changed")
		flags, _ := s.emu.AuditFlags(brelliumtest.SampleAuditID)
		assert.Equal(t, []string{"Failed", "Missing Signature"}, flags)

		for _, contentType := range []string{"application/json", "Application/JSON", `application/json; charset="utf-8"`} {
			r := s.do("PATCH", sample, `{"flags":["Failed"]}`, "Content-Type: "+contentType)
			assert.Equal(t, 200, r.status, contentType)
		}
	})
}

func TestGatewayErrors(t *testing.T) {
	both(t, func(t *testing.T, s *session) {
		require.Equal(t, 200, s.get("/v2/audits?limit=1&x="+strings.Repeat("a", 2048-len("limit=1&x="))).status)
		s.get("/v2/audits?limit=1&x="+strings.Repeat("a", 2049-len("limit=1&x="))).requireBare(t, 403)
		s.get("/v2/audits/"+strings.Repeat("a", 9000)).requireBare(t, 414)
		s.do("GET", sample, "", "X-Large: "+strings.Repeat("a", 20_000)).requireBare(t, 431)
		s.do("PATCH", sample, `{"flags":["`+strings.Repeat("a", 10<<20)+`"]}`).requireBare(t, 413)
		flags, _ := s.emu.AuditFlags(brelliumtest.SampleAuditID)
		assert.Equal(t, []string{"Failed", "Missing Signature"}, flags)
	})
}

func TestUnknownPathsAndMethods(t *testing.T) {
	both(t, func(t *testing.T, s *session) {
		for _, path := range []string{
			"/", "/v2", "/v2/", "/v1/audits", "/v2/audit", "/v2/audits/", "/v2/audits/a/b", "/v2//audits", "/v2/nothing/x", "/v2/oauth/other",
		} {
			s.get(path).requireFailure(t, 404, "NOT_FOUND")
		}
		for _, c := range []struct{ method, path, allow string }{
			{"DELETE", "/v2/audits", "GET"},
			{"POST", sample, "GET, PATCH"},
			{"GET", "/v2/audits/batch_update", "POST"},
			{"PUT", "/v2/documents", "GET, POST"},
			{"DELETE", "/v2/documents/x", "GET"},
			{"PATCH", "/v2/users/x", "GET, DELETE"},
			{"DELETE", "/v2/email_recipients/x", "GET"},
		} {
			r := s.do(c.method, c.path, "")
			r.requireFailure(t, 405, "METHOD_NOT_ALLOWED")
			assert.Equal(t, c.allow, r.header.Get("Allow"), c.path)
		}
	})
}

func TestHead(t *testing.T) {
	both(t, func(t *testing.T, s *session) {
		r := s.do("HEAD", sample, "")
		assert.Equal(t, 200, r.status)
		assert.Empty(t, r.body)
		assert.Equal(t, "100", r.header.Get("RateLimit-Limit"))
	})
}

func TestBasePath(t *testing.T) {
	both(t, func(t *testing.T, s *session) {
		require.True(t, strings.HasSuffix(s.base, "/brellium"))
		require.Equal(t, 200, s.get(sample).status)
		require.Equal(t, 200, s.mint(s.credentials()).status)
		assert.Equal(t, 1, s.emu.Count(brelliumtest.OpTokenCreate))
		assert.Equal(t, "/brellium"+sample, s.emu.Requests(brelliumtest.OpAuditRetrieve)[0].Path)
	}, brelliumtest.WithBasePath("/brellium/"))
}

func TestRequestsAreRecorded(t *testing.T) {
	both(t, func(t *testing.T, s *session) {
		s.get("/v2/users/a%2Fb%20c%252F?x=1")
		s.do("PATCH", sample, `{"flags":["Failed"]}`, "X-Mine: yes")
		s.mint(s.credentials())
		s.do("GET", sample, "", "Authorization: Bearer nonsense")

		all := s.emu.Requests()
		require.Len(t, all, 4)
		first := all[0]
		assert.Equal(t, brelliumtest.OpUserRetrieve, first.Operation)
		assert.Equal(t, "/v2/users/a%2Fb%20c%252F", first.Path)
		assert.Equal(t, "x=1", first.RawQuery)
		assert.Equal(t, 404, first.Status)
		assert.Equal(t, s.token, first.Token)
		assert.True(t, first.Spent)
		assert.True(t, first.Worked)
		assert.False(t, first.Arrived.IsZero())

		patch := s.emu.Requests(brelliumtest.OpAuditUpdate)
		require.Len(t, patch, 1)
		assert.Equal(t, `{"flags":["Failed"]}`, string(patch[0].Body))
		assert.Equal(t, int64(20), patch[0].ContentLength)
		assert.Equal(t, int64(20), patch[0].BodySize)
		assert.Equal(t, "yes", patch[0].Header.Get("X-Mine"))
		assert.Len(t, patch[0].RequestID, 36)

		assert.False(t, all[2].Spent)
		assert.True(t, all[2].Worked)
		assert.Equal(t, 401, all[3].Status)
		assert.False(t, all[3].Spent)
		assert.False(t, all[3].Worked)

		assert.Equal(t, 4, s.emu.Count(brelliumtest.OpAny))
		assert.Equal(t, 1, s.emu.Count(brelliumtest.OpUserRetrieve))
		s.emu.ClearRequests()
		assert.Empty(t, s.emu.Requests())
		assert.Zero(t, s.emu.Count(brelliumtest.OpAny))
	})
}

func TestRecordLimit(t *testing.T) {
	for limit, want := range map[int]int{0: 0, 3: 3, 50: 20} {
		s := inProcess(t, brelliumtest.WithRecordLimit(limit))
		for range 19 {
			s.get(sample)
		}
		s.get("/v2/users")
		requests := s.emu.Requests()
		require.Len(t, requests, want)
		if want > 0 {
			assert.Equal(t, brelliumtest.OpUserList, requests[want-1].Operation)
		}
		assert.Equal(t, 19, s.emu.Count(brelliumtest.OpAuditRetrieve))
		assert.Equal(t, 19, s.emu.CountStatus(brelliumtest.OpAuditRetrieve, 200))
		assert.Equal(t, 20, s.emu.CountStatus(brelliumtest.OpAny, 200))
		assert.Zero(t, s.emu.CountStatus(brelliumtest.OpAny, 429))
	}
}
