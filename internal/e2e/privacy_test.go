package e2e_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"go/token"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
	"github.com/brellium/brellium-go/internal/testkit"
)

const (
	// marker is in every value that must not be reported.
	marker = "mk9zq"
	// spoken is in the error messages of the server. Only the text of an error
	// may contain it.
	spoken = "msg7wx"
)

// confidential has a call of each operation with the marker in every value. A name
// may have more after a slash.
// TestPrivacyTestsCoverEveryOperation checks that none is missing.
var confidential = map[string]func(context.Context, *brellium.Client, ...brellium.CallOption) error{
	"audits.list": func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
		for _, err := range c.Audits.All(ctx, brellium.AuditListParams{Status: marker, SetID: marker, DocumentID: marker, Flags: []string{marker}, Cursor: marker}, opts...) {
			if err != nil {
				return err
			}
		}
		return nil
	},
	"audits.retrieve": func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
		_, err := c.Audits.Retrieve(ctx, marker+"/../?x#", append(opts, brellium.WithHeader("X-Patient", marker))...)
		return err
	},
	"audits.update": func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
		_, err := c.Audits.Update(ctx, marker, brellium.AuditUpdateParams{Flags: []string{marker}}, opts...)
		return err
	},
	"audits.batch_update": func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
		_, err := c.Audits.BatchUpdate(ctx, brellium.AuditBatchUpdateParams{AuditIDs: []string{marker}, Flags: []string{marker}}, opts...)
		return err
	},
	"documents.create": func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
		_, err := c.Documents.Create(ctx, brellium.DocumentCreateParams{Documents: []brellium.DocumentInput{{Filename: marker + ".pdf",
			ExternalID: marker, DocType: marker, ExternalMetadata: map[string]any{marker: marker}}}}, opts...)
		return err
	},
	"documents.list": func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
		_, err := c.Documents.List(ctx, brellium.DocumentListParams{ExternalID: marker, Cursor: marker}, opts...)
		return err
	},
	"documents.retrieve": func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
		_, err := c.Documents.Retrieve(ctx, marker, opts...)
		return err
	},
	"documents.put": func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
		file := confidentialFile()
		created, err := c.Documents.Create(ctx, brellium.DocumentCreateParams{Documents: []brellium.DocumentInput{{Filename: file.Filename, ExternalID: marker + "1"}}})
		if err != nil {
			return err
		}
		return c.Documents.Put(ctx, created.Documents[0].UploadURL, file, opts...)
	},
	"documents.put/upload": func(ctx context.Context, c *brellium.Client, _ ...brellium.CallOption) error {
		_, err := c.Documents.Upload(ctx, []brellium.UploadFile{confidentialFile()}, brellium.UploadOptions{IdleTimeout: time.Minute})
		return err
	},
	"users.create": func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
		_, err := c.Users.Create(ctx, brellium.UserCreateParams{Email: marker + "@example.test", Name: marker,
			Metadata: map[string]any{marker: marker}, Attributes: map[string]any{marker: marker}}, opts...)
		return err
	},
	"users.list": func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
		user := brellium.UserCreateParams{Email: marker + "@example.test"}
		_, err := c.Users.Create(ctx, user)
		if err == nil {
			_, err = c.Users.Ensure(ctx, user, opts...)
		}
		return err
	},
	"users.retrieve": func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
		_, err := c.Users.Retrieve(ctx, marker, opts...)
		return err
	},
	"users.delete": func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
		return c.Users.Delete(ctx, marker, opts...)
	},
	"email_recipients.create": func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
		_, err := c.EmailRecipients.Ensure(ctx, brellium.EmailRecipientCreateParams{Email: marker + "@example.test", Name: marker}, opts...)
		return err
	},
	"email_recipients.list": func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
		_, err := c.EmailRecipients.FindByEmail(ctx, marker+"@example.test", opts...)
		return err
	},
	"email_recipients.retrieve": func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
		_, err := c.EmailRecipients.Retrieve(ctx, marker, opts...)
		return err
	},
	"oauth.token": func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
		_, err := c.OAuth.CreateToken(ctx, opts...)
		return err
	},
	"client.do": func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) error {
		var into map[string]int
		return c.Do(ctx, http.MethodPost, "/v2/audits/"+marker+"?email="+marker+"%40example.test", map[string]string{marker: marker}, &into, opts...)
	},
}

func confidentialFile() brellium.UploadFile {
	file := brellium.FileFromBytes(marker+".pdf", []byte(marker))
	file.ExternalID, file.ContentType, file.ExternalMetadata = marker, "application/"+marker, map[string]any{marker: marker}
	return file
}

