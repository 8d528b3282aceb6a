package limiter

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/brellium/brellium-go/brelliumtest"
)

// The quantities that goals are set for.
const (
	ratio    = "time over the bound" // the time taken over the time that the bucket allows
	limited  = "429s"                // in percent of the successful calls
	fairness = "fairness"
	late     = "last 429" // seconds after the last start
	after    = "429s after the first response"
	first    = "its requests allowed"    // of another client, in percent
	joined   = "80 % of its share after" // seconds
	waited   = "99 % of calls within"    // seconds
	lost     = "calls lost"
	median   = "half of its calls within" // seconds
	used     = "tokens used"              // in percent
	useful   = "by calls that succeeded"  // in percent
	share    = "its share"                // in percent
	loses    = "the sweep loses"          // in percent of its time
)

// goal is the limit of a quantity's mean over the seeds.
type goal struct {
	of      string
	limit   float64
	atLeast bool
	// slack is the tolerance for a single seed.
	slack float64
}

func (g goal) met(v float64) bool {
	if g.atLeast {
		return v >= g.limit
	}
	return v <= g.limit+1e-9
}

// cell is a situation to measure and its goals.
type cell struct {
	row       string
	situation string
	long      bool // not part of the short check
	measure   func(seed uint64) map[string]float64
	goals     []goal
}

func timeGoal(limit float64) goal    { return goal{of: ratio, limit: limit, slack: 0.01} }
func limitedGoal(limit float64) goal { return goal{of: limited, limit: limit, slack: limit / 5} }
func fairnessGoal(limit float64) goal {
	return goal{of: fairness, limit: limit, atLeast: true, slack: 0.04}
}

// even returns n processes that share the calls evenly.
func even(n, calls, concurrent int) []process {
	processes := make([]process, n)
	for i := range processes {
		processes[i] = process{client: ours, calls: (calls + i) / n, concurrent: concurrent}
	}
	return processes
}

// shares returns a process for each number of calls, each starting some time
// after the one before.
func shares(apart time.Duration, calls ...int) []process {
	processes := even(len(calls), 0, 8)
	for i := range processes {
		processes[i].calls = calls[i]
		processes[i].start = time.Duration(i) * apart
	}
	return processes
}

// bound is the least time in which the bucket allows so many requests.
func (w world) bound(requests int) float64 {
	return (float64(requests) - w.level) / cmp.Or(w.rate, 5)
}

// common measures what every situation has.
func (w world) common(seed uint64) map[string]float64 {
	o := w.run(seed)
	requests := o.done()
	if w.record {
		requests = o.spent // retries count too
	}
	return map[string]float64{
		ratio:    o.finished().Seconds() / w.bound(requests),
		limited:  100 * float64(o.rateLimits(nil)) / float64(o.done()),
		fairness: o.fairness(),
		late:     o.lastRateLimit().Seconds(),
		after:    float64(o.rateLimitedLater()),
		lost:     float64(o.lost()),
		waited:   percentile(o, -1, 0.99),
		median:   percentile(o, -1, 0.5),
	}
}

// percentile returns the duration in seconds within which a share of the calls of
// a process ended, or of all processes for -1.
func percentile(o *outcome, process int, share float64) float64 {
	var took []time.Duration
	for _, c := range o.calls {
		if process < 0 || c.process == process {
			took = append(took, c.ended-c.begun)
		}
	}
	slices.Sort(took)
	return took[int(share*float64(len(took)-1))].Seconds()
}

func situation(row, name string, w world, goals ...goal) cell {
	calls := 0
	for _, p := range w.processes {
		calls += p.calls
	}
	return cell{row: row, situation: name, long: calls > 3000, measure: w.common, goals: goals}
}

