package brellium

import (
	"cmp"
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
	// mintTime limits one mint. It is longer than mintTotalTimeout, which does
	// not count the wait for the first attempt.
	mintTime = 20 * time.Second
	// leaseTime is how long the store's lease lasts: longer than a mint.
	leaseTime = mintTime + 5*time.Second
	// leaseWait limits the wait for a token that another client mints. It is
	// longer than leaseTime, in case the holder of the lease has died.
	leaseWait = leaseTime + 10*time.Second
	// refreshTime limits a refresh, and so the life of its goroutine.
	refreshTime = leaseWait + mintTime + 5*time.Second

	// The wait between two loads from the store, before a random part is added.
	firstPoll = 50 * time.Millisecond
	lastPoll  = 250 * time.Millisecond

	// maxMargin is how long before its expiry a token is renewed at most. The
	// margin is a tenth of the lifetime if that is less.
	maxMargin = time.Minute
	// minUse is how long a new token is used even if it has expired on arrival,
	// so that a wrong lifetime does not cause a mint per call.
	minUse = time.Second

	// finalMemory is how long a coded 4xx of the token endpoint is returned to
	// later calls without a new request.
	finalMemory = 30 * time.Second
	// longestHold is how long a 429 of the token endpoint is believed: whatever
	// wait it asks for, one request goes out then. It is also the longest wait
	// before a retry of a call without a total time.
	longestHold = 5 * time.Minute

	// After the API has rejected maxStrikes new tokens in a row that never
	// worked, minting pauses. The pause doubles each time, from the time in
	// which the endpoint allows one more request. A token is new for newTime.
	maxStrikes   = 2
	newTime      = 30 * time.Second
	firstPause   = 10 * time.Second
	longestPause = time.Minute

	// refusedMemory is how many rejected tokens are remembered, in case the
	// store still has them.
	refusedMemory = 8
)

var (
	errLeaseHeld = errors.New("brellium: another client has kept the token store's lease for too long")
	errNoToken   = errors.New("brellium: the mint ended without a token")
)

type tokenSourceConfig struct {
	// mint requests a token and fills the Response. It ends when its context
	// does. Its error is shared by all calls that waited for it.
	mint func(context.Context, *Response) (*Token, error)
	// store, if not nil, is shared with other clients, under key.
	store TokenStore
	key   string
	// notify, if not nil, is called when the store starts to fail, and with a
	// nil error when it works again. The error's text may contain anything.
	notify func(err error)
	// now is the clock; nil means time.Now.
	now func() time.Time
}

// tokenSource provides the client's token. It mints one token for all calls
// that need it, on a goroutine of its own that no caller's context ends and
// that lives for refreshTime at most. There is no goroutine while no refresh
// is needed.
//
//   - A token is read without a lock until it is due for renewal.
//   - Once it is due, the next call starts a refresh, and all calls keep using
//     the old token. A failed refresh is retried after a quarter of the margin.
//   - Once it has expired, by the wall clock or the monotonic clock, all calls
//     wait for the refresh and get its result. Both clocks count, because the
//     monotonic clock may stop while a machine sleeps, and the wall clock may
//     be set back.
//   - A 401 discards the token it was sent for, and no newer one. If tokens
//     minted here are refused that never worked, minting pauses.
//   - If the API refuses a token of the store that never worked here, the next
//     one is minted: the store may hold another that was revoked, or an old one
//     that somebody put back. Only a token that another client saves while this
//     one waits for the lease is taken instead, and only once.
//   - A panic of mint or of the store is raised in each call that waits. If none
//     does, since the held token is still good, it is a failed renewal.
//   - A final rejection of the credentials is returned for a while without a
//     new request. So is a 429 that asks for a wait of more than a mint's time,
//     for longestHold at most.
type tokenSource struct {
	mint  func(context.Context, *Response) (*Token, error) // nil: the token is fixed
	store *guardedStore                                    // nil: none
	now   func() time.Time

	current atomic.Pointer[heldToken] // nil: none; written under mu

	mu         sync.Mutex
	refreshing *tokenRefresh // nil: none in flight
	renewAt    time.Time     // after a failed renewal: not before
	refusals   []*Token      // the last tokens that were refused
	own        *Token        // the last token that was minted here
	distrust   int           // tokens of the store refused in a row that had never worked here
	strikes    int           // tokens refused in a row that had never worked
	pauseUntil time.Time     // no mint before, except by fresh
	final      error         // the endpoint's rejection of the credentials, or its 429
	finalUntil time.Time
}

