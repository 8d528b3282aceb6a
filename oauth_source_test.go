package brellium

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// tokenEndpoint mints the tokens t1, t2 and so on.
type tokenEndpoint struct {
	latency  time.Duration
	lifetime time.Duration // 0: not known
	now      func() time.Time

	mu       sync.Mutex
	err      error // of every request
	requests int
	running  int
	most     int // requests at the same time
	minted   int
}

func (m *tokenEndpoint) mint(ctx context.Context, _ *Response) (*Token, error) {
	now := m.now
	if now == nil {
		now = time.Now
	}
	start := now()
	m.mu.Lock()
	m.requests++
	m.running++
	m.most = max(m.most, m.running)
	latency := m.latency
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		m.running--
		m.mu.Unlock()
	}()
	select {
	case <-time.After(latency):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return nil, m.err
	}
	m.minted++
	var expiresAt time.Time
	if m.lifetime > 0 {
		expiresAt = start.Add(m.lifetime)
	}
	return NewToken("Bearer", fmt.Sprint("t", m.minted), expiresAt), nil
}

func (m *tokenEndpoint) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

func (m *tokenEndpoint) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.requests
}

func (m *tokenEndpoint) source() *tokenSource { return newTokenSource(tokenSourceConfig{mint: m.mint}) }

func (m *tokenEndpoint) sourceOn(store TokenStore, notify func(error)) *tokenSource {
	return newTokenSource(tokenSourceConfig{mint: m.mint, store: store, key: "key", notify: notify})
}

// fakeAPI is a transport that decides which tokens are good.
type fakeAPI struct {
	latency time.Duration

	mu       sync.Mutex
	refuse   func(value string) bool // nil: every token is good
	requests int
	clients  map[*tokenSource]*Client
}

func (a *fakeAPI) refuseTokens(refuse func(value string) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refuse = refuse
}

func (a *fakeAPI) good(value string) bool {
	time.Sleep(a.latency / 2)
	a.mu.Lock()
	a.requests++
	good := a.refuse == nil || !a.refuse(value)
	a.mu.Unlock()
	time.Sleep(a.latency / 2)
	return good
}

func (a *fakeAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	status := http.StatusNoContent
	if !a.good(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")) {
		status = http.StatusUnauthorized
	}
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody}, r.Context().Err()
}

// call makes a call of a client with this source of tokens.
func (a *fakeAPI) call(ctx context.Context, s *tokenSource) error {
	a.mu.Lock()
	c := a.clients[s]
	if c == nil {
		var err error
		if c, err = NewClient(WithAccessToken("none"), WithHTTPClient(&http.Client{Transport: a}), WithoutRateLimiter(), WithTotalTimeout(0)); err != nil {
			a.mu.Unlock()
			return err
		}
		c.parts.Open().api.tokens = s
		if a.clients == nil {
			a.clients = map[*tokenSource]*Client{}
		}
		a.clients[s] = c
	}
	a.mu.Unlock()
	return c.Do(ctx, http.MethodGet, "/v2/audits", nil, nil)
}

// refusedByAPI reports whether err is a 401 of the API itself.
func refusedByAPI(err error) bool {
	e, ok := asType[*APIError](err)
	return ok && e.StatusCode == http.StatusUnauthorized && e.Operation != "oauth.token"
}

// together runs n calls at the same time and returns their errors.
func together(n int, call func(i int) error) []error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = call(i) })
	}
	wg.Wait()
	return errs
}

func requireNone(t *testing.T, errs []error) {
	t.Helper()
	for _, err := range errs {
		require.NoError(t, err)
	}
}

var (
	errInvalidClient = &APIError{Operation: "oauth.token", StatusCode: 401, Code: "invalid_client"}
	errBadGateway    = &APIError{Operation: "oauth.token", StatusCode: 502, Code: "BAD_GATEWAY"}
)

