// Backfill reads all audits into a file of JSON lines, four at a time, with a
// progress bar that shows the pace and the time left by the rate limit:
//
//	go run . -out audits.jsonl
//
// Press Ctrl-C, or let it crash, and run it again: it goes on where it was,
// without losing or repeating an audit. Once all are there the next run adds
// the audits that are new.
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
	path := flag.String("out", "audits.jsonl", "the file to add the audits to; the checkpoint stands beside it")
	workers := flag.Int("concurrency", 4, "how many audits to read at a time")
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
	// What is to be done is fixed first, and what has been done is what stands
	// in the file: a crash at any moment leaves both true.
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
	fmt.Fprintf(out, "%d audits to read, %d are there.\n", len(todo), earlier)

	begun := time.Now()
	statuses, err := backfill(ctx, client, file, todo, workers)
	read := len(file.ids) - earlier
	fmt.Fprintf(out, "\nRead %d audits in %s, %d are there now.\n", read, time.Since(begun).Round(time.Second), len(file.ids))
	for _, status := range slices.Sorted(maps.Keys(statuses)) {
		fmt.Fprintf(out, "  %-12s %d\n", status, statuses[status])
	}
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted: run it again to go on")
	case err != nil:
		return err
	}
	return os.Remove(path + ".checkpoint") // the next run looks for new audits
}

// listAudits returns the ids of all audits. Each page spends one request and
// names a hundred of them.
func listAudits(ctx context.Context, client *brellium.Client) (ids []string, err error) {
	for audit, err := range client.Audits.All(ctx, brellium.AuditListParams{Limit: 100}) {
		if err != nil {
			return nil, err
		}
		ids = append(ids, audit.AuditID)
	}
	return ids, nil
}

// backfill reads the audits and adds them to the file as they come. It returns
// how many have which status.
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
	var reading sync.WaitGroup
	for range workers {
		reading.Go(func() {
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
		reading.Wait()
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

// bar is a progress bar that knows the rate limit.
type bar struct {
	*progressbar.ProgressBar
	client      *brellium.Client
	calls, left int
	begun       time.Time
}

func newBar(client *brellium.Client, calls int) *bar {
	return &bar{
		ProgressBar: progressbar.NewOptions(max(calls, 1), progressbar.OptionSetWriter(os.Stderr), progressbar.OptionSetPredictTime(false)),
		client:      client, left: calls, begun: time.Now(),
	}
}

func (b *bar) add() {
	b.calls++
	b.left--
	pace := float64(b.calls) / max(time.Since(b.begun).Seconds(), 0.001)
	b.Describe(fmt.Sprintf("%5.1f calls/s, %s left", pace, timeLeft(b.left, b.client.RateLimit()).Round(time.Second)))
	_ = b.Add(1)
}

func (b *bar) finish() {
	_ = b.Exit()
	fmt.Fprintln(os.Stderr)
}

// timeLeft is how long that many calls take at best: the organization's bucket
// as it is now, and then the 5 calls a second that it refills with.
func timeLeft(calls int, limit brellium.RateLimit) time.Duration {
	return time.Duration(max(calls-limit.Remaining, 0)) * time.Second / 5
}

// newClient takes its credentials from the environment, or else makes a client
// of the embedded emulator.
func newClient(out io.Writer) (*brellium.Client, error) {
	if os.Getenv("BRELLIUM_ACCESS_TOKEN") != "" || os.Getenv("BRELLIUM_CLIENT_ID") != "" {
		return brellium.NewClient()
	}
	fmt.Fprintln(out, "No credentials in the environment: running on the embedded emulator.")
	emulator := brelliumtest.New()
	emulator.SeedAudits(299)
	return emulator.Client()
}
