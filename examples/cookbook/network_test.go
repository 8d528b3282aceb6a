package cookbook

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

// ThroughProxy sends everything through a proxy.
func ThroughProxy(proxy *url.URL) brellium.ClientOption {
	transport := brellium.DefaultTransport()
	transport.Proxy = http.ProxyURL(proxy)
	return brellium.WithHTTPClient(&http.Client{Transport: transport})
}

// Trusting trusts the certificate authorities of a PEM file, and those of the system.
func Trusting(file []byte) (brellium.ClientOption, error) {
	authorities, err := x509.SystemCertPool()
	if err != nil {
		return nil, err
	}
	if !authorities.AppendCertsFromPEM(file) {
		return nil, errors.New("the file has no certificate")
	}
	transport := brellium.DefaultTransport()
	transport.TLSClientConfig.RootCAs = authorities
	return brellium.WithHTTPClient(&http.Client{Transport: transport}), nil
}

// Timed is a transport of your own, below the retries: it sees every attempt, and
// also what is confidential.
type Timed struct {
	Base http.RoundTripper
	Took func(host string, d time.Duration)
}

// RoundTrip implements [http.RoundTripper]. It must not retry.
func (t Timed) RoundTrip(r *http.Request) (*http.Response, error) {
	start := time.Now()
	defer func() { t.Took(r.URL.Host, time.Since(start)) }()
	return t.Base.RoundTrip(r)
}

func credentials(emulator *brelliumtest.Emulator, baseURL string) []brellium.ClientOption {
	return []brellium.ClientOption{brellium.WithClientCredentials(emulator.ClientID, emulator.ClientSecret), brellium.WithBaseURL(baseURL)}
}

func TestThroughProxy(t *testing.T) {
	emulator := brelliumtest.New()
	var hosts []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hosts = append(hosts, r.URL.Host)
		emulator.Handler().ServeHTTP(w, r)
	}))
	defer proxy.Close()
	address, err := url.Parse(proxy.URL)
	require.NoError(t, err)
	client, err := brellium.NewClient(append(credentials(emulator, "http://localhost:8080"), ThroughProxy(address))...)
	require.NoError(t, err)
	_, err = client.Audits.Retrieve(t.Context(), brelliumtest.SampleAuditID)
	require.NoError(t, err)
	assert.Equal(t, []string{"localhost:8080", "localhost:8080"}, hosts)
}

func TestTrusting(t *testing.T) {
	emulator := brelliumtest.New()
	gateway := httptest.NewTLSServer(emulator.Handler())
	defer gateway.Close()
	_, err := Trusting([]byte("nothing"))
	require.Error(t, err)
	option, err := Trusting(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: gateway.Certificate().Raw}))
	require.NoError(t, err)
	client, err := brellium.NewClient(append(credentials(emulator, gateway.URL), option)...)
	require.NoError(t, err)
	_, err = client.Audits.Retrieve(t.Context(), brelliumtest.SampleAuditID)
	require.NoError(t, err)
}

func TestTimed(t *testing.T) {
	emulator := brelliumtest.New()
	attempts := 0
	transport := Timed{emulator.Transport(), func(string, time.Duration) { attempts++ }}
	client, err := emulator.Client(brellium.WithHTTPClient(&http.Client{Transport: transport}))
	require.NoError(t, err)
	_, err = client.Audits.Retrieve(t.Context(), brelliumtest.SampleAuditID)
	require.NoError(t, err)
	assert.Equal(t, 2, attempts, "the token and the audit")
}
