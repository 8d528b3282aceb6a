package brellium_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
	"github.com/brellium/brellium-go/internal/testkit"
)

// penpot/penpot#10776, danialfarid/ng-file-upload#382
func TestUploadSendsNoTokenToStorage(t *testing.T) {
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

	testkit.Bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
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
	testkit.Bubble(t, "every document has an external id", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpDocumentPut, testkit.ExpiredURL())
		results, err := client.Documents.Upload(t.Context(), someFiles(1), brellium.UploadOptions{})
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
	testkit.Bubble(t, "no document has one", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpDocumentPut, testkit.ExpiredURL())
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
	testkit.Bubble(t, "expired again", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpDocumentPut, testkit.ExpiredURL().Forever())
		results, err := client.Documents.Upload(t.Context(), someFiles(1), brellium.UploadOptions{})
		var failed *brellium.UploadError
		require.ErrorAs(t, err, &failed)
		assert.True(t, failed.Expired)
		assert.Equal(t, brellium.UploadFailed, results[0].Status)
		assert.Equal(t, 2, emu.Count(brelliumtest.OpDocumentCreate))
		assert.Equal(t, 2, emu.Count(brelliumtest.OpDocumentPut))
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
	testkit.Bubble(t, "slow", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpDocumentPut, brelliumtest.OK().SlowRead(time.Second).Forever())
		results, err := client.Documents.Upload(t.Context(), []brellium.UploadFile{file}, brellium.UploadOptions{IdleTimeout: 500 * time.Millisecond})
		require.NoError(t, err)
		assert.Equal(t, 1, results[0].Attempts)
	}, brellium.WithAttemptTimeout(200*time.Millisecond))
	testkit.Bubble(t, "very slow", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpDocumentPut, brelliumtest.OK().SlowRead(10*time.Minute).Forever())
		results, err := client.Documents.Upload(t.Context(), []brellium.UploadFile{file}, brellium.UploadOptions{})
		require.NoError(t, err)
		assert.Equal(t, 1, results[0].Attempts)
	})
	testkit.Bubble(t, "silent", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpDocumentPut, brelliumtest.OK().Delay(1000*time.Hour).Forever())
		start := time.Now()
		_, err := client.Documents.Upload(t.Context(), []brellium.UploadFile{file}, brellium.UploadOptions{IdleTimeout: 10 * time.Second}, brellium.WithMaxRetries(0))
		var lost *brellium.ConnectionError
		require.ErrorAs(t, err, &lost)
		assert.True(t, lost.Timeout())
		assert.Contains(t, err.Error(), "idle")
		require.NotErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		assert.LessOrEqual(t, time.Since(start), 23*time.Second)
		assert.GreaterOrEqual(t, time.Since(start), 20*time.Second, "10 s, and 10 s for what may be in buffers")
	})
	testkit.Bubble(t, "silent, and the caller's deadline passes", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		emu.Inject(brelliumtest.OpDocumentPut, brelliumtest.OK().Delay(1000*time.Hour).Forever())
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start := time.Now()
		results, err := client.Documents.Upload(ctx, []brellium.UploadFile{file}, brellium.UploadOptions{})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 3*time.Second, time.Since(start))
		assert.Equal(t, brellium.UploadFailed, results[0].Status)
	})
}

// The last megabytes of a file are in buffers of the system, from which a slow
// reader takes them without a sign.
func TestUploadThatIsBufferedIsNotCutOff(t *testing.T) {
	emu := brelliumtest.New()
	client := onPortWithPut(t, emu, func(w http.ResponseWriter, r *http.Request) {
		r.Body = io.NopCloser(&pacedReader{r.Body, time.Now()})
		emu.Handler().ServeHTTP(w, r)
	})
	file := brellium.FileFromBytes("visit.pdf", testkit.Content(1, 4<<20))
	results, err := client.Documents.Upload(t.Context(), []brellium.UploadFile{file},
		brellium.UploadOptions{IdleTimeout: 400 * time.Millisecond}, brellium.WithMaxRetries(0))
	require.NoError(t, err)
	assert.Equal(t, brellium.UploadStored, results[0].Status)
}

// pacedReader returns 3 MiB a second.
type pacedReader struct {
	r    io.Reader
	next time.Time
}

