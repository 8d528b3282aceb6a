package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestThePathIsPlausible(t *testing.T) {
	const root = "../.."
	files := measure(root)
	byName := map[string]*file{}
	for _, f := range files {
		byName[f.name] = f
		if len(f.functions) == 0 || len(f.lines) == 0 {
			t.Errorf("%s: %d functions, %d lines", f.name, len(f.functions), len(f.lines))
		}
	}
	if f := byName["call.go"]; f == nil || f.switches == 0 {
		t.Error("the call does not run through call.go")
	}
	text, err := os.ReadFile(filepath.Join(root, "call.go"))
	if n := bytes.Count(text, []byte("\n")); err != nil || n >= 400 {
		t.Errorf("call.go has %d lines, error %v", n, err)
	}
}
