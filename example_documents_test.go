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

// Upload creates the documents and brings their files to storage. Calling it
// again with the same files, after a crash say, sends only what is missing.
func ExampleDocumentService_Upload() {
	ctx := context.Background()
	client, err := brelliumtest.New().Client() // brellium.NewClient() for the real API
	if err != nil {
		log.Fatal(err)
	}
	files := []brellium.UploadFile{
		brellium.FileFromBytes("note-1.txt", []byte("The first session note.")),
		brellium.FileFromBytes("note-2.txt", []byte("The second session note.")),
	}
	for range 2 {
		results, err := client.Documents.Upload(ctx, files, brellium.UploadOptions{})
		if err != nil {
			log.Print(err) // those that failed; the others have arrived
		}
		for i, r := range results {
			fmt.Println(files[i].Filename, r.Status)
		}
	}
	// Output:
	// note-1.txt stored
	// note-2.txt stored
	// note-1.txt already there
	// note-2.txt already there
}

// Each file that has failed has an *UploadError.
func ExampleUploadError() {
	ctx := context.Background()
	emulator := brelliumtest.New()
	emulator.Inject(brelliumtest.OpDocumentPut, brelliumtest.Status(403, "SignatureDoesNotMatch"))
	client, err := emulator.Client()
	if err != nil {
		log.Fatal(err)
	}
	file := brellium.FileFromBytes("note.txt", []byte("A session note."))
	file.ExternalID = "visit-17"
	_, err = client.Documents.Upload(ctx, []brellium.UploadFile{file}, brellium.UploadOptions{})
	var failed *brellium.UploadError
	if errors.As(err, &failed) {
		fmt.Println(failed.ExternalID, failed.StatusCode, failed.Code, failed.Expired)
	}
	// Output: visit-17 403 SignatureDoesNotMatch false
}

// Create leaves the sending of the files to you.
func ExampleDocumentService_Create() {
	ctx := context.Background()
	client, err := brelliumtest.New().Client()
	if err != nil {
		log.Fatal(err)
	}
	batch, err := client.Documents.Create(ctx, brellium.DocumentCreateParams{Documents: []brellium.DocumentInput{
		{Filename: "note.txt", ExternalID: "visit-17", DocType: "session note"},
	}})
	if err != nil {
		log.Fatal(err)
	}
	document := batch.Documents[0]
	fmt.Println(document.ExternalID, document.Status, document.UploadURL)
	err = client.Documents.Put(ctx, document.UploadURL, brellium.FileFromBytes("note.txt", []byte("A session note.")))
	fmt.Println(err)
	// Output:
	// visit-17 todo REDACTED
	// <nil>
}

// WaitForAudit waits until the audit of one document exists.
func ExampleDocumentService_WaitForAudit() {
	ctx := context.Background()
	client, err := brelliumtest.New(brelliumtest.WithAuditDelay(0)).Client()
	if err != nil {
		log.Fatal(err)
	}
	results, err := client.Documents.Upload(ctx, []brellium.UploadFile{brellium.FileFromBytes("note.txt", []byte("A session note."))}, brellium.UploadOptions{})
	if err != nil {
		log.Fatal(err)
	}
	audit, err := client.Documents.WaitForAudit(ctx, results[0].DocumentID)
	switch {
	case errors.Is(err, brellium.ErrDocumentFailed):
		fmt.Println("the document could not be processed")
	case err != nil:
		log.Fatal(err)
	default:
		fmt.Println(audit.Status)
	}
	// Output: complete
}

// Follow hands over what has changed since the last time. The checkpoint is
// saved once a batch has been dealt with.
func ExampleAuditService_Follow() {
	ctx := context.Background()
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

	var checkpoint brellium.FollowCheckpoint
	if data, err := os.ReadFile(file); err == nil {
		if err := json.Unmarshal(data, &checkpoint); err != nil {
			log.Fatal(err)
		}
	}
	for batch, err := range client.Audits.Follow(ctx, checkpoint, brellium.FollowOptions{CatchUp: true}) {
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
		if err := os.WriteFile(file, data, 0o600); err != nil { // a new file and a rename, where a crash must not spoil it
			log.Fatal(err)
		}
	}
	// Output: a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d [Failed Missing Signature]
}
