package main

import (
	"bytes"
	"encoding/json"
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
	emulator.SeedAudits(199)
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
		emulator.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.OK().Delay(time.Hour).Forever().When(func(*brelliumtest.Request) bool {
			if requests++; requests == n {
				close(arrived)
			}
			return requests >= n
		}))
		return arrived
	}

	arrived := until(60)
	cmd := start()
	<-arrived
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.Error(t, cmd.Wait())
	assert.Contains(t, out.String(), "200 audits to read, 0 already in the file.")
	assert.Contains(t, out.String(), "interrupted: run it again to resume")

	// The process is killed, and the last line is incomplete.
	arrived = until(70)
	cmd = start()
	<-arrived
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	whole := bytes.Count(data, []byte("\n"))
	assert.Greater(t, whole, 100)
	require.NoError(t, os.Truncate(path, int64(len(data)-100)))

	emulator.ClearFaults()
	require.NoError(t, start().Wait(), out.String())
	assert.Contains(t, out.String(), "200 in the file now.")
	assert.Contains(t, out.String(), "calls/s")
	assert.Contains(t, out.String(), "left")

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
	// Four were in flight each time; one more had arrived and was not written
	// when the process was killed, and one was truncated.
	assert.LessOrEqual(t, emulator.Count(brelliumtest.OpAuditRetrieve), 200+4+5+1, "audits in the file were read again")
	assert.Equal(t, 2, emulator.Count(brelliumtest.OpAuditList), "the list was read again")

	// A later run adds the new audits.
	added := emulator.AddAudit("complete")
	require.NoError(t, start().Wait(), out.String())
	assert.Contains(t, out.String(), "1 audits to read, 200 already in the file.")
	require.True(t, slices.Contains(emulator.AuditIDs(), added))
	check(emulator.AuditIDs())
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

func TestTimeLeftFollowsTheRateLimit(t *testing.T) {
	assert.Equal(t, time.Duration(0), timeLeft(80, brellium.RateLimit{Limit: 100, Remaining: 90}))
	assert.Equal(t, 40*time.Second, timeLeft(290, brellium.RateLimit{Limit: 100, Remaining: 90}))
}