// Case B10. gofr-dev/gofr#4159: every call minted a token.
func TestOneTokenServesManyCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &tokenEndpoint{latency: 300 * time.Millisecond, lifetime: time.Hour}
		s, a := m.source(), &fakeAPI{latency: 80 * time.Millisecond}
		requireNone(t, together(1000, func(int) error {
			for range 3 {
				if err := a.call(t.Context(), s); err != nil {
					return err
				}
				time.Sleep(time.Second)
			}
			return nil
		}))
		assert.Equal(t, 1, m.count())
		assert.Equal(t, 3000, a.requests)
	})
}

// Case B11. golang/oauth2#738: a missing lifetime was taken for expired, or
// for endless.
func TestTokenOfUnknownLifetimeIsUsedUntilItIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &tokenEndpoint{}
		s, a := m.source(), new(fakeAPI)
		for range 20 {
			require.NoError(t, a.call(t.Context(), s))
			time.Sleep(24 * time.Hour)
		}
		assert.Equal(t, 1, m.count())
		a.refuseTokens(func(v string) bool { return v == "t1" })
		require.NoError(t, a.call(t.Context(), s))
		assert.Equal(t, 2, m.count())
	})
}

// Case B12, second part.
func TestCallIsRetriedOnceWithANewToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &tokenEndpoint{lifetime: time.Hour}
		s, a := m.source(), new(fakeAPI)
		a.refuseTokens(func(v string) bool { return v != "t2" })
		require.NoError(t, a.call(t.Context(), s))
		assert.Equal(t, 2, a.requests)
		assert.Equal(t, 2, m.count())
	})
}

// An endpoint may return the same token until it expires.
func TestEndpointThatReturnsARefusedTokenAgainCausesNoLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mints := 0
		s := newTokenSource(tokenSourceConfig{mint: func(context.Context, *Response) (*Token, error) {
			mints++
			return NewToken("Bearer", "same", time.Now().Add(time.Hour)), nil
		}})
		a := new(fakeAPI)
		a.refuseTokens(func(string) bool { return true })
		require.True(t, refusedByAPI(a.call(t.Context(), s)))
		assert.Equal(t, 2, a.requests)
		assert.Equal(t, 2, mints)
		require.ErrorIs(t, a.call(t.Context(), s), ErrUnauthorized)
		assert.Equal(t, 2, mints)
	})
}

// Case B12. ktorio/ktor#2864, openai/codex#2699: endless loops on a 401.
func TestRefusedNewTokensLeadToGrowingPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &tokenEndpoint{lifetime: time.Hour}
		s, a := m.source(), new(fakeAPI)
		a.refuseTokens(func(string) bool { return true })
		start := time.Now()
		var mintedAt []time.Duration
		for last := 0; time.Since(start) < 4*time.Minute; time.Sleep(100 * time.Millisecond) {
			err := a.call(t.Context(), s)
			if refusedByAPI(err) {
				assert.NotEqual(t, last, m.count(), "a call was sent without a new token")
			} else {
				var apiErr *APIError
				require.ErrorAs(t, err, &apiErr)
				assert.Equal(t, http.StatusUnauthorized, apiErr.StatusCode)
				assert.Equal(t, CodeHTTPError, apiErr.Code)
				assert.Positive(t, apiErr.RetryAfter)
				assert.Equal(t, "oauth.token", apiErr.Operation)
				assert.Equal(t, last, m.count())
				assert.NotContains(t, fmt.Sprintf("%v %+v %#v", err, err, err), fmt.Sprint("t", last), "a token in an error")
			}
			for ; last < m.count(); last++ {
				mintedAt = append(mintedAt, time.Since(start))
			}
		}
		second := time.Second
		assert.Equal(t, []time.Duration{0, 0, 10 * second, 30 * second, 70 * second, 130 * second, 190 * second}, mintedAt)
		assert.Equal(t, len(mintedAt), a.requests)

		// The first token that works ends it.
		a.refuseTokens(nil)
		time.Sleep(time.Minute)
		require.NoError(t, a.call(t.Context(), s))
		minted := m.count()
		a.refuseTokens(func(v string) bool { return v == fmt.Sprint("t", minted) })
		require.NoError(t, a.call(t.Context(), s))
		assert.Equal(t, minted+1, m.count())
	})
}