// mishaps are the failures of each call, with the marker wherever a server could put
// it.
var mishaps = map[string][]brelliumtest.Fault{
	"nothing":          nil,
	"400":              {brelliumtest.Status(400, "INVALID").WithMessage(spoken).WithHeader("X-Patient", marker)},
	"odd envelope":     {brelliumtest.Respond(422, "application/json", `{"error":{"type":"`+marker+` a","code":"`+marker+`@b","message":"`+spoken+`","request_id":"`+marker+`/c"},"x":"`+marker+`"}`).WithHeader("X-Request-Id", marker+"@d")},
	"odd OAuth error":  {brelliumtest.Respond(400, "application/json", `{"error":"`+marker+` invalid","error_description":"`+spoken+`"}`)},
	"XML error":        {brelliumtest.Respond(403, "application/xml", `<Error><Code>`+marker+` x</Code><Message>`+marker+`</Message></Error>`)},
	"message of lines": {brelliumtest.Status(409, "ODD").WithMessage(spoken + "\r\nlevel=ERROR msg=forged\x1b[2J\u202e" + strings.Repeat("x", 3000))},
	"token revoked":    {brelliumtest.RevokedToken()},
	"401 each time":    {brelliumtest.Status(401, "UNAUTHORIZED").WithMessage(spoken).Forever()},
	"blocked":          {brelliumtest.Blocked().Forever()},
	"bare 403":         {brelliumtest.Respond(403, "text/plain", marker).Forever()},
	"404":              {brelliumtest.Status(404, "NOT_FOUND").WithMessage(spoken)},
	"413":              {brelliumtest.Bare(413)},
	"429":              {brelliumtest.Status(429, "RATE_LIMITED").WithMessage(spoken).Times(2)},
	"429 each time":    {brelliumtest.Status(429, "RATE_LIMITED").WithMessage(spoken).WithHeader("Retry-After", marker).Forever()},
	"503 each time":    {brelliumtest.Status(503, "UNAVAILABLE").WithMessage(spoken).Forever()},
	"502 page":         {brelliumtest.Respond(502, "text/html", "<html>"+marker+"</html>").Forever()},
	"200 page":         {brelliumtest.Respond(200, "text/html", "<html>"+marker+"</html>")},
	"200 nothing":      {brelliumtest.Respond(200, "application/json", "")},
	"wrong types":      {brelliumtest.Respond(200, "application/json", `{"audit_id":{"`+marker+`":1},"user_id":["`+marker+`"],"data":"`+marker+`","documents":[{"document_id":{"`+marker+`":1}}],"`+marker+`":"`+marker+`","access_token":{"`+marker+`":1}}`)},
	"another shape":    {brelliumtest.Respond(200, "application/json", `{"`+marker+`":{"next":"`+marker+`"},"results":["`+marker+`"]}`)},
	"odd items":        {brelliumtest.Respond(200, "application/json", `{"data":[{"`+marker+`":1},"`+marker+`",{"audit_id":"1","score":"`+marker+`","flags":{"`+marker+`":1}}],"`+marker+`":{"next":"`+marker+`"},"updated_audit_ids":{"`+marker+`":1},"documents":{"`+marker+`":1}}`)},
	"bad JSON":         {brelliumtest.Respond(200, "application/json", `{"`+marker+`":`+marker)},
	"odd token type":   {brelliumtest.Respond(200, "application/json", `{"access_token":"`+marker+`","token_type":"`+marker+`"}`)},
	"circle of pages":  {brelliumtest.Respond(200, "application/json", `{"data":[],"has_more":true,"next_cursor":"`+marker+`"}`).Forever()},
	"redirect":         {brelliumtest.Redirect(307, "https://elsewhere.test/"+marker+"?"+marker)},
	"101":              {brelliumtest.Respond(101, "", marker)},
	"refused":          {brelliumtest.NeverSent().Forever()},
	"never written":    {brelliumtest.Unsent().Forever()},
	"dropped before":   {brelliumtest.DropBefore().Forever()},
	"dropped after":    {brelliumtest.DropAfter().Forever()},
	"reset":            {brelliumtest.DropAfter().AsReset().Forever()},
	"dropped reading":  {brelliumtest.DropReading().Forever()},
	"stall":            {brelliumtest.StallHeaders(0).Forever()},
	"stall in body":    {brelliumtest.OK().StallInBody(0).Forever()},
	"cut off":          {brelliumtest.OK().Truncated().Forever()},
	"cut off gzip":     {brelliumtest.OK().GzipTruncated().Forever()},
	"large":            {brelliumtest.LargeBody(500, 1<<20).Forever()},
}

func TestPrivacyTestsCoverEveryOperation(t *testing.T) {
	for _, op := range operations(t) {
		assert.Contains(t, confidential, op.name)
	}
}

// watch keeps everything that a client reports.
type watch struct {
	mu     sync.Mutex
	log    bytes.Buffer
	events []string
	client *brellium.Client
}

func (w *watch) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.Write(p)
}

// Observe prints the event in every way. The context is printed with %v only: other
// verbs read it without its lock.
func (w *watch) Observe(ctx context.Context, e brellium.Event) context.Context {
	text := printed(e) + fmt.Sprint(ctx) + deep(reflect.ValueOf(e))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, text)
	return context.WithValue(ctx, watchKey{}, &struct{ v any }{&struct{ s string }{marker}})
}

// RequestHeader adds a header whose value must not appear anywhere.
func (w *watch) RequestHeader(context.Context) http.Header {
	return http.Header{"Traceparent": {marker}}
}

