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
//
// With -tls it serves HTTPS, over HTTP/2 too, with a certificate of its own. It
// prints the path of the certificate, for curl --cacert and SSL_CERT_FILE.
//
// -fault makes an operation fail, and may be repeated:
//
//	-fault audits.retrieve=503
//	-fault documents.put=503,code=SlowDown,times=3
//	-fault users.create=drop-after
//	-fault '*=429,retry-after=2,chance=0.1'
//
// The failure is a status, or blocked, drop-before, drop-after, invite-failed,
// never-sent, revoke-failed, revoked-token or truncated. It applies to one request,
// or to as many as times says; with chance, to that share of all requests.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/brellium/brellium-go/brelliumtest"
	"github.com/brellium/brellium-go/brelliumtest/emulate"
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
	settings := emulate.NewSettings(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return settings.Serve(ctx, stderr, func(s emulate.Server) { describe(stdout, s) })
}

// describe prints the credentials and how to use them.
func describe(stdout io.Writer, s emulate.Server) {
	fmt.Fprintf(stdout, "client_id=%s\n", s.ClientID)
	fmt.Fprintf(stdout, "client_secret=%s\n", s.ClientSecret)
	fmt.Fprintf(stdout, "base_url=%s\n", s.URL)
	curl, environment := "curl", fmt.Sprintf("BRELLIUM_BASE_URL=%s BRELLIUM_CLIENT_ID=%s BRELLIUM_CLIENT_SECRET=%s", s.URL, s.ClientID, s.ClientSecret)
	if s.Certificate != "" {
		fmt.Fprintf(stdout, "certificate=%s\n", s.Certificate)
		environment += " SSL_CERT_FILE=" + s.Certificate
		curl += " --cacert " + s.Certificate
	}
	fmt.Fprintf(stdout, `
Get an access token and retrieve the guide's sample audit:

  TOKEN=$(%[5]s -s %[1]s/v2/oauth/token -H 'Content-Type: application/json' \
    -d '{"grant_type":"client_credentials","client_id":"%[2]s","client_secret":"%[3]s"}' \
    | sed 's/.*"access_token":"\([^"]*\)".*/\1/')
  %[5]s -i %[1]s/v2/audits/%[4]s -H "Authorization: Bearer $TOKEN"

For programs that call brellium.NewClient:

  export %[6]s

Press Ctrl-C to stop.
`, s.URL, s.ClientID, s.ClientSecret, brelliumtest.SampleAuditID, curl, environment)
}