func TestTokenThatIsNotNewIsAlwaysReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &tokenEndpoint{lifetime: time.Hour}
		s := m.source()
		for range 10 { // no call ever got a response with any of them
			token, err := s.get(t.Context())
			require.NoError(t, err)
			time.Sleep(newTime)
			require.True(t, s.refused(token))
		}
		assert.Equal(t, 10, m.count())
	})
}

// Case B13. openai/openai-go#858: every goroutine that saw the 401 minted.
func TestManyRefusalsOfOneTokenMintOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &tokenEndpoint{latency: 100 * time.Millisecond, lifetime: time.Hour}
		s, a := m.source(), &fakeAPI{latency: 80 * time.Millisecond}
		require.NoError(t, a.call(t.Context(), s))
		a.refuseTokens(func(v string) bool { return v == "t1" })
		a.requests = 0
		requireNone(t, together(30, func(i int) error {
			time.Sleep(time.Duration(i) * 10 * time.Millisecond)
			return a.call(t.Context(), s)
		}))
		assert.Equal(t, 2, m.count())
		assert.LessOrEqual(t, a.requests, 60)
	})
}

func TestLateRefusalDiscardsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &tokenEndpoint{lifetime: time.Hour}
		s := m.source()
		first, err := s.get(t.Context())
		require.NoError(t, err)
		s.accepted(first)
		assert.True(t, s.refused(first))
		second, err := s.get(t.Context())
		require.NoError(t, err)
		for range 5 {
			assert.True(t, s.refused(first))
		}
		again, err := s.get(t.Context())
		require.NoError(t, err)
		assert.Same(t, second, again)
		assert.Equal(t, 2, m.count())
	})
}

func TestTokenRevokedBeforeItsFirstUseIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &tokenEndpoint{lifetime: time.Hour}
		s, a := m.source(), new(fakeAPI)
		for range 10 {
			require.NoError(t, a.call(t.Context(), s))
			for range 2 { // one that worked, then one that has not been used
				token, err := s.get(t.Context())
				require.NoError(t, err)
				require.True(t, s.refused(token))
			}
		}
		assert.Equal(t, 20, m.count())
	})
}

// The waiters of a mint do not wake at the same time.
func TestWaiterThatWakesLateDoesNotGetARefusedToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &tokenEndpoint{lifetime: time.Hour}
		s := m.source()
		r := &tokenRefresh{done: make(chan struct{}), token: NewToken("Bearer", "refused", time.Time{})}
		s.refreshing = r
		go func() {
			synctest.Wait() // until it waits
			s.mu.Lock()
			s.refreshing = nil
			s.rememberRefusal(r.token) // by one who woke earlier
			s.mu.Unlock()
			close(r.done)
		}()
		token, err := s.get(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "t1", token.Reveal())
	})
}

func TestTokenRevokedEverySecondUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &tokenEndpoint{latency: 100 * time.Millisecond, lifetime: time.Hour}
		s, a := m.source(), &fakeAPI{latency: 80 * time.Millisecond}
		end := time.Now().Add(time.Minute)
		var revoked atomic.Int64 // tokens up to this number are dead
		a.refuseTokens(func(v string) bool {
			var n int64
			_, _ = fmt.Sscanf(v, "t%d", &n)
			return n <= revoked.Load()
		})
		go func() {
			for n := int64(1); n <= 59; n++ {
				time.Sleep(time.Second)
				revoked.Store(n)
			}
		}()
		requireNone(t, together(1000, func(i int) error {
			time.Sleep(time.Duration(i) * time.Millisecond)
			for time.Now().Before(end) {
				if err := a.call(t.Context(), s); err != nil {
					return fmt.Errorf("at %v: %w", time.Until(end), err)
				}
				time.Sleep(rand.N(2 * time.Second)) // so that they do not wake together
			}
			return nil
		}))
		assert.Equal(t, 60, m.count())
	})
}

