package brellium_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
	"github.com/brellium/brellium-go/internal/testkit"
)

// 1Password/connect-sdk-go#73, supabase/terraform-provider-supabase#292
func TestCredentialsAreTrimmed(t *testing.T) {
	withoutEnvironment(t)
	check := func(t *testing.T, opts ...brellium.ClientOption) {
		emu := brelliumtest.New(brelliumtest.WithCredentials("id-1", "s3cret"))
		client, err := brellium.NewClient(append(opts, testkit.WithTransport(emu.Transport()), brellium.WithBaseURL(" "+emu.BaseURL()+"\n"))...)
		require.NoError(t, err)
		require.NoError(t, testkit.Retrieve(t.Context(), client))
		requests := emu.Requests(brelliumtest.OpTokenCreate)
		require.Len(t, requests, 1)
		assert.JSONEq(t, `{"grant_type":"client_credentials","client_id":"id-1","client_secret":"s3cret"}`, string(requests[0].Body))
	}
	t.Run("options", func(t *testing.T) { check(t, brellium.WithClientCredentials("id-1\n", " s3cret\r\n")) })
	t.Run("environment", func(t *testing.T) {
		t.Setenv("BRELLIUM_CLIENT_ID", "id-1\n")
		t.Setenv("BRELLIUM_CLIENT_SECRET", "\ts3cret \r\n")
		check(t)
	})
	for name, value := range map[string]string{"newline": "s3c\nret", "null": "s3c\x00ret", "beyond ASCII": "s3cr\u00e9t", "delete": "s3c\x7fret"} {
		t.Run(name, func(t *testing.T) {
			_, err := brellium.NewClient(brellium.WithClientCredentials("id-1", value))
			testkit.IsInvalid(t, err, "WithClientCredentials", "s3c")
			_, err = brellium.NewClient(brellium.WithClientCredentials(value, "x"))
			testkit.IsInvalid(t, err, "WithClientCredentials", "s3c")
			_, err = brellium.NewClient(brellium.WithAccessToken(value))
			testkit.IsInvalid(t, err, "WithAccessToken", "s3c")
		})
	}
}

func TestCredentialsComeFromOptionsOrTheEnvironment(t *testing.T) {
	emu := brelliumtest.New()
	token := func(t *testing.T, opts ...brellium.ClientOption) (string, error) {
		client, err := brellium.NewClient(append(opts, testkit.WithTransport(emu.Transport()), brellium.WithBaseURL(emu.BaseURL()))...)
		if err != nil {
			return "", err
		}
		emu.ClearRequests()
		_ = testkit.Retrieve(t.Context(), client)
		return emu.Requests(brelliumtest.OpAuditRetrieve)[0].Token, nil
	}
	withoutEnvironment(t)
	_, err := token(t)
	testkit.IsInvalid(t, err, "credentials", "")
	assert.ErrorContains(t, err, "brellium: no credentials: use WithClientCredentials or WithAccessToken, or set BRELLIUM_CLIENT_ID")
	_, err = token(t, brellium.WithAccessToken("x"), brellium.WithClientCredentials("id", "secret"))
	testkit.IsInvalid(t, err, "WithAccessToken", "secret")
	_, err = token(t, brellium.WithClientCredentials("", "secret"))
	testkit.IsInvalid(t, err, "WithClientCredentials", "secret")
	_, err = token(t, brellium.WithClientCredentials("id", " "))
	testkit.IsInvalid(t, err, "WithClientCredentials", "")

	t.Setenv("BRELLIUM_CLIENT_ID", emu.ClientID)
	_, err = token(t)
	testkit.IsInvalid(t, err, "BRELLIUM_CLIENT_SECRET", "")
	t.Setenv("BRELLIUM_CLIENT_SECRET", emu.ClientSecret)
	got, err := token(t)
	require.NoError(t, err)
	assert.Contains(t, got, "emulator-token-")
	t.Setenv("BRELLIUM_ACCESS_TOKEN", "from-the-environment")
	got, err = token(t)
	require.NoError(t, err)
	assert.Equal(t, "from-the-environment", got, "a token overrides the pair")
	got, err = token(t, brellium.WithClientCredentials(emu.ClientID, emu.ClientSecret))
	require.NoError(t, err)
	assert.Contains(t, got, "emulator-token-", "options override the environment")
	t.Setenv("BRELLIUM_ACCESS_TOKEN", "two\nlines")
	_, err = token(t)
	testkit.IsInvalid(t, err, "BRELLIUM_ACCESS_TOKEN", "two")
}

