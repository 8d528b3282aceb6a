package pace

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// checkBounds fails the test if an invariant of the machine is broken.
func checkBounds(t *testing.T, a *Adaptive) {
	t.Helper()
	for _, f := range []float64{a.low, a.high, a.rate, a.spent, a.interval, a.left} {
		if math.IsNaN(f) || math.IsInf(f, 0) {
			t.Fatalf("not a number: %+v", *a)
		}
	}
	if a.low > a.high || a.high > a.limit || a.low > a.limit-float64(a.inFlight)+rounding || a.inFlight < 0 {
		t.Fatalf("bounds broken: %+v", *a)
	}
}

// A process that has the bucket for itself gets no 429 after its first response and
// never has more in flight than the server will allow. This holds for any latency,
// any order of arrival and response, any concurrency, any initial level, with
// pauses, responses without headers, lost requests and 401s.
func TestAloneIsNeverRateLimitedAfterItsFirstResponse(t *testing.T) {
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 2))
		median := time.Duration(float64(10*time.Millisecond) * math.Pow(200, r.Float64())) // to 2 s
		l := latency{median, median + time.Duration(r.Float64()*float64(20*time.Second-median))}
		level := 100 * r.Float64()
		switch r.IntN(4) {
		case 0:
			level = 0
		case 1:
			level = 100
		}
		a := NewAdaptive(AdaptiveConfig{Trusted: r.IntN(4) == 0})
		p := &process{machine: a, calls: 50 + r.IntN(300), concurrent: 1 + r.IntN(256)}
		if r.IntN(4) == 0 {
			p.pause = time.Duration(r.Float64() * float64(20*time.Second))
		}
		s := newSimulation(seed, l, level, p)
		s.arrives = 0 // anywhere on the round trip
		if r.IntN(2) == 0 {
			s.lost, s.strayed, s.unpaid = 0.1*r.Float64(), 0.1*r.Float64(), 0.1*r.Float64()
		}
		calls, inFlight := p.calls, 0
		s.check = func(now time.Duration, p *process) {
			checkBounds(t, a)
			s.server.advance(now)
			free := s.server.tokens - float64(p.inFlight)
			if a.low > free+1e-6 {
				t.Fatalf("seed %d: assumes %v tokens, there are %v", seed, a.low, free)
			}
			if sent := p.inFlight > inFlight; sent && a.mode == Alone && free < 0 {
				t.Fatalf("seed %d: overdrawn by %v", seed, -free)
			}
			inFlight = p.inFlight
		}
		var firstResponse time.Duration
		s.responded = func(now, sent time.Duration, r Report) {
			if firstResponse == 0 && (r.Known || r.RateLimited || r.Spent == SpentYes) {
				firstResponse = now
			}
			if r.RateLimited && sent >= firstResponse {
				t.Fatalf("seed %d: 429 at %v, first response at %v", seed, now, firstResponse)
			}
		}
		s.run()
		require.LessOrEqual(t, p.rateLimited, 2, "seed %d: 429s for probes", seed)
		require.Len(t, p.done, calls, "seed %d: calls left behind", seed)
		require.Zero(t, a.inFlight, "seed %d", seed)
	}
}

// However many processes share the bucket, they agree within half a minute, and
// there is no 429 afterwards.
func TestNoRateLimitLaterThanThirtySecondsAfterTheLastStart(t *testing.T) {
	for _, n := range []int{2, 3, 5, 10, 20, 30} {
		for i, l := range []latency{near, {200 * time.Millisecond, 800 * time.Millisecond}, far} {
			for _, level := range []float64{0, 100} {
				s := newSimulation(uint64(n+i), l, level, even(n, 1500, 8)...)
				s.check = func(_ time.Duration, p *process) { checkBounds(t, p.machine.(*Adaptive)) }
				s.run()
				o := s.outcome(level)
				require.LessOrEqual(t, o.lastRateLimit, 30*time.Second, "%d processes, %v, level %v", n, l, level)
				require.Equal(t, 1500, o.done)
			}
		}
	}
}

