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
	"sync"
	"testing"
	"time"

	"github.com/brellium/brellium-go"
)

var uploadSize = flag.Int64("upload-size", 1<<30, "size in bytes of the file that BenchmarkUpload sends; -short makes it 64 MiB")

// BenchmarkUpload sends a file to a server on loopback, by turns with a bare
// net/http PUT and with Upload, and reports the ratio of the two and how much
// more memory Upload took at its peak:
//
//	go test -run '^$' -bench '^BenchmarkUpload$' -benchtime 10x .
func BenchmarkUpload(b *testing.B) {
	size := *uploadSize
	if testing.Short() {
		size = 64 << 20
	}
	path := filepath.Join(b.TempDir(), "visit.pdf")
	file, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	for chunk := content(1, 1<<20); size > 0 && err == nil; size -= int64(len(chunk)) {
		_, err = file.Write(chunk[:min(size, int64(len(chunk)))])
	}
	if err == nil {
		err = file.Close()
	}
	if err != nil {
		b.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		b.Fatal(err)
	}

	var server *httptest.Server
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		switch {
		case r.Method == http.MethodPost:
			w.WriteHeader(http.StatusCreated)
			_ = json.NewEncoder(w).Encode(map[string]any{"documents": []any{map[string]any{
				"document_id": "d", "external_id": "visit", "filename": "visit.pdf", "status": "todo", "upload_url": server.URL + "/visit"}}})
		case err != nil || n != info.Size():
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	defer server.Close()

	transport := http.DefaultTransport.(*http.Transport).Clone()
	defer transport.CloseIdleConnections()
	client, err := brellium.NewClient(brellium.WithBaseURL(server.URL), brellium.WithAccessToken("t"),
		brellium.WithHTTPClient(&http.Client{Transport: transport}), brellium.WithoutRateLimiter())
	if err != nil {
		b.Fatal(err)
	}
	upload := func() error {
		f, err := brellium.FileFromPath(path)
		if err != nil {
			return err
		}
		f.ExternalID = "visit" // else the file is read once more, for its digest
		_, err = client.Documents.Upload(context.Background(), []brellium.UploadFile{f}, brellium.UploadOptions{
			OnProgress: func(brellium.UploadProgress) {},
		})
		return err
	}
	bare := func() error {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		req, err := http.NewRequestWithContext(context.Background(), http.MethodPut, server.URL+"/visit", f)
		if err != nil {
			return err
		}
		req.ContentLength = info.Size()
		resp, err := (&http.Client{Transport: transport}).Do(req)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		return err
	}

	var took [2]time.Duration
	var peak [2]uint64
	measure := func(which int, send func() error) {
		runtime.GC()
		stop := watchMemory(&peak[which])
		begun := time.Now()
		err := send()
		took[which] += time.Since(begun)
		stop()
		if err != nil {
			b.Fatal(err)
		}
	}
	measure(0, bare) // fills the page cache
	took, peak = [2]time.Duration{}, [2]uint64{}
	b.SetBytes(info.Size())
	for i := 0; b.Loop(); i++ {
		if i%2 == 0 {
			measure(0, bare)
			measure(1, upload)
		} else {
			measure(1, upload)
			measure(0, bare)
		}
	}
	perSecond := float64(info.Size()) * float64(b.N) / 1e6
	b.ReportMetric(perSecond/took[0].Seconds(), "bare-MB/s")
	b.ReportMetric(perSecond/took[1].Seconds(), "upload-MB/s")
	b.ReportMetric(took[0].Seconds()/took[1].Seconds(), "ratio")
	b.ReportMetric((float64(peak[1])-float64(peak[0]))/(1<<20), "more-MiB")
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