// cohere-ai/cohere-go#105, slok/goresilience#34, modelcontextprotocol/go-sdk#256
func TestRetriesCanBeDisabled(t *testing.T) {
	down := brelliumtest.Status(503, "UNAVAILABLE").Forever()
	check := func(t *testing.T, emu *brelliumtest.Emulator, err error) {
		assert.Equal(t, 1, emu.Count(brelliumtest.OpAuditRetrieve))
		testkit.IsAPIError(503, "UNAVAILABLE")(t, err)
		var exhausted *brellium.RetriesExhaustedError
		assert.False(t, errors.As(err, &exhausted), "the failure itself")
	}
	testkit.Bubble(t, "client", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAny, brelliumtest.OK(), down)
		check(t, emu, testkit.Retrieve(t.Context(), client))
	}, brellium.WithMaxRetries(0))
	testkit.Bubble(t, "call", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAny, brelliumtest.OK(), down)
		check(t, emu, testkit.Retrieve(t.Context(), client, brellium.WithMaxRetries(0)))
	}, brellium.WithMaxRetries(4))
	testkit.Bubble(t, "429", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAuditRetrieve, testkit.RateLimited("1").Forever())
		testkit.IsAPIError(429, brellium.CodeRateLimited)(t, testkit.Retrieve(t.Context(), client, brellium.WithMaxRetries(0)))
		assert.Equal(t, 1, emu.Count(brelliumtest.OpAuditRetrieve))
	})
	testkit.Bubble(t, "401 is still replayed", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(401, "UNAUTHORIZED"))
		require.NoError(t, testkit.Retrieve(t.Context(), client, brellium.WithMaxRetries(0)))
		assert.Equal(t, 2, emu.Count(brelliumtest.OpAuditRetrieve))
	})
	testkit.Bubble(t, "call over client", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpAuditRetrieve, down)
		require.Error(t, testkit.Retrieve(t.Context(), client, brellium.WithMaxRetries(2)))
		assert.Equal(t, 3, emu.Count(brelliumtest.OpAuditRetrieve))
	}, brellium.WithMaxRetries(0))
	_, err := brellium.NewClient(brellium.WithAccessToken("t"), brellium.WithMaxRetries(-1))
	testkit.IsInvalid(t, err, "WithMaxRetries", "")
	testkit.Bubble(t, "negative", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		for field, opt := range map[string]brellium.Option{
			"WithMaxRetries": brellium.WithMaxRetries(-1), "WithAttemptTimeout": brellium.WithAttemptTimeout(-1), "WithTotalTimeout": brellium.WithTotalTimeout(-time.Hour),
		} {
			testkit.IsInvalid(t, testkit.Retrieve(t.Context(), client, opt), field, "")
		}
		assert.Zero(t, emu.Count(brelliumtest.OpAny))
	})
}

