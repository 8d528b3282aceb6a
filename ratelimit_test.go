package brellium

import (
	"context"
	"testing"
	"time"
)

// BenchmarkAcquire is one uncontended Acquire and Done with an answer that
// leaves the limiter alone on a full bucket.
func BenchmarkAcquire(b *testing.B) {
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	limiter := new(AdaptiveLimiter)
	answer := LimiterAnswer{
		RateLimit: RateLimit{Limit: 1_000_000, Remaining: 999_999, ObservedAt: time.Now()},
		Spent:     SpentYes,
	}
	b.ReportAllocs()
	for b.Loop() {
		permit, err := limiter.Acquire(ctx)
		if err != nil {
			b.Fatal(err)
		}
		permit.Done(answer)
	}
}
