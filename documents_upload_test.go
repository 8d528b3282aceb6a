package brellium_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
	"github.com/brellium/brellium-go/internal/testkit"
)

// someFiles makes n small files.
func someFiles(n int) []brellium.UploadFile {
	files := make([]brellium.UploadFile, n)
	for i := range files {
		files[i] = brellium.FileFromBytes(fmt.Sprintf("note-%03d.pdf", i), testkit.Content(i, 1000+i))
	}
	return files
}

// onPort returns a client that reaches the emulator over real connections.
func onPort(t *testing.T, emu *brelliumtest.Emulator, opts ...brellium.ClientOption) *brellium.Client {
	t.Helper()
	return onPortWithPut(t, emu, emu.Handler().ServeHTTP, opts...)
}

// onPortWithPut is onPort with another handler for the PUTs.
func onPortWithPut(t *testing.T, emu *brelliumtest.Emulator, put http.HandlerFunc, opts ...brellium.ClientOption) *brellium.Client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			put(w, r)
			return
		}
		emu.Handler().ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	client, err := brellium.NewClient(append(opts, brellium.WithBaseURL(server.URL),
		brellium.WithClientCredentials(emu.ClientID, emu.ClientSecret))...)
	require.NoError(t, err)
	return client
}

// fileOnDisk writes a file and returns it with its path.
func fileOnDisk(t *testing.T, name string, data []byte) (brellium.UploadFile, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, data, 0o600))
	file, err := brellium.FileFromPath(path)
	require.NoError(t, err)
	return file, path
}

func statuses(results []brellium.UploadResult) []brellium.UploadStatus {
	list := make([]brellium.UploadStatus, len(results))
	for i, r := range results {
		list[i] = r.Status
	}
	return list
}

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

// aws/aws-sdk-go#1414, aws/aws-sdk-go#3063, minio/minio#7792, cirruslabs/cirrus-ci-agent#163
func TestUploadAnnouncesItsLengthAndIsNeverChunked(t *testing.T) {
	const size = 1 << 20
	data := testkit.Content(1, size)
	fromPath, path := fileOnDisk(t, "visit.pdf", data)
	open, err := os.Open(path)
	require.NoError(t, err)
	defer open.Close()
	buffered, err := brellium.FileFromReader("reader.pdf", slowReader{bytes.NewReader(data)}, size)
	require.NoError(t, err)
	files := []brellium.UploadFile{
		brellium.FileFromBytes("bytes.pdf", data),
		fromPath,
		brellium.FileFromReaderAt("handle.pdf", open, size),
		buffered,
		{Filename: "sized.pdf", Size: size, Open: func() (io.ReadCloser, error) {
			return io.NopCloser(slowReader{bytes.NewReader(data)}), nil
		}},
		{Filename: "empty.txt", Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("")), nil }},
	}

	// Over a real connection, since it is net/http that frames the body.
	emu := brelliumtest.New()
	client := onPort(t, emu)
	results, err := client.Documents.Upload(t.Context(), files, brellium.UploadOptions{})
	require.NoError(t, err, statuses(results))

	puts := emu.Requests(brelliumtest.OpDocumentPut)
	require.Len(t, puts, len(files))
	for _, put := range puts {
		want := int64(size)
		if strings.Contains(put.Path, "empty") {
			want = 0
		}
		assert.Equal(t, want, put.ContentLength, put.Path)
		assert.Equal(t, want, put.BodySize)
		assert.False(t, put.Chunked)
	}
	_, err = open.Stat()
	require.NoError(t, err, "the caller's handle was closed")
	at, err := open.Seek(0, io.SeekCurrent)
	require.NoError(t, err)
	assert.Zero(t, at, "the caller's handle was moved")

	// An unknown size is rejected before any request.
	emu.ClearRequests()
	unknown := brellium.UploadFile{Filename: "a.pdf", Size: -1, Open: files[0].Open}
	_, err = client.Documents.Upload(t.Context(), []brellium.UploadFile{unknown}, brellium.UploadOptions{})
	var invalid *brellium.ValidationError
	require.ErrorAs(t, err, &invalid)
	assert.Equal(t, "files[0].Size", invalid.Field)
	assert.Zero(t, emu.Count(brelliumtest.OpAny))
	_, err = brellium.FileFromReader("a.pdf", bytes.NewReader(data), size-1)
	require.ErrorAs(t, err, &invalid)
}

// slowReader hides every method of a reader but Read, which returns little at a
// time.
type slowReader struct{ r io.Reader }

func (r slowReader) Read(p []byte) (int, error) { return r.r.Read(p[:min(len(p), 1000)]) }

