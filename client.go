package brellium

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/brellium/brellium-go/internal/block"
	"github.com/brellium/brellium-go/internal/jsonscan"
	"github.com/brellium/brellium-go/internal/redact"
	"github.com/brellium/brellium-go/internal/wire"
)

// release is the version that the next tag will have.
const release = "0.1.0"

// Version returns the version of this module, such as "0.1.0", as sent in the
// User-Agent: the one that the program was built with, according to its build
// information. Where that does not tell, as in a test or with a replace directive
// that names a directory, it is the version that the source code names.
func Version() string { return version() }

var version = sync.OnceValue(func() string {
	info, _ := debug.ReadBuildInfo()
	return versionIn(info)
})

func versionIn(info *debug.BuildInfo) string {
	if info == nil {
		return release
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path != "github.com/brellium/brellium-go" {
			continue
		}
		if m.Replace != nil {
			m = m.Replace
		}
		if v, ok := strings.CutPrefix(m.Version, "v"); ok {
			return v
		}
	}
	return release
}

// Client is a client of the Brellium API. Create one and share it: it is safe for
// concurrent use, and all its calls share one access token and one rate limiter.
// It does not need to be closed; see [Client.CloseIdleConnections].
type Client struct {
	// Audits reads audits and updates their flags.
	Audits *AuditService
	// Documents uploads documents to be audited.
	Documents *DocumentService
	// Users invites and removes users.
	Users *UserService
	// EmailRecipients manages the recipients of email.
	EmailRecipients *EmailRecipientService
	// OAuth requests access tokens for callers that need one themselves.
	OAuth *OAuthService

	baseURL         url.URL
	requestTemplate *http.Request // copied by every request
	policy          retryPolicy
	strict          bool // see WithStrictDecoding
	noMessages      bool // WithoutServerMessages
	seen            *seen
	parts           redact.Sealed[*parts]
}

// parts are sealed, since a dumper that walks a client would find in them the
// buffers of a pool that other clients use too, secrets, and what the caller's
// own limiter, token store, observers and logger contain.
type parts struct {
	httpClient    *http.Client // of WithHTTPClient, or nil
	header        http.Header  // of every API request; read-only
	api           *route
	tokenEndpoint *route // has its own rate limit
	storage       *route
	observers     observers
	credentials   credentials
}

// seen is what the responses to a client and its derived clients showed last.
type seen struct {
	mu   sync.Mutex
	rate RateLimit
	mode LimiterMode     // of the limiter, as last reported
	lost map[string]bool // reports of fields that decoding left empty, by reason

	silent atomic.Bool // an attempt timed out on a connection that may be dead
}

// credentials are zero with a fixed token.
type credentials struct{ id, secret secret }

// NewClient returns a Client. Without options it reads its credentials from the
// environment: BRELLIUM_ACCESS_TOKEN, or BRELLIUM_CLIENT_ID and
// BRELLIUM_CLIENT_SECRET; BRELLIUM_BASE_URL, where set, replaces the default
// URL. Options override environment variables. NewClient sends nothing, reads no
// file and starts no goroutine. For an invalid option it returns a
// [ValidationError] that names it.
func NewClient(opts ...ClientOption) (*Client, error) {
	cfg := clientConfig{
		blockCooldown: defaultBlockCooldown,
		policy: retryPolicy{
			maxRetries:     defaultMaxRetries,
			attemptTimeout: defaultAttemptTimeout,
			totalTimeout:   defaultTotalTimeout,
		},
	}
	if err := cfg.apply(opts); err != nil {
		return nil, err
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
		policy:          cfg.policy,
		strict:          cfg.strict,
		noMessages:      cfg.noMessages,
		seen:            new(seen),
		requestTemplate: &http.Request{Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, URL: base, Host: base.Host, Method: http.MethodGet},
	}
	if hc := cfg.httpClient; hc != nil && hc.Timeout > 0 && (c.policy.attemptTimeout == 0 || hc.Timeout < c.policy.attemptTimeout) {
		c.policy.attemptTimeout = hc.Timeout
	}
	guard := block.NewGuard(cfg.blockCooldown)
	p := &parts{
		httpClient:    cfg.httpClient,
		header:        http.Header{"Accept": jsonContentType, "User-Agent": {cfg.fullUserAgent()}},
		api:           &route{host: hostPort(base), guard: guard, limiter: cfg.limiter},
		tokenEndpoint: &route{host: hostPort(base), guard: guard},
		storage:       &route{signed: true},
		observers:     observers{observers: cfg.observers, logger: cfg.logger},
	}
	maps.Copy(p.header, cfg.header)
	if cfg.limiterOption == "" {
		p.api.limiter = new(AdaptiveLimiter)
	}
	if cfg.maxConcurrency > 0 {
		p.api.sem = make(chan struct{}, cfg.maxConcurrency)
	}
	c.parts = redact.Seal(p)
	if err := c.setUpTokens(p, &cfg); err != nil {
		return nil, err
	}
	c.setUpServices()
	return c, nil
}

