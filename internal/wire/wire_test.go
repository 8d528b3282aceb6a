package wire

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestHeadersAreCanonicalAndTrimmed(t *testing.T) {
	clean := http.Header{"X-Request-Id": {"a", "b"}, "Empty": {}}
	assert.Equal(t, clean, canonical(clean))
	for range 50 { // a map has no order
		assert.Equal(t, http.Header{"X-Request-Id": {"Canonical"}, "Ratelimit-Remaining": {"0"}, "Empty": {}, "Date": {"x"}},
			canonical(http.Header{"x-request-id": {"lower"}, "X-Request-Id": {"Canonical"}, "ratelimit-remaining": {" 0 "}, "empty": {}, "date": {"x"}}))
	}
}
