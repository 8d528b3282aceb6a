package brellium

import (
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/brellium/brellium-go/internal/redact"
	"github.com/brellium/brellium-go/internal/wire"
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

	noCredentials = "use WithClientCredentials or WithAccessToken, or set " +
		envClientID + " and " + envClientSecret + ", or " + envAccessToken
)

// ClientOption configures a [Client]. For an invalid option [NewClient] returns
// a [ValidationError] that names it.
type ClientOption interface{ applyClient(*clientConfig) error }

// CallOption configures one call. For an invalid option the call sends nothing
// and returns a [ValidationError] that names it.
type CallOption interface{ applyCall(*callConfig) error }

// Option configures a [Client], as the default of its calls, or one call. On a
// call it overrides the client's.
type Option interface {
	ClientOption
	CallOption
}

// clientConfig is what the options of NewClient set.
type clientConfig struct {
	clientID, clientSecret, accessToken secret // sealed

	baseURL        string
	httpClient     *http.Client
	userAgent      string
	tokenStore     TokenStore
	limiter        Limiter
	limiterOption  string
	maxConcurrency int
	blockCooldown  time.Duration
	logger         *slog.Logger
	observers      []Observer
	policy         retryPolicy
	header         http.Header
	noMessages     bool
	derived        bool // for Client.With
	strict         bool
}

func (c *clientConfig) apply(opts []ClientOption) error {
	for _, o := range opts {
		if o == nil {
			return &ValidationError{Field: "ClientOption", Reason: "must not be nil"}
		}
		if err := o.applyClient(c); err != nil {
			return err
		}
	}
	return nil
}

// callConfig is what the options of one call set, on top of the client's.
type callConfig struct {
	policy     retryPolicy
	response   *Response
	header     http.Header
	idempotent bool
	prefetch   bool
	query      map[string]string // see WithQuery
	body       map[string]any    // see WithBodyField
	operation  string            // see WithOperation
}

// callConfig applies the options of one call.
func (c *Client) callConfig(opts []CallOption) (callConfig, error) {
	cfg := callConfig{policy: c.policy}
	return cfg, cfg.apply(opts, false)
}

func (cfg *callConfig) apply(opts []CallOption, all bool) error {
	for _, o := range opts {
		if o == nil {
			return &ValidationError{Field: "CallOption", Reason: "must not be nil"}
		}
		if err := o.applyCall(cfg); err != nil {
			return err
		}
	}
	if cfg.prefetch && !all {
		return &ValidationError{Field: "WithPrefetch", Reason: "applies to the All methods only"}
	}
	return nil
}

// unset marks what no option of a call has set.
const unset = -1 << 8

// callConfigOf applies the options of a call of method, which sends no request
// of the API: an option that would be ignored is an error.
func (c *Client) callConfigOf(method string, opts []CallOption) (callConfig, error) {
	cfg := callConfig{policy: retryPolicy{maxRetries: c.policy.maxRetries, attemptTimeout: unset, totalTimeout: unset, priority: unset}}
	if err := cfg.apply(opts, false); err != nil {
		return cfg, err
	}
	option := ""
	switch {
	case cfg.query != nil:
		option = "WithQuery"
	case cfg.body != nil:
		option = "WithBodyField"
	case cfg.operation != "":
		option = "WithOperation"
	case cfg.policy.attemptTimeout != unset:
		option = "WithAttemptTimeout"
	case cfg.policy.totalTimeout != unset:
		option = "WithTotalTimeout"
	case cfg.policy.priority != unset:
		option = "WithPriority"
	case cfg.header != nil && method == "CreateToken":
		option = "WithHeader"
	case cfg.policy.explicit && method == "CreateToken":
		option = "WithMaxRetries"
	default:
		return cfg, nil
	}
	return cfg, &ValidationError{Field: option, Reason: "does not apply to " + method}
}

type clientOption func(*clientConfig) error

func (o clientOption) applyClient(c *clientConfig) error { return o(c) }

// sharedOption is an option for what derived clients share, which Client.With
// rejects.
func sharedOption(name string, set func(*clientConfig) error) ClientOption {
	return clientOption(func(c *clientConfig) error {
		if c.derived {
			return &ValidationError{Field: name, Reason: "cannot be changed by Client.With: derived clients share it"}
		}
		return set(c)
	})
}

type callOption func(*callConfig) error

func (o callOption) applyCall(c *callConfig) error { return o(c) }

