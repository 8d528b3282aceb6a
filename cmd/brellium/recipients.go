package main

import (
	"context"
	"iter"

	"github.com/spf13/cobra"

	"github.com/brellium/brellium-go"
)

func newRecipientsList(a *app) *cobra.Command {
	return listPeople(a, "List the email recipients", "RECIPIENT",
		func(ctx context.Context, c *brellium.Client) iter.Seq2[*brellium.EmailRecipient, error] {
			return c.EmailRecipients.All(ctx, brellium.EmailRecipientListParams{Limit: 100})
		},
		func(r *brellium.EmailRecipient) []string { return []string{r.EmailRecipientID, r.Email, r.Name} })
}

func newRecipientsAdd(a *app) *cobra.Command {
	return a.createPeople(&cobra.Command{
		Use:   "add FILE.csv",
		Short: "Add the email recipients in a CSV file",
		Long: `Adds each email recipient in a CSV file and prints the result of each: done,
existed or failed. Nobody is added twice, so the command can be run again.

` + peopleFileHelp,
	}, func(ctx context.Context, client *brellium.Client, p person) (bool, error) {
		params := brellium.EmailRecipientCreateParams{Email: p.Email, Name: p.Name}
		_, err := client.EmailRecipients.Create(ctx, params)
		existed, resolve := created(err, brellium.CodeEmailRecipientExists)
		switch {
		case existed:
			return true, nil
		case resolve:
			_, err = client.EmailRecipients.Ensure(ctx, params)
		}
		return false, err
	})
}
