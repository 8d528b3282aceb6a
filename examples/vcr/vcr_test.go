// Package vcr_test contains the code of docs/testing.md for go-vcr, and runs it
// against the emulator.
package vcr_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gopkg.in/dnaeon/go-vcr.v4/pkg/cassette"
	"gopkg.in/dnaeon/go-vcr.v4/pkg/recorder"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

// NewRecorder returns a transport that records into a cassette, or replays it if
// it exists.
func NewRecorder(name string) (*recorder.Recorder, error) {
	return recorder.New(name,
		recorder.WithSkipRequestLatency(true),
		recorder.WithMatcher(func(r *http.Request, recorded cassette.Request) bool {
			return r.Method == recorded.Method && r.URL.String() == recorded.URL
		}),
		recorder.WithHook(Scrub, recorder.BeforeSaveHook))
}

// Scrub removes credentials from what is saved.
func Scrub(i *cassette.Interaction) error {
	i.Request.Headers.Del("Authorization")
	if strings.HasSuffix(i.Request.URL, "/v2/oauth/token") {
		i.Request.Body = ""
		i.Response.Body = `{"access_token": "recorded", "token_type": "Bearer", "expires_in": 3600}`
	}
	return nil
}

func TestRecordAndReplay(t *testing.T) {
	emulator := brelliumtest.New(brelliumtest.WithCredentials("vcr-id", "vcr-secret"))
	var sent []string // secrets that the server saw
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "); token != "" {
			sent = append(sent, token)
		}
		emulator.Handler().ServeHTTP(w, r)
	}))
	defer server.Close()
	name := filepath.Join(t.TempDir(), "users")
	create := func() error {
		rec, err := NewRecorder(name)
		if err != nil {
			t.Fatal(err)
		}
		client, err := brellium.NewClient(brellium.WithBaseURL(server.URL), brellium.WithClientCredentials("vcr-id", "vcr-secret"),
			brellium.WithHTTPClient(&http.Client{Transport: rec}), brellium.WithMaxRetries(0))
		if err != nil {
			t.Fatal(err)
		}
		user, err := client.Users.Create(t.Context(), brellium.UserCreateParams{Email: "casey@example.test"})
		if err != nil {
			t.Fatal(err)
		}
		if user.Email != "casey@example.test" {
			t.Errorf("email %q", user.Email)
		}
		_, err = client.Users.Retrieve(t.Context(), user.UserID)
		if stopped := rec.Stop(); stopped != nil {
			t.Fatal(stopped)
		}
		return err
	}
	if err := create(); err != nil {
		t.Fatal(err)
	}
	tape, err := os.ReadFile(name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(sent) != 2 || strings.Count(string(tape), "\n    - id: ") != 3 {
		t.Fatalf("%d calls, and the cassette is\n%s", len(sent), tape)
	}
	for _, secret := range append(sent, "vcr-id", "vcr-secret", "Bearer e") {
		if strings.Contains(string(tape), secret) {
			t.Errorf("the cassette shows %q:\n%s", secret, tape)
		}
	}

	server.Close() // replaying needs none
	if err := create(); err != nil {
		t.Fatal(err)
	}

	// A request that was not recorded.
	rec, err := NewRecorder(name)
	if err != nil {
		t.Fatal(err)
	}
	client, err := brellium.NewClient(brellium.WithBaseURL(server.URL), brellium.WithAccessToken("test"),
		brellium.WithHTTPClient(&http.Client{Transport: rec}), brellium.WithMaxRetries(0))
	if err != nil {
		t.Fatal(err)
	}
	if _, err = client.Audits.Retrieve(t.Context(), "a1"); !errors.Is(err, cassette.ErrInteractionNotFound) {
		t.Error(err)
	}
}