// policyOption sets a part of the retry policy, of the client or of one call.
type policyOption func(p *retryPolicy) error

func (o policyOption) applyClient(c *clientConfig) error { return o(&c.policy) }
func (o policyOption) applyCall(c *callConfig) error     { return o(&c.policy) }

// WithMaxRetries limits how often a call is retried after its first attempt,
// including retries after a 429. By default a call is retried as often as the
// total time allows after a 429, and up to 4 times after other failures.
// Uploads make up to 5 attempts per file, and token requests up to 3. With 0
// nothing is retried, except that a 401 is retried with a new token, which does
// not count. Token requests are not affected.
//
// It is only a limit. It does not allow retries that could do harm:
// [UserService.Create], [EmailRecipientService.Create], a write by [Client.Do],
// and [DocumentService.Create] without an external id on every document, are
// retried only after a 429 and where the request certainly did not reach the
// server. Only [WithIdempotent] overrides that protection.
func WithMaxRetries(n int) Option {
	return policyOption(func(p *retryPolicy) error {
		if n < 0 {
			return &ValidationError{Field: "WithMaxRetries", Reason: "must not be negative"}
		}
		p.maxRetries, p.explicit = n, true
		return nil
	})
}

// WithAttemptTimeout limits each attempt, from sending to the last byte of its
// response. The default is 30 s; 0 means no limit. An attempt that times out is
// retried where that does no harm. File uploads have only an idle timeout
// ([UploadOptions].IdleTimeout, 60 s by default), and an attempt of a token
// request may take 10 s.
func WithAttemptTimeout(d time.Duration) Option {
	return policyOption(func(p *retryPolicy) error {
		if d < 0 {
			return &ValidationError{Field: "WithAttemptTimeout", Reason: "must not be negative"}
		}
		p.attemptTimeout = d
		return nil
	})
}

// WithTotalTimeout limits a call with all its retries, the waits between them
// and the wait for an access token. The default is 60 s; 0 means no limit, except
// that a response that asks for a wait of more than 5 minutes ends the call. Only
// the wait for the rate limit before the first attempt does not count: a
// context with a deadline limits that too. File uploads have only an idle
// timeout ([UploadOptions].IdleTimeout, 60 s by default), and token requests
// have 15 s.
func WithTotalTimeout(d time.Duration) Option {
	return policyOption(func(p *retryPolicy) error {
		if d < 0 {
			return &ValidationError{Field: "WithTotalTimeout", Reason: "must not be negative"}
		}
		p.totalTimeout = d
		return nil
	})
}

// WithPriority sets the place of calls in the queue of the client's limiter:
// see [Priority]. The default is [Normal].
func WithPriority(p Priority) Option {
	return policyOption(func(policy *retryPolicy) error {
		if p < Background || p > Interactive {
			return &ValidationError{Field: "WithPriority", Reason: "must be Background, Normal or Interactive"}
		}
		policy.priority = p
		return nil
	})
}

// WithClientCredentials sets the client id and client secret of your
// organization. White space around them is trimmed, since secrets read from
// files end in a newline.
func WithClientCredentials(id, secretValue string) ClientOption {
	return sharedOption("WithClientCredentials", func(c *clientConfig) error {
		var err error
		if c.clientID, err = newSecret("WithClientCredentials", "the client id", id); err != nil {
			return err
		}
		c.clientSecret, err = newSecret("WithClientCredentials", "the client secret", secretValue)
		return err
	})
}

// WithAccessToken sets a fixed access token in place of client credentials. The
// client cannot renew it: a 401 is not retried, and calls return an [APIError].
func WithAccessToken(token string) ClientOption {
	return sharedOption("WithAccessToken", func(c *clientConfig) error {
		var err error
		c.accessToken, err = newSecret("WithAccessToken", "the token", token)
		return err
	})
}

// WithBaseURL sets the URL of the API; the default is https://api.brellium.com.
// It may have a path, for a gateway, which must not end in /v2: the methods add
// that. It must be https, or http to localhost or a loopback address, for which
// no proxy of the environment is used. It must not contain user info, a query
// or a fragment.
func WithBaseURL(baseURL string) ClientOption {
	return sharedOption("WithBaseURL", func(c *clientConfig) error {
		if strings.TrimSpace(baseURL) == "" {
			return &ValidationError{Field: "WithBaseURL", Reason: "must not be blank"}
		}
		c.baseURL = baseURL
		return nil
	})
}

