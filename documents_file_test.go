package brellium_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

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

// A file that another program writes to while it is sent. A later run sends it
// whole.
// aws/aws-sdk-cpp#712, rclone/rclone#9785
func TestUploadOfAFileThatChangesWhileItIsSentIsFinal(t *testing.T) {
	const size = 16 << 20
	appendTo := func(t *testing.T, path string) {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
		require.NoError(t, err)
		_, err = f.WriteString("20 bytes of the rest")
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	overwrite := func(t *testing.T, path string) {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		require.NoError(t, err)
		_, err = f.WriteAt([]byte("another end"), size-100)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	for name, test := range map[string]struct {
		id     string
		change func(*testing.T, string)
		hidden bool // that it is a file of the system
		reason string
	}{
		"a file that grows":                           {"visit", appendTo, false, "longer than its Size"},
		"a reader that grows":                         {"visit", appendTo, true, "longer than its Size"},
		"a file that grows, id made from its content": {"", appendTo, false, "longer than its Size"},
		"a file that is written to":                   {"visit", overwrite, false, "changed during the upload"},
		"a reader of other content":                   {"", overwrite, true, "changed during the upload"},
	} {
		t.Run(name, func(t *testing.T) {
			_, path := fileOnDisk(t, "visit.pdf", testkit.Content(1, size))
			require.NoError(t, os.Chtimes(path, time.Time{}, time.Now().Add(-time.Hour)))
			file := func() brellium.UploadFile {
				f, err := brellium.FileFromPath(path)
				require.NoError(t, err)
				f.ExternalID = test.id
				if open := f.Open; test.hidden {
					f.Open = func() (io.ReadCloser, error) {
						r, err := open()
						return struct{ io.ReadCloser }{r}, err
					}
				}
				return f
			}
			emu := brelliumtest.New()
			var first atomic.Bool
			client := onPortWithPut(t, emu, func(w http.ResponseWriter, r *http.Request) {
				if first.CompareAndSwap(false, true) {
					_, err := io.CopyN(io.Discard, r.Body, 1<<20)
					assert.NoError(t, err)
					test.change(t, path)
					_, err = io.Copy(io.Discard, r.Body)
					assert.Error(t, err, "storage got a complete request")
					return
				}
				emu.Handler().ServeHTTP(w, r)
			})
			results, err := client.Documents.Upload(t.Context(), []brellium.UploadFile{file()}, brellium.UploadOptions{})
			require.ErrorContains(t, err, test.reason)
			assert.Equal(t, 1, results[0].Attempts)

			results, err = client.Documents.Upload(t.Context(), []brellium.UploadFile{file()}, brellium.UploadOptions{})
			require.NoError(t, err)
			now, err := os.ReadFile(path)
			require.NoError(t, err)
			doc, _ := emu.Document(results[0].DocumentID)
			assert.Equal(t, testkit.Digest(now), doc.SHA256)
		})
	}
}

// Between the making of an id and the sending, the file becomes another one of
// the same size.
func TestUploadSendsOnlyTheContentThatTheIDWasMadeFrom(t *testing.T) {
	one, two := testkit.Content(1, 100_000), testkit.Content(2, 100_000)
	old := time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC) // before the time of a bubble
	write := func(t *testing.T, path string, data []byte, modified time.Time) {
		require.NoError(t, os.WriteFile(path, data, 0o600))
		require.NoError(t, os.Chtimes(path, time.Time{}, modified))
	}
	for name, test := range map[string]struct {
		before time.Time // when the file was modified last
		change func(t *testing.T, path string)
	}{
		"replaced": {old, func(t *testing.T, path string) {
			write(t, path+".new", two, old)
			require.NoError(t, os.Rename(path+".new", path))
		}},
		"written to":             {old, func(t *testing.T, path string) { write(t, path, two, old.Add(time.Second)) }},
		"written to at one time": {old.AddDate(10, 0, 0), func(t *testing.T, path string) { write(t, path, two, old.AddDate(10, 0, 0)) }},
	} {
		testkit.Bubble(t, name, func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
			file, path := fileOnDisk(t, "visit.pdf", one)
			write(t, path, one, test.before)
			var once sync.Once
			emu.Inject(brelliumtest.OpDocumentCreate, brelliumtest.OK().When(func(*brelliumtest.Request) bool {
				once.Do(func() { test.change(t, path) })
				return true
			}).Forever())
			results, err := client.Documents.Upload(t.Context(), []brellium.UploadFile{file}, brellium.UploadOptions{})
			require.ErrorContains(t, err, "changed during the upload")
			assert.LessOrEqual(t, results[0].Attempts, 1)
			assert.False(t, emu.Documents()[0].Arrived)

			again, err := client.Documents.Upload(t.Context(), []brellium.UploadFile{file}, brellium.UploadOptions{})
			require.NoError(t, err)
			assert.NotEqual(t, results[0].ExternalID, again[0].ExternalID)
			doc, _ := emu.Document(again[0].DocumentID)
			assert.Equal(t, testkit.Digest(two), doc.SHA256)
		})
	}
}

