package limiter

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
	"github.com/brellium/brellium-go/internal/pace"
)

// doer makes one call.
type doer = func(context.Context, ...brellium.CallOption) error

// maker makes the client of one process.
type maker func(e *brelliumtest.Emulator, transport http.RoundTripper) doer

// ours is the client with its default limiter.
func ours(e *brelliumtest.Emulator, transport http.RoundTripper) doer {
	return oursWith()(e, transport)
}

// oursWith is the client with options.
func oursWith(opts ...brellium.ClientOption) maker {
	return func(e *brelliumtest.Emulator, transport http.RoundTripper) doer {
		client, err := brellium.NewClient(append([]brellium.ClientOption{
			brellium.WithBaseURL(e.BaseURL()),
			brellium.WithHTTPClient(&http.Client{Transport: transport}),
			brellium.WithAccessToken(e.IssueToken()),
		}, opts...)...)
		return func(ctx context.Context, opts ...brellium.CallOption) error {
			if err != nil {
				return err
			}
			_, err := client.Audits.Retrieve(ctx, brelliumtest.SampleAuditID, opts...)
			return err
		}
	}
}

// get sends one plain request. It returns the status, 0 without a response, and
// the headers.
func get(ctx context.Context, hc *http.Client, e *brelliumtest.Emulator, token string) (int, http.Header) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.BaseURL()+"/v2/audits/"+brelliumtest.SampleAuditID, nil)
	if err != nil {
		return 0, nil
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := hc.Do(req)
	if err != nil {
		return 0, nil
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0, nil
	}
	return resp.StatusCode, resp.Header
}

// guide is the wrapper that the API's guide describes: its own bucket of the
// organization's size, one token for each attempt, after a 429 the wait that
// Retry-After asks for plus up to half a second, after other failures full jitter,
// and an end after 5 attempts or with the first failure after 60 s.
func guide(e *brelliumtest.Emulator, transport http.RoundTripper) doer {
	hc, token, own := &http.Client{Transport: transport}, e.IssueToken(), ownBucket{tokens: 100}
	return func(ctx context.Context, _ ...brellium.CallOption) error {
		const attempts, total = 5, 60 * time.Second
		started := time.Now()
		for attempt := 1; ; attempt++ {
			own.take()
			status, header := get(ctx, hc, e, token)
			if status == http.StatusOK {
				if header.Get("RateLimit-Remaining") == "0" {
					time.Sleep(200 * time.Millisecond)
				}
				return nil
			}
			if attempt == attempts || status != 0 && time.Since(started) >= total {
				return fmt.Errorf("still status %d after %d attempts", status, attempt)
			}
			wait := time.Duration(rand.Float64() * min(20, 0.5*math.Pow(2, float64(attempt-1))) * float64(time.Second))
			if seconds, err := strconv.ParseFloat(header.Get("Retry-After"), 64); err == nil && status == http.StatusTooManyRequests {
				wait = time.Duration((seconds + rand.Float64()/2) * float64(time.Second))
			}
			if left := total - time.Since(started); status != 0 {
				wait = min(wait, left)
			}
			time.Sleep(wait)
		}
	}
}

// ownBucket is the token bucket of the guide's wrapper. A caller that finds it empty
// sleeps until there could be a token and tries again.
type ownBucket struct {
	mu     sync.Mutex
	tokens float64
	last   time.Time
}

func (b *ownBucket) take() {
	for {
		wait := b.try()
		if wait <= 0 {
			return
		}
		time.Sleep(wait)
	}
}

func (b *ownBucket) try() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if !b.last.IsZero() {
		b.tokens = min(100, b.tokens+5*now.Sub(b.last).Seconds())
	}
	b.last = now
	if b.tokens < 1-1e-9 {
		return time.Duration(math.Ceil((1 - b.tokens) / 5 * float64(time.Second)))
	}
	b.tokens--
	return 0
}

// plain uses x/time/rate with the organization's limit before each attempt, and two
// retries, like many SDKs.
func plain(e *brelliumtest.Emulator, transport http.RoundTripper) doer {
	hc, token, limiter := &http.Client{Transport: transport}, e.IssueToken(), rate.NewLimiter(5, 100)
	return func(ctx context.Context, _ ...brellium.CallOption) error { return retry(ctx, hc, e, token, limiter) }
}

// unpaced has no limiter and two retries, after the wait of Retry-After.
func unpaced(e *brelliumtest.Emulator, transport http.RoundTripper) doer {
	hc, token := &http.Client{Transport: transport}, e.IssueToken()
	return func(ctx context.Context, _ ...brellium.CallOption) error { return retry(ctx, hc, e, token, nil) }
}

func retry(ctx context.Context, hc *http.Client, e *brelliumtest.Emulator, token string, limiter *rate.Limiter) error {
	for attempt := 0; ; attempt++ {
		if limiter != nil {
			if err := limiter.Wait(ctx); err != nil {
				return err
			}
		}
		status, header := get(ctx, hc, e, token)
		if status == http.StatusOK {
			return nil
		}
		if attempt == 2 {
			return fmt.Errorf("status %d", status)
		}
		wait := 500 * time.Millisecond << attempt
		if seconds, err := strconv.Atoi(header.Get("Retry-After")); err == nil {
			wait = time.Duration(seconds) * time.Second
		}
		time.Sleep(wait)
	}
}

// split is the client with the fixed share of one of so many workers.
func split(workers int) maker {
	burst, perSecond, err := brellium.SplitRateLimit(workers)
	if err != nil {
		panic(err)
	}
	return oursWith(brellium.WithRateLimit(burst, perSecond))
}

// freezes is the client in a process that stands still for a while.
func freezes(from, until time.Duration) maker {
	return func(e *brelliumtest.Emulator, transport http.RoundTripper) doer {
		q := pace.NewQueue(&freezer{Machine: pace.NewAdaptive(pace.AdaptiveConfig{}), from: from, until: until})
		return oursWith(brellium.WithRateLimiter(queued{&q}))(e, transport)
	}
}

// freezer is a machine that does not run for a while.
type freezer struct {
	pace.Machine
	from, until time.Duration
	held        []func(time.Duration) // what came in the meantime
}

func (f *freezer) Ready(now time.Duration, urgent bool) time.Duration {
	if now >= f.from && now < f.until {
		return f.until - now
	}
	for _, done := range f.held {
		done(now)
	}
	f.held = nil
	return f.Machine.Ready(now, urgent)
}

func (f *freezer) Done(now time.Duration, t pace.Ticket, r pace.Report) {
	if now >= f.from && now < f.until {
		f.held = append(f.held, func(now time.Duration) { f.Machine.Done(now, t, r) })
		return
	}
	f.Machine.Done(now, t, r)
}

// queued is a pace.Queue as a Limiter.
type queued struct{ *pace.Queue }

func (q queued) Acquire(ctx context.Context) (brellium.Permit, error) {
	p, err := q.Queue.Acquire(ctx, pace.Normal, brellium.IsRateLimitRetry(ctx))
	return queuedPermit{p}, err
}

type queuedPermit struct{ *pace.Permit }

func (p queuedPermit) Done(r brellium.LimiterResult) {
	p.Permit.Done(pace.Report{
		Known: r.RateLimit.Known(), Limit: r.RateLimit.Limit, Remaining: r.RateLimit.Remaining,
		Spent: pace.Spent(r.Spent), RateLimited: r.Refused, RetryAfter: r.RetryAfter, Blocked: r.Blocked,
	})
}
