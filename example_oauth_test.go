package brellium_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/brellium/brellium-go"
)

// noLeaseStore shares tokens without a lease: each client that finds no token
// mints one. A real store would save the tokenRecord, encrypted.
type noLeaseStore struct{ records sync.Map }

type tokenRecord struct {
	Type, Value string
	ExpiresAt   time.Time
}

func (s *noLeaseStore) Load(_ context.Context, key string) (*brellium.Token, error) {
	r, ok := s.records.Load(key)
	if !ok {
		return nil, nil
	}
	record := r.(tokenRecord)
	return brellium.NewToken(record.Type, record.Value, record.ExpiresAt), nil
}

func (s *noLeaseStore) Lease(_ context.Context, key string, _ time.Duration) (brellium.TokenLease, error) {
	return noLease{s, key}, nil
}

type noLease struct {
	store *noLeaseStore
	key   string
}

func (l noLease) Save(_ context.Context, t *brellium.Token) error {
	l.store.records.Store(l.key, tokenRecord{t.Type, t.Reveal(), t.ExpiresAt})
	return nil
}

func (noLease) Release(context.Context) error { return nil }

func ExampleTokenStore() {
	client, err := brellium.NewClient(
		brellium.WithClientCredentials("client-id", "client-secret"),
		brellium.WithTokenStore(new(noLeaseStore)),
	)
	fmt.Println(client != nil, err)
	// Output: true <nil>
}

func ExampleToken() {
	token := brellium.NewToken("Bearer", "s3cret", time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC))
	fmt.Println(token)
	fmt.Println(token.Reveal())
	// Output:
	// Bearer REDACTED (expires 2026-01-31T12:00:00Z)
	// s3cret
}
