package cookbook

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

// InviteList invites everybody of a list of "email,name", and reports what became
// of each row. It may be called again with the same list.
func InviteList(ctx context.Context, client *brellium.Client, list io.Reader, report io.Writer) error {
	rows := csv.NewReader(list)
	rows.FieldsPerRecord = 2
	for n := 1; ; n++ {
		row, err := rows.Read()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		var outcome brellium.EnsureOutcome
		_, err = client.Users.Ensure(ctx, brellium.UserCreateParams{Email: row[0], Name: row[1]}, brellium.WithEnsureOutcome(&outcome))
		var (
			invalid  *brellium.ValidationError
			rejected *brellium.APIError
		)
		switch {
		case err == nil:
			fmt.Fprintf(report, "row %d: %s\n", n, outcome) // created, found or reinvited
		case errors.As(err, &invalid):
			fmt.Fprintf(report, "row %d: %s %s\n", n, invalid.Field, invalid.Reason)
		case errors.As(err, &rejected) && (rejected.StatusCode == 400 || rejected.StatusCode == 422):
			fmt.Fprintf(report, "row %d: rejected, %s\n", n, rejected.Code)
		default:
			return fmt.Errorf("row %d: %w", n, err) // nothing to do with this row: call again later
		}
	}
}

func TestInviteList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		emulator := brelliumtest.New()
		client, err := emulator.Client()
		require.NoError(t, err)
		emulator.Inject(brelliumtest.OpUserCreate, brelliumtest.OK(), brelliumtest.InviteFailed(), brelliumtest.OK(), brelliumtest.DropAfter())
		const list = "casey@example.test,Casey\nrobin@example.test,Robin\nalex@example.test,Alex\n,Nobody\nrobin@example.test,Robin\n"
		var report strings.Builder
		require.NoError(t, InviteList(t.Context(), client, strings.NewReader(list), &report))
		assert.Equal(t, "row 1: created\nrow 2: reinvited\nrow 3: found\nrow 4: Email must not be blank\nrow 5: found\n", report.String())

		report.Reset()
		require.NoError(t, InviteList(t.Context(), client, strings.NewReader(list), &report))
		for _, user := range emulator.Users() {
			assert.Equal(t, 1, emulator.Invitations(user.Email))
		}
		assert.Equal(t, "row 1: found\nrow 2: found\nrow 3: found\nrow 4: Email must not be blank\nrow 5: found\n", report.String())
	})
}
