package brellium

import (
	"context"
	"errors"
	"sync"
	"time"
)

// TokenStore shares access tokens between clients, so that a fleet of
// processes requests one token instead of one each: the token endpoint allows a
// burst of 20 requests per client id, then one every 10 seconds.
//
// A key identifies one pair of credentials at one base URL. It is a digest that
// contains neither the client id nor the secret, and changes with either. A
// valid token is as sensitive as a password: store it accordingly.
//
// If the API rejects a token of the store that has never worked for a client, that
// client requests a new one. So a store with revoked or old tokens costs requests,
// but keeps no client out.
//
// An implementation must be safe for concurrent use, and must return when the
// context of a call ends: the client waits for it. The client ends the context
// after one second. When a call fails, the client requests a token without the
// store, and does not use it for 5 seconds. A panic in Load or Lease is raised
// in each call that waits for the token; one in Save or Release is a failure.
type TokenStore interface {
	// Load returns the token last saved under key, or nil and no error if there
	// is none. It may return a token that has expired.
	Load(ctx context.Context, key string) (*Token, error)

	// Lease gives the caller the exclusive right to request and save a token for
	// key, until it is released or ttl has passed. It does not wait: while
	// another client has the lease it returns nil and no error.
	Lease(ctx context.Context, key string, ttl time.Duration) (TokenLease, error)
}

// TokenLease is the right to request and save one token; see [TokenStore].
type TokenLease interface {
	// Save stores t under the lease's key. Once the lease has ended it stores
	// nothing and returns an error that matches [ErrLeaseLost], so that a process
	// that was suspended does not overwrite a newer token.
	Save(ctx context.Context, t *Token) error

	// Release ends the lease. Releasing a lease that has ended does nothing
	// and is no error.
	Release(ctx context.Context) error
}

// ErrLeaseLost is returned by [TokenLease] Save when the lease has ended, so
// that another client may have it. The client keeps using the token it requested.
var ErrLeaseLost = errors.New("brellium: the token lease has been lost")

// MemoryTokenStore is a [TokenStore] for the clients of one process. A single
// client does not need one: it keeps its own token. The zero value is ready for
// use.
type MemoryTokenStore struct {
	mu   sync.Mutex
	keys map[string]*memoryEntry
}

type memoryEntry struct {
	token *Token
	lease *memoryLease // the last one given
}

// NewMemoryTokenStore returns an empty store.
func NewMemoryTokenStore() *MemoryTokenStore { return new(MemoryTokenStore) }

// Load returns the token last saved under key, or nil if there is none.
// Its error is always nil.
func (s *MemoryTokenStore) Load(_ context.Context, key string) (*Token, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.keys[key]; e != nil {
		return e.token, nil
	}
	return nil, nil
}

// Lease returns the right to mint for key, or nil while another client holds
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

// holds reports whether l is the current lease.
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

const (
	storeCallTime = time.Second     // the most that one call to the store may take
	storePause    = 5 * time.Second // how long a store that failed is not used
)

var errStorePanicked = errors.New("brellium: the token store panicked")

// guardedStore is a [TokenStore] under one key. It limits the time of each call
// and pauses after a failure.
type guardedStore struct {
	store  TokenStore
	key    string
	now    func() time.Time
	notify func(err error) // a nil error: the store works again

	mu      sync.Mutex
	failing bool
	retryAt time.Time // if failing: not used before
}

// ready reports whether the store may be used now.
func (g *guardedStore) ready() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.failing || reached(g.now(), g.retryAt)
}

// failed records a failure of the store and reports the first one.
func (g *guardedStore) failed(err error) {
	g.mu.Lock()
	first := !g.failing
	g.failing, g.retryAt = true, g.now().Add(storePause)
	g.mu.Unlock()
	if first {
		g.notify(err)
	}
}

// works records that a refresh used the store without a failure.
func (g *guardedStore) works() {
	g.mu.Lock()
	first := g.failing
	g.failing = false
	g.mu.Unlock()
	if first {
		g.notify(nil)
	}
}

func (g *guardedStore) load(ctx context.Context) (t *Token, err error) {
	err = g.call(ctx, func(ctx context.Context) (err error) {
		t, err = g.store.Load(ctx, g.key)
		return err
	})
	return t, err
}

// lease returns nil and no error while another client holds the lease.
func (g *guardedStore) lease(ctx context.Context) (l TokenLease, err error) {
	err = g.call(ctx, func(ctx context.Context) (err error) {
		l, err = g.store.Lease(ctx, g.key, leaseTime)
		return err
	})
	if err != nil || isNil(l) {
		return nil, err
	}
	return l, nil
}

// finish saves t, if it is not nil, and ends the lease. Nobody waits for it, so a
// panic counts as a failure of the store.
func (g *guardedStore) finish(l TokenLease, t *Token) {
	defer func() {
		if recover() != nil {
			g.failed(errStorePanicked)
		}
	}()
	err := g.call(context.Background(), func(ctx context.Context) (err error) {
		if t != nil {
			err = l.Save(ctx, t)
		}
		return errors.Join(err, l.Release(ctx))
	})
	if err == nil || errors.Is(err, ErrLeaseLost) {
		g.works()
	}
}

// call makes one call to the store, which returns within storeCallTime.
func (g *guardedStore) call(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, storeCallTime)
	defer cancel()
	err := call(ctx)
	if err != nil && !errors.Is(err, ErrLeaseLost) {
		g.failed(err)
	}
	return err
}
