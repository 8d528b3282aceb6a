//go:build wrappers

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

// Programs in other languages that follow the API guide's rules for a wrapper
// work with the emulator. The test needs python3 and node, so it has a build tag:
//
//	go test -tags wrappers ./cmd/brellium-emulator
func TestWrappersOfTheGuideWorkWithTheEmulator(t *testing.T) {
	for _, command := range [][]string{{"python3", "testdata/wrapper.py"}, {"node", "testdata/wrapper.mjs"}} {
		t.Run(command[0], func(t *testing.T) {
			emu := brelliumtest.New()
			require.NoError(t, emu.Start())
			defer emu.Close()
			client, err := emu.Client()
			require.NoError(t, err)
			token, err := client.OAuth.CreateToken(t.Context())
			require.NoError(t, err)
			user, err := client.Users.Create(t.Context(), brellium.UserCreateParams{Email: "ada@example.test"})
			require.NoError(t, err)
			emu.ClearRequests()
			emu.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(429, "RATE_LIMITED").WithHeader("Retry-After", "1"), brelliumtest.Status(503, "UNAVAILABLE"))
			emu.Inject(brelliumtest.OpAuditUpdate, brelliumtest.DropAfter())
			emu.Inject(brelliumtest.OpUserCreate, brelliumtest.Status(503, "UNAVAILABLE").AfterWork())
			emu.Inject(brelliumtest.OpDocumentList, brelliumtest.Blocked())

			program := exec.CommandContext(t.Context(), command[0], command[1], emu.URL, token.Reveal(), brelliumtest.SampleAuditID, user.UserID)
			program.Stderr = os.Stderr
			out, err := program.Output()
			require.NoError(t, err)
			var got map[string]any
			require.NoError(t, json.Unmarshal(out, &got))
			assert.GreaterOrEqual(t, got["waited"], time.Second.Seconds())
			delete(got, "waited")
			assert.Equal(t, map[string]any{
				"audit": brelliumtest.SampleAuditID, "flags": []any{"Failed"}, "created": "503 UNAVAILABLE with a request id",
				"blocked": "blocked", "missing": "404 NOT_FOUND with a request id", "deleted": nil,
			}, got)
			for op, requests := range map[string]int{
				brelliumtest.OpAuditRetrieve: 3, brelliumtest.OpAuditUpdate: 2, brelliumtest.OpUserCreate: 1,
				brelliumtest.OpDocumentList: 1, brelliumtest.OpUserRetrieve: 1, brelliumtest.OpUserDelete: 1,
			} {
				assert.Equal(t, requests, emu.Count(op), op)
			}
		})
	}
}
