package main

import (
	"bytes"
	"context"
	"log"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The workers are processes of this test binary.
func TestMain(m *testing.M) {
	if text := os.Getenv(workerVariable); text != "" {
		if err := work(context.Background(), text, os.Stdout); err != nil {
			log.Fatal(err)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestWorkersShareTheLimitAndTheToken(t *testing.T) {
	t.Setenv("REDIS_URL", "")
	var out bytes.Buffer
	begin := time.Now()
	require.NoError(t, run(context.Background(), &out, 4, 2*time.Second))
	took := time.Since(begin)
	t.Log("\n" + out.String())

	rows := regexp.MustCompile(`(?m)^\s+(\d)\s+(\d)\s+(\d+)\s+(\d+)\s+(\d+) %`).FindAllStringSubmatch(out.String(), -1)
	require.Len(t, rows, 4)
	calls := 0
	for _, row := range rows {
		n, err := strconv.Atoi(row[3])
		require.NoError(t, err)
		calls += n
		assert.Equal(t, "0", row[4], "refusals")
		share, err := strconv.Atoi(row[5])
		require.NoError(t, err)
		// How even the shares are is measured in virtual time, in brelliumredis.
		// Here two seconds of real time at ten times the rate favour the worker
		// with more goroutines: a lone one is often still busy at its turn.
		assert.GreaterOrEqual(t, share, 5, "nobody starves")
	}
	assert.LessOrEqual(t, float64(calls), burst+perSecond*took.Seconds())
	assert.Greater(t, calls, burst)
	assert.Contains(t, out.String(), "Tokens minted: 1.")
	assert.Contains(t, out.String(), "Redis: a small one of this example's own")
}

func TestUnreadableURLOfRedisIsNotQuoted(t *testing.T) {
	err := work(context.Background(), `{"RedisURL":"redis://user:pass word@:x:y"}`, nil)
	require.Error(t, err)
	require.NotContains(t, err.Error(), "pass")
}
