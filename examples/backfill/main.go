// Command backfill reads all audits into a file of JSON lines.
//
//	go run . -out audits.jsonl
//
// A list has whole audits, so 100 audits are one request, and 10,000 take 100
// requests. Retrieving each audit by itself takes 100 times as many, and at 5
// requests a second 33 minutes more: do that only for what a list item lacks, and
// compare one with the result of Audits.Retrieve to find out.
//
// After Ctrl-C or a crash, run it again: it resumes at the page that was not
// written, and writes no audit twice. Once it has read all audits, the next run
// adds the new ones. For changes of old ones use Audits.Follow.
//
// Without credentials in the environment it reads 300 synthetic audits from the
// embedded emulator, by default into a temporary folder.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

func main() {
	path := flag.String("out", "", "`file` to append the audits to; its checkpoint is next to it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *path, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, path string, out io.Writer) error {
	client, err := newClient(&path, out)
	if err != nil {
		return err
	}
	file, err := openLines(path)
	if err != nil {
		return err
	}
	defer file.Close()
	fmt.Fprintf(out, "%d audits are in %s.\n", len(file.ids), path)
	err = backfill(ctx, client, file, path+".checkpoint", out)
	if ctx.Err() != nil {
		return errors.New("interrupted: run it again to resume")
	}
	return err
}

// backfill appends the audits that the file does not have, page by page. The
// checkpoint is the cursor of the next page.
func backfill(ctx context.Context, client *brellium.Client, file *lines, checkpoint string, out io.Writer) error {
	cursor, err := os.ReadFile(checkpoint)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	page, err := client.Audits.List(ctx, brellium.AuditListParams{Limit: 100, Cursor: string(cursor)})
	if refused(err) && len(cursor) > 0 { // the cursor is too old
		page, err = client.Audits.List(ctx, brellium.AuditListParams{Limit: 100})
	}
	for err == nil {
		added := 0
		for _, audit := range page.Data {
			if file.has(audit.AuditID) {
				continue
			}
			if err := file.add(audit.AuditID, audit.RawJSON()); err != nil {
				return err
			}
			added++
		}
		if err := file.Sync(); err != nil {
			return err
		}
		fmt.Fprintf(out, "%d new audits, %d in the file; %d requests remain.\n", added, len(file.ids), client.RateLimit().Remaining)
		if !page.HasMore {
			break
		}
		if err := replaceFile(checkpoint, page.NextCursor); err != nil {
			return err
		}
		page, err = page.Next(ctx)
	}
	if err != nil {
		return err
	}
	if err := os.Remove(checkpoint); !errors.Is(err, fs.ErrNotExist) {
		return err // the next run looks for new audits
	}
	return nil
}

// refused reports whether the API rejected a request.
func refused(err error) bool {
	var apiErr *brellium.APIError
	return errors.As(err, &apiErr) && (apiErr.StatusCode == http.StatusBadRequest || apiErr.StatusCode == http.StatusNotFound ||
		apiErr.StatusCode == http.StatusGone || apiErr.StatusCode == http.StatusUnprocessableEntity)
}

// newClient returns a client with the credentials in the environment, or one of
// the embedded emulator, for which the path may be empty.
func newClient(path *string, out io.Writer) (*brellium.Client, error) {
	if os.Getenv("BRELLIUM_ACCESS_TOKEN") != "" || os.Getenv("BRELLIUM_CLIENT_ID") != "" {
		if *path == "" {
			return nil, errors.New("name a file for the audits, which contain patients' data: -out FILE")
		}
		return brellium.NewClient()
	}
	fmt.Fprintln(out, "No credentials in the environment: running on the embedded emulator.")
	if *path == "" {
		dir, err := os.MkdirTemp("", "brellium-backfill-")
		if err != nil {
			return nil, err
		}
		*path = filepath.Join(dir, "audits.jsonl")
	}
	emulator := brelliumtest.New()
	emulator.SeedAudits(299)
	return emulator.Client()
}
