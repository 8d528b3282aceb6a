package brellium_test

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
	"github.com/brellium/brellium-go/internal/testkit"
)

// hashicorp/go-retryablehttp#144, hashicorp/go-retryablehttp#138
func TestRetryAfterMayBeADate(t *testing.T) {
	for _, form := range []string{http.TimeFormat, "Monday, 02-Jan-06 15:04:05 GMT", time.ANSIC} {
		testkit.Bubble(t, form, func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
			emu.Inject(brelliumtest.OpAuditRetrieve, testkit.RateLimited(time.Now().UTC().Add(2*time.Second).Format(form)))
			start := time.Now()
			require.NoError(t, testkit.Retrieve(t.Context(), client))
			assert.Equal(t, 2, emu.Count(brelliumtest.OpAuditRetrieve))
			assert.GreaterOrEqual(t, time.Since(start), 2*time.Second)
			assert.LessOrEqual(t, time.Since(start), 2500*time.Millisecond)
		}, brellium.WithoutRateLimiter())
	}
	testkit.Bubble(t, "past", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAuditRetrieve, testkit.RateLimited(time.Now().UTC().Add(-10*time.Second).Format(http.TimeFormat)))
		start := time.Now()
		require.NoError(t, testkit.Retrieve(t.Context(), client))
		assert.Equal(t, 2, emu.Count(brelliumtest.OpAuditRetrieve))
		assert.LessOrEqual(t, time.Since(start), 2*time.Second)
	}, brellium.WithoutRateLimiter())
}

// Calls that were told to wait for the same time do not all come back at once. After a
// 429 a limiter of this package spreads them itself, and the call is first in line.
func TestWaitsThatTheServerAsksForHaveJitter(t *testing.T) {
	for name, test := range map[string]struct {
		status int
		opts   []brellium.ClientOption
		jitter bool
	}{
		"429":                    {429, nil, false},
		"429, fixed share":       {429, []brellium.ClientOption{brellium.WithRateLimit(100, 100)}, false},
		"429, without a limiter": {429, []brellium.ClientOption{brellium.WithoutRateLimiter()}, true},
		"503":                    {503, nil, true},
		"503, fixed share":       {503, []brellium.ClientOption{brellium.WithRateLimit(100, 100)}, true},
		"503, without a limiter": {503, []brellium.ClientOption{brellium.WithoutRateLimiter()}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				least, most := time.Hour, time.Duration(0)
				for range 100 {
					failed := false
					client := testkit.NewTokenClient(t, append(test.opts, testkit.WithTransport(testkit.RoundTripFunc(func(*http.Request) (*http.Response, error) {
						if !failed {
							failed = true
							return testkit.Reply(test.status, http.Header{"Retry-After": {"5"}}, "{}"), nil
						}
						return testkit.Reply(200, nil, testkit.SampleAudit), nil
					})))...)
					var r brellium.Response
					require.NoError(t, testkit.Retrieve(t.Context(), client, brellium.WithResponseInto(&r)))
					require.Len(t, r.Attempts, 2)
					least, most = min(least, r.Attempts[1].Wait), max(most, r.Attempts[1].Wait)
				}
				assert.GreaterOrEqual(t, least, 5*time.Second)
				assert.LessOrEqual(t, most, 5500*time.Millisecond)
				if test.jitter {
					assert.Greater(t, most-least, 200*time.Millisecond)
				} else {
					assert.Equal(t, 5*time.Second, most)
				}
			})
		})
	}
}

// A wait that would use up the total time, or reach the deadline, is not begun.
func TestWaitThatUsesUpTheTimeIsNotBegun(t *testing.T) {
	for reason, limits := range map[brellium.ExhaustedReason]struct{ total, deadline time.Duration }{
		brellium.ExhaustedTotalTime: {10 * time.Second, time.Hour},
		brellium.ExhaustedDeadline:  {time.Hour, 10 * time.Second},
	} {
		testkit.Bubble(t, string(reason), func(t *testing.T, _ *brelliumtest.Emulator, _ *brellium.Client) {
			client := testkit.NewTokenClient(t, testkit.WithTransport(testkit.RoundTripFunc(func(*http.Request) (*http.Response, error) {
				return testkit.Reply(429, http.Header{"Retry-After": {"10"}}, "{}"), nil
			})))
			ctx, cancel := context.WithTimeout(t.Context(), limits.deadline)
			defer cancel()
			start := time.Now()
			var exhausted *brellium.RetriesExhaustedError
			require.ErrorAs(t, testkit.Retrieve(ctx, client, brellium.WithTotalTimeout(limits.total)), &exhausted)
			assert.Equal(t, reason, exhausted.Reason)
			assert.Equal(t, 1, exhausted.Attempts)
			assert.Zero(t, time.Since(start))
		})
	}
}

