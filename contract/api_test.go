package contract

import (
	"flag"
	"fmt"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/go/packages"
)

var update = flag.Bool("update", false, "write the exported API of today to api/")

// TestExportedAPI compares the exported API of each importable package with the file
// that lists it, so that no name or signature changes by accident.
func TestExportedAPI(t *testing.T) {
	workspace, err := filepath.Abs("../go.work")
	require.NoError(t, err)
	for name, dir := range map[string]string{
		"brellium": "..", "brelliumtest": "../brelliumtest", "emulate": "../brelliumtest/emulate", "brelliumredis": "../brelliumredis", "brelliumotel": "../brelliumotel",
	} {
		loaded, err := packages.Load(&packages.Config{
			Mode: packages.NeedTypes | packages.NeedImports | packages.NeedDeps | packages.NeedName,
			Dir:  dir,
			Env:  append(os.Environ(), "GOWORK="+workspace),
		}, ".")
		require.NoError(t, err)
		require.Len(t, loaded, 1)
		require.Empty(t, loaded[0].Errors)
		api := exported(loaded[0].Types)
		golden := filepath.Join("api", name+".txt")
		if *update {
			require.NoError(t, os.WriteFile(golden, []byte(api), 0o644))
		}
		want, err := os.ReadFile(golden)
		require.NoError(t, err)
		before, after := strings.Split(string(want), "\n"), strings.Split(api, "\n")
		for _, line := range without(before, after) {
			t.Errorf("%s no longer has: %s", name, line)
		}
		for _, line := range without(after, before) {
			t.Errorf("%s has, new or changed: %s", name, line)
		}
	}
	if t.Failed() {
		t.Log("What is gone or changed breaks users and belongs into the CHANGELOG. Then, in contract: GOWORK=off go test -run TestExportedAPI . -update")
	}
}

// without returns the lines of a that b has not.
func without(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(line string) bool { return slices.Contains(b, line) })
}

// exported lists the exported API of a package, one line for each name.
func exported(pkg *types.Package) string {
	qualifier := types.RelativeTo(pkg)
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for _, name := range pkg.Scope().Names() {
		object := pkg.Scope().Lookup(name)
		if !object.Exported() {
			continue
		}
		switch o := object.(type) {
		case *types.Const:
			add("const %s %s = %s", name, types.TypeString(o.Type(), qualifier), o.Val().ExactString())
		case *types.TypeName:
			if o.IsAlias() {
				add("type %s = %s", name, types.TypeString(types.Unalias(o.Type()), qualifier))
				continue
			}
			named := o.Type().(*types.Named)
			parameters := strings.TrimPrefix(types.TypeString(named, qualifier), name)
			switch u := named.Underlying().(type) {
			case *types.Struct:
				add("type %s%s struct", name, parameters)
				for i := range u.NumFields() {
					if f := u.Field(i); f.Exported() {
						add("field %s.%s %s `%s`", name, f.Name(), types.TypeString(f.Type(), qualifier), u.Tag(i))
					}
				}
			default:
				add("type %s%s %s", name, parameters, types.TypeString(u, qualifier))
			}
			values := types.NewMethodSet(named)
			for m := range types.NewMethodSet(types.NewPointer(named)).Methods() {
				receiver := name
				if values.Lookup(m.Obj().Pkg(), m.Obj().Name()) == nil {
					receiver = "*" + name
				}
				if m.Obj().Exported() && m.Obj().Pkg() == pkg && !types.IsInterface(named) {
					add("method (%s) %s%s", receiver, m.Obj().Name(), strings.TrimPrefix(types.TypeString(m.Obj().Type(), qualifier), "func"))
				}
			}
		default: // functions and variables
			add("%s", types.ObjectString(object, qualifier))
		}
	}
	slices.Sort(lines)
	return strings.ReplaceAll(strings.Join(lines, "\n"), " ``", "") + "\n"
}
