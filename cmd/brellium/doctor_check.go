package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"
)

// openapi is a copy of openapi/brellium-v2.yaml.
//
//go:embed openapi.yaml
var openapi []byte

// The states of an assumption.
const (
	held    = "held"
	differs = "differs"
	notSeen = "not seen"
)

// assumption is one statement of the API description and what was seen of it.
// How is made of names of fields, kinds and forms, never of values.
type assumption struct {
	Name   string   `json:"name"`
	Source string   `json:"source"`
	State  string   `json:"state"`
	How    []string `json:"how,omitempty"`
	In     []string `json:"in,omitempty"` // the operations where it differs
	minor  bool     // the client copes with the difference
}

// problem is how a value differs; the zero value means that it does not.
type problem struct {
	text  string
	minor bool
}

// schema is the part of a JSON schema that the description uses.
type schema struct {
	Ref        string             `yaml:"$ref"`
	Type       kinds              `yaml:"type"`
	Const      string             `yaml:"const"`
	Known      []string           `yaml:"x-known-values"`
	Format     string             `yaml:"format"`
	Minimum    *float64           `yaml:"minimum"`
	Maximum    *float64           `yaml:"maximum"`
	MinLength  int                `yaml:"minLength"`
	Items      *schema            `yaml:"items"`
	Properties map[string]*schema `yaml:"properties"`
	Required   []string           `yaml:"required"`
	AllOf      []*schema          `yaml:"allOf"`
	Source     string             `yaml:"x-source"`
}

// kinds is a type, or a list of types.
type kinds []string

func (k *kinds) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind == yaml.ScalarNode {
		*k = kinds{node.Value}
		return nil
	}
	return node.Decode((*[]string)(k))
}

type described struct { // a parameter, a header or a response
	Ref     string                `yaml:"$ref"`
	Name    string                `yaml:"name"`
	Source  string                `yaml:"x-source"`
	Schema  *schema               `yaml:"schema"`
	Headers map[string]*described `yaml:"headers"`
	Content map[string]struct {
		Schema *schema `yaml:"schema"`
	} `yaml:"content"`
}

type operation struct {
	ID         string                `yaml:"operationId"`
	Source     string                `yaml:"x-source"`
	Parameters []*described          `yaml:"parameters"`
	Responses  map[string]*described `yaml:"responses"`
}

// checker compares responses with the API description.
type checker struct {
	Paths map[string]struct {
		Get, Post, Patch, Delete *operation
	} `yaml:"paths"`
	Components struct {
		Schemas    map[string]*schema    `yaml:"schemas"`
		Headers    map[string]*described `yaml:"headers"`
		Parameters map[string]*described `yaml:"parameters"`
		Responses  map[string]*described `yaml:"responses"`
	} `yaml:"components"`

	operations map[string]*operation
	found      map[string]*assumption
	unknown    map[string]map[string]bool // fields that are not described, by schema
	where      string                     // the operation whose response is checked
}

func newChecker() (*checker, error) {
	c := &checker{operations: map[string]*operation{}, found: map[string]*assumption{}, unknown: map[string]map[string]bool{}}
	if err := yaml.Unmarshal(openapi, c); err != nil {
		return nil, err
	}
	add := func(name, source string) { c.found[name] = &assumption{Name: name, Source: source, State: notSeen} }
	for _, path := range c.Paths {
		for _, op := range []*operation{path.Get, path.Post, path.Patch, path.Delete} {
			if op == nil {
				continue
			}
			c.operations[op.ID] = op
			add(op.ID, op.Source)
			for _, p := range op.Parameters {
				if p.Ref != "" {
					p = c.Components.Parameters[base(p.Ref)]
				}
				add(op.ID+" ?"+p.Name, p.Source)
			}
		}
	}
	for name, header := range c.Components.Headers {
		if name == "RequestID" {
			name = "x-request-id"
		}
		add("header "+name, header.Source)
	}
	for name, response := range c.Components.Responses {
		add("response "+name, response.Source)
	}
	for name, s := range c.Components.Schemas {
		for property, p := range s.Properties {
			add(name+"."+property, p.Source)
		}
	}
	return c, nil
}

