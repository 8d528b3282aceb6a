package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/brellium/brellium-go"
)

const (
	maxRequests = 12
	pageSize    = 20
	maxSkew     = 30 * time.Second
)

// recorder is the transport of the doctor. It keeps what the steps need of each
// response and sends no more than maxRequests.
type recorder struct {
	next        http.RoundTripper
	requests    int
	proxyStatus int // of the proxy's response to CONNECT
	last        struct {
		status int
		header http.Header
		body   []byte
	}
	first struct { // the first response
		tls  *tls.ConnectionState
		skew time.Duration // how far this computer's clock is ahead
		date bool
	}
	token struct { // the last response of the token endpoint
		status int
		header http.Header
		body   []byte
	}
}

func newRecorder() *recorder {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	r := &recorder{next: transport}
	transport.OnProxyConnectResponse = func(_ context.Context, _ *url.URL, _ *http.Request, resp *http.Response) error {
		r.proxyStatus = resp.StatusCode
		return nil
	}
	return r
}

// RoundTrip is called by one call at a time.
func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	if r.requests == maxRequests {
		return nil, brellium.ErrDoNotSend
	}
	r.requests++
	start := time.Now()
	resp, err := r.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	if !r.first.date {
		r.first.tls = resp.TLS
		if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
			r.first.date = true
			// The header has whole seconds, and was written during the request.
			r.first.skew = start.Add(now.Sub(start) / 2).Sub(date.Add(500 * time.Millisecond))
		}
	}
	r.last.status, r.last.header, r.last.body = resp.StatusCode, resp.Header, body
	if req.Method == http.MethodPost {
		r.token = r.last
	}
	return resp, nil
}

// step is one line of the doctor's output. Only Text is for the report;
// private is also shown on the screen.
type step struct {
	Name    string `json:"name"`
	State   string `json:"state"` // ok, warning, failed or skipped
	Text    string `json:"text"`
	private string
}

type doctor struct {
	*app
	*recorder
	check  *checker
	client *brellium.Client
	base   *url.URL
	steps  []step
	show   func(step)
	code   int // the exit code, where an error gives one
}

func (d *doctor) add(state, name, text, private string) {
	s := step{name, state, text, private}
	d.steps = append(d.steps, s)
	d.show(s)
}

// run makes the checks, one after the other, and stops where going on makes no
// sense.
func (d *doctor) run(ctx context.Context) {
	if !d.resolve(ctx) {
		return
	}
	_, err := d.client.OAuth.CreateToken(ctx)
	var invalid *brellium.ValidationError
	fixed := errors.As(err, &invalid)
	var audits []byte
	if fixed {
		audits, err = d.list(ctx, "audits.list", "/v2/audits")
	}
	if !d.connected(err) || !d.accepted(err, fixed) {
		return
	}
	for _, r := range []struct{ op, path, item, id string }{
		{"audits.list", "/v2/audits", "audits.retrieve", "audit_id"},
		{"documents.list", "/v2/documents", "documents.retrieve", "document_id"},
		{"users.list", "/v2/users", "users.retrieve", "user_id"},
		{"email_recipients.list", "/v2/email_recipients", "email_recipients.retrieve", "email_recipient_id"},
	} {
		body := audits
		if body == nil || r.op != "audits.list" {
			body, err = d.list(ctx, r.op, r.path)
			if r.op == "audits.list" {
				audits = body
				d.rateLimit(err)
			}
		} else {
			d.rateLimit(err)
		}
		if !d.read(r.op, err) {
			return
		}
		id := firstID(body, r.id)
		if id == "" {
			d.add("skipped", r.item, "not seen: the list has no item with "+r.id, "")
			continue
		}
		if err := d.get(ctx, r.item, r.path+"/"+url.PathEscape(id)); !d.read(r.item, err) {
			return
		}
	}
	d.filters(ctx, audits)
}

