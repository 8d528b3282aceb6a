//go:build unix

package brelliumredis

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	brellium "github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

// The test binary is a worker process if this variable is set, to the addresses of
// Redis and the API and the number of calls.
const workerVariable = "BRELLIUMREDIS_TEST_WORKER"

func TestMain(m *testing.M) {
	if job := os.Getenv(workerVariable); job != "" {
		if err := workerMain(job); err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// workerMain makes calls, four at a time, and writes a line for each.
func workerMain(job string) error {
	var redisAddr, baseURL string
	var calls int
	if _, err := fmt.Sscan(job, &redisAddr, &baseURL, &calls); err != nil {
		return err
	}
	rdb := redis.NewClient(&redis.Options{Addr: redisAddr, ContextTimeoutEnabled: true})
	defer func() { _ = rdb.Close() }()
	options := scaled
	options.FailClosed = true
	limiter, err := NewLimiter(rdb, options)
	if err != nil {
		return err
	}
	store, err := NewTokenStore(rdb, TokenStoreOptions{ClientSecret: NewSecret(secret)})
	if err != nil {
		return err
	}
	client, err := brellium.NewClient(brellium.WithBaseURL(baseURL), brellium.WithClientCredentials("id", secret),
		brellium.WithRateLimiter(limiter), brellium.WithTokenStore(store))
	if err != nil {
		return err
	}
	queue := make(chan struct{}, calls)
	for range calls {
		queue <- struct{}{}
	}
	close(queue)
	var mu sync.Mutex
	var failed error
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range queue {
				_, err := client.Audits.Retrieve(context.Background(), brelliumtest.SampleAuditID)
				mu.Lock()
				if err != nil {
					failed = err
				}
				fmt.Println("call")
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return failed
}

// workerProcess is a running worker and the lines of its output.
type workerProcess struct {
	command *exec.Cmd
	lines   chan string
}

func startWorker(t *testing.T, redisAddr, baseURL string, calls int) *workerProcess {
	w := &workerProcess{command: exec.Command(os.Args[0]), lines: make(chan string, calls+8)}
	w.command.Env = append(os.Environ(), workerVariable+"="+fmt.Sprintln(redisAddr, baseURL, calls))
	out, err := w.command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, w.command.Start())
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			w.lines <- s.Text()
		}
		close(w.lines)
	}()
	t.Cleanup(func() { _ = w.command.Process.Kill() })
	return w
}

// finish waits for the worker to exit and returns how many calls it made.
func (w *workerProcess) finish(t *testing.T) (calls int) {
	for line := range w.lines {
		assert.False(t, strings.HasPrefix(line, "failed"), line)
		if line == "call" {
			calls++
		}
	}
	_ = w.command.Wait()
	return calls
}

func TestKilledWorkerDelaysNoOther(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend) {
		emu := brelliumtest.New(brelliumtest.WithCredentials("id", secret),
			brelliumtest.WithRateLimit(scaled.Burst, scaled.PerSecond))
		require.NoError(t, emu.Start())
		defer emu.Close()
		begin := time.Now()
		victim := startWorker(t, b.addr(), emu.URL, 100_000)
		var others []*workerProcess
		for range 2 {
			others = append(others, startWorker(t, b.addr(), emu.URL, 150))
		}
		for range 20 {
			<-victim.lines
		}
		require.NoError(t, victim.command.Process.Kill()) // SIGKILL
		killed := victim.finish(t)
		for _, w := range others {
			require.Equal(t, 150, w.finish(t), "no call fails")
		}
		took := time.Since(begin)
		limited := 0
		requests := emu.Requests(brelliumtest.OpAuditRetrieve)
		for _, r := range requests {
			if r.Status == http.StatusTooManyRequests {
				limited++
			}
		}
		assert.Zero(t, limited, "no burst beyond the bucket")
		bound := float64(len(requests)-scaled.Burst) / scaled.PerSecond
		assert.GreaterOrEqual(t, took.Seconds(), 0.95*bound)
		assert.Less(t, took.Seconds(), bound+10)
		t.Logf("%d requests, at least %d of them from the killed worker, T/LB %.2f with the start of the processes", len(requests), killed+20, took.Seconds()/bound)
		assert.LessOrEqual(t, emu.Count(brelliumtest.OpTokenCreate), 2, "one mint, and another if its holder was killed")
	})
}
