package pace

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"time"
)

// The simulation below is a discrete-event model of the documented server and
// of processes that each drive a machine as the client does: one queue per
// process, a limited number of concurrent calls, rate-limited calls first.

// server is the documented token bucket.
type server struct {
	limit, rate float64
	tokens      float64
	at          time.Duration
}

func (s *server) advance(now time.Duration) {
	s.tokens = min(s.tokens+s.rate*(now-s.at).Seconds(), s.limit)
	s.at = now
}

func (s *server) take(now time.Duration) Report {
	s.advance(now)
	if s.tokens < 1-rounding {
		wait := math.Ceil((1 - s.tokens) / s.rate)
		return Report{RateLimited: true, Spent: SpentNo, RetryAfter: time.Duration(wait) * time.Second}
	}
	s.tokens--
	return Report{Known: true, Spent: SpentYes, Limit: int(s.limit), Remaining: int(s.tokens + rounding)}
}

// latency draws lognormal round trips.
type latency struct{ median, p99 time.Duration }

var (
	near = latency{80 * time.Millisecond, 400 * time.Millisecond}
	far  = latency{500 * time.Millisecond, 1500 * time.Millisecond}
)

func (l latency) draw(r *rand.Rand) time.Duration {
	sigma := math.Log(float64(l.p99)/float64(l.median)) / 2.3263
	return time.Duration(float64(l.median) * math.Exp(sigma*r.NormFloat64()))
}

// process is one client of the server.
type process struct {
	machine    Machine
	calls      int           // calls left to send
	concurrent int           // concurrent calls
	start      time.Duration // when it begins
	pause      time.Duration // between the calls of one worker

	busy        int // workers with a call in flight, or pausing
	again       int // rate-limited calls that are back in the queue
	wake        int // which wake-up is the valid one
	inFlight    int
	done        []time.Duration
	finished    time.Duration
	rateLimited int
}

type event struct {
	at    time.Duration
	order int
	do    func(now time.Duration)
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].order < e[j].order
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = old[:len(old)-1]
	return last
}

// simulation runs processes against one server.
type simulation struct {
	server    *server
	latency   latency
	processes []*process
	rand      *rand.Rand
	// arrives is the share of the round trip after which the server decides;
	// 0 draws one for each attempt.
	arrives float64
	// lost is the share of attempts that spend a token and whose response has no
	// headers, strayed that of attempts that never reach the server and whose end
	// does not say so, unpaid that of responses like a 401.
	lost, strayed, unpaid float64
	// check, if set, is called after every event.
	check func(now time.Duration, p *process)
	// responded, if set, is called with every response and its time of sending.
	responded func(now, sent time.Duration, r Report)
	// rateLimits are the times of all 429s.
	rateLimits []time.Duration

	queue events
	order int
}

func newSimulation(seed uint64, l latency, level float64, processes ...*process) *simulation {
	return &simulation{
		server:    &server{limit: 100, rate: 5, tokens: level},
		latency:   l,
		processes: processes,
		rand:      rand.New(rand.NewPCG(seed, 1)),
		arrives:   0.5,
	}
}

func (s *simulation) after(at time.Duration, do func(now time.Duration)) {
	s.order++
	heap.Push(&s.queue, event{at, s.order, do})
}

// run plays the simulation until nothing is left to do.
func (s *simulation) run() {
	for _, p := range s.processes {
		s.after(p.start, func(now time.Duration) { s.dispatch(now, p) })
	}
	for len(s.queue) > 0 {
		e := heap.Pop(&s.queue).(event)
		e.do(e.at)
	}
}

// waiters is how many calls of the process want to be sent.
func (p *process) waiters() int {
	return p.again + min(p.calls, p.concurrent-p.busy)
}

func (s *simulation) dispatch(now time.Duration, p *process) {
	p.wake++
	for p.waiters() > 0 {
		if wait := p.machine.Ready(now, false); wait > 0 {
			if wait < Never {
				valid := p.wake
				s.after(now+wait, func(now time.Duration) {
					if p.wake == valid {
						s.dispatch(now, p)
					}
				})
			}
			return
		}
		s.send(now, p)
		if s.check != nil {
			s.check(now, p)
		}
	}
}

func (s *simulation) send(now time.Duration, p *process) {
	if p.again > 0 {
		p.again--
	} else {
		p.calls--
		p.busy++
	}
	p.inFlight++
	sent := now
	ticket := p.machine.Send(now)
	took := s.latency.draw(s.rand)
	share := s.arrives
	if share == 0 {
		share = s.rand.Float64()
	}
	var report Report
	fate := s.rand.Float64()
	lost := fate < s.lost
	strayed := !lost && fate < s.lost+s.strayed
	unpaid := !lost && !strayed && fate < s.lost+s.strayed+s.unpaid
	s.after(now+time.Duration(share*float64(took)), func(now time.Duration) {
		p.inFlight--
		switch {
		case strayed:
		case unpaid:
			report = Report{Spent: SpentNo}
		default:
			report = s.server.take(now)
		}
		if lost && !report.RateLimited {
			report = Report{}
		}
		if s.check != nil {
			s.check(now, p)
		}
	})
	s.after(now+took, func(now time.Duration) {
		report.Jitter = s.rand.Float64()
		if s.responded != nil {
			s.responded(now, sent, report)
		}
		p.machine.Done(now, ticket, report)
		if report.RateLimited {
			p.rateLimited++
			s.rateLimits = append(s.rateLimits, now)
			wait := report.RetryAfter + time.Duration(s.rand.Float64()*float64(pauseSpread))
			s.after(now+wait, func(now time.Duration) {
				p.again++
				s.dispatch(now, p)
			})
		} else {
			p.done = append(p.done, now)
			p.finished = now
			s.after(now+p.pause, func(now time.Duration) {
				p.busy--
				s.dispatch(now, p)
			})
		}
		if s.check != nil {
			s.check(now, p)
		}
		s.dispatch(now, p)
	})
}

// outcome sums up a run.
type outcome struct {
	done          int
	rateLimited   int
	finished      time.Duration
	ratio         float64       // time taken over the lower bound
	fairness      float64       // Jain's index over windows of 30 s in which all were active
	lastRateLimit time.Duration // after the last start
}

func (s *simulation) outcome(level float64) outcome {
	var o outcome
	var begin, end time.Duration
	for i, p := range s.processes {
		o.done += len(p.done)
		o.rateLimited += p.rateLimited
		o.finished = max(o.finished, p.finished)
		begin = max(begin, p.start)
		if i == 0 || p.finished < end {
			end = p.finished
		}
	}
	for _, at := range s.rateLimits {
		o.lastRateLimit = max(o.lastRateLimit, at-begin)
	}
	o.ratio = o.finished.Seconds() / ((float64(o.done) - level) / 5)
	const window = 30 * time.Second
	var windows, sum float64
	for from := begin; from+window <= end; from += window {
		var total, squares float64
		for _, p := range s.processes {
			n := 0.0
			for _, at := range p.done {
				if at >= from && at < from+window {
					n++
				}
			}
			total += n
			squares += n * n
		}
		windows++
		sum += total * total / (float64(len(s.processes)) * squares)
	}
	o.fairness = sum / windows
	return o
}