// resolve makes the client and checks what needs no request of the API.
func (d *doctor) resolve(ctx context.Context) bool {
	var err error
	if d.client == nil {
		d.client, err = d.app.client(brellium.WithHTTPClient(&http.Client{Transport: d.recorder}), brellium.WithMaxRetries(0))
	}
	if err != nil {
		var text string
		if d.code, text = explain(err); d.code == exitCredentials {
			d.add("failed", "Credentials", text, "")
		} else {
			d.add("failed", "Base URL", text, "")
		}
		return false
	}
	if d.base == nil { // the embedded emulator
		d.add("ok", "Base URL", "the embedded emulator", "")
		return true
	}
	own := "a base URL of its own"
	if d.base.Hostname() == "api.brellium.com" {
		own = "api.brellium.com"
	}
	d.add("ok", "Base URL", own, d.base.Scheme+"://"+d.base.Host)

	proxy, err := http.ProxyFromEnvironment(&http.Request{URL: d.base})
	switch {
	case err != nil:
		d.add("failed", "Proxy", "the proxy in the environment is not a valid URL; correct HTTPS_PROXY", "")
		return false
	case proxy != nil:
		d.add("skipped", "DNS", "left to the proxy", "")
		login := "without a login"
		if proxy.User != nil {
			login = "with a login"
		}
		d.add("ok", "Proxy", "in use, "+login, proxy.Host)
		return true
	}
	addresses, err := net.DefaultResolver.LookupHost(ctx, d.base.Hostname())
	if err != nil {
		d.add("failed", "DNS", "the host of the base URL has no address; check its name and the network", "")
		return false
	}
	d.add("ok", "DNS", count(len(addresses), "address"), strings.Join(addresses, ", "))
	d.add("ok", "Proxy", "none", "")
	return true
}

// connected adds the steps that the first exchange shows. It reports whether
// there was a response.
func (d *doctor) connected(err error) bool {
	var (
		connection *brellium.ConnectionError
		invalid    x509.CertificateInvalidError
		host       x509.HostnameError
		authority  x509.UnknownAuthorityError
	)
	switch {
	case d.proxyStatus == http.StatusProxyAuthRequired:
		d.add("failed", "Proxy", "requires a login (HTTP 407); put the user and the password into HTTPS_PROXY", "")
		return false
	case d.proxyStatus != 0 && d.proxyStatus != http.StatusOK:
		d.add("failed", "Proxy", fmt.Sprintf("does not connect to the API (HTTP %d)", d.proxyStatus), "")
		return false
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		text := "the certificate expired on " + invalid.Cert.NotAfter.Format(time.DateOnly)
		if time.Now().Before(invalid.Cert.NotBefore) {
			text = "the certificate is not valid before " + invalid.Cert.NotBefore.Format(time.DateOnly)
		}
		d.add("failed", "TLS", text+"; check the clock of this computer too", "")
		return false
	case errors.As(err, &host):
		d.add("failed", "TLS", "the certificate is for another host", "")
		return false
	case errors.As(err, &authority):
		d.add("failed", "TLS", "the certificate was issued by an authority that this computer does not trust; a proxy may inspect the connection", authority.Cert.Issuer.String())
		return false
	case errors.As(err, &connection) && d.last.status == 0:
		d.add("failed", "Connection", "no response from the API: "+connection.Reason, "")
		return false
	}
	switch state := d.first.tls; {
	case state == nil:
		d.add("skipped", "TLS", "not used: the base URL is on this computer", "")
	default:
		leaf := state.PeerCertificates[0]
		text := fmt.Sprintf("%s, %s, valid until %s", tls.VersionName(state.Version), count(len(state.PeerCertificates), "certificate"), leaf.NotAfter.Format(time.DateOnly))
		status := "ok"
		if time.Until(leaf.NotAfter) < 14*24*time.Hour {
			status, text = "warning", text+", which is soon"
		}
		d.add(status, "TLS", text, leaf.Issuer.String())
	}
	skew := d.first.skew.Round(time.Second)
	switch {
	case d.base == nil:
		d.add("skipped", "Clock", "not checked on the emulator", "")
	case !d.first.date:
		d.add("warning", "Clock", "the response has no Date header to compare with", "")
	case skew.Abs() > maxSkew && skew > 0:
		d.add("failed", "Clock", "this computer is "+skew.String()+" ahead of the server; set its clock", "")
	case skew.Abs() > maxSkew:
		d.add("failed", "Clock", "this computer is "+(-skew).String()+" behind the server; set its clock", "")
	default:
		d.add("ok", "Clock", "as the server's, within "+maxSkew.String(), "")
	}
	return true
}

