package storage_test

import (
	"bytes"
	"errors"
	"io"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brellium/brellium-go/internal/storage"
	"github.com/brellium/brellium-go/internal/wire"
)

func onlyLocalhost(host string) bool { return host == "localhost" }

// requestTarget is what follows the host in address, byte for byte.
func requestTarget(address string) string {
	_, rest, _ := strings.Cut(address, "://")
	if slash := strings.IndexByte(rest, '/'); slash >= 0 {
		return rest[slash:]
	}
	return ""
}

var goodURLs = []string{
	"https://storage.example.com/bucket/a%2fb%20c.pdf?X-Signature=a%2Bb%2f&X-Amz=%7e~&empty=",
	"https://storage.example.com/bucket/plain?",
	"https://storage.example.com/bucket/%41%7E/..%2f/./x?b=2&a=1&a=0",
	"https://storage.example.com/bucket/(a)*'!|\"<>^`{}?x={|}",
	"http://localhost:9000/bucket/a.pdf?X-Signature=1",
}

func TestParseURLKeepsEveryByte(t *testing.T) {
	for _, address := range goodURLs {
		u, reason := storage.ParseURL(address, onlyLocalhost)
		require.Empty(t, reason, address)
		assert.Equal(t, requestTarget(address), u.RequestURI())
	}
}

func TestParseURLRejects(t *testing.T) {
	const path = "/bucket/jane-doe?X-Signature=5ecre7"
	for address, want := range map[string]string{
		"http://storage.example.com" + path: "is not https",
		"ftp://localhost" + path:            "is not https",
		path:                                "is not valid",
		"https:" + path:                     "is not valid",
		"http://127.0.0.1:x" + path:         "is not valid",
		"https://storage.example.com" + path + " HTTP/1.1": "is not escaped",
		"https://storage.example.com" + path + "#fragment": "is not escaped",
		"https://storage.example.com" + path + "\r\nA: b":  "is not escaped",
		"https://storage.example.com/jané?X-Signature=5":   "is not escaped",
	} {
		u, reason := storage.ParseURL(address, onlyLocalhost)
		assert.Equal(t, "the upload URL "+want, reason, address)
		assert.Equal(t, url.URL{}, u)
	}
}

func FuzzParseURL(f *testing.F) {
	for _, address := range goodURLs {
		f.Add(address)
	}
	f.Add("https://user@storage.example.com//a//?%zz")
	f.Add("https://storage.example.com?a=/b")
	f.Fuzz(func(t *testing.T, address string) {
		u, reason := storage.ParseURL(address, onlyLocalhost)
		if reason != "" {
			return
		}
		if target := requestTarget(address); target != "" && u.RequestURI() != target {
			t.Errorf("%q would be sent as %q", target, u.RequestURI())
		}
		if u.Scheme != "https" && u.Hostname() != "localhost" {
			t.Errorf("%q would be sent without TLS", address)
		}
	})
}

func TestReadError(t *testing.T) {
	s3 := func(code, message string) string {
		return `<?xml version="1.0" encoding="UTF-8"?><Error><Code>` + code + `</Code><Message>` + message + `</Message></Error>`
	}
	for _, test := range []struct {
		status  int
		body    string
		code    string
		expired bool
	}{
		{403, s3("AccessDenied", "Request has expired"), "AccessDenied", true},
		{403, s3("AccessDenied", "Request has EXPIRED"), "AccessDenied", true},
		{403, s3("AccessDenied", "Access Denied"), "AccessDenied", false},
		{400, s3("ExpiredToken", ""), "ExpiredToken", true},
		{403, s3(" RequestExpired\n", ""), "RequestExpired", true},
		{401, s3("TokenExpired", ""), "TokenExpired", true},
		{503, s3("ExpiredToken", ""), "ExpiredToken", false},
		{403, s3("SignatureDoesNotMatch", "the request has not expired"), "SignatureDoesNotMatch", false},
		{403, `<html><body>Request has expired</body></html>`, "", false},
		{403, `{"Code":"ExpiredToken"}`, "", false},
		{403, "", "", false},
	} {
		code, expired := storage.ReadError(test.status, []byte(test.body))
		assert.Equal(t, test.code, code, test.body)
		assert.Equal(t, test.expired, expired, test.body)
	}
}

// source counts how often it is closed.
type source struct {
	io.Reader
	closed int
}

func (s *source) Close() error { s.closed++; return nil }

func TestBodyReturnsTheLastBytesOnlyOfAFileOfTheAnnouncedSize(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789"), 100)
	broken := errors.New("disk on fire")
	for name, reader := range map[string]func(io.Reader) io.Reader{
		"plain":         func(r io.Reader) io.Reader { return r },
		"one byte":      iotest.OneByteReader,
		"half":          iotest.HalfReader,
		"data with EOF": iotest.DataErrReader,
	} {
		for _, test := range []struct {
			name   string
			src    io.Reader
			size   int
			reason string // of the error, empty for none
		}{
			{"exact", bytes.NewReader(data), len(data), ""},
			{"empty", bytes.NewReader(nil), 0, ""},
			{"short", bytes.NewReader(data), len(data) + 1, "the file is shorter than its Size"},
			{"long", bytes.NewReader(data), len(data) - 1, "the file is longer than its Size"},
			{"empty expected", bytes.NewReader(data), 0, "the file is longer than its Size"},
			{"broken", io.MultiReader(bytes.NewReader(data), iotest.ErrReader(broken)), len(data) + 1, "the file cannot be read"},
			{"broken at the end", io.MultiReader(bytes.NewReader(data), iotest.ErrReader(broken)), len(data), "the file cannot be read"},
		} {
			t.Run(name+", "+test.name, func(t *testing.T) {
				src := &source{Reader: reader(test.src)}
				body := storage.NewBody(src, int64(test.size), nil)
				got, err := io.ReadAll(body)
				assert.EqualValues(t, len(got), body.Position())
				if test.reason == "" {
					require.NoError(t, err)
					assert.Equal(t, string(data[:test.size]), string(got))
				} else {
					require.EqualError(t, err, test.reason)
					assert.Less(t, len(got), max(test.size, 1), "the whole size was given away")
					assert.Equal(t, strings.HasPrefix(test.name, "broken"), errors.Is(err, broken))
					assert.ErrorIs(t, err, wire.ErrDoNotSend)
				}
				require.NoError(t, body.Close())
				assert.Equal(t, 1, src.closed)
			})
		}
	}
}

// A read that fails because the transport has closed the body says nothing
// about the file.
func TestBodyThatHasBeenClosedReturnsTheErrorOfTheSource(t *testing.T) {
	closed := errors.New("already closed")
	body := storage.NewBody(&source{Reader: iotest.ErrReader(closed)}, 10, nil)
	require.NoError(t, body.Close())
	_, err := body.Read(make([]byte, 1))
	require.Equal(t, closed, err)
}

type stuckReader struct{}

func (stuckReader) Read([]byte) (int, error) { return 0, nil }

func TestBodyOfASourceWithoutAnEndFails(t *testing.T) {
	src := io.MultiReader(strings.NewReader("a"), stuckReader{})
	body := storage.NewBody(io.NopCloser(src), 1, nil)
	got, err := io.ReadAll(body)
	require.ErrorIs(t, err, io.ErrNoProgress)
	assert.Empty(t, got)
}