func TestInvalidRetryAfterFallsBackToResetOrOneSecond(t *testing.T) {
	for _, tc := range []struct {
		name, retryAfter, reset string
		atLeast                 time.Duration
	}{
		{"none", "", "", time.Second},
		{"zero", "0", "", time.Second},
		{"negative", "-5", "", time.Second},
		{"garbage", "soon", "", time.Second},
		{"reset", "", "7", 7 * time.Second},
		{"reset rather than garbage", "soon", "3", 3 * time.Second},
		{"reset of more than a day", "", "90000", time.Second},
		{"fraction", "1.5", "", 1500 * time.Millisecond},
	} {
		testkit.Bubble(t, tc.name, func(t *testing.T, _ *brelliumtest.Emulator, _ *brellium.Client) {
			var sent []time.Time
			client := testkit.NewTokenClient(t, brellium.WithoutRateLimiter(), testkit.WithTransport(testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
				sent = append(sent, time.Now())
				header := http.Header{}
				if len(sent) > 1 {
					return testkit.Reply(200, header, testkit.SampleAudit), nil
				}
				if tc.retryAfter != "" {
					header.Set("Retry-After", tc.retryAfter)
				}
				if tc.reset != "" {
					header.Set("RateLimit-Remaining", "0")
					header.Set("RateLimit-Reset", tc.reset)
				}
				return testkit.Reply(429, header, ""), nil
			})))
			require.NoError(t, testkit.Retrieve(t.Context(), client))
			require.Len(t, sent, 2)
			assert.GreaterOrEqual(t, sent[1].Sub(sent[0]), tc.atLeast)
			assert.LessOrEqual(t, sent[1].Sub(sent[0]), tc.atLeast+500*time.Millisecond)
		})
	}
}

// openai/openai-python#3555, earendil-works/pi#6912
func TestWaitBeyondTheTotalTimeoutIsNotStarted(t *testing.T) {
	for _, retryAfter := range []string{"120", "59.999", "99999999999999999999", "Fri, 31 Dec 9999 23:59:59 GMT"} {
		testkit.Bubble(t, retryAfter, func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
			emu.Inject(brelliumtest.OpAuditRetrieve, testkit.RateLimited(retryAfter).Forever(), brelliumtest.OK().Delay(5*time.Millisecond))
			start := time.Now()
			err := testkit.Retrieve(t.Context(), client, brellium.WithTotalTimeout(59*time.Second))
			assert.Less(t, time.Since(start), 10*time.Millisecond)
			assert.Equal(t, 1, emu.Count(brelliumtest.OpAuditRetrieve))
			var exhausted *brellium.RetriesExhaustedError
			require.ErrorAs(t, err, &exhausted)
			assert.Equal(t, 1, exhausted.Attempts)
			assert.Equal(t, brellium.ExhaustedTotalTime, exhausted.Reason)
			var apiErr *brellium.APIError
			require.ErrorAs(t, err, &apiErr)
			assert.Equal(t, 429, apiErr.StatusCode)
			assert.Equal(t, brellium.CodeRateLimited, apiErr.Code)
			wait, ok := brellium.RetryAfter(err)
			assert.True(t, ok)
			assert.Greater(t, wait, 59*time.Second)
			if retryAfter == "120" {
				assert.Equal(t, 2*time.Minute, wait)
			}
			assert.NotErrorIs(t, err, context.DeadlineExceeded)
			assert.False(t, brellium.OutcomeUnknown(err))
		})
	}
}

