// Command shared shows several worker processes that share one rate limit and
// one access token through Redis.
//
// It starts the emulator with a small bucket and one process per worker. The
// workers have different numbers of goroutines and read audits as fast as the
// limit allows. None is rate limited and none starves. Their shares differ
// because the rate is ten times the real one: a single goroutine is often still
// busy when its turn comes.
//
//	go run .
//	REDIS_URL=redis://localhost:6379/0 go run . -workers 8 -for 10s
//
// Without REDIS_URL it runs an embedded Redis.
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

// The rate limit of this example. With the API's 100 and 5 per second, the
// default of brelliumredis.LimiterOptions, it would run ten times as long.
const (
	burst     = 20
	perSecond = 50
)

// workerVariable makes a process a worker. Its value is a job in JSON.
const workerVariable = "BRELLIUM_EXAMPLE_WORKER"

// job is the input of a worker.
type job struct {
	RedisURL   string
	Bucket     string
	Goroutines int
	For        time.Duration
}

// report is the output of a worker.
type report struct {
	Calls, RateLimited, RoundTrips int64
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
	workers := flag.Int("workers", 4, "`number` of worker processes")
	duration := flag.Duration("for", 3*time.Second, "how long they run")
	flag.Parse()
	if err := run(ctx, os.Stdout, *workers, *duration); err != nil {
		log.Fatal(err)
	}
}

// run starts the workers, waits for them and prints their reports.
func run(ctx context.Context, out io.Writer, workers int, duration time.Duration) error {
	emulator := brelliumtest.New(brelliumtest.WithRateLimit(burst, perSecond))
	if err := emulator.Start(); err != nil {
		return err
	}
	defer emulator.Close()
	fmt.Fprintf(out, "API: emulator with a rate limit of %d requests at once and %d per second\n", burst, perSecond)

	redisURL := os.Getenv("REDIS_URL")
	if redisURL == "" {
		server, err := miniredis.Run()
		if err != nil {
			return err
		}
		defer server.Close()
		redisURL = "redis://" + server.Addr()
		fmt.Fprintln(out, "Redis: embedded, since REDIS_URL is not set")
	} else {
		fmt.Fprintln(out, "Redis: REDIS_URL")
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
		sum.RateLimited += r.RateLimited
		sum.RoundTrips += r.RoundTrips
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "worker\tgoroutines\tcalls\trate limited\tshare\t")
	for i, r := range reports {
		fmt.Fprintf(table, "%d\t%d\t%d\t%d\t%.0f %%\t\n", i+1, 1<<(i%4), r.Calls, r.RateLimited, 100*float64(r.Calls)/float64(sum.Calls))
	}
	fmt.Fprintf(table, "all\t\t%d\t%d\t\t\n", sum.Calls, sum.RateLimited)
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "The rate limit allowed %.0f calls in %.1f s.\n", burst+perSecond*took.Seconds(), took.Seconds())
	fmt.Fprintf(out, "Tokens minted: %d. Round trips to Redis: %.1f per call.\n",
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

// work runs a worker process. To share the rate limit and the token, a program
// passes a limiter and a token store to its client.
func work(ctx context.Context, text string, out io.Writer) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	options, err := redis.ParseURL(j.RedisURL)
	if err != nil {
		return errors.New("REDIS_URL is invalid") // err may contain a password
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
				log.Print("pacing without Redis: ", err)
			} else {
				log.Print("sharing through Redis again")
			}
		},
	})
	if err != nil {
		return err
	}
	store, err := brelliumredis.NewTokenStore(rdb, brelliumredis.TokenStoreOptions{
		ClientSecret: brelliumredis.NewSecret(os.Getenv("BRELLIUM_CLIENT_SECRET")),
	})
	if err != nil {
		return err
	}
	client, err := brellium.NewClient(brellium.WithRateLimiter(limiter), brellium.WithTokenStore(store))
	if err != nil {
		return err
	}

	var calls, rateLimited atomic.Int64
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
						rateLimited.Add(1)
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
	if err := json.NewEncoder(w).Encode(report{calls.Load(), rateLimited.Load(), limiter.Stats().RoundTrips}); err != nil {
		return err
	}
	return w.Flush()
}
