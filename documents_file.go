package brellium

import (
	"bytes"
	"context"
	"crypto/sha256"
	"io"
	"mime"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/brellium/brellium-go/internal/redact"
	"github.com/google/uuid"
)

// UploadFile is a file to upload. FileFromPath, FileFromBytes,
// FileFromReaderAt and FileFromReader make one; the other fields are then
// yours to set. v1 takes PDF, JSON, YAML, CSV and TXT files of up to 10 MB
// each; whether v2 has a limit is not known, so none is enforced here.
type UploadFile struct {
	// Filename is required.
	Filename string
	// ExternalID is your own id of the document. Where it is empty, Upload
	// makes one from the content and the file name: a UUID of version 5 over
	// the SHA-256 of the content, followed by the name. The same file sent
	// again is then the same document, also after a crash.
	ExternalID string
	// DocType is optional.
	DocType string
	// ContentType is what the file is sent as. Where it is empty, it follows
	// from the extension of the file name.
	ContentType string
	// ExternalMetadata is optional. It is no part of the external id that
	// Upload makes, and no longer looked at once the document exists.
	ExternalMetadata map[string]any
	// Size is the exact size of the content in bytes. A reader that ends
	// early or holds more fails the file.
	Size int64
	// Open returns a new reader of the content from its beginning. It is
	// called once for an external id that is made from the content, and once
	// for each attempt to send the file; what it returns is closed. It may be
	// called for several files at once.
	Open func() (io.ReadCloser, error)
}

// FileFromPath is the file at path, named by the last element of path. The
// file is opened when it is sent, and must not change until then. A file that
// cannot be read is an *UploadError, and a path to something else than a file a
// *ValidationError.
func FileFromPath(path string) (UploadFile, error) {
	info, err := os.Stat(path)
	if err != nil {
		return UploadFile{}, &UploadError{Err: cannotRead("the file cannot be found", err)}
	}
	if !info.Mode().IsRegular() {
		return UploadFile{}, &ValidationError{Field: "path", Reason: "is not a regular file"}
	}
	return UploadFile{
		Filename: filepath.Base(path),
		Size:     info.Size(),
		Open:     func() (io.ReadCloser, error) { return os.Open(path) },
	}, nil
}

// FileFromBytes is a file whose content is data, which must not be changed
// until it has been sent.
func FileFromBytes(name string, data []byte) UploadFile {
	return FileFromReaderAt(name, bytes.NewReader(data), int64(len(data)))
}

// FileFromReaderAt is a file whose content are the first size bytes of r, such
// as an open *os.File. r is neither closed nor moved, and several files may
// share one. Without r, Open is nil and the file is refused when it is to be
// sent.
func FileFromReaderAt(name string, r io.ReaderAt, size int64) UploadFile {
	if isNil(r) {
		return UploadFile{Filename: name, Size: size}
	}
	return UploadFile{
		Filename: name,
		Size:     size,
		Open:     func() (io.ReadCloser, error) { return io.NopCloser(io.NewSectionReader(r, 0, size)), nil },
	}
}

// FileFromReader reads r to its end and keeps what it read, up to limit bytes,
// since storage wants to know a file's size before its content, and since a
// failed attempt is repeated from the beginning. A reader that holds more is a
// *ValidationError. r is not closed.
func FileFromReader(name string, r io.Reader, limit int64) (UploadFile, error) {
	if isNil(r) {
		return UploadFile{}, &ValidationError{Field: "r", Reason: "must not be nil"}
	}
	if limit < 0 {
		return UploadFile{}, &ValidationError{Field: "limit", Reason: "must not be negative"}
	}
	data, err := io.ReadAll(io.LimitReader(r, limit))
	if err == nil {
		var more int
		if more, err = io.ReadFull(r, make([]byte, 1)); more > 0 {
			return UploadFile{}, &ValidationError{Field: "r", Reason: "holds more than the limit"}
		}
		if err == io.EOF {
			err = nil
		}
	}
	if err != nil {
		return UploadFile{}, &UploadError{Err: cannotRead("the file cannot be read", err)}
	}
	return FileFromBytes(name, data), nil
}

// NewExternalID returns a random external id, a UUID of version 4, for a file
// that is to be a new document whatever its content. Keep it before you
// upload: without it the file would become a second document after a crash.
func NewExternalID() string { return uuid.NewString() }

// externalIDs is the namespace of the external ids that are made here.
var externalIDs = uuid.NewSHA1(uuid.NameSpaceURL, []byte("https://github.com/brellium/brellium-go"))

// contentID makes an external id from the content and the name of a file.
func contentID(ctx context.Context, f *UploadFile) (string, error) {
	src, err := f.open()
	if err != nil {
		return "", err
	}
	body := &countedBody{src: src, size: f.Size}
	defer func() { _ = body.Close() }()
	sum := sha256.New()
	buf := make([]byte, 256<<10)
	for err == nil {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		var n int
		n, err = body.Read(buf)
		sum.Write(buf[:n])
	}
	if err != io.EOF {
		return "", err
	}
	return uuid.NewSHA1(externalIDs, append(sum.Sum(nil), f.Filename...)).String(), nil
}

