package main

import (
	"github.com/spf13/cobra"

	"github.com/brellium/brellium-go"
)

func newRecipientsList(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the email recipients",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := a.client()
			if err != nil {
				return err
			}
			recipients, err := brellium.Collect(client.EmailRecipients.All(cmd.Context(), brellium.EmailRecipientListParams{Limit: 100}))
			printErr := rows(a.output, asJSON, []string{"RECIPIENT", "EMAIL", "NAME"}, recipients,
				func(r *brellium.EmailRecipient) []string { return []string{r.EmailRecipientID, r.Email, r.Name} })
			if err != nil {
				return err
			}
			return printErr
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON lines")
	return cmd
}

func newRecipientsAdd(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "add FILE.csv",
		Short: "Add the email recipients in a CSV file",
		Long: `Adds each email recipient in a CSV file and prints the result of each: done,
existed or failed. Nobody is added twice, so the command can be run again.

` + peopleFileHelp,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			people, err := readPeople(args[0])
			if err != nil {
				return err
			}
			client, err := a.client()
			if err != nil {
				return err
			}
			return a.addPeople(cmd.Context(), people, asJSON, func(p person) (bool, error) {
				params := brellium.EmailRecipientCreateParams{Email: p.Email, Name: p.Name}
				_, err := client.EmailRecipients.Create(cmd.Context(), params)
				existed, resolve := created(err, brellium.CodeEmailRecipientExists)
				switch {
				case existed:
					return true, nil
				case resolve:
					_, err = client.EmailRecipients.Ensure(cmd.Context(), params)
				}
				return false, err
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON lines")
	return cmd
}
