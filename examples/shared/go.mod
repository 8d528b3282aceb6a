module github.com/brellium/brellium-go/examples/shared

go 1.25.0

require (
	github.com/alicebob/miniredis/v2 v2.40.0
	github.com/brellium/brellium-go v0.1.0
	github.com/brellium/brellium-go/brelliumredis v0.1.0
	github.com/redis/go-redis/v9 v9.22.0
	github.com/stretchr/testify v1.12.1
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/hashicorp/go-cleanhttp v0.5.2 // indirect
	github.com/hashicorp/go-retryablehttp v0.7.8 // indirect
	github.com/yuin/gopher-lua v1.1.1 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sys v0.30.0 // indirect
	golang.org/x/text v0.40.0 // indirect
)

replace (
	github.com/brellium/brellium-go => ../..
	github.com/brellium/brellium-go/brelliumredis => ../../brelliumredis
)
