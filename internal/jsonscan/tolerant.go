package jsonscan

import (
	"bytes"
	"encoding/json"
	"iter"
	"math"
	"reflect"
	"strconv"
	"strings"
)

// Members iterates over the members of data, which is valid JSON. It has none
// unless data is an object.
func Members(data []byte) iter.Seq2[string, json.RawMessage] {
	return func(yield func(string, json.RawMessage) bool) {
		if data = bytes.TrimSpace(data); len(data) == 0 || data[0] != '{' {
			return
		}
		for i := skipSpace(data, 1); data[i] != '}'; i = nextElement(data, i) {
			start := i
			i = skipString(data, i)
			key := string(data[start+1 : i-1])
			if strings.IndexByte(key, '\\') >= 0 {
				_ = json.Unmarshal(data[start:i], &key)
			}
			i = skipSpace(data, skipSpace(data, i)+1) // past the colon
			start = i
			if i = skipValue(data, i); !yield(key, json.RawMessage(data[start:i:i])) {
				return
			}
		}
	}
}

// Member returns the value of the member of data that encoding/json takes for
// key: the last one of this name in any case.
func Member(data []byte, key string) (value json.RawMessage, ok bool) {
	for name, v := range Members(data) {
		if strings.EqualFold(name, key) {
			value, ok = v, true
		}
	}
	return value, ok
}

// Kind names the kind of data, which is valid JSON.
func Kind(data []byte) string {
	if data = bytes.TrimSpace(data); len(data) > 0 {
		switch data[0] {
		case '{':
			return "an object"
		case '[':
			return "a list"
		case '"':
			return "text"
		case 't', 'f':
			return "a boolean"
		case 'n':
			return "null"
		}
	}
	return "a number"
}

// Given reports whether data, a valid JSON value, is anything but null, false, 0 or
// empty.
func Given(data []byte) bool {
	if kind := Kind(data); kind == "an object" || kind == "a list" {
		return bytes.ContainsFunc(data[1:len(data)-1], func(r rune) bool { return !strings.ContainsRune(" \n\r\t", r) })
	}
	switch strings.Trim(string(data), "\" \n\r\t") {
	case "", "null", "false", "0":
		return false
	}
	return true
}

// Tolerant decodes objects whose fields may be of other kinds than expected: a
// number for text, text for a number, 1.0 for an integer, one object for a list.
// What cannot be converted leaves its field empty; a list is then empty as a
// whole. An element of a list that is null is left out.
type Tolerant struct {
	// Odd describes the first value of another kind, and Lost all those that left
	// their fields empty, each once, separated by "; ". They name the field and the
	// kinds, and quote nothing.
	Odd, Lost string

	path   []string
	fields map[reflect.Type]map[string]reflect.StructField
}

// NewTolerant returns a Tolerant for values of the field at path.
func NewTolerant(path ...string) *Tolerant { return &Tolerant{path: path} }

// Decode decodes data, which is valid JSON, into v, a pointer to a zero value. It
// reports whether data fits; a struct takes any object.
func (d *Tolerant) Decode(data []byte, v any) bool { return d.decode(data, reflect.ValueOf(v).Elem()) }

func (d *Tolerant) decode(data []byte, v reflect.Value) bool {
	kind := Kind(data)
	if kind == "null" {
		return true
	}
	if u, ok := v.Addr().Interface().(json.Unmarshaler); ok {
		if u.UnmarshalJSON(data) != nil {
			v.SetZero()
			return false
		}
		if z, ok := u.(interface{ IsZero() bool }); ok && z.IsZero() && strings.Trim(string(data), `" `) != "" {
			return false
		}
		return true
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		if !d.decode(data, v.Elem()) {
			v.SetZero()
			return false
		}
		return true
	case reflect.Struct:
		return kind == "an object" && d.object(data, v)
	case reflect.Slice:
		return d.list(data, v, kind)
	}
	if json.Unmarshal(data, v.Addr().Interface()) == nil {
		return true
	}
	v.SetZero()
	return d.convert(data, v, kind)
}

