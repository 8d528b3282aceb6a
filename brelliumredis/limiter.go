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

// ErrUnavailable is matched by the error that a Limiter reports when Redis does
// not answer, or not in time: to LimiterOptions.Notify, and with
// LimiterOptions.FailClosed from Acquire. The error also unwraps to what the
// Redis client said.
var ErrUnavailable = errors.New("brelliumredis: Redis is not available")

var errSlow = errors.New("no answer in time")

// LimiterOptions configure a Limiter. The zero value is right for one
// organization with the documented limit and its own Redis database. All
// workers of a bucket should have the same Bucket, Burst and PerSecond.
type LimiterOptions struct {
	// Bucket names the bucket, one for each organization and environment, in
	// the names of the keys: at most 200 visible ASCII characters, no braces.
	// It is no place for a secret. The default is "default".
	Bucket string

	// Burst and PerSecond are the organization's limit. Burst counts until an
	// answer's RateLimit-Limit says otherwise; no header tells the refill. A
	// refill that is lower or higher in truth is followed, less well. The
	// default is the documented 100 requests at once and 5 a second. Set both
	// or neither.
	Burst     int
	PerSecond float64

	// LocalBurst and LocalPerSecond bound what this process sends while Redis
	// is away: at most LocalBurst requests at once, then LocalPerSecond a
	// second, and less where the answers say that others spend. The default is
	// 5 and 1. Set both or neither.
	LocalBurst     int
	LocalPerSecond float64

	// FailClosed makes Acquire fail with ErrUnavailable while Redis is away.
	FailClosed bool

	// MaxDelay is how long a call waits for one answer of Redis before Redis
	// counts as away. The default is 250 ms.
	MaxDelay time.Duration

	// Notify is told each change of state once: an error that matches
	// ErrUnavailable when Redis goes away, and nil when it is back. The error
	// holds what the Redis client said, which may name the server's address. It
	// is called from a goroutine of the limiter, one call after the other.
	Notify func(err error)
}

const (
	defaultBucket   = "default"
	defaultBurst    = 100
	defaultRate     = 5.0
	defaultMaxDelay = 250 * time.Millisecond

	defaultLocalBurst = 5
	defaultLocalRate  = 1.0

	// awayPause is how long Redis is left alone once it was found away.
	awayPause = time.Second
	// An ordinary answer is told with an exchange that is due within maxRide,
	// and else after maxDefer, so that several share one. Both are less where
	// tokens come faster: the time of five, and of half a token.
	maxRide  = time.Second
	maxDefer = 100 * time.Millisecond
	// maxCredit bounds what a process that needed few round trips may spend
	// later, and what one that needed many has to save.
	maxCredit = 16
	// maxAnswers bounds one exchange, maxPending what is kept while Redis is
	// away. What is dropped counts as lost when its lease ends.
	maxAnswers = 64
	maxPending = 1024

	defaultHold = time.Second // for a refusal that names no time
	maxHold     = 24 * time.Hour
	holdSpread  = 500 * time.Millisecond
)

// Limiter is a brellium.Limiter whose bucket is shared by all processes that
// use the same Redis and the same bucket name. Processes take turns whatever
// their number of goroutines: each has one ticket in a queue in Redis, and its
// own calls wait in the order in which they came, refused ones in front.
//
//   - A call costs two round trips to Redis at most: one to ask, one to tell
//     the answer, which is put off for up to 100 ms so that several share one.
//     A call that waits in a process where none waited before asks twice.
//   - A refusal (429) holds back every process.
//   - The clock is the Redis server's.
//   - A process that dies holds nobody up: its turn is worth one token, and
//     ends 2 s after it was due; its attempts count as ended after 30 s.
//   - Where the record is missing or old (an expired key, a Redis that lost
//     its data), attempts go one by one until an answer tells what is left.
//   - While Redis is away, each process paces itself with a
//     brellium.AdaptiveLimiter at a small share, asks again each second while
//     there are calls, and goes back to the shared bucket.
//   - Other clients of the organization are seen by what they spend, and are
//     given way to.
//
// A Limiter runs a goroutine for each exchange with Redis, which ends with it:
// after MaxDelay where the Redis client heeds contexts
// (redis.Options.ContextTimeoutEnabled), else after its own timeouts. It needs
// no closing. One Limiter serves any number of goroutines and clients.
type Limiter struct {
	store    store
	worker   string
	options  LimiterOptions
	local    *brellium.AdaptiveLimiter
	deferred time.Duration
	ride     time.Duration
	pause    time.Duration // awayPause

	mu      sync.Mutex
	waiters list.List // of *waiter; refused ones in front, else as they came
	undated int       // how many of them have no deadline
	serial  uint64
	timer   *time.Timer
	flying  *flight // the exchange under way

	credit  int       // round trips left to two for each permit
	pending []answer  // not told yet
	urgent  bool      // to be told at once
	flushAt time.Time // when to tell, or to give up the ticket

	epoch    int64 // of the record
	served   int64 // the last attempt granted in that epoch
	inFlight int   // permits of that epoch
	unseen   int   // permits under way that the record does not know
	spent    int   // local attempts that the record does not know

	ticket bool // a call of this process is queued in Redis
	askAt  time.Time
	heard  time.Time // of the fields below, which hold while there is a ticket
	ahead  int
	high   float64
	held   time.Duration

	away          bool
	retryAt       time.Time
	cause         error
	localInFlight int
	recalls       map[*waiter]context.CancelFunc // those who wait locally

	notices  []error
	noticing bool
	stats    Stats
}

