package brelliumtest_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

func TestClientListsAllAuditsInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		emu := brelliumtest.New(brelliumtest.WithRateLimit(2, 1))
		emu.SeedAudits(999)
		client, err := emu.Client()
		require.NoError(t, err)
		start := time.Now()
		var ids []string
		for audit, err := range client.Audits.All(t.Context(), brellium.AuditListParams{Limit: 100}) {
			require.NoError(t, err)
			ids = append(ids, audit.AuditID)
		}
		assert.Equal(t, emu.AuditIDs(), ids)
		assert.Greater(t, time.Since(start), 4*time.Second, "the rate limit applies in virtual time")
	})
}

func TestExampleInVirtualTime(t *testing.T) { testRetryAfter(t) }

func TestClientOptionsOverrideTheEmulators(t *testing.T) {
	emu := brelliumtest.New()
	client, err := emu.Client(brellium.WithClientCredentials("nobody", "nothing"))
	require.NoError(t, err)
	_, err = client.Audits.Retrieve(t.Context(), brelliumtest.SampleAuditID)
	require.ErrorIs(t, err, brellium.ErrUnauthorized)
	_, err = emu.Client(brellium.WithMaxRetries(-1))
	require.Error(t, err)
}

func TestClientWithAnAccessToken(t *testing.T) {
	emu := brelliumtest.New()
	client, err := brellium.NewClient(
		brellium.WithBaseURL(emu.BaseURL()),
		brellium.WithHTTPClient(&http.Client{Transport: emu.Transport()}),
		brellium.WithAccessToken(emu.IssueToken()),
	)
	require.NoError(t, err)
	_, err = client.Audits.Retrieve(t.Context(), brelliumtest.SampleAuditID)
	require.NoError(t, err)
	assert.Zero(t, emu.Count(brelliumtest.OpTokenCreate))
}
