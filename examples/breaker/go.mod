module github.com/brellium/brellium-go/examples/breaker

go 1.25.0

replace github.com/brellium/brellium-go => ../..

require (
	github.com/brellium/brellium-go v0.1.0
	github.com/failsafe-go/failsafe-go v0.9.8
	github.com/stretchr/testify v1.12.1
)

require (
	github.com/bits-and-blooms/bitset v1.24.4 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/hashicorp/go-cleanhttp v0.5.2 // indirect
	github.com/hashicorp/go-retryablehttp v0.7.8 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/text v0.40.0 // indirect
)
