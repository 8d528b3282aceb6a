package e2e_test

import (
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
)

// A response about another resource than the one of the request is no result.
func TestNoOtherResourceIsTaken(t *testing.T) {
	ctx := t.Context()
	const asked, other = "id-4471100", "id-4471101"
	notIt := func(t *testing.T, field string, err error) {
		t.Helper()
		var decode *brellium.DecodeError
		require.ErrorAs(t, err, &decode)
		assert.Equal(t, "the "+field+" of the body is not the one of the request", decode.Reason)
		assert.NotContains(t, err.Error(), "44711")
	}
	for _, id := range []string{other, "ID-4471100", " " + asked, asked + "\u200b"} {
		client := responding(t, `{"audit_id":"`+id+`","document_id":"`+id+`","user_id":"`+id+`","email_recipient_id":"`+id+`"}`)
		_, err := client.Audits.Retrieve(ctx, asked)
		notIt(t, "audit_id", err)
		_, err = client.Audits.Update(ctx, asked, brellium.AuditUpdateParams{Flags: []string{}})
		notIt(t, "audit_id", err)
		assert.True(t, brellium.OutcomeUnknown(err))
		_, err = client.Documents.Retrieve(ctx, asked)
		notIt(t, "document_id", err)
		_, err = client.Users.Retrieve(ctx, asked)
		notIt(t, "user_id", err)
		notIt(t, "user_id", client.Users.Delete(ctx, asked))
		_, err = client.EmailRecipients.Retrieve(ctx, asked)
		notIt(t, "email_recipient_id", err)
		_, err = client.Audits.Retrieve(ctx, id)
		require.NoError(t, err)
		require.NoError(t, client.Users.Delete(ctx, id))
	}
	const upper, lower = "3F2504E0-4F89-41D3-9A0C-0305E82C3301", "3f2504e0-4f89-41d3-9a0c-0305e82c3301"
	_, err := responding(t, `{"audit_id":"`+lower+`"}`).Audits.Retrieve(ctx, upper)
	require.NoError(t, err, "a UUID is the same in either case")
	updated, err := responding(t, `{"updated_audit_ids":["`+lower+`"]}`).Audits.BatchUpdate(ctx, brellium.AuditBatchUpdateParams{AuditIDs: []string{upper}, Flags: []string{}})
	require.NoError(t, err)
	assert.Empty(t, updated.NotUpdated)

	client := responding(t, `{"updated_audit_ids":["`+asked+`","`+other+`"]}`)
	_, err = client.Audits.BatchUpdate(ctx, brellium.AuditBatchUpdateParams{AuditIDs: []string{asked}, Flags: []string{}})
	require.ErrorContains(t, err, "updated_audit_ids has an id that is not in the request")
	assert.NotContains(t, err.Error(), "44711")
	for email, same := range map[string]bool{
		"casey@example.test": true, " Casey@Example.TEST ": true, "": true,
		"casey+1@example.test": false, "cas\u212aey@example.test": false, "4471100": false,
	} {
		synctest.Test(t, func(t *testing.T) { // Ensure pauses
			client := responding(t, `{"user_id":"1","email_recipient_id":"1","email":"`+email+`"}`)
			check := func(err error) {
				if same {
					require.NoError(t, err, email)
				} else {
					notIt(t, "email", err)
				}
			}
			_, err := client.Users.Create(t.Context(), brellium.UserCreateParams{Email: "casey@example.test"})
			check(err)
			_, err = client.Users.Ensure(t.Context(), brellium.UserCreateParams{Email: "casey@example.test"})
			check(err)
			_, err = client.EmailRecipients.Create(t.Context(), brellium.EmailRecipientCreateParams{Email: "casey@example.test"})
			check(err)
			_, err = client.EmailRecipients.Ensure(t.Context(), brellium.EmailRecipientCreateParams{Email: "casey@example.test"})
			check(err)
		})
	}
}

func TestASuccessThatSaysItFailedIsNone(t *testing.T) {
	for body, reason := range map[string]string{
		``: "", ` `: "", `{}`: "", `null`: "", `[]`: "", `OK`: "", `{"deleted":true}`: "", `{"user_id":"u"}`: "", `{"user_id":7}`: "other",
		`{"error":null,"errors":[ ],"ok":true}`: "", `{"error":false}`: "", `{"error":""}`: "", `{"errors":{}}`: "",
		`{"error":{"code":"REVOKE_FAILED","message":"4471100"}}`: "the body has an error although the status is a success",
		`{"ERROR":"4471100"}`:    "the body has an error although the status is a success",
		`{"errors":["4471100"]}`: "the body has an error although the status is a success",
		`{"deleted":false}`:      "the field deleted is false although the status is a success",
		`{"success":false}`:      "the field success is false although the status is a success",
		`<html>4471100`:          "the body is HTML instead of JSON",
	} {
		client := responding(t, body)
		for i, err := range []error{client.Users.Delete(t.Context(), "u"), client.Do(t.Context(), http.MethodPost, "/v2/x", nil, nil)} {
			if reason == "" || reason == "other" && i == 1 {
				require.NoError(t, err, body)
				continue
			}
			var decode *brellium.DecodeError
			require.ErrorAs(t, err, &decode, body)
			if reason != "other" {
				assert.Equal(t, reason, decode.Reason, body)
			}
			assert.True(t, brellium.OutcomeUnknown(err))
			assert.NotContains(t, err.Error(), "44711")
		}
	}
}

