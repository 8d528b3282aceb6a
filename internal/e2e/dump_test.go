package e2e_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
	"github.com/brellium/brellium-go/internal/testkit"
)

// tenant is a client after calls of every kind, and what they returned.
type tenant struct {
	name    string
	emu     *brelliumtest.Emulator
	client  *brellium.Client
	limiter brellium.Limiter
	store   *brellium.MemoryTokenStore
	token   *brellium.Token
	page    *brellium.Page[brellium.User]
	user    *brellium.User
	others  []any  // other values that the client returned
	address string // of an upload
	err     error
}

// callerOwned is an observer and a log handler of the caller's with a secret.
type callerOwned struct{ password string }

func (callerOwned) Observe(ctx context.Context, _ brellium.Event) context.Context { return ctx }
func (callerOwned) Enabled(context.Context, slog.Level) bool                      { return true }
func (callerOwned) Handle(context.Context, slog.Record) error                     { return nil }
func (c callerOwned) WithAttrs([]slog.Attr) slog.Handler                          { return c }
func (c callerOwned) WithGroup(string) slog.Handler                               { return c }

// ownStore is a token store that knows a password.
type ownStore struct {
	*brellium.MemoryTokenStore
	own    callerOwned
	leases *sync.WaitGroup // those not released
}

func (s ownStore) Lease(ctx context.Context, key string, ttl time.Duration) (brellium.TokenLease, error) {
	lease, err := s.MemoryTokenStore.Lease(ctx, key, ttl)
	if lease == nil {
		return nil, err
	}
	s.leases.Add(1)
	return ownLease{lease, s.leases}, err
}

type ownLease struct {
	brellium.TokenLease
	leases *sync.WaitGroup
}

func (l ownLease) Release(ctx context.Context) error {
	defer l.leases.Done()
	return l.TokenLease.Release(ctx)
}

// newTenant makes calls over transport, which it makes trust its server.
func newTenant(t *testing.T, name string, transport *http.Transport, http2 bool, seed uint64, limiter brellium.Limiter) *tenant {
	t.Helper()
	c := &tenant{name: name, limiter: limiter, store: brellium.NewMemoryTokenStore()}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { c.emu.Handler().ServeHTTP(w, r) }))
	c.emu = brelliumtest.New(brelliumtest.WithCredentials(name+"-id", name+"-secret"), brelliumtest.WithSeed(seed),
		brelliumtest.WithStorageURL("https://"+server.Listener.Addr().String()))
	server.EnableHTTP2 = http2
	server.Config.ErrorLog = discard
	server.StartTLS()
	t.Cleanup(server.Close)
	transport.TLSClientConfig.RootCAs.AddCert(server.Certificate())

	own := callerOwned{name + "-own"}
	var leases sync.WaitGroup
	client, err := brellium.NewClient(brellium.WithBaseURL(server.URL), brellium.WithClientCredentials(name+"-id", name+"-secret"),
		testkit.WithTransport(transport), brellium.WithRateLimiter(limiter), brellium.WithTokenStore(ownStore{c.store, own, &leases}),
		brellium.WithHeader("X-Gateway-Key", name+"-gateway"), brellium.WithObserver(own), brellium.WithLogger(slog.New(own)))
	require.NoError(t, err)
	ctx := t.Context()
	c.token, err = client.OAuth.CreateToken(ctx)
	require.NoError(t, err)
	for range 2 {
		user, err := client.Users.Create(ctx, brellium.UserCreateParams{Email: name + "@example.test", Name: name,
			Metadata: map[string]any{name: name}}, brellium.WithHeader("X-Patient", name))
		if err != nil {
			c.err = errors.Join(c.err, err)
		} else {
			c.user = user
		}
	}
	require.NotNil(t, c.user)
	c.page, err = client.Users.List(ctx, brellium.UserListParams{})
	require.NoError(t, err)
	_, err = client.Documents.Upload(ctx, []brellium.UploadFile{brellium.FileFromBytes(name+".pdf", []byte(name))}, brellium.UploadOptions{})
	require.NoError(t, err)
	c.err = errors.Join(c.err, testkit.Retrieve(ctx, client))
	c.err = errors.Join(c.err, client.Do(ctx, http.MethodPost, "/v2/audits/"+name+"?email="+name, map[string]string{name: name}, nil))
	require.Error(t, c.err)
	var resp brellium.Response
	documents, err := client.Documents.Create(ctx, brellium.DocumentCreateParams{Documents: []brellium.DocumentInput{{Filename: name, ExternalID: name}}}, brellium.WithResponseInto(&resp))
	require.NoError(t, err)
	c.address = documents.Documents[0].UploadURL.Reveal()
	results, err := client.Documents.Upload(ctx, []brellium.UploadFile{{Filename: name, Size: 5, Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("123")), nil }, ExternalID: name + "2"}}, brellium.UploadOptions{})
	require.Error(t, err)
	c.others = append(c.others, documents, &resp, client.RateLimit(), results, err)
	for batch, err := range client.Audits.Follow(ctx, brellium.FollowCheckpoint{}, brellium.FollowOptions{CatchUp: true, Filter: brellium.AuditListParams{SetID: name}}) {
		require.NoError(t, err)
		c.others = append(c.others, batch)
	}
	timedOut, cancel := context.WithCancelCause(ctx)
	cancel(errors.New(name))
	c.others = append(c.others, testkit.Retrieve(timedOut, client), client.Users.Delete(ctx, "."))
	c.emu.Inject(brelliumtest.OpDocumentPut, brelliumtest.DropAfter())
	c.others = append(c.others, client.Documents.Put(ctx, documents.Documents[0].UploadURL, brellium.FileFromBytes(name, []byte(name)), brellium.WithMaxRetries(0)))
	leases.Wait() // a refresh saves its token after the call has it
	c.client = client
	return c
}

