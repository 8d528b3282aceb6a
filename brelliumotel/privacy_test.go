package brelliumotel_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumotel"
	"github.com/brellium/brellium-go/brelliumtest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// marker is in every value that telemetry must not contain.
const marker = "mk9zq"

// calls makes a call of each operation with the marker in every value.
var calls = map[string]func(context.Context, *brellium.Client) error{
	brelliumtest.OpAuditList: func(ctx context.Context, c *brellium.Client) error {
		for _, err := range c.Audits.All(ctx, brellium.AuditListParams{SetID: marker, DocumentID: marker, Flags: []string{marker}, Cursor: marker}) {
			return err
		}
		return nil
	},
	brelliumtest.OpAuditRetrieve: func(ctx context.Context, c *brellium.Client) error {
		return errOf(c.Audits.Retrieve(ctx, marker, brellium.WithHeader("X-Trace", marker)))
	},
	brelliumtest.OpAuditUpdate: func(ctx context.Context, c *brellium.Client) error {
		return errOf(c.Audits.Update(ctx, marker, brellium.AuditUpdateParams{Flags: []string{marker}}))
	},
	brelliumtest.OpAuditBatchUpdate: func(ctx context.Context, c *brellium.Client) error {
		return errOf(c.Audits.BatchUpdate(ctx, brellium.AuditBatchUpdateParams{AuditIDs: []string{marker}, Flags: []string{marker}}))
	},
	brelliumtest.OpUserCreate: func(ctx context.Context, c *brellium.Client) error {
		return errOf(c.Users.Create(ctx, brellium.UserCreateParams{Email: marker + "@example.test", Name: marker, Metadata: map[string]any{marker: marker}}))
	},
	brelliumtest.OpUserDelete: func(ctx context.Context, c *brellium.Client) error {
		return c.Users.Delete(ctx, marker)
	},
	brelliumtest.OpUserList: func(ctx context.Context, c *brellium.Client) error {
		return errOf(c.Users.List(ctx, brellium.UserListParams{Email: marker + "@example.test"}))
	},
	brelliumtest.OpEmailRecipientList: func(ctx context.Context, c *brellium.Client) error {
		return errOf(c.EmailRecipients.FindByEmail(ctx, marker+"@example.test"))
	},
	brelliumtest.OpEmailRecipientRetrieve: func(ctx context.Context, c *brellium.Client) error {
		return c.Do(ctx, http.MethodGet, "/v2/email_recipients/"+marker+"?q="+marker, nil, nil)
	},
	brelliumtest.OpUserRetrieve: func(ctx context.Context, c *brellium.Client) error { return errOf(c.Users.Retrieve(ctx, marker)) },
	brelliumtest.OpEmailRecipientCreate: func(ctx context.Context, c *brellium.Client) error {
		return errOf(c.EmailRecipients.Ensure(ctx, brellium.EmailRecipientCreateParams{Email: marker + "@example.test", Name: marker}))
	},
	brelliumtest.OpDocumentCreate: func(ctx context.Context, c *brellium.Client) error {
		_, err := c.Documents.Create(ctx, brellium.DocumentCreateParams{Documents: []brellium.DocumentInput{
			{Filename: marker, ExternalID: marker, DocType: marker, ExternalMetadata: map[string]any{marker: marker}}}})
		return err
	},
	brelliumtest.OpDocumentRetrieve: func(ctx context.Context, c *brellium.Client) error { return errOf(c.Documents.Retrieve(ctx, marker)) },
	brelliumtest.OpDocumentList: func(ctx context.Context, c *brellium.Client) error {
		return errOf(c.Documents.List(ctx, brellium.DocumentListParams{ExternalID: marker, Cursor: marker}))
	},
	brelliumtest.OpDocumentPut: func(ctx context.Context, c *brellium.Client) error {
		file := brellium.FileFromBytes(marker+".pdf", []byte(marker))
		file.ExternalID = marker
		_, err := c.Documents.Upload(ctx, []brellium.UploadFile{file}, brellium.UploadOptions{})
		return err
	},
	brelliumtest.OpTokenCreate: func(ctx context.Context, c *brellium.Client) error { return errOf(c.OAuth.CreateToken(ctx)) },
}

// errOf returns the error of a call.
func errOf[T any](_ T, err error) error { return err }

