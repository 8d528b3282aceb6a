package brelliumredis

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	brellium "github.com/brellium/brellium-go"
)

// Secret is a string that is redacted when printed, logged or encoded.
type Secret string

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
// processes need not agree. A token without a known expiry is kept for a day.
//
// The Redis client should honor contexts (redis.Options.ContextTimeoutEnabled):
// the client waits for a store at most 1 s, which it says by the context.
type TokenStore struct {
	rdb  redis.UniversalClient
	seal func() cipher.AEAD // a function, since dumpers cannot print its value
	now  func() time.Time
}

const (
	tokenPrefix   = "brellium:token:1:{"
	unknownExpiry = 24 * time.Hour
	minLifetime   = time.Millisecond
)

// NewTokenStore returns a [TokenStore] that uses rdb, which the caller closes. It
// sends nothing. A missing client or secret returns a [*brellium.ValidationError].
func NewTokenStore(rdb redis.UniversalClient, options TokenStoreOptions) (*TokenStore, error) {
	if isNil(rdb) {
		return nil, &brellium.ValidationError{Field: "rdb", Reason: "must not be nil"}
	}
	if options.ClientSecret == "" {
		return nil, &brellium.ValidationError{Field: "ClientSecret", Reason: "must not be empty"}
	}
	secret := sha256.Sum256([]byte(options.ClientSecret)) // FIPS 140-only mode allows no short keys
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
	return &TokenStore{rdb: rdb, seal: func() cipher.AEAD { return aead }, now: time.Now}, nil
}

// String returns the type's name, without any values.
func (s *TokenStore) String() string { return "brelliumredis.TokenStore" }

// Format writes the same as String for every verb and flag.
func (s *TokenStore) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// sealedToken is the encrypted value.
type sealedToken struct {
	Type    string `json:"type"`
	Value   string `json:"value"`
	Expires bool   `json:"expires"` // together with the record
}

// Load returns the token last saved under key. It returns nil and no error if there
// is none, or if it cannot be decrypted because it was changed or saved with
// another secret. Errors are those of the Redis client.
func (s *TokenStore) Load(ctx context.Context, key string) (*brellium.Token, error) {
	name := tokenName(key)
	var value *redis.StringCmd
	var left *redis.DurationCmd
	_, err := s.rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
		value, left = p.Get(ctx, name), p.PTTL(ctx, name)
		return nil
	})
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	sealed, err := value.Bytes()
	if err != nil {
		return nil, err
	}
	plain, err := s.seal().Open(nil, nil, sealed, []byte(name))
	if err != nil {
		return nil, nil
	}
	var t sealedToken
	if json.Unmarshal(plain, &t) != nil {
		return nil, nil
	}
	var expiresAt time.Time
	if t.Expires {
		// If the expiry of the record was removed, the token counts as expired.
		expiresAt = s.now().Add(max(left.Val(), 0))
	}
	return brellium.NewToken(t.Type, t.Value, expiresAt), nil
}

// Lease returns the right to mint for key, or nil and no error while another holder
// has it. Errors are those of the Redis client.
func (s *TokenStore) Lease(ctx context.Context, key string, ttl time.Duration) (brellium.TokenLease, error) {
	l := &tokenLease{store: s, token: tokenName(key), lease: leaseName(key), holder: rand.Text()}
	got, err := leaseScript.run(ctx, s.rdb, []string{l.lease},
		l.holder, max(ttl, time.Millisecond).Milliseconds()).Int()
	if err != nil || got == 0 {
		return nil, err
	}
	return l, nil
}

// The braces put both keys of a record in one slot of a cluster.
func tokenName(key string) string { return tokenPrefix + key + "}" }
func leaseName(key string) string { return tokenName(key) + ":lease" }

// tokenLease is valid while the lease key contains holder.
type tokenLease struct {
	store                *TokenStore
	token, lease, holder string
}

// KEYS: the lease. ARGV: the holder, how long. A client that lost the reply and
// retries gets the same lease.
var leaseScript = &script{source: `
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end
if redis.call('GET', KEYS[1]) == ARGV[1] then return 1 end
return 0`}

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
	plain, err := json.Marshal(sealedToken{Type: t.Type, Value: t.Reveal(), Expires: expires})
	if err != nil {
		return err
	}
	sealed := l.store.seal().Seal(nil, nil, plain, []byte(l.token))
	saved, err := saveScript.run(ctx, l.store.rdb, []string{l.lease, l.token},
		l.holder, sealed, lifetime.Milliseconds()).Int()
	if err == nil && saved == 0 {
		return brellium.ErrLeaseLost
	}
	return err
}

func (l *tokenLease) Release(ctx context.Context) error {
	return releaseScript.run(ctx, l.store.rdb, []string{l.lease}, l.holder).Err()
}