// stackitcloud/stackit-sdk-go#236, TencentAd/marketing-api-go-sdk#5
func TestGivenHTTPClientIsNotChanged(t *testing.T) {
	emu := brelliumtest.New()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	used := map[string]int{}
	own := &http.Client{
		Timeout: time.Minute, Jar: jar,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
			used[r.Method+" "+r.URL.Host]++
			return emu.Transport().RoundTrip(r)
		}),
	}
	before, ownBefore := *http.DefaultClient, *own
	transportBefore := http.DefaultTransport
	settings := http.DefaultTransport.(*http.Transport).Clone()

	client := testkit.NewClient(t, emu, brellium.WithHTTPClient(own))
	_, err = emu.Client(brellium.WithHTTPClient(http.DefaultClient))
	require.NoError(t, err)
	require.NoError(t, testkit.Retrieve(t.Context(), client))
	_, err = client.Documents.Upload(t.Context(), []brellium.UploadFile{brellium.FileFromBytes("a.pdf", []byte("%PDF"))}, brellium.UploadOptions{})
	require.NoError(t, err)
	assert.Equal(t, map[string]int{"POST api.brellium.test": 2, "GET api.brellium.test": 1, "PUT storage.brellium.test": 1}, used,
		"the token, the call, the batch and the upload all go through it")
	assert.Equal(t, before, *http.DefaultClient)
	assert.Same(t, transportBefore, http.DefaultTransport)
	after := http.DefaultTransport.(*http.Transport).Clone()
	assert.Equal(t, settings.MaxIdleConnsPerHost, after.MaxIdleConnsPerHost)
	assert.Equal(t, settings.TLSHandshakeTimeout, after.TLSHandshakeTimeout)
	assert.Equal(t, ownBefore.Timeout, own.Timeout)
	assert.Same(t, ownBefore.Jar, own.Jar)
	assert.NotNil(t, own.CheckRedirect)
	assert.NotNil(t, own.Transport)
	assert.Empty(t, jar.Cookies(&url.URL{Scheme: "https", Host: "api.brellium.test"}))
}

func TestHTTPClientTimeoutLimitsAnAttempt(t *testing.T) {
	for name, tc := range map[string]struct {
		client, option, want time.Duration
	}{
		"shorter": {client: time.Second, option: 5 * time.Second, want: time.Second},
		"longer":  {client: time.Minute, option: 5 * time.Second, want: 5 * time.Second},
		"alone":   {client: 2 * time.Second, option: 0, want: 2 * time.Second},
	} {
		testkit.Bubble(t, name, func(t *testing.T, emu *brelliumtest.Emulator, _ *brellium.Client) {
			client := testkit.NewClient(t, emu, brellium.WithAttemptTimeout(tc.option), brellium.WithHTTPClient(&http.Client{Transport: emu.Transport(), Timeout: tc.client}))
			emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.StallHeaders(0))
			var resp brellium.Response
			require.Error(t, testkit.Retrieve(t.Context(), client, brellium.WithMaxRetries(0), brellium.WithResponseInto(&resp)))
			assert.Equal(t, tc.want, resp.Attempts[0].Duration)
		})
	}
}

// hiddenWrapper is one that does not show what it wraps.
type hiddenWrapper struct{ inner http.RoundTripper }

func (h hiddenWrapper) RoundTrip(r *http.Request) (*http.Response, error) {
	return h.inner.RoundTrip(r)
}

func TestRetryingTransportIsRejected(t *testing.T) {
	retrying := retryablehttp.NewClient().StandardClient()
	_, err := brellium.NewClient(brellium.WithAccessToken("t"), brellium.WithHTTPClient(retrying))
	testkit.IsInvalid(t, err, "WithHTTPClient", "")
	assert.Contains(t, err.Error(), "multiply")
	for _, rt := range []http.RoundTripper{nil, http.DefaultTransport, hiddenWrapper{http.DefaultTransport}} {
		_, err := brellium.NewClient(brellium.WithAccessToken("t"), testkit.WithTransport(rt))
		assert.NoError(t, err)
	}
}

