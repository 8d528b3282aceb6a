package brellium_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

// bubble runs a test in virtual time, with an emulator and a client of it.
func bubble(t *testing.T, name string, test func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client), opts ...brellium.ClientOption) {
	t.Helper()
	run := func(t *testing.T) {
		emu := brelliumtest.New()
		client, err := emu.Client(opts...)
		require.NoError(t, err)
		test(t, emu, client)
	}
	if name == "" {
		synctest.Test(t, run)
		return
	}
	t.Run(name, func(t *testing.T) { synctest.Test(t, run) })
}

func retrieve(ctx context.Context, client *brellium.Client, opts ...brellium.CallOption) error {
	_, err := client.Audits.Retrieve(ctx, brelliumtest.SampleAuditID, opts...)
	return err
}

func createUser(ctx context.Context, client *brellium.Client, opts ...brellium.CallOption) error {
	_, err := client.Users.Create(ctx, brellium.UserCreateParams{Email: "casey@example.test"}, opts...)
	return err
}

// refusal is a 429 with this Retry-After.
func refusal(retryAfter string) brelliumtest.Fault {
	return brelliumtest.Status(429, "RATE_LIMITED").WithHeader("Retry-After", retryAfter)
}

// hashicorp/go-retryablehttp#144, hashicorp/go-retryablehttp#138
func TestARetryAfterMayBeADate(t *testing.T) {
	for _, form := range []string{http.TimeFormat, "Monday, 02-Jan-06 15:04:05 GMT", time.ANSIC} {
		bubble(t, form, func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
			emu.Inject(brelliumtest.OpAuditRetrieve, refusal(time.Now().UTC().Add(2*time.Second).Format(form)))
			start := time.Now()
			require.NoError(t, retrieve(t.Context(), client))
			assert.Equal(t, 2, emu.Count(brelliumtest.OpAuditRetrieve))
			assert.GreaterOrEqual(t, time.Since(start), 2*time.Second)
			assert.LessOrEqual(t, time.Since(start), 2500*time.Millisecond)
		}, brellium.WithoutRateLimiter())
	}
	bubble(t, "past", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAuditRetrieve, refusal(time.Now().UTC().Add(-10*time.Second).Format(http.TimeFormat)))
		start := time.Now()
		require.NoError(t, retrieve(t.Context(), client))
		assert.Equal(t, 2, emu.Count(brelliumtest.OpAuditRetrieve))
		assert.LessOrEqual(t, time.Since(start), 2*time.Second)
	}, brellium.WithoutRateLimiter())
}

func TestAnUnusableRetryAfterFallsBackToResetOrASecond(t *testing.T) {
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
		bubble(t, tc.name, func(t *testing.T, _ *brelliumtest.Emulator, _ *brellium.Client) {
			var sent []time.Time
			client := newClient(t, brellium.WithoutRateLimiter(), brellium.WithHTTPClient(&http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
				sent = append(sent, time.Now())
				header := http.Header{}
				if len(sent) > 1 {
					return reply(200, header, `{"audit_id":"a"}`), nil
				}
				if tc.retryAfter != "" {
					header.Set("Retry-After", tc.retryAfter)
				}
				if tc.reset != "" {
					header.Set("RateLimit-Remaining", "0")
					header.Set("RateLimit-Reset", tc.reset)
				}
				return reply(429, header, ""), nil
			})}))
			require.NoError(t, retrieve(t.Context(), client))
			require.Len(t, sent, 2)
			assert.GreaterOrEqual(t, sent[1].Sub(sent[0]), tc.atLeast)
			assert.LessOrEqual(t, sent[1].Sub(sent[0]), tc.atLeast+500*time.Millisecond)
		})
	}
}

// reply is an answer of a transport.
func reply(status int, header http.Header, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: header, Body: readCloser{strings.NewReader(body)}, ContentLength: int64(len(body))}
}

type readCloser struct{ *strings.Reader }

func (readCloser) Close() error { return nil }

