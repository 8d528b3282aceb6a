//go:build unix

package brelliumredis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	brellium "github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

// catcher is a limiter that keeps the context of an attempt.
type catcher struct{ ctx context.Context }

func (c *catcher) Acquire(ctx context.Context) (brellium.Permit, error) {
	c.ctx = context.WithoutCancel(ctx)
	return nil, errSlow
}

// prioritized returns a context like that of a call with a priority.
func prioritized(t *testing.T, p brellium.Priority) context.Context {
	var c catcher
	client, err := brelliumtest.New().Client(brellium.WithRateLimiter(&c), brellium.WithPriority(p))
	require.NoError(t, err)
	_, err = client.Audits.Retrieve(context.Background(), brelliumtest.SampleAuditID)
	require.ErrorIs(t, err, errSlow)
	require.Equal(t, p, brellium.PriorityFromContext(c.ctx))
	return c.ctx
}

// acquire starts calls in the background and returns the order in which they are
// served, once all are.
func acquire(t *testing.T, l *Limiter, calls ...string) []string {
	priorities := map[byte]brellium.Priority{'i': brellium.Interactive, 'n': brellium.Normal, 'b': brellium.Background}
	var mu sync.Mutex
	var order []string
	var wg sync.WaitGroup
	for _, name := range calls {
		ctx := prioritized(t, priorities[name[0]])
		wg.Go(func() {
			p, err := l.Acquire(ctx)
			assert.NoError(t, err)
			mu.Lock()
			order = append(order, name)
			mu.Unlock()
			p.Done(brellium.LimiterResult{Spent: brellium.SpentYes})
		})
		synctest.Wait()
	}
	wg.Wait()
	return order
}

func TestLanesOfAProcessAreServedInOrder(t *testing.T) {
	inBubble(t, LimiterOptions{}, func(t *testing.T, l *Limiter, m *model) {
		drained(t, l)
		require.Equal(t, strings.Fields("i1 i2 n1 n2 b1 b2"), acquire(t, l, strings.Fields("b1 n1 i1 b2 n2 i2")...))
	})
}

// No lane starves, and no other gets more than its share before an interactive call.
func TestEachLaneGetsItsShare(t *testing.T) {
	inBubble(t, LimiterOptions{}, func(t *testing.T, l *Limiter, m *model) {
		drained(t, l)
		calls := strings.Fields("b b b b n n n n")
		for range 40 {
			calls = append(calls, "i")
		}
		got := strings.Join(acquire(t, l, calls...), "")
		require.Equal(t, "iiiiiiibniiiiiibniiiiiibniiiiiibniiiiiiiiiiiiiii", got)
	})
}

// The ticket is as good as the best call, whichever is served first.
func TestLaneThatGetsItsShareDelaysNoBetterOne(t *testing.T) {
	l, err := newLimiter(LimiterOptions{})
	require.NoError(t, err)
	b, n, i := &waiter{place: background}, &waiter{place: normal}, &waiter{place: interactive}
	require.Equal(t, noPlace, l.best(nil))
	for _, w := range []*waiter{b, n, i} {
		l.push(w)
		require.Equal(t, w, l.first())
		require.Equal(t, w.place, l.best(nil))
	}
	l.lanes[2].passed = share - 1
	require.Equal(t, b, l.first())
	require.Equal(t, interactive, l.best(b))
	require.Equal(t, normal, l.best(i))
	l.push(&waiter{place: background, front: true})
	require.Equal(t, front, l.best(nil))
}

// crowd puts tickets of other workers into the queue.
func crowd(m *model, tickets int, p place) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for i := range tickets {
		m.step(float64(now.UnixMicro()), &request{worker: fmt.Sprint("other", i), rate: 5, limit: 100, place: p, budget: -1, now: now})
	}
}

