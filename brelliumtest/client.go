package brelliumtest

import (
	"net/http"

	"github.com/brellium/brellium-go"
)

// Client returns a client of the emulator with the emulator's credentials,
// over Transport, so that no socket is opened and virtual time works. Options
// come after the emulator's own. They may replace its base URL and transport,
// and its key pair by another; for a client with a fixed token, give
// brellium.NewClient the emulator's BaseURL, Transport and IssueToken. The
// error is that of brellium.NewClient, for a wrong option.
func (e *Emulator) Client(opts ...brellium.ClientOption) (*brellium.Client, error) {
	return brellium.NewClient(append([]brellium.ClientOption{
		brellium.WithBaseURL(e.BaseURL()),
		brellium.WithHTTPClient(&http.Client{Transport: e.Transport()}),
		brellium.WithClientCredentials(e.ClientID, e.ClientSecret),
	}, opts...)...)
}
