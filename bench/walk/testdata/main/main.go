// Main makes one call, and then a second one that is recorded.
package main

import (
	"context"
	"io"
	"net/http"
	"runtime/coverage"
	"strings"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/internal/recorder"
)

type transport struct{}

func (transport) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK,
		Header: http.Header{
			"Content-Type":        {"application/json"},
			"Ratelimit-Limit":     {"100"},
			"Ratelimit-Remaining": {"41"}, // low enough that the limiter makes the second call wait
		},
		Body:    io.NopCloser(strings.NewReader(`{"audit_id":"1"}`)),
		Request: r,
	}, nil
}

func main() {
	client, err := brellium.NewClient(
		brellium.WithBaseURL("https://api.example.com"),
		brellium.WithAccessToken("token"),
		brellium.WithHTTPClient(&http.Client{Transport: transport{}}),
	)
	check(err)
	_, err = client.Audits.Retrieve(context.Background(), "1")
	check(err)

	check(coverage.ClearCounters())
	recorder.On.Store(true)
	_, err = client.Audits.Retrieve(context.Background(), "1")
	recorder.On.Store(false)
	check(err)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