func TestWithoutATotalTimeTheLongestWaitIsFiveMinutes(t *testing.T) {
	testkit.Bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAuditRetrieve, testkit.RateLimited("300"), brelliumtest.OK(), testkit.RateLimited("300.1"))
		start := time.Now()
		require.NoError(t, testkit.Retrieve(t.Context(), client, brellium.WithTotalTimeout(0)))
		assert.InDelta(t, 300, time.Since(start).Seconds(), 1)
		start = time.Now()
		assert.ErrorIs(t, testkit.Retrieve(t.Context(), client, brellium.WithTotalTimeout(0)), brellium.ErrRateLimited)
		assert.Zero(t, time.Since(start))
	}, brellium.WithoutRateLimiter())
}

// homeylab/tdarr-exporter#105, hetznercloud/hcloud-go#814
func TestWaitBeyondTheDeadlineIsNotStarted(t *testing.T) {
	testkit.Bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAuditRetrieve, testkit.RateLimited("5").Forever())
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		start := time.Now()
		err := testkit.Retrieve(ctx, client)
		assert.Zero(t, time.Since(start))
		assert.Equal(t, 1, emu.Count(brelliumtest.OpAuditRetrieve))
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		var exhausted *brellium.RetriesExhaustedError
		require.ErrorAs(t, err, &exhausted)
		assert.Equal(t, brellium.ExhaustedDeadline, exhausted.Reason)
		testkit.IsAPIError(429, brellium.CodeRateLimited)(t, err)
	})
}

// bdd/runitor#181, cloudevents/sdk-go#751
func TestEveryAttemptSendsTheWholeBody(t *testing.T) {
	testkit.Bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAuditUpdate, brelliumtest.Status(503, "UNAVAILABLE"), brelliumtest.DropReading(), brelliumtest.DropAfter())
		_, err := client.Audits.Update(t.Context(), brelliumtest.SampleAuditID, brellium.AuditUpdateParams{Flags: []string{"A", "B", "C"}})
		require.NoError(t, err)
		requests := emu.Requests(brelliumtest.OpAuditUpdate)
		require.Len(t, requests, 4)
		for i, r := range requests {
			if i != 1 { // whose body was cut off on purpose
				assert.Equal(t, `{"flags":["A","B","C"]}`, string(r.Body))
			}
			assert.EqualValues(t, len(requests[0].Body), r.ContentLength)
			assert.Equal(t, "application/json", r.Header.Get("Content-Type"))
			assert.False(t, r.Chunked)
		}
	})
}

// sethvargo/go-retry#12, qdrant/go-client#153, jpillora/backoff#11. The draws
// themselves are tested in internal/wait.
func TestBackoffStaysInRangeOverManyAttempts(t *testing.T) {
	testkit.Bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(503, "UNAVAILABLE").Forever())
		var resp brellium.Response
		err := testkit.Retrieve(t.Context(), client, brellium.WithMaxRetries(100), brellium.WithTotalTimeout(0), brellium.WithResponseInto(&resp))
		require.Error(t, err)
		require.Len(t, resp.Attempts, 101)
		var late []time.Duration
		for i, a := range resp.Attempts {
			switch {
			case i == 0:
				assert.Zero(t, a.Wait)
			case i <= 6:
				assert.LessOrEqual(t, a.Wait, 500*time.Millisecond<<(i-1))
			default:
				assert.LessOrEqual(t, a.Wait, 20*time.Second)
				late = append(late, a.Wait)
			}
			assert.GreaterOrEqual(t, a.Wait, time.Duration(0))
		}
		slices.Sort(late)
		assert.Less(t, late[0], 5*time.Second, "94 draws over 20 s")
		assert.Greater(t, late[len(late)-1], 15*time.Second)
	})
}

// hashicorp/go-retryablehttp#156, sigstore/rekor#2796
func TestExhaustedErrorWrapsTheLastResponse(t *testing.T) {
	testkit.Bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(503, "UNAVAILABLE").Times(5))
		var resp brellium.Response
		start := time.Now()
		err := testkit.Retrieve(t.Context(), client, brellium.WithResponseInto(&resp))
		var exhausted *brellium.RetriesExhaustedError
		require.ErrorAs(t, err, &exhausted)
		assert.Equal(t, "audits.retrieve", exhausted.Operation)
		assert.Equal(t, 5, exhausted.Attempts)
		assert.Equal(t, time.Since(start), exhausted.Elapsed)
		assert.Equal(t, brellium.ExhaustedAttempts, exhausted.Reason)
		var apiErr *brellium.APIError
		require.ErrorAs(t, err, &apiErr)
		assert.Equal(t, 503, apiErr.StatusCode)
		assert.EqualValues(t, "UNAVAILABLE", apiErr.Code)
		requests := emu.Requests(brelliumtest.OpAuditRetrieve)
		assert.Equal(t, requests[4].RequestID, apiErr.RequestID)
		assert.NotEqual(t, requests[3].RequestID, apiErr.RequestID)
		assert.Equal(t, apiErr.RequestID, resp.RequestID)
		assert.Equal(t, 503, resp.StatusCode)
		for i, a := range resp.Attempts {
			assert.Equal(t, i+1, a.Number)
			assert.Equal(t, brellium.VerdictUnknown, a.Verdict)
			assert.Equal(t, "status 503", a.Reason)
			assert.Equal(t, requests[i].RequestID, a.RequestID)
		}
	})
}

