// Package brelliumtest emulates the Brellium v2 API for tests.
//
// An [Emulator] holds an organization's audits, documents, users, email
// recipients and access tokens in memory and behaves like the API, including
// rate limits, error envelopes, conflicts and bare 403 responses.
//
//	emu := brelliumtest.New()
//	client, err := emu.Client()
//
// [Emulator.Client] returns a client that reaches the emulator in process. It
// opens no socket, so tests can run in virtual time with testing/synctest. For
// other clients there are [Emulator.Transport], [Emulator.Handler], and
// [Emulator.Start], which serves on a port.
//
// [Emulator.Inject] scripts faults: error statuses, HTML pages, dropped and
// stalled connections, truncated bodies, revoked tokens, and other workers that
// use up the rate limit. [Emulator.Requests] returns the requests received.
//
// Every emulator has the audit [SampleAuditID] of the API guide. All data is
// synthetic.
package brelliumtest
