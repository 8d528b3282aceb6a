package cookbook

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
)

// Patient derives a client whose calls outlive an outage of up to two hours.
func Patient(client *brellium.Client) (*brellium.Client, error) {
	return client.With(
		brellium.WithPriority(brellium.Background),
		brellium.WithMaxRetries(2000), // the waits are 10 s on average
		brellium.WithTotalTimeout(2*time.Hour),
	)
}

// RunAgain runs a job until it succeeds, fails for good, or ctx ends. The job must
// be able to continue where it stopped. A token request and a bare 403 end a call
// sooner than Patient allows; RunAgain waits and runs the job again.
func RunAgain(ctx context.Context, job func(context.Context) error) error {
	for {
		err := job(ctx)
		var blocked *brellium.BlockedError
		if ctx.Err() != nil || !brellium.IsTransient(err) && !errors.As(err, &blocked) {
			return err
		}
		wait := time.Minute
		if asked, known := brellium.RetryAfter(err); known {
			wait = max(wait, asked)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
	}
}

// MarkFailed flags all audits that are flagged "Failed" and not yet "Needs Review".
// Another run continues where this one stopped.
func MarkFailed(ctx context.Context, client *brellium.Client) error {
	for audit, err := range client.Audits.All(ctx, brellium.AuditListParams{Flags: []string{"Failed"}, Limit: 100}) {
		if err != nil {
			return err
		}
		if slices.Contains(audit.Flags, "Needs Review") {
			continue
		}
		flags := append(slices.Clone(audit.Flags), "Needs Review") // Update replaces all flags
		if _, err := client.Audits.Update(ctx, audit.AuditID, brellium.AuditUpdateParams{Flags: flags}); err != nil {
			return err
		}
	}
	return nil
}

func TestNightlyJob(t *testing.T) {
	for name, outage := range map[string]struct {
		operation  string
		fault      brelliumtest.Fault
		begin, end time.Duration
	}{
		"API":     {brelliumtest.OpAny, brelliumtest.Status(502, "BAD_GATEWAY"), 0, 110 * time.Minute},
		"tokens":  {brelliumtest.OpTokenCreate, brelliumtest.Status(502, "BAD_GATEWAY"), 0, 110 * time.Minute},
		"later":   {brelliumtest.OpAuditUpdate, brelliumtest.HTML(503), 5 * time.Second, 110 * time.Minute},
		"blocked": {brelliumtest.OpAuditUpdate, brelliumtest.Blocked(), 5 * time.Second, 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				emulator := brelliumtest.New(brelliumtest.WithRateLimitLevel(0))
				emulator.SeedAudits(150)
				start := time.Now()
				emulator.Inject(outage.operation, outage.fault.Forever().When(func(*brelliumtest.Request) bool {
					return time.Since(start) >= outage.begin && time.Since(start) < outage.end
				}))
				client, err := emulator.Client()
				require.NoError(t, err)
				client, err = Patient(client)
				require.NoError(t, err)
				require.NoError(t, RunAgain(t.Context(), func(ctx context.Context) error { return MarkFailed(ctx, client) }))
				assert.GreaterOrEqual(t, time.Since(start), outage.end)
				for _, id := range emulator.AuditIDs() {
					flags, _ := emulator.AuditFlags(id)
					assert.Equal(t, slices.Contains(flags, "Failed"), slices.Contains(flags, "Needs Review") && slices.Contains(flags, "Failed"))
				}
			})
		})
	}
}

func TestRunAgainReturnsWhatIsFinal(t *testing.T) {
	runs := 0
	err := RunAgain(t.Context(), func(context.Context) error {
		runs++
		return &brellium.APIError{StatusCode: 404}
	})
	require.ErrorIs(t, err, brellium.ErrNotFound)
	assert.Equal(t, 1, runs)
}

func TestPatientCallOutlivesAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		emulator := brelliumtest.New()
		start := time.Now()
		emulator.Inject(brelliumtest.OpAuditRetrieve, brelliumtest.Status(502, "BAD_GATEWAY").Forever().When(func(*brelliumtest.Request) bool {
			return time.Since(start) < 110*time.Minute
		}))
		client, err := emulator.Client()
		require.NoError(t, err)
		client, err = Patient(client)
		require.NoError(t, err)
		_, err = client.Audits.Retrieve(t.Context(), brelliumtest.SampleAuditID)
		require.NoError(t, err)
	})
}