// Stats counts what a Limiter did.
type Stats struct {
	// RoundTrips is the number of exchanges with Redis, failed ones included.
	RoundTrips int64
	// Granted is the number of permits from the shared bucket, Local of those
	// given while Redis was away.
	Granted, Local int64
	// Waiting is the number of calls that wait at the moment.
	Waiting int
	// Workers is how many processes had a call waiting at the last exchange.
	Workers int
	// Away is true while Redis is taken to be away.
	Away bool
}

// waiter is one Acquire. Its fields belong to the limiter until ready is closed.
type waiter struct {
	serial   uint64
	front    bool
	deadline time.Time
	element  *list.Element // nil: not queued
	asked    *flight       // whose budget counted it
	ready    chan struct{}

	// The outcome: one of these.
	permit *permit
	err    error
	goLocal,
	again bool
	delay time.Duration
}

// flight is one exchange under way.
type flight struct {
	request request
	late    bool // nobody waits for it any more
	timer   *time.Timer
}

// NewLimiter returns a limiter over rdb, which stays the caller's to close. It
// sends nothing. Options out of range are a *brellium.ValidationError.
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
		{"Bucket", nameable(options.Bucket), "must be up to 200 visible ASCII characters without braces"},
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
		worker:   rand.Text(),
		options:  options,
		local:    local,
		deferred: min(maxDefer, token/2),
		ride:     min(maxRide, 5*token),
		pause:    awayPause,
		recalls:  make(map[*waiter]context.CancelFunc),
	}, nil
}

// nameable reports whether a bucket's name can stand in a key.
func nameable(name string) bool {
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

// Acquire implements brellium.Limiter. A wait that the deadline of ctx cannot
// cover fails at once with a *brellium.InterruptedError that says in Wait how
// long it would have been at least; one that becomes too long later fails then.
// With FailClosed, it fails with ErrUnavailable while Redis is away.
//
// A Permit that is never ended counts as ended after 30 s.
func (l *Limiter) Acquire(ctx context.Context) (brellium.Permit, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	w := &waiter{front: brellium.IsRateLimitRetry(ctx)}
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

// sleep waits for d, or until ctx is done. It returns the error of a context
// that is done in any case.
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

// Stats returns what has been counted so far.
func (l *Limiter) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Waiting = l.waiters.Len() + len(l.recalls)
	s.Away = l.away
	return s
}

// enter queues w, or tells it at once what is known already.
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
	if l.away && (l.flying != nil || now.Before(l.retryAt)) {
		l.sendAway(w)
		return
	}
	index := l.push(w)
	if wait := l.atLeast(now, index); !w.deadline.IsZero() && wait > w.deadline.Sub(now) {
		l.resolve(w, now, tooLong(wait))
	}
	l.pump(now)
}

// leave takes back a waiter whose context has ended.
func (l *Limiter) leave(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.element != nil {
		l.resolve(w, time.Now(), context.Canceled)
	} else if w.permit != nil { // granted at the same moment
		l.end(w.permit, brellium.LimiterResult{Spent: brellium.SpentNo})
	}
	l.pump(time.Now())
}

// tooLong is the failure of a wait that the caller's deadline cannot cover.
func tooLong(wait time.Duration) error {
	return &brellium.InterruptedError{Wait: wait, Err: context.DeadlineExceeded}
}

