// Package storage supports file uploads: it checks the signed URL, reads storage
// errors, and verifies the file size.
package storage

import (
	"encoding/xml"
	"net/url"
	"strings"
)

// ParseURL checks a signed upload URL. The request must carry exactly the bytes
// of address, since the signature covers them. plainHTTP reports whether a host
// may be reached without TLS. A URL that cannot be used has a reason, which
// quotes nothing of it.
func ParseURL(address string, plainHTTP func(host string) bool) (u url.URL, reason string) {
	for i := 0; i < len(address); i++ {
		if address[i] <= ' ' || address[i] >= 0x7f || address[i] == '#' {
			return url.URL{}, "the upload URL is not escaped"
		}
	}
	parsed, err := url.Parse(address)
	switch {
	case err != nil || parsed.Opaque != "" || parsed.Host == "":
		return url.URL{}, "the upload URL is not valid"
	case parsed.Scheme != "https" && (parsed.Scheme != "http" || !plainHTTP(parsed.Hostname())):
		return url.URL{}, "the upload URL is not https"
	}
	_, rest, _ := strings.Cut(address, "://")
	if _, path, ok := strings.Cut(rest, "/"); ok && parsed.RequestURI() != "/"+path {
		parsed.Opaque, _, _ = strings.Cut("/"+path, "?") // is sent as it is
		if parsed.RequestURI() != "/"+path {
			return url.URL{}, "the upload URL cannot be sent as it is"
		}
	}
	return *parsed, ""
}

// ReadError returns the code of a storage host's error response, and whether it
// says that the URL has expired. The format depends on the host; this reads
// that of S3 and of hosts that imitate it. (assumed)
func ReadError(status int, body []byte) (code string, expired bool) {
	var e struct {
		XMLName xml.Name `xml:"Error"`
		Code    string   `xml:"Code"`
		Message string   `xml:"Message"`
	}
	if xml.Unmarshal(body, &e) != nil {
		return "", false
	}
	code = strings.TrimSpace(e.Code)
	switch code {
	case "ExpiredToken", "RequestExpired", "TokenExpired":
		expired = true
	case "AccessDenied":
		expired = strings.Contains(strings.ToLower(e.Message), "expired")
	}
	return code, expired && status >= 400 && status < 500
}
