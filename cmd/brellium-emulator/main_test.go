package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go/brelliumtest"
)

func TestRunPrintsCredentialsAndServesUntilInterrupted(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	out, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, []string{"-addr", "127.0.0.1:0", "-audits", "3", "-latency", "1ms", "-client-id", "my-id", "-client-secret", "my-secret"}, w, io.Discard)
		w.Close()
	}()

	lines := bufio.NewReader(out)
	line := func(name string) string {
		text, err := lines.ReadString('\n')
		require.NoError(t, err)
		value, found := strings.CutPrefix(strings.TrimSuffix(text, "\n"), name+"=")
		require.True(t, found, text)
		return value
	}
	assert.Equal(t, "my-id", line("client_id"))
	assert.Equal(t, "my-secret", line("client_secret"))
	base := line("base_url")
	rest := make(chan string)
	go func() {
		text, _ := io.ReadAll(lines)
		rest <- string(text)
	}()

	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Post(base+"/v2/oauth/token", "application/json",
		strings.NewReader(`{"grant_type":"client_credentials","client_id":"my-id","client_secret":"my-secret"}`))
	require.NoError(t, err)
	resp.Body.Close()
	assert.Equal(t, http.StatusOK, resp.StatusCode)

	interrupt()
	require.NoError(t, <-ended)
	text := <-rest
	assert.Contains(t, text, base+"/v2/oauth/token -H 'Content-Type: application/json'")
	assert.Contains(t, text, brelliumtest.SampleAuditID)
	_, err = client.Get(base)
	require.Error(t, err, "the port is closed")
}

func TestRunRejectsInvalidFlags(t *testing.T) {
	for _, args := range [][]string{
		{"-audits", "-1"}, {"-burst", "0"}, {"-rate", "0"}, {"-client-id", "x"}, {"-latency", "-1s"},
		{"-nothing"}, {"extra"}, {"-addr", "127.0.0.1:99999"},
	} {
		var out, errOut bytes.Buffer
		require.Error(t, run(t.Context(), args, &out, &errOut), args)
		assert.Empty(t, out.String())
	}
}
