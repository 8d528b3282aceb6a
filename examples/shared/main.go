// Command shared shows several worker processes that share one rate limit and
// one access token through Redis.
//
// It starts the emulator with a small bucket, and itself once for each worker.
// The workers have different numbers of goroutines and read audits as fast as
// they may; nobody is refused, and nobody starves. (The rate is ten times the real one,
// at which a lone goroutine is often still busy when its turn comes.)
//
//	go run .
//	REDIS_URL=redis://localhost:6379/0 go run . -workers 8 -for 10s
//
// Without REDIS_URL it runs a small Redis of its own.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	brellium "github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumredis"
	"github.com/brellium/brellium-go/brelliumtest"
)

// The limit of this example. The API's own is 100 and 5 a second, which is what
// the zero brelliumredis.LimiterOptions mean; with that, every figure would
// take ten times as long.
const (
	burst     = 20
	perSecond = 50
)

// workerVariable makes a process a worker; it holds a job in JSON.
const workerVariable = "BRELLIUM_EXAMPLE_WORKER"

// job is what a worker is to do.
type job struct {
	RedisURL   string
	Bucket     string
	Goroutines int
	For        time.Duration
}

// report is what a worker did.
type report struct {
	Calls, Refusals, RoundTrips int64
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if text := os.Getenv(workerVariable); text != "" {
		if err := work(ctx, text, os.Stdout); err != nil {
			log.Fatal(err)
		}
		return
	}
	workers := flag.Int("workers", 4, "how many worker processes")
	duration := flag.Duration("for", 3*time.Second, "how long they work")
	flag.Parse()
	if err := run(ctx, os.Stdout, *workers, *duration); err != nil {
		log.Fatal(err)
	}
}

// run starts the workers, waits for them and prints what they did.
func run(ctx context.Context, out io.Writer, workers int, duration time.Duration) error {
	emulator := brelliumtest.New(brelliumtest.WithRateLimit(burst, perSecond))
	if err := emulator.Start(); err != nil {
		return err
	}
	defer emulator.Close()
	fmt.Fprintf(out, "API: an emulator with a limit of %d requests at once and %d a second\n", burst, perSecond)

	redisURL := os.Getenv("REDIS_URL")
	if redisURL == "" {
		server, err := miniredis.Run()
		if err != nil {
			return err
		}
		defer server.Close()
		redisURL = "redis://" + server.Addr()
		fmt.Fprintln(out, "Redis: a small one of this example's own, since REDIS_URL is not set")
	} else {
		fmt.Fprintln(out, "Redis: that of REDIS_URL")
	}

	reports := make([]report, workers)
	failures := make([]error, workers)
	begin := time.Now()
	var all sync.WaitGroup
	for i := range workers {
		all.Go(func() {
			reports[i], failures[i] = start(ctx, emulator, job{
				RedisURL:   redisURL,
				Bucket:     fmt.Sprintf("example-%d-%d", os.Getpid(), begin.Unix()),
				Goroutines: 1 << (i % 4),
				For:        duration,
			})
		})
	}
	all.Wait()
	if err := errors.Join(failures...); err != nil {
		return err
	}
	took := time.Since(begin)

	var sum report
	for _, r := range reports {
		sum.Calls += r.Calls
		sum.Refusals += r.Refusals
		sum.RoundTrips += r.RoundTrips
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "worker\tgoroutines\tcalls\trefusals\tshare\t")
	for i, r := range reports {
		fmt.Fprintf(table, "%d\t%d\t%d\t%d\t%.0f %%\t\n", i+1, 1<<(i%4), r.Calls, r.Refusals, 100*float64(r.Calls)/float64(sum.Calls))
	}
	fmt.Fprintf(table, "all\t\t%d\t%d\t\t\n", sum.Calls, sum.Refusals)
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "The limit allowed %.0f calls in these %.1f s.\n", burst+perSecond*took.Seconds(), took.Seconds())
	fmt.Fprintf(out, "Tokens minted: %d. Round trips to Redis: %.1f a call.\n",
		emulator.Count(brelliumtest.OpTokenCreate), float64(sum.RoundTrips)/float64(sum.Calls))
	return nil
}

// start runs one worker process and returns its report.
func start(ctx context.Context, emulator *brelliumtest.Emulator, j job) (r report, err error) {
	text, err := json.Marshal(j)
	if err != nil {
		return r, err
	}
	self, err := os.Executable()
	if err != nil {
		return r, err
	}
	worker := exec.CommandContext(ctx, self)
	worker.Env = append(os.Environ(),
		workerVariable+"="+string(text),
		"BRELLIUM_BASE_URL="+emulator.URL,
		"BRELLIUM_CLIENT_ID="+emulator.ClientID,
		"BRELLIUM_CLIENT_SECRET="+emulator.ClientSecret)
	worker.Stderr = os.Stderr
	output, err := worker.Output()
	if err != nil {
		return r, fmt.Errorf("a worker failed: %w", err)
	}
	return r, json.Unmarshal(output, &r)
}

// work is a worker process. What it does is all that a program needs to share
// the limit and the token: two values, given to the client.
func work(ctx context.Context, text string, out io.Writer) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	options, err := redis.ParseURL(j.RedisURL)
	if err != nil {
		return errors.New("REDIS_URL cannot be read") // the error may quote a password
	}
	options.ContextTimeoutEnabled = true
	rdb := redis.NewClient(options)
	defer rdb.Close()

	limiter, err := brelliumredis.NewLimiter(rdb, brelliumredis.LimiterOptions{
		Bucket:    j.Bucket,
		Burst:     burst,
		PerSecond: perSecond,
		MaxDelay:  2 * time.Second, // this machine may be busy with the other workers
		Notify: func(err error) {
			if err != nil {
				log.Print("pacing alone: ", err)
			} else {
				log.Print("sharing again")
			}
		},
	})
	if err != nil {
		return err
	}
	store, err := brelliumredis.NewTokenStore(rdb, brelliumredis.TokenStoreOptions{
		ClientSecret: brelliumredis.Secret(os.Getenv("BRELLIUM_CLIENT_SECRET")),
	})
	if err != nil {
		return err
	}
	client, err := brellium.NewClient(brellium.WithRateLimiter(limiter), brellium.WithTokenStore(store))
	if err != nil {
		return err
	}

	var calls, refusals atomic.Int64
	failed := make(chan error, j.Goroutines)
	end := time.Now().Add(j.For)
	var all sync.WaitGroup
	for range j.Goroutines {
		all.Go(func() {
			for time.Now().Before(end) {
				var response brellium.Response
				_, err := client.Audits.Retrieve(ctx, brelliumtest.SampleAuditID, brellium.WithResponseInto(&response))
				for _, attempt := range response.Attempts {
					if attempt.StatusCode == http.StatusTooManyRequests {
						refusals.Add(1)
					}
				}
				if err != nil {
					failed <- err
					return
				}
				calls.Add(1)
			}
		})
	}
	all.Wait()
	select {
	case err := <-failed:
		return err
	default:
	}
	w := bufio.NewWriter(out)
	if err := json.NewEncoder(w).Encode(report{calls.Load(), refusals.Load(), limiter.Stats().RoundTrips}); err != nil {
		return err
	}
	return w.Flush()
}
