package brellium

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go/internal/jsonscan"
)

// received is a 200 with body.
func received(op *operation, body []byte) okResponse {
	return okResponse{request: request{op: op}, status: 200, requestID: "req_1", body: body}
}

// resourceSeeds are whole objects, which the fuzzer mutates.
var resourceSeeds = []string{
	`{"audit_id":"a1","object":"audit","status":"complete","score":87.5,"flags":["Failed"],"reviewed_by":"r","set_id":"s","timestamp":"2025-03-04T05:06:07.5+02:00","documents":["d"],"display_info":[{"key":"k","order":1,"title":"t","value":"v","format":"text","filter_type":"search"}],"people":[],"responses":[{"response_id":"r","question_id":"q","query":"?","answer":"N/A","context":"c"}]}`,
	`{"document_id":"d1","object":"document","external_id":null,"filename":"a.pdf","status":"todo","handler":"h","audit_created":false,"needs_audit":true,"external_metadata":{"n":12345678901234567890},"upload_url":"https://storage.example.test/x?sig=1"}`,
	`{"user_id":"u1","object":"user","email":"a@b","name":null,"created_at":"","updated_at":null,"metadata":{"a":[1.0,1e400,{"b":null}]},"attributes":null}`,
	`{"email_recipient_id":"e1","object":"email_recipient","email":"a@b","name":"\u0041\"\\","created_at":"2025-03-04T05:06:07Z"}`,
	`{"updated_audit_ids":["a","b"]}`,
	`{"audit_id":"x","flags":null,"people":null,"brand_new":{"a":[1]}}`,
	`{"AUDIT_ID":"x","audit_id":"y","status":5}`,
	"\xef\xbb\xbf {\"user_id\":\"u\"}\r\n",
	`{"timestamp":"2025-03-04T05:06:07+24:00","created_at":"9999-12-31T23:59:59-23:60"}`,
	`[]`, `null`, `"text"`, `{`, ``, `<html>`, `{"metadata":[]}`, `{"created_at":{"a":1}}`, `{"score":1e999}`,
}

// decodes decodes body as one T. It must not panic, an error must be a
// DecodeError, and RawJSON must be body.
func decodes[T any, P resource[T]](t *testing.T, op *operation, body []byte) bool {
	v := new(T)
	err := decodeRecord(received(op, body), P(v), new(rawSource))
	if err != nil {
		require.IsType(t, &DecodeError{}, err)
		return false
	}
	require.Equal(t, string(bytes.TrimPrefix(body, byteOrderMark)), string(P(v).RawJSON()))
	_, err = json.Marshal(v)
	require.NoError(t, err)
	return true
}

// everyResource is each resource that a call can return.
var everyResource = map[string]func(*testing.T, []byte) bool{
	"Audit":                  func(t *testing.T, b []byte) bool { return decodes[Audit](t, opAuditsRetrieve, b) },
	"AuditBatchUpdateResult": func(t *testing.T, b []byte) bool { return decodes[AuditBatchUpdateResult](t, opAuditsBatchUpdate, b) },
	"Document":               func(t *testing.T, b []byte) bool { return decodes[Document](t, opDocumentsRetrieve, b) },
	"User":                   func(t *testing.T, b []byte) bool { return decodes[User](t, opUsersRetrieve, b) },
	"EmailRecipient":         func(t *testing.T, b []byte) bool { return decodes[EmailRecipient](t, opEmailRecipientsRetrieve, b) },
}

// FuzzDecodeResource decodes anything as each resource, and again with an
// unknown field, which must not matter.
func FuzzDecodeResource(f *testing.F) {
	for _, seed := range resourceSeeds {
		f.Add([]byte(seed), []byte(`{"a":[1,"}",null]}`))
	}
	f.Fuzz(func(t *testing.T, body, extra []byte) {
		object := isObject(body)
		for name, decode := range everyResource {
			ok := decode(t, body)
			if !object || !json.Valid(extra) {
				continue
			}
			rest := bytes.TrimSpace(bytes.TrimPrefix(body, byteOrderMark))[1:]
			more := append([]byte(`{"unknown to this version":`), extra...)
			if !bytes.HasPrefix(bytes.TrimSpace(rest), []byte("}")) {
				more = append(more, ',')
			}
			more = append(more, rest...)
			if json.Valid(more) { // otherwise the nesting is too deep
				require.Equal(t, ok, decode(t, more), name)
			}
		}
	})
}

