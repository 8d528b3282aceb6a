package brellium

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// mintTime bounds one mint. The core's own bound is shorter.
	mintTime = 20 * time.Second
	// leaseTime is the store's lease on a mint: it outlasts the mint.
	leaseTime = mintTime + 5*time.Second
	// leaseWait bounds the wait for a token that somebody else mints. It
	// outlasts a lease whose holder has died.
	leaseWait = leaseTime + 10*time.Second
	// flightTime bounds a flight, and with it the life of its goroutine.
	flightTime = leaseWait + mintTime + 5*time.Second

	// The waits between two looks into the store, before a random part.
	firstPoll = 50 * time.Millisecond
	lastPoll  = 250 * time.Millisecond

	// A token is renewed ahead of its expiry by a tenth of its lifetime, and
	// by no more than maxMargin.
	maxMargin = time.Minute
	// minUse is how long a new token is used even if it says that it has
	// expired already, so that no answer turns into a mint per call.
	minUse = time.Second

	// finalMemory is how long a coded 4xx of the token endpoint is told to
	// later calls without asking again.
	finalMemory = 30 * time.Second

	// Once the API has refused maxStrikes new tokens in a row, none of which
	// ever worked, no further one is minted for a pause, which doubles. The
	// shortest is the time in which the endpoint allows one more mint. A token
	// counts as new for newTime.
	maxStrikes   = 2
	newTime      = 30 * time.Second
	firstPause   = 10 * time.Second
	longestPause = time.Minute

	// refusedMemory is how many refused tokens are remembered, in case a
	// store still offers them.
	refusedMemory = 8
)

var (
	// errLeaseHeld is reported where a store never gives its lease.
	errLeaseHeld = errors.New("brellium: the token store's lease stays with another holder")
	// errNoToken stands in where a mint ends without any result.
	errNoToken = errors.New("brellium: the mint ended without a token")
)

// tokenSourceConfig is what a tokenSource works with.
type tokenSourceConfig struct {
	// mint asks the token endpoint for a token. It ends when its context does.
	// Its errors are shared by all who waited for it.
	mint func(ctx context.Context) (*Token, error)
	// store is shared with other clients, under key; nil for none.
	store TokenStore
	key   string
	// notify is told once that the store has failed, and, with a nil error,
	// once that it works again. The error may be any text of the store's. nil
	// for no notice.
	notify func(err error)
	// now is the clock, time.Now where it is nil.
	now func() time.Time
}

// tokenSource hands out the client's token and sees to it that there is one:
// it mints once for all who wait, on a goroutine of its own that no caller's
// context ends, and that lives for flightTime at the most. It has no other
// goroutine, and none at all while nobody waits and nothing is to be renewed.
//
//   - A token is handed out without a lock until it is due for renewal.
//   - From then on the first to come starts a flight for a new one, while all
//     go on with the old. A flight that fails is repeated after a quarter of
//     the margin.
//   - Past its expiry, by the wall clock or the monotonic one, everybody waits
//     for the flight and learns its outcome. The monotonic clock may stand
//     still while a machine sleeps, and the wall clock may be set back.
//   - A 401 discards the token that it refused and no other. New tokens that
//     are refused without ever having worked lead to a pause.
//   - A final refusal of the credentials is told for a while without a request.
type tokenSource struct {
	mint  func(ctx context.Context) (*Token, error) // nil: the token is fixed
	store *guardedStore                             // nil: none
	now   func() time.Time

	current atomic.Pointer[heldToken] // nil: none; written under mu

	mu         sync.Mutex
	flight     *tokenFlight // nil: none under way
	renewAt    time.Time    // after a failed renewal: not before
	refusals   []*Token     // the last tokens that were refused
	strikes    int          // tokens refused in a row that had never worked
	pauseUntil time.Time    // no mint before, but for fresh
	final      error        // the endpoint's last word on the credentials
	finalUntil time.Time
}

// heldToken is a token in use.
type heldToken struct {
	token  *Token
	since  time.Time
	due    time.Time     // when to renew it; zero where its expiry is not known
	expiry time.Time     // by both clocks
	margin time.Duration // between due and expiry
	worked atomic.Bool   // the API has accepted it
}

// tokenFlight is one way to a new token. Its result may be read once done is
// closed.
type tokenFlight struct {
	forced bool // mint, whatever there is
	done   chan struct{}
	token  *Token
	err    error
}

// newTokenSource returns a source that mints.
func newTokenSource(cfg tokenSourceConfig) *tokenSource {
	s := &tokenSource{mint: cfg.mint, now: cfg.now}
	if s.now == nil {
		s.now = time.Now
	}
	if cfg.store != nil {
		s.store = &guardedStore{store: cfg.store, key: cfg.key, now: s.now, notify: cfg.notify}
		if s.store.notify == nil {
			s.store.notify = func(error) {}
		}
	}
	return s
}

// newStaticTokenSource returns a source that has one token and mints none.
func newStaticTokenSource(value string) *tokenSource {
	s := &tokenSource{now: time.Now}
	s.current.Store(&heldToken{token: NewToken("Bearer", value, time.Time{})})
	return s
}

