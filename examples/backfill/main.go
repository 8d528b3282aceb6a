// Command backfill reads all audits into a file of JSON lines, four at a time.
// Its progress bar shows the calls per second and the time left.
//
//	go run . -out audits.jsonl
//
// After Ctrl-C or a crash, run it again: it resumes without losing or
// duplicating an audit. Once it has read all audits, the next run adds the new
// ones.
//
// Without credentials in the environment it reads 300 synthetic audits from
// the embedded emulator.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

func main() {
	path := flag.String("out", "audits.jsonl", "`file` to append the audits to; its checkpoint is next to it")
	workers := flag.Int("concurrency", 4, "`number` of audits to read concurrently")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *path, *workers, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, path string, workers int, out io.Writer) error {
	client, err := newClient(out)
	if err != nil {
		return err
	}
	// The checkpoint lists the audits to read, and the file contains those that
	// were read. Both stay valid after a crash at any time.
	plan, err := loadPlan(path+".checkpoint", func() ([]string, error) { return listAudits(ctx, client) })
	if err != nil {
		return err
	}
	file, err := openLines(path)
	if err != nil {
		return err
	}
	defer file.Close()
	todo := slices.DeleteFunc(plan, file.has)
	earlier := len(file.ids)
	fmt.Fprintf(out, "%d audits to read, %d already in the file.\n", len(todo), earlier)

	start := time.Now()
	statuses, err := backfill(ctx, client, file, todo, workers)
	read := len(file.ids) - earlier
	fmt.Fprintf(out, "\nRead %d audits in %s, %d in the file now.\n", read, time.Since(start).Round(time.Second), len(file.ids))
	for _, status := range slices.Sorted(maps.Keys(statuses)) {
		fmt.Fprintf(out, "  %-12s %d\n", status, statuses[status])
	}
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted: run it again to resume")
	case err != nil:
		return err
	}
	return os.Remove(path + ".checkpoint") // the next run looks for new audits
}

// listAudits returns the ids of all audits, 100 per request.
func listAudits(ctx context.Context, client *brellium.Client) (ids []string, err error) {
	for audit, err := range client.Audits.All(ctx, brellium.AuditListParams{Limit: 100}) {
		if err != nil {
			return nil, err
		}
		ids = append(ids, audit.AuditID)
	}
	return ids, nil
}

// backfill reads the audits and appends them to the file as they arrive. It
// returns the number of audits by status.
func backfill(ctx context.Context, client *brellium.Client, file *lines, todo []string, workers int) (map[brellium.AuditStatus]int, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ids, audits := make(chan string), make(chan *brellium.Audit)
	go func() {
		defer close(ids)
		for _, id := range todo {
			select {
			case ids <- id:
			case <-ctx.Done():
				return
			}
		}
	}()
	var readers sync.WaitGroup
	for range workers {
		readers.Go(func() {
			for id := range ids {
				audit, err := client.Audits.Retrieve(ctx, id)
				switch {
				case errors.Is(err, brellium.ErrNotFound):
					audits <- nil // deleted since it was listed
				case err != nil:
					cancel(err)
					return
				default:
					audits <- audit
				}
			}
		})
	}
	go func() {
		readers.Wait()
		close(audits)
	}()

	statuses := map[brellium.AuditStatus]int{}
	bar := newBar(client, len(todo))
	for audit := range audits {
		bar.add()
		if audit == nil {
			continue
		}
		if err := file.add(audit.AuditID, audit.RawJSON()); err != nil {
			cancel(err)
			continue
		}
		statuses[audit.Status]++
	}
	bar.finish()
	return statuses, errors.Join(context.Cause(ctx), file.Sync())
}

// bar is a progress bar that estimates the time left from the rate limit.
type bar struct {
	*progressbar.ProgressBar
	client      *brellium.Client
	calls, left int
	start       time.Time
}

func newBar(client *brellium.Client, calls int) *bar {
	return &bar{
		ProgressBar: progressbar.NewOptions(max(calls, 1), progressbar.OptionSetWriter(os.Stderr), progressbar.OptionSetPredictTime(false)),
		client:      client, left: calls, start: time.Now(),
	}
}

func (b *bar) add() {
	b.calls++
	b.left--
	rate := float64(b.calls) / max(time.Since(b.start).Seconds(), 0.001)
	b.Describe(fmt.Sprintf("%5.1f calls/s, %s left", rate, timeLeft(b.left, b.client.RateLimit()).Round(time.Second)))
	_ = b.Add(1)
}

func (b *bar) finish() {
	_ = b.Exit()
	fmt.Fprintln(os.Stderr)
}

// timeLeft returns the least time that the calls take: some use the requests
// that remain, the others the refill of 5 per second.
func timeLeft(calls int, limit brellium.RateLimit) time.Duration {
	return time.Duration(max(calls-limit.Remaining, 0)) * time.Second / 5
}

// newClient returns a client with the credentials in the environment, or one of
// the embedded emulator.
func newClient(out io.Writer) (*brellium.Client, error) {
	if os.Getenv("BRELLIUM_ACCESS_TOKEN") != "" || os.Getenv("BRELLIUM_CLIENT_ID") != "" {
		return brellium.NewClient()
	}
	fmt.Fprintln(out, "No credentials in the environment: running on the embedded emulator.")
	emulator := brelliumtest.New()
	emulator.SeedAudits(299)
	return emulator.Client()
}
