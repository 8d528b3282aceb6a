package brellium_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/jarcoal/httpmock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
	"github.com/brellium/brellium-go/internal/testkit"
)

// Short names for ratelimit_client_test.go.
var (
	newClient      = testkit.NewTokenClient
	resourceClient = testkit.NewClient
	retrieve       = testkit.Retrieve
	bubble         = testkit.Bubble
	sideBySide     = testkit.Concurrently
	refusal        = testkit.RateLimited
)

type roundTripper = testkit.RoundTripFunc

// resourceMock is a client with a mock transport.
func resourceMock(t testing.TB, opts ...brellium.ClientOption) (*brellium.Client, *httpmock.MockTransport) {
	t.Helper()
	mock := httpmock.NewMockTransport()
	client, err := brellium.NewClient(append([]brellium.ClientOption{
		testkit.WithTransport(mock),
		brellium.WithAccessToken("token-of-a-test"),
		brellium.WithoutRateLimiter(), // which would pace responses without headers
	}, opts...)...)
	require.NoError(t, err)
	return client, mock
}

// pagesByCursor responds to GET path with the page of the query's cursor.
func pagesByCursor(t *testing.T, mock *httpmock.MockTransport, path string, pages map[string]string) *[]url.Values {
	t.Helper()
	var queries []url.Values
	mock.RegisterResponder(http.MethodGet, path, func(r *http.Request) (*http.Response, error) {
		q := r.URL.Query()
		queries = append(queries, q)
		page, ok := pages[q.Get("cursor")]
		if !assert.True(t, ok, "no page for the cursor %q", q.Get("cursor")) {
			return httpmock.NewStringResponse(404, ""), nil
		}
		return httpmock.NewStringResponse(200, page), nil
	})
	return &queries
}

// readAll ranges over a sequence to its end.
func readAll[T any](seq func(func(*T, error) bool)) (items []*T, err error) {
	for item, e := range seq {
		if e != nil {
			err = e
			continue // an item after an error would be wrong; the caller sees it
		}
		items = append(items, item)
	}
	return items, err
}

func auditIDs(audits []*brellium.Audit) []string {
	ids := make([]string, len(audits))
	for i, a := range audits {
		ids[i] = a.AuditID
	}
	return ids
}

// withoutEnvironment hides the credentials of the person who runs the tests.
func withoutEnvironment(t *testing.T) {
	t.Helper()
	for _, name := range []string{"BRELLIUM_ACCESS_TOKEN", "BRELLIUM_CLIENT_ID", "BRELLIUM_CLIENT_SECRET", "BRELLIUM_BASE_URL"} {
		t.Setenv(name, "")
	}
}

const ada = "ada.secret@example.test"

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

// slowReader hides every method of a reader but Read, which returns little at a
// time.
type slowReader struct{ r io.Reader }

func (r slowReader) Read(p []byte) (int, error) { return r.r.Read(p[:min(len(p), 1000)]) }

// headersAdded is an observer that adds these headers to each request.
type headersAdded http.Header

func (headersAdded) Observe(ctx context.Context, _ brellium.Event) context.Context { return ctx }
func (h headersAdded) RequestHeader(context.Context) http.Header                   { return http.Header(h) }
