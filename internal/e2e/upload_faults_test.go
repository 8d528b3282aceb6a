package e2e_test

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
	"github.com/brellium/brellium-go/internal/testkit"
)

// The storage host fails in every way at random, and the process is killed five
// times. In the end every document exists once, every file has arrived whole,
// and none was sent again after it had arrived.
func TestUploadOf200FilesThroughFaultsAndFiveCrashes(t *testing.T) {
	const files, crashes = 200, 5
	dir := t.TempDir()
	sums := make(map[string]string, files)
	for i := range files {
		name := "note-" + strconv.Itoa(i) + ".pdf"
		data := testkit.Content(i, 2_000+97*i)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
		sums[name] = testkit.Digest(data)
	}
	for _, seed := range []uint64{1, 2, 3} {
		t.Run("seed "+strconv.FormatUint(seed, 10), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				chance := rand.New(rand.NewPCG(seed, 7))
				emu := brelliumtest.New(brelliumtest.WithSeed(seed), brelliumtest.WithUploadURLLifetime(30*time.Second),
					brelliumtest.WithLatency(func(r *rand.Rand) time.Duration { return time.Duration(r.IntN(200)) * time.Millisecond }))
				emu.Inject(brelliumtest.OpDocumentPut,
					brelliumtest.Status(500, "InternalError").Sometimes(0.06).Forever(),
					brelliumtest.Status(503, "SlowDown").Sometimes(0.06).Forever(),
					testkit.ExpiredURL().Sometimes(0.04).Forever(),
					brelliumtest.DropReading().Sometimes(0.06).Forever(),
					brelliumtest.DropBefore().Sometimes(0.04).Forever(),
					brelliumtest.DropAfter().AsReset().Sometimes(0.04).Forever(),
					brelliumtest.StallHeaders(0).Sometimes(0.02).Forever(),
					brelliumtest.OK().SlowRead(20*time.Second).Sometimes(0.08).Forever(),
					brelliumtest.OK().Delay(time.Hour).Sometimes(0.02).Forever(),
				)
				emu.Inject(brelliumtest.OpDocumentCreate,
					brelliumtest.Status(503, "UNAVAILABLE").AfterWork().Sometimes(0.1).Forever(),
					brelliumtest.DropAfter().Sometimes(0.1).Forever())

				runs, killed := 0, 0
				for done := false; !done; runs++ {
					require.Less(t, runs, 20, "the upload does not finish")
					// A new process: all it has is the folder.
					entries, err := os.ReadDir(dir)
					require.NoError(t, err)
					var list []brellium.UploadFile
					for _, entry := range entries {
						file, err := brellium.FileFromPath(filepath.Join(dir, entry.Name()))
						require.NoError(t, err)
						list = append(list, file)
					}
					ctx, kill := context.WithCancel(t.Context())
					options := brellium.UploadOptions{BatchSize: 50, IdleTimeout: 8 * time.Second}
					if killed < crashes {
						// Killed at any moment, with files in any state.
						after := time.Duration(4+chance.IntN(6)) * time.Second
						timer := time.AfterFunc(after, kill)
						defer timer.Stop()
					}
					results, err := testkit.NewClient(t, emu).Documents.Upload(ctx, list, options)
					if ctx.Err() != nil {
						killed++
						require.ErrorIs(t, err, context.Canceled)
					}
					kill()
					require.Len(t, results, files)
					done = err == nil
				}
				assert.Equal(t, crashes, killed)
				t.Logf("%d runs, %d POSTs, %d PUTs", runs, emu.Count(brelliumtest.OpDocumentCreate), emu.Count(brelliumtest.OpDocumentPut))

				docs := emu.Documents()
				assert.Len(t, docs, files, "every document exists once")
				for _, d := range docs {
					assert.True(t, d.Arrived, d.Filename)
					assert.Equal(t, sums[d.Filename], d.SHA256, d.Filename)
					assert.Equal(t, 1, d.Puts, "%s was sent again after it had arrived", d.Filename)
				}
			})
		})
	}
}
