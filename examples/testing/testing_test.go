// Package testing_test contains the code of docs/testing.md. A test of internal/e2e
// checks that the two are equal.
package testing_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jarcoal/httpmock"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

// InviteAll invites every address that is not a user yet.
func InviteAll(ctx context.Context, client *brellium.Client, emails ...string) error {
	for _, email := range emails {
		if _, err := client.Users.Ensure(ctx, brellium.UserCreateParams{Email: email}); err != nil {
			return err
		}
	}
	return nil
}

func TestInviteAll(t *testing.T) {
	emulator := brelliumtest.New()
	client, err := emulator.Client()
	if err != nil {
		t.Fatal(err)
	}
	if err := InviteAll(t.Context(), client, "casey@example.test", "robin@example.test"); err != nil {
		t.Fatal(err)
	}
	if n := emulator.Invitations("casey@example.test"); n != 1 {
		t.Errorf("%d invitations, want 1", n)
	}
}

func TestInviteAllWhenAResponseIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		emulator := brelliumtest.New()
		emulator.Inject(brelliumtest.OpUserCreate, brelliumtest.DropAfter()) // the user is created, the response is lost
		client, err := emulator.Client()
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if err := InviteAll(t.Context(), client, "casey@example.test"); err != nil {
			t.Fatal(err)
		}
		if n := emulator.Invitations("casey@example.test"); n != 1 {
			t.Errorf("%d invitations, want 1", n)
		}
		if time.Since(start) < time.Second { // of virtual time
			t.Error("Ensure asked again too soon")
		}
	})
}

func TestWithHTTPMock(t *testing.T) {
	httpmock.Activate(t) // replaces http.DefaultTransport until the test ends
	httpmock.RegisterNoResponder(httpmock.NewNotFoundResponder(t.Fatal))
	httpmock.RegisterResponder("GET", "https://api.brellium.com/v2/audits/a1",
		httpmock.NewStringResponder(200, `{"audit_id": "a1", "status": "complete"}`))

	client, err := brellium.NewClient(brellium.WithAccessToken("test"), brellium.WithMaxRetries(0),
		brellium.WithBaseURL("https://api.brellium.com")) // whatever BRELLIUM_BASE_URL says
	if err != nil {
		t.Fatal(err)
	}
	audit, err := client.Audits.Retrieve(t.Context(), "a1")
	if err != nil {
		t.Fatal(err)
	}
	if audit.Status != "complete" {
		t.Errorf("status %q", audit.Status)
	}
}

func TestWithHTTPMockOnOneClient(t *testing.T) {
	hc := &http.Client{}
	client, err := brellium.NewClient(brellium.WithAccessToken("test"), brellium.WithMaxRetries(0), brellium.WithHTTPClient(hc))
	if err != nil {
		t.Fatal(err)
	}
	httpmock.ActivateNonDefault(hc) // before or after NewClient
	defer httpmock.DeactivateAndReset()
	httpmock.RegisterNoResponder(httpmock.NewNotFoundResponder(t.Fatal))
	httpmock.RegisterResponder("GET", "=~/v2/audits/", httpmock.NewStringResponder(404, `{"error": {"code": "NOT_FOUND"}}`))

	_, err = client.Audits.Retrieve(t.Context(), "a1")
	var e *brellium.APIError
	if !errors.As(err, &e) || e.StatusCode != http.StatusNotFound {
		t.Errorf("%v, want a 404", err)
	}
}

func TestRetriesWithHTTPMock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the waits between attempts take no time
		mock := httpmock.NewMockTransport()
		mock.RegisterNoResponder(httpmock.NewNotFoundResponder(t.Fatal))
		mock.RegisterResponder("GET", "=~/v2/audits/", httpmock.NewStringResponder(503, "").
			Then(httpmock.NewStringResponder(200, `{"audit_id": "a1"}`)))
		client, err := brellium.NewClient(brellium.WithAccessToken("test"), brellium.WithHTTPClient(&http.Client{Transport: mock}))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Audits.Retrieve(t.Context(), "a1"); err != nil {
			t.Fatal(err)
		}
		if n := mock.GetTotalCallCount(); n != 2 {
			t.Errorf("%d requests, want 2", n)
		}
	})
}

// Users is what Invite needs of the client; client.Users is one.
type Users interface {
	Create(ctx context.Context, params brellium.UserCreateParams, opts ...brellium.CallOption) (*brellium.User, error)
}

// Invite reports whether the invitation may have been sent.
func Invite(ctx context.Context, users Users, email string) (perhaps bool, err error) {
	_, err = users.Create(ctx, brellium.UserCreateParams{Email: email})
	return err == nil || brellium.OutcomeUnknown(err), err
}

type fakeUsers struct{ err error }

func (f fakeUsers) Create(context.Context, brellium.UserCreateParams, ...brellium.CallOption) (*brellium.User, error) {
	return nil, f.err
}

func TestInvite(t *testing.T) {
	for _, test := range []struct {
		err     error
		perhaps bool
	}{
		{&brellium.APIError{StatusCode: 409, Code: brellium.CodeUserExists}, false},
		{brelliumtest.OutcomeUnknownError("users.create", 503), true},
	} {
		if perhaps, _ := Invite(t.Context(), fakeUsers{test.err}, "casey@example.test"); perhaps != test.perhaps {
			t.Errorf("%v: %v, want %v", test.err, perhaps, test.perhaps)
		}
	}
}

var _ Users = (*brellium.UserService)(nil)
