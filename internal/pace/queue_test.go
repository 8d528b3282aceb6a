package pace

import (
	"context"
	"math/rand/v2"
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

func (g *gate) Ready(time.Duration, bool) time.Duration {
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
func (g *gate) Resume(time.Duration)               { g.pause = 0 }
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
			require.False(t, q.timer.Stop(), "it is stopped")
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
		require.ErrorAs(t, err, new(*TooLong))
		require.Equal(t, 1, m.idle)

		for _, idle := range []int{1, 2} {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go q.Acquire(ctx, Normal, false)
			time.AfterFunc(time.Duration(idle)*time.Millisecond, cancel)
		}
		for _, idle := range []int{1, 1, 2} {
			synctest.Wait()
			q.locked(func(time.Duration) { require.Equal(t, idle, m.idle) })
			time.Sleep(time.Millisecond)
		}
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

// queueUp starts an Acquire in a lane and waits until it is queued. granted is
// called with its permit.
func queueUp(t *testing.T, q *Queue, l Lane, rateLimited bool, granted func()) {
	go func() {
		if _, err := q.Acquire(t.Context(), l, rateLimited); err == nil {
			granted()
		}
	}()
	synctest.Wait()
}

func TestLanesAreServedInOrderAndRetriesFirstInTheirLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue(&gate{})
		var order []string
		for _, w := range []struct {
			lane  Lane
			again bool
			name  string
		}{
			{Background, false, "background"}, {Normal, false, "normal"}, {Background, true, "background retry"},
			{Normal, false, "normal 2"}, {Interactive, false, "interactive"}, {Normal, true, "normal retry"},
		} {
			queueUp(t, &q, w.lane, w.again, func() { order = append(order, w.name) })
		}
		for range 6 {
			grantOne(&q, func() {})
			synctest.Wait()
		}
		require.Equal(t, []string{"interactive", "normal retry", "normal", "normal 2", "background retry", "background"}, order)
	})
}

// Whatever waits, a lane that waits is passed over at most so many times in a row
// as its share allows, and once more if another lane is due too.
func TestNoLaneStarves(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 3))
			q := NewQueue(&gate{})
			var waiting, passed, got [laneCount]int
			for range 300 {
				for r.IntN(2) == 0 || waiting[Interactive] == 0 {
					l := Lane(r.IntN(int(laneCount)))
					waiting[l]++
					queueUp(t, &q, l, r.IntN(4) == 0, func() { got[l]++ })
				}
				before := got
				grantOne(&q, func() {})
				synctest.Wait()
				for l := range laneCount {
					switch {
					case got[l] > before[l]:
						waiting[l]--
						passed[l] = 0
					case waiting[l] == 0:
						passed[l] = 0
					default:
						passed[l]++
					}
					require.LessOrEqual(t, passed[l], grantsPerShare, "seed %d, lane %d", seed, l)
				}
			}
			require.Equal(t, 300, got[0]+got[1]+got[2], "a grant for each token")
		})
	}
}

// An interactive attempt uses what is kept in reserve, and what it borrows while
// others spend is paid back.
func TestUrgentAttemptBorrows(t *testing.T) {
	a, now := alone(t)
	for a.Ready(now, false) == 0 {
		a.Done(now, a.Send(now), Report{Spent: SpentYes})
	}
	require.Positive(t, a.Ready(now, false))
	require.Zero(t, a.Ready(now, true))

	a, now = shared(t)
	a.Send(now + a.Ready(now, false))
	now += a.Ready(now, false) - 100*ms
	require.Positive(t, a.Ready(now, false))
	require.Zero(t, a.Ready(now, true))
	next := a.next
	a.Send(now)
	require.Positive(t, a.Ready(now, true), "one interval at most")
	require.Greater(t, a.next, next)
}
