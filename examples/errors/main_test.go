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
  -> a mistake of ours: mend auditID (nothing was sent)
     may pass: false; may have run: false
An id that does not exist
  -> there is no such thing
     may pass: false; may have run: false
A user who was invited before
  -> the user was invited before: nothing to do
     may pass: false; may have run: false
A refusal that asks for more than a call may wait
  -> gave up for lack of total time after 1 requests: come back in 5m0s
     may pass: true; may have run: false
A server that is down
  -> gave up for lack of attempts after 2 requests: come back later
     may pass: true; may have run: false
A page of a gateway instead of an answer, to an invitation
  -> status 502 without a word from the API: something in between answered
     may pass: true; may have run: true
An invitation whose answer is lost
  -> no answer: connection closed before an answer
     may pass: true; may have run: true
A success that is no JSON
  -> an answer that cannot be used: ask support about request (none)
     may pass: false; may have run: true
Credentials that are not accepted
  -> the credentials are not accepted: check them
     may pass: false; may have run: false
One bare 403
  -> blocked: pause, and look at what this request holds
     may pass: false; may have run: false
Two bare 403 in a row
  -> blocked: the client sends nothing for a while
     may pass: false; may have run: false
A list whose second page fails
  -> a list broke off: go on from its cursor later (true)
     may pass: false; may have run: false
A file that storage refuses
  -> a file did not arrive (status 403): upload the same files again, it sends only what is missing
     may pass: false; may have run: false
A deadline of ours
  -> we stopped it ourselves (context deadline exceeded) after 1 requests
     may pass: false; may have run: true
`

func TestEveryErrorIsExplained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		require.NoError(t, run(t.Context(), &out))
		assert.Equal(t, want, out.String())
		assert.Equal(t, len(mishaps), strings.Count(out.String(), "->"))
		assert.NotContains(t, out.String(), explain(errors.New("x")))
		assert.NotContains(t, out.String(), explain(nil))
	})
}
