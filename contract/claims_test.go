package contract_test

import (
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

// A sentence with one of these words, or with a number above 1, is a claim. What
// notClaims matches does not count as a number: names, protocols and HTTP statuses.
var (
	claimWords = regexp.MustCompile(`(?i)\b(never|always|at most|only|exactly once)\b`)
	notClaims  = regexp.MustCompile(`\b(HTTP/[123](\.[01])?|v[12]|UTF-8|UTF-16|SHA-256|IPv4|RFC ?\d+(, section [\d.]+)?|FIPS 140|OAuth2?|p(50|99)|[1-5]xx|` +
		`(101|2\d\d|30\d|40\d|41[34]|42[29]|431|50[0-4])(s?)\b( [a-z]+)?)`)
	linkTarget  = regexp.MustCompile(`\]\([^)]*\)`)
	code        = regexp.MustCompile("`[^`]*`")
	smallNumber = regexp.MustCompile(`^\d\.|\b[01]\b`)
	notStatus   = regexp.MustCompile(`^\d+ (ms|s|requests|calls|goroutines|processes|pages|documents|files|seconds)$`)
)

// claim is a sentence that claims something.
type claim struct{ place, section, sentence string }

// Every claim in the documentation has a row in docs/claims.md that names what
// would refute it.
func TestEveryClaimNamesWhatRefutesIt(t *testing.T) {
	t.Chdir("..")
	claims := append(claimsOfPages(t), claimsOfComments(t)...)
	require.Greater(t, len(claims), 200)
	tests := testNames(t)
	rows := claimRows(t)
	require.Greater(t, len(rows), 50)
	used := map[string]bool{}
	for _, c := range claims {
		covered := namedTest.MatchString(c.sentence)
		for _, row := range rows {
			for _, q := range row.quotations {
				if covers(q, c) {
					used[q], covered = true, true
				}
			}
		}
		if !covered {
			t.Errorf("%s: no line of docs/claims.md covers this sentence. Add one under \"Claims\" with the test that fails where it is untrue, or under \"Not claims\" with the reason; a part of the sentence suffices:\n| %s | `Test…` |", c.place, c.sentence)
		}
	}
	for _, row := range rows {
		for _, q := range row.quotations {
			assert.True(t, used[q], "docs/claims.md: the documentation says %q no more; remove it there", q)
		}
		if row.exempt {
			assert.NotEmpty(t, row.by, "why is %q not a claim?", row.quotations)
			continue
		}
		named := quotedNames.FindAllStringSubmatch(row.by, -1)
		assert.NotEmpty(t, named, "docs/claims.md: %q names no test in backquotes", row.quotations)
		for _, name := range named {
			if strings.ContainsAny(name[1], "./") {
				assert.FileExists(t, name[1], "docs/claims.md")
			} else {
				assert.True(t, slices.Contains(tests, name[1]), "docs/claims.md: there is no test %s", name[1])
			}
		}
	}
}

var namedTest = regexp.MustCompile(`\b(Test|Fuzz|Benchmark)[A-Z]\w+`)

var quotedNames = regexp.MustCompile("`((?:Test|Fuzz|Benchmark|Example)[A-Za-z0-9_]*|[a-z.]+/[a-z./-]+)`")

// Every test that a page of the documentation names exists.
func TestDocumentationNamesExistingTests(t *testing.T) {
	t.Chdir("..")
	tests := testNames(t)
	for _, page := range documentation(t) {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, name := range regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z][A-Za-z0-9]+)`").FindAllStringSubmatch(string(text), -1) {
			assert.True(t, slices.Contains(tests, name[1]), "%s: there is no test %s", page, name[1])
		}
	}
}

// claimRow is a line of docs/claims.md: quotations, or pages with an optional
// section after a #, and what refutes them.
type claimRow struct {
	quotations []string
	by         string
	exempt     bool
}

// covers reports whether a quotation is a part of the claim, or its page or section.
func covers(quotation string, c claim) bool {
	if page, section, _ := strings.Cut(quotation, "#"); aPlace.MatchString(quotation) {
		return page == c.place && (section == "" || section == c.section)
	}
	return strings.Contains(c.sentence, quotation)
}

var aPlace = regexp.MustCompile(`^[A-Za-z./_-]+\.(md|go)(#.*)?$`)

func claimRows(t *testing.T) (rows []claimRow) {
	text, err := os.ReadFile("docs/claims.md")
	require.NoError(t, err)
	section := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			section = heading
		}
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		quotation, by, ok := strings.Cut(strings.Trim(line, "| "), " | ")
		require.True(t, ok, "%q has no second column", line)
		if quotation == "quotation" {
			continue
		}
		quotations := strings.Split(quotation, "<br>")
		for _, q := range quotations {
			require.GreaterOrEqual(t, len(q), 7, "%q is too short to tell sentences apart", q)
		}
		rows = append(rows, claimRow{quotations, by, section == "Not claims"})
	}
	return rows
}

// documentation returns the pages of the documentation.
func documentation(t *testing.T) []string {
	docs, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	recipes, err := filepath.Glob("docs/cookbook/*.md")
	require.NoError(t, err)
	docs = append(docs, recipes...)
	docs = slices.DeleteFunc(docs, func(page string) bool { return page == "docs/claims.md" })
	return append(docs, "README.md", "SECURITY.md", "brelliumredis/README.md")
}

