package redact

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"syscall"
)

// Hide returns an error that can be asked with errors.Is and errors.As like
// err, but whose text cannot be read, since a transport's error may quote the
// request or the response. Errors that quote nothing are returned as they are.
func Hide(err error) error {
	for {
		e, ok := err.(*url.Error)
		if !ok {
			break
		}
		err = e.Err
	}
	switch err {
	case nil, io.EOF, io.ErrUnexpectedEOF:
		return err
	}
	if _, ok := err.(syscall.Errno); ok {
		return err
	}
	return &hidden{Seal(err)}
}

// hidden is an error without its text.
type hidden struct{ cause Sealed[error] }

func (e *hidden) Error() string { return "cause withheld, since it may quote the request" }

func (e *hidden) Format(s fmt.State, verb rune) { Format(s, verb, e.Error()) }

// Timeout and Temporary make a hidden error a net.Error.
func (e *hidden) Timeout() bool {
	t, ok := as[interface {
		error
		Timeout() bool
	}](e.cause.Open())
	return ok && t.Timeout()
}

func (e *hidden) Temporary() bool {
	t, ok := as[interface {
		error
		Temporary() bool
	}](e.cause.Open())
	return ok && t.Temporary()
}

// Is matches what the cause matches, except the errors of package context:
// those always mean the caller's own context, which has not ended here.
func (e *hidden) Is(target error) bool {
	return target != context.Canceled && target != context.DeadlineExceeded && errors.Is(e.cause.Open(), target)
}

// As finds these types of the standard library: those of package net without the
// addresses that they quote, and those whose text quotes nothing of the request.
// Beside them it finds only concrete types from outside the standard library,
// which are the transport's own.
func (e *hidden) As(target any) bool {
	cause := e.cause.Open()
	switch target := target.(type) {
	case **net.OpError:
		found, ok := as[*net.OpError](cause)
		if ok {
			*target = &net.OpError{Op: oneOf(found.Op, netOps), Net: oneOf(found.Net, networks), Err: Hide(found.Err)}
		}
		return ok
	case **net.DNSError:
		found, ok := as[*net.DNSError](cause)
		if ok {
			*target = &net.DNSError{Err: "the host name could not be looked up",
				IsTimeout: found.IsTimeout, IsTemporary: found.IsTemporary, IsNotFound: found.IsNotFound}
		}
		return ok
	case *syscall.Errno, **tls.CertificateVerificationError, *tls.RecordHeaderError, *tls.AlertError,
		*x509.UnknownAuthorityError, *x509.HostnameError, *x509.CertificateInvalidError,
		*x509.ConstraintViolationError, *x509.InsecureAlgorithmError, *x509.SystemRootsError:
		return errors.As(cause, target)
	}
	return outsideStandardLibrary(reflect.TypeOf(target).Elem()) && errors.As(cause, target)
}

// standardLibrary is the first element of the path of each of its packages.
var standardLibrary = strings.Fields(`archive bufio bytes cmp compress container context crypto database debug embed
	encoding errors expvar flag fmt go hash html image index internal io iter log maps math mime net os path plugin reflect
	regexp runtime slices sort strconv strings structs sync syscall testing text time unicode unique unsafe vendor weak`)

// outsideStandardLibrary reports whether t is a concrete type of another package.
func outsideStandardLibrary(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() != reflect.Interface && !isStandard(t.PkgPath())
}

func isStandard(pkgPath string) bool {
	first, _, _ := strings.Cut(pkgPath, "/")
	return first == "" || slices.Contains(standardLibrary, first)
}

// ForeignType names the type of the first error in the tree of err that is from
// outside the standard library, such as that of a transport in a test. It returns
// "" if there is none.
func ForeignType(err error) string {
	if err == nil {
		return ""
	}
	if t := reflect.TypeOf(err); outsideStandardLibrary(t) {
		return t.String()
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		return ForeignType(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			if name := ForeignType(err); name != "" {
				return name
			}
		}
	}
	return ""
}

// The words of package net that a *net.OpError may contain.
var (
	netOps   = []string{"dial", "read", "write", "close", "proxyconnect", "local error", "remote error"}
	networks = []string{"tcp", "tcp4", "tcp6"}
)

func oneOf(s string, known []string) string {
	if slices.Contains(known, s) {
		return s
	}
	return ""
}

// Cause returns the cause of the end of ctx, sealed, where it has one of its
// own. It is the caller's error, which may be matched but not printed.
func Cause(ctx context.Context) Sealed[error] {
	cause := context.Cause(ctx)
	if cause == nil || cause == ctx.Err() {
		return Sealed[error]{}
	}
	return Seal(cause)
}
