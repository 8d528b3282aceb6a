package limiter

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

// cellsMore are the situations that the limiter was first measured in after it had
// been tuned on the others.
func cellsMore() (all []cell) {
	noneLost := goal{of: lost}
	add := func(row, name string, w world, goals ...goal) {
		all = append(all, situation(row, name, w, goals...))
	}
	measure := func(row, name string, m func(uint64) map[string]float64, goals ...goal) {
		all = append(all, cell{row: row, situation: name, measure: m, goals: goals})
	}
	for _, n := range []int{2, 5, 10, 20} {
		most := 1.045
		if n == 20 {
			most = 1.07
		}
		for _, c := range []int{16, 64} {
			for _, l := range []latency{near, far} {
				add("21", fmt.Sprintf("cold start of %d processes, %d goroutines each, %v, 600 calls", n, c, l.median),
					world{latency: l, level: 100, processes: even(n, 600, c)},
					goal{of: ratio, limit: most, slack: 0.025}, goal{of: fairness, limit: 0.95, atLeast: true, slack: 0.05}, goal{of: late, limit: 25}, noneLost)
			}
		}
	}
	for _, d := range []time.Duration{30 * time.Second, 5 * time.Minute} {
		measure("22", fmt.Sprintf("a process frozen for %v with 64 calls waiting, while another that just started empties the bucket", d), frozen(d),
			goal{of: after, limit: 3}, fairnessGoal(0.95), noneLost)
	}
	measure("23", "a call every 3 s, then 64 at once, 95 tokens taken by another before", burst(ours), timeGoal(1.1), noneLost)
	for i, n := range []int{2, 5} {
		limit := []float64{1.6, 1.2}[i]
		w := world{latency: near, level: 100, processes: even(n, 1000, 8)}
		w.while = func(e *brelliumtest.Emulator, _ <-chan struct{}) {
			time.Sleep(time.Minute)
			e.Inject(brelliumtest.OpAny, brelliumtest.OK().WithoutRateLimit().Forever())
		}
		add("24", fmt.Sprintf("headers vanish after a minute, %d processes", n), w, goal{of: ratio, limit: limit, slack: 0.2}, noneLost)
	}
	for _, c := range []struct{ missing, ratio, fair float64 }{{0.5, 1.03, 0.97}, {0.95, 1.10, 0}} {
		w := world{latency: near, level: 100, processes: even(5, 1000, 8)}
		w.faults = []brelliumtest.Fault{brelliumtest.OK().WithoutRateLimit().Sometimes(c.missing).Forever()}
		goals := []goal{{of: ratio, limit: c.ratio, slack: 0.1}, noneLost}
		if c.fair > 0 {
			goals = append(goals, fairnessGoal(c.fair))
		}
		add("25", fmt.Sprintf("headers missing on %.0f %%, 5 processes", 100*c.missing), w, goals...)
	}
	add("26", "no headers at all, one process", world{
		latency: near, level: 100, processes: even(1, 1000, 16),
		faults: []brelliumtest.Fault{brelliumtest.OK().WithoutRateLimit().Forever()},
	}, timeGoal(1.01), noneLost)
	for _, n := range []int{1, 2, 5} {
		goals := []goal{timeGoal(1.03), noneLost}
		if n > 1 {
			goals = append(goals, fairnessGoal(0.96))
		}
		add("27", fmt.Sprintf("Remaining stale by 0.5 s, %d processes", n), stale(even(n, 1000, 8)), goals...)
	}
	for _, v := range []int{0, 5, 50, 99} {
		add("28", fmt.Sprintf("Remaining always %d, one process, 2,000 calls", v), world{
			latency: near, level: 100, processes: even(1, 2000, 8),
			header: func(_ *brelliumtest.Emulator, h http.Header) { h.Set("RateLimit-Remaining", strconv.Itoa(v)) },
		}, timeGoal(1.1), limitedGoal(10), noneLost)
	}
	for _, c := range []struct {
		limit int
		rate  float64
	}{{200, 10}, {100, 20}, {1000, 50}} {
		add("29", fmt.Sprintf("limit %d and %v/s, 2 processes", c.limit, c.rate), world{
			latency: near, level: float64(c.limit), limit: c.limit, rate: c.rate, processes: even(2, c.limit+int(300*c.rate), 16),
		}, goal{of: ratio, limit: math.Inf(1)}, fairnessGoal(0.95), noneLost)
	}
	add("30", "limit 10 and 1/s, 20 processes", world{latency: near, level: 10, limit: 10, rate: 1, processes: even(20, 600, 8)}, limitedGoal(30), noneLost)
	for _, every := range []time.Duration{5 * time.Second, 20 * time.Second} {
		add("31", fmt.Sprintf("refill in steps of %v, 5 processes", every), steps(every), goal{of: fairness, limit: 0.9, atLeast: true, slack: every.Seconds() / 80})
	}
	for _, c := range []struct {
		d, total time.Duration
		lost     goal
	}{
		{20 * time.Second, time.Minute, goal{of: lost}},
		{50 * time.Second, time.Minute, goal{of: lost}},
		{5 * time.Minute, time.Minute, goal{of: lost, limit: 1, slack: 4}}, // one a minute
		{5 * time.Minute, 6 * time.Minute, goal{of: lost}},
	} {
		w := world{latency: near, level: 100, processes: even(1, 1000, 16)}
		w.while = func(e *brelliumtest.Emulator, _ <-chan struct{}) {
			time.Sleep(time.Minute)
			for range int(c.d / (50 * time.Millisecond)) {
				e.SetRemaining(0)
				time.Sleep(50 * time.Millisecond)
			}
		}
		w.processes[0].opts = []brellium.CallOption{brellium.WithTotalTimeout(c.total)}
		add("32", fmt.Sprintf("the bucket emptied by another for %v, one process, %v for a call", c.d, c.total), w, c.lost)
	}
	add("33", "80 processes, 5,000 calls", world{latency: near, level: 100, processes: even(80, 5000, 8)}, limitedGoal(10), noneLost)
	add("33", "50 processes, 5,000 calls", world{latency: near, level: 100, processes: even(50, 5000, 8)}, timeGoal(1.06), limitedGoal(10), noneLost)

	measure("34", "10 services, batches of 5 every 20 s on average", batches(10, 5, 20*time.Second, true, 0), goal{of: median, limit: 0.15, slack: 0.05}, noneLost)
	measure("34", "a burst of 10 every 30 s beside a sweep", batches(1, 10, 30*time.Second, false, 16), goal{of: median, limit: 5, slack: 2}, noneLost)

	measure("35", "deadlines of 2 s on all calls, 5 processes", deadlines, goal{of: used, limit: 95, atLeast: true, slack: 3}, goal{of: useful, atLeast: true})
	for _, c := range []int{8, 64, 1000, 10000} {
		measure("36", fmt.Sprintf("an interactive call every 10 s in a client that sweeps with %d goroutines", c), interactive(1, c),
			goal{of: waited, limit: 0.6, slack: 0.4}, goal{of: loses, limit: 1, slack: 1}, noneLost)
	}
	for _, c := range []int{8, 1000} {
		measure("36", fmt.Sprintf("the same with %d goroutines, and four more processes that sweep", c), interactive(5, c),
			goal{of: waited, limit: 2, slack: 1}, goal{of: loses, limit: 1, slack: 1}, noneLost)
	}
	for _, floor := range []float64{0, 0.5} {
		name, goals := "a call every 10 s beside a client that never yields", []goal{{of: median, limit: 8, slack: 4}}
		if floor == 0 {
			goals = []goal{{of: median, atLeast: true}}
		}
		measure("37", fmt.Sprintf("%s, floor %v", name, floor), besideHog(withFloor(floor), 1, 10*time.Second), goals...)
	}
	for _, floor := range []float64{0, 1, 4} {
		g := goal{of: share, limit: 8, atLeast: true, slack: 5}
		if floor < 4 {
			g.limit, g.slack = 0, 0
		}
		measure("37", fmt.Sprintf("a sweep beside it, floor %v", floor), besideHog(withFloor(floor), 8, 0), g)
	}
	crowd := even(50, 5000, 8)
	for i := range crowd {
		crowd[i].client = withFloor(0.1)
	}
	add("37", "50 processes with a floor of 0.1, 5,000 calls", world{latency: near, level: 100, processes: crowd}, timeGoal(1.06), limitedGoal(10), noneLost)
	return all
}

