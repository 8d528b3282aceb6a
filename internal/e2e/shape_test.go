package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
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

// responding returns a client whose calls all get this 200.
func responding(t testing.TB, body string, opts ...brellium.ClientOption) *brellium.Client {
	t.Helper()
	return testkit.NewStubClient(t, func(*http.Request) (*http.Response, error) { return testkit.Reply(200, http.Header{}, body), nil }, opts...)
}

// shape is a response and what becomes of it. ID in it is the name of the
// resource's id.
type shape struct {
	body   string
	ids    string // of the resources that are returned
	reason string // of the DecodeError or PaginationError; "" for none
	paging bool   // a PaginationError
}

func (s shape) check(t *testing.T, name string, ids []string, err error) {
	t.Helper()
	for _, id := range ids {
		assert.NotEmpty(t, id, "%s: a blank record", s.body)
	}
	assert.Equal(t, s.ids, strings.Join(ids, " "), s.body)
	reason := ""
	var decode *brellium.DecodeError
	var paging *brellium.PaginationError
	switch {
	case s.reason == "":
		require.NoError(t, err, s.body)
		return
	case s.paging:
		require.ErrorAs(t, err, &paging, s.body)
		reason = paging.Reason
	default:
		require.ErrorAs(t, err, &decode, s.body)
		reason = decode.Reason
		assert.Equal(t, s.body, string(decode.Body))
	}
	assert.Equal(t, strings.ReplaceAll(s.reason, "ID", name), reason, s.body)
	assert.NotContains(t, err.Error(), "4471100")
}

// firezone/firezone#8608, firezone/firezone#8640, mvanhorn/cli-printing-press#4163,
// stmcginnis/gofish#409
var listShapes = []shape{
	{body: `{"data":[]}`},
	{body: `{"data":null}`},
	{body: `{"data":[{"ID":"1"},{"ID":"2"}],"has_more":false}`, ids: "1 2"},
	{body: `{"data":[{"ID":"1"}],"has_more":null,"next_cursor":null,"page":1}`, ids: "1"},
	{body: `{"DATA":[{"ID":"1"}]}`, ids: "1"},
	{body: `{}`, reason: "the body has no data; it is empty"},
	{body: `{"object":"list"}`, reason: "the body has no data; it has object"},
	{body: `{"items":[{"ID":"1"}],"total":1}`, reason: "the body has no data; it has items, total"},
	{body: `{"error":{"message":"4471100"}}`, reason: "the body has no data; it has error"},
	{body: `{"result":{"data":[{"ID":"1"}]}}`, reason: "the body has no data; it has result"},
	{body: `{"4471100":{},"a b":1,"a":1,"b":1,"c":1,"d":1,"e":1,"f":1}`, reason: "the body has no data; it has a, b, c, d, e and 3 other keys"},
	{body: `{"has_more":"yes"}`, reason: "the body has no data; it has has_more"},
	{body: `[{"ID":"1"}]`, reason: "the body is JSON of an unexpected type"},
	{body: `"4471100"`, reason: "the body is JSON of an unexpected type"},
	{body: `null`, reason: "the body is null"},
	{body: `{"data":"4471100"}`, reason: "the field data is text instead of a list"},
	{body: `{"data":4471100}`, reason: "the field data is a number instead of a list"},
	{body: `{"data":true}`, reason: "the field data is a boolean instead of a list"},
	{body: `{"data":{"ID":"1"},"has_more":false}`, ids: "1"},
	{body: `{"data":{}}`, reason: "item 1 of data has no ID; it is empty"},
	{body: `{"data":{"items":[{"ID":"1"}]}}`, reason: "item 1 of data has no ID; it has items"},
	{body: `{"data":[null]}`, reason: "item 1 of data is null instead of an object"},
	{body: `{"data":[{"ID":"1"},null,{"ID":"3"}]}`, ids: "1 3", reason: "item 2 of data is null instead of an object"},
	{body: `{"data":[{"ID":"1"},"4471100",{"ID":"3"}]}`, ids: "1 3", reason: "item 2 of data is text instead of an object"},
	{body: `{"data":["4471100","4471101"]}`, reason: "item 1 of data is text instead of an object"},
	{body: `{"data":[[{"ID":"1"}],{"ID":"2"}]}`, ids: "2", reason: "item 1 of data is a list instead of an object"},
	{body: `{"data":[7,{"ID":"2"}]}`, ids: "2", reason: "item 1 of data is a number instead of an object"},
	{body: `{"data":[{"id":"4471100"},{"ID":"2"}]}`, ids: "2", reason: "item 1 of data has no ID; it has id"},
	{body: `{"data":[{"ID":"1"},{},{"ID":"3"},{}]}`, ids: "1 3", reason: "item 2 of data has no ID; it is empty"},
	{body: `{"data":[{"ID":" "}]}`, reason: "the ID of item 1 of data is blank"},
	{body: `{"data":[{"ID":null},{"ID":"2"}]}`, ids: "2", reason: "the ID of item 1 of data is blank"},
	{body: `{"data":[{"ID":{"value":"4471100"}},{"ID":"2"}]}`, ids: "2", reason: "the ID of item 1 of data is an object instead of text"},
	{body: `{"data":[{"ID":17},{"ID":"2"}]}`, ids: "17 2"},
	{body: `{"data":[{"ID":"1","object":7},{"ID":"2","object":[]},{"ID":"3"}]}`, ids: "1 2 3"},
	{body: `{"data":[{"ID":"1"}],"has_more":"false","next_cursor":7}`, ids: "1"},
	{body: `{"data":[{"ID":"1"}],"has_more":1}`, ids: "1", reason: "HasMore is true without a cursor for the next page", paging: true},
	{body: `{"data":[{"ID":"1"}],"has_more":"later"}`, ids: "1", reason: "the field has_more is text instead of a boolean", paging: true},
	{body: `{"data":[{"ID":"1"}],"next_cursor":{"after":"4471100"}}`, ids: "1", reason: "the field next_cursor is an object instead of text", paging: true},
	{body: `{"data":[{"ID":"1"}],"next_page_token":"4471100"}`, ids: "1", reason: "the page has next_page_token instead of has_more or next_cursor", paging: true},
	{body: `{"data":[{"ID":"1"}],"nextCursor":"4471100"}`, ids: "1", reason: "the page has nextCursor instead of has_more or next_cursor", paging: true},
	{body: `{"data":[{"ID":"1"}],"links":{"self":"4471100"}}`, ids: "1"},
	{body: `{"data":[{"ID":"1"}],"links":{"next":"4471100"}}`, ids: "1", reason: "the page has links.next instead of has_more or next_cursor", paging: true},
	{body: `{"data":[{"ID":"1"}],"meta":{"next_cursor":"4471100"}}`, ids: "1", reason: "the page has meta.next_cursor instead of has_more or next_cursor", paging: true},
	{body: `{"data":[{"ID":"1"}],"4471100":{"next":1}}`, ids: "1", reason: "the page has next instead of has_more or next_cursor", paging: true},
	{body: `{"data":[{"ID":"1"}],"meta":{"took":7}}`, ids: "1"},
	{body: `{"data":null,"error":{"message":"4471100"}}`, reason: "the body has an error although the status is a success", paging: true},
	{body: `{"data":[],"Errors":["4471100"],"has_more":false}`, reason: "the body has an error although the status is a success", paging: true},
	{body: `{"data":[{"ID":"1"}],"success":false,"has_more":false}`, ids: "1", reason: "the field success is false although the status is a success", paging: true},
	{body: `{"data":[{"ID":"1"}],"success":true,"deleted":false,"error":null,"errors":[],"has_more":false}`, ids: "1"},
	{body: `{"data":[{"ID":"1"},7],"total_pages":3}`, ids: "1", reason: "the page has total_pages instead of has_more or next_cursor", paging: true},
}