// WithHTTPClient sends everything (API calls, token requests and uploads)
// through the Transport of hc, or [http.DefaultTransport] where that is nil.
// Both are read at each attempt, as package http does, so a mock may be set
// later. hc itself is not changed. Its Timeout shortens the attempt timeout
// where it is smaller. Its CheckRedirect and Jar are ignored: redirects are not
// followed, and the API sets no cookies.
//
// Without WithHTTPClient, clients share a transport like [DefaultTransport],
// unless the program has assigned another one to [http.DefaultTransport]: a
// mock, or one with a company's certificates. Then they use that.
//
// The transport limits the size of response headers: package http to 10 MiB by
// default, the client's own transport to 256 KiB.
//
// A panic of the transport reaches the caller. One during a token request is
// raised in each call that waits for the token.
//
// The transport must not retry requests, since attempts would multiply; one of
// go-retryablehttp is rejected.
func WithHTTPClient(hc *http.Client) ClientOption {
	return sharedOption("WithHTTPClient", func(c *clientConfig) error {
		if hc == nil {
			return &ValidationError{Field: "WithHTTPClient", Reason: "must not be nil"}
		}
		if hc.Timeout < 0 {
			return &ValidationError{Field: "WithHTTPClient", Reason: "its Timeout must not be negative"}
		}
		if isNil(hc.Transport) && hc.Transport != nil {
			return &ValidationError{Field: "WithHTTPClient", Reason: "its Transport is a nil pointer"}
		}
		if _, retries := hc.Transport.(*retryablehttp.RoundTripper); retries {
			return &ValidationError{Field: "WithHTTPClient",
				Reason: "its Transport retries requests (retryablehttp), so attempts would multiply; pass the transport that it wraps, and set WithMaxRetries"}
		}
		c.httpClient = hc
		return nil
	})
}

// WithUserAgent prepends text, such as "clinic-sync/2.1", to the client's own
// User-Agent.
func WithUserAgent(text string) ClientOption {
	text = strings.TrimSpace(text)
	return clientOption(func(c *clientConfig) error {
		if text == "" || !validHeaderValue(text) {
			return &ValidationError{Field: "WithUserAgent", Reason: "must be text that is valid in a header"}
		}
		c.userAgent = text
		return nil
	})
}

// WithTokenStore shares access tokens with other clients through store: one of
// them requests a token while the others wait.
func WithTokenStore(store TokenStore) ClientOption {
	return sharedOption("WithTokenStore", func(c *clientConfig) error {
		if isNil(store) {
			return &ValidationError{Field: "WithTokenStore", Reason: "must not be nil"}
		}
		c.tokenStore = store
		return nil
	})
}

// WithRateLimiter paces the client with l, which several clients of the same
// organization may share. Without [WithRateLimiter], [WithRateLimit] and
// [WithoutRateLimiter] each client has its own [AdaptiveLimiter].
func WithRateLimiter(l Limiter) ClientOption {
	return sharedOption("WithRateLimiter", func(c *clientConfig) error {
		if isNil(l) {
			return &ValidationError{Field: "WithRateLimiter", Reason: "must not be nil"}
		}
		return c.setLimiter("WithRateLimiter", l)
	})
}

// WithRateLimit limits the client to a fixed share of the organization's rate
// limit: a burst of at least 1 request, then perSecond requests per second. Use
// it where the organization also runs clients that do not back off for others;
// [SplitRateLimit] computes the shares.
func WithRateLimit(burst int, perSecond float64) ClientOption {
	return sharedOption("WithRateLimit", func(c *clientConfig) error {
		l, err := NewFixedLimiter(burst, perSecond)
		if err != nil {
			return &ValidationError{Field: "WithRateLimit", Reason: "needs a burst of at least 1 and a finite rate above 0"}
		}
		return c.setLimiter("WithRateLimit", l)
	})
}

// WithoutRateLimiter sends attempts without pacing. Each call still waits after
// a 429.
func WithoutRateLimiter() ClientOption {
	return sharedOption("WithoutRateLimiter", func(c *clientConfig) error { return c.setLimiter("WithoutRateLimiter", nil) })
}

func (c *clientConfig) setLimiter(option string, l Limiter) error {
	if c.limiterOption != "" && c.limiterOption != option {
		return &ValidationError{Field: option, Reason: "cannot be combined with " + c.limiterOption}
	}
	c.limiter, c.limiterOption = l, option
	return nil
}

