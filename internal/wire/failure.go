package wire

import (
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"

	"github.com/brellium/brellium-go/internal/redact"
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
	switch r.proxyStatus() {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired: // a login that is retried could lock the account
		return true
	}
	return certificate(r.Err) != "" || strings.Contains(r.Err.Error(), "unsupported protocol scheme") ||
		strings.Contains(r.Err.Error(), "net/http: invalid header")
}

// certificate says why the certificate of a server cannot be verified, "" if
// that is not what err is about.
func certificate(err error) string {
	if _, ok := asType[x509.UnknownAuthorityError](err); ok {
		return "the certificate is signed by an unknown authority"
	}
	if _, ok := asType[x509.HostnameError](err); ok {
		return "the certificate is for another host name"
	}
	if e, ok := asType[x509.CertificateInvalidError](err); ok {
		if e.Reason == x509.Expired {
			return "the certificate has expired or is not valid yet"
		}
		return unverified
	}
	if _, ok := asType[*tls.CertificateVerificationError](err); ok {
		return unverified
	}
	return ""
}

const unverified = "the certificate cannot be verified"

// proxyError is the error of a proxy that responded to CONNECT with another
// status than 200.
type proxyError struct{ status int }

func (e *proxyError) Error() string {
	if e.status == http.StatusProxyAuthRequired {
		return "the proxy requires authentication"
	}
	return "the proxy rejected the connection (status " + strconv.Itoa(e.status) + ")"
}

// checkProxy is an http.Transport.OnProxyConnectResponse.
func checkProxy(_ context.Context, _ *url.URL, _ *http.Request, resp *http.Response) error {
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	return &proxyError{resp.StatusCode}
}

// proxyStatus returns the status with which a proxy rejected the connection, 0
// if none did. net/http without checkProxy has only the proxy's status text.
func (r *Result) proxyStatus() int {
	if e, ok := asType[*proxyError](r.Err); ok {
		return e.status
	}
	if !r.unconnected {
		return 0
	}
	cause := r.Err
	for next := errors.Unwrap(cause); next != nil; next = errors.Unwrap(cause) {
		cause = next
	}
	for status := 300; status < 600; status++ {
		if text := http.StatusText(status); text != "" && cause.Error() == text {
			return status
		}
	}
	return 0
}

// UnknownHost returns the name of a host that does not exist, "" if that is not
// the failure.
func (r *Result) UnknownHost() string {
	if e, ok := asType[*net.DNSError](r.Err); ok && e.IsNotFound {
		return e.Name
	}
	return ""
}

// provesNotSent reports whether err alone proves that nothing was sent. It is for
// transports that do not use httptrace.
func provesNotSent(err error) bool {
	if e, ok := asType[*net.OpError](err); ok && (e.Op == "dial" || e.Op == "proxyconnect") {
		return true
	}
	if _, ok := asType[*net.DNSError](err); ok {
		return true
	}
	return certificate(err) != "" || handshake(err)
}

// refused reports whether err is that of an HTTP/2 stream that the server has
// certainly not processed (RFC 9113, section 8.7): it rejected the stream, or the
// stream comes after the last one of a GOAWAY. These errors have no exported type.
// net/http shows them for a request with a body and without GetBody only: others
// it sends again.
func refused(err error) bool {
	for next := err; next != nil; next = errors.Unwrap(err) {
		err = next
	}
	if err == nil {
		return false
	}
	text := err.Error()
	if inner, ok := strings.CutPrefix(text, "http2: Transport: cannot retry err ["); ok {
		text, _, _ = strings.Cut(inner, "] after Request.Body was written")
	}
	id, stream := strings.CutPrefix(text, "stream error: stream ID ")
	id, ok := strings.CutSuffix(id, "; REFUSED_STREAM; received from peer")
	_, notNumber := strconv.ParseUint(id, 10, 32)
	return stream && ok && notNumber == nil || text == "http2: Transport received Server's graceful shutdown GOAWAY" ||
		strings.HasPrefix(text, "http2: Transport received GOAWAY from server ErrCode:")
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
	if status := r.proxyStatus(); status != 0 {
		return (&proxyError{status}).Error()
	}
	if e, ok := asType[*net.OpError](r.Err); ok {
		switch e.Op {
		case "proxyconnect":
			return "cannot connect to the proxy: " + r.reason()
		case "socks connect":
			return "the proxy rejected the connection"
		}
	}
	if r.proxied {
		return "cannot connect through the proxy: " + r.reason()
	}
	return r.reason()
}

func (r *Result) reason() string {
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
	certificate := certificate(err)
	switch {
	case err == ErrIdle:
		return err.Error()
	case errors.Is(err, ErrDoNotSend):
		return "the transport did not send the request"
	case certificate != "":
		return certificate
	case handshake(err):
		return "the TLS handshake failed"
	case errors.Is(err, ErrTooLarge):
		return ErrTooLarge.Error()
	case r.refused:
		return "the server did not process the request"
	case r.lost:
		return "connection lost before a response"
	case r.TimedOut:
		return "the attempt timed out"
	case errors.Is(err, io.ErrUnexpectedEOF) && !r.unconnected, errors.Is(err, io.EOF) && r.Status != 0:
		return "the response was cut off"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "connection closed before a response"
	case errors.Is(err, gzip.ErrHeader), errors.Is(err, gzip.ErrChecksum):
		return "the response was damaged"
	}
	if e, ok := asType[net.Error](err); ok && e.Timeout() {
		return "network timeout"
	}
	if name := redact.ForeignType(err); name != "" {
		return "connection failed (" + name + ")"
	}
	return "connection failed"
}

// asType is errors.AsType, which the oldest supported Go does not have.
func asType[E error](err error) (E, bool) {
	var e E
	ok := errors.As(err, &e)
	return e, ok
}
