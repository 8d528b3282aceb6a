//go:build unix

package brelliumredis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// timed is the script with the time as its last argument, and with replacements.
func timed(t testing.TB, oldnew ...string) *script {
	const clock = "local time = redis.call('TIME')\nlocal now = time[1] * 1000000 + time[2]\n"
	require.Equal(t, 1, strings.Count(exchangeSource, clock))
	require.Equal(t, 1, strings.Count(exchangeSource, "TIME'"), "there is one clock")
	for i := 0; i < len(oldnew); i += 2 {
		require.Equal(t, 1, strings.Count(exchangeSource, oldnew[i]), oldnew[i])
	}
	return &script{source: strings.NewReplacer(append(oldnew, clock, "local now = tonumber(ARGV[#ARGV])\n")...).Replace(exchangeSource)}
}

func TestScriptIsLoadedOnceAndAgainAfterARestart(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		ctx, rdb := context.Background(), b.client(t)
		one := &script{source: "return 1"}
		for range 2 {
			for range 2 {
				n, err := one.run(ctx, rdb, nil).Int()
				require.NoError(t, err)
				require.Equal(t, 1, n)
			}
			require.NoError(t, rdb.ScriptFlush(ctx).Err())
		}
		ended, end := context.WithCancel(ctx)
		end()
		_, err := (&script{source: "return 2"}).run(ended, rdb, nil).Int()
		require.ErrorIs(t, err, context.Canceled)
	})
}

// A user of Redis who may not load scripts still runs them.
func TestScriptRunsWithoutScriptLoad(t *testing.T) {
	path := realRedis(t)
	if path == "" {
		return
	}
	ctx, rdb := context.Background(), newReal(t, path).client(t)
	require.NoError(t, rdb.Do(ctx, "ACL", "SETUSER", "default", "-script").Err())
	one := &script{source: "return 1"}
	n, err := one.run(ctx, rdb, nil).Int()
	require.NoError(t, err)
	require.Equal(t, 1, n)
}

// timedStore is a redisStore with a clock that the test sets.
type timedStore struct {
	redisStore
	now int64
}

func newTimedStore(t testing.TB, rdb redis.UniversalClient) *timedStore {
	s := &timedStore{redisStore: *newRedisStore(rdb, "timed")}
	s.script = timed(t)
	return s
}

func (s *timedStore) exchange(ctx context.Context, q *request) (reply, error) {
	values, err := s.script.run(ctx, s.rdb(), s.keys, append(q.args(), s.now)...).Slice()
	if err != nil {
		return reply{}, err
	}
	return parseReply(values)
}

// dump returns the data in Redis in the same form as model.dump.
func (s *timedStore) dump(t testing.TB) string {
	ctx := context.Background()
	pipe := s.rdb().Pipeline()
	record := pipe.HGetAll(ctx, s.keys[0])
	tickets := pipe.ZRangeWithScores(ctx, s.keys[1], 0, -1)
	leases := pipe.ZRangeWithScores(ctx, s.keys[2], 0, -1)
	attempts := pipe.ZRangeWithScores(ctx, s.keys[3], 0, -1)
	_, err := pipe.Exec(ctx)
	require.NoError(t, err)
	var b strings.Builder
	for _, field := range fields {
		f, err := strconv.ParseFloat(record.Val()[field], 64)
		require.NoError(t, err, field)
		fmt.Fprintln(&b, field, f)
	}
	lease := make(map[any]float64)
	for _, z := range leases.Val() {
		lease[z.Member] = z.Score
	}
	require.Len(t, lease, len(tickets.Val()))
	for _, z := range tickets.Val() {
		fmt.Fprintln(&b, "ticket", z.Member, z.Score, lease[z.Member])
	}
	sent := make(map[float64]float64)
	for _, z := range attempts.Val() {
		n, err := strconv.ParseFloat(z.Member.(string), 64)
		require.NoError(t, err)
		sent[n] = z.Score
	}
	fmt.Fprintln(&b, "attempts", sent)
	return b.String()
}

var fields = []string{"epoch", "at", "low", "high", "limit", "known", "ended", "serial",
	"hold", "others", "probes", "probe", "from", "mark", "debt", "learned", "looked",
	"granted", "newest", "newest_at", "newest_left", "unspent", "trend"}

