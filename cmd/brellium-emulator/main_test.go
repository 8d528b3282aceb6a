package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

// start runs the command, and returns the values that it prints, the rest of its
// output, which comes when it has ended, and its standard error.
func start(t *testing.T, args ...string) (values map[string]string, stop func() (rest, stderr string)) {
	t.Helper()
	ctx, interrupt := context.WithCancel(t.Context())
	out, w := io.Pipe()
	var stderr bytes.Buffer
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, append([]string{"-addr", "127.0.0.1:0"}, args...), w, &stderr)
		w.Close()
	}()
	lines := bufio.NewReader(out)
	values = map[string]string{}
	for {
		text, err := lines.ReadString('\n')
		require.NoError(t, err)
		name, value, found := strings.Cut(strings.TrimSuffix(text, "\n"), "=")
		if !found {
			break
		}
		values[name] = value
	}
	rest := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(lines)
		rest <- string(text)
	}()
	stopped := false
	stop = func() (string, string) {
		stopped = true
		interrupt()
		require.NoError(t, <-ended)
		return <-rest, stderr.String()
	}
	t.Cleanup(func() {
		if !stopped {
			stop()
		}
	})
	return values, stop
}

func TestRunPrintsCredentialsAndServesUntilInterrupted(t *testing.T) {
	values, stop := start(t, "-seed-audits", "3", "-latency", "1ms", "-client-id", "my-id", "-client-secret", "my-secret", "-log")
	base := values["base_url"]
	assert.Equal(t, map[string]string{"client_id": "my-id", "client_secret": "my-secret", "base_url": base}, values)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Post(base+"/v2/oauth/token?secret=marker", "application/json",
		strings.NewReader(`{"grant_type":"client_credentials","client_id":"my-id","client_secret":"my-secret"}`))
	require.NoError(t, err)
	resp.Body.Close()
	assert.Equal(t, http.StatusOK, resp.StatusCode)

	text, log := stop()
	assert.Contains(t, text, base+"/v2/oauth/token -H 'Content-Type: application/json'")
	assert.Contains(t, text, brelliumtest.SampleAuditID)
	assert.Contains(t, log, "method=POST path=/v2/oauth/token status=200 request_id="+resp.Header.Get("X-Request-Id"))
	assert.NotContains(t, log, "secret")
	_, err = client.Get(base)
	require.Error(t, err, "the port is closed")
}

// trusting returns a client of the command that trusts a certificate.
func trusting(t *testing.T, values map[string]string, certificate string) *brellium.Client {
	t.Helper()
	pem, err := os.ReadFile(certificate)
	require.NoError(t, err)
	transport := brellium.DefaultTransport()
	transport.TLSClientConfig.RootCAs = x509.NewCertPool()
	require.True(t, transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem))
	t.Cleanup(transport.CloseIdleConnections)
	client, err := brellium.NewClient(brellium.WithHTTPClient(&http.Client{Transport: transport}),
		brellium.WithBaseURL(values["base_url"]), brellium.WithClientCredentials(values["client_id"], values["client_secret"]))
	require.NoError(t, err)
	return client
}

func TestRunServesHTTPS(t *testing.T) {
	values, stop := start(t, "-tls")
	path := values["certificate"]
	client := trusting(t, values, path)
	audits, err := client.Audits.List(t.Context(), brellium.AuditListParams{})
	require.NoError(t, err)
	assert.NotEmpty(t, audits.Data)
	_, err = client.Documents.Upload(t.Context(), []brellium.UploadFile{brellium.FileFromBytes("a.pdf", []byte("content"))}, brellium.UploadOptions{})
	require.NoError(t, err, "upload URLs are https too, at another name of this machine")
	text, _ := stop()
	assert.Contains(t, text, "curl --cacert "+path+" -s https://")
	assert.Contains(t, text, "SSL_CERT_FILE="+path)
	_, err = os.Stat(path)
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestRunServesHTTPSWithACertificateOfTheCaller(t *testing.T) {
	server := httptest.NewTLSServer(nil) // for its certificate
	server.Close()
	pair := server.TLS.Certificates[0]
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	require.NoError(t, err)
	dir := t.TempDir()
	certificate, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	require.NoError(t, os.WriteFile(certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}), 0o600))
	require.NoError(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600))
	values, stop := start(t, "-cert", certificate, "-key", key)
	assert.Equal(t, certificate, values["certificate"])
	_, err = trusting(t, values, certificate).Audits.Retrieve(t.Context(), brelliumtest.SampleAuditID)
	require.NoError(t, err)
	stop()
	assert.FileExists(t, certificate)
}

