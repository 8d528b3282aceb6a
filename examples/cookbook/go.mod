module github.com/brellium/brellium-go/examples/cookbook

go 1.25.0

require (
	github.com/alicebob/miniredis/v2 v2.40.0
	github.com/brellium/brellium-go v0.1.0
	github.com/brellium/brellium-go/brelliumotel v0.1.0
	github.com/brellium/brellium-go/brelliumredis v0.1.0
	github.com/ncruces/go-sqlite3 v0.30.5
	github.com/redis/go-redis/v9 v9.22.0
	github.com/rs/zerolog v1.35.1
	github.com/stretchr/testify v1.12.1
	go.opentelemetry.io/otel v1.43.0
	go.opentelemetry.io/otel/sdk v1.43.0
	go.opentelemetry.io/otel/sdk/metric v1.43.0
	go.uber.org/zap v1.28.0
	go.uber.org/zap/exp v0.3.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/go-logr/logr v1.4.3 // indirect
	github.com/go-logr/stdr v1.2.2 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/hashicorp/go-cleanhttp v0.5.2 // indirect
	github.com/hashicorp/go-retryablehttp v0.7.8 // indirect
	github.com/mattn/go-colorable v0.1.14 // indirect
	github.com/mattn/go-isatty v0.0.20 // indirect
	github.com/ncruces/julianday v1.0.0 // indirect
	github.com/tetratelabs/wazero v1.11.0 // indirect
	github.com/yuin/gopher-lua v1.1.1 // indirect
	go.opentelemetry.io/auto/sdk v1.2.1 // indirect
	go.opentelemetry.io/otel/metric v1.43.0 // indirect
	go.opentelemetry.io/otel/trace v1.43.0 // indirect
	go.uber.org/atomic v1.11.0 // indirect
	go.uber.org/multierr v1.10.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sys v0.42.0 // indirect
	golang.org/x/text v0.40.0 // indirect
)

replace (
	github.com/brellium/brellium-go => ../..
	github.com/brellium/brellium-go/brelliumotel => ../../brelliumotel
	github.com/brellium/brellium-go/brelliumredis => ../../brelliumredis
)