// figure is one goal of the algorithm. The ratio is the time taken over the lower
// bound. A fairness of 0 is not checked.
type figure struct {
	name      string
	latency   latency
	level     float64
	processes func() []*process
	lost      float64

	ratio      float64 // mean over the seeds, at most
	rateLimits float64 // mean per 1,000 useful calls, at most
	fairness   float64 // mean, at least
}

func (f figure) run(t *testing.T, seeds int) {
	var ratio, rateLimits, fairness float64
	for seed := range seeds {
		s := newSimulation(uint64(seed), f.latency, f.level, f.processes()...)
		s.lost = f.lost
		want := 0
		for _, p := range s.processes {
			want += p.calls
		}
		s.run()
		o := s.outcome(f.level)
		require.Equal(t, want, o.done, "calls left behind")
		ratio += o.ratio / float64(seeds)
		rateLimits += float64(o.rateLimited) / float64(o.done) * 1000 / float64(seeds)
		fairness += o.fairness / float64(seeds)
	}
	t.Logf("time %.4f of the bound, %.2f 429s per 1,000 calls, fairness %.4f", ratio, rateLimits, fairness)
	require.LessOrEqual(t, ratio, f.ratio, "time taken over the lower bound")
	require.LessOrEqual(t, rateLimits, f.rateLimits, "429s per 1,000 calls")
	if f.fairness > 0 {
		require.GreaterOrEqual(t, fairness, f.fairness, "fairness")
	}
}

// even returns n processes that share the calls evenly.
func even(n, calls, concurrent int) []*process {
	processes := make([]*process, n)
	for i := range processes {
		processes[i] = &process{
			machine:    NewAdaptive(AdaptiveConfig{}),
			calls:      (calls + i) / n,
			concurrent: concurrent,
		}
	}
	return processes
}

func evenly(n, calls, concurrent int) func() []*process {
	return func() []*process { return even(n, calls, concurrent) }
}

// shares returns a process for each number of calls, each starting some time
// after the one before.
func shares(apart time.Duration, calls ...int) func() []*process {
	return func() []*process {
		processes := even(len(calls), 0, 8)
		for i, p := range processes {
			p.calls = calls[i]
			p.start = time.Duration(i) * apart
		}
		return processes
	}
}

func TestFigures(t *testing.T) {
	figures := []figure{
		{name: "one process, 1,000 calls", latency: near, level: 100, processes: evenly(1, 1000, 16), ratio: 1.005},
		{name: "one process, 10,000 calls", latency: near, level: 100, processes: evenly(1, 10000, 16), ratio: 1.001},
		{name: "one process, 500 ms", latency: far, level: 100, processes: evenly(1, 1000, 16), ratio: 1.012},
		{name: "one process, empty bucket", latency: near, processes: evenly(1, 1000, 16), ratio: 1.004, rateLimits: 1},
		{name: "2 processes", latency: near, level: 100, processes: evenly(2, 1000, 8), ratio: 1.02, rateLimits: 5, fairness: 0.965},
		{name: "3 processes", latency: near, level: 100, processes: evenly(3, 1000, 8), ratio: 1.02, rateLimits: 5, fairness: 0.965},
		{name: "5 processes", latency: near, level: 100, processes: evenly(5, 1000, 8), ratio: 1.02, rateLimits: 5, fairness: 0.965},
		{name: "5 processes, empty bucket", latency: near, processes: evenly(5, 1000, 8), ratio: 1.02, rateLimits: 5, fairness: 0.965},
		{name: "5 processes, uneven, leaving", latency: near, level: 100, processes: shares(0, 100, 150, 200, 250, 300), ratio: 1.02, rateLimits: 5, fairness: 0.965},
		{name: "5 processes, one with most", latency: near, level: 100, processes: shares(0, 600, 100, 100, 100, 100), ratio: 1.02, rateLimits: 5, fairness: 0.965},
		{name: "5 processes, joining", latency: near, level: 100, processes: shares(15*time.Second, 200, 200, 200, 200, 200), ratio: 1.02, rateLimits: 5},
		{name: "5 processes, 10,000 calls", latency: near, level: 100, processes: evenly(5, 10000, 8), ratio: 1.002, rateLimits: 0.5, fairness: 0.995},
		{name: "5 processes, 500 ms", latency: far, level: 100, processes: evenly(5, 1000, 8), ratio: 1.03, rateLimits: 15},
		{name: "20 processes", latency: near, level: 100, processes: evenly(20, 1000, 8), ratio: 1.035, rateLimits: 25, fairness: 0.99},
		{name: "20 processes, 10,000 calls", latency: near, level: 100, processes: evenly(20, 10000, 8), ratio: 1.003, rateLimits: 2.5, fairness: 0.995},
		{name: "50 short processes", latency: near, level: 100, processes: evenly(50, 1000, 4), ratio: 1.065, rateLimits: 200},
		{name: "one process, 5 % of the responses lost", latency: near, level: 100, processes: evenly(1, 1000, 16), lost: 0.05, ratio: 1.025},
		{name: "5 processes, 5 % of the responses lost", latency: near, level: 100, processes: evenly(5, 1000, 8), lost: 0.05, ratio: 1.025, rateLimits: 1},
	}
	for _, f := range figures {
		t.Run(f.name, func(t *testing.T) { f.run(t, 3) })
	}
}