func TestUploadOfAFileThatDoesNotChangeSendsIt(t *testing.T) {
	for _, modified := range []int{1990, 2010} { // before and after the time of a bubble
		testkit.Bubble(t, strconv.Itoa(modified), func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
			file, path := fileOnDisk(t, "visit.pdf", testkit.Content(1, 100_000))
			require.NoError(t, os.Chtimes(path, time.Time{}, time.Date(modified, 1, 1, 0, 0, 0, 0, time.UTC)))
			_, err := client.Documents.Upload(t.Context(), []brellium.UploadFile{file}, brellium.UploadOptions{})
			require.NoError(t, err)
			assert.Equal(t, testkit.Digest(testkit.Content(1, 100_000)), emu.Documents()[0].SHA256)
		})
	}
}

// langflow-ai/openrag#2388, agritheory/cloud_storage#117, opencloud-eu/web#1261,
// gtsteffaniak/filebrowser#2823
func TestWhatMakesTheExternalIDOfAFile(t *testing.T) {
	form := []byte("the same blank form")
	base := brellium.FileFromBytes("consent.pdf", form)
	base.Path, base.DocType = "/scans/1001/consent.pdf", "consent"
	base.ExternalMetadata = map[string]any{"patient": "1001", "visit": map[string]any{"a": 1, "b": []any{"é"}}}
	id := func(t *testing.T, change func(*brellium.UploadFile)) string {
		file := base
		change(&file)
		results, err := testkit.NewClient(t, brelliumtest.New()).Documents.Upload(t.Context(), []brellium.UploadFile{file}, brellium.UploadOptions{})
		require.NoError(t, err)
		return results[0].ExternalID
	}
	same := id(t, func(*brellium.UploadFile) {})
	type visit struct {
		B []string `json:"b"`
		A float64  `json:"a"`
	}
	for name, change := range map[string]func(*brellium.UploadFile){
		"the content type": func(f *brellium.UploadFile) { f.ContentType = brellium.NoContentType },
		"another reader": func(f *brellium.UploadFile) {
			f.Open = func() (io.ReadCloser, error) { return io.NopCloser(slowReader{bytes.NewReader(form)}), nil }
		},
		"metadata of another Go type": func(f *brellium.UploadFile) {
			f.ExternalMetadata = map[string]any{"visit": visit{[]string{"é"}, 1}, "patient": json.RawMessage(`"\u0031001"`)}
		},
	} {
		assert.Equal(t, same, id(t, change), name)
	}
	ids := map[string]string{same: "the base"}
	for name, change := range map[string]func(*brellium.UploadFile){
		"the folder":          func(f *brellium.UploadFile) { f.Path = "/scans/1002/consent.pdf" },
		"no path":             func(f *brellium.UploadFile) { f.Path = "" },
		"the name":            func(f *brellium.UploadFile) { f.Filename = "consent-2.pdf" },
		"the doc type":        func(f *brellium.UploadFile) { f.DocType = "note" },
		"no doc type":         func(f *brellium.UploadFile) { f.DocType = "" },
		"the metadata":        func(f *brellium.UploadFile) { f.ExternalMetadata = map[string]any{"patient": "1002"} },
		"a large number":      func(f *brellium.UploadFile) { f.ExternalMetadata = map[string]any{"badge": int64(12345678901234567)} },
		"the next number":     func(f *brellium.UploadFile) { f.ExternalMetadata = map[string]any{"badge": int64(12345678901234568)} },
		"no metadata":         func(f *brellium.UploadFile) { f.ExternalMetadata = nil },
		"the content":         func(f *brellium.UploadFile) { *f = brellium.FileFromBytes("consent.pdf", nil) },
		"fields that shift":   func(f *brellium.UploadFile) { f.Path, f.Filename = f.Path+"c", "onsent.pdf" },
		"fields that shift 2": func(f *brellium.UploadFile) { f.Filename, f.DocType = "consent.pdfc", "onsent" },
	} {
		made := id(t, change)
		assert.Empty(t, ids[made], name)
		ids[made] = name
	}

	// The two Unicode forms of one name.
	composed := id(t, func(f *brellium.UploadFile) { f.Filename, f.Path = "M\u00fcller.pdf", "/M\u00fcller/M\u00fcller.pdf" })
	assert.Equal(t, composed, id(t, func(f *brellium.UploadFile) {
		f.Filename, f.Path = "Mu\u0308ller.pdf", "/Mu\u0308ller/Mu\u0308ller.pdf"
	}))
	assert.Empty(t, ids[composed])
}

