package pace

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
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
type Queue struct {
	mu      sync.Mutex
	machine Machine
	start   time.Time // the machine's zero time; set by the first use

	first, last *waiter
	lastFront   *waiter // the last of those refused before, who are in front
	fronts      int     // how many of those there are
	waiting     int
	deadlines   int           // how many waiters have a deadline
	reviewed    time.Duration // last review of their deadlines
	timer       *time.Timer   // nil when nobody waits

	oldest, newest *Permit // those not ended, in the order of sending
}

// waiter is one Acquire that could not be served at once. All its fields belong
// to the queue until ready is closed.
type waiter struct {
	prev, next  *waiter
	front       bool
	hasDeadline bool
	deadline    time.Duration
	queued      bool
	permit      *Permit
	err         error
	ready       chan struct{}
}

// permit is one attempt from its grant to Done.
type Permit struct {
	queue      *Queue
	ticket     Ticket
	prev, next *Permit
	ended      bool
}

// now returns the machine's time. The first call starts its clock.
func (q *Queue) now() time.Duration {
	if q.start.IsZero() {
		q.start = time.Now()
	}
	if q.machine == nil {
		q.machine = NewAdaptive(AdaptiveConfig{})
	}
	return time.Since(q.start)
}

func (q *Queue) Acquire(ctx context.Context, first bool) (*Permit, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	w, p, err := q.enter(ctx, first)
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
func (q *Queue) enter(ctx context.Context, front bool) (*waiter, *Permit, error) {
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

	if hasDeadline {
		ahead := q.waiting
		if front {
			ahead = q.fronts
		}
		if wait := q.machine.AtLeast(now, ahead); wait > left {
			if q.first == nil {
				q.machine.Idle(now)
			}
			return nil, nil, &TooLong{wait}
		}
	}
	w := &waiter{
		front:       front,
		hasDeadline: hasDeadline,
		deadline:    now + min(left, Never/2),
		ready:       make(chan struct{}),
	}
	q.push(w)
	q.dispatch(now)
	return w, nil, nil
}

// TooLong is the error of a wait that the caller's deadline cannot cover.
type TooLong struct {
	Wait time.Duration // at least
}

func (e *TooLong) Error() string { return "the wait is longer than the deadline allows" }

// Unwrap returns context.DeadlineExceeded.
func (e *TooLong) Unwrap() error { return context.DeadlineExceeded }

// grant lets one attempt go.
func (q *Queue) grant(now time.Duration) *Permit {
	p := &Permit{queue: q, ticket: q.machine.Send(now), prev: q.newest}
	if q.newest == nil {
		q.oldest = p
	} else {
		q.newest.next = p
	}
	q.newest = p
	return p
}

// forget takes a permit from the list of those not ended.
func (q *Queue) forget(p *Permit) {
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
func (q *Queue) forgetLost(now time.Duration) {
	for q.oldest != nil && now-q.oldest.ticket.Sent >= lostAfter {
		p := q.oldest
		q.forget(p)
		q.machine.Done(now, p.ticket, Report{})
	}
}

// Done ends the attempt with what it taught. Calls after the first do nothing.
func (p *Permit) Done(report Report) {
	if report.Refused {
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
	if report.Refused {
		q.review(now)
	}
	q.dispatch(now)
}

// dispatch grants permits to the first waiters as long as the machine allows, and
// sets the timer for the next.
func (q *Queue) dispatch(now time.Duration) {
	if q.first == nil && q.timer == nil {
		return
	}
	q.forgetLost(now)
	wait := Never
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

// setTimer has dispatch run again in a while, or at the latest when the oldest
// permit counts as lost. Without waiters there is no timer.
func (q *Queue) setTimer(now, wait time.Duration) {
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
func (q *Queue) wake() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dispatch(q.now())
}

// review fails the waiters whose deadline can no longer be met.
func (q *Queue) review(now time.Duration) {
	q.reviewed = now
	ahead := 0
	for w := q.first; w != nil; {
		next := w.next
		wait := time.Duration(0)
		if w.hasDeadline {
			wait = q.machine.AtLeast(now, ahead)
		}
		if w.hasDeadline && now+wait > w.deadline {
			w.err = &TooLong{wait}
			q.remove(w)
			close(w.ready)
		} else {
			ahead++
		}
		w = next
	}
	if q.first == nil {
		q.machine.Idle(now)
	}
}

// leave takes back a waiter whose context has ended, and its permit where one
// was granted at the same moment.
func (q *Queue) leave(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	switch {
	case w.queued:
		q.remove(w)
		if q.first == nil {
			q.machine.Idle(now)
		}
	case w.permit != nil && !w.permit.ended:
		q.forget(w.permit)
		q.machine.Cancel(now, w.permit.ticket)
	}
	q.dispatch(now)
}

// push queues a waiter: at the end, or behind the last of those in front.
func (q *Queue) push(w *waiter) {
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
func (q *Queue) remove(w *waiter) {
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

// State returns the machine's state, and how many wait.
func (q *Queue) State() (s State, waiting int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.machine.State(q.now()), q.waiting
}

// Mode returns what the machine believes about others.
func (q *Queue) Mode() Mode {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.machine == nil {
		return Probe
	}
	return q.machine.Mode()
}

// NewQueue returns a queue before m.
func NewQueue(m Machine) Queue { return Queue{machine: m} }
