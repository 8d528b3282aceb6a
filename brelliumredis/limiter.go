package brelliumredis

import (
	"container/list"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	brellium "github.com/brellium/brellium-go"
)

// ErrUnavailable is matched by the error of a [Limiter] when Redis does not respond
// in time. LimiterOptions.Notify is called with it, and [Limiter.Acquire] returns it
// with LimiterOptions.FailClosed. It also unwraps to the error of the Redis client.
var ErrUnavailable = errors.New("brelliumredis: Redis is not available")

var errSlow = errors.New("no response in time")

// LimiterOptions configures a [Limiter]. The zero value is right for one
// organization with the documented limit and its own Redis database. All
// processes that share a bucket should set the same Bucket, Burst and PerSecond.
type LimiterOptions struct {
	// Bucket names the bucket in the Redis keys, one for each organization and
	// environment: at most 200 visible ASCII characters, no braces. It must not
	// contain a secret. The default is "default".
	Bucket string

	// Burst and PerSecond are the organization's limit. RateLimit-Limit of a
	// response overrides Burst. No header reports the refill; if the real one is
	// lower or higher than PerSecond, it is followed less well. The default is
	// the documented 100 requests at once and 5 a second. Set both or neither.
	Burst     int
	PerSecond float64

	// LocalBurst and LocalPerSecond limit what this process sends while Redis is
	// unavailable: at most LocalBurst requests at once, then LocalPerSecond a
	// second, and less if responses show that others spend. The default is 5
	// and 1. Set both or neither.
	LocalBurst     int
	LocalPerSecond float64

	// FailClosed makes [Limiter.Acquire] return [ErrUnavailable] while Redis is
	// unavailable.
	FailClosed bool

	// MaxDelay is how long a call waits for a response from Redis before Redis
	// counts as unavailable. The default is 250 ms.
	MaxDelay time.Duration

	// Notify is called once for each change: with an error that matches
	// [ErrUnavailable] when Redis becomes unavailable, and with nil when it is
	// back. The error wraps that of the Redis client, which may contain the
	// server's address. Calls come from a goroutine of the limiter and do not
	// overlap. A panic is ignored.
	Notify func(err error)
}

const (
	defaultBucket   = "default"
	defaultBurst    = 100
	defaultRate     = 5.0
	defaultMaxDelay = 250 * time.Millisecond

	defaultLocalBurst = 5
	defaultLocalRate  = 1.0

	// awayPause is the time between two attempts to reach Redis.
	awayPause = time.Second
	// An ordinary result is sent with an exchange that is due within
	// maxPiggyback, otherwise after maxDefer, so that several share one. Both are
	// shorter for a faster refill: the time of five tokens and of half a token.
	maxPiggyback = time.Second
	maxDefer     = 100 * time.Millisecond
	// maxCredit limits the round trips that a process can save for later, and
	// those that it can owe.
	maxCredit = 16
	// maxResults limits one exchange, maxPending what is kept while Redis is
	// unavailable. A dropped attempt counts as ended when its lease ends.
	maxResults = 64
	maxPending = 1024

	defaultHold = time.Second // for a 429 without a wait
	// maxHold is the longest pause of all processes: then one attempt finds out
	// whether the limit still holds. A longer wait than absurdHold counts as none.
	maxHold    = 5 * time.Minute
	absurdHold = time.Hour
	holdSpread = 500 * time.Millisecond
)

