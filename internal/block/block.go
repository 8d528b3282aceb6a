// Package block stops a client from sending requests while a firewall blocks it.
// The firewall sends a bare 403 in the API's place, and retries would keep the
// block in force.
package block

import (
	"context"
	"sync"
	"time"
)

const maxCooldown = 10 * time.Minute

// Guard decides whether an attempt may be sent while requests are blocked. The
// first bare 403 puts the client on watch: attempts go one at a time, and the
// first that is not blocked ends the watch, so that one request which a
// firewall rejects for its content stops no other. A second bare 403 in a row
// stops the client for a cooldown, which doubles while the block lasts; then
// one attempt probes.
type Guard struct {
	cooldown time.Duration // 0: never stop
	turn     chan struct{} // contains a value while an attempt has the turn of a watch

	mu      sync.Mutex
	state   state
	since   int // counts changes of state
	stopFor time.Duration
	retryAt time.Time
	probing bool
}

type state int

const (
	open state = iota
	watching
	stopped
)

// Pass permits one attempt; Settle returns it.
type Pass struct {
	since   int
	hasTurn bool
	probe   bool
}

// Signal is what one attempt says about a block.
type Signal int

// The signals of an attempt.
const (
	Silent  Signal = iota // no response
	Lifted                // a response other than a bare 403
	Blocked               // a bare 403
)

// Stopped is the error of Enter while the client is stopped.
type Stopped struct{ RetryAt time.Time }

func (*Stopped) Error() string { return "stopped by a block" }

// NewGuard returns a guard that stops for cooldown at first; 0 means never.
func NewGuard(cooldown time.Duration) *Guard {
	return &Guard{cooldown: cooldown, turn: make(chan struct{}, 1)}
}

// Enter returns a pass for one attempt. On watch it waits for its turn; while
// the client is stopped it returns a *Stopped at once. A token request (inTurn
// false) takes no turn, since the attempt that waits for the token has it.
func (g *Guard) Enter(ctx context.Context, inTurn bool) (Pass, error) {
	for {
		g.mu.Lock()
		switch {
		case g.state == open, !inTurn && (g.state == watching || g.probing):
			p := Pass{since: g.since}
			g.mu.Unlock()
			return p, nil
		case g.state == stopped:
			defer g.mu.Unlock()
			if g.probing || time.Now().Before(g.retryAt) {
				return Pass{}, &Stopped{g.retryAt}
			}
			g.probing = inTurn
			return Pass{since: g.since, probe: inTurn}, nil
		}
		since := g.since
		g.mu.Unlock()
		select {
		case g.turn <- struct{}{}:
		case <-ctx.Done():
			return Pass{}, ctx.Err()
		}
		g.mu.Lock()
		if g.state == watching && g.since == since {
			g.mu.Unlock()
			return Pass{since: since, hasTurn: true}, nil
		}
		g.mu.Unlock()
		<-g.turn // the watch ended meanwhile: start over
	}
}

// Current reports whether p still holds: no block has begun or ended since.
func (g *Guard) Current(p Pass) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return p.since == g.since
}

// Resume ends a watch or a stop.
func (g *Guard) Resume() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.state, g.retryAt, g.stopFor, g.probing = open, time.Time{}, 0, false
	g.since++
}

// Settle returns p with what its attempt said. It reports when a stopped
// client will send again (zero on watch), and whether the state has changed.
func (g *Guard) Settle(p Pass, signal Signal) (retryAt time.Time, changed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.hasTurn {
		<-g.turn
	}
	if p.since != g.since {
		return g.retryAt, false // sent before the change: the same block
	}
	if p.probe {
		g.probing = false
	}
	switch {
	case signal == Lifted && g.state != open && (p.hasTurn || p.probe):
		g.state, g.retryAt, g.stopFor = open, time.Time{}, 0
	case signal != Blocked:
		return g.retryAt, false
	case g.state == open:
		g.state = watching
	case g.cooldown == 0:
		return time.Time{}, false
	default:
		g.state = stopped
		g.stopFor = min(max(2*g.stopFor, g.cooldown), max(maxCooldown, g.cooldown))
		g.retryAt = time.Now().Add(g.stopFor)
	}
	g.since++
	g.probing = false
	return g.retryAt, true
}
