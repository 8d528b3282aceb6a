// Command brellium-emulator serves an emulated Brellium v2 API on a port, for
// curl and for clients in any language.
//
// It prints its credentials and base URL, one per line, and how to use them
// with curl. It runs until it is interrupted. All data is synthetic and in
// memory.
//
// Usage:
//
//	brellium-emulator [-addr 127.0.0.1:8080] [-seed-audits 250] [flags]
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
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
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
		audits        = flags.Int("seed-audits", 250, "`number` of synthetic audits besides the guide's sample")
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
		storageURL    = flags.String("storage-url", "", "scheme and host of upload URLs, such as http://files.example.test:8080 (default this server)")
		logging       = flags.Bool("log", false, "log each request to standard error")
		secure        = flags.Bool("tls", false, "serve HTTPS, with a certificate of its own unless -cert and -key are set")
		cert          = flags.String("cert", "", "`file` of the certificate, for HTTPS")
		key           = flags.String("key", "", "`file` of the certificate's key")
		faults        []func(*brelliumtest.Emulator)
	)
	flags.Func("fault", "make an `operation=failure` happen, such as audits.retrieve=503,times=2", func(text string) error {
		operation, fault, err := brelliumtest.ParseFault(text)
		faults = append(faults, func(e *brelliumtest.Emulator) { e.Inject(operation, fault) })
		return err
	})
	flags.IntVar(audits, "audits", *audits, "the same as -seed-audits")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if *audits < 0 || *latency < 0 || *burst < 1 || *rate <= 0 {
		return errors.New("-seed-audits and -latency must not be negative, -burst and -rate must be positive")
	}
	if (*clientID == "") != (*clientSecret == "") {
		return errors.New("-client-id and -client-secret must be set together")
	}
	if (*cert == "") != (*key == "") {
		return errors.New("-cert and -key must be set together")
	}

	opts := []brelliumtest.Option{
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
	if *storageURL != "" {
		opts = append(opts, brelliumtest.WithStorageURL(*storageURL))
	}
	emu := brelliumtest.New(opts...)
	emu.SeedAudits(*audits)
	for _, inject := range faults {
		inject(emu)
	}

	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", *addr)
	if err != nil {
		return err
	}
	defer listener.Close()
	base, curl, certificate := "http://"+reachable(listener.Addr()), "curl", ""
	server := emu.Server()
	if *logging {
		server.Handler = logged(server.Handler, stderr)
	}
	if *secure || *cert != "" {
		base = "https://" + reachable(listener.Addr())
		if certificate = *cert; certificate == "" {
			server.TLSConfig, certificate, err = ownCertificate(*addr, *storageURL)
			defer func() { _ = os.Remove(certificate) }()
		} else {
			var pair tls.Certificate
			pair, err = tls.LoadX509KeyPair(*cert, *key)
			server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
		}
		if err != nil {
			return err
		}
		curl += " --cacert " + certificate
	}

	fmt.Fprintf(stdout, "client_id=%s\n", emu.ClientID)
	fmt.Fprintf(stdout, "client_secret=%s\n", emu.ClientSecret)
	fmt.Fprintf(stdout, "base_url=%s\n", base)
	environment := fmt.Sprintf("BRELLIUM_BASE_URL=%s BRELLIUM_CLIENT_ID=%s BRELLIUM_CLIENT_SECRET=%s", base, emu.ClientID, emu.ClientSecret)
	if certificate != "" {
		fmt.Fprintf(stdout, "certificate=%s\n", certificate)
		environment += " SSL_CERT_FILE=" + certificate
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
`, base, emu.ClientID, emu.ClientSecret, brelliumtest.SampleAuditID, curl, environment)

	defer context.AfterFunc(ctx, func() { server.Close() })()
	if certificate == "" {
		err = server.Serve(listener)
	} else {
		err = server.ServeTLS(listener, "", "")
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// reachable is the host and port of this machine at which a listener is reached.
func reachable(addr net.Addr) string {
	host, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return addr.String()
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// logged logs the requests of h, without their queries, headers and bodies.
func logged(h http.Handler, w io.Writer) http.Handler {
	logger := slog.New(slog.NewTextHandler(w, nil))
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		begun, status := time.Now(), &statusWriter{ResponseWriter: rw}
		defer func() { // also where a fault drops the connection, which has no status
			logger.Info("request", "method", r.Method, "path", r.URL.EscapedPath(), "status", status.status,
				"request_id", rw.Header().Get("X-Request-Id"), "duration", time.Since(begun).Round(time.Microsecond))
		}()
		h.ServeHTTP(status, r)
	})
}

type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for [http.ResponseController].
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