// Case B14. databricks/zerobus-sdk#566: a shared fetch died with its leader.
func TestMintGoesOnWhenItsCallersHaveLeft(t *testing.T) {
	for _, stay := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			m := &tokenEndpoint{latency: 300 * time.Millisecond, lifetime: time.Hour}
			s, a := m.source(), new(fakeAPI)
			start := time.Now()
			requireNone(t, together(10, func(i int) error {
				if i > 0 && stay {
					time.Sleep(20 * time.Millisecond)
					err := a.call(context.Background(), s)
					assert.Equal(t, 300*time.Millisecond, time.Since(start))
					return err
				}
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(50*time.Millisecond, cancel)
				require.ErrorIs(t, a.call(ctx, s), context.Canceled)
				assert.Equal(t, 50*time.Millisecond, time.Since(start))
				return nil
			}))
			time.Sleep(time.Second)
			require.NoError(t, a.call(t.Context(), s))
			assert.Equal(t, 1, m.count())
		})
	}
}

func TestCanceledCallStartsNoMint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(tokenEndpoint)
		s := m.source()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := s.get(ctx)
		assert.Equal(t, context.Canceled, err)
		_, err = s.fresh(ctx, nil)
		assert.Equal(t, context.Canceled, err)
		assert.Zero(t, m.count())
	})
}

func TestMintThatHangsEndsAfterMintTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &tokenEndpoint{latency: 24 * time.Hour}
		s, start := m.source(), time.Now()
		_, err := s.get(t.Context())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, mintTime, time.Since(start))
	})
}

func TestMintThatDoesNotReturnWakesItsWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTokenSource(tokenSourceConfig{mint: func(context.Context, *Response) (*Token, error) {
			runtime.Goexit() // as t.FailNow in a transport of a test would
			return nil, nil
		}})
		_, err := s.get(t.Context())
		require.ErrorIs(t, err, errNoToken)
		s = newTokenSource(tokenSourceConfig{mint: func(context.Context, *Response) (*Token, error) { return nil, nil }})
		_, err = s.get(t.Context())
		require.ErrorIs(t, err, errNoToken)
	})
}

func TestPanicOfAMintReachesTheCallersThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &tokenEndpoint{lifetime: time.Hour}
		var panics atomic.Bool
		panics.Store(true)
		s := newTokenSource(tokenSourceConfig{mint: func(ctx context.Context, r *Response) (*Token, error) {
			if time.Sleep(time.Second); panics.Load() {
				panic("mint")
			}
			return m.mint(ctx, r)
		}})
		caught := func(call func(context.Context) error) (p any) {
			defer func() { p = recover() }()
			assert.NoError(t, call(t.Context()))
			return nil
		}
		get := func(ctx context.Context) error { _, err := s.get(ctx); return err }
		for range 2 {
			_ = together(3, func(int) error { assert.Equal(t, "mint", caught(get)); return nil })
			assert.Equal(t, "mint", caught(func(ctx context.Context) error { _, err := s.fresh(ctx, nil); return err }))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		require.ErrorIs(t, get(ctx), context.DeadlineExceeded, "it has left before the panic")
		time.Sleep(time.Minute)
		panics.Store(false)
		require.Nil(t, caught(get))

		panics.Store(true) // while the token is renewed nobody waits
		time.Sleep(time.Hour - maxMargin/2)
		require.Nil(t, caught(get))
		time.Sleep(2 * time.Second)
		require.Nil(t, caught(get))
		time.Sleep(maxMargin)
		assert.Equal(t, "mint", caught(get), "it is raised once a call waits")
	})
}

// Case B58. redis/rueidis#1014: those who joined were handed nil.
func TestEveryWaiterGetsTheErrorOfTheMint(t *testing.T) {
	for _, want := range []*APIError{errInvalidClient, errBadGateway} {
		synctest.Test(t, func(t *testing.T) {
			m := &tokenEndpoint{latency: 100 * time.Millisecond, err: want}
			s, a := m.source(), new(fakeAPI)
			for _, err := range together(20, func(int) error { return a.call(t.Context(), s) }) {
				var apiErr *APIError
				require.ErrorAs(t, err, &apiErr)
				assert.Equal(t, want.Code, apiErr.Code)
			}
			assert.Equal(t, 1, m.count())
			assert.Zero(t, a.requests)
		})
	}
}

func TestCodedRejectionIsRememberedForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &tokenEndpoint{latency: time.Millisecond, err: errInvalidClient}
		s := m.source()
		for range 290 {
			_, err := s.get(t.Context())
			require.Same(t, errInvalidClient, err)
			time.Sleep(100 * time.Millisecond)
		}
		assert.Equal(t, 1, m.count())

		// CreateToken always sends a request, and a success ends the memory.
		_, err := s.fresh(t.Context(), nil)
		require.Same(t, errInvalidClient, err)
		assert.Equal(t, 2, m.count())
		m.fail(nil)
		_, err = s.get(t.Context())
		require.Same(t, errInvalidClient, err)
		_, err = s.fresh(t.Context(), nil)
		require.NoError(t, err)
		_, err = s.get(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 3, m.count())
	})
}

func TestRememberedRejectionIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &tokenEndpoint{err: errInvalidClient}
		s := m.source()
		_, err := s.get(t.Context())
		require.Error(t, err)
		m.fail(nil)
		time.Sleep(finalMemory - 1)
		_, err = s.get(t.Context())
		require.Error(t, err)
		time.Sleep(time.Nanosecond)
		_, err = s.get(t.Context())
		require.NoError(t, err)
	})
}

func TestOtherFailuresAreNotRemembered(t *testing.T) {
	for name, failure := range map[string]error{
		"502":            errBadGateway,
		"408":            &APIError{StatusCode: 408, Code: "TIMEOUT"},
		"429":            fmt.Errorf("gave up: %w", &APIError{StatusCode: 429, Code: "RATE_LIMITED"}),
		"uncoded 403":    &APIError{StatusCode: 403, Code: CodeHTTPError},
		"connection":     errors.New("connection refused"),
		"unusable token": &DecodeError{Operation: "oauth.token"},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := &tokenEndpoint{err: failure}
			s := m.source()
			_, err := s.get(t.Context())
			require.Equal(t, failure, err, name)
			m.fail(nil)
			_, err = s.get(t.Context())
			require.NoError(t, err, name)
		})
	}
}

func TestRenewalBeforeExpiryDelaysNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &tokenEndpoint{latency: 5 * time.Second, lifetime: time.Hour}
		s, a := m.source(), new(fakeAPI)
		require.NoError(t, a.call(t.Context(), s))
		time.Sleep(time.Hour - 5*time.Second - time.Minute)
		start := time.Now()
		requireNone(t, together(50, func(int) error {
			token, err := s.get(t.Context())
			if err == nil && token.Reveal() != "t1" {
				err = errors.New("not the old token")
			}
			return err
		}))
		assert.Zero(t, time.Since(start))
		time.Sleep(5 * time.Second)
		synctest.Wait()
		token, err := s.get(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "t2", token.Reveal())
		assert.Equal(t, 2, m.count())
	})
}

func TestFailedRenewalDelaysNoCallAndIsRetriedRarely(t *testing.T) {
	for failure, mints := range map[*APIError]int{errBadGateway: 4 /* one each quarter of the margin */, errInvalidClient: 2} {
		synctest.Test(t, func(t *testing.T) {
			m := &tokenEndpoint{lifetime: time.Hour}
			s, a := m.source(), new(fakeAPI)
			require.NoError(t, a.call(t.Context(), s))
			m.fail(failure)
			time.Sleep(59 * time.Minute)
			for range 599 {
				require.NoError(t, a.call(t.Context(), s))
				time.Sleep(100 * time.Millisecond)
			}
			assert.Equal(t, 1+mints, m.count())
			time.Sleep(100 * time.Millisecond)
			require.ErrorIs(t, a.call(t.Context(), s), error(failure), "once it has expired")
			m.fail(nil)
			time.Sleep(finalMemory)
			require.NoError(t, a.call(t.Context(), s))
		})
	}
}

func TestAfterExpiryAllCallsWaitForOneMint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &tokenEndpoint{latency: time.Second, lifetime: time.Hour}
		s, a := m.source(), new(fakeAPI)
		require.NoError(t, a.call(t.Context(), s))
		time.Sleep(2 * time.Hour)
		start := time.Now()
		requireNone(t, together(50, func(int) error {
			token, err := s.get(t.Context())
			if err == nil && token.Reveal() != "t2" {
				err = errors.New("not the new token")
			}
			return err
		}))
		assert.Equal(t, time.Second, time.Since(start))
		assert.Equal(t, 2, m.count())
	})
}