func TestInvalidOptionIsNamed(t *testing.T) {
	withoutEnvironment(t)
	var noTransport *http.Transport
	var noStore *brellium.MemoryTokenStore
	var noLimiter *brellium.AdaptiveLimiter
	var noObserver brellium.ObserverFunc
	limiter := new(brellium.AdaptiveLimiter)
	for _, tc := range []struct {
		field string
		opts  []brellium.ClientOption
	}{
		{"ClientOption", []brellium.ClientOption{nil}},
		{"WithHTTPClient", []brellium.ClientOption{brellium.WithHTTPClient(nil)}},
		{"WithHTTPClient", []brellium.ClientOption{testkit.WithTransport(noTransport)}},
		{"WithUserAgent", []brellium.ClientOption{brellium.WithUserAgent(" ")}},
		{"WithUserAgent", []brellium.ClientOption{brellium.WithUserAgent("a\nb")}},
		{"WithTokenStore", []brellium.ClientOption{brellium.WithTokenStore(nil)}},
		{"WithTokenStore", []brellium.ClientOption{brellium.WithTokenStore(noStore)}},
		{"WithTokenStore", []brellium.ClientOption{brellium.WithTokenStore(brellium.NewMemoryTokenStore())}}, // with a fixed token
		{"WithRateLimiter", []brellium.ClientOption{brellium.WithRateLimiter(nil)}},
		{"WithRateLimiter", []brellium.ClientOption{brellium.WithRateLimiter(noLimiter)}},
		{"WithRateLimit", []brellium.ClientOption{brellium.WithRateLimit(0, 1)}},
		{"WithRateLimit", []brellium.ClientOption{brellium.WithRateLimit(1, 0)}},
		{"WithRateLimit", []brellium.ClientOption{brellium.WithRateLimit(1, math.NaN())}},
		{"WithRateLimit", []brellium.ClientOption{brellium.WithRateLimit(1, math.Inf(1))}},
		{"WithRateLimit", []brellium.ClientOption{brellium.WithRateLimiter(limiter), brellium.WithRateLimit(1, 1)}},
		{"WithoutRateLimiter", []brellium.ClientOption{brellium.WithRateLimit(1, 1), brellium.WithoutRateLimiter()}},
		{"WithRateLimiter", []brellium.ClientOption{brellium.WithoutRateLimiter(), brellium.WithRateLimiter(limiter)}},
		{"WithMaxConcurrency", []brellium.ClientOption{brellium.WithMaxConcurrency(0)}},
		{"WithMaxConcurrency", []brellium.ClientOption{brellium.WithMaxConcurrency(-1)}},
		{"WithBlockCooldown", []brellium.ClientOption{brellium.WithBlockCooldown(-1)}},
		{"WithLogger", []brellium.ClientOption{brellium.WithLogger(nil)}},
		{"WithObserver", []brellium.ClientOption{brellium.WithObserver(nil)}},
		{"WithObserver", []brellium.ClientOption{brellium.WithObserver(noObserver)}},
		{"WithMaxRetries", []brellium.ClientOption{brellium.WithMaxRetries(-1)}},
		{"WithAttemptTimeout", []brellium.ClientOption{brellium.WithAttemptTimeout(-1)}},
		{"WithTotalTimeout", []brellium.ClientOption{brellium.WithTotalTimeout(-1)}},
	} {
		client, err := brellium.NewClient(append([]brellium.ClientOption{brellium.WithAccessToken("t")}, tc.opts...)...)
		assert.Nil(t, client)
		testkit.IsInvalid(t, err, tc.field, "")
	}
	for _, opts := range [][]brellium.ClientOption{
		{brellium.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil))), brellium.WithMaxConcurrency(math.MaxInt32), brellium.WithBlockCooldown(0)},
		{brellium.WithRateLimit(1, 1), brellium.WithRateLimit(2, 2)}, // the last one applies
		{brellium.WithAttemptTimeout(0), brellium.WithTotalTimeout(0), brellium.WithMaxRetries(math.MaxInt)},
	} {
		_, err := brellium.NewClient(append([]brellium.ClientOption{brellium.WithAccessToken("t")}, opts...)...)
		assert.NoError(t, err)
	}
}

