package block

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// settle makes one attempt that learns signal.
func settle(t *testing.T, g *Guard, signal Signal) (retryAt time.Time) {
	t.Helper()
	pass, err := g.Enter(t.Context(), true)
	require.NoError(t, err)
	retryAt, _ = g.Settle(pass, signal)
	return retryAt
}

func TestCooldownDoublesUpToTenMinutes(t *testing.T) {
	for cooldown, want := range map[time.Duration][]time.Duration{
		3 * time.Minute: {3 * time.Minute, 6 * time.Minute, 10 * time.Minute, 10 * time.Minute},
		time.Hour:       {time.Hour, time.Hour, time.Hour}, // a longer one is kept
	} {
		synctest.Test(t, func(t *testing.T) {
			g := NewGuard(cooldown)
			assert.Zero(t, settle(t, g, Blocked), "the first only starts the watch")
			for _, d := range want {
				retryAt := settle(t, g, Blocked)
				assert.Equal(t, time.Now().Add(d), retryAt)
				time.Sleep(d - 1)
				_, err := g.Enter(t.Context(), true)
				assert.Equal(t, &Stopped{retryAt}, err)
				time.Sleep(time.Nanosecond)
			}
			settle(t, g, Lifted)
			assert.Zero(t, settle(t, g, Blocked))
			assert.Equal(t, time.Now().Add(cooldown), settle(t, g, Blocked), "starts over")
		})
	}
}

func TestWaiterThatLeavesTakesNoTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGuard(time.Minute)
		settle(t, g, Blocked)
		first, err := g.Enter(t.Context(), true)
		require.NoError(t, err)
		for range 5 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			start := time.Now()
			_, err := g.Enter(ctx, true)
			cancel()
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.Equal(t, time.Second, time.Since(start))
		}
		g.Settle(first, Silent)
		settle(t, g, Lifted)
	})
}

func TestAttemptsSentBeforeABlockCountAsTheSameBlock(t *testing.T) {
	g := NewGuard(time.Minute)
	var passes [10]Pass
	for i := range passes {
		passes[i], _ = g.Enter(t.Context(), true)
	}
	for i, p := range passes {
		assert.Equal(t, i == 0, g.Current(p))
		retryAt, changed := g.Settle(p, Blocked)
		assert.Zero(t, retryAt)
		assert.Equal(t, i == 0, changed)
	}
}
