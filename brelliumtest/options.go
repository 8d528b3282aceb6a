package brelliumtest

import (
	"math/rand/v2"
	"strings"
	"time"
)

// Option changes a setting of a new emulator.
type Option func(*Emulator)

// WithCredentials sets the key pair that the emulator accepts.
func WithCredentials(clientID, clientSecret string) Option {
	return func(e *Emulator) { e.ClientID, e.ClientSecret = clientID, clientSecret }
}

// WithRateLimit sets the capacity and the refill of the organization's
// bucket. The default is 100 and 5 per second. The bucket starts full.
func WithRateLimit(capacity int, perSecond float64) Option {
	return func(e *Emulator) { e.bucket = newBucket(float64(capacity), perSecond) }
}

// WithRateLimitLevel sets how many requests the organization's bucket holds
// at the start. It comes after [WithRateLimit] where both are given.
func WithRateLimitLevel(tokens float64) Option {
	return func(e *Emulator) { e.bucket.set(tokens, time.Now()) }
}

// WithTokenLimit sets the limit of the token endpoint for each client id: a
// burst, and the time after which one more request is allowed. The default is
// 20 and 10 seconds.
func WithTokenLimit(burst int, every time.Duration) Option {
	return func(e *Emulator) {
		e.mintBurst, e.mintPerSecond = float64(burst), 1/every.Seconds()
	}
}

// WithTokenLifetime sets how long an access token is valid, which is an hour
// by default. The answer's expires_in is the same in whole seconds.
func WithTokenLifetime(d time.Duration) Option {
	return func(e *Emulator) { e.tokenLifetime = d }
}

// WithUploadURLLifetime sets how long an upload URL is valid. The default is
// 15 minutes.
func WithUploadURLLifetime(d time.Duration) Option {
	return func(e *Emulator) { e.uploadLifetime = d }
}

// WithAuditDelay sets how long after the arrival of its file a document gets
// its audit. The default is 2 seconds.
func WithAuditDelay(d time.Duration) Option {
	return func(e *Emulator) { e.auditDelay = d }
}

// WithListLag sets how long lists of email recipients lag behind: a recipient
// is listed once it is that old. The default is no lag.
func WithListLag(d time.Duration) Option {
	return func(e *Emulator) { e.recipientListLag = d }
}

// WithUserListLag sets how long lists of users lag behind. The default is no
// lag.
func WithUserListLag(d time.Duration) Option {
	return func(e *Emulator) { e.userListLag = d }
}

// WithLatency makes every exchange take as long as the function says. One
// half passes before the request arrives, the other after the answer was made.
// The function gets a source of random numbers that is seeded, see
// [WithSeed], and is never called by two goroutines at once.
func WithLatency(latency func(*rand.Rand) time.Duration) Option {
	return func(e *Emulator) { e.latency = latency }
}

// WithSeed sets the seed of everything that is drawn: ids, latency, faults
// that come by chance. Emulators with one seed draw the same.
func WithSeed(seed uint64) Option {
	return func(e *Emulator) { e.seed = seed }
}

// WithSeedStart sets the time of the oldest seeded audit. The default is
// midnight UTC, 90 days before today.
func WithSeedStart(start time.Time) Option {
	return func(e *Emulator) { e.seedStart = start.UTC() }
}

// WithRecordLimit keeps only the last n requests for [Emulator.Requests]. With
// n = 0 none is recorded, which saves time and memory in long runs. The default
// is to keep all of them. [Emulator.Count] counts in any case.
func WithRecordLimit(n int) Option {
	return func(e *Emulator) { e.recordLimit = n }
}

// WithBasePath puts the API under a path, as behind a gateway:
// WithBasePath("/brellium") answers under /brellium/v2.
func WithBasePath(path string) Option {
	return func(e *Emulator) { e.basePath = strings.TrimSuffix(path, "/") }
}

// WithAddr sets the address on which Start listens. The default is a free
// port of 127.0.0.1.
func WithAddr(addr string) Option {
	return func(e *Emulator) { e.addr = addr }
}

// WithStorageURL sets the scheme and host of the upload URLs, such as
// "http://files.example.test:8080". By default they lead to the other one of
// the names 127.0.0.1 and localhost where the API is reached under one of
// them, to a host name of their own in process, and else to the API's host.
func WithStorageURL(baseURL string) Option {
	return func(e *Emulator) { e.storageURL = strings.TrimSuffix(baseURL, "/") }
}
