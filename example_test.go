package brellium_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

func ExampleNewClient() {
	// On the real API: brellium.NewClient(), with the credentials in the
	// environment.
	emulator := brelliumtest.New()
	client, err := emulator.Client()
	if err != nil {
		log.Fatal(err)
	}
	audit, err := client.Audits.Retrieve(context.Background(), brelliumtest.SampleAuditID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(audit.Status, audit.Flags)
	// Output: complete [Failed Missing Signature]
}

func ExampleAPIError() {
	emulator := brelliumtest.New()
	client, err := emulator.Client()
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	invite := brellium.UserCreateParams{Email: "casey@example.test"}
	for range 2 {
		_, err = client.Users.Create(ctx, invite)
	}

	var apiErr *brellium.APIError
	if errors.As(err, &apiErr) {
		fmt.Println(apiErr.Operation, apiErr.StatusCode, apiErr.Code == brellium.CodeInvitationPending)
		fmt.Println("tell support:", apiErr.RequestID != "")
	}
	fmt.Println(errors.Is(err, brellium.ErrConflict))
	// Output:
	// users.create 409 true
	// tell support: true
	// true
}

func ExampleWithMaxRetries() {
	emulator := brelliumtest.New()
	emulator.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(503, "UNAVAILABLE"))
	client, err := emulator.Client()
	if err != nil {
		log.Fatal(err)
	}
	// None: the failure itself comes back, to be handled by your own pipeline.
	_, err = client.Audits.Retrieve(context.Background(), brelliumtest.SampleAuditID, brellium.WithMaxRetries(0))
	fmt.Println(errors.Is(err, brellium.ErrServer), brellium.IsTransient(err))

	var resp brellium.Response
	_, err = client.Audits.Retrieve(context.Background(), brelliumtest.SampleAuditID,
		brellium.WithMaxRetries(5), brellium.WithResponseInto(&resp))
	fmt.Println(err, len(resp.Attempts))
	// Output:
	// true true
	// <nil> 1
}

func ExampleOutcomeUnknown() {
	emulator := brelliumtest.New()
	// The user is created, and the answer is lost.
	emulator.Inject(brelliumtest.OpUserCreate, brelliumtest.DropAfter())
	client, err := emulator.Client()
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()

	_, err = client.Users.Create(ctx, brellium.UserCreateParams{Email: "casey@example.test"})
	if brellium.OutcomeUnknown(err) {
		// It was not sent again, since that could invite twice. Look first.
		page, err := client.Users.List(ctx, brellium.UserListParams{Email: "casey@example.test"})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("created all the same:", len(page.Data) == 1)
	}
	fmt.Println("invitations:", emulator.Invitations("casey@example.test"))
	// Output:
	// created all the same: true
	// invitations: 1
}

func ExampleRetryAfter() {
	emulator := brelliumtest.New()
	emulator.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(429, "RATE_LIMITED").WithHeader("Retry-After", "120"))
	client, err := emulator.Client()
	if err != nil {
		log.Fatal(err)
	}
	// Two minutes do not fit the total time of 60 s, so the call ends at once.
	_, err = client.Audits.Retrieve(context.Background(), brelliumtest.SampleAuditID)
	if wait, ok := brellium.RetryAfter(err); ok {
		fmt.Println("later:", wait)
	}
	var exhausted *brellium.RetriesExhaustedError
	if errors.As(err, &exhausted) {
		fmt.Println(exhausted.Reason, exhausted.Attempts, exhausted.Elapsed < time.Minute)
	}
	// Output:
	// later: 2m0s
	// total time 1 true
}

func ExampleBlockedError() {
	emulator := brelliumtest.New()
	emulator.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Blocked().Times(2))
	client, err := emulator.Client()
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		_, err = client.Audits.Retrieve(context.Background(), brelliumtest.SampleAuditID)
		var blocked *brellium.BlockedError
		if errors.As(err, &blocked) {
			fmt.Println("stopped:", !blocked.RetryAt.IsZero())
		}
	}
	fmt.Println("requests:", emulator.Count(brelliumtest.OpAuditRetrieve))
	// Output:
	// stopped: false
	// stopped: true
	// stopped: true
	// requests: 2
}