func (m *model) dump() string {
	known := 0.0
	if m.known {
		known = 1
	}
	var b strings.Builder
	for i, v := range []float64{m.epoch, m.at, m.low, m.high, m.limit, known, m.ended, m.serial,
		m.hold, m.others, m.probes, m.probe, m.from, m.mark, m.debt, m.learned, m.looked,
		m.grants, m.newest, m.newestAt, m.newestLeft, m.unspent, m.trend} {
		fmt.Fprintln(&b, fields[i], v)
	}
	for _, t := range m.tickets {
		fmt.Fprintln(&b, "ticket", t.worker, t.score, t.lease)
	}
	sent := make(map[float64]float64)
	for _, u := range m.attempts {
		sent[u.attempt] = u.sent
	}
	fmt.Fprintln(&b, "attempts", sent)
	return b.String()
}

// history draws random exchanges of some workers with one record, most of them
// realistic.
type history struct {
	rand   *rand.Rand
	now    int64
	grants []reply
	sent   []int64
}

func (h *history) next() *request {
	r := h.rand
	switch r.IntN(20) {
	case 0:
		h.now += r.Int64N(60_000_000)
	case 1:
		h.now -= r.Int64N(4_000_000)
	case 2:
		if r.IntN(20) == 0 {
			h.now -= 3600_000_000
		}
	default:
		h.now += r.Int64N(1_000_000)
	}
	q := &request{
		worker: "worker" + strconv.Itoa(r.IntN(4)),
		rate:   []float64{5, 5, 5, 200, 0.3, 7.25}[r.IntN(6)],
		limit:  []int{100, 100, 20, 1, 3}[r.IntN(5)],
		place:  []place{noPlace, normal, normal, interactive, background, front}[r.IntN(6)],
		next:   []place{noPlace, noPlace, normal, interactive, background, front}[r.IntN(6)],
		budget: -1,
		now:    time.UnixMicro(h.now),
	}
	if r.IntN(4) == 0 {
		q.budget = time.Duration(r.Int64N(3_000_000)) * time.Microsecond
	}
	if r.IntN(30) == 0 {
		q.spent, q.unseen = r.IntN(20), r.IntN(5)
	}
	if n := len(h.grants); n > 0 && r.IntN(2) == 0 {
		q.served = h.grants[r.IntN(n)].attempt
	}
	for range r.IntN(3) {
		if len(h.grants) == 0 {
			break
		}
		i := r.IntN(len(h.grants))
		g, sent := h.grants[i], h.sent[i]
		if r.IntN(10) > 0 {
			h.grants = append(h.grants[:i], h.grants[i+1:]...)
			h.sent = append(h.sent[:i], h.sent[i+1:]...)
		}
		kinds := []kind{kindSpent, kindSpent, kindSpent, kindSpent, kindPaid, kindUnspent, kindUnknown, kindRateLimited, kindBlocked, kindResume}
		q.results = append(q.results, result{
			kind: kinds[r.IntN(len(kinds))], attempt: g.attempt, epoch: g.epoch, ended: g.ended,
			sent: time.UnixMicro(sent), remaining: r.IntN(101), limit: []int{0, 100, 100, 100, 50}[r.IntN(5)],
			hold: time.Duration(r.Int64N(5_000_000)) * time.Microsecond,
		})
	}
	return q
}

func (h *history) took(r reply) {
	if r.granted {
		h.grants = append(h.grants, r)
		h.sent = append(h.sent, h.now)
	}
}

// The tests in virtual time rely on the model.
func TestScriptAgreesWithModel(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		rdb := b.client(t)
		ctx := context.Background()
		for seed := range uint64(3) {
			require.NoError(t, rdb.FlushAll(ctx).Err())
			s, m := newTimedStore(t, rdb), new(model)
			h := &history{rand: rand.New(rand.NewPCG(seed, 8)), now: 1_800_000_000_000_000}
			granted := 0
			for step := range 200 {
				q := h.next()
				s.now = h.now
				got, err := s.exchange(ctx, q)
				require.NoError(t, err)
				before := m.dump()
				want := m.step(float64(h.now), q)
				require.Equal(t, want, got, "seed %d, step %d: %+v\n%s", seed, step, q, before)
				require.Equal(t, m.dump(), s.dump(t), "seed %d, step %d: %+v", seed, step, q)
				h.took(got)
				if got.granted {
					granted++
				}
			}
			require.Greater(t, granted, 20)
		}
	})
}