// lists are the list methods and the names of the ids.
var lists = map[string]func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) (ids []string, err error){
	"audit_id": func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) ([]string, error) {
		p, err := c.Audits.List(ctx, brellium.AuditListParams{}, opts...)
		return idsOf(p, func(a *brellium.Audit) string { return a.AuditID }), err
	},
	"document_id": func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) ([]string, error) {
		p, err := c.Documents.List(ctx, brellium.DocumentListParams{}, opts...)
		return idsOf(p, func(d *brellium.Document) string { return d.DocumentID }), err
	},
	"user_id": func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) ([]string, error) {
		p, err := c.Users.List(ctx, brellium.UserListParams{}, opts...)
		return idsOf(p, func(u *brellium.User) string { return u.UserID }), err
	},
	"email_recipient_id": func(ctx context.Context, c *brellium.Client, opts ...brellium.CallOption) ([]string, error) {
		p, err := c.EmailRecipients.List(ctx, brellium.EmailRecipientListParams{}, opts...)
		return idsOf(p, func(r *brellium.EmailRecipient) string { return r.EmailRecipientID }), err
	},
}

func idsOf[T any](p *brellium.Page[T], id func(*T) string) (ids []string) {
	if p == nil {
		return nil
	}
	for i := range p.Data {
		ids = append(ids, id(&p.Data[i]))
		raw := any(&p.Data[i]).(interface{ RawJSON() json.RawMessage }).RawJSON()
		if !strings.Contains(string(raw), ids[i]) {
			ids[i] += " with the RawJSON of another"
		}
	}
	return ids
}

