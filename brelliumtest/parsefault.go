package brelliumtest

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// kinds is the failures that have a name.
var kinds = map[string]func() Fault{
	"blocked":       Blocked,
	"drop-before":   DropBefore,
	"drop-after":    DropAfter,
	"invite-failed": InviteFailed,
	"never-sent":    NeverSent,
	"revoke-failed": RevokeFailed,
	"revoked-token": RevokedToken,
	"truncated":     func() Fault { return OK().Truncated() },
}

// ParseFault reads an operation and its fault, for [Emulator.Inject], from the
// text of a flag: an operation, "=", and a status or one of blocked,
// drop-before, drop-after, invite-failed, never-sent, revoke-failed,
// revoked-token and truncated. Settings may follow, separated by commas: code,
// the code of the error; retry-after, the value of that header; times, how
// often it happens, 1 by default; chance, from 0 to 1, with which it happens to
// each request for good; delay, a [time.Duration] before the response. An
// example is "users.create=503,code=UNAVAILABLE,times=2".
func ParseFault(text string) (operation string, fault Fault, err error) {
	operation, failure, _ := strings.Cut(text, "=")
	if !injectable(operation) {
		names := []string{OpAny, OpDocumentPut}
		for _, o := range operations {
			names = append(names, o.name)
		}
		return "", Fault{}, fmt.Errorf("there is no operation %q; use one of %s", operation, strings.Join(names, " "))
	}
	parts := strings.Split(failure, ",")
	if kind := kinds[parts[0]]; kind != nil {
		fault = kind()
	} else if status, err := strconv.Atoi(parts[0]); err == nil && status >= 200 && status <= 999 {
		code := ""
		for _, part := range parts[1:] {
			if value, ok := strings.CutPrefix(part, "code="); ok {
				code = value
			}
		}
		fault = Status(status, code)
	} else {
		return "", Fault{}, fmt.Errorf("%q is neither a status nor a failure", parts[0])
	}
	for _, part := range parts[1:] {
		var err error
		switch name, value, _ := strings.Cut(part, "="); name {
		case "code":
		case "retry-after":
			fault = fault.WithHeader("Retry-After", value)
		case "times":
			var n int
			if n, err = strconv.Atoi(value); err == nil && n < 1 {
				err = fmt.Errorf("times must be positive")
			}
			fault = fault.Times(n)
		case "chance":
			var p float64
			if p, err = strconv.ParseFloat(value, 64); err == nil && !(p > 0 && p <= 1) {
				err = fmt.Errorf("chance must be above 0, and at most 1")
			}
			fault = fault.Forever().Sometimes(p)
		case "delay":
			var d time.Duration
			d, err = time.ParseDuration(value)
			fault = fault.DelayResponse(d)
		default:
			err = fmt.Errorf("%q is not code, retry-after, times, chance or delay", name)
		}
		if err != nil {
			return "", Fault{}, err
		}
	}
	return operation, fault, nil
}
