//go:build unix

package brelliumredis

import (
	"context"
	"encoding/gob"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	brellium "github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

const secret = "s3cr3t-of-the-client"

func newStore(t testing.TB, rdb redis.UniversalClient, secret string) *TokenStore {
	s, err := NewTokenStore(rdb, TokenStoreOptions{ClientSecret: NewSecret(secret)})
	require.NoError(t, err)
	return s
}

// keep saves a token with its own lease.
func keep(t testing.TB, s *TokenStore, key string, token *brellium.Token) {
	ctx := context.Background()
	lease, err := s.Lease(ctx, key, time.Minute)
	require.NoError(t, err)
	require.NotNil(t, lease)
	require.NoError(t, lease.Save(ctx, token))
	require.NoError(t, lease.Release(ctx))
}

func TestTokenIsSavedAndLoaded(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		ctx := context.Background()
		one, two := newStore(t, b.client(t), secret), newStore(t, b.client(t), secret)
		token, err := two.Load(ctx, "key")
		require.NoError(t, err)
		require.Nil(t, token)

		keep(t, one, "key", brellium.NewToken("Bearer", "value", time.Now().Add(time.Hour)))
		token, err = two.Load(ctx, "key")
		require.NoError(t, err)
		require.Equal(t, "value", token.Reveal())
		require.Equal(t, "Bearer", token.Type)
		require.WithinDuration(t, time.Now().Add(time.Hour), token.ExpiresAt, 10*time.Second)

		keep(t, two, "key", brellium.NewToken("Bearer", "newer", time.Time{}))
		token, err = one.Load(ctx, "key")
		require.NoError(t, err)
		require.Equal(t, "newer", token.Reveal())
		require.Zero(t, token.ExpiresAt, "not known")

		token, err = one.Load(ctx, "other")
		require.NoError(t, err)
		require.Nil(t, token)
	})
}

func TestLeaseIsHeldByOne(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		ctx := context.Background()
		s := newStore(t, b.client(t), secret)
		var mu sync.Mutex
		held := 0
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				lease, err := s.Lease(ctx, "key", time.Minute)
				assert.NoError(t, err)
				if lease != nil {
					mu.Lock()
					held++
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		require.Equal(t, 1, held)
		lease, err := s.Lease(ctx, "other", time.Minute)
		require.NoError(t, err)
		require.NotNil(t, lease)
		require.NoError(t, lease.Release(ctx))
		require.NoError(t, lease.Release(ctx), "twice is no error")
	})
}

func TestLostLeaseSavesNothing(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		ctx := context.Background()
		rdb := b.client(t)
		s := newStore(t, rdb, secret)
		old, err := s.Lease(ctx, "key", time.Minute)
		require.NoError(t, err)
		// The holder was suspended and the lease expired.
		require.NoError(t, rdb.Del(ctx, leaseName("key")).Err())
		require.ErrorIs(t, old.Save(ctx, brellium.NewToken("Bearer", "old", time.Time{})), brellium.ErrLeaseLost)

		lease, err := s.Lease(ctx, "key", time.Minute)
		require.NoError(t, err)
		require.NoError(t, lease.Save(ctx, brellium.NewToken("Bearer", "new", time.Time{})))
		require.ErrorIs(t, old.Save(ctx, brellium.NewToken("Bearer", "old", time.Time{})), brellium.ErrLeaseLost)
		require.NoError(t, old.Release(ctx))
		require.ErrorIs(t, old.Save(ctx, brellium.NewToken("Bearer", "old", time.Time{})), brellium.ErrLeaseLost)
		none, err := s.Lease(ctx, "key", time.Minute)
		require.NoError(t, err)
		require.Nil(t, none, "releasing a lost lease does not end the new one")
		token, err := s.Load(ctx, "key")
		require.NoError(t, err)
		require.Equal(t, "new", token.Reveal())
	})
}

