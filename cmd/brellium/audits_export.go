package main

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/brellium/brellium-go"
)

var defaultColumns = []string{"audit_id", "status", "score", "flags", "reviewed_by", "set_id", "timestamp", "documents"}

func newAuditsExport(a *app) *cobra.Command {
	e := &auditsExport{app: a}
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Export audits as CSV or JSON lines",
		Long: `Exports the audits that the filters select, as CSV or as JSON lines.

With --out the export can be resumed: run the same command again after an
interruption or a crash. A checkpoint next to the file (FILE.checkpoint) says how
far it is, and no audit is appended twice. Both files are made with mode 0600.

A column is a field of the audit. display_info.KEY and people.KEY are the value
with that key, responses.ID is the answer to the question with that id. In CSV, a
list is joined with "; ", and text that a spreadsheet would take for a formula
starts with an apostrophe.

Times are given as 2026-01-31T08:00:00Z, as a local date (2026-01-31), or as how
long ago (36h, 7d).`,
		Example: `  brellium audits export --since 7d --out audits.csv
  brellium audits export --format jsonl --flag Failed | jq .audit_id
  brellium audits export --columns audit_id,status,people.provider --out audits.csv`,
		Args: none,
		RunE: func(cmd *cobra.Command, _ []string) error { return e.run(cmd) },
	}
	e.filter.register(cmd)
	flags := cmd.Flags()
	flags.StringVar(&e.filter.Since, "since", "", "only audits updated after this `time`")
	flags.StringVar(&e.filter.Until, "until", "", "only audits updated before this `time`")
	flags.StringVar(&e.out, "out", "", "write to `FILE` instead of standard output")
	flags.StringVar(&e.format, "format", "", "csv or jsonl (default from the name of --out, else csv)")
	flags.StringSliceVar(&e.columns, "columns", nil, "the `columns`, separated by commas (default "+strings.Join(defaultColumns, ",")+"; jsonl: everything)")
	flags.BoolVar(&e.restart, "restart", false, "start over and replace FILE")
	return cmd
}

type auditsExport struct {
	*app
	filter      auditFilter
	out, format string
	columns     []string
	restart     bool

	file   *os.File // nil for standard output
	state  exportState
	seen   map[string]bool // the ids in the file
	before int             // how many were there before this run
}

// exportState is the checkpoint: what the command exports, and how far it is.
type exportState struct {
	Filter  auditFilter              `json:"filter"`
	Format  string                   `json:"format"`
	Columns []string                 `json:"columns,omitempty"`
	Params  brellium.AuditListParams `json:"params"` // with the times and the cursor
	Audits  int                      `json:"audits"`
	Bytes   int64                    `json:"bytes"` // of the file; what follows is not complete
	Done    bool                     `json:"done"`
}

func (e *auditsExport) run(cmd *cobra.Command) error {
	if err := e.prepare(); err != nil {
		return err
	}
	client, err := e.client()
	if err != nil {
		return err
	}
	if e.out != "" {
		if err := e.open(); err != nil {
			if own := (*failure)(nil); !errors.As(err, &own) {
				err = usage("%s", fileError(err))
			}
			return err
		}
		defer e.file.Close()
		e.resume = "Run the same command again to resume."
		if e.restart {
			e.resume = "Run the same command again, without --restart, to resume."
		}
	} else {
		e.resume = "Use --out FILE to be able to resume."
	}
	if e.state.Done {
		e.note("%s has all %s of this export; use --restart to export again.", e.out, count(e.state.Audits, "audit"))
		return nil
	}
	ctx := cmd.Context()
	page, err := client.Audits.List(ctx, e.state.Params)
	resumed := page == nil && e.before > 0 // the first request of a resumed export failed
	for {
		if page != nil { // a page whose link is broken comes with an error
			if writeErr := e.write(page, err == nil); writeErr != nil {
				return errors.Join(err, writeErr)
			}
			if e.file != nil || !e.tty { // else the audits show it
				e.progress(count(e.state.Audits, "audit")+" exported", int64(e.state.Audits), -1, false)
			}
		}
		if err != nil || !page.HasMore {
			break
		}
		page, err = page.Next(ctx)
	}
	e.endProgress()
	if err != nil {
		switch {
		case e.out != "" && e.state.Bytes == 0: // nothing to resume
			_ = os.Remove(e.out)
			_ = os.Remove(e.checkpoint())
		case e.out != "":
			e.note("%s exported so far.", count(e.state.Audits, "audit"))
			if api := (*brellium.APIError)(nil); resumed && errors.As(err, &api) && api.StatusCode == http.StatusBadRequest {
				e.resume = ""
				return partial("The API no longer accepts the place at which the earlier run ended%s; use --restart to export again.", inside(api.RequestID))
			}
		}
		return err
	}
	if e.before > 0 {
		e.note("%s exported, %d of them by an earlier run.", count(e.state.Audits, "audit"), e.before)
	} else {
		e.note("%s exported.", count(e.state.Audits, "audit"))
	}
	return nil
}