// penpot/penpot#10776, danialfarid/ng-file-upload#382
func TestUploadCarriesNothingOfTheAPIsToTheStorageHost(t *testing.T) {
	var emu *brelliumtest.Emulator
	var mu sync.Mutex
	var seen []*http.Request
	storage := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		mu.Lock()
		seen = append(seen, r.Clone(context.Background()))
		mu.Unlock()
		emu.Handler().ServeHTTP(w, r)
	}))
	defer storage.Close()
	emu = brelliumtest.New(brelliumtest.WithStorageURL(storage.URL))

	observer := headersAdded{"Traceparent": {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}
	client := onPort(t, emu, brellium.WithObserver(observer), brellium.WithUserAgent("clinic/1"))
	_, err := client.Documents.Upload(t.Context(), someFiles(1), brellium.UploadOptions{}, brellium.WithHeader("X-Clinic", "7"))
	require.NoError(t, err)

	require.Len(t, seen, 1)
	put := seen[0]
	assert.Equal(t, http.MethodPut, put.Method)
	put.Header.Del("Accept-Encoding") // net/http's own
	assert.Equal(t, http.Header{"Content-Length": {"1000"}, "Content-Type": {"application/pdf"}}, put.Header)

	posts := emu.Requests(brelliumtest.OpDocumentCreate)
	require.Len(t, posts, 1)
	assert.NotEmpty(t, posts[0].Header.Get("Traceparent"))
	assert.Equal(t, "7", posts[0].Header.Get("X-Clinic"))
	assert.Equal(t, 99, client.RateLimit().Remaining, "the PUT counted against the API's rate limit")
}

// meroxa/cli#524, ankraio/ankra-cli#329
func TestUploadRetriesWithAFreshBodyAndLeavesTheHandleOpen(t *testing.T) {
	data := testkit.Content(3, 300_000)
	_, path := fileOnDisk(t, "visit.pdf", data)
	handle, err := os.Open(path)
	require.NoError(t, err)
	defer handle.Close()

	synctest.Test(t, func(t *testing.T) {
		emu := brelliumtest.New()
		client := testkit.NewClient(t, emu)
		files := []brellium.UploadFile{brellium.FileFromReaderAt("visit.pdf", handle, int64(len(data)))}
		emu.Inject(brelliumtest.OpDocumentPut, brelliumtest.Status(503, "SlowDown"))
		results, err := client.Documents.Upload(t.Context(), files, brellium.UploadOptions{})
		require.NoError(t, err)
		assert.Equal(t, 2, results[0].Attempts)
		puts := emu.Requests(brelliumtest.OpDocumentPut)
		require.Len(t, puts, 2)
		for _, put := range puts {
			assert.Equal(t, data, put.Body)
		}

		files[0].ExternalID = "another"
		emu.Inject(brelliumtest.OpDocumentPut, brelliumtest.Status(503, "SlowDown").Forever())
		results, err = client.Documents.Upload(t.Context(), files, brellium.UploadOptions{}, brellium.WithMaxRetries(2))
		var failed *brellium.UploadError
		require.ErrorAs(t, err, &failed)
		assert.Equal(t, 503, failed.StatusCode)
		assert.Equal(t, "SlowDown", failed.Code)
		assert.Equal(t, "another", failed.ExternalID)
		require.ErrorIs(t, err, brellium.ErrServer)
		require.NotErrorIs(t, err, os.ErrClosed)
		var exhausted *brellium.RetriesExhaustedError
		require.ErrorAs(t, err, &exhausted)
		assert.Equal(t, 3, exhausted.Attempts)
		assert.Equal(t, 3, results[0].Attempts)

		_, err = handle.Stat()
		require.NoError(t, err, "the caller's handle was closed")
	})
}

