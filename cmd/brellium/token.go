package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/brellium/brellium-go"
)

func newToken(a *app) *cobra.Command {
	var reveal bool
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Mint an access token",
		Long: `Mints an access token and prints its type and expiry. With --reveal it prints the
token itself, alone on standard output. Whoever has it can act for the
organization until it expires.`,
		Args: none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			token, err := client.OAuth.CreateToken(cmd.Context())
			if invalid := (*brellium.ValidationError)(nil); errors.As(err, &invalid) {
				return usage("A fixed access token is in use, so none can be minted; use a client id and secret instead.")
			}
			if err != nil {
				return err
			}
			if reveal {
				_, err = fmt.Fprintln(a.out, token.Reveal())
				return err
			}
			return a.table([]string{"TYPE", "EXPIRES"}, [][]string{{token.Type, token.ExpiresAt.UTC().Format(time.RFC3339)}})
		},
	}
	cmd.Flags().BoolVar(&reveal, "reveal", false, "print the token")
	return cmd
}
