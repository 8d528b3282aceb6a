package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

// alteration changes a response of the emulator.
type alteration func(req *http.Request, resp *httptest.ResponseRecorder)

// TestDoctorNamesTheDifference runs the doctor against emulators that each
// differ in one way from what is assumed.
func TestDoctorNamesTheDifference(t *testing.T) {
	rename := func(old, new string) alteration {
		return func(_ *http.Request, resp *httptest.ResponseRecorder) {
			resp.Body = bytes.NewBuffer(bytes.ReplaceAll(resp.Body.Bytes(), []byte(`"`+old+`":`), []byte(`"`+new+`":`)))
		}
	}
	for _, test := range []struct {
		name  string
		alter alteration
		with  func(*brelliumtest.Emulator)
		env   []string // replaces the variables of the emulator
		serve func(*testing.T, http.Handler) []string
		lines []string // that the output must have
		code  int
	}{
		{
			name: "a list under another key",
			alter: func(req *http.Request, resp *httptest.ResponseRecorder) {
				if req.URL.Path == "/v2/audits" {
					rename("data", "audits")(req, resp)
				}
			},
			lines: []string{"✗ AuditList.data: missing; fields here that are not described: audits (array) (audits.list)"},
			code:  exitPartial,
		},
		{
			name:  "ids renamed",
			alter: rename("user_id", "id"),
			lines: []string{"✗ User.user_id: missing; fields here that are not described: id (string) (users.list)"},
			code:  exitPartial,
		},
		{
			name: "a header missing",
			alter: func(_ *http.Request, resp *httptest.ResponseRecorder) {
				delete(resp.Header(), "RateLimit-Reset") // the emulator writes it in this case
			},
			lines: []string{"✗ header RateLimit-Reset: missing (audits.list, audits.retrieve, documents.list, documents.retrieve, users.list, users.retrieve, email_recipients.list, email_recipients.retrieve)"},
			code:  exitPartial,
		},
		{
			name: "an enum value more",
			alter: func(_ *http.Request, resp *httptest.ResponseRecorder) {
				resp.Body = bytes.NewBuffer(bytes.ReplaceAll(resp.Body.Bytes(), []byte(`"status":"complete"`), []byte(`"status":"secret_new_status"`)))
			},
			lines: []string{
				"! Audit.status: a value other than todo, processing, in_progress, error, complete (audits.list, audits.retrieve)",
				"! Document.status: a value other than todo, in_progress, error, complete (documents.list, documents.retrieve)",
			},
			code: exitPartial,
		},
		{
			name: "times in another form",
			alter: func(_ *http.Request, resp *httptest.ResponseRecorder) {
				var v any
				if json.Unmarshal(resp.Body.Bytes(), &v) == nil {
					data, _ := json.Marshal(changeTimes(v))
					resp.Body = bytes.NewBuffer(data)
				}
			},
			lines: []string{`✗ Audit.timestamp: a time in the form "99/99/9999 99:99" instead of RFC 3339 (audits.list, audits.retrieve)`},
			code:  exitPartial,
		},
		{
			name: "a wrong clock",
			alter: func(_ *http.Request, resp *httptest.ResponseRecorder) {
				resp.Header().Set("Date", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
			},
			lines: []string{"✗ Clock: this computer is 1h0m"},
			code:  exitPartial,
		},
		{
			name:  "a proxy with login",
			serve: proxyWithLogin,
			lines: []string{"✗ Proxy: requires a login (HTTP 407); put the user and the password into HTTPS_PROXY"},
			code:  exitPartial,
		},
		{
			name:  "an expired certificate",
			serve: certificate(time.Date(2020, 1, 31, 0, 0, 0, 0, time.UTC), true),
			lines: []string{"✗ TLS: the certificate expired on 2020-01-31; check the clock of this computer too"},
			code:  exitPartial,
		},
		{
			name:  "revoked credentials",
			env:   []string{"BRELLIUM_CLIENT_SECRET=revoked"},
			lines: []string{"✗ Credentials: rejected (HTTP 401 invalid_client); they are wrong or were revoked"},
			code:  exitCredentials,
		},
		{
			name:  "a bare 403",
			with:  func(e *brelliumtest.Emulator) { e.Inject(brelliumtest.OpDocumentList, brelliumtest.Blocked()) },
			lines: []string{"✗ documents.list: blocked before it reached the API (a 403 without JSON); the doctor stops here, wait some minutes"},
			code:  exitBlocked,
		},
		{
			name:  "a half-empty bucket",
			with:  func(e *brelliumtest.Emulator) { e.SetRemaining(50) },
			lines: []string{"! Rate limit: 49 of 100 requests remain: others are using the organization's limit"},
			code:  exitDone,
		},
		{
			name: "an unknown required filter",
			alter: func(req *http.Request, resp *httptest.ResponseRecorder) {
				if req.URL.Path == "/v2/audits" && !req.URL.Query().Has("organization_id") {
					resp.Code = http.StatusBadRequest
					resp.Body = bytes.NewBufferString(`{"error":{"type":"invalid_request_error","code":"MISSING_PARAMETER","message":"organization_id is required for Clinic 4711 and jane_secretpatient","request_id":"r"}}`)
				}
			},
			lines: []string{"✗ audits.list: HTTP 400 MISSING_PARAMETER; the request may need a parameter that is not described; the message names organization_id"},
			code:  exitPartial,
		},
		{
			name:  "an empty bucket",
			with:  func(e *brelliumtest.Emulator) { e.SetRateLimit(100, 0.001); e.SetRemaining(0) },
			lines: []string{"✗ audits.list: rate limited (HTTP 429); nothing remains of the organization's limit, try again later"},
			code:  exitRateLimited,
		},
		{
			name: "new fields",
			alter: func(_ *http.Request, resp *httptest.ResponseRecorder) {
				resp.Body = bytes.NewBuffer(bytes.ReplaceAll(resp.Body.Bytes(), []byte(`"reviewed_by":`), []byte(`"priority":3,"Maria Muster":[],"mariamuster":[],"reviewed_by":`)))
			},
			lines: []string{"! Audit: fields that are not described: a field whose name is not shown (array), priority (integer)"},
			code:  exitDone,
		},
		{
			name:  "an unknown authority",
			serve: certificate(time.Now().AddDate(1, 0, 0), false),
			lines: []string{"✗ TLS: the certificate was issued by an authority that this computer does not trust; a proxy may inspect the connection"},
			code:  exitPartial,
		},
		{
			name:  "a certificate that expires soon",
			serve: certificate(time.Now().Add(24*time.Hour), true),
			lines: []string{"! TLS: TLS 1.3, 1 certificate, valid until " + time.Now().Add(24*time.Hour).UTC().Format(time.DateOnly) + ", which is soon"},
			code:  exitDone,
		},
		{name: "nothing", code: exitDone},
		{
			name:  "nothing, over TLS",
			serve: certificate(time.Date(2100, 1, 31, 0, 0, 0, 0, time.UTC), true),
			lines: []string{"✓ TLS: TLS 1.3, 1 certificate, valid until 2100-01-31"},
			code:  exitDone,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			emulator := brelliumtest.New(brelliumtest.WithAuditDelay(0), brelliumtest.WithRateLimit(100, 0.001)) // nothing refills while it runs
			emulator.SeedAudits(30)
			require.NoError(t, seed(t.Context(), emulator))
			emulator.SetRemaining(100)
			emulator.ClearRequests()
			if test.with != nil {
				test.with(emulator)
			}
			handler := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				resp := httptest.NewRecorder()
				emulator.Handler().ServeHTTP(resp, req)
				if test.alter != nil {
					test.alter(req, resp)
				}
				resp.Header().Del("Content-Length")
				for name, values := range resp.Header() {
					w.Header()[name] = values
				}
				w.WriteHeader(resp.Code)
				_, _ = w.Write(resp.Body.Bytes())
			})
			var env []string
			if test.serve != nil {
				env = test.serve(t, handler)
			} else {
				server := httptest.NewServer(handler)
				t.Cleanup(server.Close)
				env = []string{"BRELLIUM_BASE_URL=" + server.URL}
			}
			env = append(env, "BRELLIUM_CLIENT_ID="+emulator.ClientID, "BRELLIUM_CLIENT_SECRET="+emulator.ClientSecret)
			out, report, code := runDoctor(t, append(env, test.env...))

			assert.Equal(t, test.code, code, out)
			for _, line := range test.lines {
				assert.Equal(t, 1, strings.Count(out, line), "%s\n%s", line, out)
				assert.Contains(t, report, line)
			}
			for line := range strings.Lines(out) {
				if strings.HasPrefix(line, "✗") || strings.HasPrefix(line, "! ") && !strings.Contains(line, "see below") {
					expected := false
					for _, want := range test.lines {
						expected = expected || strings.HasPrefix(line, want)
					}
					assert.True(t, expected, "an unexpected line: %s", line)
				}
			}
			assert.LessOrEqual(t, emulator.Count(brelliumtest.OpAny), maxRequests)
			if strings.HasPrefix(test.name, "nothing") {
				assert.Contains(t, out, " held, 0 differ, ")
			}
			for _, private := range []string{emulator.ClientID, emulator.ClientSecret, "example", "127.0.0.1", "secret_new_status", "4711", "Maria", "emulator-token",
				emulator.AuditIDs()[0], emulator.Documents()[0].DocumentID, emulator.Users()[0].UserID, "Casey", "note.txt"} {
				assert.NotContains(t, report, private)
			}
		})
	}
}