// withFloor is the client with a floor.
func withFloor(perSecond float64) maker {
	return func(e *brelliumtest.Emulator, transport http.RoundTripper) doer {
		l, err := brellium.NewAdaptiveLimiter(brellium.AdaptiveLimiterOptions{Floor: perSecond})
		if err != nil {
			panic(err)
		}
		return oursWith(brellium.WithRateLimiter(l))(e, transport)
	}
}

// besideHog measures a process beside one that never yields.
func besideHog(client maker, concurrent int, pause time.Duration) func(uint64) map[string]float64 {
	return func(seed uint64) map[string]float64 {
		const over = 10 * time.Minute
		w := world{latency: near, level: 100, processes: []process{
			{client: client, calls: 1e6, concurrent: concurrent, pause: pause, until: over},
			{client: plain, calls: 1e6, concurrent: 16, until: over},
		}}
		o := w.run(seed)
		all := o.done()
		o.only(func(c call) bool { return c.process == 0 })
		return map[string]float64{median: percentile(o, -1, 0.5), share: 100 * float64(o.done()) / float64(all), lost: float64(o.lost())}
	}
}

// stale is a world in which RateLimit-Remaining is that of half a second ago.
func stale(processes []process) world {
	const every, behind = 25 * time.Millisecond, 20
	var past []int
	w := world{latency: near, level: 100, processes: processes}
	w.while = func(e *brelliumtest.Emulator, done <-chan struct{}) {
		for {
			select {
			case <-done:
				return
			case <-time.After(every):
				past = append(past, e.Remaining())
			}
		}
	}
	w.header = func(_ *brelliumtest.Emulator, h http.Header) {
		if len(past) > 0 && h.Get("RateLimit-Remaining") != "" {
			h.Set("RateLimit-Remaining", strconv.Itoa(past[max(0, len(past)-behind)]))
		}
	}
	return w
}

