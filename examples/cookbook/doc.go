// Package cookbook contains the code of the pages in docs/cookbook, one file for each
// page. Its tests run the code against the emulator, and a test of internal/e2e
// checks that the pages have the same code.
package cookbook