// Whatever the target of Do is, the result is right or an error.
func TestDoGivesNoBlankRecordWithoutAnError(t *testing.T) {
	type own struct {
		ID string `json:"id"`
	}
	type wrapped struct {
		Audit brellium.Audit            `json:"audit"`
		Prior *brellium.Audit           `json:"prior"`
		List  []brellium.User           `json:"list"`
		ByID  map[string]*brellium.User `json:"by_id"`
	}
	const no = "a resource in the body has no "
	var audits **brellium.Audit
	for _, tc := range []struct {
		into         any
		body, reason string // reason "": decoded
	}{
		{new(*brellium.Audit), `{"audit_id":"1"}`, ""},
		{&audits, `{"audit_id":"1"}`, ""},
		{new(*brellium.Audit), `{}`, "the body has no audit_id; it is empty"},
		{new(*brellium.Audit), `null`, "the body is null"},
		{new(brellium.Audit), ``, "the body is empty"},
		{new(own), ``, "the body is empty"},
		{new(map[string]any), ` `, "the body is empty"},
		{new(own), `null`, "the body is null"},
		{new([]brellium.Audit), `[{"audit_id":"1"}]`, ""},
		{new([]brellium.Audit), `[{"audit_id":"1"},{"id":"4471100"}]`, no + "audit_id"},
		{new([]brellium.Audit), `[null]`, no + "audit_id"},
		{new([]*brellium.Audit), `[{"audit_id":"1"},null]`, no + "audit_id"},
		{new([2]brellium.User), `[{"user_id":"1"}]`, no + "user_id"},
		{new(map[string]brellium.Audit), `{"a":{"audit_id":"1"}}`, ""},
		{new(map[string]brellium.Audit), `{"data":{},"error":{}}`, no + "audit_id"},
		{new(map[string]*brellium.Document), `{"error":null}`, no + "document_id"},
		{new(wrapped), `{}`, ""}, // as for every type of the caller's own
		{new(wrapped), `{"prior":null,"list":null}`, ""},
		{new(wrapped), `{"audit":{"status":"todo"}}`, no + "audit_id"},
		{new(wrapped), `{"prior":{}}`, no + "audit_id"},
		{new(wrapped), `{"list":[{}]}`, no + "user_id"},
		{new(wrapped), `{"by_id":{"a":{"user_id":"1"},"b":{"user_id":" "}}}`, no + "user_id"},
		{new(any), `[{}]`, ""},
		{new(brellium.Page[own]), `{"data":[{"id":"1"},null],"has_more":false}`, "item 2 of data is null"},
		{new(brellium.Page[*own]), `{"data":[{"id":"1"},null],"has_more":false}`, "item 2 of data is null"},
		{new(brellium.Page[*brellium.Audit]), `{"data":[{"audit_id":"1"},{"audit_id":2,"flags":7}],"has_more":false}`, ""},
		{new(brellium.Page[*brellium.Audit]), `{"data":[{"audit_id":"1"},{}],"has_more":false}`, "item 2 of data has no audit_id; it is empty"},
		{new(brellium.Page[*brellium.Audit]), `{"data":[null],"has_more":false}`, "item 1 of data is null instead of an object"},
		{new(*brellium.Page[brellium.Audit]), `{"data":[{}],"has_more":true,"next_cursor":"c"}`, "item 1 of data has no audit_id; it is empty"},
		{new(brellium.Page[any]), `{"data":[1,null],"has_more":false}`, ""},
		{new(brellium.DocumentCreateResult), `{"documents":[null]}`, "item 1 of documents is null instead of an object"},
		{new(*brellium.DocumentCreateResult), `{"documents":[{}]}`, "item 1 of documents has no document_id; it is empty"},
	} {
		for _, status := range []int{200, 204} {
			if status == 204 && tc.body != "" {
				continue
			}
			err := responding(t, tc.body, brellium.WithMaxRetries(0)).Do(t.Context(), http.MethodGet, "/v2/x", nil, tc.into)
			if tc.reason == "" {
				require.NoError(t, err, "%T of %s", tc.into, tc.body)
				continue
			}
			var decode *brellium.DecodeError
			require.ErrorAs(t, err, &decode, "%T of %s", tc.into, tc.body)
			assert.Equal(t, tc.reason, decode.Reason, "%T of %s", tc.into, tc.body)
		}
	}
	require.Equal(t, "1", (*audits).AuditID)
	assert.JSONEq(t, `{"audit_id":"1"}`, string((*audits).RawJSON()))

	var page brellium.Page[*brellium.Audit]
	client := responding(t, `{"data":[{"audit_id":"1"},{"audit_id":2}],"has_more":true,"next_cursor":"c"}`)
	require.NoError(t, client.Do(t.Context(), http.MethodGet, "/v2/audits", nil, &page))
	assert.Equal(t, "2", page.Data[1].AuditID)
	assert.JSONEq(t, `{"audit_id":2}`, string(page.Data[1].RawJSON()))
	var link *brellium.Page[brellium.Audit]
	require.NoError(t, client.Do(t.Context(), http.MethodGet, "/v2/audits", nil, &link))
	assert.True(t, link.HasMore)

	var more struct {
		brellium.Page[brellium.Audit]
		Total int `json:"total"`
	}
	var invalid *brellium.ValidationError
	require.ErrorAs(t, client.Do(t.Context(), http.MethodGet, "/v2/audits", nil, &more), &invalid)
	assert.Equal(t, "into", invalid.Field)
}
