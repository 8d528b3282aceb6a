package wire

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
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

func TestRefusedStreamsAreFoundWhereTheyAreWrapped(t *testing.T) {
	stream := errors.New("stream error: stream ID 3; REFUSED_STREAM; received from peer")
	for _, err := range []error{stream, &url.Error{Op: "Post", URL: "u", Err: stream}, fmt.Errorf("a: %w", fmt.Errorf("b: %w", stream))} {
		assert.True(t, refused(err), err)
	}
	for _, err := range []error{nil, errors.New("x"), fmt.Errorf("a: %w", io.EOF), errors.New("stream error: stream ID 3; CANCEL; received from peer")} {
		assert.False(t, refused(err), err)
	}
}
