package brellium

import (
	"log/slog"
	"math"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

const (
	defaultBaseURL        = "https://api.brellium.com"
	defaultMaxRetries     = 4
	defaultAttemptTimeout = 30 * time.Second
	defaultTotalTimeout   = 60 * time.Second
	defaultBlockCooldown  = 30 * time.Second
)

// The environment variables that NewClient reads. BRELLIUM_ACCESS_TOKEN is
// the guide's; the other names are assumed.
const (
	envAccessToken  = "BRELLIUM_ACCESS_TOKEN"
	envClientID     = "BRELLIUM_CLIENT_ID"
	envClientSecret = "BRELLIUM_CLIENT_SECRET"
	envBaseURL      = "BRELLIUM_BASE_URL"
)

// ClientOption configures a Client. A wrong one is a ValidationError of
// NewClient that names it.
type ClientOption interface{ applyClient(*clientConfig) error }

// CallOption configures one call. A wrong one is a ValidationError of that
// call, which then sends nothing.
type CallOption interface{ applyCall(*callConfig) error }

// Option configures either a Client, as its default, or one call. On a call it
// wins over the client's.
type Option interface {
	ClientOption
	CallOption
}

// clientConfig collects what the options of NewClient said.
type clientConfig struct {
	clientID, clientSecret, accessToken secret

	baseURL       string
	httpClient    *http.Client
	userAgent     string
	tokenStore    TokenStore
	limiter       Limiter
	limiterOption string
	sem           int
	blockCooldown time.Duration
	logger        *slog.Logger
	observer      Observer
	policy        retryPolicy
}

// retryPolicy is how often and how long a call may try. The zero value of a client
// is not usable: NewClient fills in the defaults.
type retryPolicy struct {
	// maxRetries is the greatest number of repeats.
	maxRetries int
	// explicit is true where the caller set maxRetries, on the client or on
	// the call: it then counts refusals too.
	explicit bool
	// forced is true where the caller set maxRetries on the call itself: it
	// then counts for outcomes that are unknown as well.
	forced         bool
	attemptTimeout time.Duration
	totalTimeout   time.Duration
	// idleTimeout ends an attempt that stands still; 0 means never.
	idleTimeout time.Duration
}

// callConfig collects what the options of one call said, on top of the
// client's.
type callConfig struct {
	policy     retryPolicy
	response   *Response
	header     http.Header
	idempotent bool
	prefetch   bool
}

// callConfig reads the options of one call.
func (c *Client) callConfig(opts []CallOption) (callConfig, error) {
	cfg := callConfig{policy: c.policy}
	return cfg, cfg.apply(opts, false, false)
}

func (cfg *callConfig) apply(opts []CallOption, custom, all bool) error {
	for _, o := range opts {
		if o == nil {
			return &ValidationError{Field: "CallOption", Reason: "must not be nil"}
		}
		if err := o.applyCall(cfg); err != nil {
			return err
		}
	}
	if cfg.prefetch && !all {
		return &ValidationError{Field: "WithPrefetch", Reason: "is for the All methods, which read page after page"}
	}
	if cfg.idempotent && !custom {
		return &ValidationError{Field: "WithIdempotent", Reason: "is for Client.Do; every other method knows whether it may be repeated"}
	}
	return nil
}

type clientOption func(*clientConfig) error

func (o clientOption) applyClient(c *clientConfig) error {
	if o == nil {
		return &ValidationError{Field: "ClientOption", Reason: "must not be nil"}
	}
	return o(c)
}

type callOption func(*callConfig) error

func (o callOption) applyCall(c *callConfig) error {
	if o == nil {
		return &ValidationError{Field: "CallOption", Reason: "must not be nil"}
	}
	return o(c)
}

// policyOption serves the client and the call. onCall is true for the latter.
type policyOption func(t *retryPolicy, onCall bool) error

func (o policyOption) applyClient(c *clientConfig) error {
	if o == nil {
		return &ValidationError{Field: "Option", Reason: "must not be nil"}
	}
	return o(&c.policy, false)
}

func (o policyOption) applyCall(c *callConfig) error {
	if o == nil {
		return &ValidationError{Field: "Option", Reason: "must not be nil"}
	}
	return o(&c.policy, true)
}

// WithMaxRetries sets how often a call may be repeated after its first
// attempt, refusals (429) included. Without it a call is repeated up to 4
// times, and up to 9 times after refusals.
//
// On a client it never makes an operation repeat that could do harm
// (Users.Create, EmailRecipients.Create, and Documents.Create without an
// external id on every document): those are still sent again only after a
// refusal, or where it is certain that they never reached the server. On a
// call it is your word and counts for every outcome. 0 means no repeat; the
// one repeat with a new token after a 401 is not counted.
func WithMaxRetries(n int) Option {
	return policyOption(func(t *retryPolicy, onCall bool) error {
		if n < 0 {
			return &ValidationError{Field: "WithMaxRetries", Reason: "must not be negative"}
		}
		t.maxRetries, t.explicit, t.forced = n, true, onCall
		return nil
	})
}

// WithAttemptTimeout limits each attempt, from the moment it is sent to the
// last byte of its answer; the default is 30 s, and 0 means no limit. An
// attempt that runs out of time is repeated where that does no harm.
func WithAttemptTimeout(d time.Duration) Option {
	return policyOption(func(t *retryPolicy, _ bool) error {
		if d < 0 {
			return &ValidationError{Field: "WithAttemptTimeout", Reason: "must not be negative"}
		}
		t.attemptTimeout = d
		return nil
	})
}

// WithTotalTimeout limits a call with all its repeats and the waits between
// them, counted from its first attempt; the default is 60 s, and 0 means no
// limit. Waiting for the rate limit before the first attempt is not counted:
// use a context with a deadline to bound that.
func WithTotalTimeout(d time.Duration) Option {
	return policyOption(func(t *retryPolicy, _ bool) error {
		if d < 0 {
			return &ValidationError{Field: "WithTotalTimeout", Reason: "must not be negative"}
		}
		t.totalTimeout = d
		return nil
	})
}

// WithClientCredentials sets the key pair of your organization. White space
// around either is trimmed, since secrets read from files end in a newline.
func WithClientCredentials(id, secretValue string) ClientOption {
	return clientOption(func(c *clientConfig) error {
		var err error
		if c.clientID, err = newSecret("WithClientCredentials", "the client id", id); err != nil {
			return err
		}
		c.clientSecret, err = newSecret("WithClientCredentials", "the client secret", secretValue)
		return err
	})
}

// WithAccessToken sets a fixed access token instead of a key pair. The client
// cannot renew it: once the API answers 401, calls fail with an APIError.
func WithAccessToken(token string) ClientOption {
	return clientOption(func(c *clientConfig) error {
		var err error
		c.accessToken, err = newSecret("WithAccessToken", "the token", token)
		return err
	})
}

// WithBaseURL sets the address of the API, https://api.brellium.com by
// default. It may have a path, for a gateway. It must be https, or http to a
// loopback address, without user info, query or fragment.
func WithBaseURL(baseURL string) ClientOption {
	return clientOption(func(c *clientConfig) error {
		if strings.TrimSpace(baseURL) == "" {
			return &ValidationError{Field: "WithBaseURL", Reason: "must not be blank"}
		}
		c.baseURL = baseURL
		return nil
	})
}

// WithHTTPClient makes the client send everything (API calls, token requests
// and uploads) through hc's Transport, http.DefaultTransport where that is
// nil. hc itself is neither changed nor kept from other uses. Of its other
// fields, Timeout shortens the attempt timeout where it is the smaller;
// CheckRedirect and Jar play no part, since redirects are never followed and
// the API sets no cookies.
//
// A transport that repeats requests on its own is refused, since attempts
// would multiply.
func WithHTTPClient(hc *http.Client) ClientOption {
	return clientOption(func(c *clientConfig) error {
		if hc == nil {
			return &ValidationError{Field: "WithHTTPClient", Reason: "must not be nil"}
		}
		if hc.Timeout < 0 {
			return &ValidationError{Field: "WithHTTPClient", Reason: "its Timeout must not be negative"}
		}
		if isNil(hc.Transport) && hc.Transport != nil {
			return &ValidationError{Field: "WithHTTPClient", Reason: "its Transport is a nil pointer"}
		}
		if retries(hc.Transport) {
			return &ValidationError{Field: "WithHTTPClient",
				Reason: "its Transport repeats requests on its own (retryablehttp), so that attempts would multiply; give the transport below it, and set WithMaxRetries"}
		}
		c.httpClient = hc
		return nil
	})
}

// WithUserAgent puts text in front of the client's own User-Agent, as in
// "clinic-sync/2.1".
func WithUserAgent(text string) ClientOption {
	return clientOption(func(c *clientConfig) error {
		text = strings.TrimSpace(text)
		if text == "" || !validHeaderValue(text) {
			return &ValidationError{Field: "WithUserAgent", Reason: "must be text that fits a header"}
		}
		c.userAgent = text
		return nil
	})
}

// WithTokenStore shares access tokens with other clients through store, so
// that one of them mints while the others wait.
func WithTokenStore(store TokenStore) ClientOption {
	return clientOption(func(c *clientConfig) error {
		if isNil(store) {
			return &ValidationError{Field: "WithTokenStore", Reason: "must not be nil"}
		}
		c.tokenStore = store
		return nil
	})
}

// WithRateLimiter paces the client by l, which may serve other clients of the
// same organization too. Without any of WithRateLimiter, WithRateLimit and
// WithoutRateLimiter each client has an AdaptiveLimiter of its own.
func WithRateLimiter(l Limiter) ClientOption {
	return clientOption(func(c *clientConfig) error {
		if isNil(l) {
			return &ValidationError{Field: "WithRateLimiter", Reason: "must not be nil"}
		}
		return c.setLimiter("WithRateLimiter", l)
	})
}

// WithRateLimit paces the client by a fixed share of the organization's
// limit: a burst of at least 1 request, then perSecond. Use it where the
// organization also runs clients that do not yield; SplitRateLimit computes
// the shares.
func WithRateLimit(burst int, perSecond float64) ClientOption {
	return clientOption(func(c *clientConfig) error {
		l, err := NewFixedLimiter(burst, perSecond)
		if err != nil {
			return &ValidationError{Field: "WithRateLimit", Reason: "wants a burst of at least 1 and a finite rate above 0"}
		}
		return c.setLimiter("WithRateLimit", l)
	})
}

// WithoutRateLimiter sends attempts as they come. Refusals are still waited
// out, each call for itself.
func WithoutRateLimiter() ClientOption {
	return clientOption(func(c *clientConfig) error { return c.setLimiter("WithoutRateLimiter", nil) })
}

func (c *clientConfig) setLimiter(option string, l Limiter) error {
	if c.limiterOption != "" && c.limiterOption != option {
		return &ValidationError{Field: option, Reason: "contradicts " + c.limiterOption}
	}
	c.limiter, c.limiterOption = l, option
	return nil
}

// WithMaxConcurrency lets at most n attempts be under way at once, n being 1
// or more. Without it there is no bound but the rate limit.
func WithMaxConcurrency(n int) ClientOption {
	return clientOption(func(c *clientConfig) error {
		if n < 1 || n > math.MaxInt32 {
			return &ValidationError{Field: "WithMaxConcurrency", Reason: "must be 1 or more"}
		}
		c.sem = n
		return nil
	})
}

// WithBlockCooldown sets how long the client stops after the second bare 403
// in a row; the default is 30 s, doubling while the block lasts, up to 10
// minutes. 0 switches the stop off: calls then still go one at a time while a
// block lasts.
func WithBlockCooldown(d time.Duration) ClientOption {
	return clientOption(func(c *clientConfig) error {
		if d < 0 {
			return &ValidationError{Field: "WithBlockCooldown", Reason: "must not be negative"}
		}
		c.blockCooldown = d
		return nil
	})
}

// WithLogger writes a record for each attempt and each wait at level debug,
// and for each call given up at level warn. No record holds a token, a
// secret, an id, an address, a query or a body.
func WithLogger(l *slog.Logger) ClientOption {
	return clientOption(func(c *clientConfig) error {
		if l == nil {
			return &ValidationError{Field: "WithLogger", Reason: "must not be nil"}
		}
		c.logger = l
		return nil
	})
}

// WithObserver tells o what happens within calls; see Event.
func WithObserver(o Observer) ClientOption {
	return clientOption(func(c *clientConfig) error {
		if isNil(o) {
			return &ValidationError{Field: "WithObserver", Reason: "must not be nil"}
		}
		c.observer = o
		return nil
	})
}

// WithResponseInto fills r when the call ends, whether it succeeded or not.
func WithResponseInto(r *Response) CallOption {
	return callOption(func(c *callConfig) error {
		if r == nil {
			return &ValidationError{Field: "WithResponseInto", Reason: "must not be nil"}
		}
		c.response = r
		return nil
	})
}

// reservedHeaders are set by the client alone. The second line would let
// net/http repeat a write on its own, and the third is a matter between one
// connection's two ends.
var reservedHeaders = []string{"Authorization", "Content-Type", "Content-Length", "Transfer-Encoding", "Host",
	"Idempotency-Key", "X-Idempotency-Key",
	"Connection", "Proxy-Authorization", "Proxy-Connection", "Keep-Alive", "Te", "Trailer", "Upgrade", "Expect"}

// checkHeader says what is wrong with a header that is to be sent along. key
// is in its canonical form. It never quotes the value.
func checkHeader(key string, values ...string) error {
	if !validHeaderName(key) {
		return &ValidationError{Field: "WithHeader", Reason: "the key is not a header name"}
	}
	if !slices.ContainsFunc(reservedHeaders, func(r string) bool { return strings.EqualFold(r, key) }) {
		for _, value := range values {
			if !validHeaderValue(value) {
				return &ValidationError{Field: "WithHeader", Reason: "the value of " + key + " does not fit a header"}
			}
		}
		return nil
	}
	return &ValidationError{Field: "WithHeader", Reason: key + " is set by the client alone"}
}

// WithHeader adds a header to every attempt of the call. Authorization,
// Content-Type, Content-Length, Transfer-Encoding, Host, Idempotency-Key and
// headers about the connection (Connection, Proxy-Authorization, Upgrade and
// their like) are refused.
func WithHeader(key, value string) CallOption {
	return callOption(func(c *callConfig) error {
		key = http.CanonicalHeaderKey(key)
		if err := checkHeader(key, value); err != nil {
			return err
		}
		if c.header == nil {
			c.header = http.Header{}
		}
		c.header.Set(key, value)
		return nil
	})
}

// WithIdempotent says that repeating this call of Client.Do does no harm, so
// that it is repeated like a read. Other methods refuse it: they know.
func WithIdempotent() CallOption {
	return callOption(func(c *callConfig) error { c.idempotent = true; return nil })
}

// WithPrefetch makes the All methods fetch the next page while the caller
// works on the one before, at the price of a request that is wasted when the
// caller breaks out of the loop. Other methods refuse it.
func WithPrefetch() CallOption {
	return callOption(func(c *callConfig) error { c.prefetch = true; return nil })
}

// secret holds a credential where neither fmt nor a reflecting dumper finds
// it.
type secret struct{ reveal func() string }

func (s secret) set() bool { return s.reveal != nil }

func newSecret(option, what, value string) (secret, error) {
	value = strings.TrimSpace(value)
	if value == "" {
		return secret{}, &ValidationError{Field: option, Reason: what + " must not be blank"}
	}
	for i := 0; i < len(value); i++ {
		if value[i] < ' ' || value[i] >= 0x7f {
			return secret{}, &ValidationError{Field: option, Reason: what + " holds a control character or a byte beyond ASCII at position " + strconv.Itoa(i+1)}
		}
	}
	return secret{func() string { return value }}, nil
}

// credentialsFromEnvironment fills in what no option gave.
func (c *clientConfig) credentialsFromEnvironment() error {
	if c.accessToken.set() && c.clientID.set() {
		return &ValidationError{Field: "WithAccessToken", Reason: "contradicts WithClientCredentials"}
	}
	if c.accessToken.set() || c.clientID.set() {
		return nil
	}
	var err error
	if token := os.Getenv(envAccessToken); strings.TrimSpace(token) != "" {
		c.accessToken, err = newSecret(envAccessToken, "the token", token)
		return err
	}
	id, secretValue := os.Getenv(envClientID), os.Getenv(envClientSecret)
	if strings.TrimSpace(id) == "" && strings.TrimSpace(secretValue) == "" {
		return &ValidationError{Field: "credentials", Reason: "none given: use WithClientCredentials or WithAccessToken, or set " +
			envClientID + " and " + envClientSecret + ", or " + envAccessToken}
	}
	if c.clientID, err = newSecret(envClientID, "the client id", id); err != nil {
		return err
	}
	c.clientSecret, err = newSecret(envClientSecret, "the client secret", secretValue)
	return err
}

// validHeaderName reports whether s is a token of RFC 9110, section 5.6.2.
func validHeaderName(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		letterOrDigit := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !letterOrDigit && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return s != ""
}

// validHeaderValue reports whether s has no control character but the tab.
func validHeaderValue(s string) bool {
	for i := 0; i < len(s); i++ {
		if (s[i] < ' ' && s[i] != '\t') || s[i] == 0x7f {
			return false
		}
	}
	return true
}

// isNil also finds a nil pointer, map or func within an interface.
func isNil(v any) bool {
	if v == nil {
		return true
	}
	switch rv := reflect.ValueOf(v); rv.Kind() {
	case reflect.Pointer, reflect.Func, reflect.Map, reflect.Slice, reflect.Chan:
		return rv.IsNil()
	}
	return false
}

// retries reports whether rt, or a transport that it wraps in an exported
// field, is go-retryablehttp's.
func retries(rt http.RoundTripper) bool {
	for range 16 {
		switch rt.(type) {
		case nil, *http.Transport:
			return false
		case *retryablehttp.RoundTripper:
			return true
		}
		v := reflect.Indirect(reflect.ValueOf(rt))
		if v.Kind() != reflect.Struct {
			return false
		}
		rt = nil
		for i := range v.NumField() {
			if f := v.Field(i); v.Type().Field(i).IsExported() && f.CanInterface() {
				if inner, ok := f.Interface().(http.RoundTripper); ok && !isNil(inner) {
					rt = inner
					break
				}
			}
		}
	}
	return false
}