// openai/openai-python#3555, earendil-works/pi#6912
func TestAWaitBeyondTheTotalTimeIsNotBegun(t *testing.T) {
	for _, retryAfter := range []string{"120", "59.999", "99999999999999999999", "Fri, 31 Dec 9999 23:59:59 GMT"} {
		bubble(t, retryAfter, func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
			emu.Inject(brelliumtest.OpAuditRetrieve, refusal(retryAfter).Forever(), brelliumtest.OK().Delay(5*time.Millisecond))
			start := time.Now()
			err := retrieve(t.Context(), client, brellium.WithTotalTimeout(59*time.Second))
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

// homeylab/tdarr-exporter#105, hetznercloud/hcloud-go#814
func TestAWaitBeyondTheCallersDeadlineIsNotBegun(t *testing.T) {
	bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAuditRetrieve, refusal("5").Forever())
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		start := time.Now()
		err := retrieve(ctx, client)
		assert.Zero(t, time.Since(start))
		assert.Equal(t, 1, emu.Count(brelliumtest.OpAuditRetrieve))
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		var exhausted *brellium.RetriesExhaustedError
		require.ErrorAs(t, err, &exhausted)
		assert.Equal(t, brellium.ExhaustedDeadline, exhausted.Reason)
		isAPIError(429, brellium.CodeRateLimited)(t, err)
	})
}

// go-resty/resty#777, TestSprite/testsprite-cli#103. Every operation meets
// these and more in TestEveryOperationUnderEveryFailure.
func TestOnlyWritesThatDoNoHarmAreRepeated(t *testing.T) {
	for _, c := range callers {
		for name, fault := range map[string]brelliumtest.Fault{"503": brelliumtest.Status(503, "UNAVAILABLE"), "dropped": brelliumtest.DropBefore()} {
			bubble(t, c.String()+"/"+name, func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
				emu.Inject(c.op, fault.Forever())
				err := c.call(t.Context(), client)
				if !c.repeatable {
					assert.Equal(t, 1, emu.Count(c.op))
					assert.True(t, brellium.OutcomeUnknown(err))
				} else {
					assert.Greater(t, emu.Count(c.op), 1)
				}
				// A client-wide number never lifts the zero of a harmful one.
				emu.ClearRequests()
				client, err = emu.Client(brellium.WithMaxRetries(2))
				require.NoError(t, err)
				require.Error(t, c.call(t.Context(), client))
				want := 3
				if !c.repeatable {
					want = 1
				}
				assert.Equal(t, want, emu.Count(c.op))
				// On the call it is the caller's word, but for a mint.
				emu.ClearRequests()
				err = c.call(t.Context(), client, brellium.WithMaxRetries(1))
				require.Error(t, err)
				if c.op != opToken {
					assert.Equal(t, 2, emu.Count(c.op))
					assert.Equal(t, c.write, brellium.OutcomeUnknown(err))
				}
			})
		}
	}
}

// bdd/runitor#181, cloudevents/sdk-go#751
func TestEveryAttemptCarriesTheWholeBody(t *testing.T) {
	bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
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
	bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(503, "UNAVAILABLE").Forever())
		var resp brellium.Response
		err := retrieve(t.Context(), client, brellium.WithMaxRetries(100), brellium.WithTotalTimeout(0), brellium.WithResponseInto(&resp))
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
func TestTheLastAnswerSurvivesWhenRetriesRunOut(t *testing.T) {
	bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(503, "UNAVAILABLE").Times(5))
		var resp brellium.Response
		start := time.Now()
		err := retrieve(t.Context(), client, brellium.WithResponseInto(&resp))
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
func TestTheAttemptTimeoutIsNotTheCallersDeadline(t *testing.T) {
	slow := brelliumtest.OK().DelayResponse(400 * time.Millisecond)
	bubble(t, "attempt timeout of a read", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAuditRetrieve, slow)
		require.NoError(t, retrieve(t.Context(), client, brellium.WithAttemptTimeout(100*time.Millisecond)))
		assert.Equal(t, 2, emu.Count(brelliumtest.OpAuditRetrieve))
	})
	bubble(t, "caller's deadline", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAuditRetrieve, slow)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		err := retrieve(ctx, client, brellium.WithAttemptTimeout(5*time.Second))
		assert.Equal(t, 1, emu.Count(brelliumtest.OpAuditRetrieve))
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		var exhausted *brellium.RetriesExhaustedError
		assert.False(t, errors.As(err, &exhausted))
		assert.False(t, brellium.IsTransient(err))
	})
	bubble(t, "attempt timeout of a write", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpUserCreate, slow)
		err := createUser(t.Context(), client, brellium.WithAttemptTimeout(100*time.Millisecond))
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
	bubble(t, "total time within an attempt", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.StallHeaders(0).Forever())
		start := time.Now()
		err := retrieve(t.Context(), client)
		assert.Equal(t, time.Minute, time.Since(start))
		assert.Equal(t, 2, emu.Count(brelliumtest.OpAuditRetrieve))
		var exhausted *brellium.RetriesExhaustedError
		require.ErrorAs(t, err, &exhausted)
		assert.Equal(t, brellium.ExhaustedTotalTime, exhausted.Reason)
		isConnectionError(true)(t, err)
	})
}

