package brellium_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
	"github.com/brellium/brellium-go/internal/testkit"
)

func TestUploadStoresFilesAndSendsThemOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		emu := brelliumtest.New()
		files := someFiles(7)
		files[3].DocType, files[3].ExternalMetadata = "note", map[string]any{"visit": 17}
		files[4].ExternalID = "mine-4"

		results, err := testkit.NewClient(t, emu).Documents.Upload(t.Context(), files, brellium.UploadOptions{BatchSize: 3})
		require.NoError(t, err)
		require.Len(t, results, 7)
		assert.Equal(t, 3, emu.Count(brelliumtest.OpDocumentCreate))
		docs := emu.Documents()
		require.Len(t, docs, 7)
		for i, r := range results {
			assert.Equal(t, brellium.UploadStored, r.Status)
			assert.Equal(t, 1, r.Attempts)
			require.NoError(t, r.Err)
			assert.Equal(t, docs[i].DocumentID, r.DocumentID)
			assert.Equal(t, docs[i].ExternalID, r.ExternalID)
			assert.Equal(t, files[i].Filename, docs[i].Filename)
			assert.Equal(t, testkit.Digest(testkit.Content(i, 1000+i)), docs[i].SHA256)
			assert.Equal(t, "application/pdf", docs[i].ContentType)
		}
		assert.Equal(t, "mine-4", results[4].ExternalID)
		assert.Equal(t, "note", docs[3].DocType)

		// A new process that knows nothing but the files.
		again, err := testkit.NewClient(t, emu).Documents.Upload(t.Context(), files, brellium.UploadOptions{})
		require.NoError(t, err)
		for i, r := range again {
			assert.Equal(t, brellium.UploadResult{ExternalID: results[i].ExternalID, DocumentID: results[i].DocumentID, Status: brellium.UploadAlreadyThere}, r)
		}
		assert.Equal(t, 7, emu.Count(brelliumtest.OpDocumentPut))
		assert.Len(t, emu.Documents(), 7)
	})
}

// simstudioai/sim#4407, and the API's guide on POST /v2/documents
func TestUploadReportsEachFileAndSendsOnlyTheRestAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		emu := brelliumtest.New()
		files := someFiles(3)
		for i := range files {
			files[i].ExternalID = "visit-" + strconv.Itoa(i+1)
		}
		bad := brelliumtest.Status(500, "InternalError").Forever().When(func(r *brelliumtest.Request) bool {
			return strings.Contains(r.Path, "note-001")
		})
		emu.Inject(brelliumtest.OpDocumentPut, bad)
		results, err := testkit.NewClient(t, emu).Documents.Upload(t.Context(), files, brellium.UploadOptions{})
		assert.Equal(t, []brellium.UploadStatus{brellium.UploadStored, brellium.UploadFailed, brellium.UploadStored}, statuses(results))
		assert.Equal(t, 1, emu.Count(brelliumtest.OpDocumentCreate))
		var failed *brellium.UploadError
		require.ErrorAs(t, err, &failed)
		assert.Equal(t, "visit-2", failed.ExternalID)
		assert.Equal(t, 500, failed.StatusCode)
		assert.Equal(t, "InternalError", failed.Code)
		require.ErrorAs(t, results[1].Err, &failed)
		assert.Equal(t, 5, results[1].Attempts)
		require.NoError(t, results[0].Err)

		emu.ClearFaults()
		results, err = testkit.NewClient(t, emu).Documents.Upload(t.Context(), files, brellium.UploadOptions{})
		require.NoError(t, err)
		assert.Equal(t, []brellium.UploadStatus{brellium.UploadAlreadyThere, brellium.UploadStored, brellium.UploadAlreadyThere}, statuses(results))
		for _, d := range emu.Documents() {
			assert.Equal(t, 1, d.Puts)
		}
		assert.Len(t, emu.Documents(), 3)
	})
}

