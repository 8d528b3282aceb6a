// Command breaker shows two ways to combine the client with a resilience
// library, here failsafe-go: a circuit breaker below the client's retries, and
// retries of the library instead of the client's. It runs on the embedded
// emulator and needs no credentials.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"os"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/retrypolicy"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

func main() {
	ctx := context.Background()
	if err := errors.Join(breakerBelowRetries(ctx, os.Stdout), libraryRetries(ctx, os.Stdout)); err != nil {
		log.Fatal(err)
	}
}

// breakerTransport is a transport with a circuit breaker, which counts each
// attempt of a call.
type breakerTransport struct {
	base    http.RoundTripper
	breaker circuitbreaker.CircuitBreaker[any]
}

// errOpen matches brellium.ErrDoNotSend, so the client returns it without a
// retry: nothing was sent, and a retry would fail while the breaker is open.
var errOpen = fmt.Errorf("%w: %w", circuitbreaker.ErrOpen, brellium.ErrDoNotSend)

// RoundTrip implements [http.RoundTripper].
func (b *breakerTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if !b.breaker.TryAcquirePermit() {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, errOpen
	}
	resp, err := b.base.RoundTrip(req)
	switch {
	case errors.Is(err, context.Canceled) && b.breaker.IsClosed():
		// The caller canceled, which is not a failure of the server.
	case err != nil, resp.StatusCode >= 500:
		b.breaker.RecordFailure()
	default:
		b.breaker.RecordSuccess() // also for a 4xx: the server works
	}
	return resp, err
}

// newBreaker returns a breaker that opens for 10 s after 3 consecutive
// failures.
func newBreaker() circuitbreaker.CircuitBreaker[any] {
	return circuitbreaker.NewBuilder[any]().WithFailureThreshold(3).WithSuccessThreshold(1).WithDelay(10 * time.Second).Build()
}

func breakerBelowRetries(ctx context.Context, out io.Writer) error {
	emulator := brelliumtest.New()
	emulator.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(503, "UNAVAILABLE").Times(3))
	breaker := newBreaker()
	client, err := emulator.Client(brellium.WithHTTPClient(&http.Client{
		Transport: &breakerTransport{base: emulator.Transport(), breaker: breaker},
	}))
	if err != nil {
		return err
	}

	fmt.Fprintln(out, "A circuit breaker below the client's retries:")
	for range 2 {
		var resp brellium.Response
		_, err = client.Audits.Retrieve(ctx, brelliumtest.SampleAuditID, brellium.WithResponseInto(&resp))
		fmt.Fprintf(out, "  %d attempts, open: %t, may have run: %t\n",
			len(resp.Attempts), errors.Is(err, circuitbreaker.ErrOpen), brellium.OutcomeUnknown(err))
	}
	fmt.Fprintf(out, "  requests received by the server: %d\n", emulator.Count(brelliumtest.OpAuditRetrieve))

	if err := sleep(ctx, breaker.RemainingDelay()); err != nil {
		return err
	}
	_, err = client.Audits.Retrieve(ctx, brelliumtest.SampleAuditID)
	fmt.Fprintf(out, "  later: error %v, breaker %v\n", err, breaker.State())
	return err
}

// retryPolicy returns a policy for calls whose own retries are off. It does not
// retry a call that may have run. It never retries earlier than the server asked,
// and gives up if that wait is too long. It computes the jitter itself because
// failsafe-go's jitter and maximum duration can shorten a wait.
func retryPolicy[T any]() retrypolicy.RetryPolicy[T] {
	const longest = 20 * time.Second
	return retrypolicy.NewBuilder[T]().
		HandleIf(func(_ T, err error) bool { return brellium.IsTransient(err) && !brellium.OutcomeUnknown(err) }).
		AbortIf(func(_ T, err error) bool {
			wait, ok := brellium.RetryAfter(err)
			return ok && wait > longest
		}).
		WithMaxAttempts(4).
		WithDelayFunc(func(exec failsafe.ExecutionAttempt[T]) time.Duration {
			jitter := rand.N(500 * time.Millisecond << min(exec.Attempts(), 5))
			if wait, ok := brellium.RetryAfter(exec.LastError()); ok {
				return wait + jitter
			}
			return jitter
		}).
		ReturnLastFailure().
		Build()
}

func libraryRetries(ctx context.Context, out io.Writer) error {
	emulator := brelliumtest.New()
	emulator.Inject(brelliumtest.OpAuditRetrieve,
		brelliumtest.Status(503, "UNAVAILABLE"),
		brelliumtest.Status(429, "RATE_LIMITED").WithHeader("Retry-After", "2"))
	emulator.Inject(brelliumtest.OpUserCreate,
		brelliumtest.NeverSent(), // retried: the request did not run
		brelliumtest.DropAfter()) // not retried: it ran
	client, err := emulator.Client(brellium.WithMaxRetries(0)) // no retries for all calls
	if err != nil {
		return err
	}

	fmt.Fprintln(out, "Retries of failsafe-go instead of the client's:")
	audit, err := failsafe.With(retryPolicy[*brellium.Audit]()).WithContext(ctx).Get(func() (*brellium.Audit, error) {
		return client.Audits.Retrieve(ctx, brelliumtest.SampleAuditID)
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "  an audit after %d requests: %s\n", emulator.Count(brelliumtest.OpAuditRetrieve), audit.Status)

	_, err = failsafe.With(retryPolicy[*brellium.User]()).WithContext(ctx).Get(func() (*brellium.User, error) {
		return client.Users.Create(ctx, brellium.UserCreateParams{Email: "casey@example.test"})
	})
	fmt.Fprintf(out, "  an invitation: may have run: %t, invitations: %d\n",
		brellium.OutcomeUnknown(err), emulator.Invitations("casey@example.test"))
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
