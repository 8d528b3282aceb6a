package brellium

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-retryablehttp"
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

	baseURL     url.URL
	base        http.RoundTripper
	retry       *retryablehttp.Client
	blank       *http.Request // what every request starts from
	header      http.Header   // of every API request; read-only
	timing      timing
	limiter     Limiter
	mintLimiter Limiter // of the token endpoint, never mixed with the API's
	slots       chan struct{}
	guard       *blockGuard
	tokens      *tokenSource
	credentials credentials
	observers   observers

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
		timing: timing{
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
		baseURL:   *base,
		base:      http.RoundTripper(sharedTransport()),
		timing:    cfg.timing,
		guard:     newBlockGuard(cfg.blockCooldown),
		limiter:   cfg.limiter,
		observers: observers{observer: cfg.observer, logger: cfg.logger},
		blank:     &http.Request{Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, URL: base, Host: base.Host, Method: http.MethodGet},
		header:    http.Header{"Accept": jsonContentType, "User-Agent": {cfg.fullUserAgent()}},
	}
	if hc := cfg.httpClient; hc != nil {
		if c.base = hc.Transport; c.base == nil {
			c.base = http.DefaultTransport
		}
		if hc.Timeout > 0 && (c.timing.attemptTimeout == 0 || hc.Timeout < c.timing.attemptTimeout) {
			c.timing.attemptTimeout = hc.Timeout
		}
	}
	if cfg.limiterOption == "" {
		if c.limiter, err = NewAdaptiveLimiter(AdaptiveLimiterOptions{}); err != nil {
			return nil, err
		}
	}
	if cfg.slots > 0 {
		c.slots = make(chan struct{}, cfg.slots)
	}
	c.retry = &retryablehttp.Client{
		HTTPClient: &http.Client{Transport: attempts{}},
		RetryMax:   math.MaxInt,
		CheckRetry: func(ctx context.Context, _ *http.Response, _ error) (bool, error) {
			c := ctx.Value(callKey{}).(*call)
			repeat := c.decide()
			return repeat, c.err
		},
		Backoff: func(_, _ time.Duration, _ int, resp *http.Response) time.Duration {
			c := resp.Request.Context().Value(callKey{}).(*call)
			c.tellWait()
			return c.wait
		},
		ErrorHandler: func(_ *http.Response, err error, _ int) (*http.Response, error) { return nil, err },
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
	invalid := func(reason string) (*url.URL, error) { return nil, &ValidationError{Field: field, Reason: reason} }
	switch {
	case err != nil:
		return invalid("is not a URL")
	case u.Scheme != "https" && u.Scheme != "http":
		return invalid("must begin with https:// (or http:// to a loopback address)")
	case u.Opaque != "" || u.Hostname() == "":
		return invalid("has no host")
	case u.User != nil:
		return invalid("must not hold user info")
	case !validPort(u.Port()):
		return invalid("has a port that does not exist")
	case u.RawQuery != "" || u.ForceQuery:
		return invalid("must not hold a query")
	case u.Fragment != "" || strings.Contains(raw, "#"):
		return invalid("must not hold a fragment")
	case u.Scheme == "http" && !loopback(u.Hostname()):
		return invalid("must be https, since a token never travels in plain text; http is for loopback addresses alone")
	}
	for _, segment := range strings.Split(u.Path, "/") {
		if segment == "." || segment == ".." {
			return invalid("must not hold . or .. in its path")
		}
	}
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), strings.TrimRight(u.RawPath, "/")
	return u, nil
}

func validPort(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return port == "" || err == nil && n > 0
}

// loopback reports whether host is this machine for certain. Names below
// localhost are not: a resolver may lead them, and net/http its proxy, elsewhere.
func loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

