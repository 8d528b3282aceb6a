// Package brelliumredis lets the processes of an organization share, through
// Redis, what belongs to all of them: the rate limit and the access token.
//
//	rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
//	limiter, err := brelliumredis.NewLimiter(rdb, brelliumredis.LimiterOptions{})
//	store, err := brelliumredis.NewTokenStore(rdb, brelliumredis.TokenStoreOptions{ClientSecret: secret})
//	client, err := brellium.NewClient(brellium.WithRateLimiter(limiter), brellium.WithTokenStore(store))
//
// It needs Redis 5 or later, or what speaks its protocol and runs its scripts;
// a single server, a Sentinel set-up or a cluster. Nothing in Redis is worth
// keeping: where all of it is lost, attempts go one by one until an answer
// tells what is left of the limit, and one process mints a new token.
package brelliumredis