func TestShortLifetimesCauseNoMintPerCall(t *testing.T) {
	for _, lifetime := range []time.Duration{1, time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second, 30 * time.Second} {
		for _, latency := range []time.Duration{time.Millisecond, 100 * time.Millisecond, 2 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				m := &tokenEndpoint{latency: latency, lifetime: lifetime}
				s, a := m.source(), &fakeAPI{latency: 10 * time.Millisecond}
				start, calls := time.Now(), 0
				for ; time.Since(start) < time.Minute; calls++ {
					require.NoError(t, a.call(t.Context(), s))
				}
				each := max(lifetime*9/10, minUse*9/10)
				assert.LessOrEqual(t, m.count(), 2+int(time.Minute/each), "lifetime %v, latency %v", lifetime, latency)
				assert.Greater(t, calls, 10*m.count(), "lifetime %v, latency %v", lifetime, latency)
			})
		}
	}
}

func TestRenewalMargin(t *testing.T) {
	now := time.Now()
	for lifetime, margin := range map[time.Duration]time.Duration{
		time.Second:     100 * time.Millisecond,
		5 * time.Second: 500 * time.Millisecond,
		5 * time.Minute: 30 * time.Second,
		time.Hour:       time.Minute,
		24 * time.Hour:  time.Minute,
		0:               minUse / 10, // expired when it came
		-time.Hour:      minUse / 10,
	} {
		h := hold(NewToken("Bearer", "t", now.Add(lifetime)), now)
		assert.Equal(t, margin, h.expiry.Sub(h.due), lifetime)
		assert.Equal(t, max(lifetime, minUse), h.expiry.Sub(now), lifetime)
		assert.False(t, h.isDue(now))
	}
	h := hold(NewToken("Bearer", "t", time.Time{}), now)
	assert.False(t, h.isDue(now.Add(100*365*24*time.Hour)))
	h = hold(NewToken("Bearer", "t", time.Unix(1<<40, 0)), now)
	assert.False(t, h.isDue(now.Add(100*365*24*time.Hour)))
}

// sleepy returns a clock with a monotonic reading, which a bubble's own times
// lack. Its wall clock is moved by *moved.
func sleepy(t *testing.T, outside time.Time, moved *time.Duration) func() time.Time {
	start := time.Now()
	return func() time.Time { return withWallMoved(t, outside.Add(time.Since(start)), *moved) }
}

// withWallMoved returns at as a machine would see it whose wall clock had been
// moved by d while its monotonic clock had not: that is what a suspended
// machine looks like. Package time has no way to make such a time.
func withWallMoved(t *testing.T, at time.Time, d time.Duration) time.Time {
	t.Helper()
	moved := at
	// The first word of a Time with a monotonic reading: 1 bit that says so,
	// 33 bits of seconds, 30 bits of nanoseconds.
	word := (*uint64)(unsafe.Pointer(&moved))
	*word += uint64(d/time.Second) << 30
	require.Zero(t, moved.Sub(at), "time.Time has changed inside: monotonic")
	require.Equal(t, d, moved.Round(0).Sub(at.Round(0)), "time.Time has changed inside: wall")
	return moved
}

// Case B16. opentdf/platform#1854, librespot-org/librespot#1617: a token that
// had expired while the machine slept looked valid.
func TestTokenExpiresByTheWallClockWhileTheMachineSleeps(t *testing.T) {
	outside := time.Now()
	for _, monotonic := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var moved time.Duration
			clock := func() time.Time { return time.Now().Round(0).Add(moved) }
			if monotonic {
				clock = sleepy(t, outside, &moved)
			}
			m := &tokenEndpoint{lifetime: time.Hour, now: clock}
			s := newTokenSource(tokenSourceConfig{mint: m.mint, now: clock})
			_, err := s.get(t.Context())
			require.NoError(t, err)

			moved = 2 * time.Hour
			for range 10 {
				token, err := s.get(t.Context())
				require.NoError(t, err)
				assert.Equal(t, "t2", token.Reveal())
			}
			assert.Equal(t, 2, m.count())
		})
	}
}

