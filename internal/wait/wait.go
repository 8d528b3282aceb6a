// Package wait computes how long to wait before a retry, and waits.
package wait

import (
	"context"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"time"
)

const (
	// MaxRetryAfter is the longest wait that RetryAfter returns; a server
	// that asks for more is clamped to it, so that no arithmetic on the wait
	// can overflow.
	MaxRetryAfter = 365 * 24 * time.Hour

	backoffBase = 500 * time.Millisecond
	backoffCap  = 20 * time.Second
)

// Backoff is full jitter: a wait between 0 and min(20 s, 0.5 s × 2^n), where n
// counts the retries so far and random is in [0, 1).
func Backoff(n int, random float64) time.Duration {
	limit := backoffCap
	if n >= 0 && n < 6 {
		limit = min(backoffCap, backoffBase<<n)
	}
	return time.Duration(random * float64(limit))
}

// RetryAfter reads the lines of a Retry-After header: whole or fractional seconds,
// or an HTTP date in any of its three forms. A date counts from the response's own
// date where it has one, so that a wrong local clock does not matter, and from now
// otherwise. Of several lines the longest counts. It returns 0 where no value is
// usable: none, zero, negative, past or invalid.
func RetryAfter(lines []string, responseDate string, now time.Time) time.Duration {
	var longest time.Duration
	for _, line := range lines {
		longest = max(longest, retryAfter(textproto.TrimString(line), responseDate, now))
	}
	return longest
}

func retryAfter(value, responseDate string, now time.Time) time.Duration {
	if d, ok := Seconds(value); ok {
		return d
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	if sent, err := http.ParseTime(responseDate); err == nil {
		now = sent
	}
	return min(max(at.Sub(now), 0), MaxRetryAfter)
}

// Seconds reads a decimal number of seconds without a sign or an exponent,
// clamped to MaxRetryAfter.
func Seconds(value string) (time.Duration, bool) {
	whole, fraction, dot := strings.Cut(value, ".")
	if !digits(whole) || (dot && !digits(fraction)) {
		return 0, false
	}
	f, err := strconv.ParseFloat(value, 64)
	if err != nil || f >= MaxRetryAfter.Seconds() {
		return MaxRetryAfter, true // all digits, so the number can only be too large
	}
	return time.Duration(f * float64(time.Second)), true
}

func digits(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// Sleep waits for d. It returns the context's error when ctx ends first, and
// at once where its deadline leaves no time for the wait.
func Sleep(ctx context.Context, d time.Duration) error {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= d {
		return context.DeadlineExceeded
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