// accepted adds the step of the credentials.
func (d *doctor) accepted(err error, fixed bool) bool {
	const op = "oauth.token"
	var api *brellium.APIError
	switch {
	case fixed && errors.As(err, &api) && api.StatusCode == http.StatusUnauthorized:
		d.code = exitCredentials
		d.add("failed", "Credentials", "the access token was rejected (HTTP 401); it has expired or was revoked", "")
		return false
	case fixed:
		d.add("ok", "Credentials", "a fixed access token", "") // other errors are those of the list
		return true
	case err == nil:
		d.check.record(op, problem{})
		d.check.response(op, d.token.status, d.token.header, d.token.body)
		d.add("ok", "Credentials", "the API issued an access token", "")
		return true
	}
	if d.token.status == http.StatusOK { // a response without a usable token
		d.check.response(op, d.token.status, d.token.header, d.token.body)
	}
	d.code = exitPartial
	d.add("failed", "Credentials", d.failed(err), "")
	return false
}

// failed returns what an error means, without values, and keeps its exit code.
func (d *doctor) failed(err error) string {
	var (
		api     *brellium.APIError
		blocked *brellium.BlockedError
		decode  *brellium.DecodeError
		conn    *brellium.ConnectionError
	)
	code, _ := explain(err)
	if code > exitUsage && d.code <= exitUsage {
		d.code = code
	}
	switch {
	case errors.As(err, &blocked):
		return "blocked before it reached the API (a 403 without JSON); the doctor stops here, wait some minutes"
	case errors.Is(err, brellium.ErrRateLimited):
		return "rate limited (HTTP 429); nothing remains of the organization's limit, try again later"
	case errors.As(err, &api) && rejectsCredentials(api):
		return fmt.Sprintf("rejected (HTTP %d %s); they are wrong or were revoked", api.StatusCode, api.Code)
	case errors.As(err, &api) && (api.StatusCode == http.StatusBadRequest || api.StatusCode == http.StatusUnprocessableEntity):
		text := fmt.Sprintf("HTTP %d %s; the request may need a parameter that is not described", api.StatusCode, api.Code)
		names := slices.DeleteFunc(mentioned.FindAllString(api.Message, -1), func(name string) bool { return !isName(name) })
		if len(names) > 0 {
			text += "; the message names " + strings.Join(unique(names), ", ")
		}
		return text
	case errors.As(err, &api):
		return fmt.Sprintf("HTTP %d %s", api.StatusCode, api.Code)
	case errors.As(err, &decode):
		return "the response cannot be read: " + decode.Reason
	case errors.As(err, &conn):
		return "no usable response: " + conn.Reason
	}
	return "not done"
}

// mentioned matches the name of a parameter in a server's message.
var mentioned = regexp.MustCompile(`\b[a-z]+(_[a-z]+)+\b`)

// list reads the first page of a list.
func (d *doctor) list(ctx context.Context, op, path string) ([]byte, error) {
	err := d.get(ctx, op, fmt.Sprintf("%s?limit=%d", path, pageSize))
	if err != nil {
		return nil, err
	}
	if n, more := items(d.last.body); n > pageSize {
		d.check.record(op+" ?limit", problem{text: "more items than asked for"})
	} else if n == pageSize || more {
		d.check.record(op+" ?limit", problem{})
	}
	return d.last.body, nil
}

// get reads one resource and compares it with the description.
func (d *doctor) get(ctx context.Context, op, path string) error {
	var raw json.RawMessage
	err := d.client.Do(ctx, http.MethodGet, path, nil, &raw)
	if err != nil {
		return err
	}
	d.check.record(op, problem{})
	d.check.response(op, d.last.status, d.last.header, raw)
	return nil
}