func TestUploadOfOneFileTwiceInOneCallSendsItOnce(t *testing.T) {
	testkit.Bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		file := brellium.FileFromBytes("a.pdf", testkit.Content(1, 100))
		other := brellium.FileFromBytes("b.pdf", testkit.Content(1, 100))
		results, err := client.Documents.Upload(t.Context(), []brellium.UploadFile{file, other, file, file}, brellium.UploadOptions{BatchSize: 2})
		require.NoError(t, err)
		assert.Len(t, emu.Documents(), 2, "the name is part of what a document is")
		assert.Equal(t, 2, emu.Count(brelliumtest.OpDocumentPut))
		assert.Equal(t, 1, emu.Count(brelliumtest.OpDocumentCreate), "the second batch has no document of its own")
		assert.Equal(t, results[0].DocumentID, results[3].DocumentID)
		assert.Equal(t, []brellium.UploadStatus{"stored", "stored", "stored", "stored"}, statuses(results))
		assert.Equal(t, 0, results[2].Attempts)
		assert.NotEqual(t, results[0].ExternalID, results[1].ExternalID)
	})
}

func TestUploadReportsProgressToASlowCallback(t *testing.T) {
	testkit.Bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpDocumentPut, brelliumtest.OK().SlowRead(2*time.Second).Forever())
		files := make([]brellium.UploadFile, 4)
		for i := range files {
			files[i] = brellium.FileFromBytes(strconv.Itoa(i)+".pdf", testkit.Content(i, 1<<20))
		}
		var reports []brellium.UploadProgress
		var inside atomic.Int32
		start := time.Now()
		_, err := client.Documents.Upload(t.Context(), files, brellium.UploadOptions{Concurrency: 2, OnProgress: func(p brellium.UploadProgress) {
			assert.EqualValues(t, 1, inside.Add(1), "calls overlap")
			reports = append(reports, p)
			if len(reports) < 3 {
				time.Sleep(1900 * time.Millisecond)
			}
			inside.Add(-1)
		}})
		require.NoError(t, err)
		assert.Equal(t, 4*time.Second, time.Since(start), "the callback delayed the files")
		require.Greater(t, len(reports), 4)
		assert.Less(t, len(reports), 100)
		last := reports[len(reports)-1]
		assert.Equal(t, brellium.UploadProgress{Files: 4, FilesDone: 4, Bytes: 4 << 20, BytesDone: 4 << 20}, last)
		var partly bool
		for i, p := range reports {
			partly = partly || p.BytesDone%(1<<20) != 0
			if i > 0 {
				assert.GreaterOrEqual(t, p.BytesDone, reports[i-1].BytesDone)
			}
		}
		assert.True(t, partly, "bytes in flight were not reported")
	})
}

func TestUploadThatIsCanceledCanBeResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		emu := brelliumtest.New()
		emu.Inject(brelliumtest.OpDocumentPut, brelliumtest.OK().Delay(time.Second).Forever())
		files := someFiles(30)
		cause := errors.New("the operator pressed Ctrl-C")
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			time.Sleep(2500 * time.Millisecond)
			cancel(cause)
		}()
		var last brellium.UploadProgress
		results, err := testkit.NewClient(t, emu).Documents.Upload(ctx, files, brellium.UploadOptions{BatchSize: 10, OnProgress: func(p brellium.UploadProgress) { last = p }})
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, cause)
		var interrupted *brellium.InterruptedError
		require.ErrorAs(t, err, &interrupted)
		counts := map[brellium.UploadStatus]int{}
		for _, r := range results {
			counts[r.Status]++
			if r.Status == brellium.UploadNotStarted {
				require.ErrorIs(t, r.Err, context.Canceled)
			}
		}
		assert.Equal(t, map[brellium.UploadStatus]int{brellium.UploadStored: 8, brellium.UploadFailed: 4, brellium.UploadNotStarted: 18}, counts)
		assert.Equal(t, brellium.UploadProgress{Files: 30, FilesDone: 8, FilesFailed: 4, Bytes: last.Bytes, BytesDone: last.BytesDone}, last)

		emu.ClearFaults()
		_, err = testkit.NewClient(t, emu).Documents.Upload(t.Context(), files, brellium.UploadOptions{})
		require.NoError(t, err)
		assert.Len(t, emu.Documents(), 30)
		for _, d := range emu.Documents() {
			assert.Equal(t, 1, d.Puts)
		}

		// An upload whose context has ended sends nothing.
		emu.ClearRequests()
		results, err = testkit.NewClient(t, emu).Documents.Upload(ctx, files, brellium.UploadOptions{})
		require.ErrorIs(t, err, context.Canceled)
		assert.Len(t, results, 30)
		assert.Zero(t, emu.Count(brelliumtest.OpAny))
	})
}