// apache/texera#3837, transloadit/uppy#1724, flyteorg/flyte-sdk#1363
func TestUploadAsksForANewURLOnceWhenOneHasExpired(t *testing.T) {
	t.Run("every document has an external id", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			emu := brelliumtest.New()
			emu.Inject(brelliumtest.OpDocumentPut, testkit.ExpiredURL())
			results, err := testkit.NewClient(t, emu).Documents.Upload(t.Context(), someFiles(1), brellium.UploadOptions{})
			require.NoError(t, err)
			assert.Equal(t, brellium.UploadStored, results[0].Status)
			assert.Equal(t, 2, results[0].Attempts)
			posts := emu.Requests(brelliumtest.OpDocumentCreate)
			require.Len(t, posts, 2)
			assert.Equal(t, string(posts[0].Body), string(posts[1].Body))
			puts := emu.Requests(brelliumtest.OpDocumentPut)
			require.Len(t, puts, 2)
			assert.NotEqual(t, puts[0].RawQuery, puts[1].RawQuery)
			assert.Len(t, emu.Documents(), 1)
		})
	})
	t.Run("no document has one", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			emu := brelliumtest.New()
			emu.Inject(brelliumtest.OpDocumentPut, testkit.ExpiredURL())
			client := testkit.NewClient(t, emu)
			created, err := client.Documents.Create(t.Context(), brellium.DocumentCreateParams{Documents: []brellium.DocumentInput{{Filename: "a.pdf"}}})
			require.NoError(t, err)
			err = client.Documents.Put(t.Context(), created.Documents[0].UploadURL, someFiles(1)[0])
			var failed *brellium.UploadError
			require.ErrorAs(t, err, &failed)
			assert.True(t, failed.Expired)
			assert.Equal(t, "AccessDenied", failed.Code)
			assert.Equal(t, 403, failed.StatusCode)
			assert.Contains(t, err.Error(), "expired")
			var blocked *brellium.BlockedError
			require.NotErrorAs(t, err, &blocked)
			assert.Equal(t, 1, emu.Count(brelliumtest.OpDocumentCreate))
			assert.Equal(t, 1, emu.Count(brelliumtest.OpDocumentPut))

			// The 403 does not count as a block.
			require.NoError(t, client.Documents.Put(t.Context(), created.Documents[0].UploadURL, someFiles(1)[0]))
		})
	})
	t.Run("expired again", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			emu := brelliumtest.New()
			emu.Inject(brelliumtest.OpDocumentPut, testkit.ExpiredURL().Forever())
			results, err := testkit.NewClient(t, emu).Documents.Upload(t.Context(), someFiles(1), brellium.UploadOptions{})
			var failed *brellium.UploadError
			require.ErrorAs(t, err, &failed)
			assert.True(t, failed.Expired)
			assert.Equal(t, brellium.UploadFailed, results[0].Status)
			assert.Equal(t, 2, emu.Count(brelliumtest.OpDocumentCreate))
			assert.Equal(t, 2, emu.Count(brelliumtest.OpDocumentPut))
		})
	})
	t.Run("many at once share one request", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			emu := brelliumtest.New(brelliumtest.WithUploadURLLifetime(time.Minute),
				brelliumtest.WithLatency(func(*rand.Rand) time.Duration { return 10 * time.Millisecond }))
			emu.Inject(brelliumtest.OpDocumentCreate, brelliumtest.OK().DelayResponse(2*time.Minute))
			client := testkit.NewClient(t, emu, brellium.WithAttemptTimeout(0), brellium.WithTotalTimeout(0))
			_, err := client.Documents.Upload(t.Context(), someFiles(20), brellium.UploadOptions{Concurrency: 4})
			require.NoError(t, err)
			assert.Equal(t, 2, emu.Count(brelliumtest.OpDocumentCreate))
			assert.Equal(t, 24, emu.Count(brelliumtest.OpDocumentPut), "those after the first four have the new URLs")
		})
	})
}

// juruen/rmapi#28, aispace-sh/aispace-client#12
func TestUploadThatIsSlowButMakesProgressIsNotCutOff(t *testing.T) {
	file := brellium.FileFromBytes("visit.pdf", testkit.Content(1, 1<<20))
	t.Run("slow", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			emu := brelliumtest.New()
			emu.Inject(brelliumtest.OpDocumentPut, brelliumtest.OK().SlowRead(time.Second))
			client := testkit.NewClient(t, emu, brellium.WithAttemptTimeout(200*time.Millisecond))
			_, err := client.Documents.Upload(t.Context(), []brellium.UploadFile{file}, brellium.UploadOptions{IdleTimeout: 500 * time.Millisecond})
			require.NoError(t, err)
			assert.Equal(t, 1, emu.Count(brelliumtest.OpDocumentPut))
		})
	})
	t.Run("very slow", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			emu := brelliumtest.New()
			emu.Inject(brelliumtest.OpDocumentPut, brelliumtest.OK().SlowRead(10*time.Minute))
			_, err := testkit.NewClient(t, emu).Documents.Upload(t.Context(), []brellium.UploadFile{file}, brellium.UploadOptions{})
			require.NoError(t, err)
			assert.Equal(t, 1, emu.Count(brelliumtest.OpDocumentPut))
		})
	})
	t.Run("silent", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			emu := brelliumtest.New()
			emu.Inject(brelliumtest.OpDocumentPut, brelliumtest.OK().Delay(1000*time.Hour).Forever())
			begun := time.Now()
			_, err := testkit.NewClient(t, emu).Documents.Upload(t.Context(), []brellium.UploadFile{file}, brellium.UploadOptions{IdleTimeout: 10 * time.Second}, brellium.WithMaxRetries(0))
			var lost *brellium.ConnectionError
			require.ErrorAs(t, err, &lost)
			assert.True(t, lost.Timeout())
			assert.Contains(t, err.Error(), "idle")
			require.NotErrorIs(t, err, context.Canceled)
			require.NotErrorIs(t, err, context.DeadlineExceeded)
			assert.LessOrEqual(t, time.Since(begun), 13*time.Second)
			assert.GreaterOrEqual(t, time.Since(begun), 10*time.Second)
		})
	})
	t.Run("silent, and the caller's deadline passes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			emu := brelliumtest.New()
			emu.Inject(brelliumtest.OpDocumentPut, brelliumtest.OK().Delay(1000*time.Hour).Forever())
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			begun := time.Now()
			results, err := testkit.NewClient(t, emu).Documents.Upload(ctx, []brellium.UploadFile{file}, brellium.UploadOptions{})
			require.ErrorIs(t, err, context.DeadlineExceeded)
			assert.Equal(t, 3*time.Second, time.Since(begun))
			assert.Equal(t, brellium.UploadFailed, results[0].Status)
		})
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

