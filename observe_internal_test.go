package brellium

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go/internal/block"
	"github.com/brellium/brellium-go/internal/wire"
)

func TestNoAllocationWithoutListeners(t *testing.T) {
	client, err := NewClient(WithAccessToken("t"))
	require.NoError(t, err)
	ctx := context.Background()
	c := &call{client: client, parts: client.parts.Open(), request: request{op: opAuditsRetrieve}, route: client.parts.Open().api}
	c.last = outcome{Result: wire.Result{Status: http.StatusServiceUnavailable, Body: []byte(`{"error":{"code":"UNAVAILABLE"}}`)}, verdict: VerdictUnknown, requestID: "r"}
	gaveUp := &RetriesExhaustedError{Reason: ExhaustedAttempts}
	start := time.Now()
	tell := func() {
		if c.reportStart(ctx) != ctx {
			t.Fatal("something was reported")
		}
		observed, header := c.reportAttemptStart(ctx)
		if header != nil || observed != ctx {
			t.Fatal("something was reported")
		}
		c.record(ctx, observed, time.Second, time.Second)
		c.reportWait(ctx, time.Second)
		c.reportBlock(ctx, block.Blocked, start)
		c.reportEnd(ctx, start, gaveUp)
		client.parts.Open().observers.reportTokenStore(nil)
	}
	assert.Zero(t, testing.AllocsPerRun(100, tell))

	// With a listener it does allocate, so the measurement works.
	client.parts.Open().observers.observers = []Observer{ObserverFunc(func(ctx context.Context, _ Event) context.Context { return ctx })}
	tell = func() { c.reportWait(ctx, time.Second) }
	assert.NotZero(t, testing.AllocsPerRun(100, tell))
}
