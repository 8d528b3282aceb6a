package brelliumtest

import (
	"math/rand/v2"
	"strings"
	"time"
)

// Option changes a setting of a new emulator.
type Option func(*Emulator)

// WithCredentials sets [Emulator.ClientID] and [Emulator.ClientSecret].
func WithCredentials(clientID, clientSecret string) Option {
	return func(e *Emulator) { e.ClientID, e.ClientSecret = clientID, clientSecret }
}

// WithRateLimit sets the capacity and the refill rate of the organization's
// bucket, 100 and 5 per second by default. The bucket starts full.
func WithRateLimit(capacity int, perSecond float64) Option {
	return func(e *Emulator) { e.bucket = newBucket(float64(capacity), perSecond) }
}

// WithRateLimitLevel sets how many tokens the organization's bucket starts
// with. It must come after [WithRateLimit] if both are given.
func WithRateLimitLevel(tokens float64) Option {
	return func(e *Emulator) { e.bucket.set(tokens, time.Now()) }
}

// WithTokenLimit sets the rate limit of the token endpoint for each client id:
// a burst of requests, 20 by default, then one every 10 seconds.
func WithTokenLimit(burst int, every time.Duration) Option {
	return func(e *Emulator) {
		e.mintBurst, e.mintPerSecond = float64(burst), 1/every.Seconds()
	}
}

// WithTokenLifetime sets how long an access token is valid, one hour by
// default.
func WithTokenLifetime(d time.Duration) Option {
	return func(e *Emulator) { e.tokenLifetime = d }
}

// WithUploadURLLifetime sets how long an upload URL is valid, 15 minutes by
// default.
func WithUploadURLLifetime(d time.Duration) Option {
	return func(e *Emulator) { e.uploadLifetime = d }
}

// WithAuditDelay sets the time from the upload of a file to the audit of its
// document, 2 seconds by default. With this option, the audit is complete at once
// unless [WithAuditDuration] follows.
func WithAuditDelay(d time.Duration) Option {
	return func(e *Emulator) { e.auditDelay, e.auditDuration = d, 0 }
}

// WithAuditDuration sets how long the audit of a document takes once it exists, 2
// seconds by default. Its status is "todo" for the first half, then "in_progress",
// and in the end "complete". It must come after [WithAuditDelay] if both are given.
func WithAuditDuration(d time.Duration) Option {
	return func(e *Emulator) { e.auditDuration = d }
}

// WithListLag sets how long a new email recipient is missing from lists. The
// default is 0.
func WithListLag(d time.Duration) Option {
	return func(e *Emulator) { e.recipientListLag = d }
}

// WithUserListLag sets how long a new user is missing from lists. The default
// is 0.
func WithUserListLag(d time.Duration) Option {
	return func(e *Emulator) { e.userListLag = d }
}

// WithLatency sets the round-trip time of each request: one half before the
// request arrives, the other after the operation ran. The function gets a
// random number generator seeded by [WithSeed] and is not called concurrently.
func WithLatency(latency func(*rand.Rand) time.Duration) Option {
	return func(e *Emulator) { e.latency = latency }
}

// WithSeed sets the seed of everything random: ids, [WithLatency] and
// [Fault.Sometimes].
func WithSeed(seed uint64) Option {
	return func(e *Emulator) { e.seed = seed }
}

// WithSeedStart sets the time of the oldest seeded audit. The default is
// midnight UTC, 90 days before today.
func WithSeedStart(start time.Time) Option {
	return func(e *Emulator) { e.seedStart = start.UTC() }
}

// WithRecordLimit keeps only the last n requests for [Emulator.Requests]. The
// default is to keep all; 0 saves time and memory in long runs.
// [Emulator.Count] counts all requests in any case.
func WithRecordLimit(n int) Option {
	return func(e *Emulator) { e.recordLimit = n }
}

// WithBasePath serves the API under a path, as behind a gateway: with
// WithBasePath("/brellium"), paths start with /brellium/v2.
func WithBasePath(path string) Option {
	return func(e *Emulator) { e.basePath = strings.TrimSuffix(path, "/") }
}

// WithAddr sets the address on which [Emulator.Start] listens. The default is a
// free port of 127.0.0.1.
func WithAddr(addr string) Option {
	return func(e *Emulator) { e.addr = addr }
}

// WithStorageURL sets the scheme and host of the upload URLs, such as
// "http://files.example.test:8080". By default they have another host name than
// the API: a fixed one in process, localhost if the API is at 127.0.0.1 and the
// reverse. On any other host they use the API's own.
func WithStorageURL(baseURL string) Option {
	return func(e *Emulator) { e.storageURL = strings.TrimSuffix(baseURL, "/") }
}
