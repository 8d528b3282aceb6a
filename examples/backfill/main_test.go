package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

// TestMain runs the example if a test started this binary as a process.
func TestMain(m *testing.M) {
	if os.Getenv("BRELLIUM_EXAMPLE") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestExampleResumesAfterCtrlCAndACrash(t *testing.T) {
	emulator := brelliumtest.New(brelliumtest.WithRateLimit(1000, 1e6))
	emulator.SeedAudits(599)
	require.NoError(t, emulator.Start())
	defer emulator.Close()
	path := filepath.Join(t.TempDir(), "audits.jsonl")
	var out bytes.Buffer
	start := func() *exec.Cmd {
		out.Reset()
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-out", path)
		cmd.Env = []string{"BRELLIUM_EXAMPLE=1", "BRELLIUM_BASE_URL=" + emulator.URL,
			"BRELLIUM_CLIENT_ID=" + emulator.ClientID, "BRELLIUM_CLIENT_SECRET=" + emulator.ClientSecret}
		cmd.Stdout, cmd.Stderr = &out, &out
		require.NoError(t, cmd.Start())
		return cmd
	}
	// until delays the n-th and later requests, and closes the channel at the
	// n-th.
	until := func(n int) <-chan struct{} {
		emulator.ClearFaults()
		arrived := make(chan struct{})
		requests := 0
		emulator.Inject(brelliumtest.OpAuditList, brelliumtest.OK().Delay(time.Hour).Forever().When(func(*brelliumtest.Request) bool {
			if requests++; requests == n {
				close(arrived)
			}
			return requests >= n
		}))
		return arrived
	}

	arrived := until(3)
	cmd := start()
	<-arrived
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.Error(t, cmd.Wait())
	assert.Contains(t, out.String(), "0 audits are in ")
	assert.Contains(t, out.String(), "200 in the file;")
	assert.Contains(t, out.String(), "interrupted: run it again to resume")

	// The process is killed, and the last line is incomplete.
	arrived = until(2)
	cmd = start()
	<-arrived
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, append(data, data[:100]...), 0o600))

	emulator.ClearFaults()
	require.NoError(t, start().Wait(), out.String())
	assert.Contains(t, out.String(), "300 audits are in ")
	assert.Contains(t, out.String(), "600 in the file;")
	assert.NotContains(t, out.String(), "\r")

	check := func(want []string) {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		var ids []string
		for line := range strings.Lines(string(data)) {
			var audit brellium.Audit
			require.NoError(t, json.Unmarshal([]byte(line), &audit))
			ids = append(ids, audit.AuditID)
		}
		assert.ElementsMatch(t, want, ids, "an audit was lost or duplicated")
	}
	check(emulator.AuditIDs())
	assert.Equal(t, 6+2, emulator.Count(brelliumtest.OpAuditList), "pages in the file were read again")
	assert.Zero(t, emulator.Count(brelliumtest.OpAuditRetrieve))

	// A later run adds the new audits.
	added := emulator.AddAudit("complete")
	require.NoError(t, start().Wait(), out.String())
	assert.Contains(t, out.String(), "600 audits are in ")
	require.True(t, slices.Contains(emulator.AuditIDs(), added))
	check(emulator.AuditIDs())

	// A cursor that the API no longer accepts starts from the beginning.
	require.NoError(t, os.WriteFile(path+".checkpoint", []byte("old"), 0o600))
	require.NoError(t, start().Wait(), out.String())
	check(emulator.AuditIDs())
	files, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	assert.Len(t, files, 1, "the checkpoint is removed")
}

func TestRealAuditsNeedAFile(t *testing.T) {
	t.Setenv("BRELLIUM_ACCESS_TOKEN", "token")
	require.ErrorContains(t, run(t.Context(), "", io.Discard), "-out FILE")
}

func TestOtherFileIsNotChanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "letter.txt")
	require.NoError(t, os.WriteFile(path, []byte("Dear reader,\nthis is not JSON.\n"), 0o600))
	_, err := openLines(path)
	require.ErrorContains(t, err, "line 1 of the file is not an audit")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "Dear reader,\nthis is not JSON.\n", string(data))
}
