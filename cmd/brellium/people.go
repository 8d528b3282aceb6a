package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/mail"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/brellium/brellium-go"
)

// A person is a row of a CSV file, and its result.
type person struct {
	Line   int    `json:"line"`
	Email  string `json:"email"`
	Name   string `json:"name,omitempty"`
	Result string `json:"result"`
	Error  string `json:"error,omitempty"`
}

const peopleFileHelp = `FILE is a CSV file whose first line names its columns: email, and optionally
name. All rows are checked before anything is sent; if one is wrong, nothing is.`

// listPeople is a command that lists users or email recipients.
func listPeople[T any](a *app, short, kind string, all func(context.Context, *brellium.Client) iter.Seq2[*T, error], cells func(*T) []string) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: short,
		Args:  none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			people, err := brellium.Collect(all(cmd.Context(), client))
			printErr := rows(a.output, asJSON, []string{kind, "EMAIL", "NAME"}, people, cells)
			if err != nil {
				return err
			}
			return printErr
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON lines")
	return cmd
}

// createPeople completes a command that creates each person of a CSV file. create
// reports whether the person existed.
func (a *app) createPeople(cmd *cobra.Command, create func(context.Context, *brellium.Client, person) (existed bool, err error)) *cobra.Command {
	var asJSON bool
	cmd.Args = one
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		people, err := readPeople(args[0])
		if err != nil {
			return err
		}
		client, err := a.client()
		if err != nil {
			return err
		}
		return a.addPeople(cmd.Context(), people, asJSON, func(p person) (bool, error) { return create(cmd.Context(), client, p) })
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON lines")
	return cmd
}

// readPeople reads and checks a CSV file. The error names every bad row by its
// line.
func readPeople(path string) (people []person, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, usage("%s", fileError(err))
	}
	defer f.Close()
	r := csv.NewReader(f)
	r.FieldsPerRecord, r.TrimLeadingSpace = -1, true
	header, err := r.Read()
	if err != nil {
		return nil, usage("%s is empty or not a CSV file.", path)
	}
	email, name := -1, -1
	for i, column := range header {
		switch strings.ToLower(strings.TrimSpace(strings.TrimPrefix(column, "\ufeff"))) {
		case "email":
			email = i
		case "name":
			name = i
		default:
			return nil, usage("The first line of %s must name the columns, email and name; column %d has another name.", clean(path), i+1)
		}
	}
	if email < 0 {
		return nil, usage("%s has no column email; its first line must name the columns.", path)
	}
	var bad []string
	lineOf := map[string]int{} // by address
	for {
		row, err := r.Read()
		if err == io.EOF {
			break
		}
		line, _ := r.FieldPos(0)
		var parse *csv.ParseError
		if errors.As(err, &parse) {
			bad = append(bad, fmt.Sprintf("line %d: %v", parse.Line, parse.Err))
			break // what follows cannot be trusted
		}
		if err != nil {
			return nil, err
		}
		if len(row) != len(header) {
			bad = append(bad, fmt.Sprintf("line %d: %s instead of %d", line, count(len(row), "field"), len(header)))
			continue
		}
		p := person{Line: line, Email: strings.TrimSpace(row[email])}
		if name >= 0 {
			p.Name = strings.TrimSpace(row[name])
		}
		address, err := mail.ParseAddress(p.Email)
		switch earlier := lineOf[strings.ToLower(p.Email)]; {
		case err != nil || address.Address != p.Email:
			bad = append(bad, fmt.Sprintf("line %d: the email is not an address", line))
		case earlier > 0:
			bad = append(bad, fmt.Sprintf("line %d: the same email as in line %d", line, earlier))
		}
		lineOf[strings.ToLower(p.Email)] = line
		people = append(people, p)
	}
	if bad == nil && people == nil {
		return nil, usage("%s has nobody below the line that names the columns.", clean(path))
	}
	if bad != nil {
		return nil, usage("Nothing was sent, since %s has bad rows:\n  %s", path, strings.Join(bad, "\n  "))
	}
	return people, nil
}

// addPeople makes sure that each person exists, and prints the result of each.
// An error that would meet every request ends it.
func (a *app) addPeople(ctx context.Context, people []person, asJSON bool, ensure func(person) (existed bool, err error)) error {
	a.resume = "Run the same command again: whoever was added is found to exist."
	counts := map[string]int{}
	var ended error
	for i := range people {
		p := &people[i]
		if p.Result = "not started"; ended == nil {
			existed, err := ensure(*p)
			switch code, text := exitDone, ""; {
			case err != nil:
				code, text = explain(err)
				p.Result, p.Error = "failed", text
				if code > exitUsage || ctx.Err() != nil {
					ended = err
				}
			case existed:
				p.Result = "existed"
			default:
				p.Result = "done"
			}
			a.progress(fmt.Sprintf("%d of %d", i+1, len(people)), int64(i+1), int64(len(people)), false)
		}
		counts[p.Result]++
	}
	a.endProgress()
	printErr := rows(a.output, asJSON, []string{"LINE", "EMAIL", "RESULT", "ERROR"}, people,
		func(p person) []string { return []string{itoa(p.Line), p.Email, p.Result, p.Error} })
	a.note("%d done, %d existed, %d failed, %d not started.", counts["done"], counts["existed"], counts["failed"], counts["not started"])
	switch failed := counts["failed"] + counts["not started"]; {
	case ended != nil:
		return ended
	case failed > 0:
		return partial("%d of %d not added; correct them and run the same command again.", failed, len(people))
	}
	return printErr
}

// created interprets the error of a Create. It reports whether the object
// existed before, or whether the outcome must be resolved with Ensure.
func created(err error, exists ...brellium.ErrorCode) (existed, resolve bool) {
	var api *brellium.APIError
	if errors.As(err, &api) {
		for _, code := range exists {
			if api.Code == code {
				return true, false
			}
		}
	}
	return false, brellium.OutcomeUnknown(err) || api != nil && api.Code == brellium.CodeInviteFailed
}
