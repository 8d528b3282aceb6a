// Breaker shows two ways to combine the client with a library for resilience,
// here failsafe-go: a circuit breaker below the client's own retries, and
// retries of one's own instead of the client's. It runs on the embedded
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
	if err := errors.Join(belowOurRetries(ctx, os.Stdout), insteadOfOurRetries(ctx, os.Stdout)); err != nil {
		log.Fatal(err)
	}
}

// breaking is a transport behind a circuit breaker, which so counts each
// attempt rather than each call.
type breaking struct {
	base    http.RoundTripper
	breaker circuitbreaker.CircuitBreaker[any]
}

// errOpen is told at once and not retried, since it matches ErrDoNotSend:
// nothing was sent, and sending again now would not help.
var errOpen = fmt.Errorf("%w: %w", circuitbreaker.ErrOpen, brellium.ErrDoNotSend)

// RoundTrip implements http.RoundTripper.
func (b *breaking) RoundTrip(req *http.Request) (*http.Response, error) {
	if !b.breaker.TryAcquirePermit() {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, errOpen
	}
	resp, err := b.base.RoundTrip(req)
	switch {
	case errors.Is(err, context.Canceled) && b.breaker.IsClosed():
		// The caller has left, which says nothing about the server.
	case err != nil, resp.StatusCode >= 500:
		b.breaker.RecordFailure()
	default:
		b.breaker.RecordSuccess() // a 4xx and a 429 too: somebody is there
	}
	return resp, err
}

// newBreaker opens after 3 failures in a row, for 10 s.
func newBreaker() circuitbreaker.CircuitBreaker[any] {
	return circuitbreaker.NewBuilder[any]().WithFailureThreshold(3).WithSuccessThreshold(1).WithDelay(10 * time.Second).Build()
}

func belowOurRetries(ctx context.Context, out io.Writer) error {
	emulator := brelliumtest.New()
	emulator.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(503, "UNAVAILABLE").Times(3))
	breaker := newBreaker()
	client, err := emulator.Client(brellium.WithHTTPClient(&http.Client{
		Transport: &breaking{base: emulator.Transport(), breaker: breaker},
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
	fmt.Fprintf(out, "  requests that the server saw: %d\n", emulator.Count(brelliumtest.OpAuditRetrieve))

	if err := sleep(ctx, breaker.RemainingDelay()); err != nil {
		return err
	}
	_, err = client.Audits.Retrieve(ctx, brelliumtest.SampleAuditID)
	fmt.Fprintf(out, "  later: error %v, breaker %v\n", err, breaker.State())
	return err
}

// ownRetries is a policy for calls whose own retries are off. What may have run
// is left to the caller. A wait that the server asked for is kept, and one that
// is too long ends the call: failsafe-go's own jitter and maximal duration could
// both cut it short.
func ownRetries[T any]() retrypolicy.RetryPolicy[T] {
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

func insteadOfOurRetries(ctx context.Context, out io.Writer) error {
	emulator := brelliumtest.New()
	emulator.Inject(brelliumtest.OpAuditRetrieve,
		brelliumtest.Status(503, "UNAVAILABLE"),
		brelliumtest.Status(429, "RATE_LIMITED").WithHeader("Retry-After", "2"))
	emulator.Inject(brelliumtest.OpUserCreate,
		brelliumtest.NeverSent(), // sent again: it never arrived
		brelliumtest.DropAfter()) // not sent again: it did
	client, err := emulator.Client(brellium.WithMaxRetries(0)) // off, for all calls
	if err != nil {
		return err
	}

	fmt.Fprintln(out, "Retries of failsafe-go instead of the client's:")
	audit, err := failsafe.With(ownRetries[*brellium.Audit]()).WithContext(ctx).Get(func() (*brellium.Audit, error) {
		return client.Audits.Retrieve(ctx, brelliumtest.SampleAuditID)
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "  an audit after %d requests: %s\n", emulator.Count(brelliumtest.OpAuditRetrieve), audit.Status)

	_, err = failsafe.With(ownRetries[*brellium.User]()).WithContext(ctx).Get(func() (*brellium.User, error) {
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
