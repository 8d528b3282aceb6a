// Package peers compares one call of the client with net/http and with other
// API clients. All of them decode the same response into the same type, in
// alternate turns of one run, so the ratio is meaningful.
//
//	go test -bench . ./...
package peers