// push queues w: refused ones in front of the others, and else in the order in
// which they came. It returns how many are before w.
func (l *Limiter) push(w *waiter) (index int) {
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
	if w.front {
		e := l.waiters.Front()
		for ; e != nil && before(e); e = e.Next() {
			index++
		}
		if e != nil {
			w.element = l.waiters.InsertBefore(w, e)
		} else {
			w.element = l.waiters.PushBack(w)
		}
		return index
	}
	index = l.waiters.Len()
	e := l.waiters.Back()
	for ; e != nil && !before(e); e = e.Prev() {
		index--
	}
	if e != nil {
		w.element = l.waiters.InsertAfter(w, e)
	} else {
		w.element = l.waiters.PushFront(w)
	}
	return index
}

// remove takes w out of the queue.
func (l *Limiter) remove(w *waiter, now time.Time) {
	l.waiters.Remove(w.element)
	w.element = nil
	if w.deadline.IsZero() {
		l.undated--
	}
	if l.waiters.Len() == 0 && l.ticket && l.flushAt.IsZero() {
		l.flushAt = now.Add(l.deferred) // the ticket is given up, unless a call comes
	}
}

// resolve ends the wait of w with an error.
func (l *Limiter) resolve(w *waiter, now time.Time, err error) {
	l.remove(w, now)
	w.err = err
	close(w.ready)
}

// sendAway tells w, which is not queued, that Redis is away.
func (l *Limiter) sendAway(w *waiter) {
	if l.options.FailClosed {
		w.err = l.cause
	} else {
		w.goLocal = true
	}
	close(w.ready)
}

// atLeast returns a wait that an attempt with so many of this process before it
// cannot undercut, as far as the last reply tells.
func (l *Limiter) atLeast(now time.Time, index int) time.Duration {
	if !l.ticket || l.away {
		return 0
	}
	since := now.Sub(l.heard)
	high := l.high + since.Seconds()*l.options.PerSecond
	missing := float64(1+l.ahead+index) - high
	return max(l.held-since, time.Duration(missing/l.options.PerSecond*float64(time.Second)), 0)
}

// review fails the waiters whose deadline can no longer be met.
func (l *Limiter) review(now time.Time) {
	if l.waiters.Len() == l.undated {
		return
	}
	index := 0
	for e := l.waiters.Front(); e != nil; {
		w := e.Value.(*waiter)
		e = e.Next()
		if wait := l.atLeast(now, index); !w.deadline.IsZero() && wait > w.deadline.Sub(now) {
			l.resolve(w, now, tooLong(wait))
		} else {
			index++
		}
	}
}