func TestNoListOfAnotherShapeIsSilentlyWrong(t *testing.T) {
	for name, list := range lists {
		t.Run(name, func(t *testing.T) {
			for _, s := range listShapes {
				s.body = strings.ReplaceAll(s.body, "ID", name)
				ids, err := list(t.Context(), responding(t, s.body))
				s.check(t, name, ids, err)
			}
		})
	}
}

// Servosity/msp-skills#215, firezone/firezone#8608
var resourceShapes = []shape{
	{body: `{"ID":"1"}`, ids: "1"},
	{body: `{"id":"1"}`, reason: "the body has no ID; it has id"},
	{body: `{}`, reason: "the body has no ID; it is empty"},
	{body: `{"data":{"ID":"1"}}`, reason: "the body has no ID; it has data"},
	{body: `{"data":[{"ID":"1"}]}`, reason: "the body has no ID; it has data"},
	{body: `{"user":{"ID":"1"}}`, reason: "the body has no ID; it has user"},
	{body: `{"error":{"message":"4471100"}}`, reason: "the body has no ID; it has error"},
	{body: `{"ID":""}`, reason: "the ID of the body is blank"},
	{body: `{"ID":"  "}`, reason: "the ID of the body is blank"},
	{body: `{"ID":null}`, reason: "the ID of the body is blank"},
	{body: `{"ID":["4471100"]}`, reason: "the ID of the body is a list instead of text"},
	{body: `{"ID":{"value":"4471100"}}`, reason: "the ID of the body is an object instead of text"},
	{body: `{"ID":1}`, ids: "1"},
	{body: `{"ID":"1","object":{"a":1}}`, ids: "1"},
	{body: `{"ID":"1","email":[7],"status":8,"filename":9,"created_at":10,"timestamp":[]}`, ids: "1"},
	{body: `[{"ID":"1"}]`, reason: "the body is JSON of an unexpected type"},
	{body: `[]`, reason: "the body is JSON of an unexpected type"},
	{body: `"1"`, reason: "the body is JSON of an unexpected type"},
	{body: `true`, reason: "the body is JSON of an unexpected type"},
	{body: `null`, reason: "the body is null"},
	{body: `17`, reason: "the body is JSON of an unexpected type"},
	{body: ``, reason: "the body is empty"},
	{body: ` `, reason: "the body is empty"},
	{body: "\ufeff", reason: "the body is empty"},
	{body: `<html>4471100</html>`, reason: "the body is HTML instead of JSON"},
	{body: `4471100 is not JSON`, reason: "the body is not valid JSON"},
	{body: `{"ID":"4471100"`, reason: "the body is not valid JSON"},
	{body: `{"ID":"1"}{"ID":"4471100"}`, reason: "the body is not valid JSON"},
	{body: `{"ID":true}`, reason: "the body has another ID", ids: ""},
	{body: `{"ID":"2"}`, reason: "the body has another ID"},
	{body: `{"ID":"01"}`, reason: "the body has another ID"},
	{body: `{"ID":1.0}`, reason: "the body has another ID"},
	{body: `{"ID":"1","ID":"2"}`, reason: "the body has another ID"},
	{body: `{"ID":"2","ID":"1"}`, ids: "1"},
	{body: `{"Id":{"ID":"1"}}`, reason: "the body has no ID; it has Id"},
	{body: `{"results":[{"ID":"1"}],"count":1}`, reason: "the body has no ID; it has results, count"},
	{body: `{"ID":"\t\u00a0"}`, reason: "the ID of the body is blank"},
	{body: `{"ID":[]}`, reason: "the ID of the body is a list instead of text"},
	{body: `{"ID":{}}`, reason: "the ID of the body is an object instead of text"},
	{body: `{"ID":null,"id":"4471100"}`, reason: "the ID of the body is blank"},
	{body: `{"status":"ok","object":"4471100"}`, reason: "the body has no ID; it has status, object"},
	{body: `{"ID":"1","flags":[null,"a"],"people":[null],"display_info":{},"email":null,"metadata":[],"external_metadata":7,"upload_url":{}}`, ids: "1"},
}

