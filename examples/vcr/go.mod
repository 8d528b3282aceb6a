module github.com/brellium/brellium-go/examples/vcr

go 1.25.0

require (
	github.com/brellium/brellium-go v0.1.0
	gopkg.in/dnaeon/go-vcr.v4 v4.0.8
)

require (
	github.com/google/uuid v1.6.0 // indirect
	github.com/hashicorp/go-cleanhttp v0.5.2 // indirect
	github.com/hashicorp/go-retryablehttp v0.7.8 // indirect
	go.yaml.in/yaml/v4 v4.0.0 // indirect
	golang.org/x/text v0.40.0 // indirect
)

replace github.com/brellium/brellium-go => ../..
