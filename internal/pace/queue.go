package pace

import (
	"container/list"
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// reviewEvery limits how often the deadlines of all waiters are checked.
const reviewEvery = 100 * time.Millisecond

// The lanes of a Queue, in the order in which they are served.
const (
	rateLimitedLane = iota // the last attempt was rate limited
	normalLane
	laneCount
)

// Queue makes attempts wait until its [Machine] allows them. Each lane is first
// in, first out, and is served once the lanes before it are empty. One timer
// runs, and only while somebody waits. The zero Queue drives an [Adaptive].
type Queue struct {
	mu      sync.Mutex
	machine Machine
	start   time.Time // the machine's time 0, set on first use

	lanes     [laneCount]list.List // of *waiter
	waiting   int                  // in all lanes
	deadlines int                  // how many of them have a deadline
	reviewed  time.Duration        // last check of their deadlines
	timer     *time.Timer          // nil while nobody waits
}

// NewQueue returns a Queue for m.
func NewQueue(m Machine) Queue { return Queue{machine: m} }

// waiter is one Acquire that was not granted at once. It belongs to the Queue
// until ready is closed.
type waiter struct {
	lane     *list.List
	element  *list.Element // in lane; nil once removed
	deadline time.Duration // Never if there is none
	permit   *Permit       // if granted
	err      error         // if the deadline cannot be met
	ready    chan struct{}
}

// Permit is one attempt from its grant to Done.
type Permit struct {
	queue  *Queue
	ticket Ticket
	ended  bool
}

// TooLong is the error of a wait that would exceed the caller's deadline.
type TooLong struct {
	Wait time.Duration // at least
}

func (e *TooLong) Error() string { return "the wait exceeds the deadline" }

// Unwrap returns [context.DeadlineExceeded].
func (e *TooLong) Unwrap() error { return context.DeadlineExceeded }

// now returns the machine's time. The first call prepares the zero Queue.
func (q *Queue) now() time.Duration {
	if q.start.IsZero() {
		q.start = time.Now()
	}
	if q.machine == nil {
		q.machine = NewAdaptive(AdaptiveConfig{})
	}
	return time.Since(q.start)
}

// Acquire waits until an attempt may be sent. Attempts that were rate limited
// before are served first. It returns a [*TooLong] as soon as the deadline of
// ctx cannot be met, and the error of ctx when ctx ends.
func (q *Queue) Acquire(ctx context.Context, rateLimited bool) (*Permit, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	lane := normalLane
	if rateLimited {
		lane = rateLimitedLane
	}
	p, w, err := q.enter(ctx, lane)
	if w == nil {
		return p, err
	}
	select {
	case <-w.ready:
		if w.err != nil {
			return nil, w.err
		}
		// A context that ended at the same moment takes no permit.
		if ctx.Err() == nil {
			return w.permit, nil
		}
	case <-ctx.Done():
	}
	q.leave(w)
	return nil, ctx.Err()
}

// enter returns a permit, a queued waiter, or an error.
func (q *Queue) enter(ctx context.Context, lane int) (*Permit, *waiter, error) {
	at, hasDeadline := ctx.Deadline()

	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	deadline := Never
	if hasDeadline {
		left := time.Until(at)
		if left <= 0 {
			return nil, nil, context.DeadlineExceeded
		}
		deadline = now + min(left, Never/2)
	}
	if q.waiting == 0 && q.machine.Ready(now) == 0 {
		return q.grant(now), nil, nil
	}
	if hasDeadline {
		ahead := 0
		for i := range lane + 1 {
			ahead += q.lanes[i].Len()
		}
		if wait := q.machine.AtLeast(now, ahead); now+wait > deadline {
			if q.waiting == 0 {
				q.machine.Idle(now)
			}
			return nil, nil, &TooLong{wait}
		}
		q.deadlines++
	}
	w := &waiter{lane: &q.lanes[lane], deadline: deadline, ready: make(chan struct{})}
	w.element = w.lane.PushBack(w)
	q.waiting++
	q.dispatch(now)
	return nil, w, nil
}

// leave removes a waiter whose context has ended, and cancels its permit if one
// was granted at the same moment.
func (q *Queue) leave(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	if w.element != nil {
		q.remove(w, now)
	} else if w.permit != nil {
		q.machine.Cancel(now, w.permit.ticket)
	}
	q.dispatch(now)
}

// remove takes a waiter out of its lane and wakes it.
func (q *Queue) remove(w *waiter, now time.Duration) {
	w.lane.Remove(w.element)
	w.element = nil
	if w.deadline < Never {
		q.deadlines--
	}
	if q.waiting--; q.waiting == 0 {
		q.machine.Idle(now)
	}
	close(w.ready)
}

// grant sends one attempt.
func (q *Queue) grant(now time.Duration) *Permit {
	return &Permit{queue: q, ticket: q.machine.Send(now)}
}

// Done ends the attempt with its report. Calls after the first do nothing.
func (p *Permit) Done(r Report) {
	if r.RateLimited {
		r.Jitter = rand.Float64()
	}
	q := p.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if p.ended {
		return
	}
	p.ended = true
	now := q.now()
	q.machine.Done(now, p.ticket, r)
	if r.RateLimited {
		q.review(now)
	}
	q.dispatch(now)
}

// dispatch grants permits for as long as the machine allows, and sets the timer
// to run again.
func (q *Queue) dispatch(now time.Duration) {
	wait := Never
	for q.waiting > 0 {
		if wait = q.machine.Ready(now); wait > 0 {
			break
		}
		w := q.first()
		w.permit = q.grant(now)
		q.remove(w, now)
	}
	if now-q.reviewed >= reviewEvery {
		q.review(now)
	}
	switch {
	case q.waiting > 0 && q.timer == nil:
		q.timer = time.AfterFunc(wait, q.wake)
	case q.waiting > 0:
		q.timer.Reset(wait)
	case q.timer != nil:
		q.timer.Stop()
		q.timer = nil
	}
}

// first returns the waiter to be served next. There must be one.
func (q *Queue) first() *waiter {
	i := 0
	for q.lanes[i].Len() == 0 {
		i++
	}
	return q.lanes[i].Front().Value.(*waiter)
}

// wake is called by the timer.
func (q *Queue) wake() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dispatch(q.now())
}

// review fails the waiters whose deadline can no longer be met.
func (q *Queue) review(now time.Duration) {
	if q.deadlines == 0 {
		return
	}
	q.reviewed = now
	ahead := 0
	for i := range q.lanes {
		for e := q.lanes[i].Front(); e != nil; {
			w := e.Value.(*waiter)
			e = e.Next()
			if w.deadline < Never {
				if wait := q.machine.AtLeast(now, ahead); now+wait > w.deadline {
					w.err = &TooLong{wait}
					q.remove(w, now)
					continue
				}
			}
			ahead++
		}
	}
}

// State returns the machine's state and the number of waiters.
func (q *Queue) State() (s State, waiting int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	return q.machine.State(now), q.waiting
}