// pageSeeds are list responses, which the fuzzer mutates.
var pageSeeds = []string{
	`{"object":"list","data":[{"audit_id":"1","flags":["]","}"]},{"audit_id":"\"2\\"}],"has_more":true,"next_cursor":"c"}`,
	`{"next_cursor":null,"has_more":false,"data":[ ]}`,
	`{"data":null}`, `{}`, `{"data":[null,{}]}`, `{"has_more":null,"data":[{}],"extra":{"data":[1]}}`,
	`{"data":[{}],"data":[{},{}]}`, `{"DATA":[{"audit_id":"x"}]}`, `{"data":[{}],"Data":[{"audit_id":"x"}]}`,
	`{"d\u0061ta":[{"audit_id":"x"}]}`, `{"\\":0,"data":[{}]}`, `{"data":[[],"",1,-1.5e+3,true,false,null,{}]}`,
	" {\t\"data\"\r:\n[ { \"audit_id\" : \"\\\\\\\"\" } , { } ] , \"a\" : -0.1E-5 } ", `{"dat\"a":[],"data":[{"a":"\\\\"}]}`,
	"\xef\xbb\xbf{\"data\":[{}]}", `[]`, `{"data":{}}`, `{"data":"x"}`, `{"data":[1]}`, `{"has_more":"yes"}`, `{"next_cursor":5}`,
}

// FuzzDecodePage decodes anything as a page of each resource.
func FuzzDecodePage(f *testing.F) {
	for _, seed := range pageSeeds {
		f.Add([]byte(seed))
	}
	for _, seed := range resourceSeeds {
		f.Add([]byte(`{"data":[` + seed + `,` + seed + `]}`))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		decodesPage[Audit](t, opAuditsList, body)
		decodesPage[Document](t, opDocumentsList, body)
		decodesPage[User](t, opUsersList, body)
		decodesPage[EmailRecipient](t, opEmailRecipientsList, body)
	})
}

func decodesPage[T any, P resource[T]](t *testing.T, op *operation, body []byte) {
	p := new(Page[T])
	_, err := decodePage(received(op, body), p, defaultLimit, new(place))
	if err != nil {
		require.IsType(t, &DecodeError{}, err)
		if p.source == nil {
			return
		}
	}
	require.Equal(t, string(bytes.TrimPrefix(body, byteOrderMark)), string(p.RawJSON()))
	data, found := jsonscan.Member(p.RawJSON(), "data")
	require.True(t, found)
	var items []json.RawMessage
	if json.Unmarshal(data, &items) != nil {
		items = []json.RawMessage{data} // one object in place of a list
	}
	if err == nil {
		require.Len(t, p.Data, len(items))
	} else {
		require.Less(t, len(p.Data), len(items))
	}
	at := 0
	for i := range p.Data { // those that can be used, in their order
		item := P(&p.Data[i])
		_, _, id := item.required()
		require.NotEmpty(t, id)
		for string(items[at]) != string(item.RawJSON()) {
			at++
		}
		at++
	}
}

// The newer engine of encoding/json names the keys of maps in its errors.
func TestDecodeErrorNamesNoMapKey(t *testing.T) {
	for _, v := range []any{new(Audit), new(Document), new(User), new(map[string]Audit), new([]Audit), new(any)} {
		for _, body := range []string{`{"marker":{"marker":"marker"}}`, `{"metadata":"marker","flags":{"marker":1}}`, `[{"marker":1,"metadata":{"marker":"marker"}}]`} {
			if e, ok := asType[*json.UnmarshalTypeError](json.Unmarshal([]byte(body), v)); ok {
				assert.NotContains(t, decodeReason([]byte(body), v, e), "marker", "%T", v)
			}
		}
	}
}

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

// BenchmarkDecodePage compares a page of 100 audits, each with its RawJSON,
// with code written by hand over net/http: json.NewDecoder on the body, into the
// same types without raw items. The page must take no longer.
func BenchmarkDecodePage(b *testing.B) {
	body := benchPage()
	b.Run("page with raw items", func(b *testing.B) {
		b.SetBytes(int64(len(body)))
		b.ReportAllocs()
		for b.Loop() {
			var p Page[Audit]
			_, err := decodePage(received(opAuditsList, body), &p, defaultLimit, new(place))
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
			if _, ok := jsonscan.Items(body, "data", 100); !ok {
				b.Fatal("not found")
			}
		}
	})
}

func TestBenchmarkPageSize(t *testing.T) {
	body := benchPage()
	require.True(t, json.Valid(body))
	require.InDelta(t, 250<<10, len(body), 25<<10)
}
