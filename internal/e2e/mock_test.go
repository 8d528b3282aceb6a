package e2e_test

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"testing"

	"github.com/jarcoal/httpmock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
	"github.com/brellium/brellium-go/internal/testkit"
)

// mocked reports whether a call of client reaches the mock. The server of real
// returns an audit with another status.
func mocked(t *testing.T, client *brellium.Client) bool {
	t.Helper()
	httpmock.RegisterResponder("GET", `=~/v2/audits/`, httpmock.NewStringResponder(200, testkit.SampleAudit[:len(testkit.SampleAudit)-1]+`,"status":"mock"}`))
	audit, err := client.Audits.Retrieve(t.Context(), brelliumtest.SampleAuditID, brellium.WithMaxRetries(0))
	require.NoError(t, err)
	return audit.Status == "mock"
}

// jarcoal/httpmock#22, jarcoal/httpmock#76, jarcoal/httpmock#88, jarcoal/httpmock#89,
// jarcoal/httpmock#107, jarcoal/httpmock#154
func TestMockIsUsedInEveryOrder(t *testing.T) {
	server, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, testkit.SampleAudit) }, nil)
	options := func(hc *http.Client) []brellium.ClientOption {
		opts := []brellium.ClientOption{brellium.WithBaseURL(server.URL), brellium.WithoutRateLimiter()}
		if hc != nil {
			opts = append(opts, brellium.WithHTTPClient(hc))
		}
		return opts
	}
	for name, hc := range map[string]*http.Client{
		"no http.Client": nil, "http.DefaultClient": http.DefaultClient, "without a transport": {}, "with a transport": {Transport: newTransport(t, nil)},
	} {
		for how, activate := range map[string]func(){
			"Activate":           func() { httpmock.Activate() },
			"ActivateNonDefault": func() { httpmock.ActivateNonDefault(hc) },
		} {
			nonDefault := how == "ActivateNonDefault"
			if hc == nil && nonDefault {
				continue
			}
			intercepted := nonDefault || hc == nil || hc.Transport == nil
			t.Run(name+", "+how, func(t *testing.T) {
				defer httpmock.DeactivateAndReset()
				before := testkit.NewTokenClient(t, options(hc)...)
				assert.False(t, mocked(t, before))
				activate()
				during := testkit.NewTokenClient(t, options(hc)...)
				derived, err := before.With(brellium.WithMaxRetries(1))
				require.NoError(t, err)
				for _, client := range []*brellium.Client{before, during, derived} {
					assert.Equal(t, intercepted, mocked(t, client))
				}
				httpmock.DeactivateAndReset()
				for _, client := range []*brellium.Client{before, during, derived} {
					assert.False(t, mocked(t, client))
				}
			})
		}
	}
}

// For example a tracer, or a transport with a company's certificates.
func TestReplacedDefaultTransportIsUsedAtEachAttempt(t *testing.T) {
	server, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, testkit.SampleAudit) }, nil)
	client := testkit.NewTokenClient(t, brellium.WithBaseURL(server.URL), brellium.WithoutRateLimiter())
	original := http.DefaultTransport
	defer func() { http.DefaultTransport = original }()
	company := original.(*http.Transport).Clone()
	defer company.CloseIdleConnections()
	proxied := 0
	company.Proxy = func(*http.Request) (*url.URL, error) { proxied++; return nil, nil }

	for _, test := range []struct {
		transport http.RoundTripper
		proxied   int
	}{{company, 1}, {original, 1}, {nil, 1}, {testkit.RoundTripFunc(company.RoundTrip), 2}} {
		http.DefaultTransport = test.transport
		require.NoError(t, testkit.Retrieve(context.Background(), client))
		assert.Equal(t, test.proxied, proxied)
	}
}

// DefaultTransport returns a transport of one's own each time.
func TestDefaultTransportIsACopy(t *testing.T) {
	first, second := brellium.DefaultTransport(), brellium.DefaultTransport()
	assert.NotSame(t, first, second)
	assert.NotSame(t, first.TLSClientConfig, second.TLSClientConfig)
	assert.Equal(t, first.MaxIdleConnsPerHost, second.MaxIdleConnsPerHost)
}
