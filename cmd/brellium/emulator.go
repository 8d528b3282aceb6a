package main

import (
	"flag"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/brellium/brellium-go/brelliumtest/emulate"
)

func newEmulator(a *app) *cobra.Command {
	flags := flag.NewFlagSet("emulator", flag.ContinueOnError)
	settings := emulate.NewSettings(flags)
	cmd := &cobra.Command{
		Use:   "emulator",
		Short: "Serve an emulated API on this computer",
		Long: `Serves an emulated Brellium v2 API until it is interrupted, and prints how to use
it. All data is synthetic and in memory.`,
		Args: none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			running := false
			err := settings.Serve(cmd.Context(), a, func(s emulate.Server) {
				running = true
				fmt.Fprintf(a.out, "export BRELLIUM_BASE_URL=%s\nexport BRELLIUM_CLIENT_ID=%s\nexport BRELLIUM_CLIENT_SECRET=%s\n", s.URL, s.ClientID, s.ClientSecret)
				if s.Certificate != "" {
					fmt.Fprintf(a.out, "export SSL_CERT_FILE=%s\n", s.Certificate)
				}
				a.note("The emulator is running. Set these variables in another terminal; press Ctrl-C here to stop it.")
			})
			if err != nil && !running {
				return usage("%s", sentence(err.Error()))
			}
			return err
		},
	}
	cmd.Flags().AddGoFlagSet(flags)
	return cmd
}
