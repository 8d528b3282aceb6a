package contract_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
)

// structs are the public types of the document's schemas.
var structs = map[string]reflect.Type{
	"Audit":                  reflect.TypeFor[brellium.Audit](),
	"AuditItem":              reflect.TypeFor[brellium.AuditItem](),
	"AuditResponse":          reflect.TypeFor[brellium.AuditResponse](),
	"AuditUpdate":            reflect.TypeFor[brellium.AuditUpdateParams](),
	"AuditBatchUpdate":       reflect.TypeFor[brellium.AuditBatchUpdateParams](),
	"AuditBatchUpdateResult": reflect.TypeFor[brellium.AuditBatchUpdateResult](),
	"Document":               reflect.TypeFor[brellium.Document](),
	"DocumentInput":          reflect.TypeFor[brellium.DocumentInput](),
	"DocumentCreate":         reflect.TypeFor[brellium.DocumentCreateParams](),
	"DocumentCreateResult":   reflect.TypeFor[brellium.DocumentCreateResult](),
	"User":                   reflect.TypeFor[brellium.User](),
	"UserCreate":             reflect.TypeFor[brellium.UserCreateParams](),
	"EmailRecipient":         reflect.TypeFor[brellium.EmailRecipient](),
	"EmailRecipientCreate":   reflect.TypeFor[brellium.EmailRecipientCreateParams](),
}

// queries are the params types of the list operations. Their fields are the
// query parameters.
var queries = map[string]reflect.Type{
	"audits.list":           reflect.TypeFor[brellium.AuditListParams](),
	"documents.list":        reflect.TypeFor[brellium.DocumentListParams](),
	"users.list":            reflect.TypeFor[brellium.UserListParams](),
	"email_recipients.list": reflect.TypeFor[brellium.EmailRecipientListParams](),
}

// inner are the schemas without a public type of the same fields.
// TestEveryFieldInTheSourceIsInTheDocument compares their fields with the
// source.
var inner = map[string]string{
	"AuditStatus":        "a value, not an object",
	"List":               "brellium.Page",
	"AuditList":          "brellium.Page",
	"DocumentList":       "brellium.Page",
	"UserList":           "brellium.Page",
	"EmailRecipientList": "brellium.Page",
	"TokenRequest":       "brellium.WithClientCredentials",
	"TokenAnswer":        "brellium.Token",
	"Failure":            "brellium.APIError",
	"FailureDetail":      "brellium.APIError",
	"OAuthFailure":       "brellium.APIError",
}