// asker makes exchanges with one store as different workers.
type asker struct {
	t testing.TB
	s *timedStore
}

func (a asker) ask(worker string, change ...func(*request)) reply {
	q := &request{worker: worker, rate: 5, limit: 100, place: normal, budget: -1, now: time.UnixMicro(a.s.now)}
	for _, c := range change {
		c(q)
	}
	r, err := a.s.exchange(context.Background(), q)
	require.NoError(a.t, err)
	return r
}

func quiet(q *request) { q.place = noPlace }

// spent reports that an attempt was allowed, and what remained.
func spent(r reply, remaining, limit int) func(*request) {
	return func(q *request) {
		q.results = append(q.results, result{kind: kindSpent, attempt: r.attempt, epoch: r.epoch, ended: r.ended,
			sent: q.now.Add(-100 * time.Millisecond), remaining: remaining, limit: limit})
	}
}

func (a asker) pass(d time.Duration) { a.s.now += d.Microseconds() }

// drain asks until nothing is granted, and returns the number of grants.
func (a asker) drain(worker string) (n int) {
	for a.ask(worker).granted {
		n++
		require.Less(a.t, n, 1000)
	}
	a.ask(worker, quiet)
	return n
}

func (a asker) field(name string) float64 {
	f, err := a.s.rdb().HGet(context.Background(), a.s.keys[0], name).Float64()
	require.NoError(a.t, err)
	return f
}

func eachAsker(t *testing.T, test func(t *testing.T, a asker)) {
	eachBackend(t, func(t *testing.T, b backend) {
		s := newTimedStore(t, b.client(t))
		s.now = 1_800_000_000_000_000
		test(t, asker{t, s})
	})
}

// zeromicro/go-zero#4072
func TestLateMessageDoesNotMoveTheClockBack(t *testing.T) {
	eachAsker(t, func(t *testing.T, a asker) {
		begin := a.s.now
		first := a.ask("one")
		a.pass(time.Second) // T=1
		a.ask("one", quiet, spent(first, 4, 5))
		a.s.now = begin + 11e6
		require.Equal(t, 4, a.drain("one"), "all but a reserve of one")
		at, low := a.field("at"), a.field("low")

		a.s.now = begin + 10e6
		require.False(t, a.ask("late").granted)
		a.ask("late", quiet)
		require.Equal(t, at, a.field("at"))
		require.Equal(t, low, a.field("low"))

		a.s.now = begin + 11e6
		require.Zero(t, a.drain("one"), "the same second is not refilled twice")
		require.Equal(t, low, a.field("low"))
	})
}

func TestClockThatWasSetBackRestartsTheRecord(t *testing.T) {
	eachAsker(t, func(t *testing.T, a asker) {
		first := a.ask("one")
		a.ask("one", quiet, spent(first, 99, 100), func(q *request) {
			q.results = append(q.results, result{kind: kindRateLimited, hold: time.Minute, sent: q.now})
		})
		a.pass(-3 * time.Hour)
		r := a.ask("one")
		require.False(t, r.granted)
		require.Equal(t, time.Minute, r.held, "the pause is kept")
		require.NotEqual(t, first.epoch, r.epoch)
		a.pass(time.Minute)
		require.True(t, a.ask("one").probing)
	})
}

