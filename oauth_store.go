package brellium

import (
	"context"
	"errors"
	"sync"
	"time"
)

// TokenStore keeps access tokens for several clients, so that a fleet mints
// one token where each of its processes would have minted its own: the token
// endpoint allows a burst of 20 per client_id, then one every 10 seconds.
//
// A key names one pair of credentials at one base URL. It is a digest, holds
// neither the client id nor the secret, and changes with either. A token is
// worth as much as a password while it lasts: keep it accordingly.
//
// An implementation must be safe for concurrent use. The client gives each
// call a context that ends after one second and waits no longer than that. When
// a call fails or takes too long, the client mints on its own, and leaves the
// store alone for some seconds.
type TokenStore interface {
	// Load returns the token last saved under key, or nil and no error where
	// there is none. It may return a token that has expired.
	Load(ctx context.Context, key string) (*Token, error)

	// Lease gives the caller alone the right to mint and save a token for key,
	// until it is released or ttl has passed. It does not wait: while somebody
	// else holds the lease it returns nil and no error.
	Lease(ctx context.Context, key string, ttl time.Duration) (TokenLease, error)
}

// TokenLease is the right to mint and save one token.
type TokenLease interface {
	// Save keeps t for whoever loads the lease's key. It changes nothing and
	// returns an error that matches [ErrLeaseLost] once the lease has ended,
	// lest a process that was suspended overwrites a newer token.
	Save(ctx context.Context, t *Token) error

	// Release ends the lease. Releasing a lease that has ended does nothing
	// and is no error.
	Release(ctx context.Context) error
}

// ErrLeaseLost is returned by [TokenLease.Save] when the lease has ended, so
// that somebody else may hold it now. The client goes on with its own token.
var ErrLeaseLost = errors.New("brellium: the token lease has been lost")

// MemoryTokenStore is a [TokenStore] for the clients of one process. A single
// client needs none: it keeps its own token. The zero value is ready for use.
type MemoryTokenStore struct {
	mu   sync.Mutex
	keys map[string]*memoryEntry
}

type memoryEntry struct {
	token *Token
	lease *memoryLease // the last one given out
}

// NewMemoryTokenStore returns an empty store.
func NewMemoryTokenStore() *MemoryTokenStore { return new(MemoryTokenStore) }

// Load returns the token last saved under key, or nil where there is none.
// Its error is always nil.
func (s *MemoryTokenStore) Load(_ context.Context, key string) (*Token, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.keys[key]; e != nil {
		return e.token, nil
	}
	return nil, nil
}

// Lease returns the right to mint for key, or nil while somebody else holds
// it. Its error is always nil.
func (s *MemoryTokenStore) Lease(_ context.Context, key string, ttl time.Duration) (TokenLease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.keys[key]
	if e == nil {
		e = new(memoryEntry)
		if s.keys == nil {
			s.keys = make(map[string]*memoryEntry)
		}
		s.keys[key] = e
	}
	if e.holds(e.lease) {
		return nil, nil
	}
	e.lease = &memoryLease{store: s, entry: e, until: time.Now().Add(ttl)}
	return e.lease, nil
}

// holds reports whether l is the lease in force.
func (e *memoryEntry) holds(l *memoryLease) bool {
	return l != nil && e.lease == l && time.Now().Before(l.until)
}

type memoryLease struct {
	store *MemoryTokenStore
	entry *memoryEntry
	until time.Time
}

func (l *memoryLease) Save(_ context.Context, t *Token) error {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	if !l.entry.holds(l) {
		return ErrLeaseLost
	}
	l.entry.token = t
	return nil
}

func (l *memoryLease) Release(context.Context) error {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	if l.entry.lease == l {
		l.entry.lease = nil
	}
	return nil
}

// How a client treats its store.
const (
	storeCallTime = time.Second     // the most that one call to the store may take
	storePause    = 5 * time.Second // a store that failed is left alone for so long
)

// errStoreTime is what the client makes of a store that does not answer.
var errStoreTime = errors.New("brellium: the token store did not answer in time")

// guardedStore is a TokenStore under one key, with a bound on each call and a
// rest after a failure.
type guardedStore struct {
	store  TokenStore
	key    string
	now    func() time.Time
	notify func(err error) // nil error: the store works again

	mu      sync.Mutex
	failing bool
	retryAt time.Time // once failing: not asked before
	hanging int       // calls that have not returned, though nobody waits for them
}

// ready reports whether the store may be asked now.
func (g *guardedStore) ready() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.hanging == 0 && (!g.failing || reached(g.now(), g.retryAt))
}

// failed notes a failure of the store, and says so if it is the first one.
func (g *guardedStore) failed(err error) {
	g.mu.Lock()
	first := !g.failing
	g.failing, g.retryAt = true, g.now().Add(storePause)
	g.mu.Unlock()
	if first {
		g.notify(err)
	}
}

// works notes that the store did all that was asked of it.
func (g *guardedStore) works() {
	g.mu.Lock()
	first := g.failing
	g.failing = false
	g.mu.Unlock()
	if first {
		g.notify(nil)
	}
}

func (g *guardedStore) load(ctx context.Context) (*Token, error) {
	return storeCall(ctx, g, func(ctx context.Context) (*Token, error) {
		return g.store.Load(ctx, g.key)
	}, nil)
}

// lease returns nil and no error while somebody else holds the lease.
func (g *guardedStore) lease(ctx context.Context, ttl time.Duration) (TokenLease, error) {
	l, err := storeCall(ctx, g, func(ctx context.Context) (TokenLease, error) {
		return g.store.Lease(ctx, g.key, ttl)
	}, func(l TokenLease) {
		if !isNil(l) { // it came too late to be of use
			ctx, cancel := context.WithTimeout(context.Background(), storeCallTime)
			defer cancel()
			_ = l.Release(ctx)
		}
	})
	if isNil(l) {
		return nil, err
	}
	return l, err
}

// finish saves t, where there is one, and ends the lease.
func (g *guardedStore) finish(l TokenLease, t *Token) {
	_, err := storeCall(context.Background(), g, func(ctx context.Context) (struct{}, error) {
		var saveErr error
		if t != nil {
			saveErr = l.Save(ctx, t)
		}
		return struct{}{}, errors.Join(saveErr, l.Release(ctx))
	}, nil)
	if err == nil || errors.Is(err, ErrLeaseLost) {
		g.works()
	}
}

// storeCall makes one call to the store and waits for it no longer than
// storeCallTime, even if the call does not heed its context. A result that
// comes later is handed to late.
func storeCall[T any](ctx context.Context, g *guardedStore, call func(context.Context) (T, error), late func(T)) (T, error) {
	var none T
	g.mu.Lock()
	hanging := g.hanging > 0
	g.mu.Unlock()
	if hanging { // one goroutine lost in there is enough
		return none, errStoreTime
	}
	ctx, cancel := context.WithTimeout(ctx, storeCallTime)
	type result struct {
		value T
		err   error
	}
	done, left := make(chan result), make(chan struct{})
	go func() {
		defer cancel()
		value, err := call(ctx)
		select {
		case done <- result{value, err}:
		case <-left:
			if late != nil && err == nil {
				late(value)
			}
			g.mu.Lock()
			g.hanging--
			g.mu.Unlock()
		}
	}()

	select {
	case r := <-done:
		if r.err != nil && !errors.Is(r.err, ErrLeaseLost) {
			g.failed(r.err)
		}
		return r.value, r.err
	case <-ctx.Done():
		g.mu.Lock()
		g.hanging++
		g.mu.Unlock()
		close(left)
		g.failed(errStoreTime)
		return none, errStoreTime
	}
}
