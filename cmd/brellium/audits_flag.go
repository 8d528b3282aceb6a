package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/brellium/brellium-go"
)

// flagBatch is how many audits one request changes.
const flagBatch = 100

type flagResult struct {
	AuditID string `json:"audit_id"`
	Result  string `json:"result"`
}

func newAuditsFlag(a *app) *cobra.Command {
	var (
		set        []string
		clearFlags bool
		yes        bool
		asJSON     bool
	)
	cmd := &cobra.Command{
		Use:   "flag ID…",
		Short: "Replace the flags of audits",
		Long: `Replaces the flags of each audit with those of --set, or removes them all with
--clear. It asks first. Setting the same flags again changes nothing.`,
		Example: `  brellium audits flag a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d --set "Needs Review"
  brellium audits flag --clear --yes $(cat ids.txt)`,
		Args: some,
		RunE: func(cmd *cobra.Command, ids []string) error {
			if clearFlags == (len(set) > 0) {
				return usage("Use either --set or --clear.")
			}
			ids = unique(ids)
			client, err := a.client()
			if err != nil {
				return err
			}
			question := "Remove all flags of " + count(len(ids), "audit") + "?"
			if !clearFlags {
				question = "Replace the flags of " + count(len(ids), "audit") + " with " + strings.Join(set, ", ") + "?"
			}
			if err := a.confirm(cmd.Context(), question, yes); err != nil {
				return err
			}
			a.resume = "Run the same command again: setting the same flags twice does no harm."
			results := make([]flagResult, len(ids))
			for i, id := range ids {
				results[i] = flagResult{id, "not sent"}
			}
			changed := 0
			for batch := range slices.Chunk(results, flagBatch) {
				params := brellium.AuditBatchUpdateParams{Flags: append([]string{}, set...)}
				for _, r := range batch {
					params.AuditIDs = append(params.AuditIDs, r.AuditID)
				}
				var updated *brellium.AuditBatchUpdateResult
				if updated, err = client.Audits.BatchUpdate(cmd.Context(), params); err != nil {
					for i := range batch {
						batch[i].Result = "failed"
						if brellium.OutcomeUnknown(err) {
							batch[i].Result = "unknown"
						}
					}
					break
				}
				for i := range batch {
					batch[i].Result = "not changed"
					if slices.Contains(updated.UpdatedAuditIDs, batch[i].AuditID) {
						batch[i].Result = "done"
						changed++
					}
				}
			}
			printErr := rows(a.output, asJSON, []string{"AUDIT", "RESULT"}, results, func(r flagResult) []string { return []string{r.AuditID, r.Result} })
			switch {
			case err != nil:
				return err
			case changed < len(ids):
				return partial("%d of %s not changed; check the ids.", len(ids)-changed, count(len(ids), "audit"))
			}
			return printErr
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&set, "set", nil, "the new `flag`; repeat it for several")
	flags.BoolVar(&clearFlags, "clear", false, "remove all flags")
	flags.BoolVar(&yes, "yes", false, "do not ask")
	flags.BoolVar(&asJSON, "json", false, "print JSON lines")
	return cmd
}

// unique returns the values without repeats, in their order.
func unique(values []string) (kept []string) {
	seen := map[string]bool{}
	for _, v := range values {
		if !seen[v] {
			seen[v] = true
			kept = append(kept, v)
		}
	}
	return kept
}