// openai/openai-go#134, buildkite/go-buildkite#250, tursodatabase/libsql-client-ts#356
func TestBaseURLMayHaveAPath(t *testing.T) {
	for _, base := range []string{"https://gw.example.test/brellium", "https://gw.example.test/brellium/", "https://gw.example.test/brellium//"} {
		emu := brelliumtest.New(brelliumtest.WithBasePath("/brellium"))
		client := testkit.NewClient(t, emu, brellium.WithBaseURL(base))
		_, err := client.Audits.List(t.Context(), brellium.AuditListParams{})
		require.NoError(t, err)
		var paths []string
		for _, r := range emu.Requests() {
			assert.Equal(t, "gw.example.test", r.Host)
			paths = append(paths, r.Path)
		}
		assert.Equal(t, []string{"/brellium/v2/oauth/token", "/brellium/v2/audits"}, paths)
	}
	client := testkit.NewStubClient(t, func(r *http.Request) (*http.Response, error) {
		assert.Equal(t, "/a%2Fb%20c/v2/audits/x%2Fy", r.URL.EscapedPath())
		return testkit.Reply(200, nil, `{"audit_id":"x/y"}`), nil
	}, brellium.WithBaseURL("https://gw.example.test/a%2Fb%20c"))
	_, err := client.Audits.Retrieve(t.Context(), "x/y")
	require.NoError(t, err)
}

func TestInvalidBaseURLIsRejected(t *testing.T) {
	withoutEnvironment(t)
	for _, base := range []string{"", " ", "api.brellium.com", "/v2", "ftp://api.example.test", "https://", "https:///v2", "https:api.example.test",
		"https://user:s3cret@api.example.test", "https://api.example.test?key=s3cret", "https://api.example.test?", "https://api.example.test/#s3cret", "https://api.example.test/#",
		"http://api.example.test", "http://10.0.0.1", "http://127.0.0.1.example.test", "http://localhost.example.test",
		"http://localhost.", "http://evil.localhost", "http://0.0.0.0", "http://[::ffff:8.8.8.8]", "http://2130706433", "http://127.1", "http://[::1%25lo]", "http://localhoſt", "//127.0.0.1", "https://user@api.example.test", "https://@api.example.test", "https://api.example.test/../x", "https://api.example.test/./x",
		"https://api.example.test/v2", "https://api.example.test/gateway/v2//", "https://api.example.test:port", "https://[::1", "https://api.example.test/%zz", "https://api example.test"} {
		_, err := brellium.NewClient(brellium.WithAccessToken("t"), brellium.WithBaseURL(base))
		testkit.IsInvalid(t, err, "WithBaseURL", "s3cret")
		if strings.TrimSpace(base) != "" {
			t.Setenv("BRELLIUM_BASE_URL", base)
			_, err = brellium.NewClient(brellium.WithAccessToken("t"))
			testkit.IsInvalid(t, err, "BRELLIUM_BASE_URL", "s3cret")
			_, err = brellium.NewClient(brellium.WithAccessToken("t"), brellium.WithBaseURL("https://api.example.test"))
			assert.NoError(t, err, "options override the environment")
		}
	}
	for _, base := range []string{"https://api.example.test", "HTTPS://API.example.test:8443", "http://localhost:8080", "http://LOCALHOST", "http://127.0.0.1", "http://127.9.9.9:1", "http://[::1]:8080", "http://[::ffff:127.0.0.1]"} {
		_, err := brellium.NewClient(brellium.WithAccessToken("t"), brellium.WithBaseURL(base))
		assert.NoError(t, err, base)
	}
}