// A file whose response was lost is sent again only if the API says that it has
// not arrived.
func TestUploadAsksBeforeItSendsAgainWhatMayHaveArrived(t *testing.T) {
	for name, test := range map[string]struct {
		fault       brelliumtest.Fault
		asked, puts int
	}{
		"dropped after the work":  {brelliumtest.DropAfter(), 1, 1},
		"reset after the work":    {brelliumtest.DropAfter().AsReset(), 1, 1},
		"no response":             {brelliumtest.StallHeaders(0), 1, 1},
		"dropped before the work": {brelliumtest.DropBefore(), 1, 2},
		"reset in the body":       {brelliumtest.DropReading(), 0, 2},
		"not sent":                {brelliumtest.NeverSent(), 0, 2},
		"a 503":                   {brelliumtest.Status(503, "SlowDown"), 0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				emu := brelliumtest.New()
				emu.Inject(brelliumtest.OpDocumentPut, test.fault)
				results, err := testkit.NewClient(t, emu).Documents.Upload(t.Context(), someFiles(1), brellium.UploadOptions{})
				require.NoError(t, err)
				assert.Equal(t, brellium.UploadStored, results[0].Status)
				docs := emu.Documents()
				require.Len(t, docs, 1)
				assert.Equal(t, 1, docs[0].Puts, "sent again after it had arrived")
				assert.Equal(t, testkit.Digest(testkit.Content(0, 1000)), docs[0].SHA256)
				assert.Equal(t, test.puts, results[0].Attempts)
				assert.Equal(t, 1+test.asked, emu.Count(brelliumtest.OpDocumentCreate))
			})
		})
	}
}

func TestUploadOfAFileThatIsNotAsAnnouncedIsFinal(t *testing.T) {
	data := testkit.Content(1, 10_000)
	// The reader returns length bytes of data, and then err.
	reader := func(length int, err error, size int64) brellium.UploadFile {
		return brellium.UploadFile{Filename: "a.pdf", Size: size, Open: func() (io.ReadCloser, error) {
			return io.NopCloser(slowReader{io.MultiReader(bytes.NewReader(data[:length]), iotest.ErrReader(err))}), nil
		}}
	}
	broken := errors.New("disk on fire at /patients/jane")
	short, _ := fileOnDisk(t, "short.pdf", data)
	short.Size = 10_001
	gone, path := fileOnDisk(t, "patients.pdf", data)
	require.NoError(t, os.Remove(path))
	for name, test := range map[string]struct {
		file   brellium.UploadFile
		reason string
		cause  error
	}{
		"a file ends early":           {short, "shorter than its Size", nil},
		"a reader runs over":          {reader(10_000, io.EOF, 9_999), "longer than its Size", nil},
		"nothing is expected":         {reader(10_000, io.EOF, 0), "longer than its Size", nil},
		"a file that is gone":         {gone, "cannot be opened: no such file", fs.ErrNotExist},
		"a reader that fails":         {reader(5_000, broken, 10_000), "cannot be read", broken},
		"Open that returns no reader": {brellium.UploadFile{Filename: "a.pdf", Size: 1, Open: func() (io.ReadCloser, error) { return nil, nil }}, "Open returned no reader", nil},
	} {
		for _, given := range []string{"", "given"} {
			t.Run(name+", external id "+given, func(t *testing.T) {
				emu := brelliumtest.New()
				test.file.ExternalID = given
				results, err := onPort(t, emu).Documents.Upload(t.Context(), []brellium.UploadFile{test.file}, brellium.UploadOptions{})
				var failed *brellium.UploadError
				require.ErrorAs(t, err, &failed)
				assert.Contains(t, err.Error(), test.reason)
				assert.NotContains(t, err.Error(), "patients")
				if test.cause != nil {
					require.ErrorIs(t, err, test.cause)
				}
				assert.Equal(t, brellium.UploadFailed, results[0].Status)
				assert.LessOrEqual(t, results[0].Attempts, 1)
				for _, d := range emu.Documents() {
					assert.False(t, d.Arrived, "storage took a part for the whole")
				}
			})
		}
	}
}