type watchKey struct{}

func newWatch(t testing.TB, emu *brelliumtest.Emulator, opts ...brellium.ClientOption) *watch {
	w := new(watch)
	logger := slog.New(both{
		slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug, AddSource: true}),
		slog.NewJSONHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}),
	})
	w.client = testkit.NewClient(t, emu, append([]brellium.ClientOption{brellium.WithLogger(logger), brellium.WithObserver(w)}, opts...)...)
	return w
}

// both hands each record to two handlers.
type both [2]slog.Handler

func (b both) Enabled(context.Context, slog.Level) bool { return true }
func (b both) Handle(ctx context.Context, r slog.Record) error {
	return errors.Join(b[0].Handle(ctx, r), b[1].Handle(ctx, r))
}
func (b both) WithAttrs(a []slog.Attr) slog.Handler {
	return both{b[0].WithAttrs(a), b[1].WithAttrs(a)}
}
func (b both) WithGroup(s string) slog.Handler { return both{b[0].WithGroup(s), b[1].WithGroup(s)} }

// hashicorp/go-retryablehttp#206, hashicorp/go-retryablehttp#282
func TestNoConfidentialValueIsReported(t *testing.T) {
	for op, call := range confidential {
		t.Run(op, func(t *testing.T) {
			for what, faults := range mishaps {
				synctest.Test(t, func(t *testing.T) {
					emu := brelliumtest.New(brelliumtest.WithCredentials(marker+"-id", marker+"-secret"), brelliumtest.WithStorageURL("https://"+marker+".storage.test/"))
					w := newWatch(t, emu, brellium.WithMaxRetries(2), brellium.WithAttemptTimeout(5*time.Second))
					target, _, _ := strings.Cut(op, "/")
					if op == "client.do" {
						target = brelliumtest.OpAny
					}
					emu.Inject(target, faults...)
					var r brellium.Response
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
					defer cancel()
					err := call(ctx, w.client, brellium.WithResponseInto(&r))
					settle()
					if what == "nothing" {
						assert.Positive(t, emu.Count(target), "the operation is not sent")
					}
					w.check(t, emu, op+", "+what, err, &r)
				})
			}
		})
	}
}

// The caller's context, and the cause of its end, may contain anything.
func TestCancellationCauseIsNotPrinted(t *testing.T) {
	for op, call := range confidential {
		synctest.Test(t, func(t *testing.T) {
			emu := brelliumtest.New(brelliumtest.WithCredentials(marker+"-id", marker+"-secret"))
			w := newWatch(t, emu)
			emu.Inject(brelliumtest.OpAny, brelliumtest.StallHeaders(0).Forever())
			cause := errors.New(marker)
			ctx, cancel := context.WithCancelCause(context.WithValue(t.Context(), watchKey{}, &struct{ v any }{&struct{ s string }{marker}}))
			time.AfterFunc(time.Second, func() { cancel(cause) })
			err := call(ctx, w.client)
			require.ErrorIs(t, err, context.Canceled, op)
			require.ErrorIs(t, err, cause, op)
			settle()
			w.check(t, emu, op, err, &brellium.Response{})
		})
	}
}

// settle waits, in virtual time, until nothing of the client runs any more: a
// token request runs on no caller's context.
func settle() {
	time.Sleep(2 * time.Minute)
	synctest.Wait()
}

// check searches all output for the marker and for every token.
func (w *watch) check(t testing.TB, emu *brelliumtest.Emulator, what string, err error, r *brellium.Response) {
	t.Helper()
	needles := []string{marker}
	for _, request := range emu.Requests() {
		if request.Token != "" && !slices.Contains(needles, request.Token) {
			needles = append(needles, request.Token)
		}
	}
	look := func(where, text string) {
		t.Helper()
		for _, needle := range needles {
			if found := find(text, needle); found != "" {
				t.Errorf("%s: %s contains %q: …%s…", what, where, needle, found)
			}
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	reported := w.log.String() + strings.Join(w.events, "\n")
	if n := emu.Count(brelliumtest.OpAny); n > 0 {
		assert.GreaterOrEqual(t, len(w.events), n, "%s: each attempt is reported", what)
	}
	look("the log or the observer", reported)
	look("the client", printed(w.client)+deep(reflect.ValueOf(w.client), "Message", "Header", "Body"))
	look("the response", printed(r)+printed(*r)+deep(reflect.ValueOf(r), "Header"))
	assert.Empty(t, find(reported, spoken), what)
	assert.Empty(t, find(printed(r), spoken), what)
	if err == nil {
		return
	}
	for _, e := range tree(err) {
		where := fmt.Sprintf("a %T", e)
		look(where, printed(e)+deep(reflect.ValueOf(e), "Message", "Header", "Body", "Cursor", "ExternalID"))
		if v := reflect.ValueOf(e); v.Kind() == reflect.Pointer && token.IsExported(v.Elem().Type().Name()) { // the struct itself
			look(where+" as a value", printed(v.Elem().Interface()))
		}
		structured := logged(e) + encoded(e)
		assert.Empty(t, find(structured, spoken), "%s: %s", what, where)
		assert.NotContains(t, e.Error(), "\n", what)
		assert.NotContains(t, e.Error(), "\x1b", what)
		assert.NotContains(t, e.Error(), "\u202e", what)
		assert.Less(t, len(e.Error()), 4000, what)
	}
	// All that errors.As can find without a type of the package.
	var asked []any
	for _, target := range []any{new(net.Error), new(interface{ Timeout() bool }), new(fmt.Formatter), new(fmt.Stringer),
		new(slog.LogValuer), new(json.Marshaler), new(*url.Error), new(*net.OpError), new(*net.DNSError), new(*net.AddrError),
		new(*fs.PathError), new(*os.SyscallError), new(textproto.ProtocolError), new(*textproto.Error)} {
		if errors.As(err, target) {
			asked = append(asked, reflect.ValueOf(target).Elem().Interface())
		}
	}
	for _, found := range asked {
		look(fmt.Sprintf("errors.As for a %T", found), printed(found))
	}
}

// tree returns err and everything that it unwraps to.
func tree(err error) (all []error) {
	if err == nil {
		return nil
	}
	all = append(all, err)
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		all = append(all, tree(e.Unwrap())...)
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			all = append(all, tree(inner)...)
		}
	}
	return all
}