// Limiter is a [brellium.Limiter] whose bucket is shared by all processes that use
// the same Redis and the same bucket name. Processes take turns, however many
// goroutines they have: each has one ticket in a queue in Redis. Its own calls are
// served by [brellium.Priority], and those of one priority first in, first out,
// after those that were rate limited before.
//
//   - Priorities: in a process, a priority with calls waiting gets at least one
//     grant in eight. Among processes, a ticket is as good as the best call that
//     waits for it. An interactive ticket overtakes at most the normal tickets of
//     the last 64 draws and the background tickets of the last 128, so nobody
//     starves. A ticket for a rate-limited call is before all others.
//   - A call usually costs two round trips to Redis or less: one to ask for a
//     turn, one to report the result, which is delayed by up to 100 ms so that
//     several share one. A call that waits in a process where none waited asks
//     twice. So does one of a better priority than the ticket of its process. A
//     process that is overtaken again and again asks about once a second. While
//     other clients spend, results show what they leave and are reported sooner,
//     which costs many processes about four round trips a call.
//   - A 429 pauses every process.
//   - Only the Redis server's clock counts.
//   - A process that dies delays others little: its turn is worth one token and
//     ends 2 s after it was due. Its attempts count as ended after 30 s.
//   - If the record is missing or old (an expired key, a Redis that lost its
//     data), attempts are sent one by one until a response reports what remains.
//   - While Redis is unavailable, each process paces itself with a
//     [brellium.AdaptiveLimiter] at a small share and tries Redis once a second
//     while there are calls.
//   - The spending of other clients of the organization is detected, and the
//     limiter backs off for them.
//
// A Limiter runs a goroutine for each exchange with Redis. It ends after MaxDelay
// if the Redis client honors contexts (redis.Options.ContextTimeoutEnabled), or
// after that client's own timeouts. A Limiter needs no closing. It serves any
// number of goroutines and clients.
type Limiter struct {
	store     store
	worker    string
	options   LimiterOptions
	local     *brellium.AdaptiveLimiter
	deferred  time.Duration
	piggyback time.Duration
	pause     time.Duration // awayPause

	mu      sync.Mutex
	lanes   [3]lane // by place, from interactive on
	waiting int     // in all lanes
	undated int     // how many of them have no deadline
	serial  uint64
	timer   *time.Timer
	trip    *roundTrip // the exchange in progress

	credit  int       // round trips saved, of two for each permit
	pending []result  // not reported yet
	urgent  bool      // report at once
	flushAt time.Time // when to report, or to return the ticket

	epoch    int64 // epoch of the record
	served   int64 // the last attempt granted in that epoch
	inFlight int   // permits of that epoch
	unseen   int   // permits in flight that the record does not have
	spent    int   // local attempts that the record does not have
	others   bool  // other clients spent, by the last reply

	ticket  bool  // this process has a ticket in Redis
	place   place // as which it was drawn
	vain    int   // how often in a row it had others before it
	askAt   time.Time
	updated time.Time // of the fields below, which are valid while there is a ticket
	ahead   int
	high    float64
	held    time.Duration

	away          bool
	retryAt       time.Time
	cause         error
	localInFlight int
	localWaits    map[*waiter]context.CancelFunc // ends the local waits

	notices   []error
	notifying bool
	stats     Stats
}

// Stats are the counters of a [Limiter].
type Stats struct {
	// RoundTrips is the number of exchanges with Redis, including failed ones.
	RoundTrips int64
	// Granted is the number of permits from the shared bucket, Local of those
	// granted while Redis was unavailable.
	Granted, Local int64
	// Waiting is the number of calls that wait now.
	Waiting int
	// Workers is how many processes had a call waiting at the last exchange.
	Workers int
	// Away is true while Redis counts as unavailable.
	Away bool
}

// share limits how many grants in a row pass over a lane that waits: it gets at
// least one in share.
const share = 8

// lane is the waiters of one priority.
type lane struct {
	list.List     // of *waiter; rate-limited ones first, then by serial
	passed    int // grants in a row to other lanes
}

// waiter is one Acquire. It belongs to the limiter until ready is closed.
type waiter struct {
	serial   uint64
	place    place // interactive, normal or background
	front    bool  // rate limited before
	deadline time.Time
	element  *list.Element // nil: not queued
	asked    *roundTrip    // whose budget counted it
	ready    chan struct{}

	// The outcome, one of these. delay belongs to permit, again to goLocal.
	permit *permit
	err    error
	goLocal,
	again bool
	delay time.Duration
}

// roundTrip is one exchange in progress.
type roundTrip struct {
	request request
	late    bool // timed out
	timer   *time.Timer
}

// NewLimiter returns a [Limiter] that uses rdb, which the caller closes. It sends
// nothing. Options out of range return a [*brellium.ValidationError].
func NewLimiter(rdb redis.UniversalClient, options LimiterOptions) (*Limiter, error) {
	if isNil(rdb) {
		return nil, &brellium.ValidationError{Field: "rdb", Reason: "must not be nil"}
	}
	l, err := newLimiter(options)
	if err != nil {
		return nil, err
	}
	l.store = newRedisStore(rdb, l.options.Bucket)
	return l, nil
}