func TestLeaseEndsByItself(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		ctx := context.Background()
		rdb := b.client(t)
		s := newStore(t, rdb, secret)
		_, err := s.Lease(ctx, "key", 90*time.Second)
		require.NoError(t, err)
		ttl := rdb.PTTL(ctx, leaseName("key")).Val()
		require.InDelta(t, 90, ttl.Seconds(), 10)
		if m, ok := b.(*mini); ok {
			m.server.FastForward(2 * time.Minute)
		} else {
			require.NoError(t, rdb.PExpire(ctx, leaseName("key"), time.Millisecond).Err())
		}
		require.Eventually(t, func() bool {
			lease, err := s.Lease(ctx, "key", time.Minute)
			return err == nil && lease != nil
		}, 10*time.Second, 2*time.Millisecond)
	})
}

func TestTokenLeavesRedisWhenItExpires(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		ctx := context.Background()
		rdb := b.client(t)
		s := newStore(t, rdb, secret)
		keep(t, s, "key", brellium.NewToken("Bearer", "value", time.Now().Add(time.Hour)))
		require.InDelta(t, 3600, rdb.PTTL(ctx, tokenName("key")).Val().Seconds(), 10)
		keep(t, s, "key", brellium.NewToken("Bearer", "value", time.Time{}))
		require.InDelta(t, 86400, rdb.PTTL(ctx, tokenName("key")).Val().Seconds(), 10)
		keep(t, s, "key", brellium.NewToken("Bearer", "value", time.Now().Add(-time.Hour)))
		if m, ok := b.(*mini); ok {
			m.server.FastForward(time.Second)
		}
		require.Eventually(t, func() bool {
			token, err := s.Load(ctx, "key")
			return err == nil && token == nil
		}, 10*time.Second, 2*time.Millisecond)
	})
}

func TestClocksOfWorkersMayBeHoursApart(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		ctx := context.Background()
		at := func(ahead time.Duration) *TokenStore {
			s := newStore(t, b.client(t), secret)
			s.now = func() time.Time { return time.Now().Add(ahead) }
			return s
		}
		ahead, behind := at(9*time.Hour), at(-7*time.Hour)
		keep(t, ahead, "key", brellium.NewToken("Bearer", "value", ahead.now().Add(time.Hour)))
		token, err := behind.Load(ctx, "key")
		require.NoError(t, err)
		require.WithinDuration(t, behind.now().Add(time.Hour), token.ExpiresAt, 10*time.Second)
		keep(t, behind, "key", brellium.NewToken("Bearer", "value", behind.now().Add(time.Hour)))
		token, err = ahead.Load(ctx, "key")
		require.NoError(t, err)
		require.WithinDuration(t, ahead.now().Add(time.Hour), token.ExpiresAt, 10*time.Second)
	})
}

func TestRedisHoldsNoUsableToken(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		ctx := context.Background()
		rdb := b.client(t)
		emu := brelliumtest.New(brelliumtest.WithCredentials("the-client-id", secret))
		limiter, err := NewLimiter(b.client(t), LimiterOptions{})
		require.NoError(t, err)
		client, err := emu.Client(brellium.WithTokenStore(newStore(t, b.client(t), secret)), brellium.WithRateLimiter(limiter))
		require.NoError(t, err)
		_, err = client.Audits.Retrieve(ctx, brelliumtest.SampleAuditID)
		require.NoError(t, err)
		require.Eventually(t, func() bool { return len(rdb.Keys(ctx, "brellium:token:*").Val()) == 1 }, 10*time.Second, 5*time.Millisecond)

		var held strings.Builder
		for _, key := range rdb.Keys(ctx, "*").Val() {
			value, err := rdb.Get(ctx, key).Result()
			if err != nil {
				value = fmt.Sprint(rdb.HGetAll(ctx, key).Val(), rdb.ZRange(ctx, key, 0, -1).Val())
			}
			fmt.Fprintln(&held, key, value)
		}
		token := strings.TrimPrefix(emu.Requests(brelliumtest.OpAuditRetrieve)[0].Header.Get("Authorization"), "Bearer ")
		require.NotEmpty(t, token)
		for _, word := range []string{token, secret, "the-client-id", brelliumtest.SampleAuditID} {
			require.NotContains(t, held.String(), word)
		}
	})
}