// printed returns v under every verb, logged and encoded.
func printed(v any) string {
	var b strings.Builder
	for _, format := range []string{"%v", "%+v", "%#v", "%q", "%s", "%d", "%x", "%X", "%T", "%t", "%+q"} {
		fmt.Fprintf(&b, format+"\n", v)
	}
	fmt.Fprintln(&b, v, []any{v}, map[string]any{"v": v}, struct{ V any }{v})
	return b.String() + logged(v) + encoded(v)
}

func logged(v any) string {
	var b bytes.Buffer
	for _, h := range []slog.Handler{slog.NewTextHandler(&b, nil), slog.NewJSONHandler(&b, nil)} {
		slog.New(h).With("with", v).WithGroup("group").Info("message", "value", v, slog.Group("more", slog.Any("value", v)))
	}
	return b.String()
}

func encoded(v any) string {
	data, err := json.Marshal(map[string]any{"v": v})
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// deep returns every string and byte slice that reflection finds in v, also in
// unexported fields and behind atomic pointers, except in fields with these names.
func deep(v reflect.Value, byName ...string) string {
	var b strings.Builder
	seen := map[any]bool{}
	var walk func(v reflect.Value)
	walk = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.String:
			b.WriteString(v.String() + "\n")
		case reflect.Pointer:
			key := [2]any{v.Type(), v.Pointer()}
			if !v.IsNil() && !seen[key] {
				seen[key] = true
				walk(v.Elem())
			}
		case reflect.Interface:
			walk(v.Elem())
		case reflect.Slice, reflect.Array:
			if v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8 {
				b.Write(v.Bytes())
				b.WriteByte('\n')
				return
			}
			for i := range v.Len() {
				walk(v.Index(i))
			}
		case reflect.Map:
			for it := v.MapRange(); it.Next(); {
				walk(it.Key())
				walk(it.Value())
			}
		case reflect.Struct:
			if to, at := v.FieldByName("_"), v.FieldByName("v"); to.IsValid() && at.IsValid() && at.Kind() == reflect.UnsafePointer && at.UnsafePointer() != nil {
				walk(reflect.NewAt(to.Type().Elem().Elem(), at.UnsafePointer())) // an atomic.Pointer
				return
			}
			for i := range v.NumField() {
				if !slices.Contains(byName, v.Type().Field(i).Name) {
					walk(v.Field(i))
				}
			}
		}
	}
	walk(v)
	return b.String()
}

// find returns the surroundings of needle in text, in any form:
// plain in any case, in hex, as a list of bytes, or in base64.
func find(text, needle string) string {
	text = strings.ToLower(text)
	forms := []string{strings.ToLower(needle), hex.EncodeToString([]byte(needle))}
	var spaced, decimal, golang []string
	for _, c := range []byte(needle) {
		spaced = append(spaced, fmt.Sprintf("%02x", c))
		decimal = append(decimal, fmt.Sprint(c))
		golang = append(golang, fmt.Sprintf("0x%x", c))
	}
	forms = append(forms, strings.Join(spaced, " "), strings.Join(decimal, " "), strings.Join(golang, ", "))
	for shift := range 3 {
		// Of base64, only the part that does not depend on the neighbors.
		whole := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("\x00", shift) + needle))
		from, to := (shift*8+5)/6, (shift+len(needle))*8/6
		forms = append(forms, strings.ToLower(whole[from:to]))
	}
	for _, form := range forms {
		if i := strings.Index(text, form); i >= 0 {
			return text[max(0, i-100):min(len(text), i+100)]
		}
	}
	return ""
}