// The storage host takes a while to read, and meanwhile the file is truncated.
func TestUploadOfAFileThatIsCutWhileItIsSentIsFinal(t *testing.T) {
	file, path := fileOnDisk(t, "visit.pdf", testkit.Content(1, 32<<20))
	file.ExternalID = "visit"
	emu := brelliumtest.New()
	var puts atomic.Int32
	client := onPortWithPut(t, emu, func(w http.ResponseWriter, r *http.Request) {
		if puts.Add(1) == 1 {
			assert.NoError(t, os.Truncate(path, 1<<20))
		}
		emu.Handler().ServeHTTP(w, r)
	})
	_, err := client.Documents.Upload(t.Context(), []brellium.UploadFile{file}, brellium.UploadOptions{})
	var failed *brellium.UploadError
	require.ErrorAs(t, err, &failed)
	assert.Contains(t, err.Error(), "shorter than its Size")
	doc, found := emu.Document("visit")
	require.True(t, found)
	assert.False(t, doc.Arrived)
	assert.Equal(t, int32(1), puts.Load())
}

func TestUploadOfOneFileTwiceInOneCallSendsItOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		emu := brelliumtest.New()
		file := brellium.FileFromBytes("a.pdf", testkit.Content(1, 100))
		other := brellium.FileFromBytes("b.pdf", testkit.Content(1, 100))
		results, err := testkit.NewClient(t, emu).Documents.Upload(t.Context(), []brellium.UploadFile{file, other, file, file}, brellium.UploadOptions{BatchSize: 2})
		require.NoError(t, err)
		assert.Len(t, emu.Documents(), 2, "the name is part of what a document is")
		assert.Equal(t, 2, emu.Count(brelliumtest.OpDocumentPut))
		assert.Equal(t, results[0].DocumentID, results[3].DocumentID)
		assert.Equal(t, []brellium.UploadStatus{"stored", "stored", "stored", "stored"}, statuses(results))
		assert.Equal(t, 0, results[2].Attempts)
		assert.NotEqual(t, results[0].ExternalID, results[1].ExternalID)
	})
}

func TestUploadMakesTheSameExternalIDEverywhere(t *testing.T) {
	// Documents that were created with these ids must be found again by every
	// later version.
	synctest.Test(t, func(t *testing.T) {
		emu := brelliumtest.New()
		results, err := testkit.NewClient(t, emu).Documents.Upload(t.Context(), []brellium.UploadFile{
			brellium.FileFromBytes("note.txt", []byte("hello")), brellium.FileFromBytes("note.txt", nil),
		}, brellium.UploadOptions{})
		require.NoError(t, err)
		assert.Equal(t, "fa868482-b251-507e-8ae2-3acd5cc130f7", results[0].ExternalID)
		assert.Equal(t, "79826044-a5de-588d-88f9-8aa36037a743", results[1].ExternalID)
	})
	assert.NotEqual(t, brellium.NewExternalID(), brellium.NewExternalID())
	assert.Len(t, brellium.NewExternalID(), 36)
}

func TestUploadReportsProgressToASlowCallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		emu := brelliumtest.New()
		emu.Inject(brelliumtest.OpDocumentPut, brelliumtest.OK().SlowRead(2*time.Second).Forever())
		files := make([]brellium.UploadFile, 4)
		for i := range files {
			files[i] = brellium.FileFromBytes(strconv.Itoa(i)+".pdf", testkit.Content(i, 1<<20))
		}
		var reports []brellium.UploadProgress
		var inside atomic.Int32
		begun := time.Now()
		_, err := testkit.NewClient(t, emu).Documents.Upload(t.Context(), files, brellium.UploadOptions{Concurrency: 2, OnProgress: func(p brellium.UploadProgress) {
			assert.EqualValues(t, 1, inside.Add(1), "calls overlap")
			reports = append(reports, p)
			if len(reports) < 3 {
				time.Sleep(1900 * time.Millisecond)
			}
			inside.Add(-1)
		}})
		require.NoError(t, err)
		assert.Equal(t, 4*time.Second, time.Since(begun), "the callback delayed the files")
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
	synctest.Test(t, func(t *testing.T) {
		emu := brelliumtest.New()
		emu.Inject(brelliumtest.OpDocumentCreate, brelliumtest.OK(), brelliumtest.Status(422, "UNPROCESSABLE"))
		results, err := testkit.NewClient(t, emu).Documents.Upload(t.Context(), someFiles(6), brellium.UploadOptions{BatchSize: 2})
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

func TestUploadEndsWhenTheAPIDoesNotWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		emu := brelliumtest.New()
		emu.Inject(brelliumtest.OpDocumentCreate, brelliumtest.OK(), brelliumtest.Status(503, "UNAVAILABLE").Forever())
		results, err := testkit.NewClient(t, emu).Documents.Upload(t.Context(), someFiles(6), brellium.UploadOptions{BatchSize: 2})
		assert.Equal(t, []brellium.UploadStatus{"stored", "stored", "failed", "failed", "not started", "not started"}, statuses(results))
		require.ErrorIs(t, err, brellium.ErrServer)
		require.ErrorIs(t, results[5].Err, brellium.ErrServer)
		assert.Equal(t, 6, emu.Count(brelliumtest.OpDocumentCreate), "one, and five attempts at the second")
		assert.Contains(t, err.Error(), "2 of 6 files failed, 2 not started")
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
			var invalid *brellium.ValidationError
			require.ErrorAs(t, err, &invalid)
			assert.Equal(t, field, invalid.Field)
			assert.Nil(t, results)
		})
	}
	results, err := client.Documents.Upload(t.Context(), nil, brellium.UploadOptions{})
	require.NoError(t, err)
	assert.Empty(t, results)
	assert.Zero(t, emu.Count(brelliumtest.OpAny))
}

func TestUploadURLIsSentByteForByteAndOnlyWhereItMayGo(t *testing.T) {
	// A fake of both hosts: what the URL is depends on the case.
	var address atomic.Value
	var line atomic.Value
	storage := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		line.Store(r.RequestURI)
	}))
	defer storage.Close()
	respond := func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodPut {
			return http.DefaultTransport.RoundTrip(r)
		}
		body, _ := json.Marshal(map[string]any{"documents": []any{map[string]any{
			"document_id": "d", "external_id": "e", "filename": "f", "status": "todo", "upload_url": address.Load()}}})
		return &http.Response{StatusCode: 201, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(body)), Request: r}, nil
	}
	upload := func(t *testing.T, base, to string) error {
		address.Store(to)
		line.Store("")
		client, err := brellium.NewClient(brellium.WithBaseURL(base), brellium.WithAccessToken("t"),
			testkit.WithTransport(testkit.RoundTripFunc(respond)))
		require.NoError(t, err)
		file := someFiles(1)[0]
		file.ExternalID = "e"
		_, err = client.Documents.Upload(t.Context(), []brellium.UploadFile{file}, brellium.UploadOptions{}, brellium.WithMaxRetries(0))
		return err
	}
	for _, target := range []string{
		"/bucket/a%2fb%20c.pdf?X-Signature=a%2Bb%2f&X-Amz=%7e~&empty=",
		"/bucket/%41%7E/..%2f/./x?b=2&a=1&a=0",
		"/bucket/(a)*'!|\"<>^`{}?x={|}",
	} {
		require.NoError(t, upload(t, "http://localhost:1", storage.URL+target), target)
		assert.Equal(t, target, line.Load())
	}
	const secretURL = "/bucket/jane-doe?X-Signature=5ecre7"
	for _, test := range []struct{ base, to string }{
		{"https://api.brellium.com", storage.URL + secretURL}, // plain http, and the API is elsewhere
		{"http://localhost:1", "http://storage.example.com" + secretURL},
		{"http://localhost:1", "https:" + secretURL},
	} {
		err := upload(t, test.base, test.to)
		var failed *brellium.UploadError
		require.ErrorAs(t, err, &failed, test.to)
		assert.Empty(t, line.Load(), test.to)
		assert.NotContains(t, fmt.Sprintf("%v %+v %#v", err, failed, err), "jane-doe")
	}
}