// WithMaxConcurrency allows at most n attempts in flight, at least 1. By
// default there is no limit but the rate limit and, over HTTP/1.1, the 72
// connections per host of the client's own transport.
func WithMaxConcurrency(n int) ClientOption {
	return sharedOption("WithMaxConcurrency", func(c *clientConfig) error {
		if n < 1 || n > math.MaxInt32 {
			return &ValidationError{Field: "WithMaxConcurrency", Reason: "must be 1 or more"}
		}
		c.maxConcurrency = n
		return nil
	})
}

// WithBlockCooldown sets how long the client stops after the second bare 403 in
// a row. The default is 30 s; it doubles while the block lasts, up to 10
// minutes. 0 never stops the client: calls still go one at a time while a block
// lasts. See [BlockedError].
func WithBlockCooldown(d time.Duration) ClientOption {
	return sharedOption("WithBlockCooldown", func(c *clientConfig) error {
		if d < 0 {
			return &ValidationError{Field: "WithBlockCooldown", Reason: "must not be negative"}
		}
		c.blockCooldown = d
		return nil
	})
}

// WithLogger logs what the client does. Attempts, waits, finished calls, 404s,
// 409s and cancellations are at level debug. Other failed calls, blocks,
// failures of the token store, and the first response with each field that
// cannot be decoded are at level warn. Recoveries are at level info. No record
// contains a token, a secret, a resource id, an address, a query or a body. The
// default is to log nothing.
func WithLogger(l *slog.Logger) ClientOption {
	return clientOption(func(c *clientConfig) error {
		if l == nil {
			return &ValidationError{Field: "WithLogger", Reason: "must not be nil"}
		}
		c.logger = l
		return nil
	})
}

// WithoutServerMessages leaves the server's message out of the text of every
// error, since it may concern a patient and many loggers print that text.
// [APIError].Message has it all the same. A code and a request id stay in the
// text.
func WithoutServerMessages() ClientOption {
	return clientOption(func(c *clientConfig) error { c.noMessages = true; return nil })
}

// WithObserver calls o with the events of each call; see [Event]. If o is also
// a [HeaderObserver], it can add headers. Given several times, also to
// [Client.With], it adds one observer each time; they are called in that order.
func WithObserver(o Observer) ClientOption {
	return clientOption(func(c *clientConfig) error {
		if isNil(o) {
			return &ValidationError{Field: "WithObserver", Reason: "must not be nil"}
		}
		c.observers = append(c.observers, o)
		return nil
	})
}

// WithResponseInto fills r when the call ends, whether or not it succeeded. r
// must not be read or used for another call before that, so calls that run
// concurrently need a Response each.
func WithResponseInto(r *Response) CallOption {
	return callOption(func(c *callConfig) error {
		if r == nil {
			return &ValidationError{Field: "WithResponseInto", Reason: "must not be nil"}
		}
		c.response = r
		return nil
	})
}

// reservedHeaders are set by the client only. Those of the second line would
// allow net/http to resend a write by itself, and those of the third concern
// one connection only.
var reservedHeaders = []string{"Authorization", "Content-Type", "Content-Length", "Transfer-Encoding", "Host",
	"Idempotency-Key", "X-Idempotency-Key",
	"Connection", "Proxy-Authorization", "Proxy-Connection", "Keep-Alive", "Te", "Trailer", "Upgrade", "Expect"}

// checkHeader returns what is wrong with a header to be added. key is in its
// canonical form. The error never quotes the value.
func checkHeader(key string, values ...string) error {
	if !validHeaderName(key) {
		return &ValidationError{Field: "WithHeader", Reason: "the key is not a header name"}
	}
	if !slices.ContainsFunc(reservedHeaders, func(r string) bool { return strings.EqualFold(r, key) }) {
		for _, value := range values {
			if !validHeaderValue(value) {
				return &ValidationError{Field: "WithHeader", Reason: "the value of " + key + " is not valid in a header"}
			}
		}
		return nil
	}
	return &ValidationError{Field: "WithHeader", Reason: key + " is set by the client"}
}

// WithHeader adds a header to every attempt of the call, or of each call of the
// client, including its token requests. A client's headers are not sent to
// storage, whose URLs are signed. Authorization, Content-Type, Content-Length,
// Transfer-Encoding, Host, Idempotency-Key and the headers of the connection
// (Connection, Proxy-Authorization, Upgrade and similar) are rejected.
func WithHeader(key, value string) Option {
	return headerOption{http.CanonicalHeaderKey(key), redact.Seal(value)}
}

