// Package e2e tests the client from outside, through its exported API: every
// operation under every failure, hostile responses, real connections, blocks,
// uploads that crash, and what may appear in logs and errors. It contains only
// tests.
package e2e
