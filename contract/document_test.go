package contract_test

import (
	"context"
	"os"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"
)

const documentPath = "../openapi/brellium-v2.yaml"

// node is a mapping in the document.
type node = map[string]any

// readDocument returns the document, parsed and as bytes.
func readDocument(t testing.TB) (node, []byte) {
	t.Helper()
	data, err := os.ReadFile(documentPath)
	require.NoError(t, err)
	var document node
	require.NoError(t, yaml.Unmarshal(data, &document))
	return document, data
}

// strictDocument returns the document for the validator, changed to reject
// unknown fields and values.
func strictDocument(t testing.TB) *openapi3.T {
	t.Helper()
	document, _ := readDocument(t)
	for name, schema := range at(document, "components", "schemas") {
		schema := schema.(node)
		if name != "List" { // the other lists extend it
			if schema["type"] == "object" || schema["allOf"] != nil {
				schema["unevaluatedProperties"] = false
			}
		}
		closeEnumerations(schema)
	}
	data, err := yaml.Marshal(document)
	require.NoError(t, err)
	strict, err := openapi3.NewLoader().LoadFromData(data)
	require.NoError(t, err)
	return strict
}

func closeEnumerations(v any) {
	switch v := v.(type) {
	case node:
		if values, ok := v["x-known-values"]; ok {
			v["enum"] = values
		}
		for _, child := range v {
			closeEnumerations(child)
		}
	case []any:
		for _, child := range v {
			closeEnumerations(child)
		}
	}
}

// at returns the nested mapping at a path of keys.
func at(n node, keys ...string) node {
	for _, key := range keys {
		n, _ = n[key].(node)
	}
	return n
}

func TestDocumentIsValid(t *testing.T) {
	_, data := readDocument(t)
	document, err := openapi3.NewLoader().LoadFromData(data)
	require.NoError(t, err)
	require.NoError(t, document.Validate(context.Background()))
	assert.Equal(t, "3.1.0", document.OpenAPI)
}

// Every operation, parameter, body, response, header, schema and field has an
// x-source, which tells facts from assumptions.
func TestEverythingHasASource(t *testing.T) {
	document, _ := readDocument(t)
	n := 0
	sourced := func(where string, v any) {
		part, ok := v.(node)
		if !assert.True(t, ok, where) {
			return
		}
		if len(part) == 1 && part["$ref"] != nil {
			return // its target is checked
		}
		n++
		assert.Contains(t, []any{"guide", "v1", "assumed"}, part["x-source"], where)
	}
	parameters := func(where string, v any) {
		list, _ := v.([]any)
		for _, p := range list {
			sourced(where+" parameter", p)
		}
	}
	for path, item := range at(document, "paths") {
		for method, v := range item.(node) {
			where := method + " " + path
			if method == "parameters" {
				parameters(path, v)
				continue
			}
			sourced(where, v)
			op := v.(node)
			parameters(where, op["parameters"])
			if op["requestBody"] != nil {
				sourced(where+" body", op["requestBody"])
			}
			for status, response := range at(op, "responses") {
				sourced(where+" "+status, response)
			}
		}
	}
	for _, kind := range []string{"parameters", "headers", "responses", "schemas", "securitySchemes"} {
		for name, part := range at(document, "components", kind) {
			sourced(kind+" "+name, part)
			for field, schema := range at(part.(node), "properties") {
				sourced(name+"."+field, schema)
				assert.NotNil(t, schema.(node)["x-source"], "%s.%s", name, field)
			}
		}
	}
	assert.Greater(t, n, 100)
}
