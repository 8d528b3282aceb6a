package limiter

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"flag"
	"io"
	"os"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var svg = flag.Bool("svg", false, "record the run and write docs/limiter.svg")

const (
	recorded    = "testdata/picture.json"
	docsPicture = "../../docs/limiter.svg"
)

// TestPicture runs what the picture shows: our client loses no call, and the others
// lose many.
func TestPicture(t *testing.T) {
	var columns []column
	for _, c := range []struct {
		title  string
		client maker
	}{{"brellium-go", ours}, {"the guide's wrapper", guide}, {"x/time/rate, 2 retries", plain}} {
		synctest.Test(t, func(*testing.T) { columns = append(columns, portray(c.title, c.client, 1)) })
	}
	assert.Zero(t, columns[0].Lost)
	assert.Less(t, columns[0].RateLimits, 15)
	for _, c := range columns[1:] {
		assert.Greater(t, c.Lost, 150, c.Title)
		assert.Greater(t, c.RateLimits, 1500, c.Title)
	}

	if *svg {
		data, err := json.MarshalIndent(columns, "", "\t")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(recorded, data, 0o644))
		require.NoError(t, os.WriteFile(docsPicture, picture(t), 0o644))
	}
	for i, c := range recordedColumns(t) { // no two runs are equal
		assert.InDelta(t, c.Lost, columns[i].Lost, 50, "%s: draw the picture again", c.Title)
		assert.InEpsilon(t, c.Finished.Seconds(), columns[i].Finished.Seconds(), 0.1, "%s: draw the picture again", c.Title)
	}
}

// TestPictureIsTheProgramsOutput draws the recorded run again.
func TestPictureIsTheProgramsOutput(t *testing.T) {
	svg := picture(t)
	for decoder := xml.NewDecoder(bytes.NewReader(svg)); ; {
		if _, err := decoder.Token(); err == io.EOF {
			break
		} else {
			require.NoError(t, err)
		}
	}
	file, err := os.ReadFile(docsPicture)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(svg, file), "docs/limiter.svg is not what the program draws: go test ./limiter -run TestPicture -svg")
}

func recordedColumns(t *testing.T) (columns []column) {
	data, err := os.ReadFile(recorded)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &columns))
	return columns
}

func picture(t *testing.T) []byte {
	var svg bytes.Buffer
	require.NoError(t, draw(&svg, recordedColumns(t)))
	return svg.Bytes()
}
