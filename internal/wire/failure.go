package wire

import (
	"compress/gzip"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
)

// BodyError says that a request's body cannot be read as announced. Sending it
// again would not help, so it matches ErrDoNotSend.
type BodyError struct {
	Reason string // a fixed text
	Err    error
}

func (e *BodyError) Error() string        { return e.Reason }
func (e *BodyError) Unwrap() error        { return e.Err }
func (e *BodyError) Is(target error) bool { return target == ErrDoNotSend }

// Permanent reports whether a retry would fail in the same way: the transport
// will not send it, or it was not sent for a reason that does not pass.
func (r *Result) Permanent() bool {
	if errors.Is(r.Err, ErrDoNotSend) {
		return true
	}
	if r.Sent {
		return false
	}
	if e, ok := asType[*net.DNSError](r.Err); ok {
		return e.IsNotFound
	}
	return certificate(r.Err) || strings.Contains(r.Err.Error(), "unsupported protocol scheme") ||
		strings.Contains(r.Err.Error(), "net/http: invalid header")
}

func certificate(err error) bool {
	if _, ok := asType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if _, ok := asType[x509.UnknownAuthorityError](err); ok {
		return true
	}
	if _, ok := asType[x509.HostnameError](err); ok {
		return true
	}
	_, ok := asType[x509.CertificateInvalidError](err)
	return ok
}

// provesNotSent reports whether err alone proves that nothing was sent. It is for
// transports that do not use httptrace.
func provesNotSent(err error) bool {
	if e, ok := asType[*net.OpError](err); ok && e.Op == "dial" {
		return true
	}
	if _, ok := asType[*net.DNSError](err); ok {
		return true
	}
	return certificate(err) || handshake(err)
}

// handshake reports whether err is that of a TLS handshake with a server that
// does not speak TLS or does not respond. net/http's timeout has no type.
func handshake(err error) bool {
	e, ok := asType[tls.RecordHeaderError](err)
	return ok && e.Conn != nil || errors.Is(err, http.ErrSchemeMismatch) ||
		strings.HasSuffix(err.Error(), "net/http: TLS handshake timeout")
}

// Reason describes the failure in a short fixed text that quotes nothing of the
// transport's error.
func (r *Result) Reason() string {
	err := r.Err
	if e, ok := asType[*BodyError](err); ok {
		return e.Reason
	}
	if e, ok := asType[syscall.Errno](err); ok {
		return e.Error() // "connection refused", "connection reset by peer", …
	}
	if e, ok := asType[*net.DNSError](err); ok {
		if e.IsNotFound {
			return "no such host"
		}
		return "the host name could not be looked up"
	}
	switch {
	case err == ErrIdle:
		return err.Error()
	case errors.Is(err, ErrDoNotSend):
		return "the transport did not send the request"
	case certificate(err):
		return "the server's certificate cannot be verified"
	case handshake(err):
		return "the TLS handshake failed"
	case errors.Is(err, ErrTooLarge):
		return ErrTooLarge.Error()
	case r.lost:
		return "connection lost before a response"
	case r.TimedOut:
		return "the attempt timed out"
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF) && r.Status != 0:
		return "the response was cut off"
	case errors.Is(err, io.EOF):
		return "connection closed before a response"
	case errors.Is(err, gzip.ErrHeader), errors.Is(err, gzip.ErrChecksum):
		return "the response was damaged"
	}
	if e, ok := asType[net.Error](err); ok && e.Timeout() {
		return "network timeout"
	}
	return "connection failed"
}

// asType is errors.AsType, which the oldest supported Go does not have.
func asType[E error](err error) (E, bool) {
	var e E
	ok := errors.As(err, &e)
	return e, ok
}
