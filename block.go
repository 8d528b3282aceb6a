package brellium

import (
	"context"
	"sync"
	"time"
)

const maxBlockCooldown = 10 * time.Minute

// blockGuard keeps a client from holding a block in place. The first bare 403
// puts the client on watch: attempts go one at a time, and the first of them
// that is not blocked ends the watch, so that a request which a firewall
// refuses for its content stops nobody else. A second bare 403 in a row stops
// the client for a cooldown, which doubles while the block lasts; then one
// attempt probes.
type blockGuard struct {
	cooldown time.Duration // 0: never stop
	turn     chan struct{} // holds a value while an attempt has the watch's turn

	mu      sync.Mutex
	state   blockState
	since   int // counts changes of state
	lasting time.Duration
	retryAt time.Time
	probing bool
}

type blockState int

const (
	blockNone blockState = iota
	blockWatch
	blockStop
)

// blockPass is one attempt's leave to go, to be given back by settle.
type blockPass struct {
	since   int
	hasTurn bool
	probe   bool
}

// blockNews is what one attempt says about a block.
type blockNews int

const (
	blockSilent  blockNews = iota // no answer
	blockLifted                   // an answer other than a bare 403
	blockRefused                  // a bare 403
)

func newBlockGuard(cooldown time.Duration) *blockGuard {
	return &blockGuard{cooldown: cooldown, turn: make(chan struct{}, 1)}
}

// enter lets an attempt go. On watch it waits for its turn; while the client
// is stopped it fails at once. A token request (inTurn false) takes no turn,
// since the attempt that waits for it holds one.
func (g *blockGuard) enter(ctx context.Context, operation string, inTurn bool) (blockPass, error) {
	for {
		g.mu.Lock()
		switch {
		case g.state == blockNone, !inTurn && (g.state == blockWatch || g.probing):
			p := blockPass{since: g.since}
			g.mu.Unlock()
			return p, nil
		case g.state == blockStop:
			defer g.mu.Unlock()
			if g.probing || time.Now().Before(g.retryAt) {
				return blockPass{}, &BlockedError{Operation: operation, RetryAt: g.retryAt}
			}
			g.probing = inTurn
			return blockPass{since: g.since, probe: inTurn}, nil
		}
		since := g.since
		g.mu.Unlock()
		select {
		case g.turn <- struct{}{}:
		case <-ctx.Done():
			return blockPass{}, ctx.Err()
		}
		g.mu.Lock()
		if g.state == blockWatch && g.since == since {
			g.mu.Unlock()
			return blockPass{since: since, hasTurn: true}, nil
		}
		g.mu.Unlock()
		<-g.turn // the watch ended meanwhile: look again
	}
}

// current reports whether p still holds: no block has begun or ended since.
func (g *blockGuard) current(p blockPass) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return p.since == g.since
}

// settle gives p back with what its attempt said. It returns when a stopped
// client will send again (zero on watch), and whether the state has changed.
func (g *blockGuard) settle(p blockPass, news blockNews) (retryAt time.Time, changed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.hasTurn {
		<-g.turn
	}
	if p.since != g.since {
		return g.retryAt, false // under way before the change: the same block
	}
	if p.probe {
		g.probing = false
	}
	switch {
	case news == blockLifted && g.state != blockNone && (p.hasTurn || p.probe):
		g.state, g.retryAt, g.lasting = blockNone, time.Time{}, 0
	case news != blockRefused:
		return g.retryAt, false
	case g.state == blockNone || g.cooldown == 0:
		changed = g.state == blockNone
		g.state = blockWatch
		if !changed {
			return time.Time{}, false
		}
	default:
		g.state = blockStop
		g.lasting = min(max(2*g.lasting, g.cooldown), max(maxBlockCooldown, g.cooldown))
		g.retryAt = time.Now().Add(g.lasting)
	}
	g.since++
	g.probing = false
	return g.retryAt, true
}
