package brelliumtest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

// golang/go#70069
func TestErrorsForFakes(t *testing.T) {
	begun := time.Now()
	for _, op := range []string{brelliumtest.OpUserCreate, brelliumtest.OpAuditUpdate, brelliumtest.OpDocumentPut, brelliumtest.OpUserList, brelliumtest.OpTokenCreate} {
		write := op != brelliumtest.OpUserList && op != brelliumtest.OpTokenCreate
		exhausted := brelliumtest.RetriesExhaustedError(op)
		assert.Equal(t, op, exhausted.Operation)
		assert.Equal(t, write, brellium.OutcomeUnknown(exhausted))
		assert.True(t, brellium.IsTransient(exhausted))
		assert.ErrorIs(t, exhausted, brellium.ErrServer)
		assert.Contains(t, exhausted.Error(), op+": retries exhausted after 5 attempts in 5s (attempt limit reached): brellium: "+op+": 503 UNAVAILABLE")
		_, asked := brellium.RetryAfter(exhausted)
		assert.False(t, asked)
		for _, ended := range []error{context.Canceled, context.DeadlineExceeded} {
			interrupted := brelliumtest.InterruptedError(op, ended)
			assert.Equal(t, op, interrupted.Operation)
			assert.Equal(t, write, brellium.OutcomeUnknown(interrupted))
			assert.False(t, brellium.IsTransient(interrupted))
			for _, target := range []error{context.Canceled, context.DeadlineExceeded} {
				assert.Equal(t, target == ended, errors.Is(interrupted, target))
			}
		}
		if !write {
			assert.Panics(t, func() { _ = brelliumtest.OutcomeUnknownError(op, 0) })
			continue
		}
		for _, status := range []int{0, 201, 408, 500, 503} {
			err := brelliumtest.OutcomeUnknownError(op, status)
			assert.True(t, brellium.OutcomeUnknown(err), status)
			assert.Contains(t, err.Error(), "brellium: "+op+": ")
			var lost *brellium.ConnectionError
			var response *brellium.APIError
			var unusable *brellium.DecodeError
			assert.Equal(t, status == 0, errors.As(err, &lost))
			assert.Equal(t, status >= 400, errors.As(err, &response))
			assert.Equal(t, status == 201, errors.As(err, &unusable))
		}
		assert.Panics(t, func() { _ = brelliumtest.OutcomeUnknownError(op, 404) })
	}
	assert.Panics(t, func() { _ = brelliumtest.RetriesExhaustedError("users.craete") })
	assert.Less(t, time.Since(begun), 5*time.Second, "nothing waits")

	until := time.Now().Add(time.Minute)
	blocked := brelliumtest.BlockedError(brelliumtest.OpUserCreate, until)
	assert.Equal(t, until, blocked.RetryAt)
	wait, ok := brellium.RetryAfter(blocked)
	require.True(t, ok)
	assert.Greater(t, wait, 50*time.Second)
}

// fakeUsers is a fake of an interface of your own.
type fakeUsers struct{ err error }

func (f fakeUsers) Create(context.Context, brellium.UserCreateParams, ...brellium.CallOption) (*brellium.User, error) {
	return nil, f.err
}

// A fake that fails as a client does when the response to a write is lost.
func ExampleOutcomeUnknownError() {
	users := fakeUsers{brelliumtest.OutcomeUnknownError(brelliumtest.OpUserCreate, 503)}
	_, err := users.Create(context.Background(), brellium.UserCreateParams{Email: "casey@example.test"})
	fmt.Println(errors.Is(err, brellium.ErrServer), brellium.OutcomeUnknown(err))
	// Output: true true
}

func ExampleInterruptedError() {
	users := fakeUsers{brelliumtest.InterruptedError(brelliumtest.OpUserCreate, context.DeadlineExceeded)}
	_, err := users.Create(context.Background(), brellium.UserCreateParams{Email: "casey@example.test"})
	fmt.Println(err)
	// Output: brellium: users.create: interrupted after 1 attempt: context deadline exceeded; outcome unknown: the request may have run
}
