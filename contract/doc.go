// Package contract holds the client and its emulator to one description of the
// API, openapi/brellium-v2.yaml. It has tests only: every request that a method
// can send and every answer of the emulator is validated against the document,
// and the document's fields are compared with those of the Go structs.
//
// It is a module of its own, so that the validator is no dependency of the
// client.
package contract
