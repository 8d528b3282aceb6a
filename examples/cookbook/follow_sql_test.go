package cookbook

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"path/filepath"
	"testing"

	_ "github.com/ncruces/go-sqlite3/driver" // any driver of database/sql
	_ "github.com/ncruces/go-sqlite3/embed"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

const schema = `
CREATE TABLE IF NOT EXISTS audits (audit_id TEXT PRIMARY KEY, status TEXT NOT NULL, object TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS checkpoints (name TEXT PRIMARY KEY, checkpoint TEXT NOT NULL);`

// Sync copies the audits that were updated since the last Sync into a database.
func Sync(ctx context.Context, client *brellium.Client, db *sql.DB) error {
	var checkpoint brellium.FollowCheckpoint // the zero value reads all audits
	var saved []byte
	err := db.QueryRowContext(ctx, `SELECT checkpoint FROM checkpoints WHERE name = 'audits'`).Scan(&saved)
	if err == nil {
		err = json.Unmarshal(saved, &checkpoint)
	}
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	for batch, err := range client.Audits.Follow(ctx, checkpoint, brellium.FollowOptions{CatchUp: true}) {
		if err == nil {
			err = errors.Join(batch.Err, save(ctx, db, batch))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// save stores the audits of a batch and its checkpoint in one transaction, so that
// a crash leaves both or neither.
func save(ctx context.Context, db *sql.DB, batch *brellium.FollowBatch) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	for _, audit := range batch.Audits {
		// An audit may come again: the statement replaces it.
		if _, err := tx.ExecContext(ctx, `INSERT INTO audits (audit_id, status, object) VALUES (?, ?, ?)
			ON CONFLICT (audit_id) DO UPDATE SET status = excluded.status, object = excluded.object`,
			audit.AuditID, string(audit.Status), string(audit.RawJSON())); err != nil {
			return err
		}
	}
	checkpoint, err := json.Marshal(batch.Checkpoint)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO checkpoints (name, checkpoint) VALUES ('audits', ?)
		ON CONFLICT (name) DO UPDATE SET checkpoint = excluded.checkpoint`, string(checkpoint)); err != nil {
		return err
	}
	return tx.Commit()
}

func TestSync(t *testing.T) {
	db, err := sql.Open("sqlite3", "file:"+filepath.ToSlash(filepath.Join(t.TempDir(), "audits.db")))
	require.NoError(t, err)
	defer db.Close()
	_, err = db.Exec(schema)
	require.NoError(t, err)
	emulator := brelliumtest.New(brelliumtest.WithRateLimit(1000, 1000))
	emulator.SeedAudits(299)
	client, err := emulator.Client()
	require.NoError(t, err)
	count := func(query string) (n int) {
		require.NoError(t, db.QueryRow(query).Scan(&n))
		return n
	}

	// The third batch cannot be stored.
	_, err = db.Exec(`CREATE TRIGGER full BEFORE INSERT ON audits WHEN (SELECT count(*) FROM audits) >= 150 BEGIN SELECT RAISE(ABORT, 'full'); END`)
	require.NoError(t, err)
	require.ErrorContains(t, Sync(t.Context(), client, db), "full")
	stored := count(`SELECT count(*) FROM audits`)
	assert.Less(t, stored, 150, "a batch is stored as a whole")
	assert.Equal(t, 1, count(`SELECT count(*) FROM checkpoints`))
	_, err = db.Exec(`DROP TRIGGER full`)
	require.NoError(t, err)

	emulator.ClearRequests()
	require.NoError(t, Sync(t.Context(), client, db))
	assert.Equal(t, 300, count(`SELECT count(*) FROM audits`))
	requests := len(emulator.Requests(brelliumtest.OpAuditList))
	require.NoError(t, Sync(t.Context(), client, db))
	assert.Less(t, len(emulator.Requests(brelliumtest.OpAuditList)), 2*requests, "it does not start from the beginning")
	assert.Equal(t, 300, count(`SELECT count(*) FROM audits`))
}
