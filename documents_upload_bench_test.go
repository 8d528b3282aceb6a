package brellium_test

import (
	"context"
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/internal/testkit"
)

var uploadSize = flag.Int64("upload-size", 1<<30, "size in bytes of the file that BenchmarkUpload sends; -short makes it 64 MiB")

// BenchmarkUpload sends a file to a server on loopback, over plain HTTP and over
// TLS, each time in three ways: with Upload, with a bare net/http PUT of the
// *os.File, and with a bare PUT of a plain reader of it. It reports the median
// throughput of each, the median ratio of Upload to each of the others, and how
// much more memory than the PUT of the *os.File Upload used at its peak:
//
//	go test -run '^$' -bench '^BenchmarkUpload$' -benchtime 9x .
func BenchmarkUpload(b *testing.B) {
	size := *uploadSize
	if testing.Short() {
		size = 64 << 20
	}
	path := filepath.Join(b.TempDir(), "visit.pdf")
	file, err := os.Create(path)
	require.NoError(b, err)
	_, err = io.Copy(file, io.LimitReader(repeated(testkit.Content(1, 1<<20)), size))
	require.NoError(b, err)
	require.NoError(b, file.Close())

	b.Run("http", func(b *testing.B) { benchmarkUpload(b, httptest.NewServer, path, size) })
	b.Run("tls", func(b *testing.B) { benchmarkUpload(b, httptest.NewTLSServer, path, size) })
}

// repeated is an endless reader.
type repeated []byte

func (r repeated) Read(p []byte) (int, error) { return copy(p, r), nil }

func benchmarkUpload(b *testing.B, serve func(http.Handler) *httptest.Server, path string, size int64) {
	var server *httptest.Server
	server = serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		switch {
		case r.Method == http.MethodPost:
			w.WriteHeader(http.StatusCreated)
			_ = json.NewEncoder(w).Encode(map[string]any{"documents": []any{map[string]any{
				"document_id": "d", "external_id": "visit", "filename": "visit.pdf", "status": "todo", "upload_url": server.URL + "/visit"}}})
		case err != nil || n != size:
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	defer server.Close()

	client, err := brellium.NewClient(brellium.WithBaseURL(server.URL), brellium.WithAccessToken("t"),
		brellium.WithHTTPClient(server.Client()), brellium.WithoutRateLimiter())
	require.NoError(b, err)
	upload := func() error {
		f, err := brellium.FileFromPath(path)
		if err != nil {
			return err
		}
		f.ExternalID = "visit" // otherwise the file is read again for its digest
		_, err = client.Documents.Upload(context.Background(), []brellium.UploadFile{f}, brellium.UploadOptions{
			OnProgress: func(brellium.UploadProgress) {},
		})
		return err
	}
	put := func(body func(*os.File) io.ReadCloser) func() error {
		return func() error {
			f, err := os.Open(path)
			if err != nil {
				return err
			}
			req, err := http.NewRequestWithContext(context.Background(), http.MethodPut, server.URL+"/visit", body(f))
			if err != nil {
				return err
			}
			req.ContentLength = size
			resp, err := server.Client().Do(req)
			if err != nil {
				return err
			}
			_, err = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			return err
		}
	}
	ways := []struct {
		send func() error
		took []time.Duration
		peak uint64
	}{
		{send: upload},
		{send: put(func(f *os.File) io.ReadCloser { return f })},
		{send: put(func(f *os.File) io.ReadCloser { return struct{ io.ReadCloser }{f} })},
	}
	require.NoError(b, ways[1].send()) // fills the page cache
	for i := 0; b.Loop(); i++ {
		for j := range ways {
			way := &ways[(i+j)%len(ways)]
			runtime.GC()
			stop := watchMemory(&way.peak)
			start := time.Now()
			err := way.send()
			way.took = append(way.took, time.Since(start))
			stop()
			require.NoError(b, err)
		}
	}
	// The median of f over all rounds, since other programs run too.
	report := func(unit string, f func(round int) float64) {
		values := make([]float64, b.N)
		for round := range values {
			values[round] = f(round)
		}
		slices.Sort(values)
		b.ReportMetric(values[b.N/2], unit)
	}
	for i, name := range []string{"upload", "file", "reader"} {
		report(name+"-MB/s", func(round int) float64 { return float64(size) / 1e6 / ways[i].took[round].Seconds() })
		if i > 0 {
			report("ratio-to-"+name, func(round int) float64 { return float64(ways[i].took[round]) / float64(ways[0].took[round]) })
		}
	}
	b.ReportMetric((float64(ways[0].peak)-float64(ways[1].peak))/(1<<20), "more-MiB")
}

// watchMemory notes the peak of the memory in use until it is stopped.
func watchMemory(peak *uint64) (stop func()) {
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for tick := time.NewTicker(5 * time.Millisecond); ; {
			var stats runtime.MemStats
			runtime.ReadMemStats(&stats)
			*peak = max(*peak, stats.HeapInuse+stats.StackInuse)
			select {
			case <-done:
				tick.Stop()
				return
			case <-tick.C:
			}
		}
	})
	return func() {
		close(done)
		watching.Wait()
	}
}
