package brellium_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

// inviteAll is the code under test.
func inviteAll(ctx context.Context, client *brellium.Client, emails ...string) error {
	for _, email := range emails {
		if _, err := client.Users.Ensure(ctx, brellium.UserCreateParams{Email: email}); err != nil {
			return err
		}
	}
	return nil
}

// testInviteAll would be TestInviteAll in your own code. In the bubble of synctest
// time is virtual: the two seconds that Ensure waits take none.
func testInviteAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		emulator := brelliumtest.New()
		emulator.Inject(brelliumtest.OpUserCreate, brelliumtest.DropAfter()) // the first response is lost
		client, err := emulator.Client()
		if err != nil {
			t.Fatal(err)
		}

		start := time.Now()
		if err := inviteAll(t.Context(), client, "casey@example.test", "robin@example.test"); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(start); waited < 2*time.Second {
			t.Errorf("waited %v, want at least 2 s before the second request", waited)
		}
		for _, email := range []string{"casey@example.test", "robin@example.test"} {
			if n := emulator.Invitations(email); n != 1 {
				t.Errorf("%d invitations to %s, want 1", n, email)
			}
		}
	})
}

// Test your own code in virtual time.
func Example_synctest() {
	fmt.Println("passed:", runTest(testInviteAll))
	// Output: passed: true
}

// runTest stands in for go test, whose output it discards.
func runTest(test func(*testing.T)) bool {
	stdout := os.Stdout
	defer func() { os.Stdout = stdout }()
	os.Stdout = os.Stderr
	all := func(string, string) (bool, error) { return true, nil }
	return testing.RunTests(all, []testing.InternalTest{{Name: "TestInviteAll", F: test}})
}