// headerOption hides the value, which may be a secret of a gateway.
type headerOption struct {
	key   string
	value redact.Sealed[string]
}

func (o headerOption) applyClient(c *clientConfig) error { return o.set(&c.header) }
func (o headerOption) applyCall(c *callConfig) error     { return o.set(&c.header) }

func (o headerOption) set(h *http.Header) error {
	if err := checkHeader(o.key, o.value.Open()); err != nil {
		return err
	}
	if *h == nil {
		*h = http.Header{}
	}
	h.Set(o.key, o.value.Open())
	return nil
}

// WithIdempotent says that it does no harm if this call takes effect more than
// once: it is then retried like a read, after unknown outcomes too. It is the
// only option that overrides the protection of [UserService.Create],
// [EmailRecipientService.Create], [DocumentService.Create] and [Client.Do].
// [UserService.Ensure] and [EmailRecipientService.Ensure] are the safe way to
// retry the first two.
func WithIdempotent() CallOption {
	return callOption(func(c *callConfig) error { c.idempotent = true; return nil })
}

// WithPrefetch makes the All methods fetch the next page while the caller works
// on the current one. Where the caller leaves the loop early, one request is
// wasted. Other methods reject it.
func WithPrefetch() CallOption {
	return callOption(func(c *callConfig) error { c.prefetch = true; return nil })
}

// WithQuery adds a query parameter to the requests of the call, or replaces it
// if the method sends it already. It is for a parameter that this version does
// not know. key has up to 64 letters, digits and the characters "_", "-", ".",
// "[" and "]", and is not "cursor", which the methods set. value must be valid UTF-8
// without control characters.
// [DocumentService.Put] and [OAuthService.CreateToken] reject it.
func WithQuery(key, value string) CallOption {
	return callOption(func(c *callConfig) error {
		if !validName(key, "-.[]") {
			return &ValidationError{Field: "WithQuery", Reason: "the key must be the name of a query parameter"}
		}
		if !utf8.ValidString(value) || strings.ContainsFunc(value, unicode.IsControl) {
			return &ValidationError{Field: "WithQuery", Reason: "the value of " + key + " must be valid UTF-8 without control characters"}
		}
		if key == "cursor" {
			return &ValidationError{Field: "WithQuery", Reason: "cursor is set by the list; use the Cursor of its params"}
		}
		if c.query == nil {
			c.query = map[string]string{}
		}
		c.query[key] = value
		return nil
	})
}

// WithBodyField adds a top-level field to the JSON body of the call. It is for
// a field that this version does not know; one that the method sends already is
// a [ValidationError]. name has up to 64 letters, digits and the characters "_"
// and "-". Calls without a JSON object as their body, [DocumentService.Put] and
// [OAuthService.CreateToken] reject it.
func WithBodyField(name string, value any) CallOption {
	return callOption(func(c *callConfig) error {
		if !validName(name, "-") {
			return &ValidationError{Field: "WithBodyField", Reason: "the name must be the name of a field"}
		}
		if c.body == nil {
			c.body = map[string]any{}
		}
		c.body[name] = value
		return nil
	})
}

// withoutBodyFields undoes WithBodyField for the requests of a call that have
// no body.
func withoutBodyFields() CallOption {
	return callOption(func(c *callConfig) error { c.body = nil; return nil })
}

// WithOperation names the operation of a [Client.Do] in errors, log records,
// spans and metrics, in place of "client.do". name has up to 64 lower-case
// letters, digits and the characters "_" and ".", and begins with a letter; it
// must not contain an id. Other methods reject it.
func WithOperation(name string) CallOption {
	return callOption(func(c *callConfig) error {
		if !validName(name, ".") || name != strings.ToLower(name) || name[0] < 'a' || name[0] > 'z' {
			return &ValidationError{Field: "WithOperation", Reason: "must be a name such as sets.retrieve"}
		}
		c.operation = name
		return nil
	})
}

// validName reports whether s has up to 64 letters, digits, underscores and the
// characters of more.
func validName(s, more string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || strings.IndexByte(more, c) >= 0) {
			return false
		}
	}
	return s != "" && len(s) <= 64
}

