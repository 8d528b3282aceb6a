package main

import (
	"context"
	"fmt"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

// upload draws the upload of three files, each with a fault, and the same upload
// again.
func upload(ctx context.Context) (*diagram, error) {
	d := &diagram{
		title: "An upload of three files, each with a fault",
		lanes: []lane{{"your program", 100}, {"client", 330}, {"API", 600}, {"storage", 850}},
	}
	const program, client, api, storage = 0, 1, 2, 3
	emulator := brelliumtest.New()
	emulator.Inject(brelliumtest.OpDocumentPut,
		brelliumtest.Status(503, "SlowDown"), brelliumtest.OK(),
		brelliumtest.DropAfter(),
		brelliumtest.Respond(403, "application/xml", "<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>"))

	var files []brellium.UploadFile
	for _, name := range []string{"a.pdf", "b.pdf", "c.pdf"} {
		files = append(files, brellium.FileFromBytes(name, []byte("The synthetic note "+name)))
	}
	current, creations := files[0].Filename, 0
	observer := brellium.ObserverFunc(func(ctx context.Context, e brellium.Event) context.Context {
		put := e.Operation == "documents.put"
		lane := api
		if put {
			lane = storage
		}
		switch {
		case e.Operation == "oauth.token":
		case e.Kind == brellium.EventCallStart && !put:
			switch creations++; creations {
			case 2:
				d.note(client, "did it arrive?")
			case 3:
				d.note(client, "a new URL, once a file")
			}
		case e.Kind == brellium.EventAttemptStart && put:
			d.message(client, lane, "PUT "+current, "")
		case e.Kind == brellium.EventAttemptStart:
			d.message(client, lane, e.Method+" "+e.PathTemplate, "")
		case e.Kind == brellium.EventAttemptEnd && put:
			text := fmt.Sprint(e.StatusCode)
			switch e.StatusCode {
			case 0:
				text = "the response is lost"
			case 403:
				text = "403: the URL has expired"
			}
			d.message(lane, client, text, class(e.Verdict))
		case e.Kind == brellium.EventAttemptEnd:
			waiting := map[string]bool{} // files that have not arrived get an upload URL
			for _, document := range emulator.Documents() {
				if !document.Arrived {
					waiting[document.Filename] = true
				}
			}
			text := fmt.Sprintf("%d: no upload URL", e.StatusCode)
			switch {
			case creations == 1:
				text = fmt.Sprintf("%d: %d upload URLs", e.StatusCode, len(waiting))
			case waiting[current]:
				text = fmt.Sprintf("%d: a new URL", e.StatusCode)
			}
			d.message(lane, client, text, class(e.Verdict))
		case e.Kind == brellium.EventWait:
			if e.StatusCode != 0 {
				d.note(client, "a random wait, then from its start")
			}
		}
		if e.Kind == brellium.EventCallEnd && put && e.Verdict == brellium.VerdictDone {
			for i, file := range files[:len(files)-1] {
				if file.Filename == current {
					current = files[i+1].Filename
					break
				}
			}
		}
		return ctx
	})
	c, err := emulator.Client(brellium.WithObserver(observer))
	if err != nil {
		return nil, err
	}
	for _, text := range []string{"Documents.Upload", "the same again"} {
		d.message(program, client, text, "")
		results, err := c.Documents.Upload(ctx, files, brellium.UploadOptions{Concurrency: 1})
		if err != nil {
			return nil, err
		}
		counts := map[brellium.UploadStatus]int{}
		for _, r := range results {
			counts[r.Status]++
		}
		for status, n := range counts {
			d.message(client, program, fmt.Sprintf("%d files %s", n, status), "good")
		}
	}
	return d, nil
}
