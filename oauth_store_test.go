package brellium

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// faultyStore is a store with faults, in front of one that works.
type faultyStore struct {
	TokenStore

	mu    sync.Mutex
	fault func(ctx context.Context, call string) error // nil: none
	calls []string
}

func newFaultyStore() *faultyStore { return &faultyStore{TokenStore: NewMemoryTokenStore()} }

func (s *faultyStore) breakWith(fault func(ctx context.Context, call string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

func (s *faultyStore) enter(ctx context.Context, call string) error {
	s.mu.Lock()
	fault := s.fault
	s.calls = append(s.calls, call)
	s.mu.Unlock()
	if fault != nil {
		if err := fault(ctx, call); err != nil {
			return err
		}
	}
	time.Sleep(time.Millisecond)
	return nil
}

func (s *faultyStore) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls)
}

func (s *faultyStore) Load(ctx context.Context, key string) (*Token, error) {
	if err := s.enter(ctx, "load"); err != nil {
		return nil, err
	}
	return s.TokenStore.Load(ctx, key)
}

func (s *faultyStore) Lease(ctx context.Context, key string, ttl time.Duration) (TokenLease, error) {
	err := s.enter(ctx, "lease")
	if err != nil {
		return nil, err
	}
	l, err := s.TokenStore.Lease(ctx, key, ttl)
	if l == nil {
		var none *faultyLease // not nil as a TokenLease: an easy mistake
		return none, err
	}
	return &faultyLease{l, s}, err
}

type faultyLease struct {
	TokenLease
	store *faultyStore
}

func (l *faultyLease) Save(ctx context.Context, t *Token) error {
	if err := l.store.enter(ctx, "save"); err != nil {
		return err
	}
	return l.TokenLease.Save(ctx, t)
}

func (l *faultyLease) Release(ctx context.Context) error {
	if err := l.store.enter(ctx, "release"); err != nil {
		return err
	}
	return l.TokenLease.Release(ctx)
}

var errStoreDown = errors.New("store down")

func down(context.Context, string) error { return errStoreDown }

// hang returns when its context ends, as a client of a dead server does.
func hang(ctx context.Context, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}

// notices records what a source reports about its store.
type notices struct {
	mu  sync.Mutex
	got []error
}

func (n *notices) add(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.got = append(n.got, err)
}

func (n *notices) list() []error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]error(nil), n.got...)
}

// fleet is a number of clients that share a store.
func fleet(n int, m *tokenEndpoint, store TokenStore) (sources []*tokenSource, said []*notices) {
	for range n {
		said = append(said, new(notices))
		sources = append(sources, m.sourceOn(store, said[len(said)-1].add))
	}
	return sources, said
}

func TestTwentyClientsOnOneStoreMintOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &tokenEndpoint{latency: 500 * time.Millisecond, lifetime: time.Hour}
		a := new(fakeAPI)
		sources, said := fleet(20, m, newFaultyStore())
		requireNone(t, together(200, func(i int) error { return a.call(t.Context(), sources[i%20]) }))
		assert.Equal(t, 1, m.count())

		// One when the token is renewed, and one when it expires unused.
		time.Sleep(59*time.Minute + 30*time.Second)
		requireNone(t, together(200, func(i int) error { return a.call(t.Context(), sources[i%20]) }))
		time.Sleep(10 * time.Second)
		assert.Equal(t, 2, m.count())
		for _, s := range sources {
			token, err := s.get(t.Context())
			require.NoError(t, err)
			assert.Equal(t, "t2", token.Reveal())
		}
		time.Sleep(2 * time.Hour)
		requireNone(t, together(200, func(i int) error { return a.call(t.Context(), sources[i%20]) }))
		assert.Equal(t, 3, m.count())
		assert.Equal(t, 1, m.most)

		// One for a revocation.
		a.refuseTokens(func(v string) bool { return v == "t3" })
		requireNone(t, together(200, func(i int) error { return a.call(t.Context(), sources[i%20]) }))
		assert.Equal(t, 4, m.count())
		time.Sleep(3 * time.Second)
		for _, n := range said {
			assert.Empty(t, n.list())
		}
	})
}

func TestLaterClientUsesTheStoredToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &tokenEndpoint{lifetime: time.Hour}
		sources, _ := fleet(2, m, NewMemoryTokenStore())
		_, err := sources[0].get(t.Context())
		require.NoError(t, err)
		synctest.Wait()
		token, err := sources[1].get(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "t1", token.Reveal())
		assert.Equal(t, 1, m.count())
	})
}