// heldToken is a token in use.
type heldToken struct {
	token  *Token
	since  time.Time
	due    time.Time     // when to renew it; zero if its expiry is not known
	expiry time.Time     // by both clocks
	margin time.Duration // between due and expiry
	worked atomic.Bool   // the API has accepted it
}

// tokenRefresh is one attempt to get a new token. The result may be read once
// done is closed.
type tokenRefresh struct {
	forced   bool // mint, whatever the store has
	done     chan struct{}
	token    *Token
	err      error
	panicked any      // raised again in each goroutine that waits
	response Response // of the token request; zero if there was none
}

// wait waits until r is done. It returns an error only if ctx ends first.
func (r *tokenRefresh) wait(ctx context.Context) error {
	select {
	case <-r.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	if r.panicked != nil {
		panic(r.panicked)
	}
	return nil
}

// newTokenSource returns a source that mints.
func newTokenSource(cfg tokenSourceConfig) *tokenSource {
	s := &tokenSource{mint: cfg.mint, now: cfg.now}
	if s.now == nil {
		s.now = time.Now
	}
	if cfg.store != nil {
		s.store = &guardedStore{store: cfg.store, key: cfg.key, now: s.now, notify: cfg.notify}
	}
	return s
}

// newStaticTokenSource returns a source with one fixed token.
func newStaticTokenSource(value string) *tokenSource {
	s := &tokenSource{now: time.Now}
	s.current.Store(&heldToken{token: NewToken("Bearer", value, time.Time{})})
	return s
}

// ready returns the current token, or nil where a call must wait for one. A token
// that is due for renewal is renewed meanwhile.
func (s *tokenSource) ready() *Token {
	h := s.current.Load()
	if h == nil {
		return nil
	}
	now := s.now()
	switch {
	case !h.isDue(now):
	case reached(now, h.expiry):
		return nil
	default:
		s.renew(h, now)
	}
	return h.token
}

// get returns a token that the API is not known to have refused, and that has
// not expired. When ctx ends it returns ctx.Err() unchanged. Other errors are
// those of mint, shared by all calls that waited for it, and during a pause an
// [APIError] with status 401.
func (s *tokenSource) get(ctx context.Context) (*Token, error) {
	for {
		if t := s.ready(); t != nil {
			return t, nil
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		r, err := s.join(s.now())
		if err != nil {
			return nil, err
		}
		if r == nil {
			continue // there is a token by now
		}
		if err := r.wait(ctx); err != nil {
			return nil, err
		}
		if r.err != nil || !s.isRefused(r.token) {
			return r.token, r.err
		}
		// Other waiters have used this token by now, and the API refused it.
	}
}

// fresh mints a token, even if one is held, and the source uses it from then
// on. Concurrent calls share one mint. The token is a copy. response, if not
// nil, is filled for the call that started the mint, once it has ended.
func (s *tokenSource) fresh(ctx context.Context, response *Response) (*Token, error) {
	if s.mint == nil {
		return nil, &ValidationError{Field: "WithAccessToken", Reason: "a client with a fixed access token cannot request one"}
	}
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s.mu.Lock()
		r, started := s.refreshing, false
		if r == nil && holdFor(s.final) > 0 && !reached(s.now(), s.finalUntil) {
			defer s.mu.Unlock()
			return nil, s.final
		}
		if r == nil {
			r, started = s.startRefresh(true), true
		}
		s.mu.Unlock()
		if err := r.wait(ctx); err != nil {
			return nil, err
		}
		if !r.forced {
			continue // its token may be from the store
		}
		if started && response != nil {
			*response = r.response
		}
		if r.err != nil {
			return nil, r.err
		}
		t := *r.token
		t.ExpiresAt = t.ExpiresAt.Round(0)
		return &t, nil
	}
}

// accepted records that the API accepted t: it sent a response that was not a
// 401. It must not be called for the response of a proxy.
func (s *tokenSource) accepted(t *Token) {
	h := s.current.Load()
	if h == nil || h.token != t || h.worked.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current.Load() == h {
		h.worked.Store(true)
		s.strikes, s.distrust, s.pauseUntil = 0, 0, time.Time{}
	}
}

// refused records that the API responded to t with a 401, and reports whether
// get is expected to return another token. It must be called for each 401,
// including that of a retry.
func (s *tokenSource) refused(t *Token) bool {
	if s.mint == nil {
		return false
	}
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()

	s.rememberRefusal(t)
	h := s.current.Load()
	if h == nil || h.token != t { // t is an older token
		return h != nil || s.refreshing != nil || reached(now, s.pauseUntil)
	}
	s.current.Store(nil)
	if !t.is(s.own) {
		if !h.worked.Load() {
			s.distrust++
		}
		return true
	}
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
	return s.refreshing != nil
}

// isOwn reports whether t is the last token that this client minted.
func (s *tokenSource) isOwn(t *Token) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return t.is(s.own)
}

