package redact

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/textproto"
	"net/url"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const secret = "jane.doe"

// ownError is an error of a transport from outside the standard library.
type ownError struct{ Text string }

func (e *ownError) Error() string        { return e.Text }
func (e *ownError) String() string       { return e.Text }
func (e *ownError) LogValue() slog.Value { return slog.StringValue(e.Text) }
func (e *ownError) Timeout() bool        { return true }

func TestHiddenErrorIsFoundOnlyByListedTypes(t *testing.T) {
	quoting := &ownError{secret}
	for _, tc := range []struct {
		cause  error
		target any
		found  bool
	}{
		{&url.Error{Op: "Get", URL: secret, Err: quoting}, new(*url.Error), false},
		{fmt.Errorf("%w", &url.Error{Op: "Get", URL: secret, Err: quoting}), new(*url.Error), false},
		{&fs.PathError{Op: "open", Path: secret, Err: fs.ErrNotExist}, new(*fs.PathError), false},
		{&os.SyscallError{Syscall: secret, Err: quoting}, new(*os.SyscallError), false},
		{&net.AddrError{Err: secret, Addr: secret}, new(*net.AddrError), false},
		{&textproto.Error{Code: 500, Msg: secret}, new(*textproto.Error), false},
		{textproto.ProtocolError(secret), new(textproto.ProtocolError), false},
		{&json.UnmarshalTypeError{Value: secret}, new(*json.UnmarshalTypeError), false},
		{quoting, new(fmt.Stringer), false},
		{quoting, new(slog.LogValuer), false},
		{quoting, new(interface{ String() string }), false},
		{quoting, new(*ownError), true},
		{&net.OpError{Op: "read", Err: quoting}, new(*ownError), true},
		{&net.OpError{Op: "read", Err: quoting}, new(*net.OpError), true},
		{&net.DNSError{}, new(*net.DNSError), true},
		{&net.OpError{Op: "read", Err: syscall.ECONNRESET}, new(syscall.Errno), true},
		{&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, new(*tls.CertificateVerificationError), true},
		{&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, new(x509.UnknownAuthorityError), true},
	} {
		err := Hide(tc.cause)
		assert.Equal(t, tc.found, errors.As(err, tc.target), "%T as %T", tc.cause, tc.target)
		assert.NotContains(t, fmt.Sprintf("%v %+v %#v %q %d", err, err, err, err, err), secret)
	}
}

func TestErrorsOfPackageNetAreFoundWithoutNames(t *testing.T) {
	err := Hide(&net.OpError{Op: "dial", Net: "tcp", Source: &net.UnixAddr{Name: secret}, Addr: &net.UnixAddr{Name: secret},
		Err: &net.DNSError{Err: secret, Name: secret, Server: secret, IsNotFound: true}})
	var op *net.OpError
	require.ErrorAs(t, err, &op)
	assert.Equal(t, "dial", op.Op)
	assert.Equal(t, "tcp", op.Net)
	var dns *net.DNSError
	require.ErrorAs(t, op, &dns)
	assert.Equal(t, net.DNSError{Err: "the host name could not be looked up", IsNotFound: true}, *dns)
	assert.NotContains(t, fmt.Sprintf("%+v %#v %v", op, op, op.Err), secret)
	require.ErrorAs(t, Hide(&net.OpError{Op: secret, Net: secret, Err: errors.New(secret)}), &op)
	assert.Empty(t, op.Op+op.Net)
}

func TestHiddenErrorMatchesLikeItsCause(t *testing.T) {
	cause := &fs.PathError{Op: "open", Path: secret, Err: fs.ErrNotExist}
	assert.ErrorIs(t, Hide(cause), fs.ErrNotExist)
	assert.ErrorIs(t, Hide(cause), cause)
	ended := Hide(errors.Join(context.Canceled, context.DeadlineExceeded))
	assert.NotErrorIs(t, ended, context.Canceled, "only the caller's context may match")
	assert.NotErrorIs(t, ended, context.DeadlineExceeded)
	var timeout net.Error
	require.ErrorAs(t, Hide(&ownError{secret}), &timeout)
	assert.True(t, timeout.Timeout())
	assert.NotContains(t, timeout.Error(), secret)
	assert.Equal(t, syscall.ECONNRESET, Hide(syscall.ECONNRESET), "quotes nothing")
	assert.NoError(t, Hide(nil))
}

// The path of a module need not begin with a domain name.
func TestTypesOfAnyModuleAreOutsideTheStandardLibrary(t *testing.T) {
	for path, want := range map[string]bool{
		"": true, "net": true, "net/url": true, "encoding/json": true, "internal/poll": true,
		"main": false, "clinicsync/transport": false, "example.com/x": false, "netx/url": false,
	} {
		assert.Equal(t, want, isStandard(path), path)
	}
}