func TestUploadContinuesWithTheOtherBatchesAfterARejection(t *testing.T) {
	testkit.Bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpDocumentCreate, brelliumtest.OK(), brelliumtest.Status(422, "UNPROCESSABLE"))
		results, err := client.Documents.Upload(t.Context(), someFiles(6), brellium.UploadOptions{BatchSize: 2})
		assert.Equal(t, []brellium.UploadStatus{"stored", "stored", "failed", "failed", "stored", "stored"}, statuses(results))
		var failed *brellium.UploadError
		require.ErrorAs(t, results[2].Err, &failed)
		assert.Equal(t, results[2].ExternalID, failed.ExternalID)
		assert.Zero(t, failed.StatusCode, "the storage host was not called")
		var apiErr *brellium.APIError
		require.ErrorAs(t, err, &apiErr)
		assert.Equal(t, brellium.ErrorCode("UNPROCESSABLE"), apiErr.Code)
	})
}

// closer counts how often it is closed.
type closer struct {
	io.Reader
	closed *atomic.Int32
}

func (c closer) Close() error { c.closed.Add(1); return nil }

func TestUploadClosesEachFileThatItOpens(t *testing.T) {
	testkit.Bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		var opened, closed atomic.Int32
		var files []brellium.UploadFile
		for _, content := range []string{"", "content"} {
			files = append(files, brellium.UploadFile{
				Filename: "f" + content + ".pdf", ExternalID: "id" + content, Size: int64(len(content)),
				Open: func() (io.ReadCloser, error) {
					opened.Add(1)
					return closer{strings.NewReader(content), &closed}, nil
				},
			})
		}
		emu.Inject(brelliumtest.OpDocumentPut, brelliumtest.Status(503, "SlowDown").Times(3))
		_, err := client.Documents.Upload(t.Context(), files, brellium.UploadOptions{})
		require.NoError(t, err)
		assert.EqualValues(t, 5, emu.Count(brelliumtest.OpDocumentPut))
		assert.GreaterOrEqual(t, opened.Load(), int32(5))
		synctest.Wait()
		assert.Equal(t, opened.Load(), closed.Load())
	})
}

func TestUploadEndsWhenTheAPIDoesNotWork(t *testing.T) {
	testkit.Bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpDocumentCreate, brelliumtest.OK(), brelliumtest.Status(503, "UNAVAILABLE").Forever())
		results, err := client.Documents.Upload(t.Context(), someFiles(6), brellium.UploadOptions{BatchSize: 2})
		assert.Equal(t, []brellium.UploadStatus{"stored", "stored", "failed", "failed", "not started", "not started"}, statuses(results))
		require.ErrorIs(t, err, brellium.ErrServer)
		require.ErrorIs(t, results[5].Err, brellium.ErrServer)
		assert.Equal(t, 6, emu.Count(brelliumtest.OpDocumentCreate), "one, and five attempts at the second")
		assert.Contains(t, err.Error(), "2 of 6 files failed, 2 not started")
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%d"} {
			assert.Equal(t, err.Error(), fmt.Sprintf(verb, err))
		}
	})
}