// sourcegraph/sourcegraph-public-snapshot#54554, mpfaffenberger/code_puppy#317
func TestAttemptsDoNotMultiply(t *testing.T) {
	down := brelliumtest.Status(503, "UNAVAILABLE").Forever()
	bubble(t, "503", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAuditRetrieve, down)
		require.Error(t, retrieve(t.Context(), client))
		assert.Equal(t, 5, emu.Count(brelliumtest.OpAuditRetrieve))
		assert.Equal(t, 1, emu.Count(opToken))
	})
	bubble(t, "401, then 503", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(401, "UNAUTHORIZED"), down)
		require.Error(t, retrieve(t.Context(), client))
		assert.Equal(t, 6, emu.Count(brelliumtest.OpAuditRetrieve))
		assert.Equal(t, 2, emu.Count(opToken))
	})
	bubble(t, "401 in between", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(503, "UNAVAILABLE"), brelliumtest.Status(401, "UNAUTHORIZED"),
			brelliumtest.Status(503, "UNAVAILABLE"), brelliumtest.Status(401, "UNAUTHORIZED"), down)
		err := retrieve(t.Context(), client)
		isAPIError(401, "UNAUTHORIZED")(t, err)
		assert.Equal(t, 4, emu.Count(brelliumtest.OpAuditRetrieve), "the second 401 is final")
		assert.Equal(t, 2, emu.Count(opToken))
	})
	bubble(t, "refusals and failures have budgets of their own", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(503, "UNAVAILABLE").Times(4), refusal("0.01").Times(9), brelliumtest.OK())
		require.NoError(t, retrieve(t.Context(), client, brellium.WithTotalTimeout(0)))
		assert.Equal(t, 14, emu.Count(brelliumtest.OpAuditRetrieve))
	})
	bubble(t, "an explicit number caps the sum", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAuditRetrieve, refusal("0.01"), brelliumtest.Status(503, "UNAVAILABLE"), refusal("0.01").Forever())
		var exhausted *brellium.RetriesExhaustedError
		require.ErrorAs(t, retrieve(t.Context(), client, brellium.WithMaxRetries(2)), &exhausted)
		assert.Equal(t, 3, exhausted.Attempts)
		assert.Equal(t, 3, emu.Count(brelliumtest.OpAuditRetrieve))
	})
}

// MicrosoftDocs/architecture-center#4274, linkedin/brooklin#495
func TestACreateIsSentAgainOnlyAfterARefusal(t *testing.T) {
	bubble(t, "429 then 201", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpUserCreate, refusal("1"))
		require.NoError(t, createUser(t.Context(), client))
		assert.Equal(t, 2, emu.Count(brelliumtest.OpUserCreate))
		assert.Equal(t, 1, emu.Invitations("casey@example.test"))
	})
	bubble(t, "refused connection, then 201", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpUserCreate, brelliumtest.NeverSent(), brelliumtest.Unsent())
		require.NoError(t, createUser(t.Context(), client))
		assert.Equal(t, 1, emu.Count(brelliumtest.OpUserCreate))
	})
	for _, f := range []struct {
		code      brellium.ErrorCode
		status    int
		transient bool
	}{{brellium.CodeInvitationPending, 409, false}, {brellium.CodeUserExists, 409, false}, {brellium.CodeInviteFailed, 502, true}} {
		bubble(t, string(f.code), func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
			emu.Inject(brelliumtest.OpUserCreate, brelliumtest.Status(f.status, string(f.code)).Forever())
			err := createUser(t.Context(), client)
			assert.Equal(t, 1, emu.Count(brelliumtest.OpUserCreate))
			isAPIError(f.status, f.code)(t, err)
			assert.False(t, brellium.OutcomeUnknown(err), "the answer says itself what became of it")
			assert.Equal(t, f.transient, brellium.IsTransient(err))
		})
	}
}

