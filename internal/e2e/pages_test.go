package e2e_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the code of the Markdown pages from the Go files that they name")

const repository = "../.."

// pages returns the paths of all Markdown pages, relative to the repository.
func pages(t *testing.T) (all []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(repository, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && entry.Name() == "testdata", entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != repository:
			return filepath.SkipDir
		case strings.HasSuffix(path, ".md"):
			path, err = filepath.Rel(repository, path)
			all = append(all, filepath.ToSlash(path))
		}
		return err
	}))
	return all
}

func readPage(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(repository, path))
	require.NoError(t, err)
	return string(data)
}

// A block of Go code follows a marker that names a file and declarations of it:
//
//	<!-- code: examples/testing/testing_test.go InviteAll -->
//
// Name{} stands for the statements of a function.
var (
	goBlock = regexp.MustCompile("(?ms)^(<!-- ([^\n]*) -->\n)?```go\n(.*?)^```$")
	notHere = map[string]bool{
		"first program": true, // compiled by .ci/readme-program
	}
)

// TestCodeOfThePages compares the Go code of every Markdown page with the Go files
// that it is from. Those are compiled and run by the tests of their module. With
// -update it writes the pages.
func TestCodeOfThePages(t *testing.T) {
	blocks := 0
	for _, path := range pages(t) {
		page := readPage(t, path)
		written := goBlock.ReplaceAllStringFunc(page, func(block string) string {
			blocks++
			parts := goBlock.FindStringSubmatch(block)
			if notHere[parts[2]] {
				return block
			}
			source, found := strings.CutPrefix(parts[2], "code: ")
			if !assert.True(t, found, "%s: no marker names the source of this code:\n%s", path, parts[3]) {
				return block
			}
			file, names, _ := strings.Cut(source, " ")
			code, err := declarations(filepath.Join(repository, file), strings.Fields(names))
			if !assert.NoError(t, err, path) {
				return block
			}
			return parts[1] + "```go\n" + code + "```"
		})
		if *update && written != page {
			require.NoError(t, os.WriteFile(filepath.Join(repository, path), []byte(written), 0o644))
			continue
		}
		assert.Equal(t, written, page, "%s differs from the code: go test ./internal/e2e -run TestCodeOfThePages -update", path)
	}
	assert.Greater(t, blocks, 7, "the pages have code")
}

// declarations returns the text of some declarations of a file, with their comments.
func declarations(path string, names []string) (string, error) {
	source, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, source, parser.ParseComments)
	if err != nil {
		return "", err
	}
	text := func(from, to token.Pos) string {
		return string(source[set.Position(from).Offset:set.Position(to).Offset])
	}
	found := map[string]string{}
	add := func(name string, doc *ast.CommentGroup, decl ast.Decl) {
		from := decl.Pos()
		if doc != nil {
			from = doc.Pos()
		}
		found[name] = text(from, decl.End()) + "\n"
	}
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil {
				receiver := text(d.Recv.List[0].Type.Pos(), d.Recv.List[0].Type.End())
				name = strings.TrimPrefix(receiver, "*") + "." + name
			}
			add(name, d.Doc, d)
			body := strings.Trim(text(d.Body.Lbrace+1, d.Body.Rbrace), "\n")
			found[name+"{}"] = strings.ReplaceAll("\n"+body, "\n\t", "\n")[1:] + "\n"
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					add(s.Name.Name, d.Doc, d)
				case *ast.ValueSpec:
					add(s.Names[0].Name, d.Doc, d)
				}
			}
		}
	}
	var code []string
	for _, name := range names {
		if found[name] == "" {
			return "", fmt.Errorf("%s has no %s", path, name)
		}
		code = append(code, found[name])
	}
	if len(code) == 0 {
		return "", fmt.Errorf("no declaration of %s is named", path)
	}
	return strings.Join(code, "\n"), nil
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	fenced  = regexp.MustCompile("(?ms)^```.*?^```$")
	notSlug = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// TestLinksOfThePages follows every link to a file of the repository, and to a