func TestUnusableStoredTokenIsReplaced(t *testing.T) {
	for name, stored := range map[string]*Token{
		"expired":      NewToken("Bearer", "old", time.Now().Add(-time.Hour*24*365*50)),
		"zero":         {},
		"blank":        NewToken("Bearer", "", time.Time{}),
		"with newline": NewToken("Bearer", "a\nb", time.Time{}),
		"of other use": NewToken("MAC", "abc", time.Time{}),
	} {
		synctest.Test(t, func(t *testing.T) {
			store := NewMemoryTokenStore()
			lease, err := store.Lease(t.Context(), "key", time.Second)
			require.NoError(t, err)
			require.NoError(t, lease.Save(t.Context(), stored))
			require.NoError(t, lease.Release(t.Context()))
			m := &tokenEndpoint{lifetime: time.Hour}
			token, err := m.sourceOn(store, nil).get(t.Context())
			require.NoError(t, err, name)
			assert.Equal(t, "t1", token.Reveal(), name)
		})
	}
}

func TestStoreThatFailsAndRecoversFailsNoCall(t *testing.T) {
	for name, fault := range map[string]func(context.Context, string) error{"down": down, "hanging": hang} {
		synctest.Test(t, func(t *testing.T) {
			m := &tokenEndpoint{latency: 100 * time.Millisecond, lifetime: 10 * time.Minute}
			a, store := new(fakeAPI), newFaultyStore()
			sources, said := fleet(20, m, store)
			end := time.Now().Add(time.Hour)
			go func() {
				time.Sleep(5 * time.Minute)
				store.breakWith(fault)
				time.Sleep(18 * time.Minute)
				store.breakWith(nil)
			}()
			requireNone(t, together(20, func(i int) error {
				for time.Now().Before(end) {
					start := time.Now()
					if err := a.call(t.Context(), sources[i]); err != nil {
						return err
					}
					if took := time.Since(start); took > storeCallTime+time.Second {
						return fmt.Errorf("a call took %v", took)
					}
					time.Sleep(time.Second)
				}
				return nil
			}))
			// Two expiries without a store: one mint per client. Otherwise one for all.
			assert.LessOrEqual(t, m.count(), 1+2*20+4, name)
			time.Sleep(5 * time.Second)
			for _, n := range said {
				got := n.list()
				require.Len(t, got, 2, name)
				assert.Error(t, got[0], name)
				assert.NoError(t, got[1], name)
			}
		})
	}
}

// A store that never responds delays a call by one second at most, and neither
// it nor one that fails is used again before storePause.
func TestStoreThatFailsIsNotUsedForAWhile(t *testing.T) {
	for _, c := range []struct {
		fault  func(context.Context, string) error
		delay  time.Duration
		report error
	}{
		{down, 0, errStoreDown},
		{hang, storeCallTime, context.DeadlineExceeded},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := &tokenEndpoint{lifetime: time.Second}
			store := newFaultyStore()
			store.breakWith(c.fault)
			sources, said := fleet(1, m, store)
			a, start := new(fakeAPI), time.Now()
			require.NoError(t, a.call(t.Context(), sources[0]))
			assert.Equal(t, c.delay, time.Since(start))
			for time.Since(start) < time.Minute {
				before := time.Now()
				require.NoError(t, a.call(t.Context(), sources[0]))
				assert.LessOrEqual(t, time.Since(before), c.delay)
				time.Sleep(100 * time.Millisecond)
			}
			assert.InDelta(t, time.Minute/storePause, store.count(), 2)
			assert.Greater(t, m.count(), 30, "it mints on its own")
			assert.Equal(t, []error{c.report}, said[0].list())
		})
	}
}

func TestSavingDelaysNoCall(t *testing.T) {
	for _, broken := range []string{"save", "release"} {
		synctest.Test(t, func(t *testing.T) {
			m := &tokenEndpoint{lifetime: time.Hour}
			store := newFaultyStore()
			store.breakWith(func(ctx context.Context, call string) error {
				if call == broken {
					return hang(ctx, call)
				}
				return nil
			})
			sources, said := fleet(1, m, store)
			start := time.Now()
			_, err := sources[0].get(t.Context())
			require.NoError(t, err)
			assert.Equal(t, 3*time.Millisecond, time.Since(start))
			time.Sleep(3 * time.Second)
			assert.Len(t, said[0].list(), 1)
		})
	}
}

