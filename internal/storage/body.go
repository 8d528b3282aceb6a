package storage

import (
	"errors"
	"io"
	"sync/atomic"
	"syscall"

	"github.com/brellium/brellium-go/internal/redact"
	"github.com/brellium/brellium-go/internal/wire"
)

var (
	errTooShort = &wire.BodyError{Reason: "the file is shorter than its Size"}
	errTooLong  = &wire.BodyError{Reason: "the file is longer than its Size"}
)

// Body reads a file of a known size. It returns the last bytes only after it
// has seen the end of the source, so that a storage host never takes part of a
// file for the whole file.
type Body struct {
	src    io.ReadCloser
	size   int64
	read   atomic.Int64
	closed atomic.Bool
}

// NewBody returns a Body that reads size bytes from src and closes it.
func NewBody(src io.ReadCloser, size int64) *Body { return &Body{src: src, size: size} }

// Unreadable returns the error of a file that cannot be found, opened or read.
// Its text does not contain the path.
func Unreadable(reason string, err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		reason += ": " + errno.Error()
	}
	return &wire.BodyError{Reason: reason, Err: redact.Hide(err)}
}

// Position returns how many bytes have been read. It may be called at any time.
func (b *Body) Position() int64 { return b.read.Load() }

// Close closes the source.
func (b *Body) Close() error {
	b.closed.Store(true)
	return b.src.Close()
}

// Read reads from the source. Its error is a [wire.BodyError] if the source
// fails or does not have the announced size.
func (b *Body) Read(p []byte) (n int, err error) {
	left := b.size - b.read.Load()
	if left == 0 && b.size > 0 {
		return 0, io.EOF
	}
	if left > 0 {
		n, err = b.src.Read(p[:min(int64(len(p)), left)])
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
	if err != nil && err != io.EOF && err != errTooShort && err != errTooLong && !b.closed.Load() {
		err = Unreadable("the file cannot be read", err)
	}
	return n, err
}

// end reads on until the source ends, after a read that returned err. It returns
// io.EOF if nothing is left.
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
	return err
}
