package jsonscan

import "reflect"

// Innermost follows pointers to pointers, and sets those that are nil.
func Innermost(v any) any {
	p := reflect.ValueOf(v)
	for ; p.Elem().Kind() == reflect.Pointer; p = p.Elem() {
		if p.Elem().IsNil() {
			p.Elem().Set(reflect.New(p.Elem().Type().Elem()))
		}
	}
	return p.Interface()
}

// Visit calls visit with a pointer to each value in v, a pointer into which JSON has
// been decoded, and looks into that value if visit returns true. sent is false for a
// field that may have been absent. It passes over unexported fields and numbers.
func Visit(v any, visit func(pointer any, sent bool) (deeper bool)) {
	look(reflect.ValueOf(v).Elem(), true, 0, visit)
}

func look(v reflect.Value, sent bool, depth int, visit func(any, bool) bool) {
	if depth++; depth > 100 || !visit(v.Addr().Interface(), sent || !v.IsZero()) { // v may contain itself
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			look(v.Elem(), true, depth, visit)
		} else if sent { // null in a list
			look(reflect.New(v.Type().Elem()).Elem(), true, depth, visit)
		}
	case reflect.Interface:
		if !v.IsNil() && v.Elem().Kind() == reflect.Pointer && !v.Elem().IsNil() {
			look(v.Elem().Elem(), true, depth, visit)
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() <= reflect.Complex128 {
			return // such as the bytes of a json.RawMessage
		}
		for i := range v.Len() {
			look(v.Index(i), true, depth, visit)
		}
	case reflect.Map:
		for entry := v.MapRange(); entry.Next(); {
			value := reflect.New(v.Type().Elem()).Elem()
			value.Set(entry.Value())
			look(value, true, depth, visit)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				look(v.Field(i), false, depth, visit)
			}
		}
	}
}