func TestUnknownBucketIsProbed(t *testing.T) {
	lose := map[string]func(a asker){
		"expired": func(a asker) {
			for _, key := range a.s.keys {
				ttl := a.s.rdb().PTTL(context.Background(), key).Val()
				require.LessOrEqual(a.t, ttl, 10*time.Minute)
				require.NoError(a.t, a.s.rdb().Del(context.Background(), key).Err())
			}
		},
		"flushed": func(a asker) { require.NoError(a.t, a.s.rdb().FlushAll(context.Background()).Err()) },
		"idle":    func(a asker) { a.pass(11 * time.Second) },
	}
	for name, lose := range lose {
		t.Run(name, func(t *testing.T) {
			eachAsker(t, func(t *testing.T, a asker) {
				first := a.ask("one")
				a.ask("one", quiet, spent(first, 99, 100))
				require.Greater(t, a.drain("one"), 90)
				for _, key := range a.s.keys[:1] {
					ttl := a.s.rdb().PTTL(context.Background(), key).Val()
					require.Greater(t, ttl, 9*time.Minute, "a key expires, but not between two calls")
				}
				lose(a)
				inFlight := a.s.rdb().ZCard(context.Background(), a.s.keys[3]).Val()
				require.Equal(t, 1, a.drain("one"), "no full bucket")
				a.pass(250 * time.Millisecond)
				require.Equal(t, 1, a.drain("two"))
				for range 20 {
					a.pass(250 * time.Millisecond)
					a.drain("three")
				}
				require.LessOrEqual(t, a.s.rdb().ZCard(context.Background(), a.s.keys[3]).Val(), inFlight+8)
				require.Zero(t, a.drain("four"), "at most eight are in flight")
			})
		})
	}
}

func TestRateLimitPausesAllWorkers(t *testing.T) {
	eachAsker(t, func(t *testing.T, a asker) {
		first := a.ask("one")
		a.ask("one", quiet, spent(first, 99, 100))
		second := a.ask("one")
		a.ask("one", quiet, func(q *request) {
			q.results = []result{{kind: kindRateLimited, attempt: second.attempt, epoch: second.epoch, sent: q.now, hold: 3 * time.Second}}
		})
		r := a.ask("two")
		require.False(t, r.granted)
		require.GreaterOrEqual(t, r.wait, 3*time.Second)
		a.pass(3*time.Second - time.Millisecond)
		require.False(t, a.ask("two").granted)
		for range 10 {
			r = a.ask("two")
			if r.granted {
				return
			}
			a.pass(r.wait)
		}
		require.Fail(t, "the pause does not end")
	})
}

// empty reports that only the reserve is left.
func (a asker) empty() {
	first := a.ask("first")
	a.ask("first", quiet, spent(first, 2, 100))
}

func TestWorkersTakeTurnsAndTheWaitIsExact(t *testing.T) {
	eachAsker(t, func(t *testing.T, a asker) {
		a.empty()
		a.drain("first")
		waits := make(map[string]time.Duration)
		for i, worker := range []string{"a", "b", "c", "d"} {
			r := a.ask(worker)
			require.Equal(t, i, r.ahead)
			require.False(t, r.granted)
			waits[worker] = r.wait
		}
		require.InDelta(t, 0.2, (waits["d"] - waits["c"]).Seconds(), 1e-5)
		start := a.s.now
		// The last asks when its turn comes. The others are late, which does not
		// delay it, and they still get their tokens.
		a.s.now = start + waits["d"].Microseconds()
		for _, worker := range []string{"d", "c", "b", "a"} {
			require.True(t, a.ask(worker).granted, worker)
		}
		require.False(t, a.ask("a").granted)
	})
}

func TestTicketOfADeadWorkerDelaysNoOther(t *testing.T) {
	eachAsker(t, func(t *testing.T, a asker) {
		a.empty()
		a.drain("first")
		require.False(t, a.ask("dead").granted)
		r := a.ask("alive")
		require.Equal(t, 1, r.ahead)
		a.pass(r.wait)
		require.True(t, a.ask("alive").granted, "only one token is kept for the dead worker")
		a.pass(3 * time.Second)
		require.Zero(t, a.ask("alive").ahead, "its ticket has ended")
	})
}

func TestAttemptsOfADeadWorkerDelayNoOther(t *testing.T) {
	eachAsker(t, func(t *testing.T, a asker) {
		first := a.ask("first")
		a.ask("first", quiet, spent(first, 99, 100))
		granted := 0
		for a.ask("dead").granted { // it dies with the whole bucket in flight
			granted++
		}
		require.Greater(t, granted, 90)
		a.pass(11 * time.Second) // all have reached the server by now
		require.True(t, a.ask("alive").granted)
		for range 20 {
			a.pass(time.Second)
			a.ask("alive")
		}
		require.LessOrEqual(t, a.s.rdb().ZCard(context.Background(), a.s.keys[3]).Val(), int64(21), "its attempts have ended")
	})
}