// prepare checks the flags and fills the state of a new export.
func (e *auditsExport) prepare() error {
	if e.format == "" {
		e.format = "csv"
		if ext := filepath.Ext(e.out); ext == ".jsonl" || ext == ".ndjson" || ext == ".json" {
			e.format = "jsonl"
		}
	}
	if e.format != "csv" && e.format != "jsonl" {
		return usage("--format must be csv or jsonl.")
	}
	if e.restart && e.out == "" {
		return usage("--restart needs --out.")
	}
	if e.format == "csv" && len(e.columns) == 0 {
		e.columns = defaultColumns
	}
	for _, column := range e.columns {
		field, _, dotted := strings.Cut(column, ".")
		if !slices.Contains(auditFields(), field) || dotted && !slices.Contains([]string{"display_info", "people", "responses"}, field) {
			return usage("There is no column %q; the fields of an audit are %s.", column, strings.Join(auditFields(), ", "))
		}
	}
	params, err := e.filter.params(time.Now())
	params.Limit = 100
	e.state = exportState{Filter: e.filter, Format: e.format, Columns: e.columns, Params: params}
	e.seen = map[string]bool{}
	return err
}

// auditFields returns the JSON names of the fields of an audit.
func auditFields() (names []string) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[brellium.Audit]()) {
		if name := f.Tag.Get("json"); f.IsExported() && name != "" {
			names = append(names, name)
		}
	}
	return names
}

func (e *auditsExport) checkpoint() string { return e.out + ".checkpoint" }

// open opens the file where an earlier run stopped, or makes a new one. A crash
// at any point leaves an empty file, or a checkpoint from which the next run goes on.
func (e *auditsExport) open() error {
	info, err := os.Stat(e.out)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case err == nil && !info.Mode().IsRegular():
		return usage("%s is not a regular file; name another one.", e.out)
	}
	exists := err == nil
	var saved exportState
	found := false
	if e.restart {
		err = saveJSON(e.checkpoint(), e.state) // from now on, what is in the file does not count
		if err == nil && exists {
			err = os.Remove(e.out)
		}
	} else if found, err = loadJSON(e.checkpoint(), &saved); found {
		switch {
		case !reflect.DeepEqual(saved.Filter, e.state.Filter) || saved.Format != e.format || !slices.Equal(saved.Columns, e.columns):
			return usage("%s belongs to an export with other flags; use the same flags, another file, or --restart.", e.out)
		case !exists && saved.Bytes > 0:
			return usage("%s is missing although its checkpoint exists; use --restart to export again.", e.out)
		}
		e.state, e.before = saved, saved.Audits
	} else if exists && info.Size() > 0 {
		return usage("%s exists and is not an unfinished export; use another name, or --restart to replace it.", e.out)
	}
	if err != nil {
		return err
	}
	if e.file, err = os.OpenFile(e.out, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return err
	}
	if err = e.file.Chmod(0o600); err == nil && found {
		err = e.recover()
	} else if err == nil && !e.restart {
		err = saveJSON(e.checkpoint(), e.state)
	}
	return err
}

