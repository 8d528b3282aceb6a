package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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

// example returns the example as a process. environment contains credentials.
func example(t *testing.T, out *bytes.Buffer, environment []string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append([]string{"BRELLIUM_EXAMPLE=1", "PATH=" + os.Getenv("PATH"), "TMPDIR=" + t.TempDir()}, environment...)
	cmd.Stdout, cmd.Stderr = out, out
	return cmd
}

func TestExampleResumesAfterCtrlC(t *testing.T) {
	dir, err := generate(30)
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	emulator := brelliumtest.New()
	require.NoError(t, emulator.Start())
	defer emulator.Close()
	environment := []string{"BRELLIUM_BASE_URL=" + emulator.URL, "BRELLIUM_CLIENT_ID=" + emulator.ClientID, "BRELLIUM_CLIENT_SECRET=" + emulator.ClientSecret}

	// Press Ctrl-C during the tenth upload, which storage delays.
	tenth := make(chan struct{})
	puts := 0
	emulator.Inject(brelliumtest.OpDocumentPut, brelliumtest.OK().Delay(time.Hour).Forever().When(func(*brelliumtest.Request) bool {
		if puts++; puts == 10 {
			close(tenth)
		}
		return puts >= 10
	}))
	var first bytes.Buffer
	cmd := example(t, &first, environment, "-dir", dir)
	require.NoError(t, cmd.Start())
	<-tenth
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.Error(t, cmd.Wait())
	assert.Contains(t, first.String(), "interrupted: run it again to send the rest", first.String())
	arrived := 0
	for _, d := range emulator.Documents() {
		if d.Arrived {
			arrived++
		}
	}
	assert.Positive(t, arrived)
	assert.Less(t, arrived, 10)

	emulator.ClearFaults()
	var second bytes.Buffer
	require.NoError(t, example(t, &second, environment, "-dir", dir).Run(), second.String())
	var stored, there int
	summary := second.String()[max(strings.Index(second.String(), "30 files: "), 0):]
	_, err = fmt.Sscanf(summary, "30 files: %d stored, %d already there, 0 failed, 0 not started.", &stored, &there)
	require.NoError(t, err, second.String())
	assert.Equal(t, 30, stored+there)
	assert.GreaterOrEqual(t, there, arrived, "a file may arrive after its sender was interrupted")
	assert.Less(t, there, 10)
	docs := emulator.Documents()
	assert.Len(t, docs, 30)
	for _, d := range docs {
		data, err := os.ReadFile(filepath.Join(dir, d.Filename))
		require.NoError(t, err)
		sum := sha256.Sum256(data)
		assert.Equal(t, hex.EncodeToString(sum[:]), d.SHA256)
		assert.Equal(t, 1, d.Puts)
	}
}

func TestExampleRunsOnTheEmbeddedEmulator(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, example(t, &out, nil).Run(), out.String())
	assert.Contains(t, out.String(), "running on the embedded emulator")
	assert.Contains(t, out.String(), "40 files: 40 stored")
	assert.Contains(t, out.String(), "40 of 40 files, 100 %")
	assert.NotContains(t, out.String(), "\r", "there is no terminal")
}
