package brelliumredis

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	brellium "github.com/brellium/brellium-go"
)

// Secret is a string that is redacted when printed, logged or encoded, and that a
// dumper does not find. [NewSecret] makes one.
type Secret struct{ value func() string } // a function, since dumpers cannot look inside one

// NewSecret returns value as a Secret.
func NewSecret(value string) Secret { return Secret{func() string { return value }} }

func (s Secret) reveal() string {
	if s.value == nil {
		return ""
	}
	return s.value()
}

const redacted = "REDACTED"

// String returns the same text for every secret.
func (Secret) String() string { return redacted }

// Format writes that text for every verb and flag.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// MarshalText returns that text.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue returns that text.
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// TokenStoreOptions configures a [TokenStore].
type TokenStoreOptions struct {
	// ClientSecret is the client secret of the credentials whose tokens are
	// stored. The encryption key is derived from it, so all processes that share
	// tokens need the same one. It is required.
	ClientSecret Secret
}

// TokenStore is a [brellium.TokenStore] in Redis: one process mints, the others
// load. Tokens are encrypted (AES-256-GCM, with a key derived from the client
// secret by HKDF-SHA256) and bound to the name of their record, so that a token
// that is read, changed or moved to another record is useless. Names contain a
// digest of the credentials, and neither the client id nor the secret.
//
// A token is removed from Redis when it expires, by the clock of the server. A
// process reads how long the token is still valid, so that the clocks of the
// processes need not agree. A token without a known expiry is kept for a day. When
// a token was saved and when it expires is encrypted with it, so that an old record
// that is put back is not used: Load ignores a token that has expired, and one older
// than the newest that the store has seen.
//
// The Redis client should honor contexts (redis.Options.ContextTimeoutEnabled):
// the client waits for a store at most 1 s, which it says by the context.
type TokenStore struct {
	rdb  func() redis.UniversalClient // functions, since dumpers cannot look inside one
	seal func() cipher.AEAD
	now  func() time.Time

	mu     sync.Mutex
	newest map[string]int64 // when the newest token seen was saved, by key
}

const (
	tokenPrefix   = "brellium:token:1:{"
	unknownExpiry = 24 * time.Hour
	minLifetime   = time.Millisecond
	maxRecord     = 256 << 10 // a longer one is not read
)

// NewTokenStore returns a [TokenStore] that uses rdb, which the caller closes. It
// sends nothing. A missing client or secret returns a [*brellium.ValidationError].
func NewTokenStore(rdb redis.UniversalClient, options TokenStoreOptions) (*TokenStore, error) {
	if isNil(rdb) {
		return nil, &brellium.ValidationError{Field: "rdb", Reason: "must not be nil"}
	}
	if options.ClientSecret.reveal() == "" {
		return nil, &brellium.ValidationError{Field: "ClientSecret", Reason: "must not be empty"}
	}
	secret := sha256.Sum256([]byte(options.ClientSecret.reveal())) // FIPS 140-only mode allows no short keys
	key, err := hkdf.Key(sha256.New, secret[:], nil, "brelliumredis token 1", 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	// Random nonces are safe for the few dozen tokens a day under one key.
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, err
	}
	return &TokenStore{
		rdb:    func() redis.UniversalClient { return rdb },
		seal:   func() cipher.AEAD { return aead },
		now:    time.Now,
		newest: map[string]int64{},
	}, nil
}

// String returns the type's name, without any values.
func (s *TokenStore) String() string { return "brelliumredis.TokenStore" }

// Format writes the same as String for every verb and flag.
func (s *TokenStore) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// sealedToken is the encrypted value.
type sealedToken struct {
	Type    string `json:"type"`
	Value   string `json:"value"`
	Expires bool   `json:"expires"` // the expiry is known
	// Saved and Until are microseconds of the server's clock. The token must not be
	// used after Until.
	Saved int64 `json:"saved"`
	Until int64 `json:"until"`
}