func (r *pacedReader) Read(p []byte) (int, error) {
	time.Sleep(time.Until(r.next))
	r.next = r.next.Add(10 * time.Millisecond)
	return io.ReadFull(r.r, p[:min(len(p), 32<<10)])
}

// A file whose response was lost is sent again only if the API says that it has
// not arrived.
func TestUploadAsksBeforeResendingWhatMayHaveArrived(t *testing.T) {
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
		testkit.Bubble(t, name, func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
			emu.Inject(brelliumtest.OpDocumentPut, test.fault)
			results, err := client.Documents.Upload(t.Context(), someFiles(1), brellium.UploadOptions{})
			require.NoError(t, err)
			assert.Equal(t, brellium.UploadStored, results[0].Status)
			docs := emu.Documents()
			require.Len(t, docs, 1)
			assert.Equal(t, 1, docs[0].Puts, "sent again after it had arrived")
			assert.Equal(t, testkit.Digest(testkit.Content(0, 1000)), docs[0].SHA256)
			assert.Equal(t, test.puts, results[0].Attempts)
			assert.Equal(t, 1+test.asked, emu.Count(brelliumtest.OpDocumentCreate))
		})
	}
}

func TestUploadURLIsSentByteForByteAndOnlyToAllowedHosts(t *testing.T) {
	// A fake of both hosts. The upload URL depends on the case.
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
	testkit.Bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
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
			file.ExternalID, file.ContentType = strconv.Itoa(i), "application/pdf"
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
		testkit.Bubble(t, name, func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
			emu.Inject(brelliumtest.OpDocumentPut, fault)
			results, err := client.Documents.Upload(t.Context(), someFiles(1), brellium.UploadOptions{})
			require.NoError(t, err)
			assert.Equal(t, 2, results[0].Attempts)
			doc := emu.Documents()[0]
			assert.Equal(t, testkit.Digest(testkit.Content(0, 1000)), doc.SHA256)
		})
	}
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

// CitrineInformatics/python-citrination-client#98, aws/aws-sdk-ruby#874
func TestUploadSendsItsHeaderToStorageOnly(t *testing.T) {
	testkit.Bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		const key = "X-Amz-Server-Side-Encryption"
		emu.Inject(brelliumtest.OpDocumentPut, brelliumtest.Status(403, "AccessDenied").Forever().When(func(r *brelliumtest.Request) bool {
			return r.Header.Get(key) != "AES256"
		}))
		header := http.Header{"x-amz-server-side-encryption": {"AES256"}}
		_, err := client.Documents.Upload(t.Context(), someFiles(2), brellium.UploadOptions{Header: header}, brellium.WithHeader("X-Clinic", "7"))
		require.NoError(t, err)
		for _, r := range emu.Requests(brelliumtest.OpAny) {
			if r.Operation == brelliumtest.OpDocumentPut {
				assert.Empty(t, r.Header.Get("X-Clinic"))
			} else {
				assert.Empty(t, r.Header.Get(key), r.Operation)
			}
		}
		for _, header := range []http.Header{{"Authorization": {"secret"}}, {"content-type": {"secret"}}, {"a b": {"secret"}}, {"X-A": {"fine", "secret\r\nB: c"}}} {
			_, err = client.Documents.Upload(t.Context(), someFiles(1), brellium.UploadOptions{Header: header})
			testkit.IsInvalid(t, err, "Header", "secret")
		}
	})
}