func TestUploadDoesNotFollowARedirectOrRetryARejection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		emu := brelliumtest.New()
		client := testkit.NewClient(t, emu)
		for i, test := range []struct {
			fault  brelliumtest.Fault
			status int
			code   string
		}{
			{brelliumtest.Redirect(307, "https://elsewhere.example.com/x"), 307, ""},
			{brelliumtest.Status(401, "Unauthorized"), 401, "Unauthorized"},
			{brelliumtest.Status(400, "InvalidArgument"), 400, "InvalidArgument"},
			{brelliumtest.Status(403, "SignatureDoesNotMatch"), 403, "SignatureDoesNotMatch"},
			{brelliumtest.Status(404, "NoSuchBucket"), 404, "NoSuchBucket"},
		} {
			emu.Inject(brelliumtest.OpDocumentPut, test.fault)
			file := someFiles(1)[0]
			file.ExternalID = strconv.Itoa(i)
			_, err := client.Documents.Upload(t.Context(), []brellium.UploadFile{file}, brellium.UploadOptions{})
			var failed *brellium.UploadError
			require.ErrorAs(t, err, &failed)
			assert.Equal(t, test.status, failed.StatusCode)
			assert.Equal(t, test.code, failed.Code)
			assert.False(t, failed.Expired)
			assert.Equal(t, i+1, emu.Count(brelliumtest.OpDocumentPut))
			assert.Equal(t, i+1, emu.Count(brelliumtest.OpDocumentCreate))
		}
	})
}

func TestUploadRetriesTransientFailures(t *testing.T) {
	for name, fault := range map[string]brelliumtest.Fault{
		"408":      brelliumtest.Status(408, "RequestTimeout"),
		"429":      brelliumtest.Status(429, "SlowDown"),
		"500":      brelliumtest.Status(500, "InternalError"),
		"502":      brelliumtest.HTML(502),
		"503":      brelliumtest.Status(503, "SlowDown").WithHeader("Retry-After", "3"),
		"dropped":  brelliumtest.DropBefore(),
		"reset":    brelliumtest.DropReading(),
		"dial":     brelliumtest.NeverSent(),
		"unsent":   brelliumtest.Unsent(),
		"cut off":  brelliumtest.Status(500, "InternalError").Truncated(),
		"stalled":  brelliumtest.OK().Delay(time.Hour),
		"long 5xx": brelliumtest.LargeBody(503, 1<<20),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				emu := brelliumtest.New()
				emu.Inject(brelliumtest.OpDocumentPut, fault)
				results, err := testkit.NewClient(t, emu).Documents.Upload(t.Context(), someFiles(1), brellium.UploadOptions{})
				require.NoError(t, err)
				assert.Equal(t, 2, results[0].Attempts)
				doc := emu.Documents()[0]
				assert.Equal(t, testkit.Digest(testkit.Content(0, 1000)), doc.SHA256)
			})
		})
	}
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
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				emu := brelliumtest.New()
				emu.Inject(brelliumtest.OpDocumentCreate, brelliumtest.Respond(201, "application/json", test.response).Forever())
				file := someFiles(1)[0]
				file.ExternalID = "e"
				results, err := testkit.NewClient(t, emu).Documents.Upload(t.Context(), []brellium.UploadFile{file}, brellium.UploadOptions{})
				assert.Equal(t, test.want, results[0].Status)
				assert.Equal(t, test.want == brellium.UploadFailed, err != nil)
				assert.Zero(t, emu.Count(brelliumtest.OpDocumentPut))
			})
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

func TestUploadOverTLSAndHTTP2(t *testing.T) {
	data := testkit.Content(1, 3<<20)
	file, _ := fileOnDisk(t, "path.pdf", data)
	short, long := file, file
	short.Filename, short.ExternalID, short.Size = "short.pdf", "short", file.Size+1
	short.Open = func() (io.ReadCloser, error) { return io.NopCloser(slowReader{bytes.NewReader(data)}), nil }
	long.Filename, long.ExternalID, long.Size, long.Open = "long.pdf", "long", file.Size-1, short.Open
	files := []brellium.UploadFile{
		file, brellium.FileFromBytes("bytes.pdf", data), brellium.FileFromBytes("empty.txt", nil), short, long,
	}

	var emu *brelliumtest.Emulator
	var protocols sync.Map
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		protocols.Store(r.Proto, true)
		emu.Handler().ServeHTTP(w, r)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	emu = brelliumtest.New(brelliumtest.WithStorageURL(server.URL))
	client, err := brellium.NewClient(brellium.WithBaseURL(server.URL), brellium.WithHTTPClient(server.Client()),
		brellium.WithClientCredentials(emu.ClientID, emu.ClientSecret))
	require.NoError(t, err)

	results, err := client.Documents.Upload(t.Context(), files, brellium.UploadOptions{})
	require.Error(t, err)
	assert.Equal(t, []brellium.UploadStatus{"stored", "stored", "stored", "failed", "failed"}, statuses(results))
	require.ErrorContains(t, results[3].Err, "shorter than its Size")
	require.ErrorContains(t, results[4].Err, "longer than its Size")
	assert.Equal(t, 1, results[3].Attempts)
	assert.Equal(t, 1, results[4].Attempts)
	for i, want := range [][]byte{data, data, nil} {
		doc, found := emu.Document(results[i].DocumentID)
		require.True(t, found)
		assert.Equal(t, testkit.Digest(want), doc.SHA256)
	}
	for _, id := range []string{"short", "long"} {
		doc, found := emu.Document(id)
		require.True(t, found)
		assert.False(t, doc.Arrived)
	}
	for _, put := range emu.Requests(brelliumtest.OpDocumentPut) {
		assert.False(t, put.Chunked)
	}
	_, http1 := protocols.Load("HTTP/1.1")
	assert.False(t, http1)
}