func TestRunInjectsFaults(t *testing.T) {
	values, _ := start(t, "-storage-url", "http://files.example.test:1", "-fault", "audits.retrieve=503,code=UNAVAILABLE,times=2,delay=1ms",
		"-fault", "audits.retrieve=truncated", "-fault", "users.list=429,retry-after=7", "-fault", "users.create=drop-after", "-fault", "audits.list=500,chance=1")
	client, err := brellium.NewClient(brellium.WithBaseURL(values["base_url"]), brellium.WithClientCredentials(values["client_id"], values["client_secret"]),
		brellium.WithMaxRetries(0), brellium.WithoutRateLimiter())
	require.NoError(t, err)
	for _, status := range []int{503, 503, 0, 200} {
		var resp brellium.Response
		_, err := client.Audits.Retrieve(t.Context(), brelliumtest.SampleAuditID, brellium.WithResponseInto(&resp))
		assert.Equal(t, status == 200, err == nil)
		if status > 200 {
			assert.Equal(t, status, resp.StatusCode)
			assert.ErrorContains(t, err, "UNAVAILABLE")
		}
	}
	var e *brellium.APIError
	_, err = client.Users.List(t.Context(), brellium.UserListParams{})
	require.ErrorAs(t, err, &e)
	assert.Equal(t, 7*time.Second, e.RetryAfter)
	_, err = client.Users.Create(t.Context(), brellium.UserCreateParams{Email: "casey@example.test"})
	assert.True(t, brellium.OutcomeUnknown(err))
	for range 3 {
		_, err = client.Audits.List(t.Context(), brellium.AuditListParams{})
		assert.Error(t, err)
	}
	created, err := client.Documents.Create(t.Context(), brellium.DocumentCreateParams{Documents: []brellium.DocumentInput{{Filename: "a.pdf", DocType: "note"}}})
	require.NoError(t, err)
	assert.Contains(t, created.Documents[0].UploadURL.Reveal(), "http://files.example.test:1/")
}

func TestRunRejectsInvalidFlags(t *testing.T) {
	for _, args := range [][]string{
		{"-audits", "-1"}, {"-burst", "0"}, {"-rate", "0"}, {"-client-id", "x"}, {"-latency", "-1s"},
		{"-audits", "2000000"}, {"-burst", "2000000"}, {"-rate", "NaN"}, {"-rate", "1e9"}, {"-token-lifetime", "-1s"}, {"-list-lag", "-1s"},
		{"-nothing"}, {"extra"}, {"-addr", "127.0.0.1:99999"},
		{"-cert", "x"}, {"-key", "x"}, {"-cert", "no-file", "-key", "no-file", "-addr", "127.0.0.1:0"},
		{"-fault", "nothing=503"}, {"-fault", "users.create"}, {"-fault", "users.create=odd"}, {"-fault", "users.create=99"},
		{"-fault", "users.create=503,times=0"}, {"-fault", "users.create=503,times=x"}, {"-fault", "users.create=503,chance=2"},
		{"-fault", "users.create=503,delay=x"}, {"-fault", "users.create=503,odd=1"},
	} {
		var out, errOut bytes.Buffer
		require.Error(t, run(t.Context(), args, &out, &errOut), args)
		assert.Empty(t, out.String())
	}
}