func TestTokenThatCannotBeDecryptedIsIgnored(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		ctx := context.Background()
		rdb := b.client(t)
		s := newStore(t, rdb, secret)
		keep(t, s, "key", brellium.NewToken("Bearer", "value", time.Now().Add(time.Hour)))
		sealed := rdb.Get(ctx, tokenName("key")).Val()

		token, err := newStore(t, rdb, "another secret").Load(ctx, "key")
		require.NoError(t, err)
		require.Nil(t, token)

		for name, change := range map[string]string{
			"changed": sealed[:20] + string(sealed[20]^1) + sealed[21:],
			"cut":     sealed[:5],
			"empty":   "",
			"text":    "value",
		} {
			require.NoError(t, rdb.Set(ctx, tokenName("key"), change, time.Hour).Err())
			token, err = s.Load(ctx, "key")
			require.NoError(t, err, name)
			require.Nil(t, token, name)
		}
		// A record is bound to its name.
		require.NoError(t, rdb.Set(ctx, tokenName("other"), sealed, time.Hour).Err())
		token, err = s.Load(ctx, "other")
		require.NoError(t, err)
		require.Nil(t, token)

		require.NoError(t, rdb.Set(ctx, tokenName("key"), sealed, 0).Err())
		token, err = s.Load(ctx, "key")
		require.NoError(t, err)
		require.False(t, token.ExpiresAt.After(time.Now()), "who removes the expiry gains nothing")
	})
}

// recordOf returns a record as it is in Redis.
func recordOf(t testing.TB, rdb *redis.Client, key string) string {
	t.Helper()
	record, err := rdb.Get(context.Background(), tokenName(key)).Result()
	require.NoError(t, err)
	return record
}

func TestRecordThatIsPutBackIsNotUsed(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		ctx := context.Background()
		rdb := b.client(t)
		one, two := newStore(t, rdb, secret), newStore(t, rdb, secret)
		putBack := func(record string) {
			require.NoError(t, rdb.Set(ctx, tokenName("key"), record, 1000*time.Hour).Err())
		}
		load := func(s *TokenStore) string {
			token, err := s.Load(ctx, "key")
			require.NoError(t, err)
			return token.Reveal()
		}
		keep(t, one, "key", brellium.NewToken("Bearer", "first", time.Now().Add(time.Hour)))
		first := recordOf(t, rdb, "key")
		keep(t, one, "key", brellium.NewToken("Bearer", "second", time.Now().Add(time.Hour)))
		second := recordOf(t, rdb, "key")
		require.Equal(t, "second", load(two))
		putBack(first)
		require.Empty(t, load(one), "it saved a newer one")
		require.Empty(t, load(two), "it loaded a newer one")
		require.NotEmpty(t, load(newStore(t, rdb, secret)), "it cannot know")
		putBack(second)
		require.Equal(t, "second", load(one))

		// It expires when it did before.
		token, err := newStore(t, rdb, secret).Load(ctx, "key")
		require.NoError(t, err)
		require.WithinDuration(t, time.Now().Add(time.Hour), token.ExpiresAt, 10*time.Second)
		keep(t, one, "other", brellium.NewToken("Bearer", "value", time.Time{}))
		m, ok := b.(*mini)
		if !ok {
			return
		}
		require.NoError(t, rdb.Set(ctx, tokenName("other"), recordOf(t, rdb, "other"), 1000*time.Hour).Err())
		m.server.SetTime(time.Now().Add(25 * time.Hour))
		token, err = newStore(t, rdb, secret).Load(ctx, "key")
		require.NoError(t, err)
		require.False(t, token.ExpiresAt.After(time.Now()))
		token, err = newStore(t, rdb, secret).Load(ctx, "other")
		require.NoError(t, err)
		require.Nil(t, token, "without a known expiry it is kept for a day")

		// A server whose clock was set back keeps nobody out.
		keep(t, two, "key", brellium.NewToken("Bearer", "ahead", time.Now().Add(time.Hour)))
		require.Equal(t, "ahead", load(one))
		m.server.SetTime(time.Now())
		keep(t, two, "key", brellium.NewToken("Bearer", "back", time.Now().Add(time.Hour)))
		require.Equal(t, "back", load(two))
		require.Empty(t, load(one))
		m.server.SetTime(time.Now().Add(time.Second)) // which would stand still
		keep(t, one, "key", brellium.NewToken("Bearer", "own", time.Now().Add(time.Hour)))
		require.Equal(t, "own", load(two))
		require.Equal(t, "own", load(one))
	})
}

