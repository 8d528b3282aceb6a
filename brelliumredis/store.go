package brelliumredis

import (
	"context"
	_ "embed"
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// store keeps the record that all workers of a bucket share.
type store interface {
	// exchange tells the record what a worker has learned, and asks for a turn.
	exchange(ctx context.Context, q *request) (reply, error)
}

// kind is what an attempt came to.
type kind string

const (
	kindSpent   kind = "spent"   // allowed; remaining and limit are the answer's
	kindPaid    kind = "paid"    // allowed, with nothing known of what remains
	kindUnspent kind = "unspent" // it cost nothing, or was never sent
	kindRefused kind = "refused" // a 429
	kindBlocked kind = "blocked" // a bare 403
	kindUnknown kind = "unknown" // the answer does not tell
)

// answer is the end of one attempt.
type answer struct {
	kind      kind
	attempt   int64 // as the grant said
	epoch     int64
	ended     int64
	sent      time.Time // its age is told, never the time
	heard     time.Time // when the answer came
	remaining int
	limit     int // below 1: not known
	hold      time.Duration
}

// request is what a worker says in one exchange.
type request struct {
	worker  string
	rate    float64
	limit   int
	ask     bool          // a call waits; else the worker's ticket is given up
	front   bool          // that call was refused before
	more    bool          // others wait behind it
	budget  time.Duration // the longest wait that is of use, or below 0
	spent   int           // tokens spent without asking
	unseen  int           // attempts under way that the record does not know
	served  int64         // the last attempt granted to the worker
	answers []answer
	now     time.Time // of the ages
}

// reply is what the record says.
type reply struct {
	granted bool
	epoch   int64 // names the record: another one means that it was begun anew
	attempt int64 // names the attempt granted, within the epoch
	ended   int64 // to be told with the answer
	probing bool  // the attempt's answer is what everybody waits for
	delay   time.Duration

	ticket  bool          // the worker has a ticket
	ahead   int           // how many are before it
	wait    time.Duration // when to ask about it again
	least   time.Duration // a wait that its attempt cannot undercut
	held    time.Duration // how long nobody may send
	high    float64       // upper bound on the tokens there are
	tickets int           // how many workers wait
}

//go:embed exchange.lua
var exchangeSource string

// redisStore keeps the record in Redis.
type redisStore struct {
	rdb    redis.UniversalClient
	script *redis.Script
	keys   []string
}

// newRedisStore returns the store of one bucket. The braces put all its keys
// into one slot of a cluster.
func newRedisStore(rdb redis.UniversalClient, bucket string) *redisStore {
	prefix := "brellium:limit:1:{" + bucket + "}:"
	return &redisStore{
		rdb:    rdb,
		script: redis.NewScript(exchangeSource),
		keys:   []string{prefix + "state", prefix + "tickets", prefix + "leases", prefix + "attempts"},
	}
}

func (s *redisStore) exchange(ctx context.Context, q *request) (reply, error) {
	values, err := s.script.Run(ctx, s.rdb, s.keys, q.args()...).Slice()
	if err != nil {
		return reply{}, err
	}
	return parseReply(values)
}

// args returns what the script reads.
func (q *request) args() []any {
	args := make([]any, 0, 10+8*len(q.answers))
	budget := int64(-1)
	if q.budget >= 0 {
		budget = q.budget.Microseconds()
	}
	args = append(args, q.worker, strconv.FormatFloat(q.rate, 'g', -1, 64), q.limit,
		flag(q.ask), flag(q.front), flag(q.more), budget, q.spent, q.unseen, q.served)
	for _, a := range q.answers {
		age := max(q.now.Sub(a.sent), 0)
		args = append(args, string(a.kind), a.attempt, a.epoch, a.ended,
			age.Microseconds(), a.remaining, a.limit, a.hold.Microseconds())
	}
	return args
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

var errReply = errors.New("brelliumredis: the script's reply is not what it should be")

func parseReply(values []any) (reply, error) {
	const fields = 13
	var n [fields]int64
	var r reply
	if len(values) != fields {
		return r, errReply
	}
	for i, v := range values {
		var err error
		switch v := v.(type) {
		case int64:
			n[i] = v
		case string:
			r.high, err = strconv.ParseFloat(v, 64)
		default:
			err = errReply
		}
		if err != nil {
			return reply{}, errReply
		}
	}
	r.granted, r.epoch, r.attempt, r.ended = n[0] == 1, n[1], n[2], n[3]
	r.probing, r.delay = n[4] == 1, micros(n[5])
	r.ticket, r.ahead, r.wait, r.least, r.held = n[6] == 1, int(n[7]), micros(n[8]), micros(n[9]), micros(n[10])
	r.tickets = int(n[12])
	return r, nil
}

// maxMicros keeps a duration from overflowing.
const maxMicros = int64(1) << 52

func micros(n int64) time.Duration {
	return time.Duration(min(max(n, 0), maxMicros)) * time.Microsecond
}
