// Command brellium-emulator serves an emulated Brellium v2 API on a port, for
// curl and for clients in any language.
//
// It prints its credentials and base URL, one per line, and how to use them
// with curl. It runs until it is interrupted. All data is synthetic and in
// memory.
//
// Usage:
//
//	brellium-emulator [-addr 127.0.0.1:8080] [-audits 250] [flags]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/brellium/brellium-go/brelliumtest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "brellium-emulator:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("brellium-emulator", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var (
		addr          = flags.String("addr", "127.0.0.1:8080", "`address` to listen on")
		audits        = flags.Int("audits", 250, "`number` of synthetic audits besides the guide's sample")
		latency       = flags.Duration("latency", 0, "mean round-trip `time`; each varies by up to 50 %")
		tokenLifetime = flags.Duration("token-lifetime", time.Hour, "how long an access token is valid")
		urlLifetime   = flags.Duration("upload-url-lifetime", 15*time.Minute, "how long an upload URL is valid")
		auditDelay    = flags.Duration("audit-delay", 2*time.Second, "time from the upload of a file to its audit")
		auditDuration = flags.Duration("audit-duration", 2*time.Second, "time from the creation of an audit to its completion")
		listLag       = flags.Duration("list-lag", 0, "how long a new email recipient is missing from lists")
		burst         = flags.Int("burst", 100, "rate limit: `requests` at once")
		rate          = flags.Float64("rate", 5, "rate limit: `requests` per second")
		clientID      = flags.String("client-id", "", "client `id` to accept (default a fixed one)")
		clientSecret  = flags.String("client-secret", "", "client `secret` to accept (default a fixed one)")
	)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if *audits < 0 || *latency < 0 || *burst < 1 || *rate <= 0 {
		return errors.New("-audits and -latency must not be negative, -burst and -rate must be positive")
	}
	if (*clientID == "") != (*clientSecret == "") {
		return errors.New("-client-id and -client-secret must be set together")
	}

	opts := []brelliumtest.Option{
		brelliumtest.WithAddr(*addr),
		brelliumtest.WithTokenLifetime(*tokenLifetime),
		brelliumtest.WithUploadURLLifetime(*urlLifetime),
		brelliumtest.WithAuditDelay(*auditDelay),
		brelliumtest.WithAuditDuration(*auditDuration),
		brelliumtest.WithListLag(*listLag),
		brelliumtest.WithRateLimit(*burst, *rate),
		brelliumtest.WithRecordLimit(0),
	}
	if *clientID != "" {
		opts = append(opts, brelliumtest.WithCredentials(*clientID, *clientSecret))
	}
	if *latency > 0 {
		opts = append(opts, brelliumtest.WithLatency(func(r *rand.Rand) time.Duration {
			return *latency/2 + time.Duration(r.Int64N(int64(*latency)))
		}))
	}
	emu := brelliumtest.New(opts...)
	emu.SeedAudits(*audits)
	if err := emu.Start(); err != nil {
		return err
	}
	defer emu.Close()

	fmt.Fprintf(stdout, "client_id=%s\n", emu.ClientID)
	fmt.Fprintf(stdout, "client_secret=%s\n", emu.ClientSecret)
	fmt.Fprintf(stdout, "base_url=%s\n", emu.URL)
	fmt.Fprintf(stdout, `
Get an access token and retrieve the guide's sample audit:

  TOKEN=$(curl -s %[1]s/v2/oauth/token -H 'Content-Type: application/json' \
    -d '{"grant_type":"client_credentials","client_id":"%[2]s","client_secret":"%[3]s"}' \
    | sed 's/.*"access_token":"\([^"]*\)".*/\1/')
  curl -i %[1]s/v2/audits/%[4]s -H "Authorization: Bearer $TOKEN"

For programs that call brellium.NewClient:

  export BRELLIUM_BASE_URL=%[1]s BRELLIUM_CLIENT_ID=%[2]s BRELLIUM_CLIENT_SECRET=%[3]s

Press Ctrl-C to stop.
`, emu.URL, emu.ClientID, emu.ClientSecret, brelliumtest.SampleAuditID)

	<-ctx.Done()
	return nil
}
