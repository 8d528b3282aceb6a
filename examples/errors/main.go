// Errors shows how to handle every typed error of the client. It provokes each
// on the embedded emulator, so it needs no credentials.
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

// explain says what to do about an error of any call. The order matters: the
// outer errors come first, since they wrap others.
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
		return "it worked"
	case errors.As(err, &invalid):
		return "a mistake of ours: mend " + invalid.Field + " (nothing was sent)"
	case errors.As(err, &interrupted):
		return fmt.Sprintf("we stopped it ourselves (%v) after %d requests", interrupted.Err, interrupted.Attempts)
	case errors.As(err, &upload):
		return fmt.Sprintf("a file did not arrive (status %d): upload the same files again, it sends only what is missing", upload.StatusCode)
	case errors.As(err, &page):
		return fmt.Sprintf("a list broke off: go on from its cursor later (%t)", page.Cursor != "")
	case errors.As(err, &blocked):
		if blocked.RetryAt.IsZero() {
			return "blocked: pause, and look at what this request holds"
		}
		return "blocked: the client sends nothing for a while"
	case errors.As(err, &exhausted):
		if wait, ok := brellium.RetryAfter(err); ok {
			return fmt.Sprintf("gave up for lack of %s after %d requests: come back in %s", exhausted.Reason, exhausted.Attempts, wait)
		}
		return fmt.Sprintf("gave up for lack of %s after %d requests: come back later", exhausted.Reason, exhausted.Attempts)
	case errors.As(err, &undecodable):
		return "an answer that cannot be used: ask support about request " + present(undecodable.RequestID)
	case errors.As(err, &connection):
		return "no answer: " + connection.Reason
	case errors.Is(err, brellium.ErrNotFound):
		return "there is no such thing"
	case errors.Is(err, brellium.ErrUnauthorized):
		return "the credentials are not accepted: check them"
	case errors.As(err, &apiErr):
		switch apiErr.Code {
		case brellium.CodeInvitationPending, brellium.CodeUserExists:
			return "the user was invited before: nothing to do"
		case brellium.CodeHTTPError:
			return fmt.Sprintf("status %d without a word from the API: something in between answered", apiErr.StatusCode)
		}
		return fmt.Sprintf("status %d, code %s: ask support about request %s", apiErr.StatusCode, apiErr.Code, present(apiErr.RequestID))
	}
	return "not an error of this client"
}

// present stands for a request id, which differs from run to run.
func present(requestID string) string {
	if requestID == "" {
		return "(none)"
	}
	return "(its id is in the error)"
}

// mishap is one thing that goes wrong.
type mishap struct {
	what   string
	inject func(*brelliumtest.Emulator)
	call   func(context.Context, *brellium.Client) error
}

func run(ctx context.Context, out io.Writer) error {
	for _, m := range mishaps {
		emulator := brelliumtest.New()
		emulator.SeedAudits(30)
		if m.inject != nil {
			m.inject(emulator)
		}
		client, err := emulator.Client()
		if err != nil {
			return err
		}
		err = m.call(ctx, client)
		fmt.Fprintf(out, "%s\n  -> %s\n", m.what, explain(err))
		// The two questions to ask before anything is sent again.
		fmt.Fprintf(out, "     may pass: %t; may have run: %t\n", brellium.IsTransient(err), brellium.OutcomeUnknown(err))
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

var mishaps = []mishap{
	{"A blank id", nil, func(ctx context.Context, client *brellium.Client) error {
		_, err := client.Audits.Retrieve(ctx, " ")
		return err
	}},
	{"An id that does not exist", nil, func(ctx context.Context, client *brellium.Client) error {
		_, err := client.Audits.Retrieve(ctx, "no-such-audit")
		return err
	}},
	{"A user who was invited before", nil, func(ctx context.Context, client *brellium.Client) error {
		if err := invite(ctx, client); err != nil {
			return err
		}
		return invite(ctx, client)
	}},
	{"A refusal that asks for more than a call may wait", inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(429, "RATE_LIMITED").WithHeader("Retry-After", "300")), retrieve},
	{"A server that is down", inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(503, "UNAVAILABLE").Forever()),
		func(ctx context.Context, client *brellium.Client) error {
			_, err := client.Audits.Retrieve(ctx, brelliumtest.SampleAuditID, brellium.WithMaxRetries(1))
			return err
		}},
	{"A page of a gateway instead of an answer, to an invitation", inject(brelliumtest.OpUserCreate, brelliumtest.HTML(502)), invite},
	{"An invitation whose answer is lost", inject(brelliumtest.OpUserCreate, brelliumtest.DropAfter()), invite},
	{"A success that is no JSON", inject(brelliumtest.OpUserCreate, brelliumtest.HTML(200)), invite},
	{"Credentials that are not accepted", inject(brelliumtest.OpTokenCreate, brelliumtest.Status(401, "invalid_client")), retrieve},
	{"One bare 403", inject(brelliumtest.OpAuditRetrieve, brelliumtest.Blocked()), retrieve},
	{"Two bare 403 in a row", inject(brelliumtest.OpAuditRetrieve, brelliumtest.Blocked().Times(2)), func(ctx context.Context, client *brellium.Client) error {
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
	{"A file that storage refuses", inject(brelliumtest.OpDocumentPut, brelliumtest.Status(403, "SignatureDoesNotMatch")), func(ctx context.Context, client *brellium.Client) error {
		_, err := client.Documents.Upload(ctx, []brellium.UploadFile{brellium.FileFromBytes("note.txt", []byte("note"))}, brellium.UploadOptions{})
		return err
	}},
	{"A deadline of ours", inject(brelliumtest.OpUserCreate, brelliumtest.StallHeaders(0)), func(ctx context.Context, client *brellium.Client) error {
		ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		return invite(ctx, client)
	}},
}
