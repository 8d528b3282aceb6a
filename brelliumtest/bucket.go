package brelliumtest

import (
	"math"
	"time"
)

// bucket is a token bucket that refills continuously, in fractions of a token.
type bucket struct {
	capacity, perSecond float64
	tokens              float64
	last                time.Time
}

func newBucket(capacity, perSecond float64) bucket {
	return bucket{capacity: capacity, perSecond: perSecond, tokens: capacity}
}

// refill adds the tokens due at now. A clock that went back adds none, as when
// an emulator made outside a synctest bubble is used in it.
func (b *bucket) refill(now time.Time) {
	if elapsed := now.Sub(b.last); elapsed > 0 && !b.last.IsZero() {
		b.tokens += elapsed.Seconds() * b.perSecond
	}
	b.tokens = min(b.tokens, b.capacity)
	b.last = now
}

// take takes one token and reports whether there was one.
func (b *bucket) take(now time.Time) bool {
	b.refill(now)
	if b.tokens < 1-1e-9 {
		return false
	}
	b.tokens = max(0, b.tokens-1)
	return true
}

// drain takes up to n tokens.
func (b *bucket) drain(n float64, now time.Time) {
	b.refill(now)
	b.tokens = max(0, b.tokens-n)
}

// set sets the number of tokens.
func (b *bucket) set(tokens float64, now time.Time) {
	b.tokens = max(0, min(tokens, b.capacity))
	b.last = now
}

// remaining returns the number of whole tokens.
func (b *bucket) remaining() int { return int(b.tokens + 1e-9) }

// reset returns the seconds until there is one token, rounded up.
func (b *bucket) reset() int {
	if b.tokens >= 1-1e-9 {
		return 0
	}
	if b.perSecond <= 0 {
		return 3600
	}
	return max(1, int(math.Ceil((1-b.tokens)/b.perSecond-1e-9)))
}

// SetRateLimit changes the capacity and the refill rate of the organization's
// bucket. Its tokens stay, up to the new capacity.
func (e *Emulator) SetRateLimit(capacity int, perSecond float64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.bucket.refill(time.Now())
	e.bucket.capacity, e.bucket.perSecond = float64(capacity), perSecond
	e.bucket.tokens = min(e.bucket.tokens, e.bucket.capacity)
}

// SetRemaining sets the number of tokens in the organization's bucket.
func (e *Emulator) SetRemaining(tokens float64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.bucket.set(tokens, time.Now())
}

// Remaining returns how many requests the organization can send right now.
func (e *Emulator) Remaining() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.bucket.refill(time.Now())
	return e.bucket.remaining()
}

// Spend takes one token from the organization's bucket, as a request of another
// worker would, and reports whether there was one.
func (e *Emulator) Spend() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.bucket.take(time.Now())
}
