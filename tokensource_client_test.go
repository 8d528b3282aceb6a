package brellium_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

// sideBySide makes n calls at the same time, none of which may fail.
func sideBySide(t *testing.T, n int, call func(ctx context.Context, i int) error) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { assert.NoError(t, call(t.Context(), i)) })
	}
	wg.Wait()
}

func list(ctx context.Context, c *brellium.Client) error {
	_, err := c.Audits.List(ctx, brellium.AuditListParams{Limit: 1})
	return err
}

// The token endpoint allows 20 tokens, then one every 10 seconds: once the 20
// are used, calls wait for the next one, and still none fails.
func TestClientWhoseTokenIsRevokedEverySecondFailsNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := brelliumtest.New(brelliumtest.WithRateLimit(1e6, 1e6))
		client, err := e.Client(brellium.WithoutRateLimiter())
		require.NoError(t, err)
		start := time.Now()
		go func() {
			time.Sleep(500 * time.Millisecond) // lest it meets the very moment of a mint
			for range 59 {
				time.Sleep(time.Second)
				e.RevokeTokens()
			}
		}()
		sideBySide(t, 200, func(ctx context.Context, _ int) error {
			for time.Since(start) < time.Minute {
				if err := list(ctx, client); err != nil {
					return err
				}
				time.Sleep(rand.N(6 * time.Second))
			}
			return nil
		})
		mints := e.Requests("oauth.token")
		for i, r := range mints {
			assert.Equal(t, 200, r.Status)
			if i > 1 && i < 20 {
				assert.GreaterOrEqual(t, r.Arrived.Sub(mints[i-1].Arrived), 800*time.Millisecond, "one for each revocation")
			}
		}
		assert.InDelta(t, 20+6, len(mints), 1)
	})
}

func TestClientThatIsAlwaysRefusedSparesTheTokenEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := brelliumtest.New()
		e.Inject("audits.list", brelliumtest.Status(401, "UNAUTHORIZED").Forever())
		client, err := e.Client()
		require.NoError(t, err)
		for range 100 {
			require.ErrorIs(t, list(t.Context(), client), brellium.ErrUnauthorized)
			assert.Equal(t, 2, e.Count("oauth.token"))
			assert.Equal(t, 2, e.Count("audits.list"))
		}
		e.ClearFaults()
		time.Sleep(10 * time.Second)
		require.NoError(t, list(t.Context(), client))
		assert.Equal(t, 3, e.Count("oauth.token"))
	})
}

func TestClientsOnOneStoreMintOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := brelliumtest.New(brelliumtest.WithRateLimit(1e6, 1e6))
		store := brellium.NewMemoryTokenStore()
		clients := make([]*brellium.Client, 20)
		for i := range clients {
			var err error
			clients[i], err = e.Client(brellium.WithoutRateLimiter(), brellium.WithTokenStore(store))
			require.NoError(t, err)
		}
		sideBySide(t, 200, func(ctx context.Context, i int) error { return list(ctx, clients[i%20]) })
		assert.Equal(t, 1, e.Count("oauth.token"))
		e.RevokeTokens()
		sideBySide(t, 200, func(ctx context.Context, i int) error { return list(ctx, clients[i%20]) })
		assert.Equal(t, 2, e.Count("oauth.token"))
	})
}
