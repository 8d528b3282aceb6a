package brelliumredis_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	brellium "github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumredis"
	"github.com/brellium/brellium-go/brelliumtest"
)

// Two clients, normally in two processes, share the organization's limit and one
// token.
func Example() {
	server, err := miniredis.Run() // in production, your Redis
	if err != nil {
		panic(err)
	}
	defer server.Close()
	emulator := brelliumtest.New() // in production, the API

	for range 2 {
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
		defer rdb.Close()
		limiter, err := brelliumredis.NewLimiter(rdb, brelliumredis.LimiterOptions{})
		if err != nil {
			panic(err)
		}
		store, err := brelliumredis.NewTokenStore(rdb, brelliumredis.TokenStoreOptions{
			ClientSecret: brelliumredis.NewSecret(emulator.ClientSecret),
		})
		if err != nil {
			panic(err)
		}
		client, err := emulator.Client(brellium.WithRateLimiter(limiter), brellium.WithTokenStore(store))
		if err != nil {
			panic(err)
		}
		audit, err := client.Audits.Retrieve(context.Background(), brelliumtest.SampleAuditID)
		if err != nil {
			panic(err)
		}
		fmt.Println(audit.Flags)
	}
	fmt.Println("tokens minted:", emulator.Count(brelliumtest.OpTokenCreate))
	// Output:
	// [Failed Missing Signature]
	// [Failed Missing Signature]
	// tokens minted: 1
}

// With FailClosed nothing is sent while Redis is unavailable.
func ExampleNewLimiter() {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, ContextTimeoutEnabled: true})
	defer rdb.Close()
	limiter, err := brelliumredis.NewLimiter(rdb, brelliumredis.LimiterOptions{
		Bucket:     "acme-production",
		FailClosed: true,
	})
	if err != nil {
		panic(err)
	}
	emulator := brelliumtest.New()
	client, err := emulator.Client(brellium.WithRateLimiter(limiter))
	if err != nil {
		panic(err)
	}
	_, err = client.Audits.Retrieve(context.Background(), brelliumtest.SampleAuditID)
	fmt.Println(errors.Is(err, brelliumredis.ErrUnavailable), emulator.Count(brelliumtest.OpAuditRetrieve))
	// Output: true 0
}