// cells are the situations of the table.
func cells() []cell {
	none := func(of string) goal { return goal{of: of} }
	return []cell{
		{
			row: "1", situation: "one process: 100 draws of goroutines (1-256), latency (p99 to 20 s), level and lost responses a seed",
			measure: anything(100), goals: []goal{none(after)},
		},
		situation("2", "one process, 1,000 calls", world{latency: near, level: 100, processes: even(1, 1000, 16)}, timeGoal(1.005), none(limited)),
		situation("2", "one process, 10,000 calls", world{latency: near, level: 100, processes: even(1, 10000, 16)}, timeGoal(1.001), none(limited)),
		situation("3", "one process, 500 ms, 1,000 calls", world{latency: far, level: 100, processes: even(1, 1000, 16)}, timeGoal(1.012), none(limited)),
		situation("4", "one process, empty bucket", world{latency: near, processes: even(1, 1000, 16)}, timeGoal(1.004), goal{of: limited, limit: 0.1}),

		situation("5", "2 processes, 1,000 calls", world{latency: near, level: 100, processes: even(2, 1000, 8)}, timeGoal(1.02), limitedGoal(0.5), fairnessGoal(0.965)),
		situation("5", "3 processes", world{latency: near, level: 100, processes: even(3, 1000, 8)}, timeGoal(1.02), limitedGoal(0.5), fairnessGoal(0.965)),
		situation("5", "5 processes", world{latency: near, level: 100, processes: even(5, 1000, 8)}, timeGoal(1.02), limitedGoal(0.5), fairnessGoal(0.965)),
		situation("5", "5 processes, empty bucket", world{latency: near, processes: even(5, 1000, 8)}, timeGoal(1.02), limitedGoal(0.5), fairnessGoal(0.965)),
		situation("5", "5 processes, 100 to 300 calls each, leaving", world{latency: near, level: 100, processes: shares(0, 100, 150, 200, 250, 300)}, timeGoal(1.02), limitedGoal(0.5), fairnessGoal(0.965)),
		situation("5", "5 processes, one with 600 calls", world{latency: near, level: 100, processes: shares(0, 600, 100, 100, 100, 100)}, timeGoal(1.02), limitedGoal(0.5), fairnessGoal(0.965)),
		situation("5", "5 processes, joining 15 s apart", world{latency: near, level: 100, processes: shares(15*time.Second, 200, 200, 200, 200, 200)}, timeGoal(1.02), limitedGoal(0.5)),
		situation("5", "5 processes, one of them mostly idle", world{latency: near, level: 100, processes: append(even(4, 960, 8), process{client: ours, calls: 40, concurrent: 1, pause: 4 * time.Second})}, timeGoal(1.02), limitedGoal(0.5)),

		situation("6", "2 processes, 10,000 calls", world{latency: near, level: 100, processes: even(2, 10000, 8)}, timeGoal(1.002), limitedGoal(0.05), fairnessGoal(0.995)),
		situation("6", "5 processes, 10,000 calls", world{latency: near, level: 100, processes: even(5, 10000, 8)}, timeGoal(1.002), limitedGoal(0.05), fairnessGoal(0.995)),
		situation("7", "5 processes, 500 ms", world{latency: far, level: 100, processes: even(5, 1000, 8)}, timeGoal(1.03), limitedGoal(0.2)),
		situation("8", "20 processes, 1,000 calls", world{latency: near, level: 100, processes: even(20, 1000, 8)}, timeGoal(1.035), limitedGoal(2.5), fairnessGoal(0.99)),
		situation("9", "20 processes, 10,000 calls", world{latency: near, level: 100, processes: even(20, 10000, 8)}, timeGoal(1.003), limitedGoal(0.2), fairnessGoal(0.995)),
		{
			row: "10", situation: "2, 5, 10, 20 and 30 processes, 80 to 500 ms, full and empty bucket, 1,500 calls each time",
			long: true, measure: everyStart, goals: []goal{{of: late, limit: 25}},
		},
		{
			row: "11", situation: "another client at 2/s",
			measure: consumer, goals: []goal{timeGoal(1.015), limitedGoal(0.3), {of: first, limit: 99, atLeast: true, slack: 1}},
		},
		{
			row: "12", situation: "limit to 50 and 2.5/s after a minute", measure: changed(1, 50, 2.5),
			goals: []goal{timeGoal(1.025), none(limited)},
		},
		{
			row: "12", situation: "the same, 5 processes", measure: changed(5, 50, 2.5),
			goals: []goal{timeGoal(1.025), none(limited)},
		},
		{
			row: "12", situation: "limit to 200 and 10/s after a minute", measure: changed(1, 200, 10),
			goals: []goal{timeGoal(1.005), none(limited)},
		},
		{
			row: "12", situation: "the same, 5 processes", measure: changed(5, 200, 10),
			goals: []goal{timeGoal(1.02), none(limited)},
		},
		{
			row: "13", situation: "a process joins two that use the whole bucket",
			measure: joins, goals: []goal{{of: joined, limit: 15, slack: 5}},
		},
		situation("14", "50 processes, 20 calls each", world{latency: near, level: 100, processes: even(50, 1000, 4)}, timeGoal(1.065), limitedGoal(20)),
		situation("16", "one process, 64 goroutines", world{latency: near, level: 100, processes: even(1, 1000, 64)}, goal{of: waited, limit: 1.05 * 64 / 5}),
		situation("17", "one process, 5 % of responses lost or without headers", lossy(1), timeGoal(1.025), none(after)),
		situation("17", "the same, 5 processes", lossy(5), timeGoal(1.025), goal{of: late, limit: 30}),
	}
}

