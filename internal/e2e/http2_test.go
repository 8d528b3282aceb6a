package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/internal/testkit"
)

// inviter creates users over HTTP/2 and counts how often each was created.
type inviter struct {
	mu      sync.Mutex
	created map[string]int
	total   int
	after   func(total int)
}

func (i *inviter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var user struct{ Email string }
	if json.NewDecoder(r.Body).Decode(&user) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	i.mu.Lock()
	i.created[user.Email]++
	i.total++
	total := i.total
	i.mu.Unlock()
	if i.after != nil {
		i.after(total)
	}
	fmt.Fprintf(w, `{"user_id":"u","email":%q}`, user.Email)
}

func (i *inviter) server(streams int) *httptest.Server {
	s := httptest.NewUnstartedServer(i)
	s.Config.ErrorLog = discard
	s.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: streams}
	s.EnableHTTP2 = true
	s.StartTLS()
	return s
}

// inviteConcurrently creates n users in 16 goroutines over transport. A create that
// was never sent is tried again at once, and no other may fail. It returns how
// many were.
func (i *inviter) inviteConcurrently(t *testing.T, n int, transport http.RoundTripper) (neverSent int64) {
	t.Helper()
	client := via(t, "https://example.com", transport)
	var next, again atomic.Int64
	testkit.Concurrently(t, 16, func(ctx context.Context, _ int) error {
		for number := next.Add(1); number <= int64(n); number = next.Add(1) {
			params := brellium.UserCreateParams{Email: fmt.Sprintf("user%d@example.test", number)}
			for {
				var resp brellium.Response
				_, err := client.Users.Create(ctx, params, brellium.WithMaxRetries(0), brellium.WithResponseInto(&resp))
				if err == nil {
					break
				}
				if resp.Attempts[0].Verdict != brellium.VerdictNeverSent {
					return err
				}
				again.Add(1)
			}
		}
		return nil
	})
	assert.Len(t, i.created, n)
	assert.Equal(t, n, i.total, "none was created twice")
	return again.Load()
}

// JuliaWeb/HTTP.jl#1294: until its SETTINGS arrive, a client sends more streams than
// the server accepts.
func TestRefusedStreamsAreNeverSent(t *testing.T) {
	i := &inviter{created: map[string]int{}}
	var neverSent int64
	for range 20 { // a few are enough on most machines
		server := i.server(10)
		transport := newTransport(t, server)
		transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, server.Listener.Addr().String())
		}
		clear(i.created)
		i.total = 0
		neverSent += i.inviteConcurrently(t, 80, transport)
		transport.CloseIdleConnections()
		server.Close()
		if neverSent > 0 {
			break
		}
	}
	t.Logf("%d streams were refused", neverSent)
}

// dotnet/corefx#39005, dotnet/corefx#39013
func TestRollingRestartLosesNothing(t *testing.T) {
	i := &inviter{created: map[string]int{}}
	var current atomic.Pointer[httptest.Server]
	var closing sync.WaitGroup
	restarts := 0
	calls, done := context.WithCancel(t.Context())
	i.after = func(total int) {
		if total%50 != 0 {
			return
		}
		old := current.Swap(i.server(100))
		restarts++
		closing.Go(func() {
			_ = old.Config.Shutdown(calls) // it can wait for an idle connection of net/http's
			old.Close()
		})
	}
	current.Store(i.server(100))
	transport := newTransport(t, current.Load())
	transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, current.Load().Listener.Addr().String())
	}
	neverSent := i.inviteConcurrently(t, 500, transport)
	transport.CloseIdleConnections()
	done()
	closing.Wait()
	current.Load().Close()
	t.Logf("%d restarts, %d streams were not processed", restarts, neverSent)
}

// golang/go#30702: net/http would send the next request on the same connection.
func TestSilentHTTP2ConnectionIsReplaced(t *testing.T) {
	var dead atomic.Pointer[net.Conn] // but not closed, so that net/http cannot see it
	address, transport, _, conns := http2Server(t, func(c net.Conn, stream uint32, n int32) {
		if n == 2 {
			dead.Store(&c)
		}
		if d := dead.Load(); d == nil || *d != c {
			respondOK(c, stream)
		}
	})
	client := via(t, address, transport, brellium.WithAttemptTimeout(300*time.Millisecond))
	require.NoError(t, testkit.Retrieve(t.Context(), client))
	var resp brellium.Response
	require.NoError(t, testkit.Retrieve(t.Context(), client, brellium.WithResponseInto(&resp)))
	require.Len(t, resp.Attempts, 2)
	assert.Equal(t, brellium.VerdictUnknown, resp.Attempts[0].Verdict)
	require.NoError(t, testkit.Retrieve(t.Context(), client, brellium.WithMaxRetries(0)))
	assert.EqualValues(t, 2, conns.Load())
}
