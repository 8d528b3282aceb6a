package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"testing"
	"testing/synctest"

	"github.com/brellium/brellium-go/brelliumtest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestExamplePrintsSpansMetricsAndRecords(t *testing.T) {
	var telemetry, logs bytes.Buffer
	synctest.Test(t, func(t *testing.T) { // waits take no real time
		require.NoError(t, run(context.Background(), &telemetry, &logs))
	})

	assert.Contains(t, logs.String(), "brellium attempt")
	assert.Contains(t, logs.String(), "operation=audits.retrieve")
	assert.Contains(t, logs.String(), "The audit has 2 flags.")
	assert.NotContains(t, telemetry.String()+logs.String(), brelliumtest.SampleAuditID)
	assert.NotContains(t, telemetry.String()+logs.String(), "Bearer")

	// The output is a sequence of JSON documents: spans, then metrics.
	spans, instruments := map[string]int{}, map[string]bool{}
	for d := json.NewDecoder(&telemetry); ; {
		var document struct {
			Name         string
			ScopeMetrics []struct{ Metrics []struct{ Name string } }
		}
		err := d.Decode(&document)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if document.Name != "" {
			spans[document.Name]++
		}
		for _, scope := range document.ScopeMetrics {
			for _, m := range scope.Metrics {
				instruments[m.Name] = true
			}
		}
	}
	assert.Equal(t, map[string]int{"POST /v2/oauth/token": 2, "GET /v2/audits/{audit_id}": 4, "nightly review": 1}, spans)
	for _, name := range []string{"http.client.request.duration", "brellium.client.calls", "brellium.client.rate_limited",
		"brellium.client.waits", "brellium.client.rate_limit.remaining", "brellium.client.mints"} {
		assert.True(t, instruments[name], name)
	}
}