func TestSearchFindsEveryFormOfAMarker(t *testing.T) {
	for _, v := range []any{marker, []byte(marker), "x" + marker, []byte("ab" + marker + "c"), struct{ s string }{marker}, struct{ b []byte }{[]byte(marker)}} {
		for _, format := range []string{"%v", "%+v", "%#v", "%q", "%s", "%d", "%x", "%X", "% x"} {
			assert.NotEmpty(t, find(fmt.Sprintf(format, v), marker), "%s of %#v", format, v)
		}
		assert.NotEmpty(t, find(deep(reflect.ValueOf(v)), marker))
	}
	for _, prefix := range []string{"", "a", "ab", "abc"} {
		assert.NotEmpty(t, find(base64.StdEncoding.EncodeToString([]byte(prefix+marker+"xyz")), marker), prefix)
	}
	assert.Empty(t, find("nothing of the kind", marker))
}

// wordy is an error of a transport that shows its text in every way.
type wordy struct{ Text string }

func (e wordy) Error() string                { return e.Text }
func (e wordy) Format(s fmt.State, _ rune)   { _, _ = s.Write([]byte(e.Text)) }
func (e wordy) String() string               { return e.Text }
func (e wordy) LogValue() slog.Value         { return slog.StringValue(e.Text) }
func (e wordy) MarshalJSON() ([]byte, error) { return json.Marshal(e.Text) }
func (e wordy) Timeout() bool                { return true }
func (e wordy) Temporary() bool              { return true }
func (e wordy) Is(target error) bool         { return target == errWordy }
func (e wordy) Unwrap() error                { return wordyText(e.Text) }

type wordyText string

func (e wordyText) Error() string { return string(e) }

var errWordy = errors.New("wordy")

func TestTransportErrorTextIsHidden(t *testing.T) {
	said := "Get \"https://user:" + marker + "@api.brellium.test/v2/users?email=" + marker + "\""
	for _, failure := range []error{
		errors.New(said), wordyText(said), wordy{said}, &wordy{said},
		&url.Error{Op: marker, URL: said, Err: errors.New(said)},
		&url.Error{Op: "Get", URL: said, Err: &url.Error{Op: "Get", URL: said, Err: wordy{said}}},
		&net.OpError{Op: marker, Net: marker, Err: errors.New(said)},
		&net.OpError{Op: "dial", Net: "tcp", Addr: &net.UnixAddr{Name: marker}, Err: &url.Error{Op: "Get", URL: said, Err: errors.New(said)}},
		&net.OpError{Op: "proxyconnect", Net: "tcp", Err: errors.New(said)},
		&net.DNSError{Err: said, Name: marker + ".storage.test", Server: marker, IsNotFound: true},
		&net.DNSError{Err: said, Name: marker + ".storage.test", IsTimeout: true},
		&net.AddrError{Err: said, Addr: marker}, &net.ParseError{Type: marker, Text: marker},
		&fs.PathError{Op: "open", Path: "/home/" + marker, Err: fs.ErrNotExist}, &os.LinkError{Op: "link", Old: marker, New: marker, Err: fs.ErrExist},
		&os.SyscallError{Syscall: marker, Err: errors.New(said)},
		textproto.ProtocolError(said), &textproto.Error{Code: 500, Msg: said},
		tls.RecordHeaderError{Msg: said}, x509.UnknownAuthorityError{}, &tls.CertificateVerificationError{Err: errors.New(said)},
		&json.SyntaxError{}, &json.UnmarshalTypeError{Value: marker, Type: reflect.TypeOf(0), Field: marker},
		fmt.Errorf("%w: %s", brellium.ErrDoNotSend, said), fmt.Errorf("%s: %w", said, context.DeadlineExceeded),
		errors.Join(errors.New(said), &url.Error{Op: "Get", URL: said, Err: errors.New(said)}),
	} {
		for _, op := range []string{"audits.retrieve", "users.create", "email_recipients.list", "documents.put", "oauth.token"} {
			call := confidential[op]
			synctest.Test(t, func(t *testing.T) {
				emu := brelliumtest.New(brelliumtest.WithCredentials(marker+"-id", marker+"-secret"))
				w := newWatch(t, emu, brellium.WithMaxRetries(1), testkit.WithTransport(testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
					if strings.HasSuffix(r.URL.Path, "/token") && op != "oauth.token" {
						return emu.Transport().RoundTrip(r)
					}
					return nil, failure
				})))
				var r brellium.Response
				err := call(t.Context(), w.client, brellium.WithResponseInto(&r))
				require.Error(t, err)
				settle()
				w.check(t, emu, fmt.Sprintf("%s, %T", op, failure), err, &r)
			})
		}
	}
}

// The text of a transport's error is hidden; errors.Is and errors.As still find it.
func TestCauseOfAConnectionErrorCanBeFound(t *testing.T) {
	client := testkit.NewStubClient(t, func(*http.Request) (*http.Response, error) {
		return nil, &url.Error{Op: "Get", URL: marker, Err: &wordy{"x"}}
	}, brellium.WithMaxRetries(0))
	err := testkit.Retrieve(t.Context(), client)
	assert.ErrorIs(t, err, errWordy)
	var own *wordy
	require.ErrorAs(t, err, &own)
	assert.Equal(t, "x", own.Text)
	var timeout net.Error
	require.ErrorAs(t, err, &timeout)
	assert.True(t, timeout.Timeout())
}