func TestHolderOfTheLeaseThatDiesDelaysTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &tokenEndpoint{lifetime: time.Hour}
		store := NewMemoryTokenStore()
		lease, err := store.Lease(t.Context(), "key", leaseTime) // never released
		require.NoError(t, err)
		sources, said := fleet(20, m, store)
		start := time.Now()
		requireNone(t, together(20, func(i int) error { _, err := sources[i].get(t.Context()); return err }))
		assert.Less(t, time.Since(start), leaseTime+time.Second)
		assert.Equal(t, 1, m.count())
		assert.Empty(t, said[0].list())

		// It can no longer save.
		require.ErrorIs(t, lease.Save(t.Context(), NewToken("Bearer", "late", time.Time{})), ErrLeaseLost)
		require.NoError(t, lease.Release(t.Context()))
		token, err := store.Load(t.Context(), "key")
		require.NoError(t, err)
		assert.Equal(t, "t1", token.Reveal())
	})
}

// neverLease is a store whose lease never ends.
type neverLease struct{ MemoryTokenStore }

func (*neverLease) Lease(context.Context, string, time.Duration) (TokenLease, error) { return nil, nil }

func TestStoreThatNeverGivesItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &tokenEndpoint{lifetime: time.Hour}
		sources, said := fleet(1, m, new(neverLease))
		start := time.Now()
		_, err := sources[0].get(t.Context())
		require.NoError(t, err)
		assert.InDelta(t, leaseWait.Seconds(), time.Since(start).Seconds(), 1)
		assert.Equal(t, []error{errLeaseHeld}, said[0].list())
	})
}

func TestLostLeaseIsNotReportedAsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &tokenEndpoint{lifetime: time.Hour}
		store := newFaultyStore()
		store.breakWith(func(_ context.Context, call string) error {
			if call == "save" {
				return fmt.Errorf("save: %w", ErrLeaseLost)
			}
			return nil
		})
		sources, said := fleet(1, m, store)
		token, err := sources[0].get(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "t1", token.Reveal())
		time.Sleep(time.Second)
		assert.Empty(t, said[0].list())
	})
}

func TestFreshTokenReachesTheOtherClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &tokenEndpoint{latency: 100 * time.Millisecond, lifetime: time.Hour}
		a := new(fakeAPI)
		sources, _ := fleet(2, m, NewMemoryTokenStore())
		for _, s := range sources {
			require.NoError(t, a.call(t.Context(), s))
		}
		require.Equal(t, 1, m.count())
		token, err := sources[0].fresh(t.Context(), nil)
		require.NoError(t, err)
		assert.Equal(t, "t2", token.Reveal())
		synctest.Wait()
		a.refuseTokens(func(v string) bool { return v == "t1" })
		for _, s := range sources {
			require.NoError(t, a.call(t.Context(), s))
		}
		assert.Equal(t, 2, m.count())

		// It is minted even if the store has a newer token than the client.
		_, err = sources[1].fresh(t.Context(), nil)
		require.NoError(t, err)
		synctest.Wait()
		token, err = sources[0].fresh(t.Context(), nil)
		require.NoError(t, err)
		assert.Equal(t, "t4", token.Reveal())
	})
}

func TestPanicOfAStoreReachesTheCallersThatWait(t *testing.T) {
	for _, call := range []string{"load", "lease", "save", "release"} {
		synctest.Test(t, func(t *testing.T) {
			m, store := &tokenEndpoint{lifetime: time.Hour}, newFaultyStore()
			store.breakWith(func(_ context.Context, name string) error {
				if name == call {
					panic(call)
				}
				return nil
			})
			var said notices
			s := m.sourceOn(store, said.add)
			var caught any
			func() {
				defer func() { caught = recover() }()
				_, err := s.get(t.Context())
				assert.NoError(t, err)
			}()
			time.Sleep(time.Second)
			if call == "load" || call == "lease" {
				assert.Equal(t, call, caught)
				return
			}
			assert.Nil(t, caught, "nobody waits for it")
			assert.Equal(t, []error{errStorePanicked}, said.list())
		})
	}
}

// A client has a token and the store has a newer one, and both are revoked.
func TestTokenAndStoredTokenThatAreRevokedFailNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &tokenEndpoint{latency: 100 * time.Millisecond, lifetime: time.Hour}
		a := new(fakeAPI)
		sources, _ := fleet(2, m, NewMemoryTokenStore())
		require.NoError(t, a.call(t.Context(), sources[0]))
		_, err := sources[1].fresh(t.Context(), nil)
		require.NoError(t, err)
		synctest.Wait()
		a.refuseTokens(func(v string) bool { return v == "t1" || v == "t2" })
		require.NoError(t, a.call(t.Context(), sources[0]))
		synctest.Wait()
		require.NoError(t, a.call(t.Context(), sources[1]))
		assert.Equal(t, 3, m.count(), "one mint serves both")

		_, err = sources[1].fresh(t.Context(), nil)
		require.NoError(t, err)
		synctest.Wait()
		a.refuseTokens(func(string) bool { return true })
		before := a.requests
		assert.True(t, refusedByAPI(a.call(t.Context(), sources[0])))
		assert.Equal(t, 3, a.requests-before, "with the client's token, the store's and a new one")
	})
}

