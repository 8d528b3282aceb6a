// Walk measures how much code one Audits.Retrieve of a warm client runs, and how
// often it changes from one source file to another. Run it from bench:
//
//	go run ./walk
//	go run ./walk -dir <another checkout>
//
// It copies the root package and internal to a temporary directory, records the
// entry and exit of every function there, and takes the lines from coverage
// counters. A function literal counts to the function that contains it. A call of
// a function in another file is a switch, and so is its return.
package main

import (
	"bytes"
	"embed"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const module = "github.com/brellium/brellium-go/"

//go:embed testdata
var program embed.FS // the recorder and the main package, which are added to the copy

func main() {
	dir := flag.String("dir", "..", "root `directory` of the module to measure")
	flag.Parse()
	var functions, lines, switches int
	files := measure(*dir)
	for _, f := range files {
		functions, lines, switches = functions+len(f.functions), lines+len(f.lines), switches+f.switches
	}
	callGo, _ := os.ReadFile(filepath.Join(*dir, "call.go"))
	fmt.Println("files  functions  lines run  file switches  length of call.go")
	fmt.Printf("%5d %10d %10d %14d %18d\n\n", len(files), functions, lines, switches, bytes.Count(callGo, []byte("\n")))
	fmt.Println("functions  lines run  switches to it  file")
	for _, f := range files {
		fmt.Printf("%9d %10d %15d  %s\n", len(f.functions), len(f.lines), f.switches, f.name)
	}
}

// file is what the call runs of one source file.
type file struct {
	name      string
	functions map[string]bool
	lines     map[int]bool
	switches  int // calls from another file, and returns to this one
}

// measure returns the files in the order in which the call reaches them.
func measure(dir string) (files []*file) {
	tmp, err := os.MkdirTemp("", "walk")
	check(err)
	defer os.RemoveAll(tmp)
	copyModule(dir, tmp)
	events := goTool(tmp, "run", "-cover", "-covermode=atomic", "-coverpkg=./...", "./main")
	profile := goTool(tmp, "tool", "covdata", "textfmt", "-i=.", "-o=/dev/stdout")

	byName := map[string]*file{}
	stacks := map[string][]*file{} // of the functions that a goroutine is in
	for event := range strings.Lines(events) {
		e := strings.Fields(event)
		stack := stacks[e[0]]
		if len(e) == 1 { // an exit
			stacks[e[0]] = stack[:len(stack)-1]
			continue
		}
		f := byName[e[1]]
		if f == nil {
			f = &file{name: e[1], functions: map[string]bool{}, lines: map[int]bool{}}
			files, byName[e[1]] = append(files, f), f
		}
		f.functions[e[2]] = true
		if n := len(stack); n > 0 && stack[n-1] != f {
			f.switches++
			stack[n-1].switches++ // and back when it returns
		}
		stacks[e[0]] = append(stack, f)
	}
	for block := range strings.Lines(profile) {
		name, position, _ := strings.Cut(strings.TrimPrefix(block, module), ":")
		var from, to, column, statements, count int
		fmt.Sscanf(position, "%d.%d,%d.%d %d %d", &from, &column, &to, &column, &statements, &count)
		for f := byName[name]; f != nil && count > 0 && from <= to; from++ {
			f.lines[from] = true
		}
	}
	return files
}

func goTool(dir string, args ...string) (stdout string) {
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOCOVERDIR="+dir)
	out, err := cmd.Output()
	check(err)
	return string(out)
}

// copyModule copies what is measured, instrumented, and adds the program.
func copyModule(dir, to string) {
	from := os.DirFS(dir)
	for _, pattern := range []string{"go.mod", "go.sum", "*.go", "internal/*/*.go"} {
		names, err := fs.Glob(from, pattern)
		check(err)
		for _, name := range names {
			text, err := fs.ReadFile(from, name)
			check(err)
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			if filepath.Ext(name) == ".go" {
				text = instrument(name, text)
			}
			check(os.MkdirAll(filepath.Join(to, filepath.Dir(name)), 0o700))
			check(os.WriteFile(filepath.Join(to, name), text, 0o600))
		}
	}
	added, err := fs.Sub(program, "testdata")
	check(err)
	check(os.CopyFS(to, added))
}

// instrument records the entry and exit of each function, on the line where the
// function's body begins.
func instrument(name string, text []byte) []byte {
	tree, err := parser.ParseFile(token.NewFileSet(), name, text, 0)
	check(err)
	var out bytes.Buffer
	copied := 0
	insert := func(at token.Pos, format string, args ...any) {
		end := int(at - tree.FileStart)
		out.Write(text[copied:end])
		fmt.Fprintf(&out, format, args...)
		copied = end
	}
	insert(tree.Name.End(), "; import __recorder %q", module+"internal/recorder")
	for _, decl := range tree.Decls {
		ast.Inspect(decl, func(n ast.Node) bool {
			var body *ast.BlockStmt
			switch n := n.(type) {
			case *ast.FuncDecl:
				body = n.Body
			case *ast.FuncLit:
				body = n.Body
			}
			if body != nil {
				insert(body.Lbrace+1, "defer __recorder.Enter(%q, %d)();", name, decl.Pos())
			}
			return true
		})
	}
	insert(tree.FileEnd, "\nvar _ = __recorder.Enter // for a file without functions\n")
	return out.Bytes()
}

func check(err error) {
	if err != nil {
		log.Panic(err)
	}
}