// aiven/terraform-provider-aiven#2594, zededa/terraform-provider-zedcloud#216
func TestADeleteWhoseAnswerWasLostIsASuccess(t *testing.T) {
	remove := func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client, faults ...brelliumtest.Fault) (int, error) {
		user, err := client.Users.Create(t.Context(), brellium.UserCreateParams{Email: "casey@example.test"})
		require.NoError(t, err)
		emu.Inject(brelliumtest.OpUserDelete, faults...)
		err = client.Users.Delete(t.Context(), user.UserID)
		return emu.Count(brelliumtest.OpUserDelete), err
	}
	for name, faults := range map[string][]brelliumtest.Fault{
		"answer lost, then 404":          {brelliumtest.DropAfter()},
		"503 after the work, then 404":   {brelliumtest.Status(503, "UNAVAILABLE").AfterWork()},
		"REVOKE_FAILED, then 204":        {brelliumtest.RevokeFailed()},
		"REVOKE_FAILED, then gone":       {brelliumtest.RevokeFailed().AfterWork()},
		"answer lost, then 429, then OK": {brelliumtest.DropAfter(), refusal("1")},
	} {
		bubble(t, name, func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
			n, err := remove(t, emu, client, faults...)
			require.NoError(t, err)
			assert.Equal(t, len(faults)+1, n)
			assert.Empty(t, emu.Users())
		})
	}
	bubble(t, "404 at once", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		assert.ErrorIs(t, client.Users.Delete(t.Context(), someID), brellium.ErrNotFound)
	})
	bubble(t, "404 after what never ran", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpUserDelete, brelliumtest.NeverSent(), refusal("1"), brelliumtest.Status(401, "UNAUTHORIZED"))
		err := client.Users.Delete(t.Context(), someID)
		assert.ErrorIs(t, err, brellium.ErrNotFound)
		assert.False(t, brellium.OutcomeUnknown(err))
	})
	bubble(t, "REVOKE_FAILED to the end", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		n, err := remove(t, emu, client, brelliumtest.RevokeFailed().Forever())
		assert.Equal(t, 5, n)
		isAPIError(502, brellium.CodeRevokeFailed)(t, err)
		assert.False(t, brellium.OutcomeUnknown(err), "the user is still there")
	})
}

// TestWhatMayHaveRunIsNotForgotten: once an attempt may have run, no later
// failure of the same call makes that certain again.
func TestWhatMayHaveRunIsNotForgotten(t *testing.T) {
	for name, later := range map[string]brelliumtest.Fault{
		"never sent":   brelliumtest.NeverSent().Forever(),
		"429":          refusal("1").Forever(),
		"400":          brelliumtest.Status(400, "INVALID"),
		"409":          brelliumtest.Status(409, "USER_EXISTS"),
		"401":          brelliumtest.Status(401, "UNAUTHORIZED").Forever(),
		"bare 403":     brelliumtest.Blocked(),
		"too long":     refusal("3600"),
		"its own code": brelliumtest.Status(502, "INVITE_FAILED").Forever(),
	} {
		bubble(t, name, func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
			emu.Inject(brelliumtest.OpUserCreate, brelliumtest.DropAfter(), later)
			err := createUser(t.Context(), client, brellium.WithMaxRetries(2))
			require.Error(t, err)
			assert.True(t, brellium.OutcomeUnknown(err), "%v", err)
			assert.Contains(t, err.Error(), "outcome unknown")
		})
	}
	bubble(t, "cancelled in the wait", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpUserCreate, brelliumtest.DropAfter(), refusal("30"))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Second, cancel)
		err := createUser(ctx, client, brellium.WithMaxRetries(2))
		assert.ErrorIs(t, err, context.Canceled)
		assert.True(t, brellium.OutcomeUnknown(err))
		isAPIError(429, brellium.CodeRateLimited)(t, err)
	})
	bubble(t, "no token for the repeat", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpUserCreate, brelliumtest.DropAfter(), brelliumtest.Status(401, "UNAUTHORIZED"))
		require.NoError(t, retrieve(t.Context(), client))
		emu.Inject(opToken, brelliumtest.Status(400, "invalid_client").Forever())
		err := createUser(t.Context(), client, brellium.WithMaxRetries(2))
		isAPIError(400, "invalid_client")(t, err)
		assert.True(t, brellium.OutcomeUnknown(err))
		err = retrieve(t.Context(), client)
		isAPIError(400, "invalid_client")(t, err)
		assert.False(t, brellium.OutcomeUnknown(err), "what one call knows is not told to another")
	})
}