// resume forgets why no token is requested.
func (s *tokenSource) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.final, s.renewAt, s.pauseUntil = nil, time.Time{}, time.Time{}
}

// renew starts a refresh for h, which is due but has not expired.
func (s *tokenSource) renew(h *heldToken, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current.Load() == h && s.refreshing == nil && reached(now, s.renewAt) &&
		reached(now, s.pauseUntil) && (s.final == nil || reached(now, s.finalUntil)) {
		s.startRefresh(false)
	}
}

// join returns the refresh to wait for, or an error if none may start, or
// neither if there is a token by now.
func (s *tokenSource) join(now time.Time) (*tokenRefresh, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.current.Load(); h != nil && (h.due.IsZero() || !reached(now, h.expiry)) {
		return nil, nil
	}
	if s.refreshing != nil {
		return s.refreshing, nil
	}
	if s.final != nil && !reached(now, s.finalUntil) {
		return nil, s.final
	}
	if !reached(now, s.pauseUntil) {
		return nil, &APIError{
			Operation:  opOAuthToken.name,
			StatusCode: http.StatusUnauthorized,
			Code:       CodeHTTPError,
			Message:    "the API rejected the last " + strconv.Itoa(s.strikes) + " new access tokens; the client requests another after a pause",
			RetryAfter: max(s.pauseUntil.Sub(now), 0),
		}
	}
	return s.startRefresh(false), nil
}

// startRefresh starts a refresh. The caller holds mu.
func (s *tokenSource) startRefresh(forced bool) *tokenRefresh {
	s.refreshing = &tokenRefresh{forced: forced, done: make(chan struct{})}
	go s.refresh(s.refreshing, s.current.Load())
	return s.refreshing
}

// refresh fetches a token, wakes the waiters, then saves it to the store. old
// is the token to replace, or nil.
func (s *tokenSource) refresh(r *tokenRefresh, old *heldToken) {
	ctx, cancel := context.WithTimeout(context.Background(), refreshTime)
	defer cancel()
	var (
		stored, minted *Token
		lease          TokenLease
		err            = errNoToken
	)
	defer func() { // deferred, because mint or the store may panic or call runtime.Goexit
		r.panicked = recover()
		if stored != nil {
			err = nil
		}
		s.finishRefresh(r, old, cmp.Or(stored, minted), stored == nil, err)
		switch {
		case lease != nil:
			s.store.finish(lease, minted)
		case stored != nil:
			s.store.works()
		}
	}()

	if s.store != nil && s.store.ready() {
		if stored, lease = s.consult(ctx, r.forced, old); stored != nil {
			return
		}
	}
	ctx, cancelMint := context.WithTimeout(ctx, mintTime)
	defer cancelMint()
	if minted, err = s.mint(ctx, &r.response); minted == nil && err == nil {
		err = errNoToken
	}
}

