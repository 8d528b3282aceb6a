module github.com/brellium/brellium-go/bench/peers

go 1.25.0

require (
	github.com/brellium/brellium-go v0.1.0
	github.com/google/go-github/v82 v82.0.0
	github.com/openai/openai-go/v2 v2.7.1
	github.com/stripe/stripe-go/v84 v84.4.1
	gitlab.com/gitlab-org/api/client-go v1.46.0
)

require (
	github.com/google/go-querystring v1.2.0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/hashicorp/go-cleanhttp v0.5.2 // indirect
	github.com/hashicorp/go-retryablehttp v0.7.8 // indirect
	github.com/tidwall/gjson v1.14.4 // indirect
	github.com/tidwall/match v1.1.1 // indirect
	github.com/tidwall/pretty v1.2.1 // indirect
	github.com/tidwall/sjson v1.2.5 // indirect
	golang.org/x/oauth2 v0.34.0 // indirect
	golang.org/x/text v0.40.0 // indirect
	golang.org/x/time v0.14.0 // indirect
)

replace github.com/brellium/brellium-go => ../../