// resources are the methods that return one resource, by the name of the id.
var resources = map[string][]func(ctx context.Context, c *brellium.Client) (id string, err error){
	"audit_id": {
		func(ctx context.Context, c *brellium.Client) (string, error) {
			return idOf(c.Audits.Retrieve(ctx, "1"))(func(a *brellium.Audit) string { return a.AuditID })
		},
		func(ctx context.Context, c *brellium.Client) (string, error) {
			return idOf(c.Audits.Update(ctx, "1", brellium.AuditUpdateParams{Flags: []string{}}))(func(a *brellium.Audit) string { return a.AuditID })
		},
		func(ctx context.Context, c *brellium.Client) (string, error) {
			a := new(brellium.Audit)
			err := c.Do(ctx, http.MethodGet, "/v2/audits/x", nil, a)
			return a.AuditID, err
		},
	},
	"document_id": {
		func(ctx context.Context, c *brellium.Client) (string, error) {
			return idOf(c.Documents.Retrieve(ctx, "1"))(func(d *brellium.Document) string { return d.DocumentID })
		},
	},
	"user_id": {
		func(ctx context.Context, c *brellium.Client) (string, error) {
			return idOf(c.Users.Retrieve(ctx, "1"))(func(u *brellium.User) string { return u.UserID })
		},
		func(ctx context.Context, c *brellium.Client) (string, error) {
			return idOf(c.Users.Create(ctx, brellium.UserCreateParams{Email: "a@example.test"}))(func(u *brellium.User) string { return u.UserID })
		},
		func(ctx context.Context, c *brellium.Client) (string, error) {
			return idOf(c.Users.Ensure(ctx, brellium.UserCreateParams{Email: "a@example.test"}))(func(u *brellium.User) string { return u.UserID })
		},
	},
	"email_recipient_id": {
		func(ctx context.Context, c *brellium.Client) (string, error) {
			return idOf(c.EmailRecipients.Retrieve(ctx, "1"))(func(r *brellium.EmailRecipient) string { return r.EmailRecipientID })
		},
		func(ctx context.Context, c *brellium.Client) (string, error) {
			return idOf(c.EmailRecipients.Create(ctx, brellium.EmailRecipientCreateParams{Email: "a@example.test"}))(func(r *brellium.EmailRecipient) string { return r.EmailRecipientID })
		},
		func(ctx context.Context, c *brellium.Client) (string, error) {
			return idOf(c.EmailRecipients.Ensure(ctx, brellium.EmailRecipientCreateParams{Email: "a@example.test"}))(func(r *brellium.EmailRecipient) string { return r.EmailRecipientID })
		},
	},
}

func idOf[T any](v *T, err error) func(id func(*T) string) (string, error) {
	return func(id func(*T) string) (string, error) {
		if v == nil {
			return "", err
		}
		return id(v), err
	}
}

func TestNoResourceOfAnotherShapeIsSilentlyWrong(t *testing.T) {
	// The methods whose request names the id, which is 1.
	named := map[string]bool{"audit_id0": true, "audit_id1": true, "document_id0": true, "user_id0": true, "email_recipient_id0": true}
	for name, methods := range resources {
		for i, method := range methods {
			t.Run(fmt.Sprint(name, i), func(t *testing.T) {
				for _, s := range resourceShapes {
					s.body = strings.ReplaceAll(s.body, "ID", name)
					if s.reason == "the body has another ID" {
						if s.reason = "the ID of the body is not the one of the request"; !named[name+strconv.Itoa(i)] {
							continue
						}
					}
					synctest.Test(t, func(t *testing.T) { // Ensure pauses
						id, err := method(t.Context(), responding(t, s.body))
						var ids []string
						if err == nil {
							ids = []string{id}
						}
						s.check(t, name, ids, err)
					})
				}
			})
		}
	}
}

func TestNoResultOfABatchOfAnotherShapeIsSilentlyWrong(t *testing.T) {
	for _, s := range []shape{
		{body: `{"updated_audit_ids":["1","2"]}`, ids: "1 2"},
		{body: `{"updated_audit_ids":[1]}`, ids: "1"},
		{body: `{"updated_audit_ids":"1"}`, ids: "1"},
		{body: `{"updated_audit_ids":[]}`},
		{body: `{"updated_audit_ids":null}`},
		{body: `{"updated_audit_ids":[{"audit_id":"4471100"}]}`, reason: "the updated_audit_ids of the body has an element of another kind"},
		{body: `{"updated_audit_ids":{"4471100":true}}`, reason: "the updated_audit_ids of the body is an object instead of a list"},
		{body: `{}`, reason: "the body has no updated_audit_ids; it is empty"},
		{body: `{"data":["1"]}`, reason: "the body has no updated_audit_ids; it has data"},
		{body: `{"error":{}}`, reason: "the body has no updated_audit_ids; it has error"},
	} {
		result, err := responding(t, s.body).Audits.BatchUpdate(t.Context(), brellium.AuditBatchUpdateParams{AuditIDs: []string{"1", "2"}, Flags: []string{}})
		var ids []string
		if result != nil {
			ids = result.UpdatedAuditIDs
		}
		s.check(t, "", ids, err)
		assert.Equal(t, err != nil, brellium.OutcomeUnknown(err))
	}
	for _, s := range []shape{
		{body: `{"documents":[{"document_id":"1","upload_url":null},{"document_id":2}]}`, ids: "1 2"},
		{body: `{"documents":{"document_id":"1"}}`, ids: "1"},
		{body: `{"documents":[]}`, reason: "the body has no documents"},
		{body: `{"documents":null}`, reason: "the body has no documents"},
		{body: `{}`, reason: "the body has no documents; it is empty"},
		{body: `{"data":[{"document_id":"1"}]}`, reason: "the body has no documents; it has data"},
		{body: `{"documents":[{"document_id":"1"},{"id":"4471100"}]}`, reason: "item 2 of documents has no document_id; it has id"},
		{body: `{"documents":["4471100"]}`, reason: "item 1 of documents is text instead of an object"},
		{body: `{"documents":"4471100"}`, reason: "the field documents is text instead of a list"},
	} {
		inputs := []brellium.DocumentInput{{Filename: "a.pdf"}, {Filename: "b.pdf"}}[:max(1, len(strings.Fields(s.ids)))]
		result, err := responding(t, s.body).Documents.Create(t.Context(), brellium.DocumentCreateParams{Documents: inputs})
		var ids []string
		if result != nil {
			for i := range result.Documents {
				ids = append(ids, result.Documents[i].DocumentID)
			}
		}
		s.check(t, "", ids, err)
		assert.Equal(t, err != nil, brellium.OutcomeUnknown(err))
	}
}