// TestACancelledWaitEndsAtOnce in every place where a call can wait, and leaves
// nothing behind: the bubble ends only once no goroutine or timer is left.
func TestACancelledWaitEndsAtOnce(t *testing.T) {
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
	bubble(t, "before a repeat", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAuditRetrieve, refusal("30"))
		err := cancelAfter(t, 10*time.Second, func(ctx context.Context) error { return retrieve(ctx, client) })
		isAPIError(429, brellium.CodeRateLimited)(t, err)
		wait, ok := brellium.RetryAfter(err)
		assert.True(t, ok)
		assert.Equal(t, 30*time.Second, wait)
	})
	bubble(t, "for the rate limit", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		require.NoError(t, retrieve(t.Context(), client))
		err := cancelAfter(t, time.Second, func(ctx context.Context) error { return retrieve(ctx, client) })
		assert.Contains(t, err.Error(), "after 0 attempts")
		assert.False(t, brellium.OutcomeUnknown(err))
		assert.Equal(t, 1, emu.Count(brelliumtest.OpAuditRetrieve))
	}, brellium.WithRateLimit(1, 0.01))
	bubble(t, "for a free place", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.OK().Delay(10*time.Second))
		other := make(chan error)
		go func() { other <- retrieve(t.Context(), client) }()
		synctest.Wait()
		_ = cancelAfter(t, time.Second, func(ctx context.Context) error { return retrieve(ctx, client) })
		require.NoError(t, <-other)
		require.NoError(t, retrieve(t.Context(), client), "the place is free again")
	}, brellium.WithMaxConcurrency(1), brellium.WithoutRateLimiter())
	bubble(t, "for a token", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(opToken, brelliumtest.OK().Delay(5*time.Second))
		_ = cancelAfter(t, time.Second, func(ctx context.Context) error { return retrieve(ctx, client) })
		require.NoError(t, retrieve(t.Context(), client), "the mint goes on for others")
		assert.Equal(t, 1, emu.Count(opToken))
	})
	bubble(t, "already ended", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := retrieve(ctx, client)
		assert.ErrorIs(t, err, context.Canceled)
		assert.Zero(t, emu.Count(brelliumtest.OpAny))
	})
}

