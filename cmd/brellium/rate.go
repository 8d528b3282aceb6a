package main

import (
	"github.com/spf13/cobra"

	"github.com/brellium/brellium-go"
)

func newRate(a *app) *cobra.Command {
	var asJSON bool
	type rate struct {
		Limit     int `json:"limit"`
		Remaining int `json:"remaining"`
	}
	cmd := &cobra.Command{
		Use:   "rate",
		Short: "Print the rate limit and what remains of it",
		Long:  "Prints how many requests the organization may send at once, and how many remain\nnow. It reads one audit to find out.",
		Args:  none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			if _, err := client.Audits.List(cmd.Context(), brellium.AuditListParams{Limit: 1}); err != nil {
				return err
			}
			limit := client.RateLimit()
			if !limit.Known() {
				return partial(`The response had no rate limit headers; see "brellium doctor".`)
			}
			return rows(a.output, asJSON, []string{"LIMIT", "REMAINING"}, []rate{{limit.Limit, limit.Remaining}},
				func(r rate) []string { return []string{itoa(r.Limit), itoa(r.Remaining)} })
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
