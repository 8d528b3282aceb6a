package brelliumtest

import (
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// InProcessURL is the base URL for [Emulator.Transport]. The transport serves
// the API under any other host name too, except that of the storage host.
const InProcessURL = "https://api.brellium.test"

// storageHost is the host of upload URLs in process.
const storageHost = "storage.brellium.test"

// Emulator is an in-memory Brellium v2 API for one organization. Create one
// with [New]. Its methods are safe for concurrent use.
type Emulator struct {
	// URL is the base URL of the emulator's port, such as
	// "http://127.0.0.1:49152". It is empty until [Emulator.Start] sets it.
	URL string

	// ClientID and ClientSecret are the organization's key pair. Set them with
	// [WithCredentials]; add more pairs with [Emulator.AddCredentials].
	ClientID, ClientSecret string

	// Settings, which do not change after New.
	addr             string
	basePath         string
	storageURL       string
	seed             uint64
	seedStart        time.Time
	latency          func(*rand.Rand) time.Duration
	tokenLifetime    time.Duration
	uploadLifetime   time.Duration
	auditDelay       time.Duration
	auditDuration    time.Duration
	recipientListLag time.Duration
	userListLag      time.Duration
	recordLimit      int // negative: no limit
	mintBurst        float64
	mintPerSecond    float64
	uploadKey        [32]byte

	mu          sync.Mutex
	ids         *rand.Rand // for ids and tokens
	chances     *rand.Rand // for Fault.Sometimes
	delays      *rand.Rand // for latency
	bucket      bucket
	secrets     map[string]string // client id to secret
	mintBuckets map[string]*bucket
	tokens      map[string]time.Time // access token to expiry

	faults    map[string][]*queuedFault
	records   []*Request
	counts    map[string]int
	responses map[operationStatus]int

	audits     []*auditRecord // nil: seeded and unchanged
	auditIndex map[string]int // the positions of those that are not nil
	documents  documentStore
	users      []*userRecord
	userSeq    uint64
	invites    map[string]int // email to number of invitations
	recipients []*recipientRecord

	server *http.Server
	served chan struct{} // closed when the server has stopped
}

// New returns an emulator that contains only the audit [SampleAuditID]. It
// starts no goroutine and opens no port.
func New(opts ...Option) *Emulator {
	e := &Emulator{
		ClientID:       "emulator-client-id",
		ClientSecret:   "emulator-client-secret-5b1c9f",
		addr:           "127.0.0.1:0",
		seed:           1,
		tokenLifetime:  time.Hour,
		uploadLifetime: 15 * time.Minute,
		auditDelay:     2 * time.Second,
		auditDuration:  2 * time.Second,
		recordLimit:    -1,
		mintBurst:      20,
		mintPerSecond:  0.1,
		bucket:         newBucket(100, 5),
		secrets:        make(map[string]string),
		mintBuckets:    make(map[string]*bucket),
		tokens:         make(map[string]time.Time),
		faults:         make(map[string][]*queuedFault),
		counts:         make(map[string]int),
		responses:      make(map[operationStatus]int),
		auditIndex:     make(map[string]int),
		invites:        make(map[string]int),
	}
	e.documents.init()
	for _, opt := range opts {
		opt(e)
	}
	if e.seedStart.IsZero() {
		e.seedStart = time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -90)
	}
	e.ids = rand.New(rand.NewPCG(e.seed, 1))
	e.delays = rand.New(rand.NewPCG(e.seed, 2))
	e.chances = rand.New(rand.NewPCG(e.seed, 3))
	for i := range e.uploadKey {
		e.uploadKey[i] = byte(e.ids.Uint32())
	}
	e.secrets[e.ClientID] = e.ClientSecret
	e.addAudit(sampleAudit(e.seedStart))
	return e
}

// BaseURL returns the base URL for clients of the emulator: [Emulator.URL] after
// [Emulator.Start], otherwise [InProcessURL], each with the [WithBasePath].
func (e *Emulator) BaseURL() string {
	if e.URL != "" {
		return e.URL + e.basePath
	}
	return InProcessURL + e.basePath
}

// newID returns a random UUID. The caller holds e.mu.
func (e *Emulator) newID() string {
	var b [36]byte
	appendUUID(b[:0], e.ids.Uint64(), e.ids.Uint64())
	return string(b[:])
}

// appendUUID appends a version 4 UUID made from the given bits.
func appendUUID(dst []byte, hi, lo uint64) []byte {
	const digits = "0123456789abcdef"
	hi = hi&^0xf000 | 0x4000
	lo = lo&^(3<<62) | 2<<62
	for shift := 60; shift >= 0; shift -= 4 {
		if shift == 28 || shift == 12 {
			dst = append(dst, '-')
		}
		dst = append(dst, digits[hi>>shift&15])
	}
	dst = append(dst, '-')
	for shift := 60; shift >= 0; shift -= 4 {
		if shift == 44 {
			dst = append(dst, '-')
		}
		dst = append(dst, digits[lo>>shift&15])
	}
	return dst
}