func claimsOfPages(t *testing.T) (claims []claim) {
	for _, page := range documentation(t) {
		data, err := os.ReadFile(page)
		require.NoError(t, err)
		text := regexp.MustCompile("(?s)```.*?```|<!--.*?-->").ReplaceAllString(string(data), "")
		section, paragraph := "", ""
		end := func() {
			claims = append(claims, claimsIn(page, section, paragraph)...)
			paragraph = ""
		}
		for line := range strings.Lines(text) {
			line = strings.TrimSpace(line)
			switch {
			case line == "":
				end()
			case strings.HasPrefix(line, "#"):
				end()
				section = strings.TrimSpace(strings.TrimLeft(line, "#"))
			case strings.HasPrefix(line, "|"): // a row is one sentence
				end()
				if !strings.HasPrefix(line, "|---") {
					claims = append(claims, claimsOf(page, section, []string{line})...)
				}
			case strings.HasPrefix(line, "- "), strings.HasPrefix(line, "> "):
				end()
				paragraph = line[2:] + " "
			default:
				paragraph += line + " "
			}
		}
		end()
	}
	return claims
}

// claimsOfComments returns those of the comments of everything that is exported.
func claimsOfComments(t *testing.T) (claims []claim) {
	for _, dir := range []string{".", "brelliumredis", "brelliumotel", "brelliumtest", "brelliumtest/emulate"} {
		files, err := filepath.Glob(dir + "/*.go")
		require.NoError(t, err)
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
			require.NoError(t, err)
			add := func(doc *ast.CommentGroup) {
				for _, paragraph := range regexp.MustCompile(`\n\s*\n|\n  - `).Split(doc.Text(), -1) {
					if !strings.HasPrefix(paragraph, "\t") { // code
						claims = append(claims, claimsIn(name, "", paragraph)...)
					}
				}
			}
			add(file.Doc)
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.FuncDecl:
					if n.Name.IsExported() && exportedReceiver(n) {
						add(n.Doc)
					}
					return false
				case *ast.GenDecl:
					if n.Lparen == token.NoPos && len(n.Specs) == 1 && exportedSpec(n.Specs[0]) {
						add(n.Doc)
					}
				case *ast.TypeSpec:
					if exportedSpec(n) {
						add(n.Doc)
					}
					return exportedSpec(n)
				case *ast.ValueSpec:
					if exportedSpec(n) {
						add(n.Doc)
					}
				case *ast.Field:
					if len(n.Names) > 0 && n.Names[0].IsExported() {
						add(n.Doc)
					}
				}
				return true
			})
		}
	}
	return claims
}

func exportedReceiver(f *ast.FuncDecl) bool {
	exported := true
	if f.Recv != nil {
		ast.Inspect(f.Recv.List[0].Type, func(n ast.Node) bool {
			if name, ok := n.(*ast.Ident); ok && len(name.Name) > 1 { // not a type parameter
				exported = exported && name.IsExported()
			}
			return true
		})
	}
	return exported
}

func exportedSpec(s ast.Spec) bool {
	switch s := s.(type) {
	case *ast.TypeSpec:
		return s.Name.IsExported()
	case *ast.ValueSpec:
		return s.Names[0].IsExported()
	}
	return false
}

// claimsIn returns the sentences of a paragraph that claim something.
func claimsIn(place, section, paragraph string) []claim {
	var sentences []string
	words := strings.Fields(paragraph)
	for begin, i := 0, 0; i < len(words); i++ {
		last := i == len(words)-1
		end := strings.TrimRight(words[i], "\"*)`")
		if last || strings.ContainsAny(end[max(len(end)-1, 0):], ".!?:") && strings.ContainsAny(words[i+1][:1], "ABCDEFGHIJKLMNOPQRSTUVWXYZ[*`\"") {
			sentences = append(sentences, strings.Join(words[begin:i+1], " "))
			begin = i + 1
		}
	}
	return claimsOf(place, section, sentences)
}

func claimsOf(place, section string, sentences []string) (claims []claim) {
	for _, s := range sentences {
		plain := linkTarget.ReplaceAllString(s, "]")
		numbers := code.ReplaceAllString(plain, "")
		numbers = notClaims.ReplaceAllStringFunc(numbers, func(match string) string {
			if notStatus.MatchString(match) {
				return match
			}
			return ""
		})
		numbers = smallNumber.ReplaceAllString(numbers, "")
		if claimWords.MatchString(plain) || strings.ContainsAny(numbers, "0123456789") {
			plain = strings.NewReplacer("`", "", "*", "", "[", "", "]", "").Replace(plain)
			claims = append(claims, claim{place, section, strings.Trim(strings.ReplaceAll(plain, "|", "/"), "/ ")})
		}
	}
	return claims
}

// testNames returns the names of all tests, benchmarks, fuzz targets and examples of
// all modules.
func testNames(t *testing.T) (names []string) {
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark|Example)\w*)\(`)
	require.NoError(t, filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, name := range declared.FindAllSubmatch(text, -1) {
			names = append(names, string(name[1]))
		}
		return err
	}))
	return names
}