// golang/go#50856, golang/go#64449, minio/kms-go#45
func TestAttemptTimeoutIsNotTheCallersDeadline(t *testing.T) {
	slow := brelliumtest.OK().DelayResponse(400 * time.Millisecond)
	testkit.Bubble(t, "attempt timeout of a read", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAuditRetrieve, slow)
		require.NoError(t, testkit.Retrieve(t.Context(), client, brellium.WithAttemptTimeout(100*time.Millisecond)))
		assert.Equal(t, 2, emu.Count(brelliumtest.OpAuditRetrieve))
	})
	testkit.Bubble(t, "caller's deadline", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAuditRetrieve, slow)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		err := testkit.Retrieve(ctx, client, brellium.WithAttemptTimeout(5*time.Second))
		assert.Equal(t, 1, emu.Count(brelliumtest.OpAuditRetrieve))
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		var exhausted *brellium.RetriesExhaustedError
		assert.False(t, errors.As(err, &exhausted))
		assert.False(t, brellium.IsTransient(err))
	})
	testkit.Bubble(t, "attempt timeout of a write", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpUserCreate, slow)
		err := testkit.CreateUser(t.Context(), client, brellium.WithAttemptTimeout(100*time.Millisecond))
		assert.Equal(t, 1, emu.Count(brelliumtest.OpUserCreate))
		assert.True(t, brellium.OutcomeUnknown(err))
		assert.True(t, brellium.IsTransient(err))
		var e *brellium.ConnectionError
		require.ErrorAs(t, err, &e)
		assert.True(t, e.Timeout())
		assert.Equal(t, "the attempt timed out", e.Reason)
		assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
		assert.NotErrorIs(t, err, context.DeadlineExceeded)
	})
	testkit.Bubble(t, "total time within an attempt", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.StallHeaders(0).Forever())
		start := time.Now()
		err := testkit.Retrieve(t.Context(), client)
		assert.Equal(t, time.Minute, time.Since(start))
		assert.Equal(t, 2, emu.Count(brelliumtest.OpAuditRetrieve))
		var exhausted *brellium.RetriesExhaustedError
		require.ErrorAs(t, err, &exhausted)
		assert.Equal(t, brellium.ExhaustedTotalTime, exhausted.Reason)
		testkit.IsConnectionError(true)(t, err)
	})
}

