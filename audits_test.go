package brellium_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
	"github.com/brellium/brellium-go/internal/testkit"
)

func TestSampleAuditOfTheGuide(t *testing.T) {
	client := testkit.NewClient(t, brelliumtest.New())
	audit, err := client.Audits.Retrieve(t.Context(), brelliumtest.SampleAuditID)
	require.NoError(t, err)
	assert.Equal(t, brelliumtest.SampleAuditID, audit.AuditID)
	assert.Equal(t, "audit", audit.Object)
	assert.Equal(t, brellium.AuditStatusComplete, audit.Status)
	assert.Equal(t, []string{"Failed", "Missing Signature"}, audit.Flags)
	require.NotNil(t, audit.Score)
	assert.NotEmpty(t, audit.ReviewedBy)
	assert.NotEmpty(t, audit.SetID)
	assert.False(t, audit.Timestamp.IsZero())
	assert.NotEmpty(t, audit.Documents)
	require.NotEmpty(t, audit.DisplayInfo)
	assert.NotZero(t, audit.DisplayInfo[0].Order)
	for _, item := range append(audit.DisplayInfo, audit.People...) {
		assert.NotEmpty(t, item.Key+item.Title+item.Value+item.Format+item.FilterType)
	}
	require.NotEmpty(t, audit.Responses)
	for _, r := range audit.Responses {
		assert.NotEmpty(t, r.ResponseID)
		assert.NotEmpty(t, r.QuestionID)
		assert.NotEmpty(t, r.Query)
		assert.NotEmpty(t, r.Context)
		assert.Contains(t, []brellium.AuditAnswer{brellium.AuditAnswerYes, brellium.AuditAnswerNo, brellium.AuditAnswerNotApplicable}, r.Answer)
	}
}

// go-auth0/auth0#43, meraki/dashboard-api-go#77, neilmartin83/terraform-provider-axm#109
func TestClearingFlagsSendsAnEmptyList(t *testing.T) {
	emu := brelliumtest.New()
	client := testkit.NewClient(t, emu)
	for _, c := range []struct {
		flags []string
		body  string
		after []string
	}{
		{[]string{"Late Entry"}, `{"flags":["Late Entry"]}`, []string{"Late Entry"}},
		{[]string{}, `{"flags":[]}`, []string{}},
	} {
		audit, err := client.Audits.Update(t.Context(), brelliumtest.SampleAuditID, brellium.AuditUpdateParams{Flags: c.flags})
		require.NoError(t, err)
		requests := emu.Requests(brelliumtest.OpAuditUpdate)
		assert.Equal(t, c.body, string(requests[len(requests)-1].Body))
		assert.Equal(t, c.after, audit.Flags)
	}

	sent := emu.Count(brelliumtest.OpAny)
	for field, flags := range map[string][]string{"Flags": nil, "Flags[1]": {"x", " "}} {
		_, err := client.Audits.Update(t.Context(), brelliumtest.SampleAuditID, brellium.AuditUpdateParams{Flags: flags})
		testkit.IsInvalid(t, err, field, "")
	}
	assert.Equal(t, sent, emu.Count(brelliumtest.OpAny))
}

func TestBatchUpdate(t *testing.T) {
	emu := brelliumtest.New()
	a, b := emu.AddAudit("complete"), emu.AddAudit("complete", "Failed")
	client := testkit.NewClient(t, emu)
	result, err := client.Audits.BatchUpdate(t.Context(), brellium.AuditBatchUpdateParams{AuditIDs: []string{"unknown", a, b, "other", "unknown"}, Flags: []string{}})
	require.NoError(t, err)
	assert.Equal(t, []string{a, b}, result.UpdatedAuditIDs)
	assert.Equal(t, []string{"unknown", "other"}, result.NotUpdated)
	encoded, err := json.Marshal(result)
	require.NoError(t, err)
	assert.JSONEq(t, `{"updated_audit_ids":["`+a+`","`+b+`"]}`, string(encoded))
	assert.NotEmpty(t, result.RawJSON())
	assert.JSONEq(t, `{"audit_ids":["unknown","`+a+`","`+b+`","other","unknown"],"flags":[]}`, string(emu.Requests(brelliumtest.OpAuditBatchUpdate)[0].Body))
	flags, _ := emu.AuditFlags(b)
	assert.Empty(t, flags)

	for field, params := range map[string]brellium.AuditBatchUpdateParams{
		"AuditIDs":    {Flags: []string{"x"}},
		"AuditIDs[0]": {AuditIDs: []string{" "}, Flags: []string{"x"}},
		"Flags":       {AuditIDs: []string{a}},
		"Flags[1]":    {AuditIDs: []string{a}, Flags: []string{"x", "\t"}},
	} {
		_, err := client.Audits.BatchUpdate(t.Context(), params)
		testkit.IsInvalid(t, err, field, "")
	}
	assert.Equal(t, 1, emu.Count(brelliumtest.OpAuditBatchUpdate))
}

func TestAuditFiltersReachTheServer(t *testing.T) {
	emu := brelliumtest.New()
	emu.SeedAudits(200)
	client := testkit.NewClient(t, emu)
	all, err := readAll(client.Audits.All(t.Context(), brellium.AuditListParams{Limit: 100}))
	require.NoError(t, err)
	require.Len(t, all, 201)
	middle := all[100]
	for name, c := range map[string]struct {
		params brellium.AuditListParams
		match  func(*brellium.Audit) bool
	}{
		"status":   {brellium.AuditListParams{Status: "todo"}, func(a *brellium.Audit) bool { return a.Status == "todo" }},
		"set":      {brellium.AuditListParams{SetID: middle.SetID}, func(a *brellium.Audit) bool { return a.SetID == middle.SetID }},
		"document": {brellium.AuditListParams{DocumentID: middle.Documents[0]}, func(a *brellium.Audit) bool { return a.AuditID == middle.AuditID }},
		"flags": {brellium.AuditListParams{Flags: []string{"Late Entry", "Needs Review"}}, func(a *brellium.Audit) bool {
			return len(a.Flags) > 0 && (a.Flags[0] == "Late Entry" || a.Flags[0] == "Needs Review")
		}},
		"created after": {brellium.AuditListParams{CreatedAfter: middle.Timestamp.Time}, func(a *brellium.Audit) bool {
			return a.Timestamp.After(middle.Timestamp.Time)
		}},
		"created before": {brellium.AuditListParams{CreatedBefore: middle.Timestamp.Time}, func(a *brellium.Audit) bool {
			return a.Timestamp.Before(middle.Timestamp.Time)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var want []string
			for _, a := range all {
				if c.match(a) {
					want = append(want, a.AuditID)
				}
			}
			require.NotEmpty(t, want)
			require.Less(t, len(want), len(all))
			got, err := readAll(client.Audits.All(t.Context(), c.params))
			require.NoError(t, err)
			assert.Equal(t, want, auditIDs(got))
		})
	}
}
