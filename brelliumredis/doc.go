// Package brelliumredis lets the processes of an organization share
// the rate limit and the access token through Redis.
//
//	rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
//	limiter, err := brelliumredis.NewLimiter(rdb, brelliumredis.LimiterOptions{})
//	store, err := brelliumredis.NewTokenStore(rdb, brelliumredis.TokenStoreOptions{ClientSecret: brelliumredis.NewSecret(secret)})
//	client, err := brellium.NewClient(brellium.WithRateLimiter(limiter), brellium.WithTokenStore(store))
//
// It needs Redis 5 or later, or a server that speaks its protocol and runs its
// scripts: a single server, Sentinel or a cluster. The data in Redis need not be
// durable. If it is lost, attempts are sent one by one until a response reports
// what remains of the limit, and one process mints a new token.
package brelliumredis