func TestNewClientSendsNothingAndStartsNoGoroutine(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request") }))
	defer server.Close()
	before := runtime.NumGoroutine()
	for range 50 {
		_, err := brellium.NewClient(brellium.WithClientCredentials("id", "secret"), brellium.WithBaseURL(server.URL),
			brellium.WithTokenStore(brellium.NewMemoryTokenStore()), brellium.WithMaxConcurrency(3),
			brellium.WithObserver(brellium.ObserverFunc(func(ctx context.Context, _ brellium.Event) context.Context { t.Error("an event"); return ctx })))
		require.NoError(t, err)
	}
	assert.LessOrEqual(t, runtime.NumGoroutine(), before)
}

// prometheus/common#125, DataDog/dd-trace-go#2418
func TestOptionsMayBeSharedBetweenGoroutines(t *testing.T) {
	emu := brelliumtest.New()
	shared := []brellium.ClientOption{
		brellium.WithMaxRetries(1), brellium.WithAttemptTimeout(time.Second), brellium.WithTotalTimeout(time.Minute), brellium.WithHeader("x-a", "b"),
		brellium.WithUserAgent(" clinic-sync/2.1 "), brellium.WithLogger(slog.New(slog.DiscardHandler)),
		brellium.WithObserver(brellium.ObserverFunc(func(ctx context.Context, _ brellium.Event) context.Context { return ctx })),
		brellium.WithoutServerMessages(),
	}
	all := append(shared[:len(shared):len(shared)], brellium.WithClientCredentials(emu.ClientID+"\n", emu.ClientSecret), brellium.WithBaseURL(emu.BaseURL()+" "),
		testkit.WithTransport(emu.Transport()), brellium.WithTokenStore(brellium.NewMemoryTokenStore()), brellium.WithRateLimit(10, 5),
		brellium.WithMaxConcurrency(3), brellium.WithBlockCooldown(time.Second))
	calls := []brellium.CallOption{brellium.WithMaxRetries(1), brellium.WithAttemptTimeout(time.Second), brellium.WithTotalTimeout(time.Minute),
		brellium.WithHeader("x-a", "b"), brellium.WithIdempotent()}
	testkit.Concurrently(t, 4, func(ctx context.Context, _ int) error {
		client, err := brellium.NewClient(all...)
		if err != nil {
			return err
		}
		derived, err := client.With(shared...)
		if err != nil {
			return err
		}
		for _, err := range derived.Audits.All(ctx, brellium.AuditListParams{}, append(calls, brellium.WithPrefetch())...) {
			if err != nil {
				return err
			}
		}
		return testkit.Retrieve(ctx, derived, calls...)
	})
	for _, r := range emu.Requests(brelliumtest.OpAuditRetrieve) {
		assert.True(t, strings.HasPrefix(r.Header.Get("User-Agent"), "clinic-sync/2.1 brellium-go/"))
	}
}

// lastRequest returns a client whose calls all get this 200, and what it sent last.
func lastRequest(t *testing.T, response string) (*brellium.Client, *url.Values, *string) {
	query, body := new(url.Values), new(string)
	return testkit.NewStubClient(t, func(r *http.Request) (*http.Response, error) {
		*query, *body = r.URL.Query(), ""
		if r.Body != nil {
			data, err := io.ReadAll(r.Body)
			if err != nil {
				return nil, err
			}
			*body = string(data)
		}
		return testkit.Reply(200, nil, response), nil
	}), query, body
}