// sourcegraph/sourcegraph-public-snapshot#54554, mpfaffenberger/code_puppy#317
func TestAttemptsDoNotMultiply(t *testing.T) {
	down := brelliumtest.Status(503, "UNAVAILABLE").Forever()
	testkit.Bubble(t, "503", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAuditRetrieve, down)
		require.Error(t, testkit.Retrieve(t.Context(), client))
		assert.Equal(t, 5, emu.Count(brelliumtest.OpAuditRetrieve))
		assert.Equal(t, 1, emu.Count(brelliumtest.OpTokenCreate))
	})
	testkit.Bubble(t, "401, then 503", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(401, "UNAUTHORIZED"), down)
		require.Error(t, testkit.Retrieve(t.Context(), client))
		assert.Equal(t, 6, emu.Count(brelliumtest.OpAuditRetrieve))
		assert.Equal(t, 2, emu.Count(brelliumtest.OpTokenCreate))
	})
	testkit.Bubble(t, "401 in between", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(503, "UNAVAILABLE"), brelliumtest.Status(401, "UNAUTHORIZED"),
			brelliumtest.Status(503, "UNAVAILABLE"), brelliumtest.Status(401, "UNAUTHORIZED"), down)
		err := testkit.Retrieve(t.Context(), client)
		testkit.IsAPIError(401, "UNAUTHORIZED")(t, err)
		assert.Equal(t, 4, emu.Count(brelliumtest.OpAuditRetrieve), "the second 401 is final")
		assert.Equal(t, 2, emu.Count(brelliumtest.OpTokenCreate))
	})
	testkit.Bubble(t, "429s and other failures have separate budgets", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(503, "UNAVAILABLE").Times(4), testkit.RateLimited("0.01").Times(9), brelliumtest.OK())
		require.NoError(t, testkit.Retrieve(t.Context(), client, brellium.WithTotalTimeout(0)))
		assert.Equal(t, 14, emu.Count(brelliumtest.OpAuditRetrieve))
	})
	testkit.Bubble(t, "an explicit number caps the sum", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAuditRetrieve, testkit.RateLimited("0.01"), brelliumtest.Status(503, "UNAVAILABLE"), testkit.RateLimited("0.01").Forever())
		var exhausted *brellium.RetriesExhaustedError
		require.ErrorAs(t, testkit.Retrieve(t.Context(), client, brellium.WithMaxRetries(2)), &exhausted)
		assert.Equal(t, 3, exhausted.Attempts)
		assert.Equal(t, 3, emu.Count(brelliumtest.OpAuditRetrieve))
	})
}

// MicrosoftDocs/architecture-center#4274, linkedin/brooklin#495
func TestCreateUserIsRetriedOnlyIfItDidNotRun(t *testing.T) {
	for name, c := range map[string]struct {
		fault    brelliumtest.Fault
		code     brellium.ErrorCode // "": success
		requests int
		unknown  bool
	}{
		"invitation pending": {brelliumtest.Status(409, "INVITATION_PENDING"), brellium.CodeInvitationPending, 1, false},
		"user exists":        {brelliumtest.Status(409, "USER_EXISTS"), brellium.CodeUserExists, 1, false},
		"invitation failed":  {brelliumtest.InviteFailed(), brellium.CodeInviteFailed, 1, false},
		"bad gateway":        {brelliumtest.Status(502, "BAD_GATEWAY"), brellium.CodeBadGateway, 1, true},
		"rate limited":       {brelliumtest.Status(429, "RATE_LIMITED"), "", 2, false},
		"token revoked":      {brelliumtest.RevokedToken(), "", 2, false},
		"connection refused": {brelliumtest.NeverSent(), "", 1, false}, // the first does not reach the server
	} {
		testkit.Bubble(t, name, func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
			emu.Inject(brelliumtest.OpUserCreate, c.fault)
			user, err := client.Users.Create(t.Context(), brellium.UserCreateParams{Email: ada})
			assert.Equal(t, c.requests, emu.Count(brelliumtest.OpUserCreate))
			if c.code == "" {
				require.NoError(t, err)
				assert.Equal(t, ada, user.Email)
				assert.Equal(t, 1, emu.Invitations(ada))
				return
			}
			var apiErr *brellium.APIError
			require.ErrorAs(t, err, &apiErr)
			assert.Equal(t, c.code, apiErr.Code)
			assert.Equal(t, c.unknown, brellium.OutcomeUnknown(err))
			assert.Nil(t, user)
		})
	}
}

