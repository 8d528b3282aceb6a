package brellium_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

func ExampleAuditService_Retrieve() {
	client, err := brelliumtest.New().Client() // brellium.NewClient() for the real API
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()

	audit, err := client.Audits.Retrieve(ctx, brelliumtest.SampleAuditID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(audit.Status, audit.Flags)
	if audit.Score != nil { // nil if the audit has no score yet
		fmt.Println(*audit.Score)
	}

	_, err = client.Audits.Retrieve(ctx, "no-such-audit")
	fmt.Println(errors.Is(err, brellium.ErrNotFound))
	// Output:
	// complete [Failed Missing Signature]
	// 89
	// true
}

// List returns one page. For all pages, use All.
func ExampleAuditService_List() {
	emulator := brelliumtest.New()
	emulator.SeedAudits(24)
	client, err := emulator.Client()
	if err != nil {
		log.Fatal(err)
	}

	page, err := client.Audits.List(context.Background(), brellium.AuditListParams{Limit: 10})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(page.Data), page.HasMore)
	// Output: 10 true
}

// All iterates over every page. WithPrefetch fetches the next one in the
// background.
func ExampleAuditService_All() {
	emulator := brelliumtest.New()
	emulator.SeedAudits(250)
	client, err := emulator.Client()
	if err != nil {
		log.Fatal(err)
	}

	complete := 0
	params := brellium.AuditListParams{Flags: []string{"Failed"}, Limit: 100}
	for audit, err := range client.Audits.All(context.Background(), params, brellium.WithPrefetch()) {
		if err != nil {
			log.Fatal(err)
		}
		if audit.Status == brellium.AuditStatusComplete {
			complete++
		}
	}
	fmt.Println(complete > 0)
	// Output: true
}

// After an error in the middle, resume from the cursor of the PaginationError.
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
	for run := 1; ; run++ {
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
		fmt.Printf("run %d: %d audits\n", run, n)
		if stopped == nil {
			break
		}
	}
	// Output:
	// run 1: 20 audits
	// run 2: 30 audits
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

// Read a list page by page.
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

// An empty slice clears the flags.
func ExampleAuditService_Update() {
	client, err := brelliumtest.New().Client()
	if err != nil {
		log.Fatal(err)
	}

	for _, flags := range [][]string{{"Needs Review"}, {}} {
		audit, err := client.Audits.Update(context.Background(), brelliumtest.SampleAuditID, brellium.AuditUpdateParams{Flags: flags})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(audit.Flags)
	}
	// Output:
	// [Needs Review]
	// []
}

// One request for many audits.
func ExampleAuditService_BatchUpdate() {
	emulator := brelliumtest.New()
	emulator.SeedAudits(2)
	client, err := emulator.Client()
	if err != nil {
		log.Fatal(err)
	}

	result, err := client.Audits.BatchUpdate(context.Background(), brellium.AuditBatchUpdateParams{
		AuditIDs: emulator.AuditIDs(),
		Flags:    []string{"Needs Review"},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(result.UpdatedAuditIDs))
	// Output: 3
}

// Follow returns the audits that were updated since a checkpoint. Save the
// checkpoint after processing each batch. Without CatchUp it then waits for more.
func ExampleAuditService_Follow() {
	client, err := brelliumtest.New().Client()
	if err != nil {
		log.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "follow")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "checkpoint.json")

	var checkpoint brellium.FollowCheckpoint // the zero value reads all audits
	if data, err := os.ReadFile(file); err == nil {
		if err := json.Unmarshal(data, &checkpoint); err != nil {
			log.Fatal(err)
		}
	}
	for batch, err := range client.Audits.Follow(context.Background(), checkpoint, brellium.FollowOptions{CatchUp: true}) {
		if err != nil {
			log.Fatal(err)
		}
		for _, audit := range batch.Audits {
			fmt.Println(audit.AuditID, audit.Flags)
		}
		data, err := json.Marshal(batch.Checkpoint)
		if err != nil {
			log.Fatal(err)
		}
		if err := os.WriteFile(file+".new", data, 0o600); err != nil {
			log.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil { // a crash leaves the old file or the new one
			log.Fatal(err)
		}
	}
	// Output: a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d [Failed Missing Signature]
}

// RawJSON has the fields that this version does not know.
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
