package redact

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"unicode"
)

// Code returns s where it has the form of an error code or a request id, and
// "" otherwise: a server could put anything there.
func Code(s string) string {
	if len(s) > 128 {
		return ""
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.' || c == ':') {
			return ""
		}
	}
	return s
}

// MaxMessage is how much of a server's message OneLine keeps, in bytes.
const MaxMessage = 1000

// OneLine makes a server's message safe to print in an error text: one line,
// no control characters, at most MaxMessage bytes.
func OneLine(message string) string {
	cut := len(message) > MaxMessage
	if cut {
		message = message[:MaxMessage]
	}
	message = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(message, ""))
	if cut {
		message += "…"
	}
	return message
}

// Format prints text under any verb; only %q quotes it.
func Format(s fmt.State, verb rune, text string) {
	if verb == 'q' {
		text = strconv.Quote(text)
	}
	_, _ = io.WriteString(s, text)
}

// FormatAttrs prints the attributes of v after its name, under any verb.
func FormatAttrs(s fmt.State, verb rune, name string, v slog.LogValuer) {
	Format(s, verb, name+v.LogValue().Resolve().String())
}

// Marshal encodes the attributes of v as JSON.
func Marshal(v slog.LogValuer) ([]byte, error) { return json.Marshal(attrs(v.LogValue())) }

func attrs(v slog.Value) any {
	v = v.Resolve()
	if v.Kind() != slog.KindGroup {
		return v.Any()
	}
	m := make(map[string]any, len(v.Group()))
	for _, a := range v.Group() {
		m[a.Key] = attrs(a.Value)
	}
	return m
}

// as is errors.AsType, which the oldest supported Go does not have.
func as[E error](err error) (E, bool) {
	var e E
	ok := errors.As(err, &e)
	return e, ok
}