// firezone/firezone#8608: what had been read up to the present was skipped for good.
func TestAMissingListIsNoEmptyOne(t *testing.T) {
	for _, body := range []string{`{}`, `{"audits":[]}`, `{"error":{}}`, `{"object":"list"}`, `{"email_recipients":[]}`} {
		client := responding(t, body)
		var decode *brellium.DecodeError
		batches := 0
		for batch, err := range client.Audits.Follow(t.Context(), brellium.FollowCheckpoint{}, brellium.FollowOptions{CatchUp: true}) {
			if batch != nil {
				batches++
			} else {
				require.ErrorAs(t, err, &decode, body)
			}
		}
		assert.Zero(t, batches, body)
		_, err := client.EmailRecipients.FindByEmail(t.Context(), "a@example.test")
		require.ErrorAs(t, err, &decode, body)
		assert.NotErrorIs(t, err, brellium.ErrNotFound)
		_, err = brellium.Collect(client.Users.All(t.Context(), brellium.UserListParams{}))
		require.ErrorAs(t, err, &decode, body)
	}
}

// What other APIs say of another page is not passed over, nor taken for more than
// it says.
func TestKeysOfOtherAPIsThatMeanMore(t *testing.T) {
	read := func(items int, rest string, header http.Header) string {
		body := `{"data":[` + strings.TrimSuffix(strings.Repeat(`{"user_id":"1"},`, items), ",") + `]` + rest + `}`
		client := testkit.NewStubClient(t, func(*http.Request) (*http.Response, error) { return testkit.Reply(200, header, body), nil })
		users, err := brellium.Collect(client.Users.All(t.Context(), brellium.UserListParams{}))
		assert.Len(t, users, items, rest)
		var paging *brellium.PaginationError
		if err == nil {
			return ""
		}
		require.ErrorAs(t, err, &paging, rest)
		assert.NotContains(t, err.Error(), "44711")
		return strings.TrimSuffix(strings.TrimPrefix(paging.Reason, "the page has "), " instead of has_more or next_cursor")
	}
	for rest, key := range map[string]string{ // of a page that is not full
		`,"next":"/v2/users?page=4471100"`: "next", `,"next":2`: "next", `,"next":{"href":"4471100"}`: "next", `,"Next":"x"`: "Next", `,"NEXT_PAGE":"x"`: "NEXT_PAGE",
		`,"next-page":"x"`: "next-page", `,"nextPageToken":"x"`: "nextPageToken", `,"@odata.nextLink":"x"`: "nextLink", `,"@odata.count":3`: "count",
		`,"next_page_url":"x"`: "next_page_url", `,"continuation_token":"x"`: "continuation_token", `,"nextRecordsUrl":"x","done":false`: "nextRecordsUrl",
		`,"links":{"next":"x"}`: "links.next", `,"_links":{"next":{"href":"x"}}`: "links.next", `,"links.next":"x"`: "next", `,"links":[{"rel":"self"},{"rel":"next","href":"x"}]`: "links",
		`,"meta":{"next":"x"}`: "meta.next", `,"meta":{"pagination":{"next_page":2}}`: "meta.pagination.next_page", `,"response_metadata":{"next_cursor":"x"}`: "response_metadata.next_cursor",
		`,"hasMore":true`: "hasMore", `,"has_next":1`: "has_next", `,"pageInfo":{"hasNextPage":true,"endCursor":"x"}`: "pageInfo.hasNextPage", `,"more":"true"`: "more",
		`,"last":false`: "last", `,"is_last_page":false`: "is_last_page", `,"remaining":5`: "remaining", `,"truncated":true`: "truncated",
		`,"total":3`: "total", `,"total_count":"3"`: "total_count", `,"totalCount":3.0`: "totalCount", `,"count":3`: "count", `,"meta":{"total":3}`: "meta.total", `,"total":3,"page":1`: "total",
		`,"total_pages":2`: "total_pages", `,"page":1,"pages":2`: "pages", `,"cursor":"x"`: "cursor", `,"page":1`: "page", `,"pagination":{"page":1,"per_page":2}`: "pagination", `,"pagination":{"page":1}`: "pagination", `,"cursor":"x","limit":25`: "cursor", `,"page":1,"marker":"x","limit":25`: "page",
		`,"paging":{"cursors":{"after":"x"}}`: "paging", `,"has_more":null,"next":"x"`: "next", `,"next_cursor":null,"next_page_token":"x"`: "next_page_token",
		`,"next":null,"has_next":true`: "has_next", `,"per_page":2`: "a full page has neither has_more nor next_cursor", `,"4471100":{"next_url":"x"}`: "next_url",

		// These say that there is no more, or nothing of it.
		``: "", `,"next":null`: "", `,"next":""`: "", `,"next":false`: "", `,"nextPageToken":""`: "", `,"@odata.nextLink":null`: "", `,"links":{"next":null,"self":"x"}`: "", `,"_links":{"self":{"href":"x"}}`: "",
		`,"hasMore":false`: "", `,"has_next":0`: "", `,"pageInfo":{"hasNextPage":false,"endCursor":"x"}`: "", `,"last":true,"page":1`: "", `,"last":"4471100","first":"x"`: "",
		`,"total":2`: "", `,"total_count":"2"`: "", `,"total":1`: "", `,"count":2`: "", `,"total":2,"page":1,"per_page":2`: "", `,"page":1,"total_pages":1`: "", `,"meta":{"pagination":{"total":2,"page":1}}`: "",
		`,"remaining":0`: "", `,"truncated":false`: "", `,"next":null,"page":1`: "", `,"next_cursor":null,"total":50`: "", `,"has_more":false,"total":50`: "", `,"limit":100`: "", `,"cursor":null`: "",
		`,"page":1,"limit":25`: "", `,"per_page":"25","offset":"0"`: "", `,"pagination":{"page":1,"per_page":25}`: "",
		`,"stats":{"total":4471100,"page":7,"count":9,"limit":1}`: "", `,"links":[{"rel":"self"}]`: "", `,"total":null`: "", `,"object":"list","took":7`: "", `,"more":null`: "", `,"next_steps":["x"]`: "",
	} {
		assert.Equal(t, key, read(2, rest, nil), rest)
	}
	for rest, key := range map[string]string{`,"page":1`: "", `,"meta":{"offset":0}`: "", `,"cursor":"x"`: "cursor"} { // of an empty page
		assert.Equal(t, key, read(0, rest, nil), rest)
	}
	for rest, full := range map[string]bool{ // of a full page
		``: true, `,"count":100`: true, `,"cursor":null`: true, `,"limit":200`: true, `,"links":{"self":"x"}`: true, `,"after":null`: true,
		`,"next":null`: false, `,"has_next":false`: false, `,"total":100`: false, `,"total_pages":1`: false, `,"last":true`: false, `,"links":{"next":""}`: false,
	} {
		client := responding(t, `{"data":[`+strings.TrimSuffix(strings.Repeat(`{"user_id":"1"},`, 100), ",")+`]`+rest+`}`)
		_, err := client.Users.List(t.Context(), brellium.UserListParams{})
		assert.Equal(t, full, err != nil, rest)
	}
	assert.Equal(t, "a Link header", read(2, "", http.Header{"Link": {`<https://api.test/4471100?page=1>; rel="prev"`, `<https://api.test/4471100?page=3>; rel="next"`}}))
	assert.Empty(t, read(2, "", http.Header{"Link": {`<https://api.test/4471100>; rel="prev"`}}))

	// A total counts the items of all pages; after a resume they are not known.
	pages := map[string]string{"": `{"data":[{"user_id":"1"},{"user_id":"2"}],"next_cursor":"c"}`, "c": `{"data":[{"user_id":"3"}],"total":%d,"total_pages":2}`}
	for total, broken := range map[int]bool{2: false, 3: false, 4: true} {
		client := testkit.NewStubClient(t, func(r *http.Request) (*http.Response, error) {
			return testkit.Reply(200, nil, strings.Replace(pages[r.URL.Query().Get("cursor")], "%d", strconv.Itoa(total), 1)), nil
		})
		_, err := brellium.Collect(client.Users.All(t.Context(), brellium.UserListParams{}))
		assert.Equal(t, broken, err != nil, total)
		_, err = client.Users.List(t.Context(), brellium.UserListParams{Cursor: "c"})
		require.NoError(t, err)
	}
}