func (c *Client) setUpServices() {
	c.Audits = &AuditService{c}
	c.Documents = &DocumentService{c}
	c.Users = &UserService{c}
	c.EmailRecipients = &EmailRecipientService{c}
	c.OAuth = &OAuthService{c}
}

// With returns a client that shares with c the access token, the rate limiter,
// the connections, the block guard and the observers, and applies opts:
// [WithMaxRetries], [WithAttemptTimeout], [WithTotalTimeout],
// [WithPriority], [WithHeader], [WithUserAgent], [WithLogger] and
// [WithStrictDecoding] replace what c has, and [WithObserver] and
// [WithoutServerMessages] add to it. It suits a program in which a web handler and
// a batch job use the API. Options for what is shared, such as the credentials,
// the base URL and the limiter, are a [ValidationError] that names them.
//
// Token requests, and the events of the token store, belong to the client from
// [NewClient]. The event of a block or a limiter mode goes to the client whose
// call noticed the change.
func (c *Client) With(opts ...ClientOption) (*Client, error) {
	p := *c.parts.Open()
	cfg := clientConfig{
		derived: true, strict: c.strict, policy: c.policy, noMessages: c.noMessages,
		observers: slices.Clone(p.observers.observers), logger: p.observers.logger,
	}
	if err := cfg.apply(opts); err != nil {
		return nil, err
	}
	d := *c
	d.policy, d.strict, d.noMessages = cfg.policy, cfg.strict, cfg.noMessages
	p.observers = observers{cfg.observers, cfg.logger}
	p.header = maps.Clone(p.header)
	if cfg.userAgent != "" {
		p.header["User-Agent"] = []string{cfg.fullUserAgent()}
	}
	maps.Copy(p.header, cfg.header)
	d.parts = redact.Seal(&p)
	d.setUpServices()
	return &d, nil
}

// DefaultTransport returns a new transport with the settings of the client's own,
// to which you can add a proxy, certificates or a dialer. Pass it to
// [WithHTTPClient], and share it between clients: each has a pool of its own.
func DefaultTransport() *http.Transport { return wire.NewTransport() }

// CloseIdleConnections closes the connections that no request is using. Without
// [WithHTTPClient] those are the connections of all clients of the process, which
// share one pool. It does nothing if a transport of the caller's own has no such
// method. The client can be used afterwards.
func (c *Client) CloseIdleConnections() {
	(&http.Client{Transport: wire.Transport(c.parts.Open().httpClient)}).CloseIdleConnections()
}

// Resume lets the client send at once, for an operator who knows that what paused
// it was wrong or is over. It ends the pause after a 429, with brelliumredis that of
// all processes within about 10 s; the stop after a bare 403; and the pause of token
// requests. It does not shorten the waits between the attempts of calls in progress.
// Without Resume, a pause after a 429 ends after 5 minutes at most.
//
// A [Limiter] of your own takes part if it has a method Resume().
func (c *Client) Resume() {
	p := c.parts.Open()
	for _, r := range []*route{p.api, p.tokenEndpoint} {
		if l, ok := r.limiter.(interface{ Resume() }); ok {
			l.Resume()
		}
	}
	p.api.guard.Resume()
	p.api.tokens.resume()
}

// RateLimit returns the rate limit as the headers of the newest response reported
// it. Its Known method reports false before the first one.
func (c *Client) RateLimit() RateLimit {
	c.seen.mu.Lock()
	defer c.seen.mu.Unlock()
	return c.seen.rate
}