func TestTicketOfARateLimitedCallGoesFirst(t *testing.T) {
	eachAsker(t, func(t *testing.T, a asker) {
		a.empty()
		a.drain("first")
		for i, worker := range []string{"a", "b", "c"} {
			require.Equal(t, i, a.ask(worker).ahead)
		}
		first := func(q *request) { q.place = front }
		require.Zero(t, a.ask("d", first).ahead)
		require.Zero(t, a.ask("d", first).ahead)
		require.Equal(t, 1, a.ask("c", first).ahead, "rate-limited calls are first in, first out")
		require.Zero(t, a.ask("d", first).ahead)
		require.Equal(t, 2, a.ask("a").ahead)
	})
}

func TestUselessWaitTakesNothing(t *testing.T) {
	eachAsker(t, func(t *testing.T, a asker) {
		a.empty()
		a.drain("first")
		for i := range 4 {
			require.False(t, a.ask(strconv.Itoa(i)).granted)
		}
		before := a.s.dump(t)
		r := a.ask("one", func(q *request) { q.budget = 10 * time.Millisecond })
		require.False(t, r.granted)
		require.False(t, r.ticket)
		require.Greater(t, r.least, 10*time.Millisecond)
		after := a.s.dump(t)
		require.Equal(t, strings.Replace(before, "serial 7", "serial 8", 1), after)
	})
}

// Tokens that a worker spent while Redis was unavailable are gone, and attempts that
// were in flight when the record was lost may still arrive.
func TestTokensSpentWithoutAGrantCount(t *testing.T) {
	eachAsker(t, func(t *testing.T, a asker) {
		first := a.ask("one", func(q *request) { q.unseen = 7 })
		a.ask("one", quiet, spent(first, 99, 100))
		require.InDelta(t, 92, a.field("low"), 1)
		a.ask("one", quiet, func(q *request) { q.spent = 30 })
		require.InDelta(t, 62, a.field("low"), 1)
	})
}

// Whoever can write to Redis can delay calls, but not for longer than a 429 does.
func TestNoValueOfARecordHoldsCallsForLong(t *testing.T) {
	eachAsker(t, func(t *testing.T, a asker) {
		for _, name := range fields {
			for _, value := range []string{"-9000000000000000", "-900", "0", "9000000000000000", "-1e308", "1e308", "nan", "x"} {
				require.NoError(t, a.s.rdb().FlushAll(context.Background()).Err())
				a.ask("one", quiet, spent(a.ask("one"), 99, 100))
				values := []any{name, value}
				if name == "probe" {
					values = append(values, "known", 0, "probes", 8)
				}
				require.NoError(t, a.s.rdb().HSet(context.Background(), a.s.keys[0], values...).Err())
				for begin := a.s.now; ; {
					r := a.ask("one")
					if r.granted {
						break
					}
					require.LessOrEqual(t, max(r.wait, r.least, r.held), 330*time.Second)
					a.pass(min(max(r.wait, time.Millisecond), 5*time.Second)) // as other workers would
					require.Less(t, a.s.now-begin, 11*time.Minute.Microseconds(), "%s = %s", name, value)
				}
			}
		}
	})
}

// A pause that was wrong ends by hand, and other processes notice.
func TestResumeEndsThePauseOfAllWorkers(t *testing.T) {
	eachAsker(t, func(t *testing.T, a asker) {
		a.ask("one", quiet, spent(a.ask("one"), 99, 100))
		limited := a.ask("one")
		a.ask("one", quiet, func(q *request) {
			q.results = []result{{kind: kindRateLimited, attempt: limited.attempt, epoch: limited.epoch, sent: q.now, hold: 5 * time.Minute}}
		})
		a.pass(time.Minute)
		other := a.ask("two")
		require.False(t, other.granted)
		require.Equal(t, 4*time.Minute, other.held)
		require.Equal(t, 10*time.Second, other.wait, "it asks again meanwhile")
		a.pass(time.Second)
		require.Zero(t, a.ask("one", quiet, func(q *request) { q.results = []result{{kind: kindResume}} }).held)
		a.pass(9 * time.Second)
		require.True(t, a.ask("two").granted)
	})
}