// jsonFields returns the names of a struct's JSON fields.
func jsonFields(t reflect.Type) []string {
	var names []string
	for i := range t.NumField() {
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); name != "" && name != "-" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// snake converts SetID to set_id.
func snake(name string) string {
	var b strings.Builder
	runes := []rune(name)
	for i, r := range runes {
		if unicode.IsUpper(r) && i > 0 && (unicode.IsLower(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

func TestStructFieldsMatchTheDocument(t *testing.T) {
	document, _ := readDocument(t)
	schemas := at(document, "components", "schemas")
	for name, schema := range schemas {
		goType, public := structs[name]
		_, private := inner[name]
		assert.NotEqual(t, public, private, "schema %s must be in structs or in inner", name)
		if public {
			assert.Equal(t, slices.Sorted(maps.Keys(at(schema.(node), "properties"))), jsonFields(goType),
				"schema %s and brellium.%s differ", name, goType.Name())
		}
	}
	for name := range structs {
		assert.Contains(t, schemas, name)
	}
	for name := range inner {
		assert.Contains(t, schemas, name)
	}
}

func TestListParametersMatchTheDocument(t *testing.T) {
	document, _ := readDocument(t)
	shared := at(document, "components", "parameters")
	seen := 0
	for path, item := range at(document, "paths") {
		for method, v := range item.(node) {
			op, ok := v.(node)
			if !ok {
				continue
			}
			var documented []string
			list, _ := op["parameters"].([]any)
			for _, p := range list {
				p := p.(node)
				if ref, ok := p["$ref"].(string); ok {
					p = shared[ref[strings.LastIndexByte(ref, '/')+1:]].(node)
				}
				documented = append(documented, p["name"].(string))
			}
			params, ok := queries[op["operationId"].(string)]
			require.Equal(t, ok, len(documented) > 0, "%s %s", method, path)
			if !ok {
				continue
			}
			seen++
			var fields []string
			for i := range params.NumField() {
				fields = append(fields, snake(params.Field(i).Name))
			}
			assert.ElementsMatch(t, documented, fields, "%s %s and brellium.%s differ", method, path, params.Name())
		}
	}
	assert.Len(t, queries, seen)
}

// source returns the client's files without tests.
func source(t *testing.T) []*ast.File {
	t.Helper()
	names, err := filepath.Glob("../*.go")
	require.NoError(t, err)
	var files []*ast.File
	for _, name := range names {
		if !strings.HasSuffix(name, "_test.go") {
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			require.NoError(t, err)
			files = append(files, file)
		}
	}
	return files
}

// notOfTheAPI are structs with JSON tags that are not part of the API.
var notOfTheAPI = []string{"FollowCheckpoint"}

func TestEveryFieldInTheSourceIsInTheDocument(t *testing.T) {
	document, _ := readDocument(t)
	known := map[string]bool{}
	for _, schema := range at(document, "components", "schemas") {
		for name := range at(schema.(node), "properties") {
			known[name] = true
		}
	}
	public := map[string]bool{}
	for _, goType := range structs {
		public[goType.Name()] = true
	}
	fields := 0
	for _, file := range source(t) {
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				if slices.Contains(notOfTheAPI, spec.Name.Name) {
					return false
				}
				if s, ok := spec.Type.(*ast.StructType); ok && spec.Name.IsExported() && tagged(s) {
					assert.True(t, public[spec.Name.Name], "brellium.%s has JSON fields but no schema", spec.Name.Name)
				}
			}
			if s, ok := n.(*ast.StructType); ok {
				for _, f := range s.Fields.List {
					if name := jsonName(f); name != "" {
						fields++
						assert.True(t, known[name], "the field %s is in no schema", name)
					}
				}
			}
			return true
		})
	}
	assert.Greater(t, fields, 60)
}

func tagged(s *ast.StructType) bool {
	return slices.ContainsFunc(s.Fields.List, func(f *ast.Field) bool { return jsonName(f) != "" })
}

func jsonName(f *ast.Field) string {
	if f.Tag == nil {
		return ""
	}
	tag, err := strconv.Unquote(f.Tag.Value)
	if err != nil {
		return ""
	}
	name, _, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
	if name == "-" {
		return ""
	}
	return name
}

// enumerations maps a Go type with constants to the known values in the
// document.
var enumerations = map[string]struct {
	path []string
	more []string // constants of the client only
}{
	"AuditStatus":    {[]string{"AuditStatus", "x-known-values"}, nil},
	"AuditAnswer":    {[]string{"AuditResponse", "properties", "answer", "x-known-values"}, nil},
	"DocumentStatus": {[]string{"Document", "properties", "status", "x-known-values"}, nil},
	"ErrorCode":      {[]string{"FailureDetail", "properties", "code", "x-known-codes"}, []string{"HTTP_ERROR"}},
}

func TestConstantsMatchTheKnownValues(t *testing.T) {
	constants := map[string][]string{}
	for _, file := range source(t) {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			if goType, ok := spec.Type.(*ast.Ident); ok && len(spec.Values) == 1 {
				if value, ok := spec.Values[0].(*ast.BasicLit); ok && value.Kind == token.STRING {
					text, err := strconv.Unquote(value.Value)
					require.NoError(t, err)
					constants[goType.Name] = append(constants[goType.Name], text)
				}
			}
			return true
		})
	}
	document, _ := readDocument(t)
	for goType, e := range enumerations {
		last := len(e.path) - 1
		known := slices.Clone(e.more)
		for _, value := range at(document, append([]string{"components", "schemas"}, e.path[:last]...)...)[e.path[last]].([]any) {
			known = append(known, value.(string))
		}
		assert.ElementsMatch(t, known, constants[goType], goType)
	}
}
