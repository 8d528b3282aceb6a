package cookbook

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

// Set is a resource that the client does not have.
type Set struct {
	ID string `json:"set_id"`
}

// ListSets returns its first page; the page's Next returns the others.
func ListSets(ctx context.Context, client *brellium.Client) (*brellium.Page[Set], error) {
	var page brellium.Page[Set]
	err := client.Do(ctx, "GET", "/v2/sets", nil, &page, brellium.WithOperation("sets.list"))
	return &page, err
}

// Reviewer reads a field that the client does not have.
func Reviewer(audit *brellium.Audit) (string, error) {
	var own struct {
		Reviewer string `json:"reviewer_name"`
	}
	err := json.Unmarshal(audit.RawJSON(), &own)
	return own.Reviewer, err
}

func TestWhatTheClientDoesNotHave(t *testing.T) {
	emulator := brelliumtest.New()
	client, err := emulator.Client()
	require.NoError(t, err)
	emulator.Inject(brelliumtest.OpAny, brelliumtest.OK(), brelliumtest.Respond(200, "application/json", `{"data":[{"set_id":"s1"}],"has_more":false}`))
	page, err := ListSets(t.Context(), client)
	require.NoError(t, err)
	assert.Equal(t, []Set{{"s1"}}, page.Data)

	emulator.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Respond(200, "application/json", `{"audit_id":"a1","reviewer_name":"Casey"}`))
	audit, err := client.Audits.Retrieve(t.Context(), "a1")
	require.NoError(t, err)
	reviewer, err := Reviewer(audit)
	require.NoError(t, err)
	assert.Equal(t, "Casey", reviewer)
}