// A page of as many items as were asked for, without a word of another page.
func TestAFullPageWithoutALinkIsNoEnd(t *testing.T) {
	for _, c := range []struct {
		items, limit int
		opts         []brellium.CallOption
		broken       bool
	}{
		{99, 0, nil, false}, {100, 0, nil, true}, {101, 0, nil, true}, {1, 2, nil, false}, {2, 2, nil, true},
		{30, 2, []brellium.CallOption{brellium.WithQuery("limit", "31")}, false}, {31, 2, []brellium.CallOption{brellium.WithQuery("limit", "31")}, true},
	} {
		client := responding(t, `{"data":[`+strings.TrimSuffix(strings.Repeat(`{"user_id":"1"},`, c.items), ",")+`]}`)
		users, err := brellium.Collect(client.Users.All(t.Context(), brellium.UserListParams{Limit: c.limit}, c.opts...))
		assert.Len(t, users, c.items)
		if !c.broken {
			require.NoError(t, err, "%v", c)
			continue
		}
		var paging *brellium.PaginationError
		require.ErrorAs(t, err, &paging, "%v", c)
		assert.Equal(t, "a full page has neither has_more nor next_cursor", paging.Reason)
		page, err := client.Users.List(t.Context(), brellium.UserListParams{Limit: c.limit}, c.opts...)
		require.ErrorAs(t, err, &paging)
		assert.True(t, page.HasMore, "as far as is known")
		_, err = page.Next(t.Context())
		require.ErrorAs(t, err, &paging)
	}
}

