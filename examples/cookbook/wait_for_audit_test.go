package cookbook

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

// AuditFile uploads a file and waits for its finished audit.
func AuditFile(ctx context.Context, client *brellium.Client, file brellium.UploadFile) (*brellium.Audit, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Minute)
	defer cancel()
	results, err := client.Documents.Upload(ctx, []brellium.UploadFile{file}, brellium.UploadOptions{})
	if err != nil {
		return nil, err
	}
	audit, err := client.Documents.WaitForFinishedAudit(ctx, results[0].DocumentID)
	switch {
	case errors.Is(err, brellium.ErrDocumentFailed), errors.Is(err, brellium.ErrNoAudit), errors.Is(err, brellium.ErrAuditFailed):
		return nil, err // final: waiting longer does not help
	case errors.Is(err, context.DeadlineExceeded):
		return nil, err // not finished yet: call again with the same file, it is not sent again
	}
	return audit, err
}

// AuditFiles does the same for many files, and returns the finished audits by
// document id. It asks less often than one wait for each document would.
func AuditFiles(ctx context.Context, client *brellium.Client, files []brellium.UploadFile) (map[string]*brellium.Audit, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Hour)
	defer cancel()
	results, err := client.Documents.Upload(ctx, files, brellium.UploadOptions{})
	if err != nil {
		return nil, err // some files may have arrived: call again with the same files
	}
	var ids []string
	for _, r := range results {
		ids = append(ids, r.DocumentID)
	}
	audits := map[string]*brellium.Audit{}
	var failed []error
	for result, err := range client.Documents.WaitForAudits(ctx, ids) {
		if err != nil {
			return audits, err // call again with the ids that have no audit yet
		}
		audits[result.DocumentID] = result.Audit // nil if there is none
		failed = append(failed, result.Err)
	}
	return audits, errors.Join(failed...)
}

func TestAuditFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		emulator := brelliumtest.New(brelliumtest.WithAuditDelay(time.Minute), brelliumtest.WithAuditDuration(5*time.Minute))
		client, err := emulator.Client()
		require.NoError(t, err)
		file := brellium.FileFromBytes("note.txt", []byte("A synthetic note."))

		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		_, err = AuditFile(ctx, client, file)
		require.ErrorIs(t, err, context.DeadlineExceeded)

		audit, err := AuditFile(t.Context(), client, file)
		require.NoError(t, err)
		assert.Equal(t, brellium.AuditStatusComplete, audit.Status)
		assert.Equal(t, 1, emulator.Count(brelliumtest.OpDocumentPut))
	})
}

func TestAuditFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		emulator := brelliumtest.New(brelliumtest.WithAuditDelay(time.Minute))
		client, err := emulator.Client()
		require.NoError(t, err)
		var files []brellium.UploadFile
		for _, name := range []string{"a.txt", "b.txt", "c.txt"} {
			files = append(files, brellium.FileFromBytes(name, []byte("The synthetic note "+name)))
		}
		audits, err := AuditFiles(t.Context(), client, files)
		require.NoError(t, err)
		assert.Len(t, audits, 3)

		emulator.UpdateAudit(emulator.Documents()[0].DocumentID, func(audit *brellium.Audit) { audit.Status = brellium.AuditStatusError })
		_, err = AuditFiles(t.Context(), client, files)
		require.ErrorIs(t, err, brellium.ErrAuditFailed)
	})
}
