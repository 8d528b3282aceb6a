package e2e_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
)

type panickingReader struct{}

func (panickingReader) Read([]byte) (int, error) { panic(marker) }

// net/http reads the body of a request in a goroutine of its own.
func TestPanicOfAFilesReaderReachesTheCaller(t *testing.T) {
	for _, setUp := range []func(*httptest.Server){nil, (*httptest.Server).StartTLS, func(s *httptest.Server) { s.EnableHTTP2 = true; s.StartTLS() }} {
		server, _ := serve(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }, setUp)
		var to brellium.UploadURL
		require.NoError(t, json.Unmarshal([]byte(`"`+server.URL+`/bucket/file"`), &to))
		client := via(t, server.URL, newTransport(t, server))
		file := brellium.UploadFile{Filename: "a.pdf", Size: 5, Open: func() (io.ReadCloser, error) { return io.NopCloser(panickingReader{}), nil }}
		assert.PanicsWithValue(t, marker, func() { _ = client.Documents.Put(t.Context(), to, file) })
		assert.NoError(t, client.Documents.Put(t.Context(), to, brellium.FileFromBytes("a.pdf", []byte("12345"))))
	}
}
