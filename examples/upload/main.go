// Command upload uploads a folder of files, with a progress bar if it has a terminal,
// and prints the result of each:
//
//	go run . -dir FOLDER
//
// Press Ctrl-C and run it again: files that have arrived are not sent again, and
// no document is created twice, because each has an id made from its content.
//
// Without credentials in the environment it uploads a generated folder to the
// embedded emulator, which keeps nothing when the program ends. To interrupt
// and resume without an account, run ../../cmd/brellium-emulator and set the
// environment variables it prints.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

func main() {
	dir := flag.String("dir", "", "`folder` to upload (default a generated one)")
	concurrency := flag.Int("concurrency", 4, "`number` of files to upload concurrently")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *dir, *concurrency, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir string, concurrency int, out io.Writer) error {
	client, err := newClient(out)
	if err != nil {
		return err
	}
	if dir == "" {
		if dir, err = generate(40); err != nil {
			return err
		}
		defer os.RemoveAll(dir)
	}
	files, err := collect(dir)
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return errors.New("the folder has no files")
	}

	var size int64
	for _, file := range files {
		size += file.Size
	}
	progress, done := newProgress(max(size, 1), os.Stderr)
	results, err := client.Documents.Upload(ctx, files, brellium.UploadOptions{Concurrency: concurrency, OnProgress: progress})
	done()

	printResults(out, files, results)
	if ctx.Err() != nil {
		return errors.New("interrupted: run it again to send the rest")
	}
	return err
}

// newProgress returns what shows the progress: a bar on a terminal, and otherwise a
// line for each tenth of the bytes.
func newProgress(size int64, out *os.File) (progress func(brellium.UploadProgress), done func()) {
	if !term.IsTerminal(int(out.Fd())) {
		shown := int64(0)
		return func(p brellium.UploadProgress) {
			tenth := 10 * p.BytesDone / size
			if p.FilesDone < p.Files {
				tenth = min(tenth, 9) // the response to the last bytes is missing
			}
			if tenth > shown {
				shown = tenth
				fmt.Fprintf(out, "%d of %d files, %d %%\n", p.FilesDone, p.Files, 10*tenth)
			}
		}, func() {}
	}
	bar := progressbar.NewOptions64(size, progressbar.OptionSetWriter(out), progressbar.OptionShowBytes(true))
	return func(p brellium.UploadProgress) {
			bar.Describe(fmt.Sprintf("%d of %d files", p.FilesDone, p.Files))
			_ = bar.Set64(p.BytesDone)
		}, func() {
			_ = bar.Exit()
			fmt.Fprintln(out)
		}
}

// collect returns the files in a folder and its subfolders, except hidden ones.
func collect(dir string) (files []brellium.UploadFile, err error) {
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case strings.HasPrefix(entry.Name(), ".") && path != dir && entry.IsDir():
			return filepath.SkipDir
		case strings.HasPrefix(entry.Name(), ".") || !entry.Type().IsRegular():
			return nil
		}
		file, err := brellium.FileFromPath(path)
		files = append(files, file)
		return err
	})
	return files, err
}

func printResults(out io.Writer, files []brellium.UploadFile, results []brellium.UploadResult) {
	counts := map[brellium.UploadStatus]int{}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "FILE\tSTATUS\tATTEMPTS\tDOCUMENT\tERROR")
	for i, r := range results {
		counts[r.Status]++
		problem := ""
		if r.Status == brellium.UploadFailed {
			problem = r.Err.Error()
		}
		fmt.Fprintf(table, "%s\t%s\t%d\t%s\t%s\n", files[i].Filename, r.Status, r.Attempts, r.DocumentID, problem)
	}
	_ = table.Flush()
	fmt.Fprintf(out, "\n%d files: %d stored, %d already there, %d failed, %d not started.\n", len(results),
		counts[brellium.UploadStored], counts[brellium.UploadAlreadyThere], counts[brellium.UploadFailed], counts[brellium.UploadNotStarted])
}

// newClient returns a client with the credentials in the environment, or one of
// the embedded emulator with storage that is slow and sometimes fails.
func newClient(out io.Writer) (*brellium.Client, error) {
	if os.Getenv("BRELLIUM_ACCESS_TOKEN") != "" || os.Getenv("BRELLIUM_CLIENT_ID") != "" {
		return brellium.NewClient()
	}
	fmt.Fprintln(out, "No credentials in the environment: running on the embedded emulator.")
	emulator := brelliumtest.New()
	emulator.Inject(brelliumtest.OpDocumentPut,
		brelliumtest.Status(503, "SlowDown").Sometimes(0.05).Forever(),
		brelliumtest.OK().SlowRead(200*time.Millisecond).Forever())
	return emulator.Client()
}

// generate creates a folder of n files.
func generate(n int) (dir string, err error) {
	if dir, err = os.MkdirTemp("", "brellium-upload-"); err != nil {
		return "", err
	}
	for i := 0; i < n && err == nil; i++ {
		text := strings.Repeat(fmt.Sprintf("This is line of the synthetic session note %d.\n", i), 1000+50*i)
		err = os.WriteFile(filepath.Join(dir, fmt.Sprintf("note-%02d.txt", i)), []byte(text), 0o600)
	}
	return dir, err
}
