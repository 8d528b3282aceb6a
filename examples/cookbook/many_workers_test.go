package cookbook

import (
	"log/slog"
	"sync"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumredis"
	"github.com/brellium/brellium-go/brelliumtest"
)

// NewWorker returns the client of one of many processes, which share the rate limit
// and the token through Redis.
func NewWorker(rdb redis.UniversalClient, clientID, clientSecret string, opts ...brellium.ClientOption) (*brellium.Client, error) {
	limiter, err := brelliumredis.NewLimiter(rdb, brelliumredis.LimiterOptions{
		Bucket: "acme-production", // one for each organization
		Notify: func(err error) { slog.Warn("rate limit", "shared", err == nil, "error", err) },
	})
	if err != nil {
		return nil, err
	}
	tokens, err := brelliumredis.NewTokenStore(rdb, brelliumredis.TokenStoreOptions{
		ClientSecret: brelliumredis.NewSecret(clientSecret), // encrypts the token
	})
	if err != nil {
		return nil, err
	}
	return brellium.NewClient(append([]brellium.ClientOption{
		brellium.WithClientCredentials(clientID, clientSecret),
		brellium.WithRateLimiter(limiter),
		brellium.WithTokenStore(tokens),
	}, opts...)...)
}

func TestNewWorker(t *testing.T) {
	server := miniredis.RunT(t)
	emulator := brelliumtest.New(brelliumtest.WithRateLimit(20, 50))
	require.NoError(t, emulator.Start())
	defer emulator.Close()
	var all sync.WaitGroup
	for range 3 {
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
		defer rdb.Close()
		worker, err := NewWorker(rdb, emulator.ClientID, emulator.ClientSecret, brellium.WithBaseURL(emulator.BaseURL()))
		require.NoError(t, err)
		all.Go(func() {
			for range 20 {
				_, err := worker.Audits.Retrieve(t.Context(), brelliumtest.SampleAuditID)
				assert.NoError(t, err)
			}
		})
	}
	all.Wait()
	assert.Equal(t, 1, emulator.Count(brelliumtest.OpTokenCreate))
}