// pump starts the exchange that is due, or sets the timer for the next.
func (l *Limiter) pump(now time.Time) {
	if l.flying != nil {
		return // its end pumps again
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

// due returns when the next exchange is to be made, if any is.
func (l *Limiter) due(now time.Time) (time.Time, bool) {
	if l.away {
		return l.retryAt, l.waiters.Len() > 0 || len(l.recalls) > 0
	}
	if l.urgent || l.waiters.Len() > 0 && !l.ticket {
		return now, true
	}
	at, ok := l.askAt, l.waiters.Len() > 0
	if !l.flushAt.IsZero() && (l.credit > 0 || len(l.pending) == 0) && (!ok || l.flushAt.Before(at)) {
		at, ok = l.flushAt, true
	}
	return at, ok
}

// wake is what the timer does.
func (l *Limiter) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pump(time.Now())
}

// start begins an exchange: what is pending is told, and the first of the queue
// asks for its turn.
func (l *Limiter) start(now time.Time) {
	f := &flight{}
	n := min(len(l.pending), maxAnswers)
	f.request = request{
		worker:  l.worker,
		rate:    l.options.PerSecond,
		limit:   l.options.Burst,
		ask:     l.waiters.Len() > 0,
		more:    l.waiters.Len() > 1,
		budget:  -1,
		spent:   l.spent,
		unseen:  l.unseen,
		served:  l.served,
		answers: l.pending[:n:n],
		now:     now,
	}
	if l.away {
		f.request.unseen += l.localInFlight
	}
	if f.request.ask {
		f.request.front = l.waiters.Front().Value.(*waiter).front
	}
	if f.request.ask && l.undated == 0 {
		f.request.budget = 0
		for e := l.waiters.Front(); e != nil; e = e.Next() {
			w := e.Value.(*waiter)
			w.asked = f
			f.request.budget = max(f.request.budget, w.deadline.Sub(now))
		}
	}
	for i, a := range f.request.answers {
		if a.kind == kindSpent && now.Sub(a.heard) > l.ride {
			f.request.answers[i].kind = kindPaid // what remained then is no news
		}
	}
	l.pending = l.pending[n:]
	l.urgent = l.urgent && len(l.pending) > 0
	l.flushAt = time.Time{}
	if len(l.pending) > 0 {
		l.flushAt = now
	}
	l.flying = f
	l.stats.RoundTrips++
	l.credit = max(l.credit-1, -maxCredit)
	f.timer = time.AfterFunc(l.options.MaxDelay, func() { l.giveUp(f) })
	go l.run(f)
}

// giveUp stops waiting for an exchange.
func (l *Limiter) giveUp(f *flight) {
	l.mu.Lock()
	if l.flying != f || f.late {
		l.mu.Unlock()
		return
	}
	f.late = true
	l.goAway(errSlow, time.Now())
	l.mu.Unlock()
	l.tell()
}

// run makes an exchange.
func (l *Limiter) run(f *flight) {
	ctx, cancel := context.WithTimeout(context.Background(), l.options.MaxDelay)
	r, err := l.store.exchange(ctx, &f.request)
	cancel()

	l.mu.Lock()
	f.timer.Stop()
	l.flying = nil
	now := time.Now()
	switch {
	case err != nil:
		l.restore(f)
		if !f.late {
			l.goAway(err, now)
		}
	case f.late:
		// It works again, if slowly. A grant that came too late is given back.
		if r.granted {
			l.giveBack(r, now)
		}
	default:
		l.apply(f, r, now)
	}
	l.pump(now)
	l.mu.Unlock()
	l.tell()
}

// restore keeps what an exchange could not tell for the next.
func (l *Limiter) restore(f *flight) {
	l.pending = append(f.request.answers, l.pending...)
	if n := len(l.pending) - maxPending; n > 0 {
		l.pending = l.pending[n:]
	}
}

// goAway notes that Redis is away, and sends everybody who waits elsewhere.
func (l *Limiter) goAway(err error, now time.Time) {
	l.cause = fmt.Errorf("%w: %w", ErrUnavailable, err)
	if !l.away {
		l.away = true
		l.notices = append(l.notices, l.cause)
	}
	l.retryAt = now.Add(l.pause)
	l.ticket = false
	for e := l.waiters.Front(); e != nil; e = l.waiters.Front() {
		w := e.Value.(*waiter)
		l.remove(w, now)
		l.sendAway(w)
	}
	l.pump(now)
}

// comeBack notes that Redis is back, and calls back everybody who waits locally.
func (l *Limiter) comeBack() {
	l.away, l.cause = false, nil
	l.notices = append(l.notices, nil)
	for w, recall := range l.recalls {
		w.again = true
		recall()
	}
	clear(l.recalls)
	if len(l.pending) > 0 {
		l.urgent = true
	}
}

// apply takes in the reply to an exchange.
func (l *Limiter) apply(f *flight, r reply, now time.Time) {
	l.spent = max(l.spent-f.request.spent, 0)
	l.unseen = 0
	if l.away {
		l.comeBack()
	}
	if r.epoch != l.epoch {
		l.unseen += l.inFlight
		l.epoch, l.inFlight, l.served = r.epoch, 0, 0
	}
	l.stats.Workers = r.tickets
	l.ticket, l.askAt, l.heard = r.ticket, now.Add(r.wait), now
	l.ahead, l.high, l.held = r.ahead, r.high, r.held
	if r.granted {
		l.served = r.attempt
		l.grant(r, now)
	}
	if r.ticket && l.waiters.Len() == 0 && l.flushAt.IsZero() {
		l.flushAt = now.Add(l.deferred)
	}
	if f.request.budget >= 0 && r.least > f.request.budget {
		for e := l.waiters.Front(); e != nil; {
			w := e.Value.(*waiter)
			e = e.Next()
			if w.asked == f {
				l.resolve(w, now, tooLong(r.least))
			}
		}
	}
	l.review(now)
}

// grant hands a permit to the first of the queue.
func (l *Limiter) grant(r reply, now time.Time) {
	first := l.waiters.Front()
	if first == nil { // they have left
		l.giveBack(r, now)
		return
	}
	w := first.Value.(*waiter)
	if !w.deadline.IsZero() && r.delay > w.deadline.Sub(now) {
		l.giveBack(r, now)
		l.resolve(w, now, tooLong(r.delay))
		return
	}
	l.remove(w, now)
	l.inFlight++
	l.credit = min(l.credit+2, maxCredit)
	l.stats.Granted++
	w.permit = &permit{limiter: l, reply: r}
	w.delay = r.delay
	close(w.ready)
}

// giveBack returns a grant that nobody uses.
func (l *Limiter) giveBack(r reply, now time.Time) {
	l.tellLater(answer{kind: kindUnspent, attempt: r.attempt, epoch: r.epoch, sent: now}, true, now)
}

// tellLater keeps an answer for the next exchange, which is soon.
func (l *Limiter) tellLater(a answer, urgent bool, now time.Time) {
	a.heard = now
	l.pending = append(l.pending, a)
	if n := len(l.pending) - maxPending; n > 0 {
		l.pending = l.pending[n:]
	}
	l.urgent = l.urgent || urgent || len(l.pending) >= maxAnswers
	if l.flushAt.IsZero() {
		l.flushAt = now.Add(l.deferred)
		if l.ticket && l.waiters.Len() > 0 && l.askAt.Sub(now) <= l.ride {
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

// Done implements brellium.Permit. It does not wait for Redis. Calls after the
// first do nothing.
func (p *permit) Done(a brellium.LimiterResult) {
	l := p.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end(p, a)
	l.pump(time.Now())
}

func (l *Limiter) end(p *permit, a brellium.LimiterResult) {
	if p.ended {
		return
	}
	p.ended = true
	if p.reply.epoch == l.epoch {
		l.inFlight--
	}
	told, urgent := describe(a)
	told.attempt, told.epoch, told.ended = p.reply.attempt, p.reply.epoch, p.reply.ended
	now := time.Now()
	if told.sent = p.sent; p.sent.IsZero() {
		told.sent = now
	}
	l.tellLater(told, urgent || p.reply.probing, now)
}

// describe returns what the record is told of an answer, and whether that
// cannot wait.
func describe(a brellium.LimiterResult) (told answer, urgent bool) {
	if a.RateLimit.Known() {
		told.remaining, told.limit = a.RateLimit.Remaining, a.RateLimit.Limit
	}
	switch {
	case a.Refused:
		told.kind = kindRefused
		told.hold = a.RetryAfter
		if told.hold <= 0 {
			told.hold = defaultHold
		}
		told.hold = min(told.hold, maxHold) + mathrand.N(holdSpread)
		return told, true
	case a.Blocked:
		told.kind = kindBlocked
		return told, true
	case a.Spent == brellium.SpentNo:
		told.kind = kindUnspent
	case a.RateLimit.Known():
		told.kind = kindSpent
	case a.Spent == brellium.SpentYes:
		told.kind = kindPaid
	default:
		told.kind = kindUnknown
	}
	return told, false
}

// acquireLocal gets a permit of this process's own small share. It fails with
// w.again set when Redis is back.
func (l *Limiter) acquireLocal(ctx context.Context, w *waiter) (brellium.Permit, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l.mu.Lock()
	if !l.away { // it was only a moment
		w.again = true
		l.mu.Unlock()
		return nil, context.Canceled
	}
	l.recalls[w] = cancel
	l.pump(time.Now())
	l.mu.Unlock()

	p, err := l.local.Acquire(ctx)

	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.recalls, w)
	if err != nil {
		return nil, err
	}
	l.stats.Local++
	l.spent++
	l.localInFlight++
	return &localPermit{limiter: l, permit: p}, nil
}

// localPermit is an attempt that the record does not know.
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
	if a.Refused { // it concerns everybody
		told, _ := describe(a)
		now := time.Now()
		told.sent = now
		l.tellLater(told, !l.away, now)
		l.pump(now)
	}
}

// tell hands the notices to the caller's function, in order and without a lock.
func (l *Limiter) tell() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.noticing {
		return
	}
	l.noticing = true
	for len(l.notices) > 0 {
		err := l.notices[0]
		l.notices = l.notices[1:]
		if notify := l.options.Notify; notify != nil {
			l.mu.Unlock()
			notify(err)
			l.mu.Lock()
		}
	}
	l.noticing = false
}
