// Package limiter measures how clients share the organization's rate limit.
// Simulated processes, each with its own client and some goroutines that make
// calls, run against one emulator in the virtual time of testing/synctest. The
// real client runs, not a model of it.
//
//	go test ./limiter -run TestFigures -v -figures -seeds 10
//
// prints the table of docs/limiter.md, and
//
//	go test ./limiter -run TestPicture -svg
//
// draws its picture. Without flags the tests are a shorter check of the same.
package limiter

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

// latency is a lognormal distribution of round trips.
type latency struct{ median, p99 time.Duration }

var (
	near   = latency{80 * time.Millisecond, 400 * time.Millisecond}
	middle = latency{200 * time.Millisecond, 800 * time.Millisecond}
	far    = latency{500 * time.Millisecond, 1500 * time.Millisecond}
)

func (l latency) draw(r *rand.Rand) time.Duration {
	const z99 = 2.3263 // of the normal distribution
	sigma := math.Log(float64(l.p99)/float64(l.median)) / z99
	return time.Duration(float64(l.median) * math.Exp(sigma*r.NormFloat64()))
}

// process is one of the processes that share the organization's limit.
type process struct {
	client     maker
	calls      int
	concurrent int           // goroutines
	start      time.Duration // when it starts
	pause      time.Duration // of a goroutine between two calls
	random     bool          // the pause is exponentially distributed
	deadline   time.Duration // of each call; 0: none
	until      time.Duration // makes no calls after that; 0: until all are made
	beside     bool          // more calls of the process before, with its client
	opts       []brellium.CallOption
}

// world is an organization and its processes.
type world struct {
	latency   latency
	level     float64 // of the bucket at the start
	limit     int     // the bucket's capacity and refill; 0: 100 and 5 a second
	rate      float64
	processes []process
	record    bool // let the emulator keep all requests
	// while, when set, runs beside the processes until done is closed.
	while func(e *brelliumtest.Emulator, done <-chan struct{})
	// faults are injected during the whole run.
	faults []brelliumtest.Fault
	// header, when set, changes the header of each response.
	header func(e *brelliumtest.Emulator, h http.Header)
}

// response is the end of one request of a process.
type response struct {
	process  int
	sent, at time.Duration // since the start
	status   int           // 0: no response
}

// call is one call of a process.
type call struct {
	process      int
	begun, ended time.Duration
	err          error
}

// outcome is the result of a run.
type outcome struct {
	world     world
	responses []response
	calls     []call
	spent     int // tokens, if the emulator recorded
}

// run makes the calls of all processes. It must run in a synctest bubble.
func (w world) run(seed uint64) *outcome {
	records := 0
	if w.record {
		records = -1
	}
	e := brelliumtest.New(
		brelliumtest.WithSeed(seed),
		brelliumtest.WithRateLimit(cmp.Or(w.limit, 100), cmp.Or(w.rate, 5)),
		brelliumtest.WithLatency(w.latency.draw),
		brelliumtest.WithRateLimitLevel(w.level),
		brelliumtest.WithRecordLimit(records),
		brelliumtest.WithTokenLifetime(24*time.Hour),
	)
	e.Inject(brelliumtest.OpAny, w.faults...)
	o := &outcome{world: w}
	m := &meter{next: e.Transport(), start: time.Now(), random: rand.New(rand.NewPCG(seed, 6))}
	if w.header != nil {
		m.header = func(h http.Header) { w.header(e, h) }
	}
	done := make(chan struct{})
	var beside, work sync.WaitGroup
	if w.while != nil {
		beside.Go(func() { w.while(e, done) })
	}
	var do doer
	for i, p := range w.processes {
		if !p.beside {
			do = p.client(e, &metered{m, i})
		}
		do := do
		work.Go(func() {
			time.Sleep(p.start)
			m.drive(i, p, do, o)
		})
	}
	work.Wait()
	close(done)
	beside.Wait()
	for _, r := range e.Requests() {
		if r.Spent {
			o.spent++
		}
	}
	o.responses = m.responses
	return o
}

// meter records the responses and calls of the processes.
type meter struct {
	next   http.RoundTripper
	start  time.Time
	header func(http.Header)

	mu        sync.Mutex
	random    *rand.Rand
	responses []response
}