// rival is another way to respect the limit, for comparison.
type rival struct {
	name   string
	client func(processes int) maker
}

func rivals() []rival {
	always := func(m maker) func(int) maker { return func(int) maker { return m } }
	return []rival{
		{"the guide's wrapper", always(guide)},
		{"no limiter, 2 retries by Retry-After", always(unpaced)},
		{"`x/time/rate` at 100 and 5/s, 2 retries", always(plain)},
		{"brellium-go, a fixed share each (`SplitRateLimit`)", split},
		{"**brellium-go**", always(ours)},
	}
}

// comparisons are the worlds in which rivals are compared.
func comparisons() []struct {
	name string
	world
} {
	return []struct {
		name string
		world
	}{
		{"1 process, empty bucket", world{latency: near, processes: even(1, 1000, 16)}},
		{"5 processes", world{latency: near, level: 100, processes: even(5, 1000, 8)}},
		{"5 processes, one with 600 of the calls", world{latency: near, level: 100, processes: shares(0, 600, 100, 100, 100, 100)}},
		{"20 processes", world{latency: near, level: 100, processes: even(20, 1000, 8)}},
		{"50 processes, 20 calls each", world{latency: near, level: 100, processes: even(50, 1000, 4)}},
	}
}

// others are situations in which a client that does not pace itself can do better.
func others() []struct {
	name    string
	of      string
	measure func(maker) func(uint64) map[string]float64
} {
	return []struct {
		name    string
		of      string
		measure func(maker) func(uint64) map[string]float64
	}{
		{"64 calls at once on a bucket with 5 left, time over the bound", ratio, burst},
		{"the same, calls lost", lost, burst},
		{"a call every 10 s beside a client that never yields, half within (s)", median, func(m maker) func(uint64) map[string]float64 { return besideHog(m, 1, 10*time.Second) }},
		{"the same, calls lost of 60", lost, func(m maker) func(uint64) map[string]float64 { return besideHog(m, 1, 10*time.Second) }},
	}
}

// compare measures a rival in a world: lost calls, 429s, and the time over the
// bound.
func (r rival) compare(w world, seed uint64) (lost, limited, ratio float64) {
	w.processes = slices.Clone(w.processes)
	for i := range w.processes {
		w.processes[i].client = r.client(len(w.processes))
	}
	o := w.run(seed)
	return float64(o.lost()), float64(o.rateLimits(nil)), o.finished().Seconds() / w.bound(o.done())
}

// anything measures random worlds of one process.
func anything(worlds int) func(uint64) map[string]float64 {
	return func(seed uint64) map[string]float64 {
		r := rand.New(rand.NewPCG(seed, 4))
		total := map[string]float64{}
		for range worlds {
			median := time.Duration(float64(10*time.Millisecond) * math.Pow(200, r.Float64())) // to 2 s
			w := world{
				latency:   latency{median, median + time.Duration(r.Float64()*float64(20*time.Second-median))},
				level:     []float64{0, 100, 100 * r.Float64(), 100 * r.Float64()}[r.IntN(4)],
				processes: even(1, 50+r.IntN(250), 1+r.IntN(256)),
			}
			if r.IntN(2) == 0 {
				w.faults = losses(0.05)
			}
			o := w.run(r.Uint64())
			total[after] += float64(o.rateLimitedLater())
			total[limited] += float64(o.rateLimits(nil))
		}
		return total
	}
}