// replayingStore returns an old token at each Load, as a store does to which
// somebody writes old records.
type replayingStore struct {
	*MemoryTokenStore
	another bool // at each Load
	loads   atomic.Int64
}

func (s *replayingStore) Load(context.Context, string) (*Token, error) {
	n := s.loads.Add(1)
	if !s.another {
		n = 0
	}
	return NewToken("Bearer", fmt.Sprint("old", n), time.Now().Add(100*time.Hour)), nil
}

func TestOldTokensPutBackIntoTheStoreKeepNobodyOut(t *testing.T) {
	for _, another := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			m := &tokenEndpoint{latency: 100 * time.Millisecond, lifetime: time.Hour}
			a := new(fakeAPI)
			var revoked atomic.Int64 // tokens up to this one are revoked
			a.refuseTokens(func(v string) bool {
				var n int64
				_, err := fmt.Sscanf(v, "t%d", &n)
				return err != nil || n <= revoked.Load()
			})
			store := &replayingStore{MemoryTokenStore: NewMemoryTokenStore(), another: another}
			for range 10 { // new processes, which know nothing
				start := time.Now()
				s := m.sourceOn(store, nil)
				require.NoError(t, a.call(t.Context(), s))
				assert.Less(t, time.Since(start), time.Second, "no pause")
				synctest.Wait()
			}
			assert.Equal(t, 10, m.count(), "each minted once")
			s := m.sourceOn(store, nil)
			for range 20 {
				require.NoError(t, a.call(t.Context(), s), "also one whose own token is revoked")
				synctest.Wait() // the refresh releases its lease after the call has its token
				revoked.Store(int64(m.count()))
			}
			assert.LessOrEqual(t, m.count(), 30)
		})
	}
}

// A token is saved beside the calls that go on: several goroutines may use what is
// known of the store at once. Without its lock the race detector reports this test.
func TestStateOfTheStoreIsSharedByGoroutines(t *testing.T) {
	var said notices
	g := &guardedStore{store: NewMemoryTokenStore(), now: time.Now, notify: said.add}
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for range 100 {
				g.failed(errStoreDown)
				_ = g.ready()
				g.works()
			}
		})
	}
	workers.Wait()
	list := said.list()
	require.NotEmpty(t, list)
	failures := 0
	for _, err := range list {
		if err != nil {
			failures++
		}
	}
	assert.Equal(t, len(list), 2*failures, "each failure is reported once, and its end once")
}

func TestFailedMintReleasesTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &tokenEndpoint{err: errBadGateway}
		store := NewMemoryTokenStore()
		sources, _ := fleet(2, m, store)
		_, err := sources[0].get(t.Context())
		require.Same(t, errBadGateway, err)
		synctest.Wait()
		m.fail(nil)
		start := time.Now()
		_, err = sources[1].get(t.Context())
		require.NoError(t, err)
		assert.Zero(t, time.Since(start))
	})
}

func TestMemoryTokenStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		var store MemoryTokenStore
		token, err := store.Load(ctx, "a")
		require.NoError(t, err)
		assert.Nil(t, token)

		first, err := store.Lease(ctx, "a", time.Second)
		require.NoError(t, err)
		second, err := store.Lease(ctx, "a", time.Second)
		require.NoError(t, err)
		assert.Nil(t, second)
		other, err := store.Lease(ctx, "b", time.Second)
		require.NoError(t, err)
		assert.NotNil(t, other, "another key is another lease")

		require.NoError(t, first.Save(ctx, NewToken("Bearer", "one", time.Time{})))
		require.NoError(t, first.Release(ctx))
		require.ErrorIs(t, first.Save(ctx, NewToken("Bearer", "two", time.Time{})), ErrLeaseLost)

		second, err = store.Lease(ctx, "a", time.Second)
		require.NoError(t, err)
		require.NoError(t, first.Release(ctx)) // does not end the second lease
		third, err := store.Lease(ctx, "a", time.Second)
		require.NoError(t, err)
		assert.Nil(t, third)
		time.Sleep(time.Second)
		require.ErrorIs(t, second.Save(ctx, NewToken("Bearer", "three", time.Time{})), ErrLeaseLost)
		third, err = store.Lease(ctx, "a", time.Second)
		require.NoError(t, err)
		assert.NotNil(t, third)

		token, err = store.Load(ctx, "a")
		require.NoError(t, err)
		assert.Equal(t, "one", token.Reveal())
		assert.NotContains(t, fmt.Sprintf("%+v %#v", &store, store.keys["a"]), "one")
	})
}
