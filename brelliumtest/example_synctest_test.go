package brelliumtest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/brellium/brellium-go/brelliumtest"
)

// testRetryAfter is a test function of your package.
func testRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		emu := brelliumtest.New()
		client, err := emu.Client()
		if err != nil {
			t.Fatal(err)
		}
		emu.Inject(brelliumtest.OpAuditRetrieve,
			brelliumtest.Status(429, "RATE_LIMITED").WithHeader("Retry-After", "30"))

		start := time.Now()
		if _, err := client.Audits.Retrieve(t.Context(), brelliumtest.SampleAuditID); err != nil {
			t.Error(err)
		}
		if waited := time.Since(start); waited < 30*time.Second {
			t.Errorf("retried after %v, earlier than Retry-After", waited)
		}
		if n := emu.Count(brelliumtest.OpAuditRetrieve); n != 2 {
			t.Errorf("%d attempts, want 2", n)
		}
	})
}

// In virtual time, a test of a wait for 30 seconds takes none. Create the
// emulator and the client inside the function passed to synctest.Test.
func Example_synctest() {
	var t *testing.T // the parameter of your test function
	testRetryAfter(t)
}