func TestTokenExpiresByTheMonotonicClockWhenTheWallClockIsSetBack(t *testing.T) {
	outside := time.Now()
	synctest.Test(t, func(t *testing.T) {
		var moved time.Duration
		clock := sleepy(t, outside, &moved)
		m := &tokenEndpoint{lifetime: time.Hour, now: clock}
		s := newTokenSource(tokenSourceConfig{mint: m.mint, now: clock})
		_, err := s.get(t.Context())
		require.NoError(t, err)

		moved = -24 * time.Hour
		_, err = s.get(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 1, m.count())
		time.Sleep(time.Hour)
		for range 10 {
			token, err := s.get(t.Context())
			require.NoError(t, err)
			assert.Equal(t, "t2", token.Reveal())
		}
		assert.Equal(t, 2, m.count())
	})
}

func TestFreshMintsEvenIfATokenIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &tokenEndpoint{latency: 100 * time.Millisecond, lifetime: time.Hour}
		s := m.source()
		_, err := s.get(t.Context())
		require.NoError(t, err)
		requireNone(t, together(10, func(i int) error {
			token, err := s.fresh(t.Context(), nil)
			if err == nil && token.Reveal() != "t2" {
				err = fmt.Errorf("not the new one")
			}
			if i == 0 {
				token.ExpiresAt = time.Time{} // it is the caller's own
			}
			return err
		}))
		token, err := s.get(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "t2", token.Reveal())
		assert.False(t, token.ExpiresAt.IsZero())
		assert.Equal(t, 2, m.count())

		// What is held stays when it fails.
		m.fail(errBadGateway)
		_, err = s.fresh(t.Context(), nil)
		require.Same(t, errBadGateway, err)
		token, err = s.get(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "t2", token.Reveal())
		assert.Equal(t, 1, m.most)
	})
}

func TestFreshWaitsForTheMintInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &tokenEndpoint{latency: 100 * time.Millisecond, lifetime: time.Hour}
		s := m.source()
		requireNone(t, together(2, func(i int) error {
			if i == 0 {
				_, err := s.get(t.Context())
				return err
			}
			time.Sleep(50 * time.Millisecond)
			token, err := s.fresh(t.Context(), nil)
			assert.Equal(t, "t2", token.Reveal())
			return err
		}))
		assert.Equal(t, 1, m.most)
	})
}

func TestFixedTokenIsNeverMinted(t *testing.T) {
	s := newStaticTokenSource("fixed")
	token, err := s.get(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "fixed", token.Reveal())
	s.accepted(token)
	assert.False(t, s.refused(token))
	again, err := s.get(t.Context())
	require.NoError(t, err)
	assert.Same(t, token, again)
	_, err = s.fresh(t.Context(), nil)
	var invalid *ValidationError
	require.ErrorAs(t, err, &invalid)
}

func TestTokenKeyDiffersByCredentialsAndRevealsNothing(t *testing.T) {
	key := tokenKey("https://api.example.test", "client-one", "hunter2-secret")
	assert.Equal(t, key, tokenKey("https://api.example.test/", "client-one", "hunter2-secret"))
	others := []string{
		tokenKey("https://sandbox.example.test", "client-one", "hunter2-secret"),
		tokenKey("https://api.example.test", "client-two", "hunter2-secret"),
		tokenKey("https://api.example.test", "client-one", "hunter3-secret"),
		tokenKey("https://api.example.testc", "lient-one", "hunter2-secret"),
		tokenKey("", "", ""),
	}
	seen := map[string]bool{key: true}
	for _, other := range others {
		assert.False(t, seen[other])
		seen[other] = true
	}
	for _, part := range []string{"client", "hunter", "secret", "example", "one"} {
		assert.NotContains(t, key, part)
	}
}

// TestRandomSchedules runs calls, cancellations, revocations, failures and
// expiries in random order. There must never be two mints at a time for one
// store, nor a call with a token that is known to be refused. Once nothing fails
// any more, every call must succeed. The bubble fails if a goroutine is left.
func TestRandomSchedules(t *testing.T) {
	for seed := range uint64(100) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { runSchedule(t, seed) })
		})
	}
}

