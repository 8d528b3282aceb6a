package main

import (
	"bytes"
	"encoding/json"

	"github.com/spf13/cobra"
)

func newAuditsGet(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "get ID…",
		Short: "Print audits as JSON",
		Args:  some,
		RunE: func(cmd *cobra.Command, ids []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			for _, id := range ids {
				audit, err := client.Audits.Retrieve(cmd.Context(), id)
				if err != nil {
					return err
				}
				var buf bytes.Buffer
				if a.tty {
					err = json.Indent(&buf, audit.RawJSON(), "", "  ")
				} else {
					err = json.Compact(&buf, audit.RawJSON())
				}
				if err != nil {
					return err
				}
				buf.WriteByte('\n')
				if _, err := buf.WriteTo(a.out); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
