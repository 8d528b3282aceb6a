package main

import (
	"bufio"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/brellium/brellium-go"
)

type waitResult struct {
	DocumentID string `json:"document_id"`
	Result     string `json:"result"`
	AuditID    string `json:"audit_id,omitempty"`
	err        error
}

func newDocumentsWait(a *app) *cobra.Command {
	var (
		timeout time.Duration
		asJSON  bool
	)
	cmd := &cobra.Command{
		Use:   "wait ID…",
		Short: "Wait until the audits of documents exist",
		Long: `Waits until the audit of each document exists, and prints their ids. With - the
ids are the lines of standard input.`,
		Example: `  brellium documents upload notes/ | cut -f 3 | brellium documents wait -`,
		Args:    some,
		RunE: func(cmd *cobra.Command, ids []string) error {
			if len(ids) == 1 && ids[0] == "-" {
				ids = nil
				for lines := bufio.NewScanner(a.in); lines.Scan(); {
					if id := strings.TrimSpace(lines.Text()); id != "" {
						ids = append(ids, id)
					}
				}
			}
			if timeout <= 0 {
				return usage("--timeout must be more than 0.")
			}
			ids = unique(ids)
			if len(ids) == 0 {
				return usage("There is no id on standard input.")
			}
			if slices.Contains(ids, "-") {
				return usage("- stands alone: the ids are arguments, or the lines of standard input.")
			}
			client, err := a.client()
			if err != nil {
				return err
			}
			a.resume = "Run the same command again to resume waiting."
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			results := make([]waitResult, len(ids))
			ended := 0
			var mu sync.Mutex
			var all sync.WaitGroup
			for i, id := range ids {
				all.Go(func() {
					audit, err := client.Documents.WaitForAudit(ctx, id)
					results[i] = waited(id, audit, err)
					mu.Lock()
					defer mu.Unlock()
					ended++
					a.progress(itoa(ended)+" of "+count(len(ids), "document"), int64(ended), int64(len(ids)), false)
				})
			}
			all.Wait()
			a.endProgress()
			printErr := rows(a.output, asJSON, []string{"DOCUMENT", "RESULT", "AUDIT"}, results,
				func(r waitResult) []string { return []string{r.DocumentID, r.Result, r.AuditID} })
			left := 0
			for _, r := range results {
				if r.err != nil {
					return r.err
				}
				if r.AuditID == "" {
					left++
				}
			}
			if left > 0 {
				return partial("There is no audit for %d of %s; see the results, and wait again for those that are being processed.", left, count(len(ids), "document"))
			}
			return printErr
		},
	}
	flags := cmd.Flags()
	flags.DurationVar(&timeout, "timeout", 30*time.Minute, "how long to wait at most")
	flags.BoolVar(&asJSON, "json", false, "print JSON lines")
	return cmd
}

func waited(id string, audit *brellium.Audit, err error) waitResult {
	r := waitResult{DocumentID: id}
	switch {
	case err == nil:
		r.Result, r.AuditID = "audited", audit.AuditID
	case errors.Is(err, brellium.ErrDocumentFailed):
		r.Result = "could not be processed"
	case errors.Is(err, brellium.ErrNoAudit):
		r.Result = "needs no audit"
	case errors.Is(err, brellium.ErrNotFound):
		r.Result = "not found"
	case errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, brellium.ErrRateLimited), errors.Is(err, context.Canceled):
		r.Result = "being processed"
	default:
		r.Result, r.err = "failed", err
	}
	return r
}
