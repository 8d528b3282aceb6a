package brelliumtest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// ExpireUploadURLs makes all upload URLs issued so far expire.
func (e *Emulator) ExpireUploadURLs() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.documents.expired = e.documents.urls
}

// uploadURL returns a new upload URL for a document's file, or nil if it has
// arrived.
func (e *Emulator) uploadURL(c *call, d *documentRecord) *string {
	if d.Arrived {
		return nil
	}
	e.documents.urls++
	path := uploadPrefix + d.DocumentID + "/" + url.PathEscape(d.Filename)
	full := e.storageBase(c) + e.signed(path, c.now.Add(e.uploadLifetime).UnixMilli(), e.documents.urls)
	return &full
}

// signed returns the path and query of an upload URL. Parsing and re-encoding
// the query would change it, which breaks the signature.
func (e *Emulator) signed(path string, expires int64, serial uint64) string {
	query := "X-Expires=" + strconv.FormatInt(expires, 10) + "&X-Credential=emulator%2fstorage%2f" + strconv.FormatUint(serial, 10)
	mac := hmac.New(sha256.New, e.uploadKey[:])
	mac.Write([]byte("PUT\n" + path + "?" + query))
	signature := base64.StdEncoding.EncodeToString(mac.Sum(nil))
	return path + "?X-Signature=" + url.QueryEscape(signature) + "&" + query
}

// storageBase returns the scheme and host of the upload URLs. The host name
// differs from the one the request was sent to, if there is another name.
func (e *Emulator) storageBase(c *call) string {
	if e.storageURL != "" {
		return e.storageURL
	}
	scheme := "http://"
	if c.secure {
		scheme = "https://"
	}
	host, port, err := net.SplitHostPort(c.host)
	if err != nil {
		host = c.host
	}
	switch host {
	case "localhost":
		host = "127.0.0.1"
	case "127.0.0.1", "::1", "[::1]":
		host = "localhost"
	default:
		if c.inProcess {
			return "https://" + storageHost
		}
		return scheme + c.host
	}
	if port != "" {
		host = net.JoinHostPort(host, port)
	}
	return scheme + host
}

// store serves the storage host.
func (e *Emulator) store(c *call) response {
	if s := c.scripted(); s != nil && !c.fault.work {
		return response{}
	}
	if c.op == nil {
		if strings.HasPrefix(c.path, uploadPrefix) {
			return fail(http.StatusMethodNotAllowed, "MethodNotAllowed", "The method is not allowed against this resource")
		}
		return fail(http.StatusNotFound, "NoSuchBucket", "The bucket does not exist")
	}
	switch {
	case c.header.Get("Authorization") != "":
		return fail(http.StatusBadRequest, "InvalidArgument", "Only one authorization method is allowed: the signature of the URL")
	case c.header.Get("Cookie") != "":
		return fail(http.StatusBadRequest, "InvalidArgument", "Cookies are not part of the signed request")
	case c.chunked:
		return fail(http.StatusNotImplemented, "NotImplemented", "A header implies functionality that is not implemented: Transfer-Encoding")
	case c.contentLength < 0:
		return fail(http.StatusLengthRequired, "MissingContentLength", "The Content-Length header is required")
	}
	expires, serial, valid := e.verify(c)
	switch {
	case !valid:
		return fail(http.StatusForbidden, "SignatureDoesNotMatch", "The signature does not match the request")
	case c.now.UnixMilli() >= expires || serial <= e.documents.expired:
		return fail(http.StatusForbidden, "AccessDenied", "Request has expired")
	}
	c.rec.Worked = true
	return c.op.run(e, c)
}

// verify checks the signature of an upload URL, byte for byte.
func (e *Emulator) verify(c *call) (expires int64, serial uint64, valid bool) {
	values, err := url.ParseQuery(c.query)
	if err != nil {
		return 0, 0, false
	}
	expires, err1 := strconv.ParseInt(values.Get("X-Expires"), 10, 64)
	number, found := strings.CutPrefix(values.Get("X-Credential"), "emulator/storage/")
	serial, err2 := strconv.ParseUint(number, 10, 64)
	if err1 != nil || err2 != nil || !found {
		return 0, 0, false
	}
	want := e.signed(c.path, expires, serial)
	return expires, serial, hmac.Equal([]byte(want), []byte(c.path+"?"+c.query))
}

// putDocument stores a document's file.
func (e *Emulator) putDocument(c *call) response {
	id, _, _ := strings.Cut(strings.TrimPrefix(c.path, uploadPrefix), "/")
	d := e.documents.byID[id]
	if d == nil {
		return fail(http.StatusNotFound, "NoSuchKey", "The key does not exist")
	}
	if c.size == 0 { // readBody does not hash an empty body
		empty := sha256.Sum256(nil)
		c.sha256 = hex.EncodeToString(empty[:])
	}
	d.Size, d.SHA256, d.ContentType = c.size, c.sha256, c.header.Get("Content-Type")
	d.Puts++
	if !d.Arrived {
		d.Arrived = true
		if d.Status == docTodo {
			d.Status = docInProgress
			e.documents.waiting = append(e.documents.waiting, waitingDocument{d, c.now.Add(e.auditDelay)})
		}
	}
	e.documents.settle(e, time.Now())
	return response{status: http.StatusOK}
}
