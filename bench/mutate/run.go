package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"hash/crc32"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// variable is the environment variable with the number of the mutant to run.
const variable = "MUTANT_OF_THIS_RUN"

// batch is mutants that are compiled together.
type batch struct {
	module  string
	dir     string // of the overlay and the test binaries
	mutants []mutant
	race    bool
}

// draw returns the first n mutants that compile, in batches: one of those in
// functions, and one each of those that cannot share a binary.
func draw(module string, sample []mutant, n int) (all []batch) {
	together := batch{module: module}
	for n > 0 && len(sample) > 0 {
		k := min(n, len(sample))
		for _, m := range sample[:k] {
			if m.together() {
				together.mutants = append(together.mutants, m)
				n--
				continue
			}
			alone := batch{module: module, mutants: []mutant{m}, race: m.operator == "lock dropped"}
			if alone.compile(); len(alone.mutants) == 1 {
				all = append(all, alone)
				n--
			}
		}
		sample = sample[k:]
		n += together.compile()
	}
	if len(together.mutants) > 0 {
		all = append(all, together)
	}
	return all
}

// together reports whether m can be compiled together with others.
func (m mutant) together() bool { return m.function != nil && m.operator != "lock dropped" }

// compile writes the overlay, drops the mutants that do not compile, and returns how
// many those are.
func (b *batch) compile() (dropped int) {
	for len(b.mutants) > 0 {
		os.RemoveAll(b.dir)
		dir, err := os.MkdirTemp("", "mutate")
		if err != nil {
			log.Fatal(err)
		}
		b.dir = dir
		lines := b.overlay()
		packages := map[string]bool{}
		for _, m := range b.mutants {
			packages["./"+filepath.ToSlash(filepath.Dir(m.file))] = true
		}
		out, err := b.command(context.Background(), b.module, append([]string{"build", "-gcflags=-e", "-overlay", filepath.Join(b.dir, "overlay.json")}, slices.Sorted(keys(packages))...)...)
		if err == nil {
			return dropped
		}
		bad := map[int]bool{}
		for _, at := range regexp.MustCompile(`(?m)^(\S+\.go):(\d+):`).FindAllStringSubmatch(out, -1) {
			line, _ := strconv.Atoi(at[2])
			for i, m := range b.mutants {
				at := [2]string{filepath.ToSlash(filepath.Clean(at[1])), filepath.Base(at[1])}
				if (at[0] == m.file || at[1] == short(m.file)) && lines[i][0] <= line && line <= lines[i][1] {
					bad[i] = true
				}
			}
		}
		if len(b.mutants) == 1 {
			bad[0] = true
		}
		if len(bad) == 0 {
			log.Fatalf("the mutants do not compile together: %s", out)
		}
		var good []mutant
		for i, m := range b.mutants {
			if !bad[i] {
				good = append(good, m)
			}
		}
		b.mutants = good
		dropped += len(bad)
	}
	return dropped
}

// short returns a name for the changed file that is short, as the compiler cuts the
// beginning off a longer one.
func short(file string) string { return fmt.Sprintf("%08x.go", crc32.ChecksumIEEE([]byte(file))) }

// overlay writes the changed files and returns the lines of each mutant's copy.
func (b *batch) overlay() [][2]int {
	replace := map[string]string{}
	write := func(name, text string) {
		original, _ := filepath.Abs(filepath.Join(b.module, filepath.FromSlash(name)))
		changed := filepath.Join(b.dir, short(name))
		replace[original] = changed
		if err := os.WriteFile(changed, []byte(text), 0o600); err != nil {
			log.Fatal(err)
		}
	}
	lines := make([][2]int, len(b.mutants))
	if len(b.mutants) == 1 {
		write(b.mutants[0].file, b.mutants[0].mutated())
	} else {
		files := map[string][]byte{}
		for _, m := range b.mutants {
			files[m.file] = m.source
		}
		for name, source := range files {
			write(name, b.combined(name, source, lines))
			write(filepath.ToSlash(filepath.Join(filepath.Dir(name), "zz_mutant.go")), selector(source))
		}
	}
	text, _ := json.Marshal(map[string]any{"Replace": replace})
	if err := os.WriteFile(filepath.Join(b.dir, "overlay.json"), text, 0o600); err != nil {
		log.Fatal(err)
	}
	return lines
}

// selector returns a file of the package of source with the variable that picks the mutant.
func selector(source []byte) string {
	file, err := parser.ParseFile(token.NewFileSet(), "", source, parser.PackageClauseOnly)
	if err != nil {
		log.Fatal(err)
	}
	return fmt.Sprintf("package %s\n\nimport \"os\"\n\nvar mutantOfThisRun = os.Getenv(%q)\n", file.Name.Name, variable)
}

