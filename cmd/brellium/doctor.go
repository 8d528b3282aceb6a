package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

func newDoctor(a *app) *cobra.Command {
	var (
		asJSON, emulated, all bool
		report                string
	)
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check the connection, the credentials and the API's description",
		Long: `Checks, step by step, the base URL and DNS, the proxy, TLS, the clock, the
credentials and the rate limit. Then it reads a page of each list and an item of
each, and compares them with the description that this client was written from:
each assumption held, differs, or was not seen.

It only reads, and sends at most 12 requests. What it prints and reports of the
data are names of fields and kinds, never values. --report writes a text without
host names that can be sent to the maintainers.

The exit code is 0 if nothing differs, 1 if a step failed or an assumption
differs, 3 for the credentials, 4 for a block, and 5 for the rate limit.`,
		Args: none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if report != "" {
				if err := writable(report); err != nil {
					return err
				}
			}
			check, err := newChecker()
			if err != nil {
				return err
			}
			a.resume = "Run it again."
			d := &doctor{app: a, recorder: newRecorder(), check: check, show: func(step) {}}
			if emulated {
				if d.client, err = d.emulate(cmd.Context()); err != nil {
					return err
				}
			} else if d.base, err = url.Parse(a.baseURL()); err != nil {
				return usage("The base URL is not a URL; correct BRELLIUM_BASE_URL.")
			}
			if !asJSON {
				d.show = d.print
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Minute)
			defer cancel()
			d.run(ctx)
			if cmd.Context().Err() != nil {
				return cmd.Context().Err()
			}
			return d.conclude(asJSON, all, report)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	flags.StringVar(&report, "report", "", "also write a text for the maintainers to `FILE`")
	flags.BoolVar(&emulated, "emulator", false, "check the embedded emulator instead of the API")
	flags.BoolVar(&all, "all", false, "list every assumption, also those that held")
	return cmd
}

// emulate returns a client of an emulator that has an object of each kind.
func (d *doctor) emulate(ctx context.Context) (*brellium.Client, error) {
	emulator := brelliumtest.New(brelliumtest.WithAuditDelay(0))
	emulator.SeedAudits(250)
	if err := seed(ctx, emulator); err != nil {
		return nil, err
	}
	emulator.SetRemaining(100) // as before the seed
	d.recorder.next = emulator.Transport()
	return emulator.Client(d.options(brellium.WithHTTPClient(&http.Client{Transport: d.recorder}), brellium.WithMaxRetries(0))...)
}

// seed gives an emulator a document, a user and an email recipient.
func seed(ctx context.Context, emulator *brelliumtest.Emulator) error {
	client, err := emulator.Client()
	if err != nil {
		return err
	}
	if _, err = client.Documents.Upload(ctx, []brellium.UploadFile{brellium.FileFromBytes("note.txt", []byte("A synthetic note."))}, brellium.UploadOptions{}); err != nil {
		return err
	}
	if _, err = client.Users.Create(ctx, brellium.UserCreateParams{Email: "user@example.test", Name: "Casey Example"}); err != nil {
		return err
	}
	_, err = client.EmailRecipients.Create(ctx, brellium.EmailRecipientCreateParams{Email: "recipient@example.test", Name: "Robin Sample"})
	return err
}

var marks = map[string]struct{ mark, color string }{
	"ok": {"✓", "32"}, "warning": {"!", "33"}, "failed": {"✗", "31"}, "skipped": {"-", "2"},
}

// line returns a line that starts with the mark of a state.
func line(state, text string, color bool) string {
	m := marks[state]
	if color {
		return "\x1b[" + m.color + "m" + m.mark + "\x1b[0m " + text
	}
	return m.mark + " " + text
}

func (d *doctor) print(s step) {
	text := s.Name + ": " + s.Text
	if s.private != "" {
		text += " (" + clean(s.private) + ")"
	}
	fmt.Fprintln(d.app.out, line(s.State, text, d.color))
}

// conclude prints the assumptions, writes the report and returns the error
// with the exit code.
func (d *doctor) conclude(asJSON, all bool, report string) error {
	failed := slices.IndexFunc(d.steps, func(s step) bool { return s.State == "failed" }) >= 0
	differing := 0
	list := d.check.all()
	for _, a := range list {
		if a.State == differs {
			differing++
		}
	}
	if d.code == exitDone && (failed || differing > 0) {
		d.code = exitPartial
	}
	if report != "" {
		if err := saveFile(report, []byte(d.report())); err != nil {
			return err
		}
	}
	if asJSON {
		if err := d.jsonLine(map[string]any{"steps": d.steps, "assumptions": list, "new_fields": d.check.newFields(),
			"requests": d.requests, "exit_code": d.code}); err != nil {
			return err
		}
	} else if _, err := fmt.Fprint(d.app.out, d.assumptions(all, d.color)); err != nil {
		return err
	}
	if report != "" {
		d.note("The report is in %s. It has no values, ids or host names; read it before you send it.", report)
	}
	switch {
	case d.code == exitDone:
		return nil
	case failed:
		return &failure{d.code, "Not everything could be checked; see the steps that failed."}
	}
	return &failure{d.code, "The API differs from what this client expects; send the report of --report FILE to the maintainers."}
}

// assumptions returns the lines about the assumptions.
func (d *doctor) assumptions(all, color bool) string {
	var b strings.Builder
	counts := map[string]int{}
	list := d.check.all()
	for _, a := range list {
		counts[a.State]++
	}
	fmt.Fprintf(&b, "\nAssumptions: %d held, %d differ, %d not seen, in %s.\n", counts[held], counts[differs], counts[notSeen], count(d.requests, "request"))
	for _, a := range list {
		switch {
		case a.State == differs && slices.ContainsFunc(d.steps, func(s step) bool { return s.Name == a.Name && s.State == "failed" }):
			// The step says how.
		case a.State == differs:
			state := "failed"
			if a.minor {
				state = "warning"
			}
			fmt.Fprintln(&b, line(state, fmt.Sprintf("%s: %s (%s)", a.Name, strings.Join(a.How, "; or "), strings.Join(a.In, ", ")), color))
		case all && a.State == held:
			fmt.Fprintln(&b, line("ok", a.Name+": held", color))
		case all:
			fmt.Fprintln(&b, line("skipped", a.Name+": not seen", color))
		}
	}
	for _, text := range d.check.newFields() {
		fmt.Fprintln(&b, line("warning", text, color))
	}
	return b.String()
}

// report returns the text for the maintainers.
func (d *doctor) report() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Report of \"brellium doctor\", %s\nbrellium %s, brellium-go %s, %s %s/%s\n\n", time.Now().UTC().Format(time.DateOnly),
		version(), brellium.Version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	for _, s := range d.steps {
		fmt.Fprintln(&b, line(s.State, s.Name+": "+s.Text, false))
	}
	b.WriteString(d.assumptions(true, false))
	return b.String()
}
