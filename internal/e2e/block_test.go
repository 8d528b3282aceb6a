package e2e_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
	"github.com/brellium/brellium-go/internal/testkit"
)

// blocked checks that err is a *BlockedError.
func blocked(t *testing.T, err error) *brellium.BlockedError {
	t.Helper()
	var e *brellium.BlockedError
	require.ErrorAs(t, err, &e)
	assert.False(t, brellium.IsTransient(err))
	assert.False(t, brellium.OutcomeUnknown(err))
	return e
}

// cloudflare/workers-sdk#13574, NERSC/sfapi_client#15
func TestBare403IsABlock(t *testing.T) {
	for name, fault := range map[string]brelliumtest.Fault{
		"page": brelliumtest.Blocked(), "empty": brelliumtest.Bare(403), "text": brelliumtest.Respond(403, "text/plain", "no"),
		"string": brelliumtest.Respond(403, "application/json", `"forbidden"`), "list": brelliumtest.Respond(403, "application/json", `[]`),
		"half an object": brelliumtest.Respond(403, "application/json", `{"error":`),
	} {
		testkit.Bubble(t, name, func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
			require.NoError(t, testkit.Retrieve(t.Context(), client))
			emu.Inject(brelliumtest.OpAuditRetrieve, fault.WithHeader("Retry-After", ""))
			start := time.Now()
			e := blocked(t, testkit.Retrieve(t.Context(), client))
			assert.Zero(t, time.Since(start))
			assert.Equal(t, "audits.retrieve", e.Operation)
			assert.Zero(t, e.RetryAt)
			_, ok := brellium.RetryAfter(e)
			assert.False(t, ok)
			assert.Equal(t, 2, emu.Count(brelliumtest.OpAuditRetrieve))
			require.NoError(t, testkit.Retrieve(t.Context(), client))
			assert.Equal(t, 1, emu.Count(brelliumtest.OpTokenCreate), "the token is kept")
			requests := emu.Requests(brelliumtest.OpAuditRetrieve)
			assert.Equal(t, requests[0].Token, requests[2].Token)
		})
	}
	for name, body := range map[string]string{"envelope": `{"error":{"code":"access_denied"}}`, "no envelope": `{"message":"Forbidden"}`, "byte-order mark": "\ufeff {}\n"} {
		testkit.Bubble(t, "not: "+name, func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
			emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Respond(403, "text/html", body).Times(3))
			for range 3 {
				err := testkit.Retrieve(t.Context(), client)
				testkit.IsAPIError(403, "")(t, err)
				var e *brellium.BlockedError
				assert.False(t, errors.As(err, &e))
			}
			require.NoError(t, testkit.Retrieve(t.Context(), client))
		})
	}
}

// A block that lasts: watch, stop, a probe, twice the cooldown, up to its limit, and
// the end.
func TestBlockStopsTheClientForACooldown(t *testing.T) {
	testkit.Bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		require.NoError(t, testkit.Retrieve(t.Context(), client))
		emu.Inject(brelliumtest.OpAny, brelliumtest.Blocked().Forever())
		assert.Zero(t, blocked(t, testkit.Retrieve(t.Context(), client)).RetryAt)
		for _, minutes := range []float64{0.5, 1, 2, 4, 8, 10, 10} {
			cooldown := time.Duration(minutes * float64(time.Minute))
			before := emu.Count(brelliumtest.OpAny)
			e := blocked(t, testkit.Retrieve(t.Context(), client))
			assert.Equal(t, before+1, emu.Count(brelliumtest.OpAny), "one request probes")
			assert.Equal(t, time.Now().Add(cooldown), e.RetryAt)
			wait, ok := brellium.RetryAfter(e)
			assert.True(t, ok)
			assert.Equal(t, cooldown, wait)

			time.Sleep(cooldown - 1)
			for range 3 { // nothing is sent for any call
				assert.Equal(t, e.RetryAt, blocked(t, testkit.CreateUser(t.Context(), client)).RetryAt)
			}
			_, err := client.OAuth.CreateToken(t.Context())
			assert.Equal(t, "oauth.token", blocked(t, err).Operation)
			assert.Equal(t, before+1, emu.Count(brelliumtest.OpAny))
			time.Sleep(time.Nanosecond)
		}
		emu.ClearFaults()
		require.NoError(t, testkit.Retrieve(t.Context(), client))
		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Blocked().Times(2))
		assert.Zero(t, blocked(t, testkit.Retrieve(t.Context(), client)).RetryAt, "it starts over")
		assert.Equal(t, time.Now().Add(30*time.Second), blocked(t, testkit.Retrieve(t.Context(), client)).RetryAt)
	}, brellium.WithoutRateLimiter())
}

