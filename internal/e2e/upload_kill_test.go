package e2e_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
	"github.com/brellium/brellium-go/internal/testkit"
)

// The test binary uploads a folder if this variable is set to its path.
const uploadVariable = "BRELLIUM_TEST_UPLOAD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(uploadVariable); dir != "" {
		if err := uploadFolder(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func uploadFolder(dir string) error {
	client, err := brellium.NewClient(brellium.WithoutRateLimiter()) // from the environment
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var files []brellium.UploadFile
	for _, entry := range entries {
		file, err := brellium.FileFromPath(filepath.Join(dir, entry.Name()))
		if err != nil {
			return err
		}
		files = append(files, file)
	}
	_, err = client.Documents.Upload(context.Background(), files, brellium.UploadOptions{BatchSize: 20})
	return err
}

// A process that uploads is killed five times. In the end every document exists
// once, every file has arrived whole, and none was sent again after it had arrived.
func TestUploadSurvivesFiveKilledProcesses(t *testing.T) {
	const files, kills = 60, 5
	dir, sums := t.TempDir(), make(map[string]string, files)
	for i := range files {
		name := strconv.Itoa(i) + ".pdf"
		data := testkit.Content(i, 20_000+i)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
		sums[name] = testkit.Digest(data)
	}
	emu := brelliumtest.New(brelliumtest.WithRateLimit(1e6, 1e6))
	emu.Inject(brelliumtest.OpDocumentPut, brelliumtest.OK().SlowRead(10*time.Millisecond).Forever())
	var open atomic.Int64 // connections
	server := emu.Server()
	server.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			open.Add(1)
		case http.StateClosed, http.StateHijacked:
			open.Add(-1)
		}
	}
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	start := func() *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), uploadVariable+"="+dir, "BRELLIUM_BASE_URL=http://"+listener.Addr().String(), "BRELLIUM_ACCESS_TOKEN=",
			"BRELLIUM_CLIENT_ID="+emu.ClientID, "BRELLIUM_CLIENT_SECRET="+emu.ClientSecret)
		cmd.Stderr = os.Stderr
		require.NoError(t, cmd.Start())
		return cmd
	}
	arrived := func() (n int) {
		for _, d := range emu.Documents() {
			if d.Arrived {
				n++
			}
		}
		return n
	}
	for range kills {
		before, process := arrived(), start()
		require.Eventually(t, func() bool { return arrived() >= before+5 }, 30*time.Second, time.Millisecond)
		require.NoError(t, process.Process.Kill())
		require.Error(t, process.Wait(), "it ended before it was killed")
		// Storage finishes what it has received, and then closes the connection.
		require.Eventually(t, func() bool { return open.Load() == 0 }, 30*time.Second, 50*time.Millisecond)
	}
	require.NoError(t, start().Wait())
	assert.Len(t, emu.Documents(), files, "every document exists once")
	for _, d := range emu.Documents() {
		assert.True(t, d.Arrived, d.Filename)
		assert.Equal(t, sums[d.Filename], d.SHA256, d.Filename)
		assert.Equal(t, 1, d.Puts, "%s was sent again after it had arrived", d.Filename)
	}
}