// heading of a page.
func TestLinksOfThePages(t *testing.T) {
	anchors := func(path string) (all []string) {
		for _, h := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(readPage(t, path), ""), -1) {
			text := link.ReplaceAllString(h[1], "]")
			all = append(all, strings.ReplaceAll(notSlug.ReplaceAllString(strings.ToLower(text), ""), " ", "-"))
		}
		return all
	}
	links := 0
	for _, path := range pages(t) {
		for _, l := range link.FindAllStringSubmatch(fenced.ReplaceAllString(readPage(t, path), ""), -1) {
			if strings.Contains(l[1], "://") {
				continue
			}
			links++
			target, anchor, _ := strings.Cut(l[1], "#")
			if target == "" {
				target = path
			} else {
				target = filepath.ToSlash(filepath.Join(filepath.Dir(path), target))
			}
			if _, err := os.Stat(filepath.Join(repository, target)); !assert.NoError(t, err, "%s links to %s", path, l[1]) {
				continue
			}
			if anchor != "" {
				assert.True(t, slices.Contains(anchors(target), anchor), "%s links to %s, which has no such heading", path, l[1])
			}
		}
	}
	assert.Greater(t, links, 50, "the pages have links")
}

// testSources returns the Go tests of the repository by path.
func testSources(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, pattern := range []string{"*_test.go", "*/*_test.go", "internal/*/*_test.go"} {
		names, err := filepath.Glob(filepath.Join(repository, pattern))
		require.NoError(t, err)
		for _, name := range names {
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			all[name] = string(text)
		}
	}
	return all
}

// TestLessonsNameTheirTests checks that the test of each lesson in CONTRIBUTING.md
// cites the report.
func TestLessonsNameTheirTests(t *testing.T) {
	sources := testSources(t)
	rows := regexp.MustCompile("(?m)^\\| .* \\| ([^ |]+/[^ |]+#\\d+) \\| `(Test\\w+)` \\|$").FindAllStringSubmatch(readPage(t, "CONTRIBUTING.md"), -1)
	require.Greater(t, len(rows), 10)
	for _, row := range rows {
		comment := regexp.MustCompile(`(?m)^((?://.*\n)+)func ` + row[2] + `\(`)
		cited := false
		for _, source := range sources {
			if c := comment.FindStringSubmatch(source); c != nil && regexp.MustCompile(regexp.QuoteMeta(row[1])+`\b`).MatchString(c[1]) {
				cited = true
			}
		}
		assert.True(t, cited, "the comment of %s does not cite %s", row[2], row[1])
	}
}

// TestTelemetryTestsCallEveryOperation checks the list of calls whose spans and
// metrics the privacy test of brelliumotel searches.
func TestTelemetryTestsCallEveryOperation(t *testing.T) {
	names := map[string]string{}
	for _, constant := range regexp.MustCompile(`(?m)^\t(Op\w+) += "(\w+\.\w+)"`).FindAllStringSubmatch(readPage(t, "brelliumtest/route.go"), -1) {
		names[constant[2]] = constant[1]
	}
	_, calls, _ := strings.Cut(readPage(t, "brelliumotel/privacy_test.go"), "\nvar calls = ")
	calls, _, _ = strings.Cut(calls, "\n}\n")
	for _, op := range operations(t) {
		if assert.NotEmpty(t, names[op.name], "brelliumtest/route.go has no constant for %s", op.name) {
			assert.Contains(t, calls, "\tbrelliumtest."+names[op.name]+": ", "calls in brelliumotel/privacy_test.go lacks %s", op.name)
		}
	}
}

// TestCookbookIndex checks that the index of the cookbook has every page of it, and
// that no page is long.
func TestCookbookIndex(t *testing.T) {
	index := readPage(t, "docs/cookbook/README.md")
	recipes := 0
	for _, path := range pages(t) {
		name, found := strings.CutPrefix(path, "docs/cookbook/")
		if !found || name == "README.md" {
			continue
		}
		recipes++
		assert.Contains(t, index, "]("+name+")")
		assert.LessOrEqual(t, strings.Count(readPage(t, path), "\n"), 90, path)
	}
	assert.Greater(t, recipes, 8)
}