func TestRecordWithoutItsTimeIsNotUsed(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		rdb := connect(t, b.addr())
		s := newStore(t, rdb, secret)
		sealed := s.seal().Seal(nil, nil, []byte(`{"type":"Bearer","value":"value","expires":true}`), []byte(tokenName("key")))
		require.NoError(t, rdb.Set(context.Background(), tokenName("key"), sealed, time.Hour).Err())
		token, err := s.Load(context.Background(), "key")
		require.NoError(t, err)
		require.Nil(t, token)
	})
}

// countedConn counts what is read.
type countedConn struct {
	net.Conn
	read *atomic.Int64
}

func (c countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.read.Add(int64(n))
	return n, err
}

// odd replaces each reply to a script, as a proxy might.
type odd struct{ reply []any }

func (o odd) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if c, ok := cmd.(*redis.Cmd); ok && err == nil {
			c.SetVal(o.reply)
		}
		return err
	}
}

func (o odd) DialHook(next redis.DialHook) redis.DialHook { return next }
func (o odd) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestReplyOfAnotherShapeIsAnError(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		keep(t, newStore(t, b.client(t), secret), "key", brellium.NewToken("Bearer", "value", time.Now().Add(time.Hour)))
		for _, reply := range [][]any{{"x"}, {"x", int64(1), "2"}, {"x", int64(1), "2", "z"}, {"x", "1", "2", "3"}, {int64(1), int64(1), "2", "3"}} {
			rdb := connect(t, b.addr())
			rdb.AddHook(odd{reply: reply})
			s := newStore(t, rdb, secret)
			token, err := s.Load(t.Context(), "key")
			require.ErrorIs(t, err, errReply, "%v", reply)
			require.Nil(t, token)
			lease, err := s.Lease(t.Context(), fmt.Sprint(reply), time.Minute)
			require.ErrorIs(t, err, errReply, "%v", reply)
			require.Nil(t, lease)
		}
	})
}

func TestLargeRecordIsNotRead(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		ctx := context.Background()
		var read atomic.Int64
		rdb := redis.NewClient(&redis.Options{Dialer: func(context.Context, string, string) (net.Conn, error) {
			conn, err := net.Dial("tcp", b.addr())
			return countedConn{conn, &read}, err
		}})
		defer func() { _ = rdb.Close() }()
		s := newStore(t, rdb, secret)
		require.NoError(t, rdb.Set(ctx, tokenName("key"), strings.Repeat("x", 4<<20), time.Hour).Err())
		token, err := s.Load(ctx, "key")
		require.NoError(t, err)
		require.Nil(t, token)
		require.Less(t, read.Load(), int64(64<<10))
		// The next mint replaces it.
		keep(t, s, "key", brellium.NewToken("Bearer", strings.Repeat("v", 60<<10), time.Now().Add(time.Hour)))
		token, err = s.Load(ctx, "key")
		require.NoError(t, err)
		require.NotNil(t, token)
	})
}

