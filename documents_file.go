package brellium

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"io"
	"math"
	"mime"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
	"golang.org/x/text/unicode/norm"

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
	// Path is the absolute path of the file of FileFromPath, and empty for other
	// files. It is not sent. It is part of the external id that Upload makes, so
	// that equal files in two folders are two documents. Clear it, or set it to
	// the path within a folder that may be moved, to make the id independent of
	// where that folder is; or set ExternalID.
	Path string
	// ExternalID is your own id of the document. If it is empty, Upload makes
	// one from the content, Path, Filename, DocType and ExternalMetadata. Files
	// that differ in one of these are different documents; a file uploaded again
	// with all of them unchanged is the same document, also after a crash.
	//
	// Path counts as it is written; that of FileFromPath does not depend on the
	// working directory. The two Unicode forms of an accented letter in Path and
	// Filename do not differ (NFC is used), nor does the order of the keys in
	// ExternalMetadata. The id is a UUID of version 8, made with SHA-256.
	ExternalID string
	// DocType is optional.
	DocType string
	// ContentType is the media type. If it is empty, it follows from the
	// extension of the file name; if storage then responds that the URL's
	// signature does not match, the file is sent once more without a type. A
	// type that is set is always sent. [NoContentType] sends none.
	ContentType string
	// ExternalMetadata is optional. It is ignored once the document exists.
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

// NoContentType is the [UploadFile.ContentType] of a file that is sent without a
// media type.
const NoContentType = "none"

// FileFromPath returns the file at path, named by the last element of path. Its Path
// is absolute, so that the external id that Upload makes is the same from every
// working directory; a file that is moved is another document. Set ExternalID for an
// id of your own. The file is opened when it is sent. If it changes before it has
// been sent, its upload fails, and storage gets no complete request; upload it again.
// The error is an [UploadError] if there is no such file, and a [ValidationError] if
// path is not a regular file.
func FileFromPath(path string) (UploadFile, error) {
	info, err := os.Stat(path)
	if err != nil {
		return UploadFile{}, &UploadError{Err: storage.Unreadable("the file cannot be found", err)}
	}
	if !info.Mode().IsRegular() {
		return UploadFile{}, &ValidationError{Field: "path", Reason: "is not a regular file"}
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return UploadFile{}, &UploadError{Err: storage.Unreadable("the working directory cannot be found", err)}
	}
	return UploadFile{
		Filename: filepath.Base(absolute),
		Path:     absolute,
		Size:     info.Size(),
		Open:     func() (io.ReadCloser, error) { return os.Open(absolute) },
	}, nil
}

// FileFromBytes returns a file with the content data, which must not be changed
// until the file has been sent.
func FileFromBytes(name string, data []byte) UploadFile {
	return FileFromReaderAt(name, bytes.NewReader(data), int64(len(data)))
}

// FileFromReaderAt returns a file whose content is the first size bytes of r,
// such as an open [*os.File]. r is not closed and its offset does not change;
// several files may share one. If r becomes shorter, its upload fails; if r ends
// after size bytes now, also if it becomes longer. If r is nil, so is Open, and
// the upload fails with a [ValidationError].
func FileFromReaderAt(name string, r io.ReaderAt, size int64) UploadFile {
	if isNil(r) {
		return UploadFile{Filename: name, Size: size}
	}
	end := size
	if n, err := r.ReadAt(make([]byte, 1), max(size, 0)); n == 0 && err == io.EOF {
		end = math.MaxInt64 // read on, and find out if it has become longer
	}
	return UploadFile{
		Filename: name,
		Size:     size,
		Open:     func() (io.ReadCloser, error) { return io.NopCloser(io.NewSectionReader(r, 0, end)), nil },
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
var externalIDs = uuid.MustParse("d48ab578-b8e9-51fd-86d2-23db362a5552")

// contentID makes an external id from the content of a file and from what
// describes it. The file that is sent must then have the same content.
func (t *transfer) contentID(ctx context.Context) (id string, err error) {
	body, err := t.file.open(nil)
	if err != nil {
		return "", err
	}
	defer func() { _ = body.Close() }()
	if t.version, err = body.ReadVersion(make([]byte, 256<<10), ctx.Err); err != nil {
		return "", err
	}
	metadata, err := canonicalJSON(t.metadata)
	if err != nil {
		return "", err
	}
	name := norm.NFC.String(t.file.Filename)
	path := cmp.Or(norm.NFC.String(t.file.Path), name)
	var data []byte
	for _, part := range []string{string(t.version.Digest[:]), path, name, t.file.DocType, metadata} {
		data = binary.BigEndian.AppendUint64(data, uint64(len(part))) // so that no two lists of parts are the same bytes
		data = append(data, part...)
	}
	return uuid.NewHash(sha256.New(), externalIDs, data, 8).String(), nil // RFC 9562, section 5.8
}

// canonicalJSON returns data with sorted keys and each string in one form. Empty
// data stays empty.
func canonicalJSON(data []byte) (string, error) {
	if len(data) == 0 {
		return "", nil
	}
	var v any
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return "", err
	}
	canonical, err := json.Marshal(v)
	return string(canonical), err
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

// contentType returns the value of the header, nil for none.
func (f *UploadFile) contentType() []string {
	if f.ContentType == NoContentType {
		return nil
	}
	extension := strings.ToLower(filepath.Ext(f.Filename))
	return []string{cmp.Or(f.ContentType, contentTypes[extension], mime.TypeByExtension(extension), "application/octet-stream")}
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
	return cmp.Or(checkText(field+".Filename", f.Filename), checkText(field+".ExternalID", f.ExternalID), checkText(field+".DocType", f.DocType))
}

// open opens the file's content, which must be the wanted version if that is not
// nil.
func (f *UploadFile) open(want *storage.Version) (*storage.Body, error) {
	src, err := f.Open()
	if err != nil {
		return nil, storage.Unreadable("the file cannot be opened", err)
	}
	if src == nil {
		return nil, &wire.BodyError{Reason: "Open returned no reader"}
	}
	body := storage.NewBody(src, f.Size, want)
	if err := body.Err(); err != nil {
		_ = body.Close()
		return nil, err
	}
	return body, nil
}