// object decodes the members of an object into the fields of v.
func (d *Tolerant) object(data []byte, v reflect.Value) bool {
	fields := d.fieldsOf(v.Type())
	for key, value := range Members(data) {
		field, known := fields[key]
		if !known {
			if field, known = fields[strings.ToLower(key)]; !known {
				continue
			}
		}
		into, err := v.FieldByIndexErr(field.Index)
		if err != nil || !into.CanSet() {
			continue
		}
		into.SetZero() // of two members with the same name the last one counts
		d.path = append(d.path, nameOf(field))
		if !d.decode(value, into) {
			d.note(&d.Odd, value, field.Type)
			d.note(&d.Lost, value, field.Type)
		}
		d.path = d.path[:len(d.path)-1]
	}
	return true
}

// fieldsOf returns the fields of t by their names and by those in lower case.
func (d *Tolerant) fieldsOf(t reflect.Type) map[string]reflect.StructField {
	if fields, ok := d.fields[t]; ok {
		return fields
	}
	fields := map[string]reflect.StructField{}
	for _, field := range reflect.VisibleFields(t) {
		if name := nameOf(field); name != "-" && !field.Anonymous && field.IsExported() {
			fields[name], fields[strings.ToLower(name)] = field, field
		}
	}
	if d.fields == nil {
		d.fields = map[reflect.Type]map[string]reflect.StructField{}
	}
	d.fields[t] = fields
	return fields
}

// list decodes a list, or one element in place of a list of one.
func (d *Tolerant) list(data []byte, v reflect.Value, kind string) bool {
	var values []json.RawMessage
	one := kind != "a list"
	if one {
		values = append(values, data)
	} else if json.Unmarshal(data, &values) != nil {
		return false
	}
	list := reflect.MakeSlice(v.Type(), 0, len(values))
	for _, value := range values {
		if Kind(value) == "null" {
			d.note(&d.Odd, data, v.Type())
			continue
		}
		element := reflect.New(v.Type().Elem()).Elem()
		if !d.decode(value, element) || one && element.IsZero() {
			return false
		}
		list = reflect.Append(list, element)
	}
	v.Set(list)
	if one {
		d.note(&d.Odd, data, v.Type())
	}
	return true
}

// convert sets v, a string, number or boolean, from a value of another kind.
func (d *Tolerant) convert(data []byte, v reflect.Value, kind string) bool {
	var text string
	switch kind {
	case "text":
		if json.Unmarshal(data, &text) != nil {
			return false
		}
		text = strings.TrimSpace(text)
	case "a number", "a boolean":
		text = string(data)
	default:
		return false
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		b, err := strconv.ParseBool(strings.ToLower(text))
		if err != nil || len(text) == 1 && text != "0" && text != "1" {
			return false
		}
		v.SetBool(b)
	case reflect.Int, reflect.Int64:
		f, err := number(text)
		if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
			return false
		}
		v.SetInt(int64(f))
	case reflect.Float64:
		f, err := number(text)
		if err != nil {
			return false
		}
		v.SetFloat(f)
	default:
		return false
	}
	d.note(&d.Odd, data, v.Type())
	return true
}

// number reads a number as JSON writes it.
func number(text string) (f float64, err error) {
	err = json.Unmarshal([]byte(text), &f)
	if text == "null" {
		return 0, strconv.ErrSyntax
	}
	return f, err
}

// note describes data, whose kind is not that of the field at the current path.
func (d *Tolerant) note(into *string, data []byte, t reflect.Type) {
	if *into != "" && into == &d.Odd {
		return
	}
	text := "the field " + strings.Join(d.path, ".")
	switch kind, want := Kind(data), kindOf(t); {
	case kind == want && kind == "a list":
		text += " has an element of another kind"
	case kind == want || want == "":
		text += " has an unexpected form"
	default:
		text += " is " + kind + " instead of " + want
	}
	if *into == "" {
		*into = text
	} else if !strings.Contains(*into, text) {
		*into += "; " + text
	}
}

// kindOf names the kind that a t is decoded from, "" for a type of its own form.
func kindOf(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "a boolean"
	case reflect.Int, reflect.Int64:
		return "an integer"
	case reflect.Float64:
		return "a number"
	case reflect.Slice:
		return "a list"
	case reflect.Map:
		return "an object"
	}
	return ""
}
