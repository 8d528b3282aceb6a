package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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

func TestUntracedExchangeHasAConnectionOnceItsBodyIsRead(t *testing.T) {
	exchange := new(trace)
	assert.True(t, exchange.waiting(0, false))
	assert.False(t, exchange.waiting(1, false))
	assert.False(t, exchange.waiting(0, true), "an empty body shows nothing")
	exchange.traced = true
	assert.True(t, exchange.waiting(1, false))
	exchange.connected = true
	assert.False(t, exchange.waiting(0, false))
}

// stillBody is a body that makes no progress.
type stillBody struct{}

func (stillBody) Position() int64 { return 1 }
func (stillBody) Err() error      { return nil }

// An exchange is limited by idleness only where there is a body and a limit.
func TestIdleTimeoutNeedsABodyAndATime(t *testing.T) {
	for name, test := range map[string]struct {
		body    Body
		timeout time.Duration
		ends    bool
	}{
		"neither": {nil, 0, false}, "no body": {nil, time.Second, false}, "no time": {stillBody{}, 0, false}, "both": {stillBody{}, time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				x := New(ctx, cancel)
				req, err := http.NewRequestWithContext(x.Context(), http.MethodPut, "https://storage.example.test", nil)
				require.NoError(t, err)
				req.ContentLength = 100
				r := x.RoundTrip(roundTrip(func(r *http.Request) (*http.Response, error) {
					select {
					case <-r.Context().Done():
						return nil, r.Context().Err()
					case <-time.After(time.Hour):
						return &http.Response{StatusCode: 200, Body: http.NoBody, Request: r}, nil
					}
				}), req, test.body, test.timeout)
				assert.Equal(t, test.ends, r.Err != nil)
			})
		})
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Only a response whose length nothing but the end of the connection tells can be cut off.
func TestOnlyABodyWithoutALengthCanBeCutOff(t *testing.T) {
	response := func(change func(*http.Response)) *http.Response {
		r := &http.Response{StatusCode: 200, ProtoMajor: 1, ContentLength: -1}
		change(r)
		return r
	}
	same := func(*http.Response) {}
	for body, cut := range map[string]bool{"{\"a\":1": true, "[1,": true, "\xef\xbb\xbf {": true, "{}": false, "": false, "<html": false, "{]": false} {
		assert.Equal(t, cut, cutOff(response(same), []byte(body)) == io.ErrUnexpectedEOF, body)
	}
	for name, change := range map[string]func(*http.Response){
		"HTTP/2":       func(r *http.Response) { r.ProtoMajor = 2 },
		"a length":     func(r *http.Response) { r.ContentLength = 0 },
		"chunked":      func(r *http.Response) { r.TransferEncoding = []string{"chunked"} },
		"uncompressed": func(r *http.Response) { r.Uncompressed = true },
		"an error":     func(r *http.Response) { r.StatusCode = 300 },
	} {
		assert.NoError(t, cutOff(response(change), []byte("{")), name)
	}
}