// steps is a world whose bucket refills in steps.
func steps(every time.Duration) world {
	w := world{latency: near, level: 100, rate: 1e-3, processes: even(5, 1000, 8)}
	w.while = func(e *brelliumtest.Emulator, done <-chan struct{}) {
		for {
			select {
			case <-done:
				return
			case <-time.After(every):
				e.SetRemaining(float64(e.Remaining()) + 5*every.Seconds())
			}
		}
	}
	w.header = func(_ *brelliumtest.Emulator, h http.Header) {
		if h.Get("Retry-After") != "" {
			h.Set("Retry-After", "1")
			h.Set("RateLimit-Reset", "1")
		}
	}
	return w
}

// frozen measures two processes, of which one stands still for a while with all its
// calls waiting, while the other empties the bucket. It measures the 429s of the
// frozen one afterwards.
func frozen(d time.Duration) func(uint64) map[string]float64 {
	return func(seed uint64) map[string]float64 {
		const from = time.Minute
		until := from + d
		w := world{latency: near, level: 100, processes: []process{
			{client: freezes(from, until), calls: 1e6, concurrent: 64, until: until + 150*time.Second},
			{client: ours, calls: 1e6, concurrent: 16, start: from + time.Second, until: until + 150*time.Second},
		}}
		o := w.run(seed)
		n := 0
		o.rateLimits(func(a response) {
			if a.process == 0 && a.sent >= until {
				n++
			}
		})
		return map[string]float64{after: float64(n), fairness: o.fairnessFrom(until + 10*time.Second), lost: float64(o.lost())}
	}
}