func TestOtherCallsFailFastDuringAProbe(t *testing.T) {
	stopped := func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		require.NoError(t, testkit.Retrieve(t.Context(), client))
		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Blocked().Times(2))
		blocked(t, testkit.Retrieve(t.Context(), client))
		blocked(t, testkit.Retrieve(t.Context(), client))
		time.Sleep(30 * time.Second)
		emu.ClearRequests()
	}
	testkit.Bubble(t, "and go on once it is through", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		stopped(t, emu, client)
		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.OK().Delay(5*time.Second))
		probe := make(chan error)
		go func() { probe <- testkit.Retrieve(t.Context(), client) }()
		synctest.Wait()
		for range 5 {
			blocked(t, testkit.Retrieve(t.Context(), client))
		}
		require.NoError(t, <-probe)
		require.NoError(t, testkit.Retrieve(t.Context(), client))
		assert.Equal(t, 2, emu.Count(brelliumtest.OpAuditRetrieve))
	}, brellium.WithoutRateLimiter())
	testkit.Bubble(t, "after a probe without a response the next call probes", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		stopped(t, emu, client)
		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.DropBefore(), brelliumtest.NeverSent())
		require.NoError(t, testkit.Retrieve(t.Context(), client), "its own retries are the next probes")
		require.NoError(t, testkit.Retrieve(t.Context(), client))
	}, brellium.WithoutRateLimiter())
	testkit.Bubble(t, "after a canceled probe the next call probes", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		stopped(t, emu, client)
		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.StallHeaders(0))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.ErrorIs(t, testkit.Retrieve(ctx, client), context.DeadlineExceeded)
		require.NoError(t, testkit.Retrieve(t.Context(), client))
	}, brellium.WithoutRateLimiter())
	testkit.Bubble(t, "any other response ends it", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		stopped(t, emu, client)
		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(404, "NOT_FOUND"))
		assert.ErrorIs(t, testkit.Retrieve(t.Context(), client), brellium.ErrNotFound)
		require.NoError(t, testkit.Retrieve(t.Context(), client))
	}, brellium.WithoutRateLimiter())
	testkit.Bubble(t, "a probe may request a token", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		stopped(t, emu, client)
		time.Sleep(2 * time.Hour) // the token has expired
		require.NoError(t, testkit.Retrieve(t.Context(), client))
		assert.Equal(t, 1, emu.Count(brelliumtest.OpTokenCreate))
	}, brellium.WithoutRateLimiter())
	testkit.Bubble(t, "a token request alone is no probe", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		stopped(t, emu, client)
		_, err := client.OAuth.CreateToken(t.Context())
		require.NoError(t, err)
		require.NoError(t, testkit.Retrieve(t.Context(), client))
	}, brellium.WithoutRateLimiter())
	testkit.Bubble(t, "a block of its token request counts", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		stopped(t, emu, client)
		time.Sleep(2 * time.Hour)
		emu.Inject(brelliumtest.OpTokenCreate, brelliumtest.Blocked())
		e := blocked(t, testkit.Retrieve(t.Context(), client))
		assert.Equal(t, time.Now().Add(time.Minute), e.RetryAt)
		assert.Zero(t, emu.Count(brelliumtest.OpAuditRetrieve))
		time.Sleep(time.Minute)
		require.NoError(t, testkit.Retrieve(t.Context(), client))
	}, brellium.WithoutRateLimiter())
}

// A firewall that rejects a request for its content rejects it each time, and not
// the others.
func TestRequestThatIsAlwaysBlockedStopsNoOther(t *testing.T) {
	testkit.Bubble(t, "one after the other", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpUserCreate, brelliumtest.Blocked().Forever())
		for range 20 {
			assert.Zero(t, blocked(t, testkit.CreateUser(t.Context(), client)).RetryAt)
			require.NoError(t, testkit.Retrieve(t.Context(), client))
		}
		assert.Equal(t, 20, emu.Count(brelliumtest.OpUserCreate))
	}, brellium.WithoutRateLimiter())
	testkit.Bubble(t, "concurrent", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		require.NoError(t, testkit.Retrieve(t.Context(), client))
		emu.Inject(brelliumtest.OpUserCreate, brelliumtest.Blocked().DelayResponse(10*time.Millisecond))
		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.OK().Delay(20*time.Millisecond).Forever())
		var calls sync.WaitGroup
		var most, now atomic.Int32
		for range 30 {
			calls.Go(func() {
				most.Store(max(most.Load(), now.Add(1)))
				defer now.Add(-1)
				assert.NoError(t, testkit.Retrieve(t.Context(), client))
			})
		}
		assert.Zero(t, blocked(t, testkit.CreateUser(t.Context(), client)).RetryAt)
		for range 30 {
			calls.Go(func() { assert.NoError(t, testkit.Retrieve(t.Context(), client)) })
		}
		calls.Wait()
		assert.Equal(t, 61, emu.Count(brelliumtest.OpAuditRetrieve))
	}, brellium.WithoutRateLimiter())
}

