// Command errors shows how to handle each error type of the client. It causes
// each error on the embedded emulator and needs no credentials.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// explain returns what to do about an error of any call. Errors that wrap
// others come first.
func explain(err error) string {
	var (
		invalid     *brellium.ValidationError
		interrupted *brellium.InterruptedError
		upload      *brellium.UploadError
		page        *brellium.PaginationError
		exhausted   *brellium.RetriesExhaustedError
		blocked     *brellium.BlockedError
		undecodable *brellium.DecodeError
		connection  *brellium.ConnectionError
		apiErr      *brellium.APIError
	)
	switch {
	case err == nil:
		return "no error"
	case errors.As(err, &invalid):
		return "invalid parameter: fix " + invalid.Field + " (nothing was sent)"
	case errors.As(err, &interrupted):
		return fmt.Sprintf("the caller's context ended (%v) after %d requests", interrupted.Err, interrupted.Attempts)
	case errors.As(err, &upload):
		return fmt.Sprintf("a file was not stored (status %d): upload the same files again, only missing ones are sent", upload.StatusCode)
	case errors.As(err, &page):
		return fmt.Sprintf("a list failed: resume from its cursor later (%t)", page.Cursor != "")
	case errors.As(err, &blocked):
		if blocked.RetryAt.IsZero() {
			return "blocked: pause, and check the content of this request"
		}
		return "blocked: the client sends nothing for a while"
	case errors.As(err, &exhausted):
		if wait, ok := brellium.RetryAfter(err); ok {
			return fmt.Sprintf("gave up (%s) after %d requests: retry in %s", exhausted.Reason, exhausted.Attempts, wait)
		}
		return fmt.Sprintf("gave up (%s) after %d requests: retry later", exhausted.Reason, exhausted.Attempts)
	case errors.As(err, &undecodable):
		return "unusable response: contact support about request " + present(undecodable.RequestID)
	case errors.As(err, &connection):
		return "no response: " + connection.Reason
	case errors.Is(err, brellium.ErrNotFound):
		return "not found"
	case errors.Is(err, brellium.ErrUnauthorized):
		return "invalid credentials: check them"
	case errors.As(err, &apiErr):
		switch apiErr.Code {
		case brellium.CodeInvitationPending, brellium.CodeUserExists:
			return "the user is already invited: nothing to do"
		case brellium.CodeHTTPError:
			return fmt.Sprintf("status %d without an error code: a gateway responded, not the API", apiErr.StatusCode)
		}
		return fmt.Sprintf("status %d, code %s: contact support about request %s", apiErr.StatusCode, apiErr.Code, present(apiErr.RequestID))
	}
	return "not an error of this client"
}

// present replaces a request id, which differs from run to run.
func present(requestID string) string {
	if requestID == "" {
		return "(none)"
	}
	return "(its id is in the error)"
}

// failure is a call that fails.
type failure struct {
	what   string
	inject func(*brelliumtest.Emulator)
	call   func(context.Context, *brellium.Client) error
}

func run(ctx context.Context, out io.Writer) error {
	for _, f := range failures {
		emulator := brelliumtest.New()
		emulator.SeedAudits(30)
		if f.inject != nil {
			f.inject(emulator)
		}
		client, err := emulator.Client()
		if err != nil {
			return err
		}
		err = f.call(ctx, client)
		fmt.Fprintf(out, "%s\n  -> %s\n", f.what, explain(err))
		// Check both before you retry a call yourself.
		fmt.Fprintf(out, "     transient: %t; may have run: %t\n", brellium.IsTransient(err), brellium.OutcomeUnknown(err))
	}
	return nil
}

func retrieve(ctx context.Context, client *brellium.Client) error {
	_, err := client.Audits.Retrieve(ctx, brelliumtest.SampleAuditID)
	return err
}

func invite(ctx context.Context, client *brellium.Client) error {
	_, err := client.Users.Create(ctx, brellium.UserCreateParams{Email: "casey@example.test"})
	return err
}

func inject(operation string, faults ...brelliumtest.Fault) func(*brelliumtest.Emulator) {
	return func(e *brelliumtest.Emulator) { e.Inject(operation, faults...) }
}

var failures = []failure{
	{"A blank id", nil, func(ctx context.Context, client *brellium.Client) error {
		_, err := client.Audits.Retrieve(ctx, " ")
		return err
	}},
	{"An unknown id", nil, func(ctx context.Context, client *brellium.Client) error {
		_, err := client.Audits.Retrieve(ctx, "no-such-audit")
		return err
	}},
	{"A user who is already invited", nil, func(ctx context.Context, client *brellium.Client) error {
		if err := invite(ctx, client); err != nil {
			return err
		}
		return invite(ctx, client)
	}},
	{"A 429 with a Retry-After longer than a call may wait", inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(429, "RATE_LIMITED").WithHeader("Retry-After", "300")), retrieve},
	{"A server that is down", inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(503, "UNAVAILABLE").Forever()),
		func(ctx context.Context, client *brellium.Client) error {
			_, err := client.Audits.Retrieve(ctx, brelliumtest.SampleAuditID, brellium.WithMaxRetries(1))
			return err
		}},
	{"An HTML error page in response to an invitation", inject(brelliumtest.OpUserCreate, brelliumtest.HTML(502)), invite},
	{"An invitation whose response is lost", inject(brelliumtest.OpUserCreate, brelliumtest.DropAfter()), invite},
	{"A success that is not JSON", inject(brelliumtest.OpUserCreate, brelliumtest.HTML(200)), invite},
	{"Invalid credentials", inject(brelliumtest.OpTokenCreate, brelliumtest.Status(401, "invalid_client")), retrieve},
	{"One bare 403", inject(brelliumtest.OpAuditRetrieve, brelliumtest.Blocked()), retrieve},
	{"Two consecutive bare 403s", inject(brelliumtest.OpAuditRetrieve, brelliumtest.Blocked().Times(2)), func(ctx context.Context, client *brellium.Client) error {
		_ = retrieve(ctx, client)
		return retrieve(ctx, client)
	}},
	{"A list whose second page fails", inject(brelliumtest.OpAuditList, brelliumtest.OK(), brelliumtest.Status(400, "INVALID_REQUEST")), func(ctx context.Context, client *brellium.Client) error {
		for _, err := range client.Audits.All(ctx, brellium.AuditListParams{Limit: 20}) {
			if err != nil {
				return err
			}
		}
		return nil
	}},
	{"A file that storage rejects", inject(brelliumtest.OpDocumentPut, brelliumtest.Status(403, "InvalidAccessKeyId")), func(ctx context.Context, client *brellium.Client) error {
		_, err := client.Documents.Upload(ctx, []brellium.UploadFile{brellium.FileFromBytes("note.txt", []byte("note"))}, brellium.UploadOptions{})
		return err
	}},
	{"A deadline of the caller", inject(brelliumtest.OpUserCreate, brelliumtest.StallHeaders(0)), func(ctx context.Context, client *brellium.Client) error {
		ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		return invite(ctx, client)
	}},
}
