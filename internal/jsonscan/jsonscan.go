// Package jsonscan walks over valid JSON: the bounds of a list's items, the number
// of values, the names of known fields. It also decodes objects whose fields may be
// of other kinds than expected.
package jsonscan

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Items returns the n items of the list at key in body, which has been decoded
// already and so is a valid JSON object. They share its memory. It finds them by
// their bounds alone, which is many times faster than decoding them once more, and
// reports false where it cannot be sure to find what encoding/json has found:
// the key comes twice, escaped or in another case, or there are not n items.
func Items(body []byte, key string, n int) ([]json.RawMessage, bool) {
	items := make([]json.RawMessage, 0, n)
	found := false
	for i := skipSpace(body, skipSpace(body, 0)+1); body[i] != '}'; {
		start := i + 1
		i = skipString(body, i)
		name := body[start : i-1]
		i = skipSpace(body, skipSpace(body, i)+1) // past the colon
		switch isData := string(name) == key; {
		case isData && !found && body[i] == '[':
			found = true
			for i = skipSpace(body, i+1); body[i] != ']'; i = nextElement(body, i) {
				if len(items) == n {
					return nil, false
				}
				start := i
				i = skipValue(body, i)
				items = append(items, json.RawMessage(body[start:i:i]))
			}
			i++
		case !isData && strings.EqualFold(string(name), key), isData && found, bytes.IndexByte(name, '\\') >= 0:
			return nil, false
		default:
			i = skipValue(body, i)
			found = found || isData
		}
		i = nextElement(body, i)
	}
	return items, len(items) == n
}

// nextElement returns the index of the next key or element, or of the end of
// the object or array, for an i that is past an element.
func nextElement(b []byte, i int) int {
	if i = skipSpace(b, i); b[i] == ',' {
		i = skipSpace(b, i+1)
	}
	return i
}

// The three that follow walk over valid JSON, and return the index after what
// they skip.

func skipSpace(b []byte, i int) int {
	for b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t' {
		i++
	}
	return i
}

// skipString skips the string that begins at i.
func skipString(b []byte, i int) int {
	for i++; ; {
		i += bytes.IndexByte(b[i:], '"') + 1
		back := i - 2
		for b[back] == '\\' {
			back--
		}
		if (i-2-back)%2 == 0 { // an even number of backslashes escape each other
			return i
		}
	}
}

// skipValue skips the value that begins at i.
func skipValue(b []byte, i int) int {
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
	default:
		for i < len(b) && !strings.ContainsRune(" \n\r\t,]}", rune(b[i])) {
			i++
		}
		return i
	}
	for depth := 0; ; {
		switch b[i] {
		case '"':
			i = skipString(b, i)
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		if i++; depth == 0 {
			return i
		}
	}
}

// Count counts the values in body; a container with one element counts as one.
func Count(body []byte) (n int) {
	for i := 0; i < len(body); i++ {
		switch body[i] {
		case ',', '{', '[':
			n++
		case '"':
			for i++; i < len(body) && body[i] != '"'; i++ {
				if body[i] == '\\' {
					i++
				}
			}
		}
	}
	return n
}

// ValidText reports whether data, which is JSON, is UTF-8 in which each half of a
// surrogate pair is part of one. Decoders replace what is not.
func ValidText(data []byte) bool {
	for i := 0; i+5 < len(data); i++ {
		if data[i] != '\\' {
			continue
		}
		if unit := surrogate(data[i:]); unit == 0 {
			i++ // past what is escaped
		} else if unit >= 0xdc00 || surrogate(data[i+6:]) < 0xdc00 {
			return false
		} else {
			i += 11
		}
	}
	return utf8.Valid(data)
}

// surrogate returns the surrogate half that data begins with as an escape, or 0.
func surrogate(data []byte) uint64 {
	if len(data) < 6 || data[0] != '\\' || data[1] != 'u' {
		return 0
	}
	unit, err := strconv.ParseUint(string(data[2:6]), 16, 16)
	if err != nil || unit < 0xd800 || unit > 0xdfff {
		return 0
	}
	return unit
}

// NullInList reports whether body, which is valid JSON, may have a list with an
// element that is null. It is wrong only where text looks like that.
func NullInList(body []byte) bool {
	for rest := body; ; {
		i := bytes.Index(rest, []byte("null"))
		if i < 0 {
			return false
		}
		before := bytes.TrimRight(rest[:i], " \n\r\t")
		if n := len(before); n > 0 && (before[n-1] == '[' || before[n-1] == ',') {
			return true
		}
		rest = rest[i+4:]
	}
}

// KnownField returns the part of path, the name of a field in an error of
// encoding/json for a value of type t, that t itself names. The keys of maps are
// data and are left out, which the newer engine of encoding/json does not do.
func KnownField(t reflect.Type, path string) string {
	var known []string
	for _, name := range strings.Split(path, ".") {
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		switch t.Kind() {
		case reflect.Slice, reflect.Array: // name is an index, or is missing
			if t = t.Elem(); strings.Trim(name, "0123456789") == "" {
				continue
			}
			for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
				t = t.Elem()
			}
		}
		if t.Kind() != reflect.Struct {
			break
		}
		field, ok := fieldNamed(t, name)
		if !ok {
			break
		}
		known, t = append(known, nameOf(field)), field.Type
	}
	return strings.Join(known, ".")
}

func fieldNamed(t reflect.Type, name string) (reflect.StructField, bool) {
	for _, field := range reflect.VisibleFields(t) {
		if !field.Anonymous && strings.EqualFold(nameOf(field), name) {
			return field, true
		}
	}
	return reflect.StructField{}, false
}

// nameOf returns the name of a field in JSON.
func nameOf(field reflect.StructField) string {
	tag, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	if tag == "" {
		tag = field.Name
	}
	return tag
}
