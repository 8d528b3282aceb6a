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

// TestMain runs a worker if the example started this binary as one.
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
		assert.Equal(t, "0", row[4], "rate limited")
		share, err := strconv.Atoi(row[5])
		require.NoError(t, err)
		// brelliumredis tests fairness in virtual time. In two seconds of real
		// time at ten times the rate, workers with more goroutines get more: a
		// single goroutine is often still busy at its turn. By their goroutines
		// the shares would be from 7 % to 53 %.
		assert.GreaterOrEqual(t, share, 10, "a worker starves")
		assert.LessOrEqual(t, share, 45, "a worker takes more than its turn")
	}
	assert.LessOrEqual(t, float64(calls), burst+perSecond*took.Seconds())
	assert.Greater(t, calls, burst)
	assert.Contains(t, out.String(), "Tokens minted: 1.")
	assert.Contains(t, out.String(), "Redis: embedded")
}

func TestInvalidRedisURLIsNotInTheError(t *testing.T) {
	err := work(context.Background(), `{"RedisURL":"redis://user:pass word@:x:y"}`, nil)
	require.Error(t, err)
	require.NotContains(t, err.Error(), "pass")
}
