package pace

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// gate is a Machine that allows a set number of attempts.
type gate struct {
	open, inFlight, canceled, idle int
	pause                          time.Duration
}

func (g *gate) Ready(time.Duration, int) time.Duration {
	if g.open > 0 {
		return 0
	}
	return Never
}

func (g *gate) Send(time.Duration) Ticket {
	g.open--
	g.inFlight++
	return Ticket{}
}

func (g *gate) Cancel(time.Duration, Ticket)       { g.inFlight--; g.canceled++ }
func (g *gate) Done(time.Duration, Ticket, Report) { g.inFlight-- }
func (g *gate) Idle(time.Duration)                 { g.idle++ }
func (g *gate) State(time.Duration) State          { return State{InFlight: g.inFlight} }

func (g *gate) AtLeast(_ time.Duration, ahead int) time.Duration {
	return g.pause + time.Duration(ahead)*second
}

// grantOne grants one permit after calling before, in one critical section.
func grantOne(q *Queue, before func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	before()
	q.machine.(*gate).open++
	q.dispatch(q.now())
}

// silentContext ends without closing Done.
type silentContext struct {
	context.Context
	ended atomic.Bool
}

func (c *silentContext) Err() error {
	if c.ended.Load() {
		return context.Canceled
	}
	return nil
}

func TestPermitGrantedAsTheContextEndsIsCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		canceled, cancel := context.WithCancel(t.Context())
		silent := &silentContext{Context: t.Context()}
		m := &gate{}
		q := NewQueue(m)
		for _, c := range []struct {
			ctx context.Context
			end func()
		}{{canceled, cancel}, {silent, func() { silent.ended.Store(true) }}} {
			go func() {
				p, err := q.Acquire(c.ctx, Normal, false)
				assert.ErrorIs(t, err, context.Canceled)
				assert.Nil(t, p)
			}()
			synctest.Wait()
			require.NotNil(t, q.timer)
			grantOne(&q, c.end)
			synctest.Wait()
			require.Zero(t, m.inFlight)
			require.Nil(t, q.timer)
		}
		require.Equal(t, 2, m.canceled)
	})
}

func TestMachineIsIdleOnceNobodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &gate{pause: 3 * second}
		q := NewQueue(m)
		short, cancel := context.WithTimeout(t.Context(), 2*second)
		defer cancel()
		_, err := q.Acquire(short, Normal, false)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 1, m.idle)

		ctx, cancel := context.WithCancel(t.Context())
		for range 2 {
			go q.Acquire(ctx, Normal, false)
		}
		synctest.Wait()
		require.Equal(t, 1, m.idle)
		cancel()
		synctest.Wait()
		require.Equal(t, 2, m.idle)
	})
}

func TestReviewCountsThoseAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &gate{open: 1}
		q := NewQueue(m)
		p, err := q.Acquire(t.Context(), Normal, false)
		require.NoError(t, err)
		var failed [4]bool
		for i := range failed {
			ctx, cancel := context.WithTimeout(t.Context(), 5500*ms)
			defer cancel()
			go func() {
				_, err := q.Acquire(ctx, Normal, i == 3)
				failed[i] = err != nil
			}()
			synctest.Wait()
		}
		m.pause = 4 * second // with one ahead 5 s, with two 6 s
		p.Done(Report{RateLimited: true})
		synctest.Wait()
		require.Equal(t, [4]bool{false, true, true, false}, failed)
		for range 2 {
			grantOne(&q, func() {})
		}
		synctest.Wait()
		require.Equal(t, 2, m.inFlight)
	})
}