func TestRecordOfAnotherTypeIsAnError(t *testing.T) {
	eachAsker(t, func(t *testing.T, a asker) {
		require.NoError(t, a.s.rdb().Set(context.Background(), a.s.keys[0], "text", 0).Err())
		_, err := a.s.exchange(context.Background(), &request{worker: "one", rate: 5, limit: 100, place: normal})
		require.ErrorContains(t, err, "WRONGTYPE")
	})
}

func TestOnlyAgesAreSent(t *testing.T) {
	q := &request{worker: "one", rate: 5, limit: 100, now: time.Now(), results: []result{{kind: kindSpent}}}
	q.results[0].sent = q.now.Add(-80 * time.Millisecond)
	args := fmt.Sprint(q.args()...)
	for _, hours := range []time.Duration{-7, 9} {
		q.now = q.now.Add(hours * time.Hour)
		q.results[0].sent = q.results[0].sent.Add(hours * time.Hour)
		require.Equal(t, args, fmt.Sprint(q.args()...))
	}
}

// checkRecord checks the invariants of a record.
func (s *timedStore) checkRecord(t testing.TB) {
	ctx := context.Background()
	record := s.rdb().HGetAll(ctx, s.keys[0]).Val()
	f := func(name string) float64 {
		v, err := strconv.ParseFloat(record[name], 64)
		require.NoError(t, err, name)
		require.False(t, v != v, name)
		return v
	}
	at := strconv.FormatFloat(f("at")-10e6, 'f', -1, 64)
	inFlight := float64(s.rdb().ZCount(ctx, s.keys[3], "("+at, "+inf").Val())
	require.LessOrEqual(t, f("high"), f("limit"))
	require.LessOrEqual(t, f("low"), f("high"))
	require.LessOrEqual(t, f("low"), f("limit")-inFlight)
	require.GreaterOrEqual(t, f("limit"), 1.0)
	require.GreaterOrEqual(t, f("others"), 0.0)
	require.Equal(t, s.rdb().ZCard(ctx, s.keys[1]).Val(), s.rdb().ZCard(ctx, s.keys[2]).Val())
}

// For any arguments and any record, the script replies, leaves a valid record, and
// grants at most one attempt.
func FuzzScript(f *testing.F) {
	f.Add("one|5|100|1|0|1|-1|0|0|0", "1800000000000000", "", "")
	f.Add("one|5|100|1|1|1|300000|3|2|1|spent|1|1800000000000000|0|80000|99|100|0", "1800000001000000", "low", "5")
	f.Add("one|5|100|1|i|b|-1|0|0|0", "1800000000000000", "serial", "7")
	f.Add("one|nan|inf|1|0|1|-inf|1e999|-1|0x10|rate-limited|1|2|3|4|5|6|1e300|blocked||||||-3|", "0", "epoch", "nan")
	f.Add("|||1||||||", "-5", "hold", "9e99")
	f.Add("one|5|100|1|0|0|-1|0|0|0|spent|1|1|-9|-1|1e9|1e9|0", "1799999999999999", "trend", "-1e308")
	server := newMini(f)
	rdb := connect(f, server.server.Addr())
	s := newTimedStore(f, rdb)
	f.Fuzz(func(t *testing.T, args, now, field, value string) {
		server.server.FlushAll()
		a := asker{t, s}
		s.now = 1_800_000_000_000_000
		first := a.ask("one")
		a.ask("one", spent(first, 99, 100))
		if field != "" {
			require.NoError(t, rdb.HSet(context.Background(), s.keys[0], field, value).Err())
		}
		at, err := strconv.ParseInt(now, 10, 64)
		if err != nil || at < 0 || at > 1<<52 {
			return // not a valid server clock
		}
		var argv []any
		for _, arg := range strings.SplitN(args, "|", 100) {
			argv = append(argv, arg)
		}
		inFlight := rdb.ZCard(context.Background(), s.keys[3]).Val()
		values, err := s.script.run(context.Background(), rdb, s.keys, append(argv, at)...).Slice()
		require.NoError(t, err)
		r, err := parseReply(values)
		require.NoError(t, err)
		require.LessOrEqual(t, max(r.wait, r.least, r.held), 330*time.Second)
		if !r.granted {
			inFlight = max(inFlight, 1) - 1
		}
		require.LessOrEqual(t, rdb.ZCard(context.Background(), s.keys[3]).Val(), inFlight+1)
		s.checkRecord(t)
	})
}