// Requests that were in flight when a block began count as the same block.
func TestCallsGoOneAtATimeAfterABlock(t *testing.T) {
	testkit.Bubble(t, "blocks in flight count once", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		require.NoError(t, testkit.Retrieve(t.Context(), client))
		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Blocked().DelayResponse(time.Second).Times(10))
		var calls sync.WaitGroup
		for range 10 {
			calls.Go(func() { assert.Zero(t, blocked(t, testkit.Retrieve(t.Context(), client)).RetryAt) })
		}
		calls.Wait()
		require.NoError(t, testkit.Retrieve(t.Context(), client))
	}, brellium.WithoutRateLimiter())
	testkit.Bubble(t, "one at a time, until the first is through", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		require.NoError(t, testkit.Retrieve(t.Context(), client))
		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Blocked())
		blocked(t, testkit.Retrieve(t.Context(), client))
		emu.ClearRequests()
		// Three get no response and take turns. The fourth succeeds, and the
		// rest go together.
		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.DropBefore().Delay(time.Second).Times(3), brelliumtest.OK().Delay(time.Second).Forever())
		var calls sync.WaitGroup
		start := time.Now()
		for range 8 {
			calls.Go(func() { _ = testkit.Retrieve(t.Context(), client, brellium.WithMaxRetries(0)) })
		}
		calls.Wait()
		assert.Equal(t, 5*time.Second, time.Since(start))
		assert.Equal(t, 8, emu.Count(brelliumtest.OpAuditRetrieve))
	}, brellium.WithoutRateLimiter())
	testkit.Bubble(t, "with an empty bucket", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		for range 5 {
			require.NoError(t, testkit.Retrieve(t.Context(), client))
		}
		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Blocked())
		blocked(t, testkit.Retrieve(t.Context(), client))
		start := time.Now()
		require.NoError(t, testkit.Retrieve(t.Context(), client))
		assert.GreaterOrEqual(t, time.Since(start), 200*time.Millisecond)
	})
}

// It entered the queue before the block began, and is not sent.
func TestQueuedCallSeesABlock(t *testing.T) {
	testkit.Bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		require.NoError(t, testkit.Retrieve(t.Context(), client)) // the others wait for a token of the bucket
		emu.ClearRequests()
		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Blocked().Times(2))
		var calls sync.WaitGroup
		var sent, failedFast atomic.Int32
		for range 6 {
			calls.Go(func() {
				var resp brellium.Response
				err := testkit.Retrieve(t.Context(), client, brellium.WithResponseInto(&resp))
				blocked(t, err)
				if len(resp.Attempts) == 0 {
					failedFast.Add(1)
				} else {
					sent.Add(1)
				}
			})
		}
		calls.Wait()
		assert.EqualValues(t, 2, sent.Load())
		assert.EqualValues(t, 4, failedFast.Load())
		assert.Equal(t, 2, emu.Count(brelliumtest.OpAuditRetrieve))
	}, brellium.WithRateLimit(1, 1))
}

func TestZeroCooldownNeverStopsTheClient(t *testing.T) {
	testkit.Bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Blocked().Times(10), brelliumtest.OK().Delay(time.Second).Forever())
		for range 10 {
			assert.Zero(t, blocked(t, testkit.Retrieve(t.Context(), client)).RetryAt)
		}
		assert.Equal(t, 10, emu.Count(brelliumtest.OpAuditRetrieve))
		start := time.Now()
		var calls sync.WaitGroup
		for range 5 {
			calls.Go(func() { assert.NoError(t, testkit.Retrieve(t.Context(), client)) })
		}
		calls.Wait()
		assert.Equal(t, 2*time.Second, time.Since(start), "one alone, then four together")
	}, brellium.WithBlockCooldown(0), brellium.WithoutRateLimiter())
}

func TestBlockOfTheTokenEndpointCounts(t *testing.T) {
	testkit.Bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpTokenCreate, brelliumtest.Blocked().Times(2))
		e := blocked(t, testkit.Retrieve(t.Context(), client))
		assert.Equal(t, "oauth.token", e.Operation)
		assert.Zero(t, e.RetryAt)
		e = blocked(t, testkit.Retrieve(t.Context(), client))
		assert.Equal(t, time.Now().Add(30*time.Second), e.RetryAt)
		blocked(t, testkit.Retrieve(t.Context(), client))
		assert.Equal(t, 2, emu.Count(brelliumtest.OpTokenCreate))
		time.Sleep(30 * time.Second)
		require.NoError(t, testkit.Retrieve(t.Context(), client))
	})
}