func TestWithQueryAddsOrReplacesAParameter(t *testing.T) {
	ctx := t.Context()
	opts := []brellium.CallOption{brellium.WithQuery("page_size", "7"), brellium.WithQuery("flags", "a&b= é"), brellium.WithQuery("page_size", "8")}
	client, query, _ := lastRequest(t, `{"data":[],"has_more":false,"audit_id":"x","user_id":"x","documents":[{"document_id":"d"}]}`)
	_, err := client.Audits.List(ctx, brellium.AuditListParams{Flags: []string{"x", "y"}, SetID: "s", Cursor: "c"}, opts...)
	require.NoError(t, err)
	assert.Equal(t, url.Values{"page_size": {"8"}, "flags": {"a&b= é"}, "set_id": {"s"}, "cursor": {"c"}}, *query)
	added := url.Values{"page_size": {"8"}, "flags": {"a&b= é"}}
	for _, call := range []func() error{
		func() error { _, err := client.Audits.Retrieve(ctx, "x", opts...); return err },
		func() error {
			_, err := client.Users.Ensure(ctx, brellium.UserCreateParams{Email: ada}, opts...)
			return err
		},
		func() error { return client.Users.Delete(ctx, "x", opts...) },
		func() error { return client.Do(ctx, "GET", "/v2/x?flags=z", nil, nil, opts...) },
	} {
		*query = nil
		require.NoError(t, call())
		assert.Equal(t, added, *query)
	}
	for _, key := range []string{"", " ", "a b", "a=b", "a&b", "é", "cursor", "x\n", strings.Repeat("a", 65)} {
		testkit.IsInvalid(t, client.Do(ctx, "GET", "/v2/x", nil, nil, brellium.WithQuery(key, "s3cret")), "WithQuery", "s3cret")
	}
	testkit.IsInvalid(t, client.Do(ctx, "GET", "/v2/x", nil, nil, brellium.WithQuery("a", strings.Repeat("a", 2048))), "query", "aaaa")
}

func TestWithBodyFieldAddsAField(t *testing.T) {
	ctx := t.Context()
	opts := []brellium.CallOption{brellium.WithBodyField("team", map[string]int{"a": 1}), brellium.WithBodyField("role", nil)}
	client, _, body := lastRequest(t, `{"audit_id":"x","user_id":"u","updated_audit_ids":[],"documents":[{"document_id":"d","upload_url":null}]}`)
	for want, call := range map[string]func(opts ...brellium.CallOption) error{
		`{"email":"a@b","team":{"a":1},"role":null}`: func(opts ...brellium.CallOption) error {
			_, err := client.Users.Create(ctx, brellium.UserCreateParams{Email: "a@b"}, opts...)
			return err
		},
		`{"flags":[],"team":{"a":1},"role":null}`: func(opts ...brellium.CallOption) error {
			_, err := client.Audits.Update(ctx, "x", brellium.AuditUpdateParams{Flags: []string{}}, opts...)
			return err
		},
		`{"documents":[{"filename":"a.pdf"}],"team":{"a":1},"role":null}`: func(opts ...brellium.CallOption) error {
			_, err := client.Documents.Create(ctx, brellium.DocumentCreateParams{Documents: []brellium.DocumentInput{{Filename: "a.pdf"}}}, opts...)
			return err
		},
		`{"n":12345678901234567890,"team":{"a":1},"role":null}`: func(opts ...brellium.CallOption) error {
			return client.Do(ctx, "POST", "/v2/x", json.RawMessage(`{"n":12345678901234567890}`), nil, opts...)
		},
	} {
		require.NoError(t, call(opts...))
		assert.JSONEq(t, want, *body)
		assert.True(t, !strings.Contains(want, `"n"`) || strings.Contains(*body, "12345678901234567890"))
	}
	create := func(opt brellium.CallOption) error {
		_, err := client.Users.Create(ctx, brellium.UserCreateParams{Email: ada}, opt)
		return err
	}
	*body = "nothing sent"
	testkit.IsInvalid(t, create(brellium.WithBodyField("email", "s3cret")), "WithBodyField", "s3cret")
	testkit.IsInvalid(t, create(brellium.WithBodyField("team", make(chan int))), "WithBodyField", "")
	for _, name := range []string{"", "a b", "a.b", "é", strings.Repeat("a", 65)} {
		testkit.IsInvalid(t, create(brellium.WithBodyField(name, "s3cret")), "WithBodyField", "s3cret")
	}
	_, err := client.Audits.Retrieve(ctx, "x", opts...)
	testkit.IsInvalid(t, err, "WithBodyField", "")
	_, err = client.Audits.List(ctx, brellium.AuditListParams{}, opts...)
	testkit.IsInvalid(t, err, "WithBodyField", "")
	testkit.IsInvalid(t, client.Do(ctx, "POST", "/v2/x", []int{1}, nil, opts...), "WithBodyField", "")
	assert.Equal(t, "nothing sent", *body)

	// An Ensure adds it to its POST, and not to the lookup after a conflict.
	emu := brelliumtest.New()
	_, err = testkit.NewClient(t, emu).EmailRecipients.Create(ctx, brellium.EmailRecipientCreateParams{Email: ada})
	require.NoError(t, err)
	recipient, err := testkit.NewClient(t, emu).EmailRecipients.Ensure(ctx, brellium.EmailRecipientCreateParams{Email: ada}, brellium.WithBodyField("name", "n"))
	require.NoError(t, err)
	assert.Equal(t, ada, recipient.Email)
}

