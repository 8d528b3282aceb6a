package cookbook

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

// ForWork derives one client for requests that a person waits for, and one for a
// job. Both share the token, the rate limit and the connections of client.
func ForWork(client *brellium.Client) (web, job *brellium.Client, err error) {
	web, err = client.With(
		brellium.WithPriority(brellium.Interactive),
		brellium.WithMaxRetries(2),
		brellium.WithTotalTimeout(10*time.Second),
	)
	if err != nil {
		return nil, nil, err
	}
	job, err = client.With(
		brellium.WithPriority(brellium.Background),
		brellium.WithTotalTimeout(10*time.Minute),
	)
	return web, job, err
}

func TestForWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		emulator := brelliumtest.New(brelliumtest.WithRateLimitLevel(0))
		client, err := emulator.Client()
		require.NoError(t, err)
		web, job, err := ForWork(client)
		require.NoError(t, err)

		var all sync.WaitGroup
		for range 16 { // the job keeps 16 calls waiting
			all.Go(func() {
				for range 20 {
					_, err := job.Audits.Retrieve(t.Context(), brelliumtest.SampleAuditID)
					assert.NoError(t, err)
				}
			})
		}
		for range 5 {
			time.Sleep(5 * time.Second)
			start := time.Now()
			_, err := web.Audits.Retrieve(t.Context(), brelliumtest.SampleAuditID)
			assert.NoError(t, err)
			assert.Less(t, time.Since(start), time.Second, "a person waits behind the job")
		}
		all.Wait()
		assert.Equal(t, 1, emulator.Count(brelliumtest.OpTokenCreate))
	})
}