// A dumper, such as one of a crash reporter, walks every field of a value. From
// a client it must not reach the pool of connections, whose buffers contain the
// requests and responses of all clients of the process.
func TestADumpedValueShowsNoSecretOfAnyClient(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			transport := newTransport(t, nil)
			transport.TLSClientConfig.RootCAs = x509.NewCertPool()
			adaptive, err := brellium.NewAdaptiveLimiter(brellium.AdaptiveLimiterOptions{Exclusive: true})
			require.NoError(t, err)
			fixed, err := brellium.NewFixedLimiter(100, 100)
			require.NoError(t, err)
			one := newTenant(t, "tenant1mk", transport, http2, 1, adaptive)
			two := newTenant(t, "tenant2mk", transport, http2, 2, fixed)
			require.NotEmpty(t, find(deep(reflect.ValueOf(two.token.Reveal())), two.token.Reveal()), "the search works")

			var confidential []string
			for _, c := range []*tenant{one, two} {
				confidential = append(confidential, c.token.Reveal(), c.name+"-secret", c.name+"-id", c.name+"-gateway", c.name+"-own")
			}
			for _, c := range []*tenant{one, two} {
				derived, err := c.client.With(brellium.WithMaxRetries(1), brellium.WithHeader("X-Key", c.name))
				require.NoError(t, err)
				other := one.name
				if c == one {
					other = two.name
				}
				// Of errors, pages and resources, only the caller's own data.
				for _, v := range append(c.others, c.page, c.user, &c.err) {
					for _, needle := range append(confidential, other, c.address) {
						assert.Empty(t, find(deep(reflect.ValueOf(v)), needle), "%T", v)
						assert.NotContains(t, methodless(v), needle)
					}
				}
				for _, v := range []any{
					c.client, *c.client, derived, c.client.Audits, *c.client.Documents, c.client.Users, c.client.EmailRecipients, c.client.OAuth,
					c.limiter, c.store, c.token, *c.token, brellium.WithClientCredentials(c.name, c.name), brellium.WithAccessToken(c.name),
					brellium.WithHeader("X", c.name), brellium.WithTokenStore(c.store), brellium.WithRateLimiter(c.limiter), testkit.WithTransport(transport),
					brellium.WithObserver(callerOwned{c.name}), brellium.WithLogger(slog.New(callerOwned{c.name})), brellium.WithBaseURL("https://" + c.name),
				} {
					for _, needle := range append(confidential, c.name, other) {
						assert.Empty(t, find(deep(reflect.ValueOf(v)), needle), "%T shows %s", v, needle)
						assert.NotContains(t, methodless(v), needle, "%T", v)
					}
				}
			}
		})
	}
}

// methodless is what encoding/gob, and the difference of a failed assertion of testify,
// show of v.
func methodless(v any) string {
	var out bytes.Buffer
	_ = gob.NewEncoder(&out).Encode(v)
	if v != nil {
		assert.Equal(failing{&out}, v, reflect.Zero(reflect.TypeOf(v)).Interface())
		if p := reflect.ValueOf(v); p.Kind() == reflect.Pointer && !p.IsNil() {
			assert.Equal(failing{&out}, p.Elem().Interface(), reflect.Zero(p.Type().Elem()).Interface())
		}
	}
	return out.String()
}

// failing keeps the text of a failed assertion.
type failing struct{ out io.Writer }

func (f failing) Errorf(format string, args ...any) { fmt.Fprintf(f.out, format, args...) }

// The walk follows everything that a dumper can.
func TestTheWalkOfADumperFollowsEveryPointer(t *testing.T) {
	type inner struct{ b []byte }
	var p atomic.Pointer[inner]
	p.Store(&inner{[]byte(marker)})
	assert.Contains(t, methodless(&brellium.FollowCheckpoint{Cursor: marker}), marker)
	for _, v := range []any{&p, struct{ m map[string]any }{map[string]any{"k": &p}}, struct{ r io.Reader }{strings.NewReader(marker)}, callerOwned{marker}, slog.New(callerOwned{marker})} {
		assert.NotEmpty(t, find(deep(reflect.ValueOf(v)), marker), "%T", v)
	}
}