func runSchedule(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 4))
	between := func(low, high time.Duration) time.Duration { return low + rand.N(high-low) }
	m := &tokenEndpoint{
		latency:  time.Duration(rng.Int64N(int64(3 * time.Second))),
		lifetime: []time.Duration{0, 5 * time.Second, 20 * time.Second, 5 * time.Minute}[rng.IntN(4)],
	}
	var store TokenStore
	clients := 1
	if rng.IntN(3) > 0 {
		store, clients = NewMemoryTokenStore(), 1+rng.IntN(4)
	}
	a := &fakeAPI{latency: 200 * time.Millisecond}
	var dead sync.Map // values that the API has revoked
	a.refuseTokens(func(v string) bool { _, is := dead.Load(v); return is })

	stop := make(chan struct{})
	var wg sync.WaitGroup
	loop := func(low, high time.Duration, act func()) {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(between(low, high)):
					act()
				}
			}
		})
	}
	revoke := func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		dead.Store(fmt.Sprint("t", m.minted), true)
	}
	loop(100*time.Millisecond, 30*time.Second, revoke)
	loop(time.Second, time.Minute, func() {
		failures := []error{errBadGateway, errInvalidClient, errors.New("reset"), nil}
		m.fail(failures[rand.IntN(len(failures))])
		time.Sleep(between(0, 20*time.Second))
		m.fail(nil)
	})

	sources := make([]*tokenSource, clients)
	for i := range sources {
		s := newTokenSource(tokenSourceConfig{mint: m.mint})
		if store != nil {
			s = m.sourceOn(store, func(err error) { t.Errorf("a good store was reported as failing: %v", err) })
		}
		sources[i] = s
		var known sync.Map // tokens that were reported as refused
		for range 1 + rng.IntN(8) {
			loop(0, 10*time.Second, func() {
				ctx, cancel := context.WithTimeout(t.Context(), between(1, 30*time.Second))
				defer cancel()
				if rand.IntN(20) == 0 {
					_, _ = s.fresh(ctx, nil)
					return
				}
				for attempt := range 2 {
					knownBefore := map[any]bool{}
					known.Range(func(value, _ any) bool { knownBefore[value] = true; return true })
					start := time.Now()
					token, err := s.get(ctx)
					if err != nil {
						if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
							t.Error("the error of another deadline")
						}
						return
					}
					if ctxEnd, _ := ctx.Deadline(); time.Since(start) > 0 && time.Now().After(ctxEnd) {
						t.Error("waited beyond the caller's deadline")
					}
					if knownBefore[token.Reveal()] {
						t.Errorf("a call was sent with a refused token, attempt %d", attempt)
					}
					if a.good(token.Reveal()) {
						s.accepted(token)
						return
					}
					again := s.refused(token)
					known.Store(token.Reveal(), true)
					if !again {
						return
					}
				}
			})
		}
	}
	time.Sleep(5 * time.Minute)
	close(stop)
	wg.Wait()
	m.mu.Lock()
	assert.LessOrEqual(t, m.most, 1, "two mints at once")
	m.err = nil
	m.mu.Unlock()
	time.Sleep(2 * time.Minute)
	for _, s := range sources {
		assert.NoError(t, a.call(t.Context(), s))
	}
	time.Sleep(5 * time.Second)
}

func BenchmarkTokenSourceGet(b *testing.B) {
	m := &tokenEndpoint{lifetime: time.Hour}
	s := m.source()
	ctx := context.Background()
	token, err := s.get(ctx)
	require.NoError(b, err)
	s.accepted(token)
	b.ReportAllocs()
	for b.Loop() {
		token, _ := s.get(ctx)
		s.accepted(token)
	}
}

func TestHeldTokenCostsNoAllocation(t *testing.T) {
	m := &tokenEndpoint{lifetime: time.Hour}
	s := m.source()
	_, err := s.get(t.Context())
	require.NoError(t, err)
	ctx := t.Context()
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		token, _ := s.get(ctx)
		s.accepted(token)
	}))
}
