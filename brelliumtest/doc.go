// Package brelliumtest emulates the Brellium v2 API for tests.
//
// An [Emulator] holds an organization's audits, documents, users, email
// recipients and access tokens in memory, and answers as the API does: with
// its rate limit, its error envelope, its conflicts and its bare refusals. It
// can be reached in process through [Emulator.Transport], which opens no
// socket and so works under testing/synctest; through [Emulator.Handler]; or
// on a port of the loopback interface after [Emulator.Start].
//
//	emu := brelliumtest.New()
//	client, err := emu.Client()
//
// What goes wrong in production can be scripted with [Emulator.Inject]: an
// answer of 503, an HTML page from a gateway, a connection that breaks before
// or after the work was done, a cut-off body, a stalled answer, another worker
// that empties the bucket. What the emulator received is kept and can be read
// with [Emulator.Requests].
//
// The sample audit of the API's guide, [SampleAuditID], is always there. All
// data is synthetic.
package brelliumtest
