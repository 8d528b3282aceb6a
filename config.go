package brellium

import (
	"net/netip"
	"net/url"
	"os"
	"runtime"
	"strconv"
	"strings"
)

func (c *clientConfig) parseBaseURL() (*url.URL, error) {
	field, raw := "WithBaseURL", c.baseURL
	if raw == "" {
		if raw = os.Getenv(envBaseURL); raw != "" {
			field = envBaseURL
		} else {
			raw = defaultBaseURL
		}
	}
	u, err := url.Parse(strings.TrimSpace(raw))
	invalid := func(reason string) (*url.URL, error) { return nil, &ValidationError{Field: field, Reason: reason} }
	switch {
	case err != nil:
		return invalid("is not a URL")
	case u.Scheme != "https" && u.Scheme != "http":
		return invalid("must begin with https:// (or http:// to a loopback address)")
	case u.Opaque != "" || u.Hostname() == "":
		return invalid("has no host")
	case u.User != nil:
		return invalid("must not hold user info")
	case !validPort(u.Port()):
		return invalid("has a port that does not exist")
	case u.RawQuery != "" || u.ForceQuery:
		return invalid("must not hold a query")
	case u.Fragment != "" || strings.Contains(raw, "#"):
		return invalid("must not hold a fragment")
	case u.Scheme == "http" && !loopback(u.Hostname()):
		return invalid("must be https, since a token never travels in plain text; http is for loopback addresses alone")
	}
	for _, segment := range strings.Split(u.Path, "/") {
		if segment == "." || segment == ".." {
			return invalid("must not hold . or .. in its path")
		}
	}
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), strings.TrimRight(u.RawPath, "/")
	return u, nil
}

func validPort(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return port == "" || err == nil && n > 0
}

// loopback reports whether host is this machine for certain. Names below
// localhost are not: a resolver may lead them, and net/http its proxy, elsewhere.
func loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

func (c *clientConfig) fullUserAgent() string {
	own := "brellium-go/" + Version + " (" + runtime.Version() + "; " + runtime.GOOS + "/" + runtime.GOARCH + ")"
	if c.userAgent != "" {
		return c.userAgent + " " + own
	}
	return own
}
