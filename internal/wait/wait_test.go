package wait

import (
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

var now = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// Doubling before capping wrapped round after some 60 attempts, and the loop
// ran hot (sethvargo/go-retry#12, qdrant/go-client#153, jpillora/backoff#11).
func TestBackoffStaysInRangeAtHighAttemptNumbers(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for n := 0; n <= 200; n++ {
		limit := time.Duration(math.Min(20, 0.5*math.Pow(2, float64(n))) * float64(time.Second))
		var highest time.Duration
		for range 200 {
			d := Backoff(n, rng.Float64())
			assert.GreaterOrEqual(t, d, time.Duration(0))
			assert.Less(t, d, limit)
			highest = max(highest, d)
		}
		assert.Greater(t, highest, limit*9/10, "draws of attempt %d do not spread", n)
	}
	assert.Less(t, Backoff(math.MaxInt, 0.5), 20*time.Second)
	assert.GreaterOrEqual(t, Backoff(math.MinInt, 0.5), time.Duration(0))
}

// A client that knew only seconds dropped the date form and came back far too
// early (hashicorp/go-retryablehttp#144).
func TestRetryAfterReadsSecondsAndAllDateForms(t *testing.T) {
	in2s := now.Add(2 * time.Second)
	for _, c := range []struct {
		name  string
		lines []string
		date  string
		want  time.Duration
	}{
		{"none", nil, "", 0},
		{"seconds", []string{"3"}, "", 3 * time.Second},
		{"fraction", []string{"1.5"}, "", 1500 * time.Millisecond},
		{"space around", []string{" 7 "}, "", 7 * time.Second},
		{"longest of several", []string{"1", "9", "nonsense", "4"}, "", 9 * time.Second},
		{"IMF-fixdate", []string{in2s.Format(http.TimeFormat)}, "", 2 * time.Second},
		{"RFC 850", []string{in2s.Format("Monday, 02-Jan-06 15:04:05 GMT")}, "", 2 * time.Second},
		{"asctime", []string{in2s.Format(time.ANSIC)}, "", 2 * time.Second},
		{"counted from the answer's date", []string{in2s.Add(time.Hour).Format(http.TimeFormat)},
			now.Add(time.Hour).Format(http.TimeFormat), 2 * time.Second},
		{"past date", []string{now.Add(-10 * time.Second).Format(http.TimeFormat)}, "", 0},
		{"far date", []string{now.AddDate(500, 0, 0).Format(http.TimeFormat)}, "", MaxRetryAfter},
		{"zero", []string{"0"}, "", 0},
		{"negative", []string{"-5"}, "", 0},
		{"huge", []string{strings.Repeat("9", 400)}, "", MaxRetryAfter},
		{"overflows int64 nanoseconds", []string{"9223372037"}, "", MaxRetryAfter},
		{"exponent", []string{"1e3"}, "", 0},
		{"infinite", []string{"Inf"}, "", 0},
		{"not a number", []string{"NaN"}, "", 0},
		{"two dots", []string{"1.2.3"}, "", 0},
		{"bare dot", []string{"."}, "", 0},
		{"empty", []string{""}, "", 0},
		{"hex", []string{"0x10"}, "", 0},
	} {
		assert.Equal(t, c.want, RetryAfter(c.lines, c.date, now), c.name)
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, s := range []string{"", "1", "1.5", "-1", "1e309", "Wed, 04 Mar 2026 05:06:09 GMT", "99999999999999999999"} {
		f.Add(s, "Wed, 04 Mar 2026 05:06:07 GMT")
	}
	f.Fuzz(func(t *testing.T, value, date string) {
		d := RetryAfter([]string{value}, date, now)
		if d < 0 || d > MaxRetryAfter {
			t.Fatalf("out of range: %v", d)
		}
	})
}
