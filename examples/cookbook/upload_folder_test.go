package cookbook

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

// UploadFolder uploads the files of a folder and its subfolders. Called again, it
// sends only what has not arrived.
func UploadFolder(ctx context.Context, client *brellium.Client, folder string) ([]brellium.UploadResult, error) {
	var files []brellium.UploadFile
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		file, err := brellium.FileFromPath(path)
		if err != nil {
			return err
		}
		// The path is part of the document's id: without the folder's own name, the
		// folder may be moved between two runs.
		if file.Path, err = filepath.Rel(folder, path); err != nil {
			return err
		}
		file.Path = filepath.ToSlash(file.Path)
		files = append(files, file)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return client.Documents.Upload(ctx, files, brellium.UploadOptions{Concurrency: 8})
}

func TestUploadFolder(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "scans")
	for i := range 20 {
		dir := filepath.Join(folder, fmt.Sprint("patient-", i%3))
		require.NoError(t, os.MkdirAll(dir, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("note-%02d.txt", i)), fmt.Appendf(nil, "A synthetic note, %d.", i), 0o600))
	}
	emulator := brelliumtest.New()
	client, err := emulator.Client()
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	sent := 0
	emulator.Inject(brelliumtest.OpDocumentPut, brelliumtest.OK().Forever().When(func(*brelliumtest.Request) bool {
		if sent++; sent == 10 {
			cancel()
		}
		return false
	}))
	results, err := UploadFolder(ctx, client, folder)
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, results, 20)

	require.NoError(t, os.Rename(folder, folder+"-moved"))
	results, err = UploadFolder(t.Context(), client, folder+"-moved")
	require.NoError(t, err)
	before := 0
	for _, r := range results {
		if r.Status == brellium.UploadAlreadyThere {
			before++
		}
	}
	assert.GreaterOrEqual(t, before, 1)
	assert.Less(t, before, 20)
	assert.Len(t, emulator.Documents(), 20)
}
