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
)

// maker makes the client of one process. It returns a function that makes one call.
type maker func(e *brelliumtest.Emulator, transport http.RoundTripper) func(context.Context) error

// ours is the client with its default limiter.
func ours(e *brelliumtest.Emulator, transport http.RoundTripper) func(context.Context) error {
	return oursWith()(e, transport)
}

// oursWith is the client with options.
func oursWith(opts ...brellium.ClientOption) maker {
	return func(e *brelliumtest.Emulator, transport http.RoundTripper) func(context.Context) error {
		client, err := brellium.NewClient(append([]brellium.ClientOption{
			brellium.WithBaseURL(e.BaseURL()),
			brellium.WithHTTPClient(&http.Client{Transport: transport}),
			brellium.WithAccessToken(e.IssueToken()),
		}, opts...)...)
		return func(ctx context.Context) error {
			if err != nil {
				return err
			}
			_, err := client.Audits.Retrieve(ctx, brelliumtest.SampleAuditID)
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
func guide(e *brelliumtest.Emulator, transport http.RoundTripper) func(context.Context) error {
	hc, token, own := &http.Client{Transport: transport}, e.IssueToken(), ownBucket{tokens: 100}
	return func(ctx context.Context) error {
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
func plain(e *brelliumtest.Emulator, transport http.RoundTripper) func(context.Context) error {
	hc, token, limiter := &http.Client{Transport: transport}, e.IssueToken(), rate.NewLimiter(5, 100)
	return func(ctx context.Context) error { return retry(ctx, hc, e, token, limiter) }
}

// unpaced has no limiter and two retries, after the wait of Retry-After.
func unpaced(e *brelliumtest.Emulator, transport http.RoundTripper) func(context.Context) error {
	hc, token := &http.Client{Transport: transport}, e.IssueToken()
	return func(ctx context.Context) error { return retry(ctx, hc, e, token, nil) }
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
