// Mutate changes one place of the code at a time and runs the tests: a change that
// no test notices is behaviour that no test holds. Run it from bench:
//
//	go run ./mutate -n 60                  # a new sample of 60 mutants of the core
//	go run ./mutate -n 60 -seed 7          # the sample of an earlier run
//	go run ./mutate -module brelliumredis -n 40
//	go run ./mutate -only retry.go:120     # every mutant of one line
//
// The source stays as it is: the go command reads the changed file through its
// -overlay flag. A mutant that does not compile is drawn again. A mutant that takes
// a lock away runs under the race detector. Mutants that no test can notice, because
// the program behaves the same, are listed with the reason in equivalent.txt.
package main

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// core lists what is mutated of each module, by its directory in the repository.
var core = map[string][]string{
	".": {
		"call.go", "client.go", "operation.go", "retry.go", "decode.go", "pagination.go", "ensure.go", "ratelimit.go",
		"oauth.go", "oauth_source.go", "oauth_store.go", "oauth_token.go",
		"audits.go", "audits_follow.go", "documents.go", "documents_put.go", "documents_upload.go", "documents_file.go",
		"internal/block/*.go", "internal/pace/*.go", "internal/wire/*.go", "internal/wait/*.go", "internal/jsonscan/*.go", "internal/storage/*.go",
	},
	"brelliumredis": {"*.go"},
}

//go:embed equivalent.txt
var equivalents string

func main() {
	log.SetFlags(0)
	module := flag.String("module", ".", "`directory` of the module in the repository")
	n := flag.Int("n", 60, "how many mutants that compile to try")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()%1e6), "seed of the sample")
	only := flag.String("only", "", "try every mutant of one place instead, `file[:line]`")
	limit := flag.Duration("timeout", 3*time.Minute, "time for the tests of one mutant")
	atLeast := flag.Float64("at-least", 0, "fail if a smaller `percentage` is noticed")
	flag.Parse()

	dir := filepath.Join("..", *module)
	all := collect(dir, core[*module])
	sample := all
	if *only != "" {
		name, line, _ := strings.Cut(*only, ":")
		sample = slices.DeleteFunc(all, func(m mutant) bool { return m.file != name || line != "" && line != fmt.Sprint(m.line) })
		*n = len(sample)
	} else {
		draw := rand.New(rand.NewPCG(*seed, 0))
		draw.Shuffle(len(sample), func(i, k int) { sample[i], sample[k] = sample[k], sample[i] })
	}
	fmt.Printf("%d places, seed %d\n", len(all), *seed)

	var tried, noticed, equivalent int
	byOperator := map[string][2]int{}
	for _, m := range sample {
		if tried == *n {
			break
		}
		if reason := m.equivalent(); reason != "" {
			equivalent++
			fmt.Printf("equivalent  %s (%s)\n", m, reason)
			continue
		}
		began := time.Now()
		result := m.run(dir, *limit)
		if result == "does not compile" {
			continue
		}
		tried++
		count := byOperator[m.operator]
		count[0]++
		if result != "survived" {
			noticed++
			count[1]++
		}
		byOperator[m.operator] = count
		fmt.Printf("%-10s  %s (%.0f s)\n", result, m, time.Since(began).Seconds())
	}

	fmt.Println("\noperator                noticed")
	for _, name := range slices.Sorted(keys(byOperator)) {
		fmt.Printf("%-22s %4d of %d\n", name, byOperator[name][1], byOperator[name][0])
	}
	share := 100 * float64(noticed) / float64(max(tried, 1))
	fmt.Printf("%-22s %4d of %d (%.1f %%), seed %d; %d equivalent ones not tried\n", "all", noticed, tried, share, *seed, equivalent)
	if share < *atLeast {
		os.Exit(1)
	}
}

func keys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// collect returns every mutant of the files of a module.
func collect(dir string, patterns []string) (all []mutant) {
	for _, pattern := range patterns {
		names, _ := filepath.Glob(filepath.Join(dir, pattern))
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			source, err := os.ReadFile(name)
			if err != nil {
				log.Fatal(err)
			}
			relative, _ := filepath.Rel(dir, name)
			all = append(all, mutantsOf(filepath.ToSlash(relative), source)...)
		}
	}
	slices.SortStableFunc(all, func(a, b mutant) int { return cmp.Compare(a.file, b.file) })
	return all
}

// mutant is one change of one file.
type mutant struct {
	file     string
	line     int
	operator string
	source   []byte
	edits    []edit // in the order of the source
}

// edit replaces source[from:to].
type edit struct {
	from, to int
	with     string
}

func (m mutant) String() string {
	first := m.edits[0]
	was := strings.Join(strings.Fields(string(m.source[first.from:first.to])), " ")
	if len(was) > 70 {
		was = was[:67] + "…"
	}
	return fmt.Sprintf("%s:%d %s: %s → %s", m.file, m.line, m.operator, was, cmp.Or(first.with, "nothing"))
}

// mutated returns the source with the change.
func (m mutant) mutated() []byte {
	var out []byte
	at := 0
	for _, e := range m.edits {
		out = append(append(out, m.source[at:e.from]...), e.with...)
		at = e.to
	}
	return append(out, m.source[at:]...)
}

// equivalent returns why no test can notice the mutant, from equivalent.txt: lines of
// file, operator, the source line and the reason, separated by tabs.
func (m mutant) equivalent() string {
	lines := bytes.Split(m.source, []byte("\n"))
	text := strings.TrimSpace(string(lines[m.line-1]))
	for row := range strings.Lines(equivalents) {
		cells := strings.Split(strings.TrimSpace(row), "\t")
		if len(cells) == 4 && cells[0] == m.file && cells[1] == m.operator && cells[2] == text {
			return cells[3]
		}
	}
	return ""
}

// run tests the mutant: its own package first, then what imports it.
func (m mutant) run(module string, limit time.Duration) string {
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	original, _ := filepath.Abs(filepath.Join(module, filepath.FromSlash(m.file)))
	changed := filepath.Join(dir, filepath.Base(m.file))
	overlay := filepath.Join(dir, "overlay.json")
	text, _ := json.Marshal(map[string]any{"Replace": map[string]string{original: changed}})
	if err := errors.Join(os.WriteFile(changed, m.mutated(), 0o600), os.WriteFile(overlay, text, 0o600)); err != nil {
		log.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	own := "./" + filepath.ToSlash(filepath.Dir(m.file))
	if command(ctx, module, "build", "-overlay", overlay, own) != nil {
		return "does not compile"
	}
	test := []string{"test", "-overlay", overlay, "-failfast", "-vet=off", "-timeout", limit.String()}
	if m.operator == "lock dropped" {
		test = append(test, "-race")
	}
	for _, packages := range []string{own, "./..."} { // the second takes what it can from the test cache
		if err := command(ctx, module, append(test, packages)...); err != nil {
			if ctx.Err() != nil {
				return "timed out"
			}
			return "noticed"
		}
	}
	return "survived"
}

// command runs the go command with a limit on memory, which an endless loop would
// otherwise use up.
func command(ctx context.Context, dir string, args ...string) error {
	limit := "16000000"
	if slices.Contains(args, "-race") {
		limit = "unlimited" // the race detector reserves terabytes of addresses
	}
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", "ulimit -v " + limit + ` && exec go "$@"`, "go"}, args...)...)
	cmd.Dir = dir
	cmd.WaitDelay = 5 * time.Second
	return cmd.Run()
}