func newLimiter(options LimiterOptions) (*Limiter, error) {
	if options.Bucket == "" {
		options.Bucket = defaultBucket
	}
	if options.Burst == 0 && options.PerSecond == 0 {
		options.Burst, options.PerSecond = defaultBurst, defaultRate
	}
	if options.LocalBurst == 0 && options.LocalPerSecond == 0 {
		options.LocalBurst, options.LocalPerSecond = defaultLocalBurst, defaultLocalRate
	}
	if options.MaxDelay == 0 {
		options.MaxDelay = defaultMaxDelay
	}
	for _, check := range []struct {
		field string
		ok    bool
		must  string
	}{
		{"Bucket", validBucket(options.Bucket), "must be up to 200 visible ASCII characters without braces"},
		{"Burst", options.Burst >= 1 && options.Burst <= 1e6, "must be between 1 and 1,000,000"},
		{"PerSecond", options.PerSecond >= 1e-6 && options.PerSecond <= 1e6, "must be between 0.000001 and 1,000,000"},
		{"LocalBurst", options.LocalBurst >= 1, "must be at least 1"},
		{"LocalPerSecond", options.LocalPerSecond > 0 && !math.IsInf(options.LocalPerSecond, 1), "must be a finite number above 0"},
		{"MaxDelay", options.MaxDelay > 0, "must be above 0"},
	} {
		if !check.ok {
			return nil, &brellium.ValidationError{Field: check.field, Reason: check.must}
		}
	}
	local, err := brellium.NewAdaptiveLimiter(brellium.AdaptiveLimiterOptions{
		MaxBurst:     options.LocalBurst,
		MaxPerSecond: options.LocalPerSecond,
	})
	if err != nil {
		return nil, err
	}
	token := time.Duration(float64(time.Second) / options.PerSecond)
	return &Limiter{
		worker:     rand.Text(),
		options:    options,
		local:      local,
		deferred:   min(maxDefer, token/2),
		piggyback:  min(maxPiggyback, 5*token),
		pause:      awayPause,
		localWaits: make(map[*waiter]context.CancelFunc),
	}, nil
}

// validBucket reports whether name can be part of a key.
func validBucket(name string) bool {
	if len(name) > 200 {
		return false
	}
	return !strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || r > '~' || r == '{' || r == '}'
	})
}

func isNil(v any) bool {
	if v == nil {
		return true
	}
	r := reflect.ValueOf(v)
	switch r.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Func, reflect.Interface:
		return r.IsNil()
	}
	return false
}

// Acquire implements [brellium.Limiter]. A wait that would exceed the deadline of
// ctx returns a [*brellium.InterruptedError] at once, with the least possible wait
// in Wait. So does a wait that becomes too long later. If ctx ends, its error is
// returned. With FailClosed, an error that matches [ErrUnavailable] is returned
// while Redis is unavailable.
//
// A permit that is never ended counts as ended after 30 s.
func (l *Limiter) Acquire(ctx context.Context) (brellium.Permit, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	w := &waiter{front: brellium.IsRateLimitRetry(ctx),
		place: normal - place(brellium.PriorityFromContext(ctx))}
	w.deadline, _ = ctx.Deadline()
	for {
		l.enter(w)
		select {
		case <-w.ready:
		case <-ctx.Done():
			l.leave(w)
			return nil, ctx.Err()
		}
		switch {
		case w.err != nil:
			return nil, w.err
		case w.goLocal:
			p, err := l.acquireLocal(ctx, w)
			if w.again && err != nil && ctx.Err() == nil {
				continue
			}
			return p, err
		}
		if err := sleep(ctx, w.delay); err != nil {
			w.permit.Done(brellium.LimiterResult{Spent: brellium.SpentNo})
			return nil, err
		}
		w.permit.sent = time.Now()
		return w.permit, nil
	}
}

// sleep waits for d or until ctx is done. It returns the error of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// Resume ends the pause after a 429, as [brellium.Client.Resume] does: that of this
// process with its next exchange with Redis, which it starts, and that of the others
// within about 10 s.
func (l *Limiter) Resume() {
	l.local.Resume()
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.held = 0
	l.queueResult(result{kind: kindResume, sent: now}, true, now)
	l.dispatch(now)
}

// Stats returns the current counters.
func (l *Limiter) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Waiting = l.waiting + len(l.localWaits)
	s.Away = l.away
	return s
}