// Load returns the token last saved under key. It returns nil and no error if there
// is none, if the record is longer than 256 KiB, if it cannot be decrypted because
// it was changed or saved with another secret, or if it is an old one. Errors are
// those of the Redis client.
func (s *TokenStore) Load(ctx context.Context, key string) (*brellium.Token, error) {
	name := tokenName(key)
	values, err := loadScript.run(ctx, s.rdb(), []string{name}, maxRecord).Slice()
	if err != nil || len(values) == 0 {
		return nil, err
	}
	if len(values) < 2 {
		return nil, errReply
	}
	record, ok := values[0].(string)
	left, isNumber := values[1].(int64)
	now, err := serverTime(values[2:])
	if !ok || !isNumber || err != nil {
		return nil, errReply
	}
	plain, err := s.seal().Open(nil, nil, []byte(record), []byte(name))
	if err != nil {
		return nil, nil
	}
	var t sealedToken
	if json.Unmarshal(plain, &t) != nil || !s.isNewest(key, t.Saved) {
		return nil, nil
	}
	// If the expiry of the record was removed or put off, the token has its own.
	lifetime := min(max(time.Duration(left)*time.Millisecond, 0), time.Duration(t.Until-now)*time.Microsecond)
	switch {
	case t.Expires:
		return brellium.NewToken(t.Type, t.Value, s.now().Add(lifetime)), nil
	case lifetime <= 0:
		return nil, nil
	}
	return brellium.NewToken(t.Type, t.Value, time.Time{}), nil
}

// isNewest reports whether no token saved later has been seen.
func (s *TokenStore) isNewest(key string, saved int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if saved == 0 || saved < s.newest[key] {
		return false
	}
	s.newest[key] = saved
	return true
}

// serverTime reads the reply of TIME, in microseconds.
func serverTime(values []any) (int64, error) {
	var n [2]int64
	if len(values) != len(n) {
		return 0, errReply
	}
	for i, v := range values {
		text, ok := v.(string)
		var err error
		if n[i], err = strconv.ParseInt(text, 10, 64); !ok || err != nil {
			return 0, errReply
		}
	}
	return n[0]*1e6 + n[1], nil
}

// Lease returns the right to mint for key, or nil and no error while another holder
// has it. Errors are those of the Redis client.
func (s *TokenStore) Lease(ctx context.Context, key string, ttl time.Duration) (brellium.TokenLease, error) {
	l := &tokenLease{store: s, key: key, token: tokenName(key), lease: leaseName(key), holder: rand.Text()}
	values, err := leaseScript.run(ctx, s.rdb(), []string{l.lease},
		l.holder, max(ttl, time.Millisecond).Milliseconds()).Slice()
	if err != nil || len(values) == 0 {
		return nil, err
	}
	l.since = s.now()
	if l.server, err = serverTime(values); err != nil {
		return nil, err
	}
	return l, nil
}

// The braces put both keys of a record in one slot of a cluster.
func tokenName(key string) string { return tokenPrefix + key + "}" }
func leaseName(key string) string { return tokenName(key) + ":lease" }

// tokenLease is valid while the lease key contains holder.
type tokenLease struct {
	store                     *TokenStore
	key, token, lease, holder string

	since  time.Time
	server int64 // the server's clock at since
}

// KEYS: the token. ARGV: the longest record that is read. It returns the record,
// its lifetime and the time, or nothing.
var loadScript = &script{source: `
local length = redis.call('STRLEN', KEYS[1])
if length == 0 or length > tonumber(ARGV[1]) then return {} end
local time = redis.call('TIME')
return {redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1]), time[1], time[2]}`}

// KEYS: the lease. ARGV: the holder, how long. It returns the time, or nothing while
// another holder has the lease. A client that lost the reply and retries gets the
// same lease.
var leaseScript = &script{source: `
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) or redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('TIME')
end
return {}`}

// KEYS: the lease, the token. ARGV: the holder, the sealed token, its lifetime.
var saveScript = &script{source: `
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
return 1`}

// KEYS: the lease. ARGV: the holder.
var releaseScript = &script{source: `
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])`}

func (l *tokenLease) Save(ctx context.Context, t *brellium.Token) error {
	if t.Reveal() == "" {
		return &brellium.ValidationError{Field: "token", Reason: "must contain a value"}
	}
	lifetime := unknownExpiry
	expires := !t.ExpiresAt.IsZero()
	if expires {
		lifetime = max(t.ExpiresAt.Sub(l.store.now()), minLifetime)
	}
	now := l.server + l.store.now().Sub(l.since).Microseconds()
	plain, err := json.Marshal(sealedToken{Type: t.Type, Value: t.Reveal(), Expires: expires, Saved: now, Until: now + lifetime.Microseconds()})
	if err != nil {
		return err
	}
	sealed := l.store.seal().Seal(nil, nil, plain, []byte(l.token))
	saved, err := saveScript.run(ctx, l.store.rdb(), []string{l.lease, l.token},
		l.holder, sealed, lifetime.Milliseconds()).Int()
	switch {
	case err != nil:
		return err
	case saved == 0:
		return brellium.ErrLeaseLost
	}
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	l.store.newest[l.key] = now // also if the server's clock was set back
	return nil
}

func (l *tokenLease) Release(ctx context.Context) error {
	return releaseScript.run(ctx, l.store.rdb(), []string{l.lease}, l.holder).Err()
}
