package brellium

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/brellium/brellium-go/internal/pace"
)

const (
	// lostAfter is the age at which an attempt whose permit was never ended
	// counts as lost, so that a forgotten Done does not stop everybody.
	lostAfter = 10 * time.Minute
	// reviewEvery bounds how often all waiters are asked whether their deadline
	// can still be met.
	reviewEvery = 100 * time.Millisecond
)

// queue is the waiting around a state machine that decides who may send: a
// first-in, first-out list of waiters and one timer, which runs only while
// somebody waits. The zero queue drives an adaptive machine.
type queue struct {
	mu      sync.Mutex
	machine pace.Machine
	start   time.Time // the machine's zero time; set by the first use

	first, last *waiter
	lastFront   *waiter // the last of those refused before, who are in front
	fronts      int     // how many of those there are
	waiting     int
	deadlines   int           // how many waiters have a deadline
	reviewed    time.Duration // last review of their deadlines
	timer       *time.Timer   // nil when nobody waits

	oldest, newest *permit // those not ended, in the order of sending
}

// waiter is one Acquire that could not be served at once. All its fields belong
// to the queue until ready is closed.
type waiter struct {
	prev, next  *waiter
	front       bool
	hasDeadline bool
	deadline    time.Duration
	queued      bool
	permit      *permit
	err         error
	ready       chan struct{}
}

// permit is one attempt from its grant to Done.
type permit struct {
	queue      *queue
	ticket     pace.Ticket
	prev, next *permit
	ended      bool
}

// now returns the machine's time. The first call starts its clock.
func (q *queue) now() time.Duration {
	if q.start.IsZero() {
		q.start = time.Now()
	}
	if q.machine == nil {
		q.machine = pace.NewAdaptive(pace.AdaptiveConfig{})
	}
	return time.Since(q.start)
}

func (q *queue) acquire(ctx context.Context) (Permit, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	w, p, err := q.enter(ctx)
	if err != nil {
		return nil, err
	}
	if p != nil {
		return p, nil
	}
	select {
	case <-w.ready:
	case <-ctx.Done():
		q.leave(w)
		return nil, ctx.Err()
	}
	if w.err != nil {
		return nil, w.err
	}
	// Both may have been ready. A context that is done takes nothing.
	if err := ctx.Err(); err != nil {
		q.leave(w)
		return nil, err
	}
	return w.permit, nil
}

// enter grants a permit, refuses one, or queues a waiter.
func (q *queue) enter(ctx context.Context) (*waiter, *permit, error) {
	deadline, hasDeadline := ctx.Deadline()

	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	var left time.Duration
	if hasDeadline {
		if left = time.Until(deadline); left <= 0 {
			return nil, nil, context.DeadlineExceeded
		}
	}
	if q.first == nil && q.machine.Ready(now) == 0 {
		return nil, q.grant(now), nil
	}

	front := AfterRefusal(ctx)
	if hasDeadline {
		ahead := q.waiting
		if front {
			ahead = q.fronts
		}
		if wait := q.machine.AtLeast(now, ahead); wait > left {
			if q.first == nil {
				q.machine.Rest(now)
			}
			return nil, nil, errWaitTooLong(wait)
		}
	}
	w := &waiter{
		front:       front,
		hasDeadline: hasDeadline,
		deadline:    now + min(left, pace.Never/2),
		ready:       make(chan struct{}),
	}
	q.push(w)
	q.pump(now)
	return w, nil, nil
}

// errWaitTooLong is the failure of a wait that the caller's deadline cannot
// cover.
func errWaitTooLong(wait time.Duration) error {
	return &InterruptedError{Wait: wait, Err: context.DeadlineExceeded}
}

// grant lets one attempt go.
func (q *queue) grant(now time.Duration) *permit {
	p := &permit{queue: q, ticket: q.machine.Send(now), prev: q.newest}
	if q.newest == nil {
		q.oldest = p
	} else {
		q.newest.next = p
	}
	q.newest = p
	return p
}

// forget takes a permit from the list of those not ended.
func (q *queue) forget(p *permit) {
	if p.prev == nil {
		q.oldest = p.next
	} else {
		p.prev.next = p.next
	}
	if p.next == nil {
		q.newest = p.prev
	} else {
		p.next.prev = p.prev
	}
	p.prev, p.next = nil, nil
	p.ended = true
}

// forgetLost ends the permits that nobody will end.
func (q *queue) forgetLost(now time.Duration) {
	for q.oldest != nil && now-q.oldest.ticket.Sent >= lostAfter {
		p := q.oldest
		q.forget(p)
		q.machine.Done(now, p.ticket, pace.Report{})
	}
}