func (c *Client) setRateLimit(r RateLimit) {
	c.seen.mu.Lock()
	defer c.seen.mu.Unlock()
	if !r.ObservedAt.Before(c.seen.rate.ObservedAt) {
		c.seen.rate = r
	}
}

// Format prints the client's host under every verb, and nothing of its
// configuration or credentials.
func (c *Client) Format(s fmt.State, verb rune) {
	redact.Format(s, verb, "brellium.Client("+c.host()+")")
}

func (c *Client) host() string {
	if c == nil {
		return nilText
	}
	return c.baseURL.Host
}

// LogValue returns the client's host.
func (c *Client) LogValue() slog.Value { return slog.GroupValue(slog.String("host", c.host())) }

// MarshalJSON encodes the client's host.
func (c *Client) MarshalJSON() ([]byte, error) { return redact.Marshal(c) }

// Do calls an endpoint that has no method yet, in the same way as every other
// call and with the same errors. path starts with a slash, is escaped, and may
// have a query. body is sent as JSON: nil for none, a [json.RawMessage] as it is,
// and anything else encoded; a reader or a []byte is a [ValidationError]. The
// response is decoded into into. A response without a body, such as a 204, is then a
// [DecodeError]; pass nil if there may be none. With nil, a body is an error only if
// it is HTML or says that the request failed.
//
// A resource of this package is cleared and then decoded as by its own methods,
// with RawJSON and an error if the response has no id. A *[Page] of any type is
// a page of a list: it has HasMore, NextCursor and RawJSON, its Next fetches
// the page after it with the same options, and the errors are those of
// [AuditService.List]. Resources inside other types have no RawJSON; one without
// an id in a list, a map or behind a pointer is a [DecodeError]. A slice is cleared too;
// any other type is decoded into as encoding/json does.
//
// [WithOperation] names the operation in errors and telemetry.
//
// A GET or HEAD is retried like any read. Another method is retried after an
// unknown outcome only with [WithIdempotent].
func (c *Client) Do(ctx context.Context, method, path string, body, into any, opts ...CallOption) error {
	r := request{body: body}
	method = strings.ToUpper(method)
	if !validHeaderName(method) || method == http.MethodConnect || method == http.MethodTrace {
		return &ValidationError{Field: "method", Reason: "must be an HTTP method such as GET"}
	}
	if into != nil && (isNil(into) || reflect.TypeOf(into).Kind() != reflect.Pointer) {
		return &ValidationError{Field: "into", Reason: "must be a non-nil pointer"}
	}
	if _, writer := into.(io.Writer); writer {
		return &ValidationError{Field: "into", Reason: "must not be a writer, which is not written to; use a *json.RawMessage"}
	}
	_, reader := body.(io.Reader)
	if _, bytes := body.([]byte); reader || bytes {
		return &ValidationError{Field: "body", Reason: "must not be a reader or []byte, which would not be sent as it is; use a json.RawMessage"}
	}
	var err error
	if r.path, r.query, err = splitPath(path); err != nil {
		return err
	}
	cfg, err := c.callConfig(opts)
	if err != nil {
		return err
	}
	r.op = customOperation(method, cfg.operation)
	if into != nil {
		into = jsonscan.Innermost(into)
	}
	if page, ok := into.(interface {
		do(context.Context, *Client, request, callConfig, any) error
	}); ok {
		return page.do(ctx, c, r, cfg, into)
	}
	_, err = c.do(ctx, r, cfg, func(resp okResponse) error {
		if into == nil {
			return resp.decodeNothing()
		}
		return resp.decodeInto(into)
	})
	return err
}

// splitPath checks the path of Client.Do and splits it.
func splitPath(path string) (escaped, query string, err error) {
	invalid := func(reason string) (string, string, error) {
		return "", "", &ValidationError{Field: "path", Reason: reason}
	}
	escaped, query, _ = strings.Cut(path, "?")
	if !strings.HasPrefix(escaped, "/") || strings.HasPrefix(escaped, "//") {
		return invalid("must start with one slash")
	}
	if strings.ContainsAny(path, "# \\") {
		return invalid("must be escaped and must not contain a fragment")
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
			return invalid("must not contain . or ..")
		}
	}
	return escaped, query, nil
}