// aiven/terraform-provider-aiven#2594, zededa/terraform-provider-zedcloud#216
func TestDeleteIsASuccessIfGoneAfterARetry(t *testing.T) {
	remove := func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client, faults ...brelliumtest.Fault) (int, error) {
		user, err := client.Users.Create(t.Context(), brellium.UserCreateParams{Email: "casey@example.test"})
		require.NoError(t, err)
		emu.Inject(brelliumtest.OpUserDelete, faults...)
		err = client.Users.Delete(t.Context(), user.UserID)
		return emu.Count(brelliumtest.OpUserDelete), err
	}
	for name, faults := range map[string][]brelliumtest.Fault{
		"response lost, then 404":          {brelliumtest.DropAfter()},
		"502 after the work, then 404":     {brelliumtest.Status(502, "BAD_GATEWAY").AfterWork()},
		"503 after the work, then 404":     {brelliumtest.Status(503, "UNAVAILABLE").AfterWork()},
		"REVOKE_FAILED, then 204":          {brelliumtest.RevokeFailed()},
		"REVOKE_FAILED, then gone":         {brelliumtest.RevokeFailed().AfterWork()},
		"response lost, then 429, then OK": {brelliumtest.DropAfter(), testkit.RateLimited("1")},
	} {
		testkit.Bubble(t, name, func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
			n, err := remove(t, emu, client, faults...)
			require.NoError(t, err)
			assert.Equal(t, len(faults)+1, n)
			assert.Empty(t, emu.Users())
		})
	}
	testkit.Bubble(t, "404 at once", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		assert.ErrorIs(t, client.Users.Delete(t.Context(), brelliumtest.SampleAuditID), brellium.ErrNotFound)
	})
	testkit.Bubble(t, "404 after what never ran", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpUserDelete, brelliumtest.NeverSent(), testkit.RateLimited("1"), brelliumtest.Status(401, "UNAUTHORIZED"))
		err := client.Users.Delete(t.Context(), brelliumtest.SampleAuditID)
		assert.ErrorIs(t, err, brellium.ErrNotFound)
		assert.False(t, brellium.OutcomeUnknown(err))
	})
	testkit.Bubble(t, "REVOKE_FAILED to the end", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		n, err := remove(t, emu, client, brelliumtest.RevokeFailed().Forever())
		assert.Equal(t, 5, n)
		testkit.IsAPIError(502, brellium.CodeRevokeFailed)(t, err)
		assert.False(t, brellium.OutcomeUnknown(err), "the user is still there")
	})
}

// Once an attempt may have run, no later failure of the same call changes that.
func TestOutcomeStaysUnknownAfterLaterFailures(t *testing.T) {
	for name, later := range map[string]brelliumtest.Fault{
		"never sent":   brelliumtest.NeverSent().Forever(),
		"429":          testkit.RateLimited("1").Forever(),
		"400":          brelliumtest.Status(400, "INVALID"),
		"409":          brelliumtest.Status(409, "USER_EXISTS"),
		"401":          brelliumtest.Status(401, "UNAUTHORIZED").Forever(),
		"bare 403":     brelliumtest.Blocked(),
		"too long":     testkit.RateLimited("3600"),
		"its own code": brelliumtest.Status(502, "INVITE_FAILED").Forever(),
	} {
		testkit.Bubble(t, name, func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
			emu.Inject(brelliumtest.OpUserCreate, brelliumtest.DropAfter(), later)
			err := testkit.CreateUser(t.Context(), client, brellium.WithIdempotent(), brellium.WithMaxRetries(2))
			require.Error(t, err)
			assert.True(t, brellium.OutcomeUnknown(err), "%v", err)
			assert.Contains(t, err.Error(), "outcome unknown")
		})
	}
	testkit.Bubble(t, "canceled in the wait", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpUserCreate, brelliumtest.DropAfter(), testkit.RateLimited("30"))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Second, cancel)
		err := testkit.CreateUser(ctx, client, brellium.WithIdempotent(), brellium.WithMaxRetries(2))
		assert.ErrorIs(t, err, context.Canceled)
		assert.True(t, brellium.OutcomeUnknown(err))
		testkit.IsAPIError(429, brellium.CodeRateLimited)(t, err)
	})
}