// TestTheQueueIsFreeOfTheTotalTimeBeforeTheFirstAttemptOnly pins the clock's
// start: it is the first byte sent, and later waits count.
func TestTheQueueIsFreeOfTheTotalTimeBeforeTheFirstAttemptOnly(t *testing.T) {
	bubble(t, "before", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		require.NoError(t, retrieve(t.Context(), client))
		start := time.Now()
		require.NoError(t, retrieve(t.Context(), client))
		assert.GreaterOrEqual(t, time.Since(start), 99*time.Second)
	}, brellium.WithRateLimit(1, 0.01))
	bubble(t, "between", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(503, "UNAVAILABLE").Forever())
		start := time.Now()
		err := retrieve(t.Context(), client)
		assert.Less(t, time.Since(start), time.Minute, "a token that comes too late is not waited for")
		var exhausted *brellium.RetriesExhaustedError
		require.ErrorAs(t, err, &exhausted)
		assert.Equal(t, brellium.ExhaustedTotalTime, exhausted.Reason)
		assert.Equal(t, 1, exhausted.Attempts)
		isAPIError(503, "UNAVAILABLE")(t, err)
	}, brellium.WithRateLimit(1, 0.01))
	bubble(t, "between, with a deadline", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(503, "UNAVAILABLE").Forever())
		ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
		defer cancel()
		err := retrieve(ctx, client)
		var exhausted *brellium.RetriesExhaustedError
		require.ErrorAs(t, err, &exhausted)
		assert.Equal(t, brellium.ExhaustedDeadline, exhausted.Reason)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
	}, brellium.WithRateLimit(1, 0.01))
	bubble(t, "deadline before the first", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		require.NoError(t, retrieve(t.Context(), client))
		ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
		defer cancel()
		start := time.Now()
		err := retrieve(ctx, client)
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

// limiterFunc is a limiter of the caller's own.
type limiterFunc func(ctx context.Context) (brellium.Permit, error)

func (f limiterFunc) Acquire(ctx context.Context) (brellium.Permit, error) { return f(ctx) }

// permit counts how often it is ended.
type permit struct {
	answers *[]brellium.LimiterResult
}

func (p permit) Done(a brellium.LimiterResult) { *p.answers = append(*p.answers, a) }

func TestALimiterOfTheCallersOwn(t *testing.T) {
	with := func(t *testing.T, acquire limiterFunc, answers ...*http.Response) *brellium.Client {
		return newClient(t, brellium.WithRateLimiter(acquire), brellium.WithMaxConcurrency(1),
			brellium.WithHTTPClient(&http.Client{Transport: roundTripper(func(*http.Request) (*http.Response, error) {
				require.NotEmpty(t, answers, "a request too many")
				resp := answers[0]
				answers = answers[1:]
				return resp, nil
			})}))
	}
	t.Run("fails", func(t *testing.T) {
		broken := errors.New("redis://user:secret@host is down")
		client := with(t, func(context.Context) (brellium.Permit, error) { return nil, broken })
		for range 2 {
			err := createUser(t.Context(), client)
			var e *brellium.ConnectionError
			require.ErrorAs(t, err, &e)
			assert.ErrorIs(t, err, broken)
			assert.Equal(t, "users.create", e.Operation)
			assert.False(t, e.Sent)
			assert.False(t, brellium.OutcomeUnknown(err))
			assert.NotContains(t, err.Error(), "secret")
		}
	})
	t.Run("finds the deadline too near", func(t *testing.T) {
		client := with(t, func(context.Context) (brellium.Permit, error) { return nil, context.DeadlineExceeded })
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var e *brellium.InterruptedError
		require.ErrorAs(t, createUser(ctx, client), &e)
		assert.ErrorIs(t, e, context.DeadlineExceeded)
		assert.Equal(t, "users.create", e.Operation)
	})
	t.Run("panics", func(t *testing.T) {
		calls := 0
		client := with(t, func(context.Context) (brellium.Permit, error) {
			if calls++; calls == 1 {
				panic("limiter")
			}
			return nil, nil
		}, reply(200, nil, `{"audit_id":"a"}`))
		assert.PanicsWithValue(t, "limiter", func() { _ = retrieve(t.Context(), client) })
		require.NoError(t, retrieve(t.Context(), client), "the one place is free again")
	})
	bubble(t, "is told what each attempt said", func(t *testing.T, _ *brelliumtest.Emulator, _ *brellium.Client) {
		var told []brellium.LimiterResult
		var after []bool
		headers := http.Header{"Ratelimit-Limit": {"100"}, "Ratelimit-Remaining": {"41"}, "Ratelimit-Reset": {"0"}}
		client := with(t, func(ctx context.Context) (brellium.Permit, error) {
			after = append(after, brellium.IsRateLimitRetry(ctx))
			return permit{&told}, nil
		}, reply(429, http.Header{"Retry-After": {"2"}}, ""), reply(503, nil, ""), reply(503, headers, ""), reply(200, headers, `{"audit_id":"a"}`))
		require.NoError(t, retrieve(t.Context(), client))
		require.Len(t, told, 4)
		assert.Equal(t, brellium.LimiterResult{Spent: brellium.SpentNo, Refused: true, RetryAfter: 2 * time.Second}, told[0])
		assert.Equal(t, brellium.LimiterResult{}, told[1])
		assert.Equal(t, brellium.SpentYes, told[2].Spent)
		assert.Equal(t, 41, told[3].RateLimit.Remaining)
		assert.Equal(t, []bool{false, true, false, false}, after)
	})
}
