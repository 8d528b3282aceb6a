package brelliumredis

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"
	"time"
)

// model is exchange.lua in Go, for tests in virtual time: the same state, the same
// step, times in microseconds. TestScriptAgreesWithModel compares the two.
type model struct {
	mu      sync.Mutex
	latency time.Duration // of one exchange, half of it each way

	epoch, at, low, high, limit                                           float64
	known                                                                 bool
	ended, serial, hold, others                                           float64
	probes, probe, from, mark, debt                                       float64
	newest, newestAt, newestLeft, unspent, trend, grants, learned, looked float64
	tickets                                                               []ticket
	attempts                                                              []inFlight
	exchanges                                                             int
}

type ticket struct {
	worker string
	score  float64
	lease  float64
}

type inFlight struct{ attempt, sent float64 }

const (
	modelSecond = 1e6
	modelEps    = 1e-9
)

func (m *model) exchange(ctx context.Context, q *request) (reply, error) {
	m.mu.Lock()
	latency := m.latency
	m.mu.Unlock()
	if latency > 0 {
		time.Sleep(latency / 2)
		defer time.Sleep(latency / 2)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return reply{}, err
	}
	m.exchanges++
	return m.step(float64(time.Now().UnixMicro()), q), nil
}

// step is the script.
func (m *model) step(now float64, q *request) reply {
	rate := min(max(q.rate, 1e-6), 1e6)
	probeEvery := 1.25 / rate * modelSecond
	idle := max(10, 4/rate)
	if m.limit == 0 {
		m.limit = min(max(float64(q.limit), 1), 1e6)
	}
	m.others = min(m.others, 0.9*rate)
	look := func() float64 { return max(probeEvery, (now-m.from)/2) }
	forget := func() {
		m.known, m.low, m.high, m.others, m.trend, m.probes = false, 0, m.limit, 0, 0, 0
		m.probe, m.from, m.mark = now, now, m.grants
	}
	if m.epoch == 0 || now < m.at-5*modelSecond {
		held := 0.0
		if m.epoch > 0 {
			held = min(max(m.hold-m.at, 0), 330*modelSecond)
		}
		m.tickets, m.attempts = nil, nil
		m.epoch, m.at, m.hold = now, now, now+held
		m.ended, m.serial, m.debt = 0, 0, 0
		m.grants, m.newest = 0, 0
		forget()
	}
	now = max(now, m.at)
	m.hold, m.looked = min(m.hold, now+330*modelSecond), min(m.looked, now+330*modelSecond)
	m.probe = min(m.probe, now+probeEvery)
	passed := (now - m.at) / modelSecond
	m.at = now

	before := len(m.attempts)
	m.attempts = slices.DeleteFunc(m.attempts, func(u inFlight) bool { return u.sent <= now-30*modelSecond })
	lost := float64(before - len(m.attempts))
	m.high += lost
	m.ended += lost
	m.tickets = slices.DeleteFunc(m.tickets, func(t ticket) bool { return t.lease <= now })

	bound := func() {
		m.high = max(min(m.high, m.limit), -m.limit-float64(330*rate))
		notArrived := 0.0
		for _, u := range m.attempts {
			if u.sent > now-10*modelSecond {
				notArrived++
			}
		}
		m.low = max(min(m.low, m.limit-notArrived, m.high), -m.limit-float64(330*rate))
	}
	m.low += float64(passed * (rate - m.others))
	m.high += float64(passed * rate)
	m.others *= max(0, 1-passed/10)
	m.trend *= max(0, 1-passed/10)
	if m.known && passed > idle {
		forget()
	}
	if !m.known && m.probes >= 8 && now-m.probe > 30*modelSecond {
		m.probes = 0
	}
	bound()

	for _, a := range q.results {
		m.apply(now, rate, look, a, float64(max(q.now.Sub(a.sent), 0).Microseconds())/modelSecond)
		bound()
	}
	if m.known {
		m.low -= float64(q.spent)
	} else {
		m.debt = min(m.debt+float64(q.unseen), 1e6)
	}

	served := float64(q.served)
	others := m.others
	if others > 0.004*rate {
		others = min(0.9*rate, max(others, m.trend))
	}
	need := 1 + min(2+min(8, 4*others), (m.limit-1)/2)
	refill := rate - others
	turn := func(ahead float64) (wait, delay float64) {
		if m.known {
			short := (need + ahead - m.low) / refill * modelSecond
			wait = short - modelSecond/refill - 1
			if others > 0.004*rate {
				wait = min(wait, 10*modelSecond)
			}
			wait = max(min(m.hold-now, 10*modelSecond), wait)
			if served > m.learned && ahead > 0 {
				wait = max(wait, m.looked-now)
			}
			return wait, max(short, 0)
		}
		wait = look()
		if m.probes < 8 {
			wait = min(wait, m.probe+float64(ahead*probeEvery)-now)
		}
		return max(min(m.hold-now, 10*modelSecond), wait), 0
	}

	var r reply
	var ahead, wait, delay float64
	if q.place != noPlace {
		r.ticket = true
		ahead = m.draw(q.worker, q.place)
		wait, delay = turn(ahead)
		if wait <= 0 {
			m.drop(q.worker)
			m.grants++
			r.granted, r.attempt, r.ended, r.probing = true, int64(m.grants), int64(m.ended), !m.known
			delay = math.Ceil(delay)
			served = m.grants
			r.delay = micros(int64(delay))
			m.attempts = append(m.attempts, inFlight{m.grants, now + delay})
			m.low--
			m.high--
			bound()
			if !m.known {
				m.probes++
				m.probe = now + probeEvery
			}
			r.ticket = q.next != noPlace
			if r.ticket {
				ahead = m.draw(q.worker, q.next)
				wait, _ = turn(ahead)
			}
		}
	}
	if r.ticket {
		wait = math.Ceil(min(max(wait, 0), 330*modelSecond))
		least := m.hold - now
		if m.known {
			least = max(least, (1+ahead-m.high)/rate*modelSecond)
		}
		least = math.Ceil(min(max(least, 0), 330*modelSecond))
		r.least = micros(int64(least))
		if q.budget >= 0 && least > float64(q.budget.Microseconds()) {
			r.ticket = false
		} else {
			i := slices.IndexFunc(m.tickets, func(t ticket) bool { return t.worker == q.worker })
			m.tickets[i].lease = now + wait + 2*modelSecond
		}
	}
	if !r.ticket {
		m.drop(q.worker)
	}
	r.epoch = int64(m.epoch)
	r.ahead = int(ahead)
	r.wait = micros(int64(math.Ceil(max(wait, 0))))
	r.held = micros(int64(math.Ceil(max(m.hold-now, 0))))
	r.high = m.high
	r.tickets = len(m.tickets)
	r.others = others > 0.004*rate
	return r
}

