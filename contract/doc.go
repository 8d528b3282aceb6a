// Package contract tests the client and its emulator against one description of
// the API, openapi/brellium-v2.yaml. It contains only tests. They validate every
// request that a method can send and every response of the emulator against the
// document, and compare the document's fields with those of the Go structs. They
// also check that docs/claims.md has every claim of the documentation.
//
// It is a separate module so that the client does not depend on the validator.
package contract