// get returns a token that is not known to be refused, and has not expired by
// what the endpoint said. It waits no longer than ctx lives, and then returns
// ctx.Err() as it is.
//
// Other errors are those of mint, shared by all who waited for it, and during a
// pause an *APIError with status 401.
func (s *tokenSource) get(ctx context.Context) (*Token, error) {
	for {
		now := s.now()
		if h := s.current.Load(); h != nil {
			if !h.isDue(now) {
				return h.token, nil
			}
			if !reached(now, h.expiry) {
				s.renew(h, now)
				return h.token, nil
			}
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		f, err := s.join(now)
		if err != nil {
			return nil, err
		}
		if f == nil {
			continue // a token has come meanwhile
		}
		select {
		case <-f.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if f.err != nil || !s.isRefused(f.token) {
			return f.token, f.err
		}
		// Others were faster, and the API refused them this very token.
	}
}

// fresh mints a token now, whatever is held, and the source uses it from then
// on. Those who call at the same time share one. The token is the caller's own
// copy.
func (s *tokenSource) fresh(ctx context.Context) (*Token, error) {
	if s.mint == nil {
		return nil, &ValidationError{Field: "WithAccessToken", Reason: "a client with a fixed access token cannot mint one"}
	}
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s.mu.Lock()
		f := s.flight
		if f == nil {
			f = s.startRefresh(true)
		}
		s.mu.Unlock()
		select {
		case <-f.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if !f.forced {
			continue // that one may have found its token in the store
		}
		if f.err != nil {
			return nil, f.err
		}
		t := *f.token
		t.ExpiresAt = t.ExpiresAt.Round(0)
		return &t, nil
	}
}

// accepted notes that the API knew t: its answer was no 401. An answer that a
// proxy gave in the API's place is better not reported.
func (s *tokenSource) accepted(t *Token) {
	h := s.current.Load()
	if h == nil || h.token != t || h.worked.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current.Load() == h {
		h.worked.Store(true)
		s.strikes, s.pauseUntil = 0, time.Time{}
	}
}

// refused notes that the API answered 401 to t, and reports whether get can
// be expected to have another token. It is to be called for every such answer,
// that to a repeated request too.
func (s *tokenSource) refused(t *Token) bool {
	if s.mint == nil {
		return false
	}
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()

	s.rememberRefusal(t)
	h := s.current.Load()
	if h == nil || h.token != t { // a late answer to an older token
		return h != nil || s.flight != nil || reached(now, s.pauseUntil)
	}
	s.current.Store(nil)
	if h.worked.Load() || reached(now, h.since.Add(newTime)) {
		return true
	}
	if s.strikes++; s.strikes < maxStrikes {
		return true
	}
	pause := longestPause
	if n := s.strikes - maxStrikes; n < 3 {
		pause = min(firstPause<<n, longestPause)
	}
	s.pauseUntil = now.Add(pause)
	return s.flight != nil
}

// renew starts a flight for the successor of h, which is due but still lives.
func (s *tokenSource) renew(h *heldToken, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current.Load() == h && s.flight == nil && reached(now, s.renewAt) &&
		reached(now, s.pauseUntil) && (s.final == nil || reached(now, s.finalUntil)) {
		s.startRefresh(false)
	}
}

// join returns the flight to wait for, or what is known without one, or
// neither where there is a token after all.
func (s *tokenSource) join(now time.Time) (*tokenFlight, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.current.Load(); h != nil && (h.due.IsZero() || !reached(now, h.expiry)) {
		return nil, nil
	}
	if s.flight != nil {
		return s.flight, nil
	}
	if s.final != nil && !reached(now, s.finalUntil) {
		return nil, s.final
	}
	if !reached(now, s.pauseUntil) {
		return nil, &APIError{
			Operation:  opOAuthToken.name,
			StatusCode: http.StatusUnauthorized,
			Code:       CodeHTTPError,
			Message:    "the API refused the last " + strconv.Itoa(s.strikes) + " new access tokens; the next is minted after a pause",
			RetryAfter: max(s.pauseUntil.Sub(now), 0),
		}
	}
	return s.startRefresh(false), nil
}

// launch starts a flight. The caller holds mu.
func (s *tokenSource) startRefresh(forced bool) *tokenFlight {
	s.flight = &tokenFlight{forced: forced, done: make(chan struct{})}
	go s.refresh(s.flight, s.current.Load())
	return s.flight
}

// fly brings f home: it gets a token, tells those who wait, and only then does
// what the store still wants. old is the token to replace, nil for none.
func (s *tokenSource) refresh(f *tokenFlight, old *heldToken) {
	ctx, cancel := context.WithTimeout(context.Background(), flightTime)
	defer cancel()
	var (
		found, minted *Token
		lease         TokenLease
		err           = errNoToken
	)
	defer func() { // deferred, since mint may panic or call runtime.Goexit
		switch {
		case found != nil:
			s.finishRefresh(f, old, found, nil)
		default:
			s.finishRefresh(f, old, minted, err)
		}
		switch {
		case lease != nil:
			s.store.finish(lease, minted)
		case found != nil:
			s.store.works()
		}
	}()

	if s.store != nil && s.store.ready() {
		if found, lease = s.consult(ctx, f.forced, old); found != nil {
			return
		}
	}
	ctx, cancelMint := context.WithTimeout(ctx, mintTime)
	defer cancelMint()
	if minted, err = s.mint(ctx); minted == nil && err == nil {
		err = errNoToken
	}
}

// consult asks the store. It returns the store's token if there is one to use,
// or the lease under which to mint one, or both, or neither where the store is
// of no help.
func (s *tokenSource) consult(ctx context.Context, forced bool, old *heldToken) (*Token, TokenLease) {
	giveUp := s.now().Add(leaseWait)
	for poll := firstPoll; ; poll = min(2*poll, lastPoll) {
		if !forced {
			if t, err := s.lookUp(ctx, old); t != nil || err != nil {
				return t, nil
			}
		}
		lease, err := s.store.lease(ctx)
		switch {
		case err != nil:
			return nil, nil
		case lease != nil && forced:
			return nil, lease
		case lease != nil:
			// Its last holder may have saved a token between the two calls.
			t, _ := s.lookUp(ctx, old)
			return t, lease
		case reached(s.now(), giveUp):
			s.store.failed(errLeaseHeld)
			return nil, nil
		}
		time.Sleep(poll + rand.N(poll/2))
	}
}

// lookUp returns the store's token, or nil unless it can take the place of old.
func (s *tokenSource) lookUp(ctx context.Context, old *heldToken) (*Token, error) {
	t, err := s.store.load(ctx)
	switch {
	case err != nil:
		return nil, err
	case !t.usable() || s.isRefused(t):
		return nil, nil
	case t.ExpiresAt.IsZero():
		return t, nil
	case reached(s.now(), t.ExpiresAt):
		return nil, nil
	case old != nil && !t.ExpiresAt.After(old.token.ExpiresAt):
		return nil, nil // the same, or one still older
	}
	return t, nil
}

// land ends f: it takes over the token or remembers the failure, and wakes
// those who wait.
func (s *tokenSource) finishRefresh(f *tokenFlight, old *heldToken, t *Token, err error) {
	now := s.now()
	s.mu.Lock()
	s.flight = nil
	f.token, f.err = t, err
	s.renewAt, s.final = time.Time{}, nil
	switch {
	case err == nil:
		s.current.Store(hold(t, now))
	case isFinal(err):
		s.final, s.finalUntil = err, now.Add(finalMemory)
	}
	if err != nil && old != nil {
		s.renewAt = now.Add(max(old.margin/4, time.Second))
	}
	s.mu.Unlock()
	close(f.done)
}

// isRefused reports whether the API has refused t, as far as is remembered.
func (s *tokenSource) isRefused(t *Token) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.refusals, t.is)
}

