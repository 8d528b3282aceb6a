package brellium

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNothingIsAllocatedWhereNobodyListens(t *testing.T) {
	client, err := NewClient(WithAccessToken("t"))
	require.NoError(t, err)
	c := &call{Context: context.Background(), client: client, op: opAuditsRetrieve, limiter: client.limiter}
	c.got = outcome{status: http.StatusServiceUnavailable, body: []byte(`{"error":{"code":"UNAVAILABLE"}}`), verdict: VerdictUnknown, requestID: "r"}
	c.err = &RetriesExhaustedError{Reason: ExhaustedAttempts}
	begun := time.Now()
	tell := func() {
		c.tellStart()
		ctx, header := c.tellAttemptStart()
		if header != nil || ctx != context.Context(c) {
			t.Fatal("something was told")
		}
		c.record(ctx, time.Second, time.Second)
		c.tellWait()
		c.tellBlock(blockRefused, begun)
		c.tellEnd(begun)
		client.observers.tellTokenStore(nil)
	}
	assert.Zero(t, testing.AllocsPerRun(100, tell))

	// The same, with a listener, does allocate: the measurement can see it.
	client.observers.observer = ObserverFunc(func(ctx context.Context, _ Event) context.Context { return ctx })
	tell = func() { c.tellWait() }
	assert.NotZero(t, testing.AllocsPerRun(100, tell))
}