// consult returns the store's token if it can be used, or the lease to mint
// under, or both, or neither if the store fails.
func (s *tokenSource) consult(ctx context.Context, forced bool, old *heldToken) (*Token, TokenLease) {
	giveUp := s.now().Add(leaseWait)
	var before *Token // what the store had before the wait for the lease; nil: no wait yet
	for poll := firstPoll; ; poll = min(2*poll, lastPoll) {
		var t *Token
		var err error
		if !forced {
			if t, err = s.store.load(ctx); err != nil {
				return nil, nil
			}
			if s.canUse(t, before, old) {
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
			// Its last holder may have saved a token since the load.
			if t, err := s.store.load(ctx); err == nil && s.canUse(t, before, old) {
				return t, lease
			}
			return nil, lease
		case reached(s.now(), giveUp):
			s.store.failed(errLeaseHeld)
			return nil, nil
		}
		before = cmp.Or(before, t, new(Token))
		time.Sleep(poll + rand.N(poll/2))
	}
}

// canUse reports whether t, which the store has now, can replace old. While the
// store's tokens are not trusted, it must have been saved since the store had
// before.
func (s *tokenSource) canUse(t, before *Token, old *heldToken) bool {
	s.mu.Lock()
	trusted := s.distrust == 0 || s.distrust == 1 && before != nil && !t.is(before)
	s.mu.Unlock()
	switch {
	case !trusted || !t.usable() || s.isRefused(t):
		return false
	case t.ExpiresAt.IsZero():
		return true
	}
	// One that expires no later than old is the same, or an older one.
	return !reached(s.now(), t.ExpiresAt) && (old == nil || t.ExpiresAt.After(old.token.ExpiresAt))
}

// finishRefresh ends r: it takes the token or remembers the failure, and wakes
// the waiters.
func (s *tokenSource) finishRefresh(r *tokenRefresh, old *heldToken, t *Token, minted bool, err error) {
	now := s.now()
	s.mu.Lock()
	s.refreshing = nil
	r.token, r.err = t, err
	s.renewAt, s.final = time.Time{}, nil
	switch {
	case err == nil:
		s.current.Store(hold(t, now))
		if minted {
			s.own, s.distrust = t, 0
		}
	case isFinal(err):
		s.final, s.finalUntil = err, now.Add(finalMemory)
	case holdFor(err) > 0:
		s.final, s.finalUntil = err, now.Add(holdFor(err))
	}
	if err != nil && old != nil {
		s.renewAt = now.Add(max(old.margin/4, time.Second))
	}
	s.mu.Unlock()
	close(r.done)
}

// isRefused reports whether t is among the remembered refusals.
func (s *tokenSource) isRefused(t *Token) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.refusals, t.is)
}

// rememberRefusal adds t to the refusals. The caller holds mu.
func (s *tokenSource) rememberRefusal(t *Token) {
	if slices.ContainsFunc(s.refusals, t.is) {
		return
	}
	s.refusals = append(s.refusals, t)
	s.refusals = s.refusals[max(len(s.refusals)-refusedMemory, 0):]
}

// hold computes when t is to be renewed and when it expires, on both clocks.
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

// reached reports whether now is at or past t, by the monotonic clock or by the
// wall clock. If either time has no monotonic reading, only the wall clock
// counts.
func reached(now, t time.Time) bool {
	return !now.Before(t) || !now.Round(0).Before(t.Round(0))
}

// isFinal reports whether err is a final rejection of the credentials: a coded
// 4xx that is neither a timeout nor a rate limit.
func isFinal(err error) bool {
	var e *APIError
	return errors.As(err, &e) && e.StatusCode >= 400 && e.StatusCode < 500 && e.Code != CodeHTTPError &&
		e.StatusCode != http.StatusRequestTimeout && e.StatusCode != http.StatusTooManyRequests
}

// holdFor returns how long no token is requested after err, the error of a mint.
// It is above 0 only for a 429 that asks for a longer wait than a mint allows. It
// ends before that wait, of which the next mint itself waits the rest and a second
// for the limiter's jitter.
func holdFor(err error) time.Duration {
	var e *APIError
	if !errors.As(err, &e) || e.StatusCode != http.StatusTooManyRequests {
		return 0
	}
	return min(e.RetryAfter, longestHold) - (mintTime - time.Second)
}

// tokenKey identifies the credentials at a base URL to a [TokenStore]. It is a
// MAC of base URL and client id, keyed by the secret, so it changes with each
// of the three and reveals none: an attacker can only guess secrets.
func tokenKey(baseURL, clientID, secret string) string {
	key := sha256.Sum256([]byte(secret)) // FIPS 140-only mode allows no short keys
	mac := hmac.New(sha256.New, key[:])
	for _, part := range []string{"brellium token key 1", strings.TrimRight(baseURL, "/"), clientID} {
		mac.Write([]byte(strconv.Itoa(len(part)) + ":" + part))
	}
	return "brellium-token-" + hex.EncodeToString(mac.Sum(nil)[:16])
}