// contentTypes are the types that v1 names, as they are everywhere alike; the
// tables of package mime differ from machine to machine.
var contentTypes = map[string]string{
	".pdf":  "application/pdf",
	".json": "application/json",
	".yml":  "application/yaml",
	".yaml": "application/yaml",
	".csv":  "text/csv",
	".txt":  "text/plain",
}

func (f *UploadFile) contentType() string {
	if f.ContentType != "" {
		return f.ContentType
	}
	extension := strings.ToLower(filepath.Ext(f.Filename))
	if t := contentTypes[extension]; t != "" {
		return t
	}
	if t := mime.TypeByExtension(extension); t != "" {
		return t
	}
	return "application/octet-stream"
}

var (
	errTooShort = &bodyError{reason: "the file is shorter than its Size"}
	errTooLong  = &bodyError{reason: "the file is longer than its Size"}
)

// cannotRead is the error of a file that cannot be found, opened or read. Its
// text holds no path.
func cannotRead(reason string, err error) *bodyError {
	if errno, ok := asType[syscall.Errno](err); ok {
		reason += ": " + errno.Error()
	}
	return &bodyError{reason: reason, err: redact.Hide(err)}
}

// open opens the file.
func (f *UploadFile) open() (io.ReadCloser, error) {
	src, err := f.Open()
	if err != nil {
		return nil, cannotRead("the file cannot be opened", err)
	}
	if src == nil {
		return nil, &bodyError{reason: "Open returned no reader"}
	}
	return src, nil
}

// sentBody is a file's content on its way.
type sentBody interface {
	io.ReadCloser
	// position is how much of it has been read. It may be called at any time.
	position() int64
}

// openBody opens the file's content for one attempt.
func (f *UploadFile) openBody() (sentBody, error) {
	src, err := f.open()
	if err != nil {
		return nil, err
	}
	body := sentBody(&countedBody{src: src, size: f.Size})
	if file, ok := src.(*os.File); ok {
		if body, err = newFileBody(file, f.Size); err != nil {
			_ = src.Close()
			return nil, err
		}
	}
	if f.Size == 0 { // the transport does not read it: see that it is empty
		n, err := body.Read(make([]byte, 1))
		if n > 0 {
			err = errTooLong
		}
		if err != io.EOF {
			_ = body.Close()
			return nil, err
		}
	}
	return body, nil
}

// countedBody is a file of an announced size. It gives its last bytes away
// only once it has seen that there are no more, so that storage never gets a
// part of a file as the whole of it.
type countedBody struct {
	src    io.ReadCloser
	size   int64
	read   atomic.Int64
	closed atomic.Bool
}

func (b *countedBody) position() int64 { return b.read.Load() }

func (b *countedBody) Close() error {
	b.closed.Store(true)
	return b.src.Close()
}

func (b *countedBody) Read(p []byte) (int, error) {
	left := b.size - b.read.Load()
	if left == 0 && b.size > 0 {
		return 0, io.EOF
	}
	n, err := 0, error(nil)
	if left > 0 {
		n, err = b.src.Read(p[:min(int64(len(p)), left)])
	}
	if int64(n) == left && (err == nil || err == io.EOF) {
		if err = b.end(err); err != io.EOF {
			n = 0
		}
	} else if err == io.EOF {
		err = errTooShort
	}
	b.read.Add(int64(n))
	if _, ours := err.(*bodyError); err != nil && err != io.EOF && !ours && !b.closed.Load() {
		err = cannotRead("the file cannot be read", err)
	}
	return n, err
}

// end makes sure that the source has come to its end: io.EOF says so.
func (b *countedBody) end(err error) error {
	var one [1]byte
	for tries := 0; err == nil; tries++ {
		if tries == 100 {
			return io.ErrNoProgress
		}
		var n int
		if n, err = b.src.Read(one[:]); n > 0 {
			return errTooLong
		}
	}
	return err
}

// fileBody is a file of the file system, handed on as one, so that on Linux
// the kernel sends it without copying it through the process. How far that has
// come is asked of the file itself.
type fileBody struct {
	*os.File
	start int64
	at    atomic.Int64
}

// newFileBody returns a fileBody where that can be, and else a countedBody.
func newFileBody(f *os.File, size int64) (sentBody, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, cannotRead("the file cannot be read", err)
	}
	start, err := f.Seek(0, io.SeekCurrent)
	if err != nil || !info.Mode().IsRegular() || runtime.GOOS != "linux" {
		return &countedBody{src: f, size: size}, nil
	}
	switch left := info.Size() - start; {
	case left < size:
		return nil, errTooShort
	case left > size:
		return nil, errTooLong
	}
	return &fileBody{File: f, start: start}, nil
}

func (b *fileBody) position() int64 {
	if at, err := b.Seek(0, io.SeekCurrent); err == nil {
		// Another goroutine may have looked later and stored more already.
		for at, seen := at-b.start, b.at.Load(); at > seen && !b.at.CompareAndSwap(seen, at); seen = b.at.Load() {
		}
	}
	return b.at.Load()
}

func (b *fileBody) Close() error {
	b.position()
	return b.File.Close()
}