func TestUploadRejectsInvalidArguments(t *testing.T) {
	emu := brelliumtest.New()
	client := testkit.NewClient(t, emu)
	good := someFiles(1)[0]
	with := func(change func(*brellium.UploadFile)) []brellium.UploadFile {
		bad := good
		change(&bad)
		return []brellium.UploadFile{good, bad}
	}
	given := good
	given.ExternalID = "x"
	for field, test := range map[string]struct {
		files   []brellium.UploadFile
		options brellium.UploadOptions
		opts    []brellium.CallOption
	}{
		"files[1].Filename":         {files: with(func(f *brellium.UploadFile) { f.Filename = " \t" })},
		"files[1].ExternalID":       {files: []brellium.UploadFile{given, given}},
		"files[1].Open":             {files: with(func(f *brellium.UploadFile) { f.Open = nil })},
		"files[1].Size":             {files: with(func(f *brellium.UploadFile) { f.Size = -1 })},
		"files[1].ContentType":      {files: with(func(f *brellium.UploadFile) { f.ContentType = "a\r\nb" })},
		"files[1].ExternalMetadata": {files: with(func(f *brellium.UploadFile) { f.ExternalMetadata = map[string]any{"f": func() {}} })},
		"Concurrency":               {options: brellium.UploadOptions{Concurrency: -1}},
		"BatchSize":                 {options: brellium.UploadOptions{BatchSize: 101}},
		"IdleTimeout":               {options: brellium.UploadOptions{IdleTimeout: -1}},
		"WithResponseInto":          {opts: []brellium.CallOption{brellium.WithResponseInto(&brellium.Response{})}},
		"WithMaxRetries":            {opts: []brellium.CallOption{brellium.WithMaxRetries(-1)}},
		"WithPrefetch":              {opts: []brellium.CallOption{brellium.WithPrefetch()}},
		"CallOption":                {opts: []brellium.CallOption{nil}},
	} {
		t.Run(field, func(t *testing.T) {
			results, err := client.Documents.Upload(t.Context(), test.files, test.options, test.opts...)
			testkit.IsInvalid(t, err, field, "")
			assert.Nil(t, results)
		})
	}
	results, err := client.Documents.Upload(t.Context(), nil, brellium.UploadOptions{BatchSize: 100})
	require.NoError(t, err)
	assert.Empty(t, results)
	assert.Zero(t, emu.Count(brelliumtest.OpAny))
}

func TestUploadDoesNotTakeAResponseOfAnotherShapeForASuccess(t *testing.T) {
	document := func(fields string) string {
		return `{"documents":[{"document_id":"d1","filename":"note-000.pdf"` + fields + `}]}`
	}
	for name, test := range map[string]struct {
		response string
		want     brellium.UploadStatus
	}{
		"null":                              {document(`,"external_id":"e","status":"todo","upload_url":null`), brellium.UploadAlreadyThere},
		"no field, and it is in progress":   {document(`,"external_id":"e","status":"in_progress"`), brellium.UploadAlreadyThere},
		"no field":                          {document(`,"external_id":"e","status":"todo"`), brellium.UploadFailed},
		"no field and no status":            {document(`,"external_id":"e"`), brellium.UploadFailed},
		"no external id, the only document": {document(`,"status":"complete","upload_url":null`), brellium.UploadAlreadyThere},
		"another document":                  {document(`,"external_id":"other","status":"todo","upload_url":null`), brellium.UploadFailed},
		"no documents":                      {`{"documents":[]}`, brellium.UploadFailed},
		"another response":                  {`{"data":[{}]}`, brellium.UploadFailed},
	} {
		testkit.Bubble(t, name, func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
			emu.Inject(brelliumtest.OpDocumentCreate, brelliumtest.Respond(201, "application/json", test.response).Forever())
			file := someFiles(1)[0]
			file.ExternalID = "e"
			results, err := client.Documents.Upload(t.Context(), []brellium.UploadFile{file}, brellium.UploadOptions{})
			assert.Equal(t, test.want, results[0].Status)
			assert.Equal(t, test.want == brellium.UploadFailed, err != nil)
			assert.Zero(t, emu.Count(brelliumtest.OpDocumentPut))
		})
	}
}

func TestUploadErrorsAndEventsNameNoFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		emu := brelliumtest.New()
		emu.Inject(brelliumtest.OpDocumentPut, brelliumtest.Status(500, "InternalError").WithMessage("jane-doe has no room").Forever())
		var log bytes.Buffer
		var events []string
		var mu sync.Mutex
		client := testkit.NewClient(t, emu,
			brellium.WithLogger(slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))),
			brellium.WithObserver(brellium.ObserverFunc(func(ctx context.Context, e brellium.Event) context.Context {
				mu.Lock()
				defer mu.Unlock()
				events = append(events, fmt.Sprintf("%+v", e))
				return ctx
			})))
		files := make([]brellium.UploadFile, 40)
		for i := range files {
			files[i] = brellium.FileFromBytes("jane-doe-"+strconv.Itoa(i)+".pdf", testkit.Content(i, 100))
			files[i].ExternalID = "mrn-" + strconv.Itoa(i)
		}
		results, err := client.Documents.Upload(t.Context(), files, brellium.UploadOptions{}, brellium.WithMaxRetries(1))
		require.Error(t, err)
		var printed bytes.Buffer
		slog.New(slog.NewJSONHandler(&printed, nil)).Info("x", "err", err)
		encoded, jsonErr := json.Marshal(err)
		require.NoError(t, jsonErr)
		_, _ = fmt.Fprintf(&printed, "%v %+v %#v %s %q %d %s", err, err, err, err, err, err, encoded)
		everything := printed.String() + log.String() + strings.Join(events, "\n")
		assert.Contains(t, everything, "documents.put")
		assert.Contains(t, everything, "InternalError")
		for _, secret := range []string{"jane", "mrn-", "Signature=", "storage.brellium.test", results[0].DocumentID, "no room"} {
			assert.NotContains(t, everything, secret)
		}
		assert.Less(t, len(err.Error()), 2000, "an error text must fit a line of a log")
		var n int
		for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
			var failed *brellium.UploadError
			require.ErrorAs(t, e, &failed)
			n++
		}
		assert.Equal(t, 40, n)
		assert.True(t, brellium.OutcomeUnknown(err))
	})
}

// panicking is a reader of a caller that panics at a method.
type panicking struct {
	io.Reader
	read, close bool
}

func (p panicking) Read(b []byte) (int, error) {
	if p.read {
		panic("read")
	}
	return p.Reader.Read(b)
}

func (p panicking) Close() error {
	if p.close {
		panic("close")
	}
	return nil
}

// net/http reads a body in a goroutine of its own, and files are sent in others.
func TestPanicDuringAnUploadReachesItsCaller(t *testing.T) {
	open := func(p panicking) func() (io.ReadCloser, error) {
		return func() (io.ReadCloser, error) { p.Reader = strings.NewReader("12345"); return p, nil }
	}
	for name, c := range map[string]struct {
		file      brellium.UploadFile
		transport string // operation whose transport panics
		progress  bool
		want      any
	}{
		"reading":                 {brellium.UploadFile{ExternalID: "a", Open: open(panicking{read: true})}, "", false, "read"},
		"reading for the id":      {brellium.UploadFile{Open: open(panicking{read: true})}, "", false, "read"},
		"closing":                 {brellium.UploadFile{ExternalID: "a", Open: open(panicking{close: true})}, "", false, "close"},
		"opening":                 {brellium.UploadFile{ExternalID: "a", Open: func() (io.ReadCloser, error) { panic("open") }}, "", false, "open"},
		"transport of the file":   {brellium.UploadFile{Open: open(panicking{})}, http.MethodPut, false, "transport"},
		"transport of the create": {brellium.UploadFile{Open: open(panicking{})}, http.MethodPost, false, "transport"},
		"progress":                {brellium.UploadFile{Open: open(panicking{})}, "", true, "progress"},
	} {
		c.file.Filename, c.file.Size = "bad.pdf", 5
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				emu := brelliumtest.New()
				client := testkit.NewClient(t, emu, testkit.WithTransport(testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
					if r.Method == c.transport && r.URL.Path != "/v2/oauth/token" {
						panic("transport")
					}
					return emu.Transport().RoundTrip(r)
				})))
				options := brellium.UploadOptions{Concurrency: 2}
				if c.progress {
					options.OnProgress = func(brellium.UploadProgress) { panic("progress") }
				}
				assert.PanicsWithValue(t, c.want, func() {
					_, err := client.Documents.Upload(t.Context(), append([]brellium.UploadFile{c.file}, someFiles(5)...), options)
					t.Error(err)
				})
				if !c.progress && c.transport == "" && c.file.ExternalID != "" {
					d, err := client.Documents.Create(t.Context(), brellium.DocumentCreateParams{Documents: []brellium.DocumentInput{{Filename: "bad.pdf", ExternalID: "b"}}})
					require.NoError(t, err)
					assert.PanicsWithValue(t, c.want, func() { _ = client.Documents.Put(t.Context(), d.Documents[0].UploadURL, c.file) })
				}
				if c.transport == "" {
					_, err := client.Documents.Upload(t.Context(), someFiles(1), brellium.UploadOptions{})
					require.NoError(t, err, "the client is usable")
				}
			})
		})
	}
}