// losses drops half of a share of the responses and removes the headers of the
// other half.
func losses(share float64) []brelliumtest.Fault {
	return []brelliumtest.Fault{
		brelliumtest.DropAfter().Sometimes(share / 2).Forever(),
		brelliumtest.OK().WithoutRateLimit().Sometimes(share / 2).Forever(),
	}
}

func lossy(processes int) world {
	return world{latency: near, level: 100, processes: even(processes, 1000, 16/processes), record: true, faults: losses(0.05)}
}

// everyStart measures the time of the last 429 over several numbers of processes.
func everyStart(seed uint64) map[string]float64 {
	most := map[string]float64{}
	for _, n := range []int{2, 5, 10, 20, 30} {
		for _, l := range []latency{near, middle, far} {
			for _, level := range []float64{0, 100} {
				w := world{latency: l, level: level, processes: even(n, 1500, 8)}
				for quantity, v := range w.common(seed) {
					most[quantity] = max(most[quantity], v)
				}
			}
		}
	}
	return most
}

// consumer measures a process next to a client that takes 2 tokens a second at
// random times, without pacing.
func consumer(seed uint64) map[string]float64 {
	tried, served := 0, 0
	w := world{latency: near, level: 100, processes: even(1, 1000, 16)}
	w.while = func(e *brelliumtest.Emulator, done <-chan struct{}) {
		r := rand.New(rand.NewPCG(seed, 5))
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Duration(r.ExpFloat64() * float64(500*time.Millisecond))):
			}
			tried++
			if e.Spend() {
				served++
			}
		}
	}
	o := w.run(seed)
	return map[string]float64{
		ratio:   o.finished().Seconds() / w.bound(o.done()+served),
		limited: 100 * float64(o.rateLimits(nil)) / float64(o.done()),
		first:   100 * float64(served) / float64(tried),
		lost:    float64(o.lost()),
	}
}

// changed measures processes whose limit changes after a minute.
func changed(processes, limit int, perSecond float64) func(uint64) map[string]float64 {
	return func(seed uint64) map[string]float64 {
		const change, calls = time.Minute, 1500
		w := world{latency: near, level: 100, processes: even(processes, calls, 16)}
		w.while = func(e *brelliumtest.Emulator, done <-chan struct{}) {
			time.Sleep(change)
			e.SetRateLimit(limit, perSecond)
			<-done
		}
		o := w.run(seed)
		bound := change.Seconds() + (float64(o.done())-100-5*change.Seconds())/perSecond
		return map[string]float64{
			ratio:   o.finished().Seconds() / bound,
			limited: 100 * float64(o.rateLimits(nil)) / float64(o.done()),
			lost:    float64(o.lost()),
		}
	}
}

// joins measures how long a process that joins two others takes until it has had
// 80 % of its share for 10 s.
func joins(seed uint64) map[string]float64 {
	const start, window = time.Minute, 10 * time.Second
	w := world{latency: near, level: 100, processes: even(3, 1500, 16)}
	w.processes[2].start = start
	o := w.run(seed)
	share := int(math.Ceil(0.8 * 5 / 3 * window.Seconds()))
	var ends []time.Duration
	for _, c := range o.calls {
		if c.process == 2 && c.err == nil {
			ends = append(ends, c.ended)
		}
	}
	slices.SortFunc(ends, cmp.Compare)
	after := math.Inf(1)
	for i := share - 1; i < len(ends); i++ {
		if from := max(ends[i-share+1], start); ends[i]-from <= window {
			after = (ends[i] - start).Seconds()
			break
		}
	}
	return map[string]float64{joined: after, lost: float64(o.lost())}
}
