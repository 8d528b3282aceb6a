package main

import (
	"bytes"
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPicturesAreTheProgramsOutput draws the pictures again.
func TestPicturesAreTheProgramsOutput(t *testing.T) {
	for name, draw := range pictures {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, err := draw(t.Context())
				require.NoError(t, err)
				svg := d.svg()
				assert.NotContains(t, string(svg), "unexpected")
				for decoder := xml.NewDecoder(bytes.NewReader(svg)); ; {
					if _, err := decoder.Token(); err == io.EOF {
						break
					} else {
						require.NoError(t, err)
					}
				}
				file, err := os.ReadFile(filepath.Join("..", "..", "docs", name))
				require.NoError(t, err)
				assert.True(t, bytes.Equal(svg, file), "docs/%s is not what the program draws: cd bench && GOWORK=off go run ./pictures", name)
			})
		})
	}
}