// Equal forms of two patients are two documents, with nothing but the folder, the
// doc type or the metadata to distinguish them.
// langflow-ai/openrag#2388, agritheory/cloud_storage#117
func TestUploadOfEqualFormsOfTwoPatients(t *testing.T) {
	for name, same := range map[string]func(one, two *brellium.UploadFile){
		"folder": func(one, two *brellium.UploadFile) {},
		"doc type": func(one, two *brellium.UploadFile) {
			one.Path, two.Path = "", ""
			two.DocType = "note"
		},
		"metadata": func(one, two *brellium.UploadFile) {
			one.Path, two.Path = "", ""
			one.ExternalMetadata, two.ExternalMetadata = map[string]any{"patient": 1001}, map[string]any{"patient": 1002}
		},
	} {
		testkit.Bubble(t, name, func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
			one, _ := fileOnDisk(t, "consent.pdf", testkit.Content(1, 1000))
			two, _ := fileOnDisk(t, "consent.pdf", testkit.Content(1, 1000))
			same(&one, &two)
			files := []brellium.UploadFile{one, two}
			results, err := client.Documents.Upload(t.Context(), files, brellium.UploadOptions{})
			require.NoError(t, err)
			assert.NotEqual(t, results[0].DocumentID, results[1].DocumentID)
			assert.Len(t, emu.Documents(), 2)
			for i, f := range files {
				again, err := client.Documents.Upload(t.Context(), []brellium.UploadFile{f}, brellium.UploadOptions{})
				require.NoError(t, err)
				assert.Equal(t, results[i].DocumentID, again[0].DocumentID)
				assert.Equal(t, brellium.UploadAlreadyThere, again[0].Status)
			}
		})
	}
}

// The same relative path in two folders is two files, and the two paths of one file
// from two working directories are the same file.
func TestTheExternalIDOfAPathDoesNotDependOnTheWorkingDirectory(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"1001/scans", "1002/scans"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(root, dir, "consent.pdf"), []byte("the same blank form"), 0o600))
	}
	emu := brelliumtest.New()
	client := testkit.NewClient(t, emu)
	upload := func(dir, path string) brellium.UploadResult {
		t.Chdir(filepath.Join(root, dir))
		file, err := brellium.FileFromPath(path)
		require.NoError(t, err)
		t.Chdir(root) // which changes neither the file nor its id
		results, err := client.Documents.Upload(t.Context(), []brellium.UploadFile{file}, brellium.UploadOptions{})
		require.NoError(t, err)
		return results[0]
	}
	one, two := upload("1001", "scans/consent.pdf"), upload("1002", "scans/consent.pdf")
	assert.NotEqual(t, one.DocumentID, two.DocumentID)
	assert.Equal(t, brellium.UploadStored, two.Status)
	for dir, path := range map[string]string{"1001/scans": "./consent.pdf", ".": "1001//scans/../scans/consent.pdf", "1002": filepath.Join(root, "1001/scans/consent.pdf")} {
		again := upload(dir, path)
		assert.Equal(t, one.DocumentID, again.DocumentID, path)
		assert.Equal(t, brellium.UploadAlreadyThere, again.Status, path)
	}
	assert.Len(t, emu.Documents(), 2)
}

