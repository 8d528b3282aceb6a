package brellium_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/jarcoal/httpmock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/internal/testkit"
)

var (
	newClient      = testkit.NewTokenClient
	resourceClient = testkit.NewClient
	retrieve       = testkit.Retrieve
	bubble         = testkit.Bubble
	sideBySide     = testkit.Concurrently
	refusal        = testkit.RateLimited
)

type roundTripper = testkit.RoundTripFunc

// resourceMock is a client with a transport that answers what the test says.
func resourceMock(t testing.TB, opts ...brellium.ClientOption) (*brellium.Client, *httpmock.MockTransport) {
	t.Helper()
	mock := httpmock.NewMockTransport()
	client, err := brellium.NewClient(append([]brellium.ClientOption{
		testkit.WithTransport(mock),
		brellium.WithAccessToken("token-of-a-test"),
		brellium.WithoutRateLimiter(), // which would pace answers without headers
	}, opts...)...)
	require.NoError(t, err)
	return client, mock
}

// pagesByCursor answers GET path with the page that the query's cursor names.
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
			continue // whatever came after an error would be wrong, and is seen
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

// withoutEnvironment hides the credentials of whoever runs the tests.
func withoutEnvironment(t *testing.T) {
	t.Helper()
	for _, name := range []string{"BRELLIUM_ACCESS_TOKEN", "BRELLIUM_CLIENT_ID", "BRELLIUM_CLIENT_SECRET", "BRELLIUM_BASE_URL"} {
		t.Setenv(name, "")
	}
}
