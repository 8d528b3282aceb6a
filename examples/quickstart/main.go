// Command quickstart lists a page of audits, retrieves one, and shows what
// remains of the rate limit. Without credentials in the environment it runs on
// the embedded emulator; with them, on the real API.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	client, err := newClient()
	if err != nil {
		return err
	}

	page, err := client.Audits.List(ctx, brellium.AuditListParams{Limit: 5})
	if err != nil {
		return err
	}
	if len(page.Data) == 0 {
		fmt.Println("There are no audits yet.")
		return nil
	}
	for _, audit := range page.Data {
		fmt.Printf("%s  %-11s %q\n", audit.AuditID, audit.Status, audit.Flags)
	}

	audit, err := client.Audits.Retrieve(ctx, page.Data[0].AuditID, brellium.WithMaxRetries(5))
	if err != nil {
		return err
	}
	fmt.Printf("\nAudit %s has %d flags: %q\n", audit.AuditID, len(audit.Flags), audit.Flags)

	// Check errors with errors.Is and errors.As.
	_, err = client.Audits.Retrieve(ctx, "no-such-audit")
	var apiErr *brellium.APIError
	switch {
	case errors.Is(err, brellium.ErrNotFound) && errors.As(err, &apiErr):
		fmt.Printf("An unknown id gives status %d, code %s.\n", apiErr.StatusCode, apiErr.Code)
	case err != nil:
		return err
	}

	limit := client.RateLimit()
	fmt.Printf("Rate limit: %d of %d requests remain.\n", limit.Remaining, limit.Limit)
	return nil
}

// newClient returns a client with the credentials in the environment, or one of
// the embedded emulator.
func newClient() (*brellium.Client, error) {
	if os.Getenv("BRELLIUM_ACCESS_TOKEN") != "" || os.Getenv("BRELLIUM_CLIENT_ID") != "" {
		return brellium.NewClient()
	}
	fmt.Println("No credentials in the environment: running on the embedded emulator.")
	fmt.Println()
	emulator := brelliumtest.New()
	emulator.SeedAudits(12)
	return emulator.Client()
}