// A reader that counts wrongly would make net/http panic.
func TestReaderWithAnInvalidCountFailsItsUpload(t *testing.T) {
	for _, n := range []int{-1, 1 << 20} {
		testkit.Bubble(t, strconv.Itoa(n), func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
			file := brellium.UploadFile{Filename: "a.pdf", Size: 5, ExternalID: "a", Open: func() (io.ReadCloser, error) {
				return io.NopCloser(readerFunc(func([]byte) (int, error) { return n, nil })), nil
			}}
			_, err := client.Documents.Upload(t.Context(), []brellium.UploadFile{file}, brellium.UploadOptions{})
			assert.ErrorContains(t, err, "invalid count")
		})
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// Nothing else limits how long a file may wait.
func TestAbsurdRetryAfterOfStorageFailsTheFile(t *testing.T) {
	testkit.Bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		for _, wait := range []string{"86400", "Fri, 31 Dec 2100 23:59:59 GMT"} {
			emu.Inject(brelliumtest.OpDocumentPut, brelliumtest.Status(503, "SlowDown").WithHeader("Retry-After", wait))
			start := time.Now()
			results, err := client.Documents.Upload(t.Context(), someFiles(1), brellium.UploadOptions{})
			assert.Less(t, time.Since(start), time.Second)
			require.Error(t, err)
			assert.Equal(t, 1, results[0].Attempts)
			assert.True(t, brellium.IsTransient(err))
			after, ok := brellium.RetryAfter(results[0].Err)
			assert.True(t, ok)
			assert.GreaterOrEqual(t, after, 24*time.Hour)
		}
	})
}

// As testing.T.FailNow of a transport in a test does.
func TestTransportThatEndsItsGoroutineEndsTheCaller(t *testing.T) {
	for name, call := range map[string]func(*brellium.Client){
		"upload": func(c *brellium.Client) {
			_, _ = c.Documents.Upload(context.Background(), someFiles(5), brellium.UploadOptions{})
		},
		"prefetch": func(c *brellium.Client) {
			for range c.Audits.All(context.Background(), brellium.AuditListParams{Limit: 1}, brellium.WithPrefetch()) {
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				emu := brelliumtest.New()
				emu.SeedAudits(3)
				lists := 0
				client := testkit.NewClient(t, emu, testkit.WithTransport(testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
					if r.Method == http.MethodGet {
						lists++
					}
					if r.Method == http.MethodPut || lists == 2 {
						runtime.Goexit()
					}
					return emu.Transport().RoundTrip(r)
				})))
				returned, ended := false, make(chan struct{})
				go func() {
					defer close(ended)
					call(client)
					returned = true
				}()
				<-ended
				assert.False(t, returned)
			})
		})
	}
}