// enter queues w, or ends its wait at once if Redis is unavailable or the deadline
// cannot be met.
func (l *Limiter) enter(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	w.ready = make(chan struct{})
	w.goLocal, w.again, w.asked = false, false, nil
	if w.serial == 0 {
		l.serial++
		w.serial = l.serial
	}
	if l.away && (l.trip != nil || now.Before(l.retryAt)) {
		l.divert(w)
		return
	}
	own := l.push(w)
	if wait := l.atLeast(now, w, own); !w.deadline.IsZero() && wait > w.deadline.Sub(now) {
		l.resolve(w, now, tooLong(wait))
	}
	l.dispatch(now)
}

// leave removes a waiter whose context has ended.
func (l *Limiter) leave(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.element != nil {
		l.resolve(w, time.Now(), context.Canceled)
	} else if w.permit != nil { // granted at the same moment
		l.end(w.permit, brellium.LimiterResult{Spent: brellium.SpentNo})
	}
	l.dispatch(time.Now())
}

// tooLong is the error of a wait that would exceed the caller's deadline.
func tooLong(wait time.Duration) error {
	return &brellium.InterruptedError{Wait: wait, Err: context.DeadlineExceeded}
}

// lane returns the lane of w.
func (l *Limiter) lane(w *waiter) *lane { return &l.lanes[w.place-interactive] }

// push queues w: in its lane, rate-limited ones before the others, then by serial.
// It returns how many of the lane are before w.
func (l *Limiter) push(w *waiter) (own int) {
	l.waiting++
	if w.deadline.IsZero() {
		l.undated++
	}
	before := func(e *list.Element) bool {
		o := e.Value.(*waiter)
		if o.front != w.front {
			return o.front
		}
		return o.serial < w.serial
	}
	lane := l.lane(w)
	if lane.Len() == 0 {
		lane.passed = 0
	}
	own = lane.Len()
	e := lane.Back()
	for ; e != nil && !before(e); e = e.Prev() {
		own--
	}
	if e != nil {
		w.element = lane.InsertAfter(w, e)
	} else {
		w.element = lane.PushFront(w)
	}
	return own
}

// queued is an iterator over the waiters, which may be removed.
func (l *Limiter) queued(yield func(w *waiter) bool) {
	for i := range l.lanes {
		for e := l.lanes[i].Front(); e != nil; {
			w := e.Value.(*waiter)
			e = e.Next()
			if !yield(w) {
				return
			}
		}
	}
}

// first returns the waiter to be served next, or nil if there is none. It is that of
// the first lane with waiters, unless another was passed over too often.
func (l *Limiter) first() (w *waiter) {
	for i := range l.lanes {
		lane := &l.lanes[i]
		if lane.Len() > 0 && (w == nil || lane.passed >= share-1) {
			w = lane.Front().Value.(*waiter)
		}
	}
	return w
}

// best returns the best place of the waiters other than skip. The ticket is drawn
// for it, so that a lane that gets its share does not delay one before it.
func (l *Limiter) best(skip *waiter) (best place) {
	for i := range l.lanes {
		e := l.lanes[i].Front()
		if e != nil && e.Value == skip {
			e = e.Next()
		}
		if e == nil {
			continue
		}
		if e.Value.(*waiter).front {
			return front
		}
		if best == noPlace {
			best = e.Value.(*waiter).place
		}
	}
	return best
}

// remove takes w out of the queue.
func (l *Limiter) remove(w *waiter, now time.Time) {
	l.lane(w).Remove(w.element)
	w.element = nil
	l.waiting--
	if w.deadline.IsZero() {
		l.undated--
	}
	if l.waiting == 0 && l.ticket && l.flushAt.IsZero() {
		l.flushAt = now.Add(l.deferred) // return the ticket unless a call comes
	}
}

// resolve ends the wait of w with an error.
func (l *Limiter) resolve(w *waiter, now time.Time, err error) {
	l.remove(w, now)
	w.err = err
	close(w.ready)
}

// divert ends the wait of w, which is not queued, because Redis is unavailable.
func (l *Limiter) divert(w *waiter) {
	if l.options.FailClosed {
		w.err = l.cause
	} else {
		w.goLocal = true
	}
	close(w.ready)
}