// runDoctor runs the command and returns its output, its report and its exit
// code.
func runDoctor(t *testing.T, env []string) (out, report string, code int) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "report.txt")
	cmd := exec.CommandContext(t.Context(), "brellium", "doctor", "--report", path)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, env...)
	stdout, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		require.NoError(t, err)
	}
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(stdout), string(data), code
}

// changeTimes writes every RFC 3339 time in another form.
func changeTimes(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if key == "timestamp" {
				v[key] = "31/01/2026 08:00"
			} else {
				v[key] = changeTimes(value)
			}
		}
	case []any:
		for i := range v {
			v[i] = changeTimes(v[i])
		}
	}
	return v
}

// proxyWithLogin serves a proxy that asks for a password.
func proxyWithLogin(t *testing.T, _ http.Handler) []string {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Proxy-Authenticate", `Basic realm="clinic"`)
		w.WriteHeader(http.StatusProxyAuthRequired)
	}))
	t.Cleanup(proxy.Close)
	return []string{"BRELLIUM_BASE_URL=https://api.brellium.test", "HTTPS_PROXY=" + proxy.URL}
}

// certificate serves the handler over TLS with a certificate that expires at
// this time.
func certificate(notAfter time.Time, trusted bool) func(*testing.T, http.Handler) []string {
	return func(t *testing.T, handler http.Handler) []string {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		template := &x509.Certificate{
			SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "example"}, IsCA: true, BasicConstraintsValid: true,
			NotBefore: time.Date(2019, 1, 31, 0, 0, 0, 0, time.UTC), NotAfter: notAfter,
			IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		}
		der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
		require.NoError(t, err)
		server := httptest.NewUnstartedServer(handler)
		server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		server.StartTLS()
		t.Cleanup(server.Close)
		env := []string{"BRELLIUM_BASE_URL=" + server.URL}
		if trusted {
			file := filepath.Join(t.TempDir(), "ca.pem")
			require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
			env = append(env, "SSL_CERT_FILE="+file)
		}
		return env
	}
}

func TestDoctorSendsNoMoreThanItsLimit(t *testing.T) {
	r := newRecorder()
	r.next = brelliumtest.New().Transport()
	for i := range maxRequests + 1 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, brelliumtest.InProcessURL+"/v2/audits", nil)
		require.NoError(t, err)
		resp, err := r.RoundTrip(req)
		if i < maxRequests {
			require.NoError(t, err)
			resp.Body.Close()
		} else {
			require.ErrorIs(t, err, brellium.ErrDoNotSend)
		}
	}
	assert.Equal(t, maxRequests, r.requests)
}
