// Command brellium exports audits, uploads documents, manages users and email
// recipients, and checks the Brellium v2 API against the assumptions of
// brellium-go:
//
//	go install github.com/brellium/brellium-go/cmd/brellium@latest
//	brellium doctor
//
// It is described in docs/command.md of the repository.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// errSignal is the cause of a context that a signal ended.
var errSignal = errors.New("interrupted")

func main() {
	ctx, cancel := context.WithCancelCause(context.Background())
	a := &app{output: newOutput()}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		a.note("Stopping. Press Ctrl-C again to stop at once.")
		cancel(errSignal)
		<-signals
		os.Exit(exitInterrupted)
	}()
	err := newRoot(a).ExecuteContext(ctx)
	os.Exit(a.finish(ctx, err))
}

// app is what all commands share.
type app struct {
	*output
	credentials string // the file of --credentials
	debug       bool
	resume      string // says how to resume after an interruption
}

func newRoot(a *app) *cobra.Command {
	root := group("brellium", "Command line client of the Brellium v2 API", `Exports audits, uploads documents, manages users and email recipients, and
checks the API against the assumptions of brellium-go ("brellium doctor").

Credentials come from the environment (BRELLIUM_CLIENT_ID and
BRELLIUM_CLIENT_SECRET, or BRELLIUM_ACCESS_TOKEN) or from --credentials FILE.
BRELLIUM_BASE_URL replaces https://api.brellium.com.

Data goes to standard output, messages and progress to standard error. Tables,
colors and progress bars appear on a terminal only.

`+exitCodesHelp)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(flagError)
	root.SetOut(a.out)
	root.SetErr(a.err)
	flags := root.PersistentFlags()
	flags.StringVar(&a.credentials, "credentials", "", "read the credentials from `FILE`, with lines such as BRELLIUM_CLIENT_ID=…")
	flags.BoolVar(&a.debug, "debug", false, "log each request on standard error")

	audits := group("audits", "Export, read, flag and follow audits", "")
	audits.AddCommand(newAuditsExport(a), newAuditsGet(a), newAuditsFlag(a), newAuditsFollow(a))
	documents := group("documents", "Upload documents and check their status", "")
	documents.AddCommand(newDocumentsUpload(a), newDocumentsStatus(a), newDocumentsWait(a))
	users := group("users", "List, invite and remove users", "")
	users.AddCommand(newUsersList(a), newUsersInvite(a), newUsersRemove(a))
	recipients := group("recipients", "List and add email recipients", "")
	recipients.AddCommand(newRecipientsList(a), newRecipientsAdd(a))
	root.AddCommand(newDoctor(a), audits, documents, users, recipients,
		newRate(a), newToken(a), newEmulator(a), newVersion(a))
	plainBuiltins(root)
	return root
}

// group returns a command that only has subcommands.
func group(use, short, long string) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Long: long, Args: noCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
}