// combined returns a file with all its mutants of the batch: each is a copy of its
// function with the change, and the function starts with a call of the copy that is
// picked. It sets the lines of the copies.
func (b *batch) combined(name string, source []byte, lines [][2]int) string {
	calls := map[int]string{}
	var signatures, copies []edit
	var functions []*function
	for i, m := range b.mutants {
		if m.file != name {
			continue
		}
		id := fmt.Sprintf("%s%d_", copied, i)
		if calls[m.function.body] == "" {
			functions = append(functions, m.function)
		}
		calls[m.function.body] += fmt.Sprintf(" if mutantOfThisRun == \"%d\" { %s };", i, strings.ReplaceAll(m.function.call, copied, id))
		text := apply(source, m.function.from, m.function.to, append(slices.Clone(m.function.edits), m.edits...))
		copies = append(copies, edit{i, 0, strings.Replace(text, copied, id, 1)})
	}
	slices.SortFunc(functions, func(a, b *function) int { return cmp.Compare(a.from, b.from) })
	for _, f := range functions {
		for _, e := range f.edits {
			if e.with != copied {
				signatures = append(signatures, e)
			}
		}
		signatures = append(signatures, edit{f.body, f.body, calls[f.body]})
	}
	text := apply(source, 0, len(source), signatures)
	for _, c := range copies {
		text += "\n"
		first := strings.Count(text, "\n") + 1
		text += c.with + "\n"
		lines[c.from] = [2]int{first, strings.Count(text, "\n")}
	}
	return text
}

// test runs the tests with a mutant, those of its own package first, and returns the
// test that fails. A test that passes when it is run again alone does not count.
func (b *batch) test(m mutant, limit time.Duration) (by string, err error) {
	id := slices.IndexFunc(b.mutants, func(o mutant) bool { return m.source != nil && o.String() == m.String() })
	if m.source == nil && len(b.mutants) == 1 {
		return "", nil // nothing to compare: the one mutant is always there
	}
	root, _ := filepath.Abs(b.module)
	dirs, err := b.tests(root, filepath.Join(root, filepath.FromSlash(filepath.Dir(m.file))))
	if err != nil {
		return "", err
	}
	own := testsIn(filepath.Join(root, filepath.FromSlash(strings.TrimSuffix(m.file, ".go")+"_test.go")))
	for _, dir := range dirs {
		binary := filepath.Join(b.dir, strings.ReplaceAll(dir[len(root):], "/", "_")+".test")
		if _, err := os.Stat(binary); err != nil {
			build := []string{"test", "-overlay", filepath.Join(b.dir, "overlay.json"), "-vet=off", "-ldflags=-s -w", "-c", "-o", binary}
			if b.race {
				build = append(build, "-race")
			}
			if out, err := b.command(context.Background(), dir, append(build, ".")...); err != nil {
				return "", fmt.Errorf("%w: %s", err, out)
			}
		}
		run := func(args ...string) (failed string) {
			ctx, cancel := context.WithTimeout(context.Background(), limit+10*time.Second)
			defer cancel()
			cmd := b.limited(ctx, binary, append(args, "-test.failfast", "-test.timeout="+limit.String())...)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", variable, id))
			out, err := cmd.CombinedOutput()
			if err == nil {
				return ""
			}
			if name := regexp.MustCompile(`(?m)^--- FAIL: (\w+)`).FindSubmatch(out); name != nil {
				return string(name[1])
			}
			return cmp.Or(string(regexp.MustCompile(`(?m)^(panic|fatal error): .*`).Find(out)), err.Error())
		}
		failed := ""
		if own != "" && dir == dirs[0] {
			failed = run("-test.run=^(" + own + ")$") // most likely to notice
		}
		if failed == "" {
			failed = run()
		}
		if strings.HasPrefix(failed, "Test") && run("-test.run=^"+failed+"$") == "" {
			failed = run("-test.skip=^" + failed + "$")
		}
		if failed != "" {
			return failed, nil
		}
	}
	return "", nil
}

// testsIn returns the names of the tests in a file, separated by bars, if it exists.
func testsIn(name string) string {
	source, _ := os.ReadFile(name)
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(source, -1) {
		names = append(names, string(m[1]))
	}
	return strings.Join(names, "|")
}

// tests returns the directories of the tests that depend on the package in own, which
// comes first. The examples are no tests of the core.
func (b *batch) tests(root, own string) (dirs []string, err error) {
	list, err := b.command(context.Background(), root, "list", "-test", "-f", `{{.ImportPath}} {{.Dir}} {{join .Deps " "}}`, "./...")
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, list)
	}
	path := ""
	for line := range strings.Lines(list) {
		if f := strings.Fields(line); f[1] == own {
			path = f[0]
			break
		}
	}
	for line := range strings.Lines(list) {
		f := strings.Fields(line)
		switch dir := f[1]; {
		case !strings.HasSuffix(f[0], ".test"), !slices.Contains(f[2:], path),
			strings.Contains(dir[len(root):], "/examples/"), strings.Contains(dir[len(root):], "/cmd/"):
		case dir == own:
			dirs = slices.Insert(dirs, 0, dir)
		default:
			dirs = append(dirs, dir)
		}
	}
	return dirs, nil
}

// limited returns a command with a limit on memory, which an endless loop would
// otherwise use up.
func (b *batch) limited(ctx context.Context, name string, args ...string) *exec.Cmd {
	limit := "16000000"
	if b.race {
		limit = "unlimited" // the race detector reserves terabytes of addresses
	}
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", "ulimit -v " + limit + ` && exec "$@"`, "sh", name}, args...)...)
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// command runs the go command and returns its output.
func (b *batch) command(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := b.limited(ctx, "go", args...)
	cmd.Dir = dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), errors.Join(err, ctx.Err())
}
