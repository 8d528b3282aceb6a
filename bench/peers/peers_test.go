package peers

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-github/v82/github"
	"github.com/openai/openai-go/v2"
	"github.com/openai/openai-go/v2/option"
	"github.com/stripe/stripe-go/v84"
	gitlab "gitlab.com/gitlab-org/api/client-go"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

// canned is a transport that responds to every request with one body.
type canned struct{ body []byte }

func (c canned) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r, Header: cannedHeader,
		Body: io.NopCloser(bytes.NewReader(c.body)), ContentLength: int64(len(c.body)),
	}, nil
}

var cannedHeader = http.Header{
	"Content-Type":        {"application/json"},
	"X-Request-Id":        {"7f0b3c1e-2a4d-4b8e-9c11-5d6e7f8a9b0c"},
	"Ratelimit-Limit":     {"100"},
	"Ratelimit-Remaining": {"99"},
	"Ratelimit-Reset":     {"0"},
}

type auditPage struct {
	Data       []brellium.Audit `json:"data"`
	HasMore    bool             `json:"has_more"`
	NextCursor *string          `json:"next_cursor"`
}

func (*auditPage) SetLastResponse(*stripe.APIResponse) {}

// stripeAudit is an audit that the Stripe client can decode.
type stripeAudit struct{ brellium.Audit }

func (*stripeAudit) SetLastResponse(*stripe.APIResponse) {}

// contender is a client that retrieves an audit or a page of audits.
type contender struct {
	name        string
	audit, page func(context.Context) error
}

const host = "https://api.brellium.com/"

func contenders(tb testing.TB, body []byte) []contender {
	var sent struct {
		AuditID string `json:"audit_id"`
	}
	check(tb, json.Unmarshal(body, &sent))
	id := cmp.Or(sent.AuditID, "ab") // the response must be about the audit of the request
	tb.Helper()
	hc := &http.Client{Transport: canned{body}}

	raw := func(path string, into func() any) func(context.Context) error {
		return func(ctx context.Context) error {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, host+path, nil)
			if err != nil {
				return err
			}
			req.Header.Set("Authorization", "Bearer token")
			req.Header.Set("Accept", "application/json")
			resp, err := hc.Do(req)
			if err != nil {
				return err
			}
			defer func() { _ = resp.Body.Close() }()
			return json.NewDecoder(resp.Body).Decode(into())
		}
	}
	newAudit := func() any { return new(brellium.Audit) }
	newPage := func() any { return new(auditPage) }

	client, err := brellium.NewClient(brellium.WithHTTPClient(hc), brellium.WithAccessToken("token"))
	check(tb, err)

	gh := github.NewClient(hc).WithAuthToken("token")
	gh, err = gh.WithEnterpriseURLs(host, host)
	check(tb, err)
	viaGithub := func(path string, into func() any) func(context.Context) error {
		return func(ctx context.Context) error {
			req, err := gh.NewRequest(http.MethodGet, path, nil)
			if err != nil {
				return err
			}
			_, err = gh.Do(ctx, req, into())
			return err
		}
	}

	gl, err := gitlab.NewClient("token", gitlab.WithBaseURL(host), gitlab.WithHTTPClient(hc), gitlab.WithCustomLimiter(unpaced{}))
	check(tb, err)
	viaGitlab := func(path string, into func() any) func(context.Context) error {
		return func(ctx context.Context) error {
			req, err := gl.NewRequest(http.MethodGet, path, nil, []gitlab.RequestOptionFunc{gitlab.WithContext(ctx)})
			if err != nil {
				return err
			}
			_, err = gl.Do(req, into())
			return err
		}
	}

	backend := stripe.GetBackendWithConfig(stripe.APIBackend, &stripe.BackendConfig{
		URL: stripe.String(strings.TrimSuffix(host, "/")), HTTPClient: hc, LeveledLogger: &stripe.LeveledLogger{},
		EnableTelemetry: stripe.Bool(false),
	})
	viaStripe := func(path string, into func() stripe.LastResponseSetter) func(context.Context) error {
		return func(ctx context.Context) error {
			return backend.Call(http.MethodGet, "/"+path, "token", &stripe.Params{Context: ctx}, into())
		}
	}

	oa := openai.NewClient(option.WithHTTPClient(hc), option.WithBaseURL(host), option.WithAPIKey("token"))
	viaOpenai := func(path string, into func() any) func(context.Context) error {
		return func(ctx context.Context) error { return oa.Get(ctx, path, nil, into()) }
	}

	return []contender{
		{"net-http", raw("v2/audits/ab", newAudit), raw("v2/audits?limit=100", newPage)},
		{"brellium",
			func(ctx context.Context) error { _, err := client.Audits.Retrieve(ctx, id); return err },
			func(ctx context.Context) error {
				_, err := client.Audits.List(ctx, brellium.AuditListParams{Limit: 100})
				return err
			}},
		{"go-github", viaGithub("v2/audits/ab", newAudit), viaGithub("v2/audits?limit=100", newPage)},
		{"gitlab", viaGitlab("v2/audits/ab", newAudit), viaGitlab("v2/audits?limit=100", newPage)},
		{"stripe", viaStripe("v2/audits/ab", func() stripe.LastResponseSetter { return new(stripeAudit) }),
			viaStripe("v2/audits", func() stripe.LastResponseSetter { return new(auditPage) })},
		{"openai", viaOpenai("v2/audits/ab", newAudit), viaOpenai("v2/audits?limit=100", newPage)},
	}
}

