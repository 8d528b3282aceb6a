package pace

import (
	"cmp"
	"container/list"
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// grantsPerShare is in how many grants a lane that waits gets at least one. An
// eighth keeps a background job alive and costs interactive calls little (row 36).
const grantsPerShare = 8

// Lane is the priority of an attempt.
type Lane int

// The lanes, in the order in which they are served.
const (
	Interactive Lane = iota
	Normal
	Background
	laneCount
)

// Queue makes attempts wait until its [Machine] allows them. Each lane is first
// in, first out, except that attempts that were rate limited before are first.
// A lane is served once the lanes before it are empty, and gets its share while
// they are not. One timer runs, and only while somebody waits. The zero Queue
// drives an [Adaptive].
type Queue struct {
	mu      sync.Mutex
	machine Machine
	start   time.Time // the machine's time 0, set on first use

	lists   [2 * laneCount]list.List // of *waiter; for each lane those rate limited before, then the others
	passed  [laneCount]int           // grants in a row to other lanes
	waiting int                      // in all lanes
	timer   *time.Timer              // nil until somebody waits; stopped while nobody does
}

// NewQueue returns a Queue for m.
func NewQueue(m Machine) Queue { return Queue{machine: m} }

// waiter is one Acquire that was not granted at once. It belongs to the Queue
// until ready is closed.
type waiter struct {
	list     *list.List
	element  *list.Element // in list; nil once removed
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

// locked calls f with the machine's time.
func (q *Queue) locked(f func(now time.Duration)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	f(q.now())
}

// Acquire waits until an attempt may be sent. It returns a [*TooLong] as soon as
// the deadline of ctx cannot be met, and the error of ctx when ctx ends.
func (q *Queue) Acquire(ctx context.Context, l Lane, rateLimited bool) (*Permit, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p, w, err := q.enter(ctx, l, rateLimited)
	if w == nil {
		return p, err
	}
	select {
	case <-w.ready:
		// A context that ended at the same moment takes no permit.
		if w.err != nil || ctx.Err() == nil {
			return w.permit, w.err
		}
	case <-ctx.Done():
	}
	q.leave(w)
	return nil, ctx.Err()
}

// enter returns a permit, a queued waiter, or an error.
func (q *Queue) enter(ctx context.Context, l Lane, rateLimited bool) (*Permit, *waiter, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now, deadline := q.now(), Never
	if at, ok := ctx.Deadline(); ok {
		left := time.Until(at)
		if left <= 0 {
			return nil, nil, context.DeadlineExceeded
		}
		deadline = now + min(left, Never/2)
	}
	if q.waiting == 0 && q.machine.Ready(now, l == Interactive) == 0 {
		return &Permit{queue: q, ticket: q.machine.Send(now)}, nil, nil
	}
	list, ahead := 2*l+1, q.len(l)
	if rateLimited {
		list, ahead = 2*l, q.lists[2*l].Len()
	}
	if err := q.tooLong(now, l, ahead, deadline); err != nil {
		if q.waiting == 0 {
			q.machine.Idle(now)
		}
		return nil, nil, err
	}
	w := &waiter{list: &q.lists[list], deadline: deadline, ready: make(chan struct{})}
	w.element = w.list.PushBack(w)
	q.waiting++
	q.dispatch(now)
	return nil, w, nil
}

// leave removes a waiter whose context has ended, and cancels its permit if one
// was granted at the same moment.
func (q *Queue) leave(w *waiter) {
	q.locked(func(now time.Duration) {
		if w.element != nil {
			q.remove(w, now)
		} else if w.permit != nil {
			q.machine.Cancel(now, w.permit.ticket)
		}
		q.dispatch(now)
	})
}

// remove takes a waiter out of its lane and wakes it.
func (q *Queue) remove(w *waiter, now time.Duration) {
	w.list.Remove(w.element)
	w.element = nil
	if q.waiting--; q.waiting == 0 {
		q.machine.Idle(now)
	}
	close(w.ready)
}

// Done ends the attempt with its report. Calls after the first do nothing.
func (p *Permit) Done(r Report) {
	r.Jitter = rand.Float64()
	q := p.queue
	q.locked(func(now time.Duration) {
		if p.ended {
			return
		}
		p.ended = true
		q.machine.Done(now, p.ticket, r)
		if r.RateLimited {
			q.review(now)
		}
		q.dispatch(now)
	})
}

// dispatch grants permits for as long as the machine allows, and sets the timer
// to run again.
func (q *Queue) dispatch(now time.Duration) {
	wait := Never
	for q.waiting > 0 {
		l := q.first()
		if wait = q.machine.Ready(now, l == Interactive); wait > 0 {
			break
		}
		for i := range q.passed {
			q.passed[i]++
		}
		q.passed[l] = 0
		w := cmp.Or(q.lists[2*l].Front(), q.lists[2*l+1].Front()).Value.(*waiter)
		w.permit = &Permit{queue: q, ticket: q.machine.Send(now)}
		q.remove(w, now)
	}
	switch {
	case q.timer == nil && q.waiting > 0:
		q.timer = time.AfterFunc(wait, func() { q.locked(q.dispatch) })
	case q.waiting > 0:
		q.timer.Reset(wait)
	case q.timer != nil:
		q.timer.Stop()
	}
}

// len returns how many wait in a lane.
func (q *Queue) len(l Lane) int { return q.lists[2*l].Len() + q.lists[2*l+1].Len() }

// first returns the lane to be served next. Somebody must wait.
func (q *Queue) first() Lane {
	first := laneCount
	for l := range laneCount {
		switch {
		case q.len(l) == 0:
			q.passed[l] = 0
		case first == laneCount || q.passed[l] >= grantsPerShare-1:
			first = l
		}
	}
	return first
}

// tooLong returns an error if a deadline cannot be met by an attempt with so many
// before it in its own lane, if nobody leaves.
func (q *Queue) tooLong(now time.Duration, l Lane, ahead int, deadline time.Duration) error {
	if deadline == Never {
		return nil
	}
	before := 0
	for i := range l {
		before += q.len(i)
	}
	wait := q.machine.AtLeast(now, ahead+min(before, (grantsPerShare-1)*(ahead+1)-q.passed[l]))
	if now+wait <= deadline {
		return nil
	}
	return &TooLong{wait}
}

// review fails the waiters whose deadline can no longer be met.
func (q *Queue) review(now time.Duration) {
	ahead := 0
	for i := range q.lists {
		ahead *= i % 2 // starts over with each lane
		for e := q.lists[i].Front(); e != nil; {
			w := e.Value.(*waiter)
			e = e.Next()
			if w.err = q.tooLong(now, Lane(i/2), ahead, w.deadline); w.err != nil {
				q.remove(w, now)
			} else {
				ahead++
			}
		}
	}
}

// Resume ends a pause that a response caused.
func (q *Queue) Resume() {
	q.locked(func(now time.Duration) {
		q.machine.Resume(now)
		q.dispatch(now)
	})
}

// State returns the machine's state and the number of waiters.
func (q *Queue) State() (s State, waiting int) {
	q.locked(func(now time.Duration) { s, waiting = q.machine.State(now), q.waiting })
	return s, waiting
}
