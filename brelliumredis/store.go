package brelliumredis

import (
	"context"
	_ "embed"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// store holds the record that all processes of a bucket share.
type store interface {
	// exchange reports the results of a worker and asks for a turn.
	exchange(ctx context.Context, q *request) (reply, error)
}

// kind is the outcome of an attempt.
type kind string

const (
	kindSpent       kind = "spent"        // allowed; remaining and limit are those of the response
	kindPaid        kind = "paid"         // allowed, without remaining and limit
	kindUnspent     kind = "unspent"      // no token spent, or never sent
	kindRateLimited kind = "rate-limited" // a 429
	kindBlocked     kind = "blocked"      // a bare 403
	kindUnknown     kind = "unknown"      // the response does not say
	kindResume      kind = "resume"       // no attempt: a pause is over
)

// result is the end of one attempt.
type result struct {
	kind      kind
	attempt   int64 // as the grant said
	epoch     int64
	ended     int64
	sent      time.Time // only its age is sent, never the time
	received  time.Time // time of the response
	remaining int
	limit     int // below 1: not known
	hold      time.Duration
}

// place is where a ticket is put in the queue of all workers, best first.
type place int

const (
	noPlace place = iota
	front         // of a call that was rate limited before
	interactive
	normal
	background
)

func (p place) String() string { return [...]string{"", "f", "i", "n", "b"}[p] }

// request is what a worker sends in one exchange.
type request struct {
	worker  string
	rate    float64
	limit   int
	place   place         // of the ticket, which is removed if no call waits
	next    place         // of the next ticket, if others wait behind that call
	budget  time.Duration // the longest useful wait, or below 0
	spent   int           // tokens spent without a grant
	unseen  int           // attempts in flight that the record does not have
	served  int64         // the last attempt granted to the worker
	results []result
	now     time.Time // reference of the ages
}

// reply is what the record returns.
type reply struct {
	granted bool
	epoch   int64 // identifies the record; it changes when the record is started anew
	attempt int64 // identifies the granted attempt within the epoch
	ended   int64 // to be sent with the result
	probing bool  // all workers wait for the result of this attempt
	delay   time.Duration

	ticket  bool          // the worker has a ticket
	ahead   int           // how many are before it
	wait    time.Duration // when to ask about it again
	least   time.Duration // lower bound of the wait of its attempt
	held    time.Duration // how long no worker may send
	high    float64       // upper bound of the tokens
	tickets int           // how many workers wait
	others  bool          // other clients spend
}

//go:embed exchange.lua
var exchangeSource string

// script is a Lua script whose digest Redis computes, since FIPS 140-only mode has
// no SHA-1. A [redis.Script] that does so makes callers wait for each other,
// whatever their contexts say.
type script struct {
	source string
	digest atomic.Pointer[string] // nil until it has been loaded
}

func (s *script) run(ctx context.Context, rdb redis.UniversalClient, keys []string, args ...any) *redis.Cmd {
	digest := s.digest.Load()
	if digest == nil {
		loaded, err := rdb.ScriptLoad(ctx, s.source).Result()
		if _, ok := err.(redis.Error); err != nil && !ok {
			return failed(ctx, err)
		} else if err != nil { // Redis responded: the user may not load scripts
			return rdb.Eval(ctx, s.source, keys, args...)
		}
		digest = &loaded
		s.digest.Store(digest)
	}
	cmd := rdb.EvalSha(ctx, *digest, keys, args...)
	if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
		return rdb.Eval(ctx, s.source, keys, args...)
	}
	return cmd
}

func failed(ctx context.Context, err error) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(err)
	return cmd
}

// redisStore is the store in Redis.
type redisStore struct {
	rdb    func() redis.UniversalClient // a function, since dumpers cannot look inside one
	script *script
	keys   []string
}

// newRedisStore returns the store of one bucket. The braces put all its keys in one
// slot of a cluster.
func newRedisStore(rdb redis.UniversalClient, bucket string) *redisStore {
	prefix := "brellium:limit:1:{" + bucket + "}:"
	return &redisStore{
		rdb:    func() redis.UniversalClient { return rdb },
		script: &script{source: exchangeSource},
		keys:   []string{prefix + "state", prefix + "tickets", prefix + "leases", prefix + "attempts"},
	}
}

func (s *redisStore) exchange(ctx context.Context, q *request) (r reply, err error) {
	defer func() { // it runs in a goroutine of the limiter, where a panic would end the process
		if recover() != nil {
			r, err = reply{}, errPanic
		}
	}()
	values, err := s.script.run(ctx, s.rdb(), s.keys, q.args()...).Slice()
	if err != nil {
		return reply{}, err
	}
	return parseReply(values)
}

// args returns the arguments of the script.
func (q *request) args() []any {
	args := make([]any, 0, 10+8*len(q.results))
	budget := int64(-1)
	if q.budget >= 0 {
		budget = q.budget.Microseconds()
	}
	args = append(args, q.worker, strconv.FormatFloat(q.rate, 'g', -1, 64), q.limit,
		min(int(q.place), 1), q.place.String(), q.next.String(), budget, q.spent, q.unseen, q.served)
	for _, a := range q.results {
		age := max(q.now.Sub(a.sent), 0)
		args = append(args, string(a.kind), a.attempt, a.epoch, a.ended,
			age.Microseconds(), a.remaining, a.limit, a.hold.Microseconds())
	}
	return args
}

var (
	errReply = errors.New("brelliumredis: invalid reply from the script")
	errPanic = errors.New("brelliumredis: the Redis client panicked")
)

func parseReply(values []any) (reply, error) {
	const fields = 14
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
	r.tickets, r.others = int(n[12]), n[13] == 1
	return r, nil
}

// maxMicros prevents an overflow of time.Duration.
const maxMicros = int64(1) << 52

func micros(n int64) time.Duration {
	return time.Duration(min(max(n, 0), maxMicros)) * time.Microsecond
}