func TestInteractiveCallGetsABetterTicketAtOnce(t *testing.T) {
	inBubble(t, LimiterOptions{}, func(t *testing.T, l *Limiter, m *model) {
		drained(t, l)
		crowd(m, 30, normal)
		served := make(chan string, 4)
		call := func(p brellium.Priority, name string) {
			go func() {
				ctx, cancel := context.WithTimeout(prioritized(t, p), 20*time.Second)
				defer cancel()
				got, err := l.Acquire(ctx)
				assert.NoError(t, err, name)
				if err == nil {
					got.Done(brellium.LimiterResult{Spent: brellium.SpentYes})
				}
				served <- name
			}()
			synctest.Wait()
		}
		call(brellium.Normal, "normal")
		require.Equal(t, 30, l.ahead)
		trips, begin := l.Stats().RoundTrips, time.Now()
		call(brellium.Interactive, "interactive")
		require.Equal(t, trips+1, l.Stats().RoundTrips)
		require.Zero(t, l.ahead)
		call(brellium.Interactive, "interactive")
		call(brellium.Normal, "normal")
		require.Equal(t, trips+1, l.Stats().RoundTrips, "once is enough")
		require.Equal(t, "interactive", <-served)
		require.Less(t, time.Since(begin), time.Second)
		for range 3 {
			<-served
		}
	})
}

// A wait is not too long because of tickets that the call overtakes.
func TestInteractiveCallIsNotFailedForTheTicketOfAnother(t *testing.T) {
	inBubble(t, LimiterOptions{}, func(t *testing.T, l *Limiter, m *model) {
		drained(t, l)
		crowd(m, 30, normal)
		go take(t, l)
		synctest.Wait()
		require.Equal(t, 30, l.ahead)
		ctx, cancel := context.WithTimeout(prioritized(t, brellium.Normal), 2*time.Second)
		defer cancel()
		_, err := l.Acquire(ctx)
		var interrupted *brellium.InterruptedError
		require.ErrorAs(t, err, &interrupted, "a normal call cannot be served by then")
		ctx, cancel = context.WithTimeout(prioritized(t, brellium.Interactive), 2*time.Second)
		defer cancel()
		p, err := l.Acquire(ctx)
		require.NoError(t, err)
		p.Done(brellium.LimiterResult{Spent: brellium.SpentYes})
	})
}

func TestInteractiveCallsWaitLittleWhileOthersSweep(t *testing.T) {
	for _, workers := range []int{5, 20} {
		sweep := near
		sweep.workers, sweep.concurrency, sweep.calls = workers, 64, 3000
		alone := sweep.run(t)
		sweep.every = 10 * time.Second
		o := sweep.run(t)
		o.log(t)
		slices.Sort(o.interactive)
		n := len(o.interactive)
		t.Logf("%d interactive calls: median %v, longest %v; T/LB without them %.4f", n, o.interactive[n/2], o.interactive[n-1], alone.ratio)
		assert.Zero(t, o.failed+o.rateLimited)
		assert.GreaterOrEqual(t, n, 50)
		assert.Less(t, o.interactive[n-1], 2*time.Second)
		assert.LessOrEqual(t, o.ratio, 1.01*alone.ratio)
		assert.LessOrEqual(t, o.exchanges, 2*(o.permits+workers))
	}
}

// Interactive calls that could use the whole bucket leave others a share.
func TestNoProcessStarves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		emu := brelliumtest.New(brelliumtest.WithLatency(lognormal(near.median, near.p99)))
		m := &model{latency: near.toStore}
		tokens := brellium.NewMemoryTokenStore()
		var stop atomic.Bool
		var wg sync.WaitGroup
		var limiters []*Limiter
		for _, p := range []brellium.Priority{brellium.Interactive, brellium.Normal, brellium.Background} {
			l, err := newLimiter(LimiterOptions{})
			require.NoError(t, err)
			l.store = m
			limiters = append(limiters, l)
			client, err := emu.Client(brellium.WithRateLimiter(l), brellium.WithTokenStore(tokens), brellium.WithPriority(p))
			require.NoError(t, err)
			for range 64 {
				wg.Go(func() {
					for !stop.Load() {
						_, err := client.Audits.Retrieve(context.Background(), brelliumtest.SampleAuditID)
						assert.NoError(t, err)
					}
				})
			}
		}
		time.Sleep(time.Minute)
		var before [3]Stats
		for i, l := range limiters {
			before[i] = l.Stats()
		}
		const minutes = 10
		time.Sleep(minutes * time.Minute)
		var calls, exchanges int64
		for i, l := range limiters {
			granted, trips := l.Stats().Granted-before[i].Granted, l.Stats().RoundTrips-before[i].RoundTrips
			t.Logf("%d calls a minute, %d round trips", granted/minutes, trips/minutes)
			assert.GreaterOrEqual(t, granted, []int64{290, 4, 2}[i]*minutes)
			calls, exchanges = calls+granted, exchanges+trips
		}
		assert.LessOrEqual(t, exchanges, 3*calls/2)
		stop.Store(true)
		wg.Wait()
		settle(time.Second)
	})
}