func TestUploadDropsAContentTypeThatTheSignatureDoesNotCover(t *testing.T) {
	const key = "Content-Type"
	mismatch := brelliumtest.Status(403, "SignatureDoesNotMatch").Forever()
	typed := func(r *brelliumtest.Request) bool { return r.Header.Get(key) != "" }
	for name, test := range map[string]struct {
		contentType string
		fault       brelliumtest.Fault
		sent        []string // the types of the PUTs
		stored      bool
	}{
		"from the extension":             {"", mismatch.When(typed), []string{"application/pdf", ""}, true},
		"from the extension, in vain":    {"", mismatch, []string{"application/pdf", ""}, false},
		"from the extension, other code": {"", brelliumtest.Status(403, "AccessDenied").Forever(), []string{"application/pdf"}, false},
		"named by the caller":            {"application/x-visit", mismatch.When(typed), []string{"application/x-visit"}, false},
		"none":                           {brellium.NoContentType, mismatch.When(typed), []string{""}, true},
		"none, in vain":                  {brellium.NoContentType, mismatch, []string{""}, false},
	} {
		testkit.Bubble(t, name, func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
			emu.Inject(brelliumtest.OpDocumentPut, test.fault)
			file := someFiles(1)[0]
			file.ContentType = test.contentType
			results, err := client.Documents.Upload(t.Context(), []brellium.UploadFile{file}, brellium.UploadOptions{})
			assert.Equal(t, test.stored, err == nil, "%v", err)
			assert.Equal(t, len(test.sent), results[0].Attempts)
			var sent []string
			for _, r := range emu.Requests(brelliumtest.OpDocumentPut) {
				sent = append(sent, r.Header.Get(key))
				assert.Equal(t, r.Header.Get(key) != "", r.Header[key] != nil)
			}
			assert.Equal(t, test.sent, sent)
		})
	}
}

// A transport that wraps, hides or overlooks the error of a body.
func TestABodyThatIsNotAsAnnouncedEndsTheUploadWhateverTheTransportMakesOfIt(t *testing.T) {
	for name, respond := range map[string]func(body []byte, err error) (*http.Response, error){
		"another error":   func(_ []byte, err error) (*http.Response, error) { return nil, errors.New("proxy: " + err.Error()) },
		"a 500":           func([]byte, error) (*http.Response, error) { return testkit.Reply(500, nil, ""), nil },
		"a success":       func([]byte, error) (*http.Response, error) { return testkit.Reply(200, nil, ""), nil },
		"its own retry":   func([]byte, error) (*http.Response, error) { return nil, io.ErrUnexpectedEOF },
		"a network error": func([]byte, error) (*http.Response, error) { return nil, &net.OpError{Op: "write", Err: syscall.EPIPE} },
	} {
		for _, size := range []int64{999, 1001} {
			t.Run(name+", size "+strconv.FormatInt(size, 10), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					emu := brelliumtest.New()
					created, err := testkit.NewClient(t, emu).Documents.Create(t.Context(), brellium.DocumentCreateParams{Documents: []brellium.DocumentInput{{Filename: "a.pdf"}}})
					require.NoError(t, err)
					puts := 0
					client := testkit.NewStubClient(t, func(r *http.Request) (*http.Response, error) {
						puts++
						body, err := io.ReadAll(r.Body)
						require.Error(t, err)
						return respond(body, err)
					})
					file := someFiles(1)[0]
					file.Size = size
					file.Open = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(testkit.Content(0, 1000))), nil }
					err = client.Documents.Put(t.Context(), created.Documents[0].UploadURL, file)
					var failed *brellium.UploadError
					require.ErrorAs(t, err, &failed)
					assert.Contains(t, err.Error(), map[int64]string{999: "longer than its Size", 1001: "shorter than its Size"}[size])
					assert.Equal(t, 1, puts)
				})
			})
		}
	}
}

func TestPutSendsTheGivenHeaders(t *testing.T) {
	testkit.Bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
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

		testkit.IsInvalid(t, client.Documents.Put(t.Context(), brellium.UploadURL{}, someFiles(1)[0]), "to", "")
		testkit.IsInvalid(t, client.Documents.Put(t.Context(), to, brellium.UploadFile{Filename: "a.pdf"}), "file.Open", "")
		testkit.IsInvalid(t, client.Documents.Put(t.Context(), to, someFiles(1)[0], brellium.WithPrefetch()), "WithPrefetch", "")
	})
}

// The storage host accepts the connection and reads nothing.
func TestUploadThatStorageDoesNotReadEnds(t *testing.T) {
	file, _ := fileOnDisk(t, "visit.pdf", testkit.Content(1, 32<<20))
	release := make(chan struct{})
	client := onPortWithPut(t, brelliumtest.New(), func(http.ResponseWriter, *http.Request) { <-release })
	defer close(release)
	var last brellium.UploadProgress
	results, err := client.Documents.Upload(t.Context(), []brellium.UploadFile{file}, brellium.UploadOptions{
		IdleTimeout: 150 * time.Millisecond,
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