// atLeast returns a lower bound of the wait of w, which has so many of its own lane
// before it, according to the last reply.
func (l *Limiter) atLeast(now time.Time, w *waiter, own int) time.Duration {
	if !l.ticket || l.away {
		return 0
	}
	before := 0
	for i := range w.place - interactive {
		before += l.lanes[i].Len()
	}
	before = own + min(before, (share-1)*(own+1)-l.lane(w).passed)
	if l.best(nil) >= l.place { // otherwise a better ticket is drawn now
		before += l.ahead
	}
	since := now.Sub(l.updated)
	high := l.high + since.Seconds()*l.options.PerSecond
	missing := float64(1+before) - high
	return max(l.held-since, time.Duration(missing/l.options.PerSecond*float64(time.Second)), 0)
}

// review fails the waiters whose deadline can no longer be met.
func (l *Limiter) review(now time.Time) {
	if l.waiting == l.undated {
		return
	}
	var own [background + 1]int
	for w := range l.queued {
		if wait := l.atLeast(now, w, own[w.place]); !w.deadline.IsZero() && wait > w.deadline.Sub(now) {
			l.resolve(w, now, tooLong(wait))
		} else {
			own[w.place]++
		}
	}
}

// dispatch starts the exchange that is due, or sets the timer for the next.
func (l *Limiter) dispatch(now time.Time) {
	if l.trip != nil {
		return // run dispatches again
	}
	at, ok := l.due(now)
	if !ok {
		if l.timer != nil {
			l.timer.Stop()
		}
		return
	}
	if wait := at.Sub(now); wait > 0 {
		if l.timer == nil {
			l.timer = time.AfterFunc(wait, l.wake)
		} else {
			l.timer.Reset(wait)
		}
		return
	}
	l.start(now)
}

// due returns when the next exchange is due, if any.
func (l *Limiter) due(now time.Time) (time.Time, bool) {
	if l.away {
		return l.retryAt, l.waiting > 0 || len(l.localWaits) > 0
	}
	if l.urgent || l.waiting > 0 && (!l.ticket || l.best(nil) < l.place) {
		return now, true
	}
	at, ok := l.askAt, l.waiting > 0
	flushAt := l.flushAt
	if l.credit <= 0 && len(l.pending) > 0 { // wait for another exchange, unless results soon show what others leave
		flushAt = time.Time{}
		if l.others {
			flushAt = l.pending[0].received.Add(l.piggyback / 2)
		}
	}
	if !flushAt.IsZero() && (!ok || flushAt.Before(at)) {
		at, ok = flushAt, true
	}
	return at, ok
}

// wake is called by the timer.
func (l *Limiter) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dispatch(time.Now())
}

// start begins an exchange, which reports the pending results and asks for a turn
// for the first waiter.
func (l *Limiter) start(now time.Time) {
	f := &roundTrip{}
	n := min(len(l.pending), maxResults)
	f.request = request{
		worker:  l.worker,
		rate:    l.options.PerSecond,
		limit:   l.options.Burst,
		place:   l.best(nil),
		next:    l.best(l.first()),
		budget:  -1,
		spent:   l.spent,
		unseen:  l.unseen,
		served:  l.served,
		results: l.pending[:n:n],
		now:     now,
	}
	if l.away {
		f.request.unseen += l.localInFlight
	}
	if l.waiting > 0 && l.undated == 0 {
		f.request.budget = 0
		for w := range l.queued {
			w.asked = f
			f.request.budget = max(f.request.budget, w.deadline.Sub(now))
		}
	}
	for i, a := range f.request.results {
		if a.kind == kindSpent && now.Sub(a.received) > l.piggyback {
			f.request.results[i].kind = kindPaid // what remained is too old to use
		}
	}
	l.pending = l.pending[n:]
	l.urgent = l.urgent && len(l.pending) > 0
	l.flushAt = time.Time{}
	if len(l.pending) > 0 {
		l.flushAt = now
	}
	l.trip = f
	l.stats.RoundTrips++
	l.credit = max(l.credit-1, -maxCredit)
	f.timer = time.AfterFunc(l.options.MaxDelay, func() { l.timeOut(f) })
	go l.run(f)
}

// timeOut stops waiting for an exchange.
func (l *Limiter) timeOut(f *roundTrip) {
	l.mu.Lock()
	if l.trip != f || f.late {
		l.mu.Unlock()
		return
	}
	f.late = true
	l.setAway(errSlow, time.Now())
	l.mu.Unlock()
	l.notify()
}