// past is the store of a version without priorities, whose processes share the record.
type past struct{ *timedStore }

func (s past) exchange(ctx context.Context, q *request) (reply, error) {
	args := append(q.args(), s.now)
	args[4], args[5] = 0, min(int(q.next), 1)
	if q.place == front {
		args[4] = 1
	}
	values, err := s.script.run(ctx, s.rdb(), s.keys, args...).Slice()
	if err != nil {
		return reply{}, err
	}
	return parseReply(values)
}

// newPast returns a store with the clock and the data of s.
func newPast(t *testing.T, s *timedStore) past {
	old := *s
	old.script = timed(t,
		"local granted, attempt, snapshot", `place = function(first)
  local score = tonumber(redis.call('ZSCORE', KEYS[2], worker) or nil)
  if not score then
    serial = serial + 1
    score = serial
    redis.call('ZADD', KEYS[2], str(score), worker)
  end
  if first and score > 0 then redis.call('ZADD', KEYS[2], str(score - 1000000000000), worker) end
  return redis.call('ZRANK', KEYS[2], worker)
end
local granted, attempt, snapshot`,
		"place(shifts[ARGV[5]] or 0)", "place(ARGV[5] == '1')",
		"if shifts[ARGV[6]]", "if ARGV[6] == '1'",
		"place(shifts[ARGV[6]])", "place(false)")
	return past{&old}
}

func TestProcessesWithoutPrioritiesShareTheBucket(t *testing.T) {
	eachAsker(t, func(t *testing.T, a asker) {
		old := newPast(t, a.s)
		ask := func(worker string, p place) reply {
			q := &request{worker: worker, rate: 5, limit: 100, place: p, budget: -1, now: time.UnixMicro(a.s.now)}
			var in store = a.s
			if strings.HasPrefix(worker, "old") {
				old.now, in = a.s.now, old
			}
			r, err := in.exchange(context.Background(), q)
			require.NoError(t, err)
			return r
		}
		a.empty()
		a.drain("first")
		places := make(map[string]place)
		for _, c := range []struct {
			worker string
			place  place
			ahead  int
		}{
			{"new1", normal, 0}, {"old1", normal, 1}, {"new2", interactive, 0}, {"new3", background, 3}, {"old2", normal, 3},
			{"old3", front, 0}, {"new4", front, 1}, {"new5", interactive, 3},
		} {
			places[c.worker] = c.place
			require.Equal(t, c.ahead, ask(c.worker, c.place).ahead, c.worker)
		}
		for i, worker := range []string{"old3", "new4", "new2", "new5", "new1", "old1", "old2", "new3"} {
			r := ask(worker, places[worker])
			require.Zero(t, r.ahead, "%d: %s", i, worker)
			a.pass(r.wait)
			require.True(t, ask(worker, places[worker]).granted, worker)
		}

		h := &history{rand: rand.New(rand.NewPCG(1, 8)), now: a.s.now}
		granted := 0
		for range 300 {
			q := h.next()
			var in store = a.s
			if a.s.now, old.now = h.now, h.now; q.worker < "worker2" {
				in = old
			}
			r, err := in.exchange(context.Background(), q)
			require.NoError(t, err)
			if h.took(r); r.granted {
				granted++
			}
			a.s.checkRecord(t)
		}
		require.Greater(t, granted, 30)
	})
}