// The error of a failed token request is shared by every call that waits for the
// token. Only the write that may have run reports an unknown outcome.
func TestOutcomeStaysUnknownAfterAFailedTokenRequest(t *testing.T) {
	for name, fault := range map[string]brelliumtest.Fault{
		"rejected":     brelliumtest.Status(400, "invalid_client"),
		"unauthorized": brelliumtest.Status(401, "UNAUTHORIZED"),
		"500":          brelliumtest.Status(500, "INTERNAL").Forever(),
		"no network":   brelliumtest.NeverSent().Forever(),
		"bare 403":     brelliumtest.Blocked(),
		"HTML":         brelliumtest.HTML(200),
	} {
		testkit.Bubble(t, name, func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
			require.NoError(t, testkit.Retrieve(t.Context(), client))
			emu.Inject(brelliumtest.OpAuditUpdate, brelliumtest.DropAfter(), brelliumtest.RevokedToken().DelayResponse(time.Second))
			emu.Inject(brelliumtest.OpTokenCreate, fault.Delay(time.Second))
			var others [3]error
			var calls sync.WaitGroup
			for i := range others {
				calls.Go(func() {
					for emu.Count(brelliumtest.OpAuditUpdate) < 2 {
						time.Sleep(10 * time.Millisecond)
					}
					time.Sleep(1500 * time.Millisecond) // the token request is in flight
					others[i] = testkit.Retrieve(t.Context(), client)
				})
			}
			_, err := client.Audits.Update(t.Context(), brelliumtest.SampleAuditID, brellium.AuditUpdateParams{Flags: []string{"Failed"}})
			calls.Wait()
			assert.Equal(t, 1, emu.Count(brelliumtest.OpAuditRetrieve), "the others got no token")
			for i, failed := range append(others[:], err) {
				for e := failed; e != nil; e = errors.Unwrap(e) {
					if _, ours := e.(slog.LogValuer); ours { // errors.As finds it
						assert.Equal(t, i == len(others), brellium.OutcomeUnknown(e), "%T of call %d", e, i)
					}
				}
			}
		})
	}
}

// In every place where a call can wait. The bubble ends only when no goroutine or
// timer is left.
func TestCanceledWaitEndsAtOnce(t *testing.T) {
	cancelAfter := func(t *testing.T, d time.Duration, call func(ctx context.Context) error) error {
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("the job was stopped")
		time.AfterFunc(d, func() { cancel(why) })
		start := time.Now()
		err := call(ctx)
		assert.Equal(t, d, time.Since(start))
		assert.ErrorIs(t, err, context.Canceled)
		assert.ErrorIs(t, err, why)
		assert.False(t, brellium.IsTransient(err))
		var e *brellium.InterruptedError
		require.ErrorAs(t, err, &e)
		return err
	}
	testkit.Bubble(t, "before a retry", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAuditRetrieve, testkit.RateLimited("30"))
		err := cancelAfter(t, 10*time.Second, func(ctx context.Context) error { return testkit.Retrieve(ctx, client) })
		testkit.IsAPIError(429, brellium.CodeRateLimited)(t, err)
		wait, ok := brellium.RetryAfter(err)
		assert.True(t, ok)
		assert.Equal(t, 30*time.Second, wait)
	})
	testkit.Bubble(t, "for the rate limit", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		require.NoError(t, testkit.Retrieve(t.Context(), client))
		err := cancelAfter(t, time.Second, func(ctx context.Context) error { return testkit.Retrieve(ctx, client) })
		assert.Contains(t, err.Error(), "after 0 attempts")
		assert.False(t, brellium.OutcomeUnknown(err))
		assert.Equal(t, 1, emu.Count(brelliumtest.OpAuditRetrieve))
	}, brellium.WithRateLimit(1, 0.01))
	testkit.Bubble(t, "for a free place", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.OK().Delay(10*time.Second))
		other := make(chan error)
		go func() { other <- testkit.Retrieve(t.Context(), client) }()
		synctest.Wait()
		_ = cancelAfter(t, time.Second, func(ctx context.Context) error { return testkit.Retrieve(ctx, client) })
		require.NoError(t, <-other)
		require.NoError(t, testkit.Retrieve(t.Context(), client), "the place is free again")
	}, brellium.WithMaxConcurrency(1), brellium.WithoutRateLimiter())
	testkit.Bubble(t, "for a token", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpTokenCreate, brelliumtest.OK().Delay(5*time.Second))
		_ = cancelAfter(t, time.Second, func(ctx context.Context) error { return testkit.Retrieve(ctx, client) })
		require.NoError(t, testkit.Retrieve(t.Context(), client), "the token request goes on for others")
		assert.Equal(t, 1, emu.Count(brelliumtest.OpTokenCreate))
	})
	testkit.Bubble(t, "already ended", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := testkit.Retrieve(ctx, client)
		assert.ErrorIs(t, err, context.Canceled)
		assert.Zero(t, emu.Count(brelliumtest.OpAny))
	})
}

