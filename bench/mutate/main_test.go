package main

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const sample = `package p

import "sync"

var mu sync.Mutex

func f(a, b int) (n int, err error) {
	mu.Lock()
	defer mu.Unlock()
	for i := 1; i < b && a != 0; i++ {
		n += i * 2
	}
	if n > 100 {
		g(true)
	}
	return n, err
}
`

func TestMutants(t *testing.T) {
	var got []string
	for _, m := range mutantsOf("p.go", []byte(sample)) {
		got = append(got, m.String())
		_, err := parser.ParseFile(token.NewFileSet(), "p.go", m.mutated(), 0)
		require.NoError(t, err, "%s", m)
	}
	assert.ElementsMatch(t, []string{
		"p.go:7 lock dropped: mu.Lock() → _ = &mu",
		"p.go:10 constant changed: 1 → 2",
		"p.go:10 condition negated: i < b && a != 0 → !(i < b && a != 0)",
		"p.go:10 and, or: && → ||",
		"p.go:10 comparison shifted: < → <=",
		"p.go:10 comparison negated: != → ==",
		"p.go:10 constant changed: 0 → 1",
		"p.go:10 statement removed: i++ → nothing",
		"p.go:11 statement removed: n += i * 2 → nothing",
		"p.go:11 arithmetic: * → /",
		"p.go:11 constant changed: 2 → 3",
		"p.go:13 condition negated: n > 100 → !(n > 100)",
		"p.go:13 comparison shifted: > → >=",
		"p.go:13 constant changed: 100 → 101",
		"p.go:14 statement removed: g(true) → nothing",
		"p.go:14 constant changed: true → false",
		"p.go:16 error swallowed: err → nil",
	}, got)
}

// Every file of the core exists, so that none drops out unseen when it moves.
func TestCoreExists(t *testing.T) {
	for module, patterns := range core {
		for _, pattern := range patterns {
			assert.NotEmpty(t, collect(filepath.Join("../..", module), []string{pattern}), "%s of %s", pattern, module)
		}
	}
}