func (c *clientConfig) fullUserAgent() string {
	own := "brellium-go/" + Version + " (" + runtime.Version() + "; " + runtime.GOOS + "/" + runtime.GOARCH + ")"
	if c.userAgent != "" {
		return c.userAgent + " " + own
	}
	return own
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
	r := request{body: body, custom: true}
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
	r.op = customOperation(method, false)
	_, err = c.do(ctx, r, opts, func(call *call) error {
		if into == nil || call.got.status == http.StatusNoContent {
			return call.decodeNothing()
		}
		return call.decode(into)
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

// request is what a resource method hands over: an operation and its values.
type request struct {
	op *operation
	// id fills the path's placeholder, and idField names it in errors.
	id, idField string
	query       string
	body        any
	// repeatable overrides the operation's rule where it depends on the body.
	repeatable bool
	// all is true for the pages of an All method, which may be fetched ahead.
	all bool

	custom bool // Client.Do
	path   string
}

// call is one call on its way: the request, what it may do, and what has
// become of it. It is also the context that its attempts run on, so that every
// part of the way finds it there.
type call struct {
	context.Context // the caller's

	client     *Client
	op         *operation
	url        url.URL
	header     http.Header // of each attempt, but for the token and the content type; read-only
	payload    payload
	timing     timing
	response   *Response
	repeatable bool
	prefetch   bool

	// What this kind of call passes through; API calls all of it, a token
	// request all but the token, an upload nothing.
	auth    bool
	guard   *blockGuard
	limiter Limiter
	slots   chan struct{}

	attempts     int           // sent so far
	repeats      int           // sent again, but for refusals
	refusals     int           // sent again after a refusal
	replayed     bool          // sent again with a new token
	afterRefusal bool          // the last attempt was a 429
	mayHaveRun   bool          // a write that may have taken effect
	doubted      bool          // a write whose outcome was unknown, or is settled by its code
	started      time.Time     // when the first attempt was sent
	wait         time.Duration // before the next attempt
	got          outcome       // of the last attempt
	last         error         // its failure
	err          error         // the call's
	over         http.Response // what the retry layer sees of an attempt
}

// watched reports whether anybody wants the record of each attempt.
func (c *call) watched() bool { return c.response != nil || c.client.observers.on() }

type callKey struct{}

// Value makes the call, and whether its last attempt was refused, known to
// everything below.
func (c *call) Value(key any) any {
	switch key.(type) {
	case callKey:
		return c
	case afterRefusalKey:
		return c.afterRefusal
	}
	return c.Context.Value(key)
}

// do makes one API call and hands its answer to decode, without whose consent
// it has not succeeded. It returns the call where one was sent, also with an
// error.
func (c *Client) do(ctx context.Context, r request, opts []CallOption, decode func(*call) error) (*call, error) {
	call, err := c.newCall(ctx, r, opts)
	if err != nil {
		return nil, err
	}
	return call, c.run(call, decode)
}

// newCall checks everything that can be checked before sending.
func (c *Client) newCall(ctx context.Context, r request, opts []CallOption) (*call, error) {
	if ctx == nil {
		return nil, &ValidationError{Field: "ctx", Reason: "must not be nil"}
	}
	cfg := callConfig{timing: c.timing}
	if len(opts) > 0 {
		if err := cfg.apply(opts, r.custom, r.all); err != nil {
			return nil, err
		}
	}
	if cfg.idempotent {
		r.op = customOperation(r.op.method, true)
	}
	if len(r.query) > maxQuery {
		return nil, &ValidationError{Field: "query", Reason: "is longer than 2,048 bytes, which the API refuses; use fewer or shorter filters"}
	}
	call := &call{
		Context: ctx, client: c, op: r.op, header: c.header, timing: cfg.timing, response: cfg.response, prefetch: cfg.prefetch,
		repeatable: r.repeatable || r.op.repeat == repeatAlways,
		auth:       true, guard: c.guard, limiter: c.limiter, slots: c.slots,
	}
	if cfg.header != nil {
		for k, v := range c.header {
			if cfg.header[k] == nil {
				cfg.header[k] = v
			}
		}
		call.header = cfg.header
	}
	if err := call.setURL(r); err != nil {
		return nil, err
	}
	if r.body != nil {
		body, err := encode(r.body)
		if err != nil {
			return nil, err
		}
		call.payload = jsonPayload(body)
	}
	return call, nil
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

// setURL is the one place where a path is made: base path, template, and the
// id escaped once.
func (c *call) setURL(r request) error {
	prefix, last, escaped := r.op.path, "", ""
	if r.custom {
		last, _ = url.PathUnescape(r.path)
		escaped = r.path
	} else if open := strings.IndexByte(r.op.path, '{'); open >= 0 {
		if err := validateID(r.idField, r.id); err != nil {
			return err
		}
		prefix, last, escaped = r.op.path[:open], r.id, url.PathEscape(r.id)
	}
	base := &c.client.baseURL
	c.url.Scheme, c.url.Host, c.url.RawQuery = base.Scheme, base.Host, r.query
	c.url.Path = base.Path + prefix + last
	if escaped != last || base.RawPath != "" {
		c.url.RawPath = base.EscapedPath() + prefix + escaped
	}
	return nil
}

func validateID(field, id string) error {
	switch {
	case strings.TrimSpace(id) == "":
		return &ValidationError{Field: field, Reason: "must not be blank"}
	case id == "." || id == "..":
		return &ValidationError{Field: field, Reason: "must not be . or .."}
	}
	return nil
}

// encode encodes a request body. Its error quotes nothing of it.
func encode(body any) ([]byte, error) {
	data, err := json.Marshal(body)
	if err != nil {
		reason := fmt.Sprintf("a value of type %T cannot be encoded as JSON", body)
		var unsupported *json.UnsupportedTypeError
		if errors.As(err, &unsupported) {
			reason += ": it holds a " + unsupported.Type.String()
		}
		return nil, &ValidationError{Field: "body", Reason: reason}
	}
	return data, nil
}

// run sends a call through the retry layer, has its answer decoded, and settles
// what is told of it.
func (c *Client) run(call *call, decode func(*call) error) error {
	var begun time.Time
	if c.observers.on() {
		begun = time.Now()
	}
	if call.response != nil {
		*call.response = Response{} // it may have served another call
	}
	call.tellStart()
	_, err := c.retry.Do(&retryablehttp.Request{Request: c.blank.WithContext(call)})
	if err != nil && call.err == nil { // the context ended in a wait
		call.err = call.interrupted(err)
	}
	if r := call.response; r != nil {
		o := &call.got
		r.StatusCode, r.Header, r.RequestID, r.RateLimit = o.status, o.header, o.requestID, o.rate
	}
	if call.err == nil {
		call.err = decode(call)
	}
	call.tellEnd(begun)
	return call.err
}