// The errors of a custom limiter or token store may contain anything, too.
func TestLimiterAndTokenStoreErrorTextIsHidden(t *testing.T) {
	said := "dial redis://user:" + marker + "@cache.test"
	for op, call := range confidential {
		synctest.Test(t, func(t *testing.T) {
			emu := brelliumtest.New()
			store := &testkit.BrokenStore{TokenStore: brellium.NewMemoryTokenStore()}
			store.Set(errors.New(said))
			w := newWatch(t, emu, brellium.WithRateLimiter(testkit.LimiterFunc(func(context.Context) (brellium.Permit, error) { return nil, wordy{said} })), brellium.WithTokenStore(store))
			err := call(t.Context(), w.client)
			settle()
			w.check(t, emu, op, err, &brellium.Response{})
			if op == "oauth.token" {
				assert.NoError(t, err, "token requests have no limiter")
				return
			}
			var failed *brellium.ConnectionError
			require.ErrorAs(t, err, &failed, "every error is one of the package's types")
			assert.False(t, failed.Sent)
			assert.ErrorIs(t, err, errWordy)
			assert.True(t, brellium.IsTransient(err))
			assert.False(t, brellium.OutcomeUnknown(err))
		})
	}
}

// invalid are calls with invalid values, each with the marker in it.
var invalid = map[string]func(ctx context.Context, c *brellium.Client) error{
	"credentials": func(context.Context, *brellium.Client) error {
		return reject(brellium.WithClientCredentials(marker, marker+"\n"+marker))
	},
	"credentials 2": func(context.Context, *brellium.Client) error {
		return reject(brellium.WithClientCredentials(marker+"\x00", marker))
	},
	"token": func(context.Context, *brellium.Client) error { return reject(brellium.WithAccessToken(marker + "é")) },
	"two kinds": func(context.Context, *brellium.Client) error {
		return reject(brellium.WithAccessToken(marker), brellium.WithClientCredentials(marker, marker))
	},
	"URL": func(context.Context, *brellium.Client) error {
		return reject(brellium.WithAccessToken(marker), brellium.WithBaseURL(marker))
	},
	"URL, user": func(context.Context, *brellium.Client) error {
		return reject(brellium.WithAccessToken(marker), brellium.WithBaseURL("https://user:"+marker+"@h.test"))
	},
	"URL, query": func(context.Context, *brellium.Client) error {
		return reject(brellium.WithAccessToken(marker), brellium.WithBaseURL("https://h.test?"+marker))
	},
	"URL, fragment": func(context.Context, *brellium.Client) error {
		return reject(brellium.WithAccessToken(marker), brellium.WithBaseURL("https://h.test#"+marker))
	},
	"URL, unparsed": func(context.Context, *brellium.Client) error {
		return reject(brellium.WithAccessToken(marker), brellium.WithBaseURL("https://h.test:"+marker))
	},
	"URL, plain": func(context.Context, *brellium.Client) error {
		return reject(brellium.WithAccessToken(marker), brellium.WithBaseURL("http://"+marker))
	},
	"URL, dots": func(context.Context, *brellium.Client) error {
		return reject(brellium.WithAccessToken(marker), brellium.WithBaseURL("https://h.test/../"+marker))
	},
	"agent": func(context.Context, *brellium.Client) error {
		return reject(brellium.WithAccessToken(marker), brellium.WithUserAgent(marker+"\n"+marker))
	},
	"header value": func(ctx context.Context, c *brellium.Client) error {
		return testkit.Retrieve(ctx, c, brellium.WithHeader("X-A", marker+"\r\nAuthorization: x"))
	},
	"header key": func(ctx context.Context, c *brellium.Client) error {
		return testkit.Retrieve(ctx, c, brellium.WithHeader(marker+"\n", "x"))
	},
	"authorization": func(ctx context.Context, c *brellium.Client) error {
		return testkit.Retrieve(ctx, c, brellium.WithHeader("authorization", marker))
	},
	"filter": func(ctx context.Context, c *brellium.Client) error {
		_, err := c.Audits.List(ctx, brellium.AuditListParams{Flags: []string{marker, ""}, SetID: marker})
		return err
	},
	"cursor": func(ctx context.Context, c *brellium.Client) error {
		_, err := c.Audits.List(ctx, brellium.AuditListParams{Cursor: marker + "\n"})
		return err
	},
	"long query": func(ctx context.Context, c *brellium.Client) error {
		_, err := c.Audits.List(ctx, brellium.AuditListParams{SetID: strings.Repeat(marker, 500)})
		return err
	},
	"email": func(ctx context.Context, c *brellium.Client) error {
		_, err := c.Users.Create(ctx, brellium.UserCreateParams{Email: marker, Name: marker})
		return err
	},
	"recipient": func(ctx context.Context, c *brellium.Client) error {
		_, err := c.EmailRecipients.FindByEmail(ctx, marker)
		return err
	},
	"metadata": func(ctx context.Context, c *brellium.Client) error {
		_, err := c.Users.Create(ctx, brellium.UserCreateParams{Email: marker + "@example.test", Metadata: map[string]any{marker: func() {}}})
		return err
	},
	"own marshaler": func(ctx context.Context, c *brellium.Client) error {
		return c.Do(ctx, "POST", "/v2/"+marker, badMarshaler{}, nil)
	},
	"no number": func(ctx context.Context, c *brellium.Client) error {
		return c.Do(ctx, "POST", "/v2/x", map[string]json.Number{marker: marker}, nil)
	},
	"raw body": func(ctx context.Context, c *brellium.Client) error {
		return c.Do(ctx, "POST", "/v2/x", json.RawMessage(marker), nil)
	},
	"path": func(ctx context.Context, c *brellium.Client) error { return c.Do(ctx, "GET", marker, nil, nil) },
	"path, dots": func(ctx context.Context, c *brellium.Client) error {
		return c.Do(ctx, "GET", "/v2/../"+marker, nil, nil)
	},
	"method": func(ctx context.Context, c *brellium.Client) error { return c.Do(ctx, marker+" /", "/", nil, nil) },
	"document": func(ctx context.Context, c *brellium.Client) error {
		_, err := c.Documents.Create(ctx, brellium.DocumentCreateParams{Documents: []brellium.DocumentInput{{Filename: marker, ExternalID: marker}, {Filename: marker, ExternalID: marker}}})
		return err
	},
	"no file": func(context.Context, *brellium.Client) error {
		_, err := brellium.FileFromPath("/no/such/" + marker + ".pdf")
		return err
	},
	"file": func(ctx context.Context, c *brellium.Client) error {
		_, err := c.Documents.Upload(ctx, []brellium.UploadFile{{Filename: marker, ExternalID: marker, Size: -1}}, brellium.UploadOptions{})
		return err
	},
	"unopened file": func(ctx context.Context, c *brellium.Client) error {
		_, err := c.Documents.Upload(ctx, []brellium.UploadFile{{Filename: marker, ExternalID: marker, Size: 1, Open: openNothing}}, brellium.UploadOptions{})
		return err
	},
}

