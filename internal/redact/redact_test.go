package redact

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestCodeAndOneLine(t *testing.T) {
	for s, ok := range map[string]bool{
		"RATE_LIMITED": true, "access_denied": true, "AccessDenied": true, "a1b2c3d4-e5f6": true, "x.y:z": true,
		"two words": false, "a@example.test": false, "a/b": false, "a\nb": false, "é": false, "a?b": false, "a%20b": false, "\"": false,
		strings.Repeat("a", 128): true, strings.Repeat("a", 129): false,
	} {
		if ok {
			assert.Equal(t, s, Code(s))
		} else {
			assert.Empty(t, Code(s), s)
		}
	}
	assert.Equal(t, "a b  c \u00e9 \ufffd", strings.ReplaceAll(OneLine("a\nb\r\nc\x1b\u00e9\u202e\ufffd"), "\u202e", "!"))
	assert.Len(t, OneLine(strings.Repeat("é", 5000)), MaxMessage+len("…"))
	assert.NotContains(t, OneLine(strings.Repeat("a", MaxMessage-1)+"é"), "\ufffd", "no character is cut in two")
}