func (m *model) apply(now, rate float64, look func() float64, a result, age float64) {
	attempt := float64(a.attempt)
	same := float64(a.epoch) == m.epoch
	learn := func() { m.known, m.debt, m.learned, m.looked = true, 0, m.grants, now+look() }
	found := false
	if same {
		if i := slices.IndexFunc(m.attempts, func(u inFlight) bool { return u.attempt == attempt }); i >= 0 {
			found = true
			m.attempts = slices.Delete(m.attempts, i, i+1)
			if !m.known {
				m.probes = max(0, m.probes-1)
			}
		}
	}
	if a.limit >= 1 {
		m.limit = min(float64(a.limit), 1e6)
	}
	switch a.kind {
	case kindRateLimited:
		if found {
			m.unspent++
			m.low++
			m.high++
		}
		if m.known {
			m.others = min(0.9*rate, m.others+max(0, m.low-1-float64(rate*age))/10)
			m.low = min(m.low, 0)
		} else {
			m.low = 0 - m.debt
			learn()
		}
		m.high = min(m.high, 1+float64(rate*age))
		m.hold = max(m.hold, now+min(float64(a.hold.Microseconds()), 330*modelSecond))
	case kindResume:
		m.hold = 0
	case kindUnspent:
		if found {
			m.unspent++
			m.low++
			m.high++
		}
	case kindBlocked:
		if found {
			m.high++
			m.ended++
		}
		m.low = min(m.low, 0)
	case kindSpent:
		after := float64(len(m.attempts)) + m.ended - min(max(float64(a.ended), 0), m.ended)
		if found {
			m.ended++
		}
		remaining := min(max(float64(a.remaining), 0), m.limit)
		if same && attempt > m.newest {
			sent := now - float64(age*modelSecond)
			if m.known && m.newest > 0 {
				expected := min(m.limit, m.newestLeft+float64(rate*(sent-m.newestAt))/modelSecond) - (attempt - m.newest) + m.unspent
				m.trend += (expected - remaining) / 10
			}
			m.newest, m.newestAt, m.newestLeft, m.unspent = attempt, sent, remaining, 0
		}
		bottom, top := remaining-after, remaining+1+float64(rate*age)
		switch {
		case !same || !m.known && attempt <= m.mark:
		case !m.known:
			m.low, m.high = bottom-m.debt, top
			learn()
		case top < m.low-modelEps:
			m.others = min(0.9*rate, m.others+(m.low-top)/10)
			m.low, m.high = bottom, top
		case bottom > m.high+modelEps:
			m.low, m.high = bottom, top
		default:
			m.low, m.high = max(m.low, bottom), min(m.high, top)
		}
	default:
		if found {
			m.ended++
			if a.kind != kindPaid {
				m.high++
			}
		}
	}
}

// draw returns how many tickets are before the worker's. It draws one unless the
// worker has one with an earlier turn.
func (m *model) draw(worker string, p place) float64 {
	shift := map[place]float64{front: -1e12, interactive: -64, background: 64}[p]
	find := func(t ticket) bool { return t.worker == worker }
	i := slices.IndexFunc(m.tickets, find)
	if i < 0 {
		i = len(m.tickets)
		m.tickets = append(m.tickets, ticket{worker: worker, score: math.Inf(1)})
	}
	if m.serial+1+shift < m.tickets[i].score {
		m.serial++
		m.tickets[i].score = m.serial + shift
	}
	slices.SortFunc(m.tickets, func(a, b ticket) int {
		return cmp.Or(cmp.Compare(a.score, b.score), cmp.Compare(a.worker, b.worker))
	})
	return float64(slices.IndexFunc(m.tickets, find))
}

func (m *model) drop(worker string) {
	m.tickets = slices.DeleteFunc(m.tickets, func(t ticket) bool { return t.worker == worker })
}

// lose deletes everything, like a restart of the server.
func (m *model) lose() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.epoch, m.limit, m.tickets, m.attempts = 0, 0, nil, nil
}

// breaking is a store that fails while err is set.
type breaking struct {
	*model
	mu  sync.Mutex
	err error
}

func (b *breaking) set(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

func (b *breaking) exchange(ctx context.Context, q *request) (reply, error) {
	b.mu.Lock()
	err := b.err
	b.mu.Unlock()
	if err != nil {
		return reply{}, err
	}
	return b.model.exchange(ctx, q)
}