// stmcginnis/gofish#409: the pages around an odd item stay within reach.
func TestAnOddItemDoesNotTakeItsPageWithIt(t *testing.T) {
	pages := map[string]string{
		"":  `{"data":[{"user_id":"1"}],"has_more":true,"next_cursor":"b"}`,
		"b": `{"data":[{"user_id":"2"},{"id":"odd"},{"user_id":"4"}],"has_more":true,"next_cursor":"c"}`,
		"c": `{"data":[{"user_id":"5"}],"has_more":false}`,
	}
	client := testkit.NewStubClient(t, func(r *http.Request) (*http.Response, error) {
		return testkit.Reply(200, http.Header{}, pages[r.URL.Query().Get("cursor")]), nil
	})
	var decode *brellium.DecodeError
	for _, opts := range [][]brellium.CallOption{nil, {brellium.WithPrefetch()}} {
		users, err := brellium.Collect(client.Users.All(t.Context(), brellium.UserListParams{}, opts...))
		require.ErrorAs(t, err, &decode)
		assert.Equal(t, "item 2 of data has no user_id; it has id", decode.Reason)
		require.Len(t, users, 3)
		assert.JSONEq(t, `{"user_id":"4"}`, string(users[2].RawJSON()))
	}
	var ids []string
	p, err := client.Users.List(t.Context(), brellium.UserListParams{})
	for ; p != nil; p, err = p.Next(t.Context()) {
		ids = append(ids, idsOf(p, func(u *brellium.User) string { return u.UserID })...)
		assert.Equal(t, len(ids) == 3, err != nil, "%v", err)
	}
	assert.ErrorIs(t, err, brellium.ErrNoMorePages)
	assert.Equal(t, []string{"1", "2", "4", "5"}, ids)
}

// A file must never be sent to the URL of another file's document.
func TestUploadSendsNoFileForAnotherOnesDocument(t *testing.T) {
	for name, tc := range map[string]struct {
		documents string // with the external ids $0 and $1
		stored    int
	}{
		"in another order, with external ids": {`{"document_id":"d1","external_id":"b","filename":"b.pdf","upload_url":"https://storage.test/b"},{"document_id":"d0","external_id":"a","filename":"a.pdf","upload_url":"https://storage.test/a"}`, 2},
		"in order, without external ids":      {`{"document_id":"d0","filename":"a.pdf","upload_url":"https://storage.test/a"},{"document_id":"d1","filename":"b.pdf","upload_url":"https://storage.test/b"}`, 2},
		"in another order, without them":      {`{"document_id":"d1","filename":"b.pdf","upload_url":"https://storage.test/b"},{"document_id":"d0","filename":"a.pdf","upload_url":"https://storage.test/a"}`, 0},
		"without ids and names":               {`{"document_id":"d0","upload_url":"https://storage.test/a"},{"document_id":"d1","upload_url":"https://storage.test/b"}`, 0},
		"one document for both":               {`{"document_id":"d0","external_id":"a","upload_url":"https://storage.test/a"},{"document_id":"d0","external_id":"b","upload_url":"https://storage.test/b"}`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			sent := map[string]string{}
			client := testkit.NewStubClient(t, func(r *http.Request) (*http.Response, error) {
				if r.Method == http.MethodPut {
					body, err := io.ReadAll(r.Body)
					mu.Lock()
					defer mu.Unlock()
					sent[r.URL.Path] = string(body)
					return testkit.Reply(200, nil, ""), err
				}
				return testkit.Reply(201, nil, `{"documents":[`+tc.documents+`]}`), nil
			})
			a, b := brellium.FileFromBytes("a.pdf", []byte("a")), brellium.FileFromBytes("b.pdf", []byte("b"))
			a.ExternalID, b.ExternalID = "a", "b"
			results, err := client.Documents.Upload(t.Context(), []brellium.UploadFile{a, b}, brellium.UploadOptions{})
			assert.Equal(t, tc.stored == 2, err == nil)
			assert.Len(t, sent, tc.stored)
			for path, body := range sent {
				assert.Equal(t, "/"+body, path)
			}
			for _, r := range results {
				if tc.stored == 0 {
					assert.Equal(t, brellium.UploadFailed, r.Status)
				}
			}
		})
	}
}