// A limit that is lowered or raised is followed without configuration and
// without a 429.
func TestFollowsAChangedLimit(t *testing.T) {
	for _, c := range []struct{ limit, rate, ratio float64 }{{50, 2.5, 1.025}, {200, 10, 1.02}} {
		for _, n := range []int{1, 5} {
			t.Run(fmt.Sprintf("%v and %v a second, %d processes", c.limit, c.rate, n), func(t *testing.T) {
				s := newSimulation(1, near, 100, even(n, 1500, 16)...)
				const change = 60 * time.Second
				s.after(change, func(now time.Duration) {
					s.server.advance(now)
					s.server.limit, s.server.rate = c.limit, c.rate
				})
				s.run()
				o := s.outcome(100)
				require.Zero(t, o.rateLimited)
				bound := change.Seconds() + (1500-100-5*change.Seconds())/c.rate
				require.LessOrEqual(t, o.finished.Seconds()/bound, c.ratio)
			})
		}
	}
}

// Beside somebody who takes 2 tokens a second without looking, what is left is
// used, and the other is served at the first try.
func TestGivesWayToAnUnrelatedConsumer(t *testing.T) {
	s := newSimulation(1, near, 100, even(1, 1000, 16)...)
	tried, served := 0, 0
	var tick func(now time.Duration)
	tick = func(now time.Duration) {
		if len(s.processes[0].done) == 1000 {
			return
		}
		tried++
		if !s.server.take(now).RateLimited {
			served++
		}
		s.after(now+time.Duration(s.rand.ExpFloat64()*float64(500*time.Millisecond)), tick)
	}
	s.after(0, tick)
	s.run()
	o := s.outcome(100)
	require.GreaterOrEqual(t, float64(served), 0.99*float64(tried))
	require.LessOrEqual(t, o.rateLimited, 3)
	require.LessOrEqual(t, o.finished.Seconds()*5/float64(900+served), 1.015)
}

// A process that joins a saturated bucket has 80 % of its share after 15 s.
func TestJoinsASaturatedBucket(t *testing.T) {
	const joined, seeds = 60 * time.Second, 10
	n := 0.0
	for seed := range uint64(seeds) {
		processes := even(3, 1500, 16)
		processes[2].start = joined
		newSimulation(seed, near, 100, processes...).run()
		for _, at := range processes[2].done {
			if at <= joined+15*time.Second {
				n++
			}
		}
	}
	require.GreaterOrEqual(t, n/15/seeds, 0.8*5/3)
}
