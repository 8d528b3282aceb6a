package cookbook

import (
	"bytes"
	"context"
	"encoding/csv"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

// ExportCSV writes the audits that params selects, one row for each.
func ExportCSV(ctx context.Context, client *brellium.Client, params brellium.AuditListParams, w io.Writer) error {
	params.Limit = 100 // audits with each request
	out := csv.NewWriter(w)
	if err := out.Write([]string{"audit_id", "created", "status", "score", "flags"}); err != nil {
		return err
	}
	for audit, err := range client.Audits.All(ctx, params) {
		if err != nil {
			return err
		}
		score := ""
		if audit.Score != nil {
			score = strconv.FormatFloat(*audit.Score, 'f', -1, 64)
		}
		row := []string{audit.AuditID, audit.Timestamp.Format(time.RFC3339), string(audit.Status), score, text(strings.Join(audit.Flags, "; "))}
		if err := out.Write(row); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// text keeps a spreadsheet from taking a cell for a formula.
func text(cell string) string {
	if cell != "" && strings.ContainsRune("=+-@\t\r", rune(cell[0])) {
		return "'" + cell
	}
	return cell
}

func TestExportCSV(t *testing.T) {
	emulator := brelliumtest.New()
	emulator.SeedAudits(250)
	emulator.AddAudit("complete", "=1+1")
	client, err := emulator.Client()
	require.NoError(t, err)
	var file bytes.Buffer
	require.NoError(t, ExportCSV(t.Context(), client, brellium.AuditListParams{}, &file))
	rows, err := csv.NewReader(&file).ReadAll()
	require.NoError(t, err)
	var ids []string
	for _, row := range rows[1:] {
		ids = append(ids, row[0])
		assert.NotEqual(t, "=1+1", row[4])
	}
	assert.ElementsMatch(t, emulator.AuditIDs(), ids)
	assert.Equal(t, 3, emulator.Count(brelliumtest.OpAuditList))
}