// base returns the last part of a $ref.
func base(ref string) string { return ref[strings.LastIndex(ref, "/")+1:] }

// record notes whether an assumption held. Once it has differed it differs.
func (c *checker) record(name string, p problem) {
	a := c.found[name]
	if a == nil {
		return
	}
	if p.text == "" {
		if a.State == notSeen {
			a.State = held
		}
		return
	}
	if a.State != differs {
		a.State, a.minor = differs, true
	}
	a.minor = a.minor && p.minor
	if !slices.Contains(a.How, p.text) {
		a.How = append(a.How, p.text)
	}
	if !slices.Contains(a.In, c.where) {
		a.In = append(a.In, c.where)
	}
}

// response compares the headers and the body of a response with the
// description of the operation's response with this status.
func (c *checker) response(op string, status int, header http.Header, body []byte) {
	c.where = op
	expected := c.operations[op].Responses[strconv.Itoa(status)]
	if expected != nil && expected.Ref != "" {
		expected = c.Components.Responses[base(expected.Ref)]
	}
	if expected == nil {
		return
	}
	for name, h := range expected.Headers {
		c.record("header "+name, c.header(header.Get(name), c.Components.Headers[base(h.Ref)].Schema))
	}
	content, ok := expected.Content["application/json"]
	if !ok {
		return
	}
	var v any
	d := json.NewDecoder(strings.NewReader(string(body)))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		c.record(op, problem{text: "the body is not JSON"})
		return
	}
	c.record(op, c.value(content.Schema, v))
}

func (c *checker) header(text string, s *schema) problem {
	switch {
	case text == "":
		return problem{text: "missing"}
	case slices.Contains(s.Type, "integer"):
		if _, err := strconv.Atoi(text); err != nil {
			return problem{text: "in the form " + form(text) + " instead of an integer"}
		}
		return c.value(s, json.Number(text))
	}
	return problem{}
}

// value compares a value with its schema. What it finds about the properties of
// an object is recorded under their names; the rest is returned.
func (c *checker) value(s *schema, v any) problem {
	component := ""
	if s.Ref != "" {
		component = base(s.Ref)
		s = c.Components.Schemas[component]
	}
	kind := kindOf(v)
	if len(s.Type) > 0 && !slices.Contains(s.Type, kind) && !(kind == "integer" && slices.Contains(s.Type, "number")) {
		return problem{text: kind + " instead of " + strings.Join(s.Type, " or ")}
	}
	if (s.AllOf != nil || s.Properties != nil) && kind != "object" && !slices.Contains(s.Type, kind) {
		return problem{text: kind + " instead of object"}
	}
	switch v := v.(type) {
	case string:
		return checkText(s, v)
	case json.Number:
		if n, err := v.Float64(); err == nil && (s.Minimum != nil && n < *s.Minimum || s.Maximum != nil && n > *s.Maximum) {
			return problem{text: "a number outside its range"}
		}
	case []any:
		for _, item := range v {
			if s.Items == nil {
				break
			}
			if p := c.value(s.Items, item); p.text != "" {
				return problem{"with items: " + p.text, p.minor}
			}
		}
	case map[string]any:
		c.object(component, s, v)
	}
	if s.Const != "" && kind != "string" {
		return problem{text: kind + " instead of a fixed text"}
	}
	return problem{}
}

func checkText(s *schema, v string) problem {
	switch {
	case s.Const != "" && v != s.Const:
		return problem{text: `another text than "` + s.Const + `"`, minor: true}
	case len(v) < s.MinLength:
		return problem{text: "an empty text"}
	case s.Known != nil && !slices.Contains(s.Known, v):
		return problem{"a value other than " + strings.Join(s.Known, ", "), true}
	case s.Format == "date-time":
		if _, err := time.Parse(time.RFC3339, v); err != nil {
			return problem{text: "a time in the form " + form(v) + " instead of RFC 3339"}
		}
	}
	return problem{}
}