func TestFleetMintsOnce(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		emu := brelliumtest.New(brelliumtest.WithCredentials("id", secret), brelliumtest.WithRateLimit(1000, 1000))
		var wg sync.WaitGroup
		for range 12 {
			client, err := emu.Client(brellium.WithTokenStore(newStore(t, b.client(t), secret)))
			require.NoError(t, err)
			wg.Go(func() {
				_, err := client.Audits.Retrieve(context.Background(), brelliumtest.SampleAuditID)
				assert.NoError(t, err)
			})
		}
		wg.Wait()
		require.Equal(t, 1, emu.Count(brelliumtest.OpTokenCreate))
	})
}

func TestUnavailableStoreFailsNoCall(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		emu := brelliumtest.New(brelliumtest.WithCredentials("id", secret))
		b.kill()
		rdb := redis.NewClient(&redis.Options{Addr: b.addr(), MaxRetries: -1})
		defer func() { _ = rdb.Close() }()
		client, err := emu.Client(brellium.WithTokenStore(newStore(t, rdb, secret)))
		require.NoError(t, err)
		_, err = client.Audits.Retrieve(context.Background(), brelliumtest.SampleAuditID)
		require.NoError(t, err)
		_, err = newStore(t, rdb, secret).Load(context.Background(), "key")
		require.Error(t, err)
		require.NotContains(t, err.Error(), secret)
	})
}

func TestSaveRejectsATokenWithoutAValue(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		s := newStore(t, b.client(t), secret)
		lease, err := s.Lease(context.Background(), "key", time.Minute)
		require.NoError(t, err)
		for _, token := range []*brellium.Token{nil, {}} {
			var invalid *brellium.ValidationError
			require.ErrorAs(t, lease.Save(context.Background(), token), &invalid)
		}
	})
}

func TestSecretIsNeverPrinted(t *testing.T) {
	s := newStore(t, connect(t, "127.0.0.1:1"), secret)
	options := TokenStoreOptions{ClientSecret: NewSecret(secret)}
	var log strings.Builder
	logger := slog.New(slog.NewJSONHandler(&log, nil))
	hidden := struct{ v any }{struct{ options TokenStoreOptions }{options}}
	for _, v := range []any{options, &options, options.ClientSecret, s, reflect.ValueOf(s).Elem().Interface(), []any{options, s},
		hidden, hidden.v, &hidden, struct{ s *TokenStore }{s}} {
		logger.Info("x", "v", v)
		encoded, err := json.Marshal(v)
		require.NoError(t, err)
		log.Write(encoded)
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
			fmt.Fprintf(&log, verb, v)
		}
		slog.New(slog.NewTextHandler(&log, nil)).Info("x", "v", v)
		log.WriteString(spew(v))
		_ = gob.NewEncoder(&log).Encode(v)
	}
	for _, word := range []string{secret, fmt.Sprintf("%x", secret), fmt.Sprintf("%X", secret), fmt.Sprint([]byte(secret))} {
		require.NotContains(t, log.String(), word)
	}
	require.Contains(t, log.String(), "REDACTED")
}

// A dumper that walks a limiter does not reach the Redis client, whose options contain
// a password, and whose buffers what was sent.
func TestLimiterShowsNothingOfTheRedisClient(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Password: secret})
	t.Cleanup(func() { _ = rdb.Close() })
	require.Contains(t, spew(rdb), secret)
	l, err := NewLimiter(rdb, LimiterOptions{})
	require.NoError(t, err)
	require.NotContains(t, spew(l), secret)
	require.Contains(t, spew(l), defaultBucket)
}

// spew prints v as testify does in the difference of two values.
func spew(v any) string {
	var said strings.Builder
	assert.Equal(recorderT{&said}, v, reflect.Zero(reflect.TypeOf(v)).Interface()) // another type would give no difference
	return said.String()
}

type recorderT struct{ said *strings.Builder }

func (r recorderT) Errorf(format string, args ...any) { fmt.Fprintf(r.said, format, args...) }