// An item that is no audit keeps neither the others nor the later pages back.
func TestFollowContinuesPastAnItemThatIsNoAudit(t *testing.T) {
	testkit.Bubble(t, "", func(t *testing.T, _ *brelliumtest.Emulator, _ *brellium.Client) {
		pages := map[string]string{
			"":  `{"data":[{"audit_id":"1"},null,{"id":"2"}],"has_more":true,"next_cursor":"c"}`,
			"c": `{"data":[{"audit_id":"3"}],"has_more":false}`,
		}
		client := testkit.NewStubClient(t, func(r *http.Request) (*http.Response, error) {
			return testkit.Reply(200, http.Header{"Date": {time.Now().UTC().Format(http.TimeFormat)}}, pages[r.URL.Query().Get("cursor")]), nil
		})
		var ids []string
		var unusable []error
		var last brellium.FollowCheckpoint
		for batch, err := range client.Audits.Follow(t.Context(), brellium.FollowCheckpoint{}, brellium.FollowOptions{CatchUp: true}) {
			require.NoError(t, err)
			for _, a := range batch.Audits {
				ids = append(ids, a.AuditID)
			}
			if batch.Err != nil {
				unusable = append(unusable, batch.Err)
			}
			last = batch.Checkpoint
		}
		assert.Equal(t, []string{"1", "3"}, ids)
		require.Len(t, unusable, 1)
		var decode *brellium.DecodeError
		assert.ErrorAs(t, unusable[0], &decode)
		assert.False(t, last.From.IsZero(), "the checkpoint moves on")

		// A checkpoint belongs to the parameters of WithQuery too.
		rejected := 0
		for _, err := range client.Audits.Follow(t.Context(), last, brellium.FollowOptions{CatchUp: true}, brellium.WithQuery("status", "todo")) {
			testkit.IsInvalid(t, err, "Filter", "")
			rejected++
		}
		assert.Equal(t, 1, rejected)
	})
}

func TestAListDoesNotEndQuietly(t *testing.T) {
	full := strings.Repeat(`{"audit_id":"a"},`, 99)
	for name, page := range map[string]string{
		"full with an odd item": `{"data":[` + full + `null]}`,
		"has_more is null":      `{"data":[],"has_more":null,"next_page_token":"t"}`,
		"full, has_more null":   `{"data":[` + full + `{"audit_id":"b"}],"has_more":null}`,
	} {
		client := testkit.NewStubClient(t, func(*http.Request) (*http.Response, error) { return testkit.Reply(200, nil, page), nil })
		_, err := brellium.Collect(client.Audits.All(t.Context(), brellium.AuditListParams{}))
		var broken *brellium.PaginationError
		assert.ErrorAs(t, err, &broken, name)
	}
	client := testkit.NewStubClient(t, func(*http.Request) (*http.Response, error) {
		return testkit.Reply(200, nil, `{"data":[{"email_recipient_id":"1","address":"a@example.test"}],"has_more":false}`), nil
	})
	_, err := client.EmailRecipients.FindByEmail(t.Context(), "a@example.test")
	assert.NotErrorIs(t, err, brellium.ErrNotFound, "the item may be the one")
	var decode *brellium.DecodeError
	assert.ErrorAs(t, err, &decode)

	// A type of the caller's that embeds a nil resource is an error, not a panic.
	var own struct{ *brellium.Audit }
	client = testkit.NewStubClient(t, func(*http.Request) (*http.Response, error) { return testkit.Reply(200, nil, `{"other":1}`), nil })
	assert.ErrorAs(t, client.Do(t.Context(), http.MethodGet, "/v2/x", nil, &own), &decode)
}
