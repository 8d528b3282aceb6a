package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spf13/cobra"

	"github.com/brellium/brellium-go/brelliumtest"
)

func newEmulator(a *app) *cobra.Command {
	var (
		addr, clientID, clientSecret        string
		audits, burst                       int
		rate                                float64
		latency, tokenLifetime, urlLifetime time.Duration
		auditDelay, auditDuration, listLag  time.Duration
		storageURL                          string
		faults                              []string
	)
	cmd := &cobra.Command{
		Use:   "emulator",
		Short: "Serve an emulated API on this computer",
		Long: `Serves an emulated Brellium v2 API until it is interrupted, and prints how to use
it. All data is synthetic and in memory.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if audits < 0 || latency < 0 || burst < 1 || !(rate > 0) {
				return usage("--audits and --latency must not be negative, --burst and --rate must be positive.")
			}
			if (clientID == "") != (clientSecret == "") {
				return usage("--client-id and --client-secret must be set together.")
			}
			options := []brelliumtest.Option{
				brelliumtest.WithAddr(addr),
				brelliumtest.WithTokenLifetime(tokenLifetime),
				brelliumtest.WithUploadURLLifetime(urlLifetime),
				brelliumtest.WithAuditDelay(auditDelay),
				brelliumtest.WithAuditDuration(auditDuration),
				brelliumtest.WithListLag(listLag),
				brelliumtest.WithRateLimit(burst, rate),
				brelliumtest.WithRecordLimit(0),
			}
			if clientID != "" {
				options = append(options, brelliumtest.WithCredentials(clientID, clientSecret))
			}
			if latency > 0 {
				options = append(options, brelliumtest.WithLatency(func(r *rand.Rand) time.Duration {
					return latency/2 + time.Duration(r.Int64N(int64(latency)))
				}))
			}
			if storageURL != "" {
				options = append(options, brelliumtest.WithStorageURL(storageURL))
			}
			emulator := brelliumtest.New(options...)
			emulator.SeedAudits(audits)
			for _, text := range faults {
				operation, fault, err := brelliumtest.ParseFault(text)
				if err != nil {
					return usage("--fault: %v.", err)
				}
				emulator.Inject(operation, fault)
			}
			if err := emulator.Start(); err != nil {
				return usage("The emulator cannot listen on %s: the address is in use or not of this computer.", addr)
			}
			defer emulator.Close()
			fmt.Fprintf(a.out, "export BRELLIUM_BASE_URL=%s\nexport BRELLIUM_CLIENT_ID=%s\nexport BRELLIUM_CLIENT_SECRET=%s\n",
				emulator.URL, emulator.ClientID, emulator.ClientSecret)
			a.note("The emulator is running. Set these variables in another terminal; press Ctrl-C here to stop it.")
			<-cmd.Context().Done()
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&addr, "addr", "127.0.0.1:8080", "`address` to listen on")
	flags.IntVar(&audits, "audits", 250, "`number` of synthetic audits besides the sample of the API's guide")
	flags.DurationVar(&latency, "latency", 0, "mean round-trip `time`; each varies by up to 50 %")
	flags.DurationVar(&tokenLifetime, "token-lifetime", time.Hour, "how long an access token is valid")
	flags.DurationVar(&urlLifetime, "upload-url-lifetime", 15*time.Minute, "how long an upload URL is valid")
	flags.DurationVar(&auditDelay, "audit-delay", 2*time.Second, "time from the upload of a file to its audit")
	flags.DurationVar(&auditDuration, "audit-duration", 2*time.Second, "time from the creation of an audit to its completion")
	flags.StringVar(&storageURL, "storage-url", "", "scheme and host of upload `URLs` (default this server)")
	flags.StringArrayVar(&faults, "fault", nil, "make an `operation=failure` happen, such as audits.retrieve=503,times=2; may be repeated")
	flags.DurationVar(&listLag, "list-lag", 0, "how long a new email recipient is missing from lists")
	flags.IntVar(&burst, "burst", 100, "rate limit: `requests` at once")
	flags.Float64Var(&rate, "rate", 5, "rate limit: `requests` per second")
	flags.StringVar(&clientID, "client-id", "", "client `id` to accept (default a fixed one)")
	flags.StringVar(&clientSecret, "client-secret", "", "client `secret` to accept (default a fixed one)")
	return cmd
}
