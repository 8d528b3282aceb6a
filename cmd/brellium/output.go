package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/mattn/go-isatty"
	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// output is all that a command reads and prints. Data goes to out, everything
// else to err.
type output struct {
	in                  io.Reader
	out, err            io.Writer
	inTTY, tty, errTTY  bool // what is a terminal
	color               bool // out may have colors
	narrow              bool // the terminal has no room for a bar
	mu                  sync.Mutex
	bar                 *progressbar.ProgressBar // the bar that is shown, or nil
	asking              bool                     // the cursor is behind a question
	started, lastUpdate time.Time                // of the progress in a pipe
}

func newOutput() *output {
	terminal := func(f *os.File) bool { return isatty.IsTerminal(f.Fd()) || isatty.IsCygwinTerminal(f.Fd()) }
	o := &output{in: os.Stdin, out: os.Stdout, err: os.Stderr,
		inTTY: terminal(os.Stdin), tty: terminal(os.Stdout), errTTY: terminal(os.Stderr)}
	o.color = o.tty && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	width, _, err := term.GetSize(int(os.Stderr.Fd()))
	o.narrow = err == nil && width < 72
	return o
}

// note prints a message for people.
func (o *output) note(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.bar != nil {
		_ = o.bar.Clear()
	}
	if o.asking {
		o.asking = false
		fmt.Fprintln(o.err)
	}
	fmt.Fprintf(o.err, format+"\n", args...)
}

// progress shows how far a job is: a bar on a terminal, a line every 5 seconds
// elsewhere. The total is -1 if it is not known.
func (o *output) progress(text string, done, total int64, bytes bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if o.started.IsZero() {
		o.started, o.lastUpdate = now, now
	}
	switch {
	case o.errTTY && o.bar == nil:
		if o.narrow { // the text alone
			total, bytes = -1, false
		}
		o.bar = progressbar.NewOptions64(total, progressbar.OptionSetWriter(o.err), progressbar.OptionShowBytes(bytes),
			progressbar.OptionSetWidth(24), progressbar.OptionClearOnFinish(),
			progressbar.OptionSetElapsedTime(false), progressbar.OptionUseANSICodes(true),
			progressbar.OptionSetSpinnerChangeInterval(0)) // it is drawn here only, and by no goroutine of its own
		fallthrough
	case o.errTTY:
		o.bar.Describe(text)
		_ = o.bar.Set64(done)
	case now.Sub(o.lastUpdate) >= 5*time.Second:
		o.lastUpdate = now
		fmt.Fprintln(o.err, text)
	}
}

// endProgress removes the bar.
func (o *output) endProgress() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.bar != nil {
		_ = o.bar.Clear()
		_ = o.bar.Exit()
		o.bar = nil
	}
}

// Write writes log records, clear of the bar.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.bar != nil {
		_ = o.bar.Clear()
	}
	return o.err.Write(p)
}

// table prints rows: aligned and with a header on a terminal, tab-separated
// and without one elsewhere.
func (o *output) table(header []string, rows [][]string) error {
	var b bytes.Buffer
	for _, row := range rows {
		b.WriteString(strings.Join(cleanAll(row), "\t") + "\n")
	}
	if !o.tty {
		_, err := b.WriteTo(o.out)
		return err
	}
	var aligned bytes.Buffer
	t := tabwriter.NewWriter(&aligned, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.Join(header, "\t"))
	_, _ = b.WriteTo(t)
	_ = t.Flush() // a buffer takes everything
	_, err := o.out.Write(trailing.ReplaceAll(aligned.Bytes(), nil))
	return err
}

var trailing = regexp.MustCompile(`(?m) +$`)

// jsonLine prints a value as one line of JSON.
func (o *output) jsonLine(v any) error {
	e := json.NewEncoder(o.out)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// rows prints a table, or with asJSON an object for each row.
func rows[T any](o *output, asJSON bool, header []string, items []T, row func(T) []string) error {
	if asJSON {
		for _, item := range items {
			if err := o.jsonLine(item); err != nil {
				return err
			}
		}
		return nil
	}
	cells := make([][]string, len(items))
	for i, item := range items {
		cells[i] = row(item)
	}
	return o.table(header, cells)
}

// confirm asks a question on the terminal. Without one, or with any response
// but yes, it returns an error.
func (a *app) confirm(ctx context.Context, question string, yes bool) error {
	switch {
	case yes:
		return nil
	case !a.inTTY || !a.errTTY:
		return usage("This changes data and there is no terminal to ask on; add --yes.")
	}
	const unchanged = "Nothing was changed."
	a.resume = unchanged
	a.mu.Lock()
	fmt.Fprintf(a.err, "%s [y/N] ", clean(question))
	a.asking = true
	a.mu.Unlock()
	replies := make(chan string, 1)
	go func() {
		reply, err := bufio.NewReader(a.in).ReadString('\n') // an error means no
		a.mu.Lock()
		a.asking = err != nil
		a.mu.Unlock()
		replies <- strings.ToLower(strings.TrimSpace(reply))
	}()
	select {
	case reply := <-replies:
		if reply == "y" || reply == "yes" {
			return nil
		}
	case <-ctx.Done():
	}
	return partial(unchanged)
}

// clean replaces control characters, so that no value can break a line or
// control a terminal.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || unicode.Is(unicode.Bidi_Control, r) {
			return ' '
		}
		return r
	}, text)
}

func cleanAll(cells []string) []string {
	cleaned := make([]string, len(cells))
	for i, cell := range cells {
		cleaned[i] = clean(cell)
	}
	return cleaned
}

// count returns a number with its noun, such as "1 file" or "2 files".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// size returns a number of bytes for people.
func size(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.1f GB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	}
	return fmt.Sprintf("%d bytes", n)
}