// faults are the faults of the calls, with the marker in every value that the
// server chooses.
var faults = map[string]brelliumtest.Fault{
	"none":       brelliumtest.OK(),
	"400":        brelliumtest.Status(400, "INVALID").WithMessage(marker),
	"odd code":   brelliumtest.Respond(422, "application/json", `{"error":{"type":"`+marker+` t","code":"`+marker+` c","message":"`+marker+`"}}`).WithHeader("X-Request-Id", marker+" r"),
	"401":        brelliumtest.RevokedToken(),
	"403":        brelliumtest.Blocked(),
	"404":        brelliumtest.Status(404, "NOT_FOUND").WithMessage(marker),
	"429":        brelliumtest.Status(429, "RATE_LIMITED").WithMessage(marker).Times(2),
	"503":        brelliumtest.Status(503, "UNAVAILABLE").WithMessage(marker).Forever(),
	"page":       brelliumtest.Respond(200, "text/html", "<html>"+marker),
	"wrong type": brelliumtest.Respond(200, "application/json", `{"audit_id":{"`+marker+`":1},"data":"`+marker+`"}`),
	"redirect":   brelliumtest.Redirect(307, "https://elsewhere.test/"+marker),
	"refused":    brelliumtest.NeverSent().Forever(),
	"dropped":    brelliumtest.DropAfter(),
	"cut off":    brelliumtest.OK().Truncated().Forever(),
	"stall":      brelliumtest.StallHeaders(0).Forever(),
}

func TestNothingConfidentialIsInSpansOrMetrics(t *testing.T) {
	for name, call := range calls {
		for what, fault := range faults {
			t.Run(name+"/"+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					emu := brelliumtest.New(brelliumtest.WithCredentials(marker+"-id", marker+"-secret"),
						brelliumtest.WithStorageURL("https://"+marker+".storage.test"))
					r := newRig(t, emu, brellium.WithMaxRetries(1))
					emu.Inject(name, fault)
					_ = call(context.Background(), r.client)
					spans := r.spans.GetSpans()
					require.Contains(t, dump(spans), "oauth.token", "the dump contains the telemetry")
					require.Contains(t, dump(r.metrics(t)), "/v2/oauth/token")
					assert.NotContains(t, dump(spans), marker)
					assert.NotContains(t, dump(r.metrics(t)), marker)
					for _, request := range emu.Requests() {
						if request.Token != "" {
							assert.NotContains(t, dump(spans), strings.ToLower(request.Token))
						}
						if name == brelliumtest.OpDocumentPut && request.Operation == name {
							assert.Empty(t, onlyTrace(request.Header), "storage gets no trace context")
							assert.NotEmpty(t, r.of(name))
						}
					}
				})
			})
		}
	}
}

// The errors of a custom transport may contain anything.
func TestTransportErrorTextIsNotInSpans(t *testing.T) {
	for _, failure := range []error{
		errors.New("GET https://api.brellium.test/v2/audits/" + marker + ": proxy said no"),
		&url.Error{Op: "Get", URL: "https://user:" + marker + "@proxy.test", Err: errors.New(marker)},
		fmt.Errorf("%w: %s", brellium.ErrDoNotSend, marker),
	} {
		emu := brelliumtest.New()
		r := newRig(t, emu, brellium.WithMaxRetries(0), brellium.WithHTTPClient(&http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPost { // the token
				return emu.Transport().RoundTrip(r)
			}
			return nil, failure
		})}))
		_, err := r.client.Audits.Retrieve(context.Background(), marker)
		require.Error(t, err)
		require.Len(t, r.of("audits.retrieve"), 2)
		assert.NotContains(t, dump(r.spans.GetSpans()), marker)
		assert.NotContains(t, dump(r.metrics(t)), marker)
	}
}

// The headers of a propagator go to the API only and cannot replace the
// client's headers.
func TestPropagatorHeadersGoToTheAPIOnly(t *testing.T) {
	emu := brelliumtest.New()
	observer, err := brelliumotel.NewObserver(
		brelliumotel.WithTracerProvider(sdktrace.NewTracerProvider()),
		brelliumotel.WithMeterProvider(sdkmetric.NewMeterProvider()),
		brelliumotel.WithPropagator(greedy{}))
	require.NoError(t, err)
	client, err := emu.Client(brellium.WithObserver(observer))
	require.NoError(t, err)
	_, err = client.Audits.Retrieve(context.Background(), brelliumtest.SampleAuditID)
	require.NoError(t, err)
	h := emu.Requests(brelliumtest.OpAuditRetrieve)[0].Header
	assert.Equal(t, []string{"yes"}, h["X-Greedy"])
	assert.NotContains(t, h["Authorization"], "Bearer "+marker)
	assert.NotContains(t, fmt.Sprint(h), marker)
}

// greedy is a propagator that sets headers it must not set.
type greedy struct{ propagation.TraceContext }

func (greedy) Inject(_ context.Context, c propagation.TextMapCarrier) {
	c.Set("X-Greedy", "yes")
	c.Set("Authorization", "Bearer "+marker)
	c.Set("Host", marker)
	c.Set("Connection", marker)
	c.Set("X-Smuggled", "a\r\nAuthorization: "+marker)
	c.Set("User-Agent", marker)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// dump returns v printed and encoded in several ways.
func dump(v any) string {
	encoded, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return strings.ToLower(fmt.Sprintf("%+v\n%#v\n%s", v, v, encoded))
}
