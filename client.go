package brellium

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"sync"
)

// Version is the version of this client, as its User-Agent gives it.
const Version = "0.1.0"

// maxQuery is the longest query string that the API takes, in bytes; a longer
// one gets a bare 403.
const maxQuery = 2048

// Client is a client of the Brellium API. It is safe for concurrent use and
// meant to be made once and shared: it keeps the token and the pace for all
// its calls. It holds nothing that needs closing.
type Client struct {
	// Audits reads audits and updates their flags.
	Audits *AuditService
	// Documents uploads documents to be audited.
	Documents *DocumentService
	// Users invites and removes users.
	Users *UserService
	// EmailRecipients manages who is sent email.
	EmailRecipients *EmailRecipientService
	// OAuth mints access tokens, for callers that want one themselves.
	OAuth *OAuthService

	baseURL         url.URL
	base            http.RoundTripper
	requestTemplate *http.Request // what every request starts from
	header          http.Header   // of every API request; read-only
	policy          retryPolicy
	limiter         Limiter
	mintLimiter     Limiter // of the token endpoint, never mixed with the API's
	sem             chan struct{}
	guard           *blockGuard
	tokens          *tokenSource
	credentials     credentials
	observers       observers

	mu   sync.Mutex
	rate RateLimit
	mode LimiterMode // of the limiter, as last told
}

// credentials is the key pair; both are unset with a fixed token.
type credentials struct{ id, secret secret }

// NewClient makes a Client. Without options it takes its credentials from the
// environment: BRELLIUM_ACCESS_TOKEN, or else BRELLIUM_CLIENT_ID and
// BRELLIUM_CLIENT_SECRET; BRELLIUM_BASE_URL, where set, replaces the address.
// Options beat the environment. It sends nothing, reads no file and starts no
// goroutine. A wrong option is a *ValidationError that names it.
func NewClient(opts ...ClientOption) (*Client, error) {
	cfg := clientConfig{
		blockCooldown: defaultBlockCooldown,
		policy: retryPolicy{
			maxRetries:     defaultMaxRetries,
			attemptTimeout: defaultAttemptTimeout,
			totalTimeout:   defaultTotalTimeout,
		},
	}
	for _, o := range opts {
		if o == nil {
			return nil, &ValidationError{Field: "ClientOption", Reason: "must not be nil"}
		}
		if err := o.applyClient(&cfg); err != nil {
			return nil, err
		}
	}
	if err := cfg.credentialsFromEnvironment(); err != nil {
		return nil, err
	}
	base, err := cfg.parseBaseURL()
	if err != nil {
		return nil, err
	}

	c := &Client{
		baseURL:         *base,
		base:            http.RoundTripper(sharedTransport()),
		policy:          cfg.policy,
		guard:           newBlockGuard(cfg.blockCooldown),
		limiter:         cfg.limiter,
		observers:       observers{observer: cfg.observer, logger: cfg.logger},
		requestTemplate: &http.Request{Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, URL: base, Host: base.Host, Method: http.MethodGet},
		header:          http.Header{"Accept": jsonContentType, "User-Agent": {cfg.fullUserAgent()}},
	}
	if hc := cfg.httpClient; hc != nil {
		if c.base = hc.Transport; c.base == nil {
			c.base = http.DefaultTransport
		}
		if hc.Timeout > 0 && (c.policy.attemptTimeout == 0 || hc.Timeout < c.policy.attemptTimeout) {
			c.policy.attemptTimeout = hc.Timeout
		}
	}
	if cfg.limiterOption == "" {
		if c.limiter, err = NewAdaptiveLimiter(AdaptiveLimiterOptions{}); err != nil {
			return nil, err
		}
	}
	if cfg.sem > 0 {
		c.sem = make(chan struct{}, cfg.sem)
	}
	if err := c.setUpTokens(&cfg); err != nil {
		return nil, err
	}
	c.Audits = &AuditService{c}
	c.Documents = &DocumentService{c}
	c.Users = &UserService{c}
	c.EmailRecipients = &EmailRecipientService{c}
	c.OAuth = &OAuthService{c}
	return c, nil
}

// RateLimit returns what the newest answer's RateLimit headers said. Its Known
// method reports false before any answer.
func (c *Client) RateLimit() RateLimit {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rate
}

func (c *Client) setRateLimit(r RateLimit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !r.ObservedAt.Before(c.rate.ObservedAt) {
		c.rate = r
	}
}

// Format prints the client's address alone under every verb: nothing of its
// configuration or credentials.
func (c *Client) Format(s fmt.State, verb rune) {
	formatSafe(s, verb, "brellium.Client("+c.baseURL.Host+")")
}

// LogValue gives the client's address alone.
func (c *Client) LogValue() slog.Value {
	return slog.GroupValue(slog.String("host", c.baseURL.Host))
}

// MarshalJSON encodes the client's address alone.
func (c *Client) MarshalJSON() ([]byte, error) { return marshalSafe(c) }

// Do reaches an endpoint that has no method yet, through the same pipeline as
// every other call. path begins with a slash, is escaped, and may have a
// query. body is sent as JSON: nil for none, a json.RawMessage as it is, and
// anything else encoded. The answer is decoded into into, unless that is nil
// or the answer is a 204, which has no body.
// A GET or HEAD is repeated like any read; another method only with
// WithIdempotent or a WithMaxRetries of its own.
func (c *Client) Do(ctx context.Context, method, path string, body, into any, opts ...CallOption) error {
	r := request{body: body}
	method = strings.ToUpper(method)
	if !validHeaderName(method) || method == http.MethodConnect || method == http.MethodTrace {
		return &ValidationError{Field: "method", Reason: "must be an HTTP method such as GET"}
	}
	if into != nil && (isNil(into) || reflect.TypeOf(into).Kind() != reflect.Pointer) {
		return &ValidationError{Field: "into", Reason: "must be a pointer, and not a nil one"}
	}
	var err error
	if r.path, r.query, err = splitPath(path); err != nil {
		return err
	}
	cfg := callConfig{policy: c.policy}
	if err := cfg.apply(opts, true, false); err != nil {
		return err
	}
	r.op = customOperation(method, cfg.idempotent)
	_, err = c.do(ctx, r, cfg, func(a answer) error {
		if into == nil || a.status == http.StatusNoContent {
			return a.decodeNothing()
		}
		return a.decode(into)
	})
	return err
}

// splitPath takes apart the path of Client.Do.
func splitPath(path string) (escaped, query string, err error) {
	invalid := func(reason string) (string, string, error) {
		return "", "", &ValidationError{Field: "path", Reason: reason}
	}
	escaped, query, _ = strings.Cut(path, "?")
	if !strings.HasPrefix(escaped, "/") || strings.HasPrefix(escaped, "//") {
		return invalid("must begin with one slash")
	}
	if strings.ContainsAny(path, "# \\") {
		return invalid("must be escaped and without a fragment")
	}
	for i := 0; i < len(path); i++ {
		if path[i] <= ' ' || path[i] >= 0x7f {
			return invalid("must be escaped")
		}
	}
	for _, segment := range strings.Split(escaped, "/") {
		plain, err := url.PathUnescape(segment)
		if err != nil {
			return invalid("must be escaped")
		}
		if plain == "." || plain == ".." {
			return invalid("must not hold . or ..")
		}
	}
	return escaped, query, nil
}
