// Mutate changes one place of the code at a time and runs the tests: a change that
// no test notices is behaviour that no test holds. Run it from bench:
//
//	go run ./mutate -n 60                  # a new sample of 60 mutants of the core
//	go run ./mutate -n 60 -seed 7          # the sample of an earlier run
//	go run ./mutate -module brelliumredis -n 40
//	go run ./mutate -only retry.go:120     # every mutant of one line
//
// The source stays as it is: the go command reads the changed files through its
// -overlay flag. The mutants of functions are compiled together (see combined), and an
// environment variable picks one. A mutant that does not compile is drawn again. A
// mutant that takes a lock away runs under the race detector. Mutants that no test can
// notice, because the program behaves the same, are listed with the reason in
// equivalent.txt.
package main

import (
	"bytes"
	"cmp"
	_ "embed"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
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
	only := flag.String("only", "", "try every mutant of these places instead, `file[:line],…`")
	skip := flag.String("skip", "", "leave out the files whose name matches `pattern`")
	quick := flag.Bool("quick", false, "leave out what needs test binaries of its own: outside functions, and locks")
	limit := flag.Duration("timeout", 2*time.Minute, "time for the tests of one package with one mutant")
	atLeast := flag.Float64("at-least", 0, "fail if a smaller `percentage` is noticed")
	flag.Parse()

	dir := filepath.Join("..", *module)
	all := collect(dir, core[*module])
	sample := all
	if *only != "" {
		places := strings.Split(*only, ",")
		sample = slices.DeleteFunc(all, func(m mutant) bool {
			return !slices.Contains(places, m.file) && !slices.Contains(places, fmt.Sprintf("%s:%d", m.file, m.line))
		})
		*n = len(sample)
	} else {
		random := rand.New(rand.NewPCG(*seed, 0))
		random.Shuffle(len(sample), func(i, k int) { sample[i], sample[k] = sample[k], sample[i] })
	}
	if *skip != "" {
		sample = slices.DeleteFunc(sample, func(m mutant) bool { return regexp.MustCompile(*skip).MatchString(m.file) })
	}
	if *quick {
		sample = slices.DeleteFunc(sample, func(m mutant) bool { return !m.together() })
	}
	fmt.Printf("%d places, seed %d\n", len(sample), *seed)
	equivalent := len(sample)
	sample = slices.DeleteFunc(sample, func(m mutant) bool { return m.equivalent() != "" })
	equivalent -= len(sample)

	var tried, noticed int
	byOperator := map[string][2]int{}
	for _, b := range draw(dir, sample, *n) {
		if by, err := b.test(mutant{}, *limit); err == nil && by != "" {
			log.Fatalf("%s fails without a mutant", by)
		} else if err != nil {
			log.Fatal(err)
		}
		for _, m := range b.mutants {
			began := time.Now()
			by, err := b.test(m, *limit)
			if err != nil {
				log.Fatal(err)
			}
			tried++
			count := byOperator[m.operator]
			count[0]++
			result := "survived"
			if by != "" {
				result = "noticed by " + by
				noticed++
				count[1]++
			}
			byOperator[m.operator] = count
			fmt.Printf("%s: %s (%.0f s)\n", m, result, time.Since(began).Seconds())
		}
		os.RemoveAll(b.dir)
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
	function *function
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
func (m mutant) mutated() string { return apply(m.source, 0, len(m.source), m.edits) }

// apply returns source[from:to] with edits, which are in the order of the source.
func apply(source []byte, from, to int, edits []edit) string {
	var out []byte
	for _, e := range edits {
		out = append(append(out, source[from:e.from]...), e.with...)
		from = e.to
	}
	return string(append(out, source[from:to]...))
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