// Half of a surrogate pair is valid JSON, which decoders replace: two ids that
// differ in it become one. golang/go#16282, margince/margince#437
func TestTextThatWouldBeAlteredIsRejectedByName(t *testing.T) {
	ctx := t.Context()
	emu := brelliumtest.New()
	client := testkit.NewClient(t, emu)
	for _, text := range []string{`"\ud800"`, `"\uDFFF"`, `"\ud83d\ud83d\ude00"`, `["a\udc00"]`, `{"\ud800":1}`, `"\\\ud800"`, `"\ud800x\ude00"`, "\"\xff\""} {
		value := json.RawMessage(text)
		metadata := map[string]any{"visit": map[string]any{"id": value}}
		_, err := client.Documents.Create(ctx, brellium.DocumentCreateParams{Documents: []brellium.DocumentInput{{Filename: "a"}, {Filename: "b", ExternalMetadata: metadata}}})
		testkit.IsInvalid(t, err, "Documents[1].ExternalMetadata", text)
		file := brellium.FileFromBytes("a.pdf", nil)
		file.ExternalMetadata = metadata
		_, err = client.Documents.Upload(ctx, []brellium.UploadFile{file}, brellium.UploadOptions{})
		testkit.IsInvalid(t, err, "files[0].ExternalMetadata", text)
		_, err = client.Users.Create(ctx, brellium.UserCreateParams{Email: "a@b", Metadata: metadata})
		testkit.IsInvalid(t, err, "Metadata", text)
		testkit.IsInvalid(t, client.Do(ctx, "POST", "/v2/x", value, nil), "body", text)
		err = client.Do(ctx, "POST", "/v2/x", struct{}{}, nil, brellium.WithBodyField("team", value))
		testkit.IsInvalid(t, err, "WithBodyField", text)
		assert.Contains(t, err.Error(), "the value of team is invalid")
	}
	for _, text := range []string{"\xff", "a\nb", "a\x00", "\u0085", "\x7f"} {
		err := client.Do(ctx, "GET", "/v2/x", nil, nil, brellium.WithQuery("team", text))
		testkit.IsInvalid(t, err, "WithQuery", text)
		assert.Contains(t, err.Error(), "the value of team")
		if text != "\u0085" { // text in UTF-8, as far as a header is concerned
			testkit.IsInvalid(t, client.Do(ctx, "GET", "/v2/x", nil, nil, brellium.WithHeader("X-Team", text)), "WithHeader", text)
		}
	}
	assert.Zero(t, emu.Count(brelliumtest.OpAny))

	stub, _, body := lastRequest(t, `{"user_id":"u"}`)
	for _, text := range []string{`"\ud83d\ude00"`, `"\\ud800"`, `"\\\ud83d\uDE00\u00e9"`, `"\ud83d\ude00\ud83d\ude00"`, `"\\"`, `"a\nb"`} {
		require.NoError(t, stub.Do(ctx, "POST", "/v2/x", json.RawMessage(text), nil), text)
		assert.Equal(t, text, *body)
	}
}
