package brelliumtest

import (
	"net/http"

	"github.com/brellium/brellium-go"
)

// Client returns a client of the emulator. It has the emulator's credentials
// and uses [Emulator.Transport], so it opens no socket and works under
// testing/synctest. The options are applied after these and override them. For
// a client with a fixed token, call [brellium.NewClient] with
// [Emulator.BaseURL], [Emulator.Transport] and [Emulator.IssueToken]. The error
// is that of [brellium.NewClient] for an invalid option.
func (e *Emulator) Client(opts ...brellium.ClientOption) (*brellium.Client, error) {
	return brellium.NewClient(append([]brellium.ClientOption{
		brellium.WithBaseURL(e.BaseURL()),
		brellium.WithHTTPClient(&http.Client{Transport: e.Transport()}),
		brellium.WithClientCredentials(e.ClientID, e.ClientSecret),
	}, opts...)...)
}