// drive makes the calls of one process.
func (m *meter) drive(number int, p process, do doer, o *outcome) {
	left := p.calls
	var workers sync.WaitGroup
	for range p.concurrent {
		workers.Go(func() {
			for {
				m.mu.Lock()
				left--
				more := left >= 0 && (p.until == 0 || time.Since(m.start) < p.until)
				m.mu.Unlock()
				if !more {
					return
				}
				c := call{process: number, begun: time.Since(m.start)}
				ctx, cancel := context.Background(), func() {}
				if p.deadline > 0 {
					ctx, cancel = context.WithTimeout(ctx, p.deadline)
				}
				c.err = do(ctx, p.opts...)
				cancel()
				c.ended = time.Since(m.start)
				pause := p.pause
				m.mu.Lock()
				o.calls = append(o.calls, c)
				if p.random {
					pause = time.Duration(m.random.ExpFloat64() * float64(pause))
				}
				m.mu.Unlock()
				time.Sleep(pause)
			}
		})
	}
	workers.Wait()
}

// metered is the transport of one process.
type metered struct {
	*meter
	process int
}

func (m *metered) RoundTrip(r *http.Request) (*http.Response, error) {
	a := response{process: m.process, sent: time.Since(m.start)}
	resp, err := m.next.RoundTrip(r)
	a.at = time.Since(m.start)
	if err == nil {
		a.status = resp.StatusCode
		if m.header != nil {
			m.header(resp.Header)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.responses = append(m.responses, a)
	return resp, err
}

// done is how many calls succeeded.
func (o *outcome) done() int { return len(o.calls) - o.lost() }

// lost is how many calls failed.
func (o *outcome) lost() int {
	n := 0
	for _, c := range o.calls {
		if c.err != nil {
			n++
		}
	}
	return n
}

// finished is when the last call ended.
func (o *outcome) finished() time.Duration {
	var at time.Duration
	for _, c := range o.calls {
		at = max(at, c.ended)
	}
	return at
}

// rateLimits counts the 429s and calls each, if set, with each of them.
func (o *outcome) rateLimits(each func(response)) (n int) {
	for _, a := range o.responses {
		if a.status == http.StatusTooManyRequests {
			n++
			if each != nil {
				each(a)
			}
		}
	}
	return n
}

// lastRateLimit is when the last 429 came, after the last process had started.
func (o *outcome) lastRateLimit() time.Duration {
	var start, last time.Duration
	for _, p := range o.world.processes {
		start = max(start, p.start)
	}
	o.rateLimits(func(a response) { last = max(last, a.at-start) })
	return last
}

// rateLimitedLater counts the 429s to requests that a process sent after its first
// response, or at that moment: in virtual time what the response allows is sent at
// the very same moment.
func (o *outcome) rateLimitedLater() int {
	first := map[int]time.Duration{}
	for _, a := range o.responses { // in order of time
		if _, known := first[a.process]; !known && a.status != 0 {
			first[a.process] = a.at
		}
	}
	n := 0
	o.rateLimits(func(a response) {
		if at, known := first[a.process]; known && a.sent >= at {
			n++
		}
	})
	return n
}

// fairness is Jain's index of the processes' successful calls, the mean over the
// windows of 30 s in which all processes are active: 1 if the shares are equal,
// 1/n if one of n gets everything. It is 0 if there is no such window.
func (o *outcome) fairness() float64 { return o.fairnessFrom(0) }

func (o *outcome) fairnessFrom(begin time.Duration) float64 {
	const window = 30 * time.Second
	n := len(o.world.processes)
	ends := make([]time.Duration, n)
	for i, p := range o.world.processes {
		begin = max(begin, p.start)
		for _, c := range o.calls {
			if c.process == i {
				ends[i] = max(ends[i], c.ended)
			}
		}
	}
	end := ends[0]
	for _, e := range ends {
		end = min(end, e)
	}
	var sum float64
	windows := int((end - begin) / window)
	for k := range windows {
		from := begin + time.Duration(k)*window
		served := make([]float64, n)
		for _, c := range o.calls {
			if c.err == nil && c.ended >= from && c.ended < from+window {
				served[c.process]++
			}
		}
		var total, squares float64
		for _, s := range served {
			total += s
			squares += s * s
		}
		sum += total * total / (float64(n) * squares)
	}
	if windows < 1 {
		return 0
	}
	return sum / float64(windows)
}
