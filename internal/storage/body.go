package storage

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"io/fs"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/brellium/brellium-go/internal/redact"
	"github.com/brellium/brellium-go/internal/wire"
)

var (
	errTooShort = &wire.BodyError{Reason: "the file is shorter than its Size"}
	errTooLong  = &wire.BodyError{Reason: "the file is longer than its Size"}
	errChanged  = &wire.BodyError{Reason: "the file changed during the upload"}
	errPanic    = &wire.BodyError{Reason: "the file's reader panicked"}
	errCount    = &wire.BodyError{Reason: "the file's reader returned an invalid count"}
)

// settled is the age of a file's last change from which its modification time
// shows every later change. Some file systems count in steps of 2 s.
const settled = 3 * time.Second

// Version is a content that a Body has read to its end.
type Version struct {
	Digest [sha256.Size]byte
	info   fs.FileInfo // nil if the source has none, or its file changed just now
}

// Body reads a file of a known size. It returns the last bytes only after it
// has seen the end of the source and that the file has not changed, so that a
// storage host never takes part of a file, or a mixture, for the whole file.
type Body struct {
	src    io.ReadCloser
	size   int64
	info   fs.FileInfo // of the source when it was opened; nil if it has none
	want   *Version    // nil: any content
	sum    hash.Hash   // nil: not needed
	read   atomic.Int64
	closed atomic.Bool
	failed atomic.Pointer[wire.BodyError]
	// The transport reads in a goroutine of its own, where a panic of the source
	// would end the process.
	panicked atomic.Pointer[any]
}

// NewBody returns a Body that reads size bytes from src and closes it. If want is
// not nil, the content must be that version.
func NewBody(src io.ReadCloser, size int64, want *Version) *Body {
	b := &Body{src: src, size: size, info: stat(src), want: want}
	switch {
	case want == nil:
	case want.info == nil || b.info == nil:
		b.sum = sha256.New() // for a file it would cost too much throughput
	case !same(want.info, b.info):
		b.failed.Store(errChanged)
	}
	return b
}

// stat returns the state of src if it is an open regular file of the system.
func stat(src io.Reader) fs.FileInfo {
	if file, ok := src.(interface{ Stat() (fs.FileInfo, error) }); ok {
		if info, err := file.Stat(); err == nil && info.Mode().IsRegular() && os.SameFile(info, info) {
			return info
		}
	}
	return nil
}

// same reports whether a and b are states of one file with the same content.
func same(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// Unreadable returns the error of a file that cannot be found, opened or read.
// Its text does not contain the path.
func Unreadable(reason string, err error) *wire.BodyError {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		reason += ": " + errno.Error()
	}
	return &wire.BodyError{Reason: reason, Err: redact.Hide(err)}
}

// ReadVersion reads the body to its end, in pieces of buf, and returns what it
// has read. It ends with the error of check, which it calls before each read.
func (b *Body) ReadVersion(buf []byte, check func() error) (*Version, error) {
	b.sum = sha256.New()
	for {
		if err := check(); err != nil {
			return nil, err
		}
		_, err := b.Read(buf)
		if err == io.EOF {
			break
		}
		b.Raise()
		if err != nil {
			return nil, err
		}
	}
	v := &Version{Digest: [sha256.Size]byte(b.sum.Sum(nil))}
	if b.info != nil && time.Since(b.info.ModTime()) > settled {
		v.info = b.info
	}
	return v, nil
}

// Position returns how many bytes have been read. It may be called at any time.
func (b *Body) Position() int64 { return b.read.Load() }

// Err returns why the body could not be read as announced, nil if it could so
// far. It may be called at any time.
func (b *Body) Err() error {
	if err := b.failed.Load(); err != nil {
		return err
	}
	return nil
}

// Raise panics if the source did, with the same value.
func (b *Body) Raise() {
	if v := b.panicked.Load(); v != nil {
		panic(*v)
	}
}

// rescue is deferred around calls of the source.
func (b *Body) rescue(n *int, err *error) {
	if v := recover(); v != nil {
		b.panicked.CompareAndSwap(nil, &v)
		b.failed.Store(errPanic)
		*n, *err = 0, errPanic
	}
}

// Close closes the source.
func (b *Body) Close() (err error) {
	defer b.rescue(new(int), &err)
	b.closed.Store(true)
	return b.src.Close()
}

// Read reads from the source. Its error is a [wire.BodyError] if the source
// fails or is not what was announced.
func (b *Body) Read(p []byte) (n int, err error) {
	defer b.rescue(&n, &err)
	if err := b.Err(); err != nil {
		return 0, err
	}
	left := b.size - b.read.Load()
	if left == 0 && b.size > 0 {
		return 0, io.EOF
	}
	if left > 0 {
		p = p[:min(int64(len(p)), left)]
		if n, err = b.src.Read(p); n < 0 || n > len(p) {
			n, err = 0, errCount
		}
	}
	if b.sum != nil {
		b.sum.Write(p[:n])
	}
	switch {
	case int64(n) == left:
		if err = b.end(err); err != io.EOF {
			n = 0
		}
	case err == io.EOF:
		err = errTooShort
	}
	b.read.Add(int64(n))
	if err == nil || err == io.EOF {
		return n, err
	}
	failure, ok := err.(*wire.BodyError)
	if !ok && b.closed.Load() {
		return n, err
	}
	if !ok {
		failure = Unreadable("the file cannot be read", err)
	}
	b.failed.Store(failure)
	return n, failure
}

// end reads on until the source ends, after a read that returned err. It returns
// io.EOF if nothing is left and the content is as it should be.
func (b *Body) end(err error) error {
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
	if err != io.EOF {
		return err
	}
	if b.want != nil && b.sum != nil && !bytes.Equal(b.sum.Sum(nil), b.want.Digest[:]) {
		return errChanged
	}
	if b.info != nil {
		if now := stat(b.src); now != nil && !same(b.info, now) {
			return errChanged
		}
	}
	return io.EOF
}
