// Package redact decides what may leave the client in a log, an error text or
// an encoding: safe codes, one-line messages, errors without their text, and
// values that no printer or dumper can reach.
package redact

// Sealed holds a value that neither package fmt nor a dumper that walks structs
// by reflection can reach: it is behind a function, and reflection cannot look
// inside one. The zero Sealed holds nothing.
type Sealed[T any] struct{ open func() T }

// Seal returns v sealed.
func Seal[T any](v T) Sealed[T] { return Sealed[T]{func() T { return v }} }

// Open returns the value, or the zero value where there is none.
func (s Sealed[T]) Open() (v T) {
	if s.open != nil {
		v = s.open()
	}
	return v
}

// IsZero reports whether there is no value.
func (s Sealed[T]) IsZero() bool { return s.open == nil }
