package brellium_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go"
	"github.com/brellium/brellium-go/brelliumtest"
	"github.com/brellium/brellium-go/internal/testkit"
)

// aws/aws-sdk-go#1414, aws/aws-sdk-go#3063, minio/minio#7792, cirruslabs/cirrus-ci-agent#163
func TestUploadAnnouncesItsLengthAndIsNeverChunked(t *testing.T) {
	const size = 1 << 20
	data := testkit.Content(1, size)
	fromPath, path := fileOnDisk(t, "visit.pdf", data)
	open, err := os.Open(path)
	require.NoError(t, err)
	defer open.Close()
	buffered, err := brellium.FileFromReader("reader.pdf", slowReader{bytes.NewReader(data)}, size)
	require.NoError(t, err)
	files := []brellium.UploadFile{
		brellium.FileFromBytes("bytes.pdf", data),
		fromPath,
		brellium.FileFromReaderAt("handle.pdf", open, size),
		buffered,
		{Filename: "sized.pdf", Size: size, Open: func() (io.ReadCloser, error) {
			return io.NopCloser(slowReader{bytes.NewReader(data)}), nil
		}},
		{Filename: "empty.txt", Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("")), nil }},
	}

	// Over a real connection, since it is net/http that frames the body.
	emu := brelliumtest.New()
	client := onPort(t, emu)
	results, err := client.Documents.Upload(t.Context(), files, brellium.UploadOptions{})
	require.NoError(t, err, statuses(results))

	puts := emu.Requests(brelliumtest.OpDocumentPut)
	require.Len(t, puts, len(files))
	for _, put := range puts {
		want := int64(size)
		if strings.Contains(put.Path, "empty") {
			want = 0
		}
		assert.Equal(t, want, put.ContentLength, put.Path)
		assert.Equal(t, want, put.BodySize)
		assert.False(t, put.Chunked)
	}
	_, err = open.Stat()
	require.NoError(t, err, "the caller's handle was closed")
	at, err := open.Seek(0, io.SeekCurrent)
	require.NoError(t, err)
	assert.Zero(t, at, "the caller's handle was moved")

	// An unknown size is rejected before any request.
	emu.ClearRequests()
	unknown := brellium.UploadFile{Filename: "a.pdf", Size: -1, Open: files[0].Open}
	_, err = client.Documents.Upload(t.Context(), []brellium.UploadFile{unknown}, brellium.UploadOptions{})
	testkit.IsInvalid(t, err, "files[0].Size", "")
	assert.Zero(t, emu.Count(brelliumtest.OpAny))
	_, err = brellium.FileFromReader("a.pdf", bytes.NewReader(data), size-1)
	testkit.IsInvalid(t, err, "r", "")
}

func TestUploadOfAFileThatIsNotAsAnnouncedIsFinal(t *testing.T) {
	data := testkit.Content(1, 10_000)
	// The reader returns length bytes of data, and then err.
	reader := func(length int, err error, size int64) brellium.UploadFile {
		return brellium.UploadFile{Filename: "a.pdf", Size: size, Open: func() (io.ReadCloser, error) {
			return io.NopCloser(slowReader{io.MultiReader(bytes.NewReader(data[:length]), iotest.ErrReader(err))}), nil
		}}
	}
	broken := errors.New("disk on fire at /patients/jane")
	short, _ := fileOnDisk(t, "short.pdf", data)
	short.Size = 10_001
	gone, path := fileOnDisk(t, "patients.pdf", data)
	require.NoError(t, os.Remove(path))
	for name, test := range map[string]struct {
		file   brellium.UploadFile
		reason string
		cause  error
	}{
		"a file ends early":           {short, "shorter than its Size", nil},
		"a reader runs over":          {reader(10_000, io.EOF, 9_999), "longer than its Size", nil},
		"nothing is expected":         {reader(10_000, io.EOF, 0), "longer than its Size", nil},
		"a file that is gone":         {gone, "cannot be opened: no such file", fs.ErrNotExist},
		"a reader that fails":         {reader(5_000, broken, 10_000), "cannot be read", broken},
		"Open that returns no reader": {brellium.UploadFile{Filename: "a.pdf", Size: 1, Open: func() (io.ReadCloser, error) { return nil, nil }}, "Open returned no reader", nil},
	} {
		for _, given := range []string{"", "given"} {
			t.Run(name+", external id "+given, func(t *testing.T) {
				emu := brelliumtest.New()
				test.file.ExternalID = given
				results, err := onPort(t, emu).Documents.Upload(t.Context(), []brellium.UploadFile{test.file}, brellium.UploadOptions{})
				var failed *brellium.UploadError
				require.ErrorAs(t, err, &failed)
				assert.Contains(t, err.Error(), test.reason)
				assert.NotContains(t, err.Error(), "patients")
				if test.cause != nil {
					require.ErrorIs(t, err, test.cause)
				}
				assert.Equal(t, brellium.UploadFailed, results[0].Status)
				assert.LessOrEqual(t, results[0].Attempts, 1)
				for _, d := range emu.Documents() {
					assert.False(t, d.Arrived, "storage took a part for the whole")
				}
			})
		}
	}
}

// The storage host takes a while to read, and meanwhile the file is truncated.
func TestUploadOfAFileThatIsCutWhileItIsSentIsFinal(t *testing.T) {
	file, path := fileOnDisk(t, "visit.pdf", testkit.Content(1, 32<<20))
	file.ExternalID = "visit"
	emu := brelliumtest.New()
	var puts atomic.Int32
	client := onPortWithPut(t, emu, func(w http.ResponseWriter, r *http.Request) {
		if puts.Add(1) == 1 {
			assert.NoError(t, os.Truncate(path, 1<<20))
		}
		emu.Handler().ServeHTTP(w, r)
	})
	_, err := client.Documents.Upload(t.Context(), []brellium.UploadFile{file}, brellium.UploadOptions{})
	var failed *brellium.UploadError
	require.ErrorAs(t, err, &failed)
	assert.Contains(t, err.Error(), "shorter than its Size")
	doc, found := emu.Document("visit")
	require.True(t, found)
	assert.False(t, doc.Arrived)
	assert.Equal(t, int32(1), puts.Load())
}

func TestUploadMakesTheSameExternalIDEverywhere(t *testing.T) {
	// Documents that were created with these ids must be found again by every
	// later version.
	testkit.Bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		results, err := client.Documents.Upload(t.Context(), []brellium.UploadFile{
			brellium.FileFromBytes("note.txt", []byte("hello")), brellium.FileFromBytes("note.txt", nil),
		}, brellium.UploadOptions{})
		require.NoError(t, err)
		assert.Equal(t, "fa868482-b251-507e-8ae2-3acd5cc130f7", results[0].ExternalID)
		assert.Equal(t, "79826044-a5de-588d-88f9-8aa36037a743", results[1].ExternalID)
	})
	assert.NotEqual(t, brellium.NewExternalID(), brellium.NewExternalID())
	assert.Len(t, brellium.NewExternalID(), 36)
}