// object records what is found about the properties of an object.
func (c *checker) object(component string, s *schema, v map[string]any) {
	owner := map[string]string{} // the schema that describes a property
	properties := map[string]*schema{}
	var required []string
	for _, parent := range s.AllOf {
		p := c.Components.Schemas[base(parent.Ref)]
		required = append(required, p.Required...)
		for name, property := range p.Properties {
			owner[name], properties[name] = base(parent.Ref), property
		}
	}
	for name, property := range s.Properties {
		if parent, ok := owner[name]; ok && v[name] != nil {
			c.record(parent+"."+name, problem{})
		}
		owner[name], properties[name] = component, property
	}
	if len(properties) == 0 {
		return // free-form
	}
	var unknown []string
	for name, value := range v {
		if properties[name] == nil {
			unknown = append(unknown, fieldName(name)+" ("+kindOf(value)+")")
		}
	}
	slices.Sort(unknown)
	unknown = slices.Compact(unknown)
	if len(unknown) > 10 {
		unknown = []string{fmt.Sprintf("%d fields", len(unknown))}
	}
	missing := false
	for _, name := range slices.Concat(required, s.Required) {
		if _, ok := v[name]; ok {
			continue
		}
		text := "missing"
		if unknown != nil {
			text += "; fields here that are not described: " + strings.Join(unknown, ", ")
		}
		c.record(owner[name]+"."+name, problem{text: text})
		missing = true
	}
	if !missing {
		for _, field := range unknown {
			if c.unknown[component] == nil {
				c.unknown[component] = map[string]bool{}
			}
			c.unknown[component][field] = true
		}
	}
	for name, property := range properties {
		if value, ok := v[name]; ok {
			c.record(owner[name]+"."+name, c.value(property, value))
		}
	}
}

// all returns the assumptions, sorted.
func (c *checker) all() (list []*assumption) {
	for _, name := range slices.Sorted(maps.Keys(c.found)) {
		list = append(list, c.found[name])
	}
	return list
}

// newFields returns a line for each schema of which fields were seen that are
// not described.
func (c *checker) newFields() (lines []string) {
	for _, name := range slices.Sorted(maps.Keys(c.unknown)) {
		lines = append(lines, name+": fields that are not described: "+strings.Join(slices.Sorted(maps.Keys(c.unknown[name])), ", "))
	}
	return lines
}

func kindOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case json.Number:
		if strings.ContainsAny(v.String(), ".eE") {
			return "number"
		}
		return "integer"
	case []any:
		return "array"
	}
	return "object"
}

var (
	looksLikeField = regexp.MustCompile(`^[a-z][A-Za-z_]{0,39}[0-9]{0,2}$`)
	words          = regexp.MustCompile(`[A-Z]?[a-z]+`)

	// vocabulary is the words of the API's description, and some more that an
	// API would use in the names of fields.
	vocabulary = sync.OnceValue(func() map[string]bool {
		known := map[string]bool{}
		text := string(openapi) + ` count total priority label tag score region version group team role site
			organization location program service provider supervisor payer category reason comment note language`
		for _, word := range words.FindAllString(text, -1) {
			known[strings.ToLower(word)] = true
		}
		return known
	})
)

// isName reports whether all words of a name are words of an API, rather than
// those of a person.
func isName(name string) bool {
	for _, word := range words.FindAllString(name, -1) {
		if !vocabulary()[strings.ToLower(word)] && !vocabulary()[strings.TrimSuffix(strings.ToLower(word), "s")] {
			return false
		}
	}
	return true
}

// fieldName returns the name of a field, unless it may be data: an object may
// have ids or names of people as its keys.
func fieldName(name string) string {
	if looksLikeField.MatchString(name) && isName(name) {
		return name
	}
	return "a field whose name is not shown"
}

// form returns the form of a text without its content: 9 for each digit, a for
// each letter but the T and Z of a time.
func form(text string) string {
	shape := strings.Map(func(r rune) rune {
		switch {
		case r >= '0' && r <= '9':
			return '9'
		case strings.ContainsRune("TZ-:.+ /,", r):
			return r
		}
		return 'a'
	}, text)
	if len(shape) > 40 {
		shape = shape[:40] + "…"
	}
	return strconv.Quote(shape)
}