// A storage host that rejects at once, without reading the file.
func TestUploadReadsARejectionThatComesBeforeTheFileIsSent(t *testing.T) {
	emu := brelliumtest.New()
	var rejected atomic.Int32
	client := onPortWithPut(t, emu, func(w http.ResponseWriter, r *http.Request) {
		if rejected.Add(1) == 1 {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>`)
			return
		}
		emu.Handler().ServeHTTP(w, r)
	})
	data := testkit.Content(1, 8<<20)
	_, err := client.Documents.Upload(t.Context(), []brellium.UploadFile{brellium.FileFromBytes("large.pdf", data)}, brellium.UploadOptions{})
	require.NoError(t, err)
	assert.Equal(t, testkit.Digest(data), emu.Documents()[0].SHA256)
	assert.Equal(t, 1, emu.Documents()[0].Puts)
	assert.Equal(t, 2, emu.Count(brelliumtest.OpDocumentCreate), "the rejection was not read")
}

func TestPutSendsTheGivenHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		emu := brelliumtest.New()
		client := testkit.NewClient(t, emu)
		created, err := client.Documents.Create(t.Context(), brellium.DocumentCreateParams{Documents: []brellium.DocumentInput{{Filename: "a.pdf"}}})
		require.NoError(t, err)
		var response brellium.Response
		to := created.Documents[0].UploadURL
		err = client.Documents.Put(t.Context(), to, someFiles(1)[0], brellium.WithHeader("X-Amz-Acl", "private"), brellium.WithResponseInto(&response))
		require.NoError(t, err)
		put := emu.Requests(brelliumtest.OpDocumentPut)[0]
		assert.Equal(t, "private", put.Header.Get("X-Amz-Acl"))
		assert.Empty(t, put.Header.Get("Authorization"))
		assert.Equal(t, 200, response.StatusCode)
		assert.Len(t, response.Attempts, 1)

		var invalid *brellium.ValidationError
		require.ErrorAs(t, client.Documents.Put(t.Context(), brellium.UploadURL{}, someFiles(1)[0]), &invalid)
		assert.Equal(t, "to", invalid.Field)
		require.ErrorAs(t, client.Documents.Put(t.Context(), to, brellium.UploadFile{Filename: "a.pdf"}), &invalid)
		assert.Equal(t, "file.Open", invalid.Field)
		require.ErrorAs(t, client.Documents.Put(t.Context(), to, someFiles(1)[0], brellium.WithPrefetch()), &invalid)
	})
}

// The storage host accepts the connection and reads nothing.
func TestUploadOfAFileThatNobodyReadsEnds(t *testing.T) {
	file, _ := fileOnDisk(t, "visit.pdf", testkit.Content(1, 32<<20))
	release := make(chan struct{})
	client := onPortWithPut(t, brelliumtest.New(), func(http.ResponseWriter, *http.Request) { <-release })
	defer close(release)
	var last brellium.UploadProgress
	results, err := client.Documents.Upload(t.Context(), []brellium.UploadFile{file}, brellium.UploadOptions{
		IdleTimeout: 400 * time.Millisecond,
		OnProgress: func(p brellium.UploadProgress) {
			if p.FilesFailed == 0 {
				last = p
			}
		},
	}, brellium.WithMaxRetries(0))
	var lost *brellium.ConnectionError
	require.ErrorAs(t, err, &lost)
	assert.True(t, lost.Timeout())
	assert.Equal(t, 1, results[0].Attempts)
	assert.Positive(t, last.BytesDone, "the bytes in flight were not reported")
	assert.Less(t, last.BytesDone, last.Bytes)
}