// changing is a source that has another length once half of it has been read.
type changing struct{ before, after string }

func (c *changing) ReadAt(p []byte, at int64) (int, error) {
	n, err := strings.NewReader(c.before).ReadAt(p[:min(len(p), 1000)], at)
	if at+int64(n) > int64(len(c.before)/2) && at < int64(len(c.before)) {
		c.before = c.after
	}
	if err == nil || err == io.EOF && n > 0 {
		return n, nil
	}
	return n, err
}

// aws/aws-sdk-cpp#712, rclone/rclone#9785
func TestUploadOfAReaderAtThatGrowsOrShrinksIsFinal(t *testing.T) {
	const size = 100_000
	text := strings.Repeat("0123456789", 2*size/10)
	for name, test := range map[string]struct {
		after  int
		reason string
	}{"grows": {size + 1, "longer than its Size"}, "shrinks": {size - 1, "shorter than its Size"}, "is cut": {size/2 + 5000, "shorter than its Size"}} {
		for _, id := range []string{"", "visit"} {
			testkit.Bubble(t, name+", id "+id, func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
				file := brellium.FileFromReaderAt("visit.pdf", &changing{text[:size], text[:test.after]}, size)
				file.ExternalID = id
				results, err := client.Documents.Upload(t.Context(), []brellium.UploadFile{file}, brellium.UploadOptions{})
				require.ErrorContains(t, err, test.reason)
				assert.Equal(t, brellium.UploadFailed, results[0].Status)
				for _, d := range emu.Documents() {
					assert.False(t, d.Arrived, "storage took a part for the whole")
				}
			})
		}
	}
	testkit.Bubble(t, "a part of a longer one", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		file := brellium.FileFromReaderAt("visit.pdf", strings.NewReader(text), size)
		_, err := client.Documents.Upload(t.Context(), []brellium.UploadFile{file}, brellium.UploadOptions{})
		require.NoError(t, err)
		assert.Equal(t, testkit.Digest([]byte(text[:size])), emu.Documents()[0].SHA256)
	})
}

// Go's FIPS mode allows no SHA-1.
func TestExternalIDsInFIPSMode(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestUploadMakesTheSameExternalIDEverywhere$", "-test.v") //nolint:gosec // this test program
	cmd.Env = append(os.Environ(), "GODEBUG=fips140=only")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Contains(t, string(out), "--- PASS: TestUploadMakesTheSameExternalIDEverywhere")
}

func TestUploadMakesTheSameExternalIDEverywhere(t *testing.T) {
	// Documents that were created with these ids must be found again by every
	// later version.
	testkit.Bubble(t, "", func(t *testing.T, emu *brelliumtest.Emulator, client *brellium.Client) {
		all := brellium.FileFromBytes("Mu\u0308ller.txt", []byte("hello"))
		all.Path, all.DocType = "/scans/1001/Mu\u0308ller.txt", "consent"
		all.ExternalMetadata = map[string]any{"patient": "1001", "a": map[string]any{"y": []any{17, "é"}, "x": 1}}
		results, err := client.Documents.Upload(t.Context(), []brellium.UploadFile{
			brellium.FileFromBytes("note.txt", []byte("hello")), brellium.FileFromBytes("note.txt", nil), all,
		}, brellium.UploadOptions{})
		require.NoError(t, err)
		assert.Equal(t, "cdad2008-760d-83cd-a8d7-6f03f9a3a0cd", results[0].ExternalID)
		assert.Equal(t, "e21f3d03-9376-8932-b9f4-a9b5b57e3571", results[1].ExternalID)
		assert.Equal(t, "4e650261-34f3-8b6a-ae39-edf7055b523d", results[2].ExternalID)
	})
	assert.NotEqual(t, brellium.NewExternalID(), brellium.NewExternalID())
	assert.Len(t, brellium.NewExternalID(), 36)
}