// recover removes what an earlier run wrote after its last checkpoint, and
// reads the ids of the audits in the file.
func (e *auditsExport) recover() error {
	info, err := e.file.Stat()
	if err != nil {
		return err
	}
	if info.Size() < e.state.Bytes {
		return usage("%s is shorter than its checkpoint says; use --restart to export again.", e.out)
	}
	if err := e.file.Truncate(e.state.Bytes); err != nil {
		return err
	}
	if e.format == "csv" {
		column := slices.Index(e.columns, "audit_id")
		for r := csv.NewReader(bufio.NewReader(e.file)); column >= 0; {
			row, err := r.Read()
			if err == io.EOF {
				break
			}
			if err != nil {
				return err
			}
			e.seen[row[column]] = true
		}
	} else {
		var line struct {
			AuditID string `json:"audit_id"`
		}
		for d := json.NewDecoder(e.file); ; {
			if err := d.Decode(&line); err == io.EOF {
				break
			} else if err != nil {
				return err
			}
			e.seen[line.AuditID] = true
		}
	}
	_, err = e.file.Seek(e.state.Bytes, io.SeekStart)
	return err
}

// write appends the audits of a page, and then moves the checkpoint if the
// list goes on from there.
func (e *auditsExport) write(page *brellium.Page[brellium.Audit], goesOn bool) error {
	var buf bytes.Buffer
	w := csv.NewWriter(&buf)
	if e.format == "csv" && e.state.Audits == 0 && e.state.Params.Cursor == "" && e.state.Bytes == 0 {
		_ = w.Write(e.columns)
	}
	for i := range page.Data {
		audit := &page.Data[i]
		if audit.AuditID != "" && e.seen[audit.AuditID] {
			continue // the list has changed meanwhile and shows it again
		}
		e.seen[audit.AuditID] = true
		e.state.Audits++
		if e.format == "jsonl" && len(e.columns) == 0 {
			if err := json.Compact(&buf, audit.RawJSON()); err != nil {
				return err
			}
			buf.WriteByte('\n')
			continue
		}
		var fields map[string]any
		d := json.NewDecoder(bytes.NewReader(audit.RawJSON()))
		d.UseNumber()
		if err := d.Decode(&fields); err != nil {
			return err
		}
		if e.format == "jsonl" {
			selected := make(map[string]any, len(e.columns))
			for _, column := range e.columns {
				selected[column] = lookup(fields, column)
			}
			line := json.NewEncoder(&buf)
			line.SetEscapeHTML(false)
			if err := line.Encode(selected); err != nil {
				return err
			}
			continue
		}
		row := make([]string, len(e.columns))
		for i, column := range e.columns {
			row[i] = cell(lookup(fields, column))
		}
		_ = w.Write(row)
	}
	w.Flush()
	if e.file == nil {
		_, err := e.app.output.out.Write(buf.Bytes())
		return err
	}
	if _, err := e.file.Write(buf.Bytes()); err != nil {
		return err
	}
	if !goesOn {
		return nil
	}
	if err := e.file.Sync(); err != nil {
		return err
	}
	e.state.Bytes += int64(buf.Len())
	e.state.Params.Cursor, e.state.Done = page.NextCursor, !page.HasMore
	return saveJSON(e.checkpoint(), e.state)
}

// lookup returns the value of a column, nil if there is none.
func lookup(audit map[string]any, column string) any {
	field, key, dotted := strings.Cut(column, ".")
	if !dotted {
		return audit[field]
	}
	items, _ := audit[field].([]any)
	for _, item := range items {
		switch item, _ := item.(map[string]any); key {
		case item["key"]:
			return item["value"]
		case item["question_id"]:
			return item["answer"]
		}
	}
	return nil
}

// cell returns a value as text of a CSV file.
func cell(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		if _, err := strconv.ParseFloat(v, 64); err != nil && v != "" && strings.ContainsRune("=+-@\t\r", rune(v[0])) {
			return "'" + v
		}
		return v
	case []any:
		parts := make([]string, len(v))
		for i, item := range v {
			if text, ok := item.(string); ok {
				parts[i] = text
			} else {
				data, _ := json.Marshal(item)
				parts[i] = string(data)
			}
		}
		return cell(strings.Join(parts, "; "))
	}
	data, _ := json.Marshal(v)
	return string(data)
}