// read adds the step of a read. It reports whether the next one makes sense.
func (d *doctor) read(op string, err error) bool {
	if errors.Is(err, brellium.ErrDoNotSend) {
		d.add("skipped", op, fmt.Sprintf("not seen: the limit of %d requests is reached", maxRequests), "")
		return false
	}
	if err != nil {
		before := d.code
		text := d.failed(err)
		d.add("failed", op, text, "")
		var api *brellium.APIError
		if d.check.where = op; errors.As(err, &api) && api.StatusCode < 500 && api.StatusCode != http.StatusTooManyRequests && api.StatusCode != http.StatusUnauthorized {
			d.check.record(op, problem{text: text})
		}
		return d.code == before
	}
	differing := false
	for _, a := range d.check.found {
		differing = differing || slices.Contains(a.In, op)
	}
	if differing {
		d.add("warning", op, "not as described, see below", "")
	} else {
		d.add("ok", op, "as described", "")
	}
	return true
}

// rateLimit adds the step of the rate limit, from the first response of the API.
func (d *doctor) rateLimit(err error) {
	switch limit := d.client.RateLimit(); {
	case err != nil:
	case !limit.Known():
		d.add("warning", "Rate limit", "the response has no usable rate limit headers", "")
	case limit.Remaining < limit.Limit*3/4:
		d.add("warning", "Rate limit", fmt.Sprintf("%d of %d requests remain: others are using the organization's limit", limit.Remaining, limit.Limit), "")
	default:
		d.add("ok", "Rate limit", fmt.Sprintf("%d of %d requests remain", limit.Remaining, limit.Limit), "")
	}
}

// filters checks the cursor, a filter, and the response for an unknown id.
func (d *doctor) filters(ctx context.Context, audits []byte) {
	var page struct {
		NextCursor string `json:"next_cursor"`
	}
	if json.Unmarshal(audits, &page) == nil && page.NextCursor != "" {
		err := d.get(ctx, "audits.list", "/v2/audits?limit=1&cursor="+url.QueryEscape(page.NextCursor))
		if err == nil {
			n, _ := items(d.last.body)
			d.expect("audits.list ?limit", n <= 1, "more items than asked for")
			if first := firstID(audits, "audit_id"); first != "" && n > 0 {
				d.expect("audits.list ?cursor", firstID(d.last.body, "audit_id") != first, "the first page again")
			}
		}
		if !d.read("audits.list ?cursor", err) {
			return
		}
	}
	if audits == nil {
		return
	}
	tomorrow := time.Now().Add(24 * time.Hour).UTC().Format(time.RFC3339)
	err := d.get(ctx, "audits.list", "/v2/audits?limit=1&updated_after="+url.QueryEscape(tomorrow))
	if err == nil {
		n, _ := items(d.last.body)
		d.expect("audits.list ?updated_after", n == 0, "audits although none can match")
	}
	if !d.read("audits.list ?updated_after", err) {
		return
	}
	err = d.get(ctx, "audits.retrieve", "/v2/audits/00000000-0000-4000-8000-000000000000")
	if errors.Is(err, brellium.ErrNotFound) {
		d.check.response("audits.retrieve", http.StatusNotFound, d.last.header, d.last.body)
		d.check.record("response NotFound", problem{})
		err = nil
	} else if err == nil {
		d.check.record("response NotFound", problem{text: "HTTP 200 instead of 404"})
	}
	d.read("response NotFound", err)
}

func (d *doctor) expect(name string, ok bool, text string) {
	if ok {
		text = ""
	}
	d.check.record(name, problem{text: text})
}

// items returns the number of items of a page, and whether another follows.
func items(body []byte) (n int, more bool) {
	var page struct {
		Data    []json.RawMessage `json:"data"`
		HasMore bool              `json:"has_more"`
	}
	_ = json.Unmarshal(body, &page) // what differs is recorded elsewhere
	return len(page.Data), page.HasMore
}

// firstID returns the id of the first item of a page, empty if there is none.
func firstID(body []byte, name string) string {
	var page struct {
		Data []map[string]any `json:"data"`
	}
	if json.Unmarshal(body, &page) != nil || len(page.Data) == 0 {
		return ""
	}
	id, _ := page.Data[0][name].(string)
	return id
}