// burst measures the time that a burst takes over what the bucket allows.
func burst(client maker) func(uint64) map[string]float64 {
	return func(seed uint64) map[string]float64 {
		const at = 61 * time.Second
		w := world{latency: near, level: 100, processes: []process{
			{client: client, calls: 20, concurrent: 1, pause: 3 * time.Second},
			{client: client, calls: 64, concurrent: 64, start: at, beside: true},
		}}
		w.while = func(e *brelliumtest.Emulator, _ <-chan struct{}) {
			time.Sleep(at - 100*time.Millisecond)
			e.SetRemaining(5)
		}
		o := w.run(seed)
		bound := float64(o.done()-20-5) / 5
		return map[string]float64{ratio: (o.finished() - at).Seconds() / bound, lost: float64(o.lost())}
	}
}

// batches measures services that make some calls at once now and then, beside a
// process that sweeps with some goroutines, if any.
func batches(services, size int, every time.Duration, random bool, sweep int) func(uint64) map[string]float64 {
	return func(seed uint64) map[string]float64 {
		const n = 20
		r := rand.New(rand.NewPCG(seed, 7))
		w := world{latency: near, level: 100}
		for range services {
			var at time.Duration
			for i := range n {
				wait := every
				if random {
					wait = time.Duration(r.ExpFloat64() * float64(every))
				}
				at += wait
				w.processes = append(w.processes, process{client: ours, calls: size, concurrent: size, start: at, beside: i > 0})
			}
		}
		if sweep > 0 {
			w.processes = append(w.processes, process{client: ours, calls: int(5 * n * every.Seconds()), concurrent: sweep})
		}
		o := w.run(seed)
		failed := o.lost()
		if sweep > 0 {
			o.only(func(c call) bool { return c.process < services*n })
		}
		return map[string]float64{median: percentile(o, -1, 0.5), lost: float64(failed)}
	}
}

// deadlines measures how many tokens calls with short deadlines use.
func deadlines(seed uint64) map[string]float64 {
	const over = 200 * time.Second
	w := world{latency: near, level: 100, record: true, processes: even(5, 1e6, 8)}
	for i := range w.processes {
		w.processes[i].deadline, w.processes[i].pause, w.processes[i].until = 2*time.Second, 100*time.Millisecond, over
	}
	o := w.run(seed)
	all := (100 + 5*over.Seconds()) / 100
	return map[string]float64{used: float64(o.spent) / all, useful: float64(o.done()) / all}
}

// interactive measures calls that a person waits for, made by a client that sweeps,
// beside other processes that sweep.
func interactive(processes, concurrent int) func(uint64) map[string]float64 {
	return func(seed uint64) map[string]float64 {
		const calls, every = 60, 10 * time.Second
		sweep := max(int(5*calls*every.Seconds())+200, concurrent+1000)
		w := world{latency: near, level: 100, processes: even(processes, sweep, 16)}
		w.processes[0].concurrent = concurrent
		without := w.run(seed).finished().Seconds()
		w.processes = append(w.processes[:1:1], append([]process{{
			client: ours, calls: calls, concurrent: 1, start: every, pause: every, beside: true,
			opts: []brellium.CallOption{brellium.WithPriority(brellium.Interactive)},
		}}, w.processes[1:]...)...)
		o := w.run(seed)
		failed := o.lost()
		last := o.finished().Seconds() - calls/5.0
		o.only(func(c call) bool { return c.process == 1 })
		return map[string]float64{waited: percentile(o, -1, 0.99), loses: 100 * (last/without - 1), lost: float64(failed)}
	}
}

// only keeps some of the calls.
func (o *outcome) only(keep func(call) bool) {
	var kept []call
	for _, c := range o.calls {
		if keep(c) {
			kept = append(kept, c)
		}
	}
	o.calls = kept
}