// run makes an exchange.
func (l *Limiter) run(f *roundTrip) {
	ctx, cancel := context.WithTimeout(context.Background(), l.options.MaxDelay)
	r, err := l.store.exchange(ctx, &f.request)
	cancel()

	l.mu.Lock()
	f.timer.Stop()
	l.trip = nil
	now := time.Now()
	switch {
	case err != nil:
		l.restore(f)
		if !f.late {
			l.setAway(err, now)
		}
	case f.late:
		// Redis works, but slowly. A grant that came too late is returned.
		if r.granted {
			l.returnGrant(r, now)
		}
	default:
		l.apply(f, r, now)
	}
	l.dispatch(now)
	l.mu.Unlock()
	l.notify()
}

// restore keeps the results of a failed exchange for the next one.
func (l *Limiter) restore(f *roundTrip) {
	l.pending = append(f.request.results, l.pending...)
	if n := len(l.pending) - maxPending; n > 0 {
		l.pending = l.pending[n:]
	}
}

// setAway marks Redis as unavailable and diverts all waiters.
func (l *Limiter) setAway(err error, now time.Time) {
	l.cause = fmt.Errorf("%w: %w", ErrUnavailable, err)
	if !l.away {
		l.away = true
		l.notices = append(l.notices, l.cause)
	}
	l.retryAt = now.Add(l.pause)
	l.ticket = false
	for w := range l.queued {
		l.remove(w, now)
		l.divert(w)
	}
	l.dispatch(now)
}

// setBack marks Redis as available and ends all local waits.
func (l *Limiter) setBack() {
	l.away, l.cause = false, nil
	l.notices = append(l.notices, nil)
	for w, recall := range l.localWaits {
		w.again = true
		recall()
	}
	clear(l.localWaits)
	if len(l.pending) > 0 {
		l.urgent = true
	}
}

// apply handles the reply to an exchange.
func (l *Limiter) apply(f *roundTrip, r reply, now time.Time) {
	l.spent = max(l.spent-f.request.spent, 0)
	l.unseen = 0
	if l.away {
		l.setBack()
	}
	if r.epoch != l.epoch {
		l.unseen += l.inFlight
		l.epoch, l.inFlight, l.served = r.epoch, 0, 0
	}
	l.stats.Workers = r.tickets
	l.ticket, l.askAt, l.updated = r.ticket, now.Add(r.wait), now
	l.ahead, l.high, l.held, l.others = r.ahead, r.high, r.held, r.others
	l.place = f.request.place
	if r.granted {
		l.place = f.request.next
		l.served = r.attempt
		l.grant(r, now)
	}
	if l.vain++; r.granted || r.ahead == 0 || l.place <= interactive {
		l.vain = 0
	} else if l.credit < 0 && l.vain > 2 { // overtaken: ask later, but before the ticket ends
		l.askAt = l.askAt.Add(l.piggyback)
	}
	if r.ticket && l.waiting == 0 && l.flushAt.IsZero() {
		l.flushAt = now.Add(l.deferred)
	}
	if f.request.budget >= 0 && r.least > f.request.budget {
		for w := range l.queued {
			if w.asked == f {
				l.resolve(w, now, tooLong(r.least))
			}
		}
	}
	l.review(now)
}

// grant gives a permit to the first waiter.
func (l *Limiter) grant(r reply, now time.Time) {
	w := l.first()
	if w == nil { // all have left
		l.returnGrant(r, now)
		return
	}
	if !w.deadline.IsZero() && r.delay > w.deadline.Sub(now) {
		l.returnGrant(r, now)
		l.resolve(w, now, tooLong(r.delay))
		return
	}
	for i := range l.lanes {
		l.lanes[i].passed++
	}
	l.lane(w).passed = 0
	l.remove(w, now)
	l.inFlight++
	l.credit = min(l.credit+2, maxCredit)
	l.stats.Granted++
	w.permit = &permit{limiter: l, reply: r}
	w.delay = r.delay
	close(w.ready)
}

// returnGrant returns a grant that nobody uses.
func (l *Limiter) returnGrant(r reply, now time.Time) {
	l.queueResult(result{kind: kindUnspent, attempt: r.attempt, epoch: r.epoch, sent: now}, true, now)
}

