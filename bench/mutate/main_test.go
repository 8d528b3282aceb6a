package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"strings"
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

// Functions of every kind keep their type when their mutants are compiled with them.
func TestCombinedMutantsCompile(t *testing.T) {
	source := []byte(`package p

type T[E any] struct{ n int }

func (T[E]) unnamed(int, string) { println(1) }

func (t *T[E]) blank(_ E, a, _ int, rest ...int) (n int, err error) { t.n = len(rest); return a + 1, err }

func generic[A, B any](a A, f func(A) B) B { println(1); return f(a) }

func none() { println(1) }

var mutantOfThisRun string
`)
	b := batch{}
	for _, m := range mutantsOf("p.go", source) {
		if m.function != nil {
			b.mutants = append(b.mutants, m)
		}
	}
	require.Len(t, b.mutants, 10)
	lines := make([][2]int, len(b.mutants))
	text := b.combined("p.go", source, lines)
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "p.go", text, 0)
	require.NoError(t, err, text)
	_, err = new(types.Config).Check("p", fset, []*ast.File{file}, nil)
	require.NoError(t, err, text)
	for i, at := range lines {
		assert.Contains(t, strings.Split(text, "\n")[at[0]-1], fmt.Sprintf("%s%d_", copied, i))
		assert.Equal(t, 2, strings.Count(text, fmt.Sprintf("%s%d_", copied, i)), "a copy and its call")
	}
}

// Every file of the core exists, so that none drops out unseen when it moves.
func TestCoreExists(t *testing.T) {
	for module, patterns := range core {
		for _, pattern := range patterns {
			assert.NotEmpty(t, collect(filepath.Join("../..", module), []string{pattern}), "%s of %s", pattern, module)
		}
	}
}