// WithStrictDecoding makes each tolerance of decoding a [DecodeError] that
// names the field and the kinds: a number in place of text, text in place of a
// number, 1.0 for an integer, one value in place of a list, a time that cannot
// be read, and what otherwise leaves its field empty. Unknown fields stay
// allowed. It is for tests and for finding out how the API differs: one odd
// item makes its page an error.
func WithStrictDecoding() ClientOption {
	return clientOption(func(c *clientConfig) error { c.strict = true; return nil })
}

// secret is a credential.
type secret = redact.Sealed[string]

func newSecret(option, what, value string) (secret, error) {
	value = strings.TrimSpace(value)
	if value == "" {
		return secret{}, &ValidationError{Field: option, Reason: what + " must not be blank"}
	}
	for i := 0; i < len(value); i++ {
		if value[i] < ' ' || value[i] >= 0x7f {
			return secret{}, &ValidationError{Field: option, Reason: what + " contains a control character or a non-ASCII byte at position " + strconv.Itoa(i+1)}
		}
	}
	return redact.Seal(value), nil
}

// credentialsFromEnvironment sets the credentials that no option has set.
func (c *clientConfig) credentialsFromEnvironment() error {
	switch hasToken, hasID := !c.accessToken.IsZero(), !c.clientID.IsZero(); {
	case hasToken && hasID:
		return &ValidationError{Field: "WithAccessToken", Reason: "cannot be combined with WithClientCredentials"}
	case hasToken || hasID:
		return nil
	}
	var err error
	if token := os.Getenv(envAccessToken); strings.TrimSpace(token) != "" {
		c.accessToken, err = newSecret(envAccessToken, "the token", token)
		return err
	}
	id, secretValue := os.Getenv(envClientID), os.Getenv(envClientSecret)
	if strings.TrimSpace(id) == "" && strings.TrimSpace(secretValue) == "" {
		return &ValidationError{Field: "credentials", Reason: noCredentials}
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

// validHeaderValue reports whether s is UTF-8 with no control character but the tab.
func validHeaderValue(s string) bool {
	for i := 0; i < len(s); i++ {
		if (s[i] < ' ' && s[i] != '\t') || s[i] == 0x7f {
			return false
		}
	}
	return utf8.ValidString(s)
}

// isNil reports whether v is nil, or an interface that contains a nil pointer,
// map, func, slice or channel.
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

// parseBaseURL returns the base URL of the option, the environment or the
// default.
func (c *clientConfig) parseBaseURL() (*url.URL, error) {
	field, raw := "WithBaseURL", c.baseURL
	if raw == "" {
		if raw = os.Getenv(envBaseURL); raw != "" {
			field = envBaseURL
		} else {
			raw = defaultBaseURL
		}
	}
	u, err := url.Parse(strings.TrimSpace(raw))
	if err == nil && strings.EqualFold(u.Hostname(), "localhost") {
		u.Host = strings.ToLower(u.Host) // net/http would use a proxy for another spelling
	}
	invalid := func(reason string) (*url.URL, error) { return nil, &ValidationError{Field: field, Reason: reason} }
	switch {
	case err != nil:
		return invalid("is not a URL")
	case u.Scheme != "https" && u.Scheme != "http":
		return invalid("must begin with https:// (or http:// to a loopback address)")
	case u.Opaque != "" || u.Hostname() == "":
		return invalid("has no host")
	case u.User != nil:
		return invalid("must not contain user info")
	case !validPort(u.Port()):
		return invalid("has an invalid port")
	case u.RawQuery != "" || u.ForceQuery:
		return invalid("must not contain a query")
	case u.Fragment != "" || strings.Contains(raw, "#"):
		return invalid("must not contain a fragment")
	case u.Scheme == "http" && !wire.Loopback(u.Hostname()):
		return invalid("must be https, since the access token must not be sent in plain text; http is allowed for loopback addresses only")
	}
	for _, segment := range strings.Split(u.Path, "/") {
		if segment == "." || segment == ".." {
			return invalid("must not contain . or .. in its path")
		}
	}
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), strings.TrimRight(u.RawPath, "/")
	if strings.HasSuffix(u.Path, "/v2") {
		return invalid("must not end in /v2, which the client adds")
	}
	return u, nil
}

func validPort(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return port == "" || err == nil && n > 0
}

// fullUserAgent is the User-Agent of every request to the API.
func (c *clientConfig) fullUserAgent() string {
	own := "brellium-go/" + version() + " (" + runtime.Version() + "; " + runtime.GOOS + "/" + runtime.GOARCH + ")"
	if c.userAgent != "" {
		return c.userAgent + " " + own
	}
	return own
}