type badMarshaler struct{}

func (badMarshaler) MarshalJSON() ([]byte, error) { return nil, errors.New(marker) }

func reject(opts ...brellium.ClientOption) error {
	_, err := brellium.NewClient(opts...)
	return err
}

func TestInvalidValueIsNotQuoted(t *testing.T) {
	for what, call := range invalid {
		synctest.Test(t, func(t *testing.T) {
			emu := brelliumtest.New()
			w := newWatch(t, emu)
			err := call(t.Context(), w.client)
			require.Error(t, err, what)
			settle()
			w.check(t, emu, what, err, &brellium.Response{})
		})
	}
	for _, name := range []string{"BRELLIUM_ACCESS_TOKEN", "BRELLIUM_CLIENT_SECRET", "BRELLIUM_BASE_URL"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("BRELLIUM_CLIENT_ID", "id")
			t.Setenv("BRELLIUM_CLIENT_SECRET", "s")
			t.Setenv(name, marker+"\n://"+marker)
			emu := brelliumtest.New()
			w := newWatch(t, emu)
			err := reject()
			require.Error(t, err)
			w.check(t, emu, name, err, &brellium.Response{})
			assert.Contains(t, err.Error(), name)
		})
	}
}

func TestExportedTypesPrintNoSecret(t *testing.T) {
	emu := brelliumtest.New(brelliumtest.WithCredentials(marker+"-id", marker+"-secret"), brelliumtest.WithStorageURL("https://"+marker+".storage.test"))
	client := testkit.NewClient(t, emu)
	minted, err := client.OAuth.CreateToken(t.Context())
	require.NoError(t, err)
	created, err := client.Documents.Create(t.Context(), brellium.DocumentCreateParams{Documents: []brellium.DocumentInput{{Filename: "a.pdf", ExternalID: "a"}}})
	require.NoError(t, err)
	require.Contains(t, created.Documents[0].UploadURL.Reveal(), marker)
	store := brellium.NewMemoryTokenStore()
	lease, err := store.Lease(t.Context(), "key", time.Minute)
	require.NoError(t, err)
	require.NoError(t, lease.Save(t.Context(), minted))

	// All of these, also in unexported fields.
	for _, v := range []any{
		client, *client.Audits, client.Documents, client.Users, client.EmailRecipients, client.OAuth,
		minted, *minted, brellium.NewToken("Bearer", marker, time.Now()), store, lease,
		created.Documents[0].UploadURL, &created.Documents[0].UploadURL,
		brellium.WithClientCredentials(marker, marker), brellium.WithAccessToken(marker), brellium.WithBaseURL("https://" + marker),
		brellium.WithUserAgent(marker), brellium.WithHeader("X-A", marker), brellium.WithTokenStore(store), brellium.WithMaxRetries(1),
	} {
		for _, needle := range []string{marker, minted.Reveal()} {
			assert.Empty(t, find(printed(v), needle), "%T", v)
			assert.Empty(t, find(fmt.Sprintf("%+v %#v", struct{ v any }{v}, struct{ v any }{v}), needle), "%T, where package fmt cannot call its methods", v)
			assert.Empty(t, find(deep(reflect.ValueOf(v)), needle), "%T", v)
		}
	}
	// Resources are the caller's data, except for the upload URL.
	assert.Empty(t, find(printed(created), marker))
	assert.Empty(t, find(printed(created.Documents[0]), marker))
	// So are params. The content of a file is not printed.
	assert.Contains(t, fmt.Sprintf("%+v", brellium.AuditListParams{SetID: "s-1", Flags: []string{"Failed"}}), "SetID:s-1")
	assert.Empty(t, find(printed(brellium.FileFromBytes("a.pdf", []byte(marker))), marker))
	// Headers and bodies are not printed.
	for _, v := range []any{
		brellium.Response{StatusCode: 200, Header: http.Header{"X-A": {marker}}}, &brellium.Response{Header: http.Header{marker: {marker}}},
		brellium.APIError{Message: "m", Header: http.Header{"X-A": {marker}}, Body: []byte(marker)}, brellium.PaginationError{Cursor: marker}, brellium.UploadError{ExternalID: marker},
	} {
		assert.Empty(t, find(printed(v), marker), "%T", v)
	}
	assert.Equal(t, `brellium.Response[status=200 request_id=r attempts=1]`, fmt.Sprint(brellium.Response{StatusCode: 200, RequestID: "r", Attempts: make([]brellium.Attempt, 1)}))
}

