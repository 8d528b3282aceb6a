package brellium_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/internal/testkit"
)

// Whatever Retry-After, RateLimit-* and Date headers say: while calls wait, the next
// request comes within the longest pause; calls that fail send few requests a second;
// and every call ends.
func FuzzHeadersOfResponses(f *testing.F) {
	const (
		callers, calls = 4, 6
		latency        = 10 * time.Millisecond
		longestGap     = 5*time.Minute + time.Minute // the pause of a 429, and the time of a call or the interval next to others
		failuresASec   = 25 * callers                // of which jitter makes about 4 a caller
	)
	f.Add("1", "100", "99", "0", "", uint16(0b1), uint16(429), uint8(0), int64(0))
	f.Add("1764547200", "100", "0", "1e9", "Tue, 01 Dec 2026 00:00:00 GMT", uint16(0xffff), uint16(429), uint8(1), int64(-3600))
	f.Add("Fri, 31 Dec 2100 23:59:59 GMT", "0", "-1", "99999999999999", "x", uint16(0x5555), uint16(503), uint8(2), int64(-1<<40))
	f.Add("0.0001", "1", "0", "0.0001", "", uint16(0xfffe), uint16(429), uint8(3), int64(1<<40))
	f.Add("300", "1000000", "1000000", "", "", uint16(0x0f0f), uint16(429), uint8(4), int64(61))
	f.Add("", "", "", "86399", "", uint16(0xffff), uint16(429), uint8(5), int64(-61))
	f.Add("0", "3", "2", "0", "", uint16(0xff0f), uint16(403), uint8(0), int64(1))
	f.Add("3600", "100", "50", "3600", "", uint16(0x00ff), uint16(401), uint8(3), int64(0))
	f.Add("1800", "100", "50", "1800", "", uint16(0xffff), uint16(429), uint8(0), int64(0))
	f.Add("", "100", "50", "0", "", uint16(0xffff), uint16(429), uint8(2), int64(0))
	f.Add("", "", "", "0", "", uint16(65503), uint16(429), uint8(4), int64(-61))
	f.Add("0.0001", "100", "-1", "0", "", uint16(0b1111011110111111), uint16(429), uint8(1), int64(1))
	f.Fuzz(func(t *testing.T, retryAfter, limit, remaining, reset, date string, pattern, status uint16, kind uint8, step int64) {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			var sent, failed []time.Time
			started := time.Now()
			transport := testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
				mu.Lock()
				defer mu.Unlock()
				n := len(sent)
				sent = append(sent, time.Now())
				if r.Body != nil {
					_, _ = io.Copy(io.Discard, r.Body)
				}
				header := http.Header{"Retry-After": {retryAfter}, "Ratelimit-Limit": {limit}, "Ratelimit-Remaining": {remaining}, "Ratelimit-Reset": {reset}, "Date": {date}}
				if date == "" {
					header.Set("Date", started.Add(time.Duration(int64(n)*(step%1e9))*time.Second).UTC().Format(http.TimeFormat))
				}
				if pattern>>(n%16)&1 == 1 && status >= 300 && status < 600 {
					failed = append(failed, time.Now())
					return testkit.Reply(int(status), header, `{"error":{"code":"X"}}`), nil
				}
				body := `{"audit_id":"a","data":[],"has_more":false}`
				if strings.HasSuffix(r.URL.Path, "/token") {
					body = `{"access_token":"t","expires_in":600}`
				}
				return testkit.Reply(200, header, body), nil
			})
			slow := testkit.RoundTripFunc(func(r *http.Request) (*http.Response, error) {
				time.Sleep(latency)
				return transport(r)
			})
			opts := []brellium.ClientOption{brellium.WithAccessToken("t"), testkit.WithTransport(slow)}
			if kind >= 3 {
				opts[0] = brellium.WithClientCredentials("id", "secret")
			}
			switch kind % 3 {
			case 1:
				opts = append(opts, brellium.WithRateLimit(10, 5))
			case 2:
				opts = append(opts, brellium.WithoutRateLimiter())
			}
			client, err := brellium.NewClient(opts...)
			require.NoError(t, err)
			testkit.Concurrently(t, callers, func(ctx context.Context, _ int) error {
				for range calls {
					_ = testkit.Retrieve(ctx, client)
				}
				return nil
			})
			ended := time.Now()
			mu.Lock() // a refresh of the token may go on beside the calls
			n, before := len(sent), started
			for _, at := range append(slices.Clone(sent), ended) {
				assert.LessOrEqual(t, at.Sub(before), longestGap)
				before = at
			}
			for i := range failed {
				if i >= failuresASec {
					assert.Greater(t, failed[i].Sub(failed[i-failuresASec]), time.Second, "it spins")
				}
			}
			mu.Unlock()

			// Follow must not spin either, also if the API's clock runs backward.
			const followed = 10 * time.Minute
			ctx, cancel := context.WithTimeout(t.Context(), followed)
			defer cancel()
			for range 3 {
				for _, err := range client.Audits.Follow(ctx, brellium.FollowCheckpoint{}, brellium.FollowOptions{Interval: time.Second}) {
					if err != nil {
						break
					}
				}
			}
			time.Sleep(time.Hour) // for a refresh that nobody waits for any more
			mu.Lock()
			defer mu.Unlock()
			// A second has two requests, and about four retries if responses ask for next to no wait.
			assert.LessOrEqual(t, len(sent)-n, (2+5)*int(followed.Seconds())+50)
		})
	})
}
