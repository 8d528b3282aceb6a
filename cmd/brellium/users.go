package main

import (
	"context"
	"errors"
	"iter"
	"strings"

	"github.com/spf13/cobra"

	"github.com/brellium/brellium-go"
)

func newUsersList(a *app) *cobra.Command {
	return listPeople(a, "List the users of the organization", "USER",
		func(ctx context.Context, c *brellium.Client) iter.Seq2[*brellium.User, error] {
			return c.Users.All(ctx, brellium.UserListParams{Limit: 100})
		},
		func(u *brellium.User) []string { return []string{u.UserID, u.Email, u.Name} })
}

func newUsersInvite(a *app) *cobra.Command {
	return a.createPeople(&cobra.Command{
		Use:   "invite FILE.csv",
		Short: "Invite the users in a CSV file",
		Long: `Invites each user in a CSV file and prints the result of each: done, existed
or failed. Nobody is invited twice, so the command can be run again.

` + peopleFileHelp,
	}, func(ctx context.Context, client *brellium.Client, p person) (bool, error) {
		params := brellium.UserCreateParams{Email: p.Email, Name: p.Name}
		_, err := client.Users.Create(ctx, params)
		existed, resolve := created(err, brellium.CodeInvitationPending, brellium.CodeUserExists)
		switch {
		case existed:
			return true, nil
		case resolve:
			_, err = client.Users.Ensure(ctx, params)
		}
		return false, err
	})
}

func newUsersRemove(a *app) *cobra.Command {
	var yes, asJSON bool
	type result struct {
		User   string `json:"user"`
		Result string `json:"result"`
	}
	cmd := &cobra.Command{
		Use:   "remove ID|EMAIL…",
		Short: "Remove users and revoke their access",
		Long:  `Removes users and revokes their access. It asks first.`,
		Args:  some,
		RunE: func(cmd *cobra.Command, args []string) error {
			args = unique(args)
			client, err := a.client()
			if err != nil {
				return err
			}
			if err := a.confirm(cmd.Context(), "Remove "+count(len(args), "user")+" and revoke their access?", yes); err != nil {
				return err
			}
			a.resume = "Run the same command again to remove the rest."
			results := make([]result, len(args))
			removed := 0
			for i, arg := range args {
				results[i] = result{arg, "not started"}
				if err != nil {
					continue
				}
				id := arg
				if strings.Contains(arg, "@") {
					id, err = userWithEmail(cmd, client, arg)
				}
				if id != "" && err == nil {
					err = client.Users.Delete(cmd.Context(), id)
				}
				switch {
				case id == "" && err == nil, errors.Is(err, brellium.ErrNotFound):
					results[i].Result, err = "not found", nil
				case err != nil:
					results[i].Result = "failed"
				default:
					results[i].Result = "removed"
					removed++
				}
			}
			printErr := rows(a.output, asJSON, []string{"USER", "RESULT"}, results, func(r result) []string { return []string{r.User, r.Result} })
			switch {
			case err != nil:
				return err
			case removed < len(args):
				return partial("%d of %s not found.", len(args)-removed, count(len(args), "user"))
			}
			return printErr
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON lines")
	return cmd
}

// userWithEmail returns the id of the user with an address, empty if there is
// none.
func userWithEmail(cmd *cobra.Command, client *brellium.Client, email string) (string, error) {
	for user, err := range client.Users.All(cmd.Context(), brellium.UserListParams{Email: email, Limit: 100}) {
		if err != nil {
			return "", err
		}
		if strings.EqualFold(user.Email, email) { // whether the API filters is assumed
			return user.UserID, nil
		}
	}
	return "", nil
}
