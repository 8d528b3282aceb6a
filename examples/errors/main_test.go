package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const want = `A blank id
  -> invalid parameter: fix auditID (nothing was sent)
     transient: false; may have run: false
An unknown id
  -> not found
     transient: false; may have run: false
A user who is already invited
  -> the user is already invited: nothing to do
     transient: false; may have run: false
A 429 with a Retry-After longer than a call may wait
  -> gave up (total time) after 1 requests: retry in 5m0s
     transient: true; may have run: false
A server that is down
  -> gave up (attempts) after 2 requests: retry later
     transient: true; may have run: false
An HTML error page in response to an invitation
  -> status 502 without an error code: a gateway responded, not the API
     transient: true; may have run: true
An invitation whose response is lost
  -> no response: connection closed before a response
     transient: true; may have run: true
A success that is not JSON
  -> unusable response: contact support about request (none)
     transient: false; may have run: true
Invalid credentials
  -> invalid credentials: check them
     transient: false; may have run: false
One bare 403
  -> blocked: pause, and check the content of this request
     transient: false; may have run: false
Two consecutive bare 403s
  -> blocked: the client sends nothing for a while
     transient: false; may have run: false
A list whose second page fails
  -> a list failed: resume from its cursor later (true)
     transient: false; may have run: false
A file that storage rejects
  -> a file was not stored (status 403): upload the same files again, only missing ones are sent
     transient: false; may have run: false
A deadline of the caller
  -> the caller's context ended (context deadline exceeded) after 1 requests
     transient: false; may have run: true
`

func TestEveryErrorIsExplained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		require.NoError(t, run(t.Context(), &out))
		assert.Equal(t, want, out.String())
		assert.Equal(t, len(failures), strings.Count(out.String(), "->"))
		assert.NotContains(t, out.String(), explain(errors.New("x")))
		assert.NotContains(t, out.String(), explain(nil))
	})
}
