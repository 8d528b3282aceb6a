//go:build unix

package brelliumredis

import (
	"context"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// backend is a Redis server that can be stopped.
type backend interface {
	addr() string
	client(t testing.TB) *redis.Client
	kill()    // its data is lost
	restart() // empty, at the same address
	pause()   // it accepts connections but does not respond
	resume()
}

// eachBackend runs a test on miniredis and, if there is one, on a real Redis
// server. BRELLIUM_REDIS_SERVER=required makes a missing one a failure. miniredis
// needs SHA-1, which FIPS 140-only mode does not have.
func eachBackend(t *testing.T, test func(t *testing.T, b backend)) {
	if !strings.Contains(os.Getenv("GODEBUG"), "fips140=only") {
		t.Run("miniredis", func(t *testing.T) {
			t.Parallel()
			test(t, newMini(t))
		})
	}
	if path := realRedis(t); path != "" {
		t.Run("redis-server", func(t *testing.T) {
			t.Parallel()
			test(t, newReal(t, path))
		})
	}
}

func realRedis(t testing.TB) string {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		require.NotEqual(t, "required", os.Getenv("BRELLIUM_REDIS_SERVER"), "there is no redis-server on the PATH")
		return ""
	}
	return path
}

func connect(t testing.TB, addr string) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// real is a redis-server started by the test.
type real struct {
	t       testing.TB
	path    string
	port    string
	args    []string
	mu      sync.Mutex
	command *exec.Cmd
}

func newReal(t testing.TB, path string, args ...string) *real {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	require.NoError(t, l.Close())
	r := &real{t: t, path: path, port: port, args: args}
	r.restart()
	t.Cleanup(r.kill)
	return r
}

func (r *real) addr() string { return "127.0.0.1:" + r.port }

func (r *real) client(t testing.TB) *redis.Client { return connect(t, r.addr()) }

func (r *real) kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.command != nil {
		_ = r.command.Process.Kill() // SIGKILL also ends a stopped process
		_ = r.command.Wait()
		r.command = nil
	}
}

func (r *real) restart() {
	r.kill()
	command := exec.Command(r.path, append([]string{"--port", r.port, "--bind", "127.0.0.1",
		"--save", "", "--appendonly", "no", "--dir", r.t.TempDir(), "--loglevel", "warning"}, r.args...)...)
	require.NoError(r.t, command.Start())
	r.mu.Lock()
	r.command = command
	r.mu.Unlock()
	rdb := redis.NewClient(&redis.Options{Addr: r.addr(), MaxRetries: -1})
	defer func() { _ = rdb.Close() }()
	require.Eventually(r.t, func() bool { return rdb.Ping(context.Background()).Err() == nil },
		10*time.Second, 5*time.Millisecond, "redis-server does not start")
}

func (r *real) signal(s os.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	require.NoError(r.t, r.command.Process.Signal(s))
}

func (r *real) pause()  { r.signal(syscall.SIGSTOP) }
func (r *real) resume() { r.signal(syscall.SIGCONT) }

// mini is a miniredis behind a proxy, which can pause it.
type mini struct {
	t      testing.TB
	server *miniredis.Miniredis
	proxy  *proxy
}

func newMini(t testing.TB) *mini {
	m := &mini{t: t, server: miniredis.RunT(t)}
	m.proxy = newProxy(t, m.server.Addr())
	return m
}

func (m *mini) addr() string                      { return m.proxy.listener.Addr().String() }
func (m *mini) client(t testing.TB) *redis.Client { return connect(t, m.addr()) }
func (m *mini) kill()                             { m.server.Close() }
func (m *mini) pause()                            { m.proxy.set(true) }
func (m *mini) resume()                           { m.proxy.set(false) }

func (m *mini) restart() {
	m.server.Close()
	m.server.FlushAll()
	require.NoError(m.t, m.server.Restart())
}

// proxy forwards bytes to a server unless it is paused.
type proxy struct {
	listener net.Listener
	target   string
	mu       sync.Mutex
	changed  *sync.Cond
	paused   bool
}

func newProxy(t testing.TB, target string) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{listener: l, target: target}
	p.changed = sync.NewCond(&p.mu)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(c)
		}
	}()
	t.Cleanup(func() {
		p.set(false)
		_ = l.Close()
	})
	return p
}

func (p *proxy) set(paused bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused = paused
	p.changed.Broadcast()
}

func (p *proxy) serve(c net.Conn) {
	s, err := net.Dial("tcp", p.target)
	if err != nil {
		_ = c.Close()
		return
	}
	go p.copy(s, c)
	p.copy(c, s)
}

func (p *proxy) copy(to, from net.Conn) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		p.mu.Lock()
		for p.paused {
			p.changed.Wait()
		}
		p.mu.Unlock()
		if _, werr := to.Write(buffer[:n]); werr != nil || err != nil {
			return
		}
	}
}