// rememberRefusal adds t to the refused tokens. The caller holds mu.
func (s *tokenSource) rememberRefusal(t *Token) {
	if slices.ContainsFunc(s.refusals, t.is) {
		return
	}
	if len(s.refusals) == refusedMemory {
		s.refusals = slices.Delete(s.refusals, 0, 1)
	}
	s.refusals = append(s.refusals, t)
}

// hold works out when t is to be renewed and when it is over, on both clocks.
func hold(t *Token, now time.Time) *heldToken {
	h := &heldToken{token: t, since: now}
	if t.ExpiresAt.IsZero() {
		return h
	}
	left := min(t.ExpiresAt.Sub(now), t.ExpiresAt.Round(0).Sub(now.Round(0)))
	left = max(left, minUse)
	h.margin = min(left/10, maxMargin)
	h.expiry = now.Add(left)
	h.due = h.expiry.Add(-h.margin)
	return h
}

// isDue reports whether it is time to renew the token.
func (h *heldToken) isDue(now time.Time) bool {
	return !h.due.IsZero() && reached(now, h.due)
}

// reached reports whether t has come, by the monotonic clock or by the wall
// clock. Where one of the two times has no monotonic reading, only the wall
// clock counts.
func reached(now, t time.Time) bool {
	return !now.Before(t) || !now.Round(0).Before(t.Round(0))
}

// isFinal reports whether err is the token endpoint's last word on the
// credentials: a coded 4xx that is neither a timeout nor a refusal for haste.
func isFinal(err error) bool {
	var e *APIError
	return errors.As(err, &e) && e.StatusCode >= 400 && e.StatusCode < 500 && e.Code != CodeHTTPError &&
		e.StatusCode != http.StatusRequestTimeout && e.StatusCode != http.StatusTooManyRequests
}

// tokenKey names the credentials at a base URL for a TokenStore. It is a MAC
// keyed by the secret over the rest, so it changes with each of the three and
// tells none of them: all that is left is to try secrets one by one, which is
// hopeless with a generated one.
func tokenKey(baseURL, clientID, secret string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	for _, part := range []string{"brellium token key 1", strings.TrimRight(baseURL, "/"), clientID} {
		mac.Write([]byte(strconv.Itoa(len(part)) + ":" + part))
	}
	return "brellium-token-" + hex.EncodeToString(mac.Sum(nil)[:16])
}