// unpaced turns off the GitLab client's rate limiter.
type unpaced struct{}

func (unpaced) Wait(context.Context) error { return nil }

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// bodies returns the response bodies: 17 bytes, one audit, a page of 100.
func bodies(tb testing.TB) (small, audit, page []byte) {
	tb.Helper()
	emulator := brelliumtest.New()
	emulator.SeedAudits(200)
	client, err := emulator.Client()
	check(tb, err)
	p, err := client.Audits.List(context.Background(), brellium.AuditListParams{Limit: 100})
	check(tb, err)
	return []byte(`{"audit_id":"ab"}`), p.Data[50].RawJSON(), p.RawJSON()
}

// BenchmarkCall measures a call of each client. The ratio is its time over that
// of net/http with json.NewDecoder. Each is the lower quartile of alternate
// turns.
func BenchmarkCall(b *testing.B) {
	small, audit, page := bodies(b)
	for _, c := range []struct {
		name string
		body []byte
		turn int
		pick func(contender) func(context.Context) error
	}{
		{"17B", small, 200, func(c contender) func(context.Context) error { return c.audit }},
		{fmt.Sprintf("audit-%dB", len(audit)), audit, 50, func(c contender) func(context.Context) error { return c.audit }},
		{fmt.Sprintf("page-%dKB", len(page)/1000), page, 2, func(c contender) func(context.Context) error { return c.page }},
	} {
		all := contenders(b, c.body)
		for _, who := range all {
			b.Run(c.name+"/"+who.name, func(b *testing.B) {
				compare(b, c.turn, c.pick(all[0]), c.pick(who))
			})
		}
	}
}

// compare measures turns of calls of base and ours alternately.
func compare(b *testing.B, turn int, base, ours func(context.Context) error) {
	ctx := context.Background()
	run := func(f func(context.Context) error) float64 {
		start := time.Now()
		for range turn {
			if err := f(ctx); err != nil {
				b.Fatal(err)
			}
		}
		return float64(time.Since(start)) / float64(turn)
	}
	run(base)
	run(ours)
	var bases, others []float64
	for b.Loop() {
		bases, others = append(bases, run(base)), append(others, run(ours))
	}
	slices.Sort(bases)
	slices.Sort(others)
	quiet := len(bases) / 4
	b.ReportMetric(testing.AllocsPerRun(20, func() { _ = ours(ctx) }), "allocs/call")
	b.ReportMetric(others[quiet], "ns/call")
	b.ReportMetric(others[quiet]/bases[quiet], "ratio")
	b.ReportMetric(0, "ns/op")
}

// The contenders are comparable only if all of them decode the response.
func TestContendersDecode(t *testing.T) {
	_, audit, page := bodies(t)
	for _, c := range contenders(t, audit) {
		check(t, c.audit(context.Background()))
	}
	for _, c := range contenders(t, page) {
		check(t, c.page(context.Background()))
	}
}
