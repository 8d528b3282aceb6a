package brellium_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

// Upload creates the documents and sends their files to storage. Calling it again
// with the same files, for example after a crash, sends only what is missing.
func ExampleDocumentService_Upload() {
	client, err := brelliumtest.New().Client() // brellium.NewClient() for the real API
	if err != nil {
		log.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "notes")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	var files []brellium.UploadFile
	for _, name := range []string{"note-1.txt", "note-2.txt"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("The text of "+name), 0o600); err != nil {
			log.Fatal(err)
		}
		file, err := brellium.FileFromPath(path)
		if err != nil {
			log.Fatal(err)
		}
		files = append(files, file)
	}

	for range 2 {
		results, err := client.Documents.Upload(context.Background(), files, brellium.UploadOptions{})
		if err != nil {
			log.Print(err) // the files that failed; the others were uploaded
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

// OnProgress is called with the progress of an upload.
func ExampleUploadOptions() {
	client, err := brelliumtest.New().Client()
	if err != nil {
		log.Fatal(err)
	}
	var last brellium.UploadProgress
	_, err = client.Documents.Upload(context.Background(), []brellium.UploadFile{
		brellium.FileFromBytes("note-1.txt", []byte("The first session note.")),
		brellium.FileFromBytes("note-2.txt", []byte("The second session note.")),
	}, brellium.UploadOptions{
		Concurrency: 2,
		OnProgress:  func(p brellium.UploadProgress) { last = p },
	})
	fmt.Println(err)
	fmt.Printf("%d of %d files, %d of %d bytes\n", last.FilesDone, last.Files, last.BytesDone, last.Bytes)
	// Output:
	// <nil>
	// 2 of 2 files, 47 of 47 bytes
}

// Each failed file has an UploadError.
func ExampleUploadError() {
	emulator := brelliumtest.New()
	emulator.Inject(brelliumtest.OpDocumentPut, brelliumtest.Status(403, "InvalidAccessKeyId"))
	client, err := emulator.Client()
	if err != nil {
		log.Fatal(err)
	}

	file := brellium.FileFromBytes("note.txt", []byte("A session note."))
	file.ExternalID = "visit-17"
	_, err = client.Documents.Upload(context.Background(), []brellium.UploadFile{file}, brellium.UploadOptions{})
	var failed *brellium.UploadError
	if errors.As(err, &failed) {
		fmt.Println(failed.ExternalID, failed.StatusCode, failed.Code, failed.Expired)
	}
	// Output: visit-17 403 InvalidAccessKeyId false
}

// Create returns an upload URL for each file. Put sends the file to it. Upload
// does both.
func ExampleDocumentService_Create() {
	client, err := brelliumtest.New().Client()
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()

	batch, err := client.Documents.Create(ctx, brellium.DocumentCreateParams{Documents: []brellium.DocumentInput{
		{Filename: "note.txt", ExternalID: "visit-17", DocType: "session note"},
	}})
	if err != nil {
		log.Fatal(err)
	}
	document := batch.Documents[0]
	fmt.Println(document.ExternalID, document.Status, document.UploadURL) // the URL hides its value

	err = client.Documents.Put(ctx, document.UploadURL, brellium.FileFromBytes("note.txt", []byte("A session note.")))
	fmt.Println(err)
	// Output:
	// visit-17 todo REDACTED
	// <nil>
}

// An upload URL expires. If the document has an external id, Create returns a new
// one.
func ExampleDocumentService_Put() {
	emulator := brelliumtest.New()
	client, err := emulator.Client()
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	params := brellium.DocumentCreateParams{Documents: []brellium.DocumentInput{{Filename: "note.txt", ExternalID: "visit-17"}}}
	file := brellium.FileFromBytes("note.txt", []byte("A session note."))

	for range 2 {
		batch, err := client.Documents.Create(ctx, params)
		if err != nil {
			log.Fatal(err)
		}
		if emulator.Count(brelliumtest.OpDocumentPut) == 0 {
			emulator.ExpireUploadURLs()
		}
		err = client.Documents.Put(ctx, batch.Documents[0].UploadURL, file)
		var failed *brellium.UploadError
		fmt.Println("expired:", errors.As(err, &failed) && failed.Expired)
	}
	// Output:
	// expired: true
	// expired: false
}

// WaitForAudit waits until the audit of one document exists.
func ExampleDocumentService_WaitForAudit() {
	client, err := brelliumtest.New(brelliumtest.WithAuditDelay(0)).Client()
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	files := []brellium.UploadFile{brellium.FileFromBytes("note.txt", []byte("A session note."))}
	results, err := client.Documents.Upload(ctx, files, brellium.UploadOptions{})
	if err != nil {
		log.Fatal(err)
	}

	audit, err := client.Documents.WaitForAudit(ctx, results[0].DocumentID)
	switch {
	case errors.Is(err, brellium.ErrDocumentFailed):
		fmt.Println("the document could not be processed")
	case errors.Is(err, brellium.ErrNoAudit):
		fmt.Println("the document needs no audit")
	case err != nil:
		log.Fatal(err)
	default:
		fmt.Println(audit.Status)
	}
	// Output: complete
}

// WaitForFinishedAudit waits until the audit of one document is finished.
func ExampleDocumentService_WaitForFinishedAudit() {
	emulator := brelliumtest.New()
	client, err := emulator.Client()
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	files := []brellium.UploadFile{brellium.FileFromBytes("note.txt", []byte("A session note."))}
	results, err := client.Documents.Upload(ctx, files, brellium.UploadOptions{})
	if err != nil {
		log.Fatal(err)
	}
	score := 87.5
	emulator.SetAudit(brellium.Audit{Documents: []string{results[0].DocumentID}, Score: &score}) // no need to wait here

	audit, err := client.Documents.WaitForFinishedAudit(ctx, results[0].DocumentID)
	switch {
	case errors.Is(err, brellium.ErrAuditFailed):
		fmt.Println("the audit failed:", audit.Flags)
	case err != nil:
		log.Fatal(err)
	default:
		fmt.Println(audit.Status, *audit.Score)
	}
	// Output: complete 87.5
}

// WaitForAudits waits for the audits of many documents. If it is interrupted, call
// it again with the documents that are left.
func ExampleDocumentService_WaitForAudits() {
	emulator := brelliumtest.New(brelliumtest.WithAuditDelay(0))
	client, err := emulator.Client()
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	var files []brellium.UploadFile
	for i := range 3 {
		files = append(files, brellium.FileFromBytes(fmt.Sprintf("note-%d.txt", i), []byte("A session note.")))
	}
	uploads, err := client.Documents.Upload(ctx, files, brellium.UploadOptions{})
	if err != nil {
		log.Fatal(err)
	}
	emulator.UpdateAudit(uploads[1].DocumentID, func(audit *brellium.Audit) {
		audit.Status = brellium.AuditStatusError
	})

	left := map[string]string{} // document ids to filenames
	for i, upload := range uploads {
		left[upload.DocumentID] = files[i].Filename
	}
	ctx, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	for result, err := range client.Documents.WaitForAudits(ctx, slices.Collect(maps.Keys(left))) {
		if err != nil {
			log.Print(err) // wait for those in left again later
			break
		}
		name := left[result.DocumentID]
		delete(left, result.DocumentID)
		if result.Err != nil {
			fmt.Println(name, result.Err) // ErrDocumentFailed, ErrNoAudit, ErrAuditFailed or ErrNotFound
			continue
		}
		fmt.Println(name, result.Audit.Status)
	}
	fmt.Println(len(left), "left")
	// Unordered output:
	// note-0.txt complete
	// note-1.txt brellium: the audit failed
	// note-2.txt complete
	// 0 left
}

// The fields beside the content may be set afterwards.
func ExampleFileFromBytes() {
	file := brellium.FileFromBytes("note.txt", []byte("A session note."))
	file.ExternalID = "visit-17"
	file.DocType = "session note"
	fmt.Println(file.Filename, file.Size)
	// Output: note.txt 15
}
