package brellium

import (
	"bytes"
	"context"
	"crypto/sha256"
	"io"
	"mime"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"github.com/brellium/brellium-go/internal/storage"
	"github.com/brellium/brellium-go/internal/wire"
)

// UploadFile is a file to upload. [FileFromPath], [FileFromBytes],
// [FileFromReaderAt] and [FileFromReader] make one; you can then set the other
// fields. v1 accepts PDF, JSON, YAML, CSV and TXT files of up to 10 MB each.
// Whether v2 has a limit is not known, so none is enforced here.
type UploadFile struct {
	// Filename is required.
	Filename string
	// ExternalID is your own id of the document. If it is empty, Upload makes
	// one from the content and the file name: a UUID of version 5 over the
	// SHA-256 of the content, followed by the name. The same file uploaded
	// again is then the same document, also after a crash.
	ExternalID string
	// DocType is optional.
	DocType string
	// ContentType is the media type. If it is empty, it follows from the
	// extension of the file name.
	ContentType string
	// ExternalMetadata is optional. It is not part of the external id that
	// Upload makes, and is ignored once the document exists.
	ExternalMetadata map[string]any
	// Size is the exact size of the content in bytes. The upload of the file
	// fails if the reader returns less or more.
	Size int64
	// Open returns a new reader of the content from its beginning. It is
	// called once to make an external id from the content, and once for each
	// attempt to send the file. The reader is closed after use. Open may be
	// called for several files concurrently.
	Open func() (io.ReadCloser, error)
}

// FileFromPath returns the file at path, named by the last element of path. The
// file is opened when it is sent, and must not change until then. The error is
// an [UploadError] if there is no such file, and a [ValidationError] if path is
// not a regular file.
func FileFromPath(path string) (UploadFile, error) {
	info, err := os.Stat(path)
	if err != nil {
		return UploadFile{}, &UploadError{Err: storage.Unreadable("the file cannot be found", err)}
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

// FileFromBytes returns a file with the content data, which must not be changed
// until the file has been sent.
func FileFromBytes(name string, data []byte) UploadFile {
	return FileFromReaderAt(name, bytes.NewReader(data), int64(len(data)))
}

// FileFromReaderAt returns a file whose content is the first size bytes of r,
// such as an open [*os.File]. r is not closed and its offset does not change;
// several files may share one. If r is nil, so is Open, and the upload fails
// with a [ValidationError].
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

// FileFromReader reads r to its end and keeps the content, up to limit bytes:
// storage needs the size of a file before its content, and a retry sends it
// from the beginning. r is not closed. The error is a [ValidationError] if r
// has more than limit bytes, and an [UploadError] if it cannot be read.
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
			return UploadFile{}, &ValidationError{Field: "r", Reason: "is longer than the limit"}
		}
		if err == io.EOF {
			err = nil
		}
	}
	if err != nil {
		return UploadFile{}, &UploadError{Err: storage.Unreadable("the file cannot be read", err)}
	}
	return FileFromBytes(name, data), nil
}

// NewExternalID returns a random external id, a UUID of version 4, for a file
// that is to become a new document whatever its content. Save it before you
// upload: without it, a second upload after a crash creates a second
// document.
func NewExternalID() string { return uuid.NewString() }

// externalIDs is the namespace of the external ids that are made here.
var externalIDs = uuid.NewSHA1(uuid.NameSpaceURL, []byte("https://github.com/brellium/brellium-go"))

// contentID makes an external id from the content and the name of a file.
func contentID(ctx context.Context, f *UploadFile) (string, error) {
	body, err := f.open()
	if err != nil {
		return "", err
	}
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

// contentTypes are the types that v1 names. They are fixed here because the
// tables of package mime differ between machines.
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

func (f *UploadFile) validate(field string) error {
	if err := validateDocument(field, f.Filename, f.ExternalID); err != nil {
		return err
	}
	switch {
	case f.Open == nil:
		return &ValidationError{Field: field + ".Open", Reason: "must not be nil"}
	case f.Size < 0:
		return &ValidationError{Field: field + ".Size", Reason: "must not be negative: the size must be known"}
	case !validHeaderValue(f.ContentType):
		return &ValidationError{Field: field + ".ContentType", Reason: "is not a valid header value"}
	}
	return nil
}

// open opens the file's content.
func (f *UploadFile) open() (*storage.Body, error) {
	src, err := f.Open()
	if err != nil {
		return nil, storage.Unreadable("the file cannot be opened", err)
	}
	if src == nil {
		return nil, &wire.BodyError{Reason: "Open returned no reader"}
	}
	return storage.NewBody(src, f.Size), nil
}
