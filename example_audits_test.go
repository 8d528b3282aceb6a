package brellium_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

// The examples run against the emulator; with NewClient they are the same.
func ExampleAuditService_All() {
	emulator := brelliumtest.New()
	emulator.SeedAudits(250)
	client, err := emulator.Client()
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()

	failed := 0
	params := brellium.AuditListParams{Flags: []string{"Failed"}, Limit: 100}
	for audit, err := range client.Audits.All(ctx, params, brellium.WithPrefetch()) {
		if err != nil {
			log.Fatal(err)
		}
		if audit.Status == brellium.AuditStatusComplete {
			failed++
		}
	}
	fmt.Println(failed > 0)
	// Output: true
}

// A walk that failed in the middle goes on where it stopped.
func ExampleAuditService_All_resume() {
	emulator := brelliumtest.New()
	emulator.SeedAudits(49)
	emulator.Inject(brelliumtest.OpAuditList, brelliumtest.OK().Times(2), brelliumtest.Status(400, "SOMETHING"))
	client, err := emulator.Client()
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()

	params := brellium.AuditListParams{Limit: 10}
	for walk := 1; ; walk++ {
		n := 0
		var stopped *brellium.PaginationError
		for _, err := range client.Audits.All(ctx, params) {
			if errors.As(err, &stopped) {
				params.Cursor = stopped.Cursor
				break
			}
			if err != nil {
				log.Fatal(err)
			}
			n++
		}
		fmt.Printf("walk %d: %d audits\n", walk, n)
		if stopped == nil {
			break
		}
	}
	// Output:
	// walk 1: 20 audits
	// walk 2: 30 audits
}

func ExampleCollect() {
	emulator := brelliumtest.New()
	emulator.SeedAudits(24)
	client, err := emulator.Client()
	if err != nil {
		log.Fatal(err)
	}

	audits, err := brellium.Collect(client.Audits.All(context.Background(), brellium.AuditListParams{}))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(audits))
	// Output: 25
}

// Page by page, by hand.
func ExamplePage_Next() {
	emulator := brelliumtest.New()
	emulator.SeedAudits(24)
	client, err := emulator.Client()
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()

	page, err := client.Audits.List(ctx, brellium.AuditListParams{Limit: 10})
	for ; err == nil; page, err = page.Next(ctx) {
		fmt.Println(len(page.Data), page.HasMore)
	}
	if !errors.Is(err, brellium.ErrNoMorePages) {
		log.Fatal(err)
	}
	// Output:
	// 10 true
	// 10 true
	// 5 false
}

func ExampleAuditService_Update() {
	client, err := brelliumtest.New().Client()
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()

	audit, err := client.Audits.Update(ctx, brelliumtest.SampleAuditID, brellium.AuditUpdateParams{Flags: []string{"Needs Review"}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(audit.Flags)

	// An empty slice clears the flags; nil would leave them as they are.
	audit, err = client.Audits.Update(ctx, brelliumtest.SampleAuditID, brellium.AuditUpdateParams{Flags: []string{}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(audit.Flags))
	// Output:
	// [Needs Review]
	// 0
}

// What the server has added since this version is in RawJSON.
func ExampleAudit_rawJSON() {
	emulator := brelliumtest.New()
	emulator.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Respond(200, "application/json",
		`{"audit_id":"a1","status":"complete","reviewer_note":"looks fine"}`))
	client, err := emulator.Client()
	if err != nil {
		log.Fatal(err)
	}

	audit, err := client.Audits.Retrieve(context.Background(), "a1")
	if err != nil {
		log.Fatal(err)
	}
	var added struct {
		ReviewerNote string `json:"reviewer_note"`
	}
	if err := json.Unmarshal(audit.RawJSON(), &added); err != nil {
		log.Fatal(err)
	}
	fmt.Println(audit.Status, added.ReviewerNote)
	// Output: complete looks fine
}

func ExampleClient_Do() {
	client, err := brelliumtest.New().Client()
	if err != nil {
		log.Fatal(err)
	}

	var audit struct {
		Status string `json:"status"`
	}
	err = client.Do(context.Background(), "GET", "/v2/audits/"+brelliumtest.SampleAuditID, nil, &audit)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(audit.Status)
	// Output: complete
}
