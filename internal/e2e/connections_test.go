package e2e_test

import (
	"context"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/internal/testkit"
)

// countingServer returns an audit whose last chunk comes separately, and counts
// its connections.
func countingServer(t *testing.T) (client *brellium.Client, connections *atomic.Int64) {
	t.Helper()
	server, connections := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"audit_id":"a"}`)
		w.(http.Flusher).Flush()
	}, nil)
	client = testkit.NewTokenClient(t, brellium.WithBaseURL(server.URL), brellium.WithoutRateLimiter())
	return client, connections
}

// A client that does not read a response to its end cannot reuse the connection.
func TestSequentialCallsShareOneConnection(t *testing.T) {
	client, connections := countingServer(t)
	for range 100 {
		_, err := client.Audits.Retrieve(t.Context(), "a")
		require.NoError(t, err)
	}
	assert.EqualValues(t, 1, connections.Load())
}

// By default net/http keeps two idle connections per host; 64 goroutines would then
// open hundreds.
func TestConcurrentCallsKeepTheirConnections(t *testing.T) {
	client, connections := countingServer(t)
	sweep := func(ctx context.Context) {
		var calls sync.WaitGroup
		for range 64 {
			calls.Go(func() {
				for range 2000 / 64 {
					_, err := client.Audits.Retrieve(ctx, "a")
					assert.NoError(t, err)
				}
			})
		}
		calls.Wait()
	}
	// At most 72 at a time; on a busy machine a few are replaced.
	const limit = 72 + 8
	sweep(t.Context())
	made := connections.Load()
	assert.LessOrEqual(t, made, int64(limit))
	sweep(t.Context())
	assert.LessOrEqual(t, connections.Load(), int64(limit), "then hardly a new one")
	t.Logf("%d connections, then %d more", made, connections.Load()-made)
}