// The wait for the first attempt does not count, later waits do.
func TestTotalTimeoutStartsWithTheFirstAttempt(t *testing.T) {
	testkit.Bubble(t, "before", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		require.NoError(t, testkit.Retrieve(t.Context(), client))
		start := time.Now()
		require.NoError(t, testkit.Retrieve(t.Context(), client))
		assert.GreaterOrEqual(t, time.Since(start), 99*time.Second)
	}, brellium.WithRateLimit(1, 0.01))
	testkit.Bubble(t, "between", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(503, "UNAVAILABLE").Forever())
		start := time.Now()
		err := testkit.Retrieve(t.Context(), client)
		assert.Less(t, time.Since(start), time.Minute, "a token that comes too late is not waited for")
		var exhausted *brellium.RetriesExhaustedError
		require.ErrorAs(t, err, &exhausted)
		assert.Equal(t, brellium.ExhaustedTotalTime, exhausted.Reason)
		assert.Equal(t, 1, exhausted.Attempts)
		testkit.IsAPIError(503, "UNAVAILABLE")(t, err)
	}, brellium.WithRateLimit(1, 0.01))
	testkit.Bubble(t, "between, with a deadline", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(503, "UNAVAILABLE").Forever())
		ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
		defer cancel()
		err := testkit.Retrieve(ctx, client)
		var exhausted *brellium.RetriesExhaustedError
		require.ErrorAs(t, err, &exhausted)
		assert.Equal(t, brellium.ExhaustedDeadline, exhausted.Reason)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
	}, brellium.WithRateLimit(1, 0.01))
	testkit.Bubble(t, "deadline before the first", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		require.NoError(t, testkit.Retrieve(t.Context(), client))
		ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
		defer cancel()
		start := time.Now()
		err := testkit.Retrieve(ctx, client)
		assert.Zero(t, time.Since(start))
		var e *brellium.InterruptedError
		require.ErrorAs(t, err, &e)
		assert.Equal(t, "audits.retrieve", e.Operation)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		wait, ok := brellium.RetryAfter(err)
		assert.True(t, ok)
		assert.InDelta(t, 100, wait.Seconds(), 1)
	}, brellium.WithRateLimit(1, 0.01))
}

// Clients that were rate limited together do not return together.
func TestWaitAfterA429IsSpreadOverHalfASecond(t *testing.T) {
	testkit.Bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		shortest, longest := time.Hour, time.Duration(0)
		for range 40 {
			emu.Inject(brelliumtest.OpAuditRetrieve, testkit.RateLimited("1"))
			var resp brellium.Response
			require.NoError(t, testkit.Retrieve(t.Context(), client, brellium.WithResponseInto(&resp)))
			require.Len(t, resp.Attempts, 2)
			shortest, longest = min(shortest, resp.Attempts[1].Wait), max(longest, resp.Attempts[1].Wait)
		}
		assert.GreaterOrEqual(t, shortest, time.Second, "never earlier than asked")
		assert.Less(t, shortest, 1200*time.Millisecond)
		assert.Greater(t, longest, 1300*time.Millisecond)
		assert.LessOrEqual(t, longest, 1500*time.Millisecond)
	}, brellium.WithoutRateLimiter())
}

// A token that was replaced while a call waited in the queue is not sent.
func TestQueuedCallIsSentWithTheNewestToken(t *testing.T) {
	testkit.Bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		require.NoError(t, testkit.Retrieve(t.Context(), client))
		queued := make(chan error)
		go func() { queued <- testkit.Retrieve(t.Context(), client) }() // for 10 s
		time.Sleep(5 * time.Second)
		emu.RevokeTokens()
		_, err := client.OAuth.CreateToken(t.Context())
		require.NoError(t, err)
		require.NoError(t, <-queued)
		assert.Equal(t, 2, emu.Count(brelliumtest.OpAuditRetrieve), "the call was sent with the token of before the queue")
	}, brellium.WithRateLimit(1, 0.1))
}

func TestRequestIDIsTheHeadersBeforeTheBodys(t *testing.T) {
	for _, header := range []string{"of-the-header", ""} {
		client := testkit.NewStubClient(t, func(*http.Request) (*http.Response, error) {
			return testkit.Reply(404, http.Header{"X-Request-Id": {header}}, `{"error":{"code":"NOT_FOUND","message":"m","request_id":"of-the-body"}}`), nil
		})
		var e *brellium.APIError
		require.ErrorAs(t, testkit.Retrieve(t.Context(), client), &e)
		assert.Equal(t, cmp.Or(header, "of-the-body"), e.RequestID)
	}
}
