// Package emulate serves the emulator on a port, as set by the flags of a command:
// those of brellium-emulator and of "brellium emulator", which are the same.
package emulate

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
	"time"

	"github.com/brellium/brellium-go/brelliumtest"
)

// Settings are the values of the flags that [NewSettings] registers.
type Settings struct {
	addr, clientID, clientSecret, storageURL, cert, key string
	audits, burst                                       int
	rate                                                float64
	latency, tokenLifetime, urlLifetime                 time.Duration
	auditDelay, auditDuration, listLag                  time.Duration
	logging, secure                                     bool
	faults                                              []func(*brelliumtest.Emulator)
}

// Server is how a running emulator is reached.
type Server struct {
	// URL is its base URL.
	URL string
	// ClientID and ClientSecret are the credentials that it accepts.
	ClientID, ClientSecret string
	// Certificate is the file with the certificate to trust; it is empty without
	// HTTPS.
	Certificate string
}

// NewSettings registers the flags of an emulator, such as addr and fault. Parse
// flags before [Settings.Serve].
func NewSettings(flags *flag.FlagSet) *Settings {
	s := &Settings{}
	flags.StringVar(&s.addr, "addr", "127.0.0.1:8080", "`address` to listen on")
	flags.IntVar(&s.audits, "audits", 250, "`number` of synthetic audits besides the sample of the API's guide")
	flags.IntVar(&s.audits, "seed-audits", s.audits, "the same as --audits")
	flags.DurationVar(&s.latency, "latency", 0, "mean round-trip `time`; each varies by up to 50 %")
	flags.DurationVar(&s.tokenLifetime, "token-lifetime", time.Hour, "how long an access token is valid")
	flags.DurationVar(&s.urlLifetime, "upload-url-lifetime", 15*time.Minute, "how long an upload URL is valid")
	flags.DurationVar(&s.auditDelay, "audit-delay", 2*time.Second, "time from the upload of a file to its audit")
	flags.DurationVar(&s.auditDuration, "audit-duration", 2*time.Second, "time from the creation of an audit to its completion")
	flags.DurationVar(&s.listLag, "list-lag", 0, "how long a new email recipient is missing from lists")
	flags.IntVar(&s.burst, "burst", 100, "rate limit: `requests` at once")
	flags.Float64Var(&s.rate, "rate", 5, "rate limit: `requests` per second")
	flags.StringVar(&s.clientID, "client-id", "", "client `id` to accept (default a fixed one)")
	flags.StringVar(&s.clientSecret, "client-secret", "", "client `secret` to accept (default a fixed one)")
	flags.StringVar(&s.storageURL, "storage-url", "", "scheme and host of upload `URLs`, such as http://files.example.test:8080 (default this server)")
	flags.BoolVar(&s.logging, "log", false, "log each request to standard error")
	flags.BoolVar(&s.secure, "tls", false, "serve HTTPS, with a certificate of its own unless --cert and --key are set")
	flags.StringVar(&s.cert, "cert", "", "`file` of the certificate, for HTTPS")
	flags.StringVar(&s.key, "key", "", "`file` of the certificate's key")
	flags.Func("fault", "make an `operation=failure` happen, such as audits.retrieve=503,times=2; may be repeated", func(text string) error {
		operation, fault, err := brelliumtest.ParseFault(text)
		s.faults = append(s.faults, func(e *brelliumtest.Emulator) { e.Inject(operation, fault) })
		return err
	})
	return s
}

func (s *Settings) check() error {
	for name, d := range map[string]time.Duration{"latency": s.latency, "token-lifetime": s.tokenLifetime, "upload-url-lifetime": s.urlLifetime,
		"audit-delay": s.auditDelay, "audit-duration": s.auditDuration, "list-lag": s.listLag} {
		if d < 0 {
			return fmt.Errorf("--%s must not be negative", name)
		}
	}
	switch {
	case s.audits < 0 || s.audits > 1_000_000:
		return errors.New("--audits must be from 0 to 1000000")
	case s.burst < 1 || s.burst > 1_000_000:
		return errors.New("--burst must be from 1 to 1000000")
	case !(s.rate > 0 && s.rate <= 1_000_000): // neither is NaN
		return errors.New("--rate must be more than 0 and at most 1000000")
	case (s.clientID == "") != (s.clientSecret == ""):
		return errors.New("--client-id and --client-secret must be set together")
	case (s.cert == "") != (s.key == ""):
		return errors.New("--cert and --key must be set together")
	}
	return nil
}

// Serve serves an emulator until ctx ends, and then returns nil. It calls ready once
// when the emulator listens; an error before that is about a flag, which it names.
// If the flag log is set, each request is logged to log.
func (s *Settings) Serve(ctx context.Context, log io.Writer, ready func(Server)) error {
	if err := s.check(); err != nil {
		return err
	}
	opts := []brelliumtest.Option{
		brelliumtest.WithTokenLifetime(s.tokenLifetime),
		brelliumtest.WithUploadURLLifetime(s.urlLifetime),
		brelliumtest.WithAuditDelay(s.auditDelay),
		brelliumtest.WithAuditDuration(s.auditDuration),
		brelliumtest.WithListLag(s.listLag),
		brelliumtest.WithRateLimit(s.burst, s.rate),
		brelliumtest.WithRecordLimit(0),
	}
	if s.clientID != "" {
		opts = append(opts, brelliumtest.WithCredentials(s.clientID, s.clientSecret))
	}
	if s.latency > 0 {
		opts = append(opts, brelliumtest.WithLatency(func(r *rand.Rand) time.Duration {
			return s.latency/2 + time.Duration(r.Int64N(int64(s.latency)))
		}))
	}
	if s.storageURL != "" {
		opts = append(opts, brelliumtest.WithStorageURL(s.storageURL))
	}
	emulator := brelliumtest.New(opts...)
	emulator.SeedAudits(s.audits)
	for _, inject := range s.faults {
		inject(emulator)
	}

	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", s.addr)
	if err != nil {
		return fmt.Errorf("cannot listen on %s: the address is in use, or not one of this computer; choose another with --addr", s.addr)
	}
	defer listener.Close()
	server := emulator.Server()
	if s.logging {
		server.Handler = logged(server.Handler, log)
	}
	running := Server{URL: "http://" + reachable(listener.Addr()), ClientID: emulator.ClientID, ClientSecret: emulator.ClientSecret}
	if s.secure || s.cert != "" {
		running.URL = "https://" + reachable(listener.Addr())
		if running.Certificate = s.cert; s.cert == "" {
			server.TLSConfig, running.Certificate, err = ownCertificate(s.addr, s.storageURL)
			defer func() { _ = os.Remove(running.Certificate) }()
		} else {
			var pair tls.Certificate
			pair, err = tls.LoadX509KeyPair(s.cert, s.key)
			server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
		}
		if err != nil {
			return err
		}
	}
	ready(running)
	defer context.AfterFunc(ctx, func() { server.Close() })()
	if running.Certificate == "" {
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