// hetznercloud/hcloud-go#161, thousandeyes/thousandeyes-sdk-go#218, databricks/databricks-sdk-go#882
func TestNoCredentialIsInDebugOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		emu := brelliumtest.New()
		w := newWatch(t, emu)
		audit, err := w.client.Audits.Retrieve(t.Context(), brelliumtest.SampleAuditID)
		require.NoError(t, err)
		_, err = w.client.Audits.Update(t.Context(), brelliumtest.SampleAuditID, brellium.AuditUpdateParams{Flags: []string{"casey"}})
		require.NoError(t, err)
		_, err = w.client.Documents.Upload(t.Context(), []brellium.UploadFile{brellium.FileFromBytes("robin.pdf", []byte("%PDF"))}, brellium.UploadOptions{})
		require.NoError(t, err)

		reported := strings.ToLower(w.log.String() + strings.Join(w.events, "\n"))
		require.Contains(t, reported, "operation=audits.update", "the log is not empty")
		require.Contains(t, reported, "operation=documents.put")
		require.Contains(t, reported, "operation=oauth.token")
		secrets := []string{emu.ClientSecret, emu.ClientID, "casey", "robin", "bearer", brelliumtest.SampleAuditID, audit.DisplayInfo[0].Value}
		for _, r := range emu.Requests() {
			if r.Token != "" {
				secrets = append(secrets, r.Token)
			}
			if r.Operation == brelliumtest.OpDocumentPut {
				secrets = append(secrets, r.RawQuery, r.Path, r.Host)
			}
			if len(r.Body) > 4 {
				secrets = append(secrets, string(r.Body))
			}
		}
		require.Greater(t, len(secrets), 12)
		for _, secret := range secrets {
			require.NotEmpty(t, secret)
			assert.NotContains(t, reported, strings.ToLower(secret))
		}
	})
}

func TestOnlyNewClientReadsTheEnvironment(t *testing.T) {
	emu := brelliumtest.New()
	t.Setenv("BRELLIUM_CLIENT_ID", emu.ClientID)
	t.Setenv("BRELLIUM_CLIENT_SECRET", emu.ClientSecret)
	t.Setenv("BRELLIUM_BASE_URL", emu.BaseURL())
	client, err := brellium.NewClient(testkit.WithTransport(emu.Transport()))
	require.NoError(t, err)
	for _, name := range []string{"BRELLIUM_CLIENT_ID", "BRELLIUM_CLIENT_SECRET", "BRELLIUM_BASE_URL", "BRELLIUM_ACCESS_TOKEN"} {
		t.Setenv(name, "changed later")
	}
	require.NoError(t, testkit.Retrieve(t.Context(), client))

	sources, err := filepath.Glob("../../*.go")
	require.NoError(t, err)
	internal, err := filepath.Glob("../*/*.go")
	require.NoError(t, err)
	readers := map[string]int{}
	for _, name := range append(sources, internal...) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		if n := len(regexp.MustCompile(`os\.(Getenv|LookupEnv|Environ|ExpandEnv)|syscall\.Getenv`).FindAll(text, -1)); n > 0 {
			readers[filepath.Base(name)] = n
		}
	}
	assert.Equal(t, map[string]int{"options.go": 4}, readers)
}

func openNothing() (io.ReadCloser, error) {
	return nil, &fs.PathError{Op: "open", Path: "/home/" + marker, Err: fs.ErrPermission}
}