// Done implements Permit. Calls after the first do nothing.
func (p *permit) Done(answer LimiterAnswer) {
	report := pace.Report{
		Known:      answer.RateLimit.Known(),
		Limit:      answer.RateLimit.Limit,
		Remaining:  answer.RateLimit.Remaining,
		Refused:    answer.Refused,
		RetryAfter: answer.RetryAfter,
		Blocked:    answer.Blocked,
	}
	switch answer.Spent {
	case SpentYes:
		report.Spent = pace.SpentYes
	case SpentNo:
		report.Spent = pace.SpentNo
	}
	if answer.Refused {
		report.Jitter = rand.Float64()
	}

	q := p.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if p.ended {
		return
	}
	now := q.now()
	q.forget(p)
	q.machine.Done(now, p.ticket, report)
	if answer.Refused {
		q.review(now)
	}
	q.pump(now)
}

// pump grants permits to the first waiters as long as the machine allows, and
// sets the timer for the next.
func (q *queue) pump(now time.Duration) {
	if q.first == nil && q.timer == nil {
		return
	}
	q.forgetLost(now)
	wait := pace.Never
	for q.first != nil {
		if wait = q.machine.Ready(now); wait > 0 {
			break
		}
		w := q.first
		w.permit = q.grant(now)
		q.remove(w)
		close(w.ready)
	}
	if q.deadlines > 0 && now-q.reviewed >= reviewEvery {
		q.review(now)
	}
	q.setTimer(now, wait)
}

// setTimer has pump run again in a while, or at the latest when the oldest
// permit counts as lost. Without waiters there is no timer.
func (q *queue) setTimer(now, wait time.Duration) {
	if q.first == nil {
		if q.timer != nil {
			q.timer.Stop()
			q.timer = nil
		}
		return
	}
	if q.oldest != nil {
		wait = min(wait, q.oldest.ticket.Sent+lostAfter-now)
	}
	if q.timer == nil {
		q.timer = time.AfterFunc(wait, q.wake)
	} else {
		q.timer.Reset(wait)
	}
}

// wake is what the timer does.
func (q *queue) wake() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pump(q.now())
}

// review fails the waiters whose deadline can no longer be met.
func (q *queue) review(now time.Duration) {
	q.reviewed = now
	ahead := 0
	for w := q.first; w != nil; {
		next := w.next
		wait := time.Duration(0)
		if w.hasDeadline {
			wait = q.machine.AtLeast(now, ahead)
		}
		if w.hasDeadline && now+wait > w.deadline {
			w.err = errWaitTooLong(wait)
			q.remove(w)
			close(w.ready)
		} else {
			ahead++
		}
		w = next
	}
	if q.first == nil {
		q.machine.Rest(now)
	}
}

// leave takes back a waiter whose context has ended, and its permit where one
// was granted at the same moment.
func (q *queue) leave(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	switch {
	case w.queued:
		q.remove(w)
		if q.first == nil {
			q.machine.Rest(now)
		}
	case w.permit != nil && !w.permit.ended:
		q.forget(w.permit)
		q.machine.Cancel(now, w.permit.ticket)
	}
	q.pump(now)
}

// push queues a waiter: at the end, or behind the last of those in front.
func (q *queue) push(w *waiter) {
	w.queued = true
	q.waiting++
	if w.hasDeadline {
		q.deadlines++
	}
	w.prev = q.last
	if w.front {
		q.fronts++
		w.prev = q.lastFront
		q.lastFront = w
	}
	if w.prev == nil {
		w.next, q.first = q.first, w
	} else {
		w.next, w.prev.next = w.prev.next, w
	}
	if w.next == nil {
		q.last = w
	} else {
		w.next.prev = w
	}
}

// remove takes a waiter out of the queue.
func (q *queue) remove(w *waiter) {
	w.queued = false
	q.waiting--
	if w.hasDeadline {
		q.deadlines--
	}
	if w.front {
		q.fronts--
		if q.lastFront == w {
			q.lastFront = w.prev // those before one in front are in front too
		}
	}
	if w.prev == nil {
		q.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		q.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next = nil, nil
}

var limiterModes = [...]LimiterMode{
	pace.Probe:  LimiterProbing,
	pace.Alone:  LimiterAlone,
	pace.Shared: LimiterShared,
	pace.Static: LimiterFixed,
	pace.Open:   LimiterOpen,
}

func (q *queue) state() LimiterState {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	s := q.machine.State(now)
	return LimiterState{
		Mode:     limiterModes[s.Mode],
		Low:      s.Low,
		High:     s.High,
		InFlight: s.InFlight,
		Waiting:  q.waiting,
		HeldFor:  s.Held,
		Interval: s.Interval,
	}
}

func (q *queue) mode() LimiterMode {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.machine == nil {
		return LimiterProbing
	}
	return limiterModes[q.machine.Mode()]
}
