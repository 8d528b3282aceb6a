package brellium

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go/internal/jsonscan"
)

// benchAudit is a synthetic audit of about 2.5 KB.
func benchAudit(n int) string {
	item := func(key string, order int, title, value string) string {
		return fmt.Sprintf(`{"key":%q,"order":%d,"title":%q,"value":%q,"format":"text","filter_type":"search"}`, key, order, title, value)
	}
	response := func(i int) string {
		return fmt.Sprintf(`{"response_id":"5f1c0a52-8f1e-4c59-9b61-2f0d7a4e%04d","question_id":"6c1f0a52-8f1e-4c59-9b61-2f0d7a4e%04d",`+
			`"query":"Is the note signed by the provider who gave the session?","answer":"Yes",`+
			`"context":"The signature block says \"%d of 2\" and has a date that is later than that of the session."}`, n, i, i)
	}
	responses := make([]string, 6)
	for i := range responses {
		responses[i] = response(i)
	}
	return fmt.Sprintf(`{"audit_id":"a1b2c3d4-e5f6-4a7b-8c9d-%012d","object":"audit","status":"complete","score":87.5,`+
		`"flags":["Failed","Missing Signature"],"reviewed_by":"reviewer%d@example.test","set_id":"6c1f0a52-8f1e-4c59-9b61-2f0d7a4e1b01",`+
		`"timestamp":"2025-03-04T05:06:07.123456Z","documents":["b2c3d4e5-f6a7-4b8c-9d0e-1f2a3b4c5d6e"],`+
		`"display_info":[%s],"people":[%s],"responses":[%s]}`, n, n,
		strings.Join([]string{item("episode_id", 1, "Episode ID", "12341234"), item("session_type", 2, "Session type", "Direct session")}, ","),
		strings.Join([]string{item("provider", 1, "Provider", "Casey Example"), item("supervisor", 2, "Supervisor", "Robin Sample")}, ","),
		strings.Join(responses, ","))
}

// benchPage is a page of 100 of them, about 250 KB.
func benchPage() []byte {
	audits := make([]string, 100)
	for i := range audits {
		audits[i] = benchAudit(i)
	}
	return []byte(`{"object":"list","data":[` + strings.Join(audits, ",") + `],"has_more":true,"next_cursor":"b2Zmc2V0PTEwMA=="}`)
}

// received is a 200 with body.
func received(op *operation, body []byte) okResponse { return okResponse{op, 200, "req_1", body} }

// BenchmarkDecodePage compares a page of 100 audits, each with its RawJSON,
// with what one writes over net/http by hand: json.NewDecoder on the body,
// into the same types without raw items. The page is to take no longer.
func BenchmarkDecodePage(b *testing.B) {
	body := benchPage()
	b.Run("page with raw items", func(b *testing.B) {
		b.SetBytes(int64(len(body)))
		b.ReportAllocs()
		for b.Loop() {
			var p Page[Audit]
			err := decodePage(received(opAuditsList, body), &p)
			if err != nil || len(p.Data) != 100 || len(p.Data[99].RawJSON()) < 2000 {
				b.Fatal("not decoded")
			}
		}
	})
	b.Run("json.NewDecoder without raw items", func(b *testing.B) {
		b.SetBytes(int64(len(body)))
		b.ReportAllocs()
		for b.Loop() {
			var p struct {
				Data       []Audit `json:"data"`
				HasMore    bool    `json:"has_more"`
				NextCursor string  `json:"next_cursor"`
			}
			if err := json.NewDecoder(bytes.NewReader(body)).Decode(&p); err != nil || len(p.Data) != 100 {
				b.Fatal("not decoded")
			}
		}
	})
	b.Run("raw items by the scanner alone", func(b *testing.B) {
		b.SetBytes(int64(len(body)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := jsonscan.Items(body, 100); err != nil {
				b.Fatal("not found")
			}
		}
	})
}

func TestBenchPageIsOfTheSizeThatTheFigureIsFor(t *testing.T) {
	body := benchPage()
	require.True(t, json.Valid(body))
	require.InDelta(t, 250<<10, len(body), 25<<10)
}