// queueResult keeps a result for the next exchange.
func (l *Limiter) queueResult(a result, urgent bool, now time.Time) {
	a.received = now
	l.pending = append(l.pending, a)
	if n := len(l.pending) - maxPending; n > 0 {
		l.pending = l.pending[n:]
	}
	l.urgent = l.urgent || urgent || len(l.pending) >= maxResults
	if l.flushAt.IsZero() {
		l.flushAt = now.Add(l.deferred)
		if l.ticket && l.waiting > 0 && l.askAt.Sub(now) <= l.piggyback {
			l.flushAt = l.askAt
		}
	}
}

// permit is one attempt from its grant to Done.
type permit struct {
	limiter *Limiter
	reply   reply
	sent    time.Time
	ended   bool
}

// Done implements [brellium.Permit]. It does not wait for Redis. Calls after the
// first do nothing.
func (p *permit) Done(a brellium.LimiterResult) {
	l := p.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end(p, a)
	l.dispatch(time.Now())
}

func (l *Limiter) end(p *permit, a brellium.LimiterResult) {
	if p.ended {
		return
	}
	p.ended = true
	if p.reply.epoch == l.epoch {
		l.inFlight--
	}
	res, urgent := toResult(a)
	res.attempt, res.epoch, res.ended = p.reply.attempt, p.reply.epoch, p.reply.ended
	now := time.Now()
	if res.sent = p.sent; p.sent.IsZero() {
		res.sent = now
	}
	l.queueResult(res, urgent || p.reply.probing, now)
}

// toResult returns what is reported of an attempt, and whether that is urgent.
func toResult(a brellium.LimiterResult) (res result, urgent bool) {
	if a.RateLimit.Known() {
		res.remaining, res.limit = a.RateLimit.Remaining, a.RateLimit.Limit
	}
	switch {
	case a.Refused:
		res.kind = kindRateLimited
		res.hold = a.RetryAfter
		if res.hold <= 0 || res.hold > absurdHold {
			res.hold = defaultHold
		}
		res.hold = min(res.hold, maxHold) + mathrand.N(holdSpread)
		return res, true
	case a.Blocked:
		res.kind = kindBlocked
		return res, true
	case a.Spent == brellium.SpentNo:
		res.kind = kindUnspent
	case a.RateLimit.Known():
		res.kind = kindSpent
	case a.Spent == brellium.SpentYes:
		res.kind = kindPaid
	default:
		res.kind = kindUnknown
	}
	return res, false
}

// acquireLocal acquires a permit from this process's small share. It fails with
// w.again set when Redis is back.
func (l *Limiter) acquireLocal(ctx context.Context, w *waiter) (brellium.Permit, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l.mu.Lock()
	if !l.away { // Redis is back already
		w.again = true
		l.mu.Unlock()
		return nil, context.Canceled
	}
	l.localWaits[w] = cancel
	l.dispatch(time.Now())
	l.mu.Unlock()

	p, err := l.local.Acquire(ctx)

	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.localWaits, w)
	if err != nil {
		return nil, err
	}
	l.stats.Local++
	l.spent++
	l.localInFlight++
	return &localPermit{limiter: l, permit: p}, nil
}

// localPermit is an attempt that the record does not have.
type localPermit struct {
	limiter *Limiter
	permit  brellium.Permit
	ended   bool
}

func (p *localPermit) Done(a brellium.LimiterResult) {
	p.permit.Done(a)
	l := p.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.ended {
		return
	}
	p.ended = true
	l.localInFlight--
	if a.Spent == brellium.SpentNo && l.spent > 0 && l.away {
		l.spent--
	}
	if a.Refused { // all processes must pause
		res, _ := toResult(a)
		now := time.Now()
		res.sent = now
		l.queueResult(res, !l.away, now)
		l.dispatch(now)
	}
}

// notify calls Notify with the notices, in order and without holding the lock.
func (l *Limiter) notify() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.notifying {
		return
	}
	l.notifying = true
	for len(l.notices) > 0 {
		err := l.notices[0]
		l.notices = l.notices[1:]
		if notify := l.options.Notify; notify != nil {
			l.mu.Unlock()
			call(notify, err)
			l.mu.Lock()
		}
	}
	l.notifying = false
}

// call calls notify, whose panic must not end the process.
func call(notify func(error), err error) {
	defer func() { _ = recover() }()
	notify(err)
}
