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

// timed is the script with the time as its last argument.
func timed(t testing.TB) *redis.Script {
	const clock = "local time = redis.call('TIME')\nlocal now = time[1] * 1000000 + time[2]\n"
	require.Equal(t, 1, strings.Count(exchangeSource, clock))
	require.Equal(t, 1, strings.Count(exchangeSource, "TIME'"), "there is one clock")
	return redis.NewScript(strings.Replace(exchangeSource, clock, "local now = tonumber(ARGV[#ARGV])\n", 1))
}

// timedStore is a redisStore under a clock of the test's own.
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
	values, err := s.script.Run(ctx, s.rdb, s.keys, append(q.args(), s.now)...).Slice()
	if err != nil {
		return reply{}, err
	}
	return parseReply(values)
}

// dump returns what Redis holds, in a form that dump of the model has too.
func (s *timedStore) dump(t testing.TB) string {
	ctx := context.Background()
	pipe := s.rdb.Pipeline()
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
	"hold", "others", "probes", "probe", "from", "mark", "debt", "learned", "looked"}

func (m *model) dump() string {
	known := 0.0
	if m.known {
		known = 1
	}
	var b strings.Builder
	for i, v := range []float64{m.epoch, m.at, m.low, m.high, m.limit, known, m.ended, m.serial,
		m.hold, m.others, m.probes, m.probe, m.from, m.mark, m.debt, m.learned, m.looked} {
		fmt.Fprintln(&b, fields[i], v)
	}
	for _, t := range m.tickets {
		fmt.Fprintln(&b, "ticket", t.worker, t.serial, t.lease)
	}
	sent := make(map[float64]float64)
	for _, u := range m.attempts {
		sent[u.attempt] = u.sent
	}
	fmt.Fprintln(&b, "attempts", sent)
	return b.String()
}

// history draws exchanges of some workers with one record: mostly what workers
// would say, and now and then what they would not.
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
		ask:    r.IntN(4) > 0,
		more:   r.IntN(2) == 0,
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
		kinds := []kind{kindSpent, kindSpent, kindSpent, kindSpent, kindPaid, kindUnspent, kindUnknown, kindRefused, kindBlocked}
		q.answers = append(q.answers, answer{
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

// The tests in virtual time stand on the model, so it has to be the script.
func TestScriptAgreesWithModel(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		rdb := b.client(t)
		ctx := context.Background()
		for seed := range uint64(5) {
			require.NoError(t, rdb.FlushAll(ctx).Err())
			s, m := newTimedStore(t, rdb), new(model)
			h := &history{rand: rand.New(rand.NewPCG(seed, 8)), now: 1_800_000_000_000_000}
			granted := 0
			for step := range 250 {
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
