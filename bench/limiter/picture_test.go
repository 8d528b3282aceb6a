package limiter

import (
	"bytes"
	"encoding/xml"
	"flag"
	"io"
	"os"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var svg = flag.String("svg", "", "write the picture to this file")

// TestPicture draws the picture and checks what it shows: our client loses no call,
// and the others lose many.
func TestPicture(t *testing.T) {
	var columns []column
	for _, c := range []struct {
		title  string
		client maker
	}{{"brellium-go", ours}, {"the guide's wrapper", guide}, {"x/time/rate, 2 retries", plain}} {
		synctest.Test(t, func(*testing.T) { columns = append(columns, portray(c.title, c.client, 1)) })
	}
	assert.Zero(t, columns[0].lost)
	assert.Less(t, columns[0].rateLimits, 15)
	for _, c := range columns[1:] {
		assert.Greater(t, c.lost, 150, c.title)
		assert.Greater(t, c.rateLimits, 1500, c.title)
	}

	var picture bytes.Buffer
	require.NoError(t, draw(&picture, columns))
	for decoder := xml.NewDecoder(bytes.NewReader(picture.Bytes())); ; {
		if _, err := decoder.Token(); err == io.EOF {
			break
		} else {
			require.NoError(t, err)
		}
	}
	if *svg != "" {
		require.NoError(t, os.WriteFile(*svg, picture.Bytes(), 0o644))
	}
}
