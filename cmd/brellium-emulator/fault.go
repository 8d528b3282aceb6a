package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/brellium/brellium-go/brelliumtest"
)

// faults is the flag -fault.
type faults []scripted

type scripted struct {
	operation string
	fault     brelliumtest.Fault
}

func (f *faults) String() string { return "" }

var operations = []string{
	brelliumtest.OpAny, brelliumtest.OpTokenCreate,
	brelliumtest.OpAuditList, brelliumtest.OpAuditRetrieve, brelliumtest.OpAuditUpdate, brelliumtest.OpAuditBatchUpdate,
	brelliumtest.OpDocumentCreate, brelliumtest.OpDocumentRetrieve, brelliumtest.OpDocumentList, brelliumtest.OpDocumentPut,
	brelliumtest.OpUserCreate, brelliumtest.OpUserRetrieve, brelliumtest.OpUserList, brelliumtest.OpUserDelete,
	brelliumtest.OpEmailRecipientCreate, brelliumtest.OpEmailRecipientRetrieve, brelliumtest.OpEmailRecipientList,
}

var kinds = map[string]func() brelliumtest.Fault{
	"blocked":       brelliumtest.Blocked,
	"drop-before":   brelliumtest.DropBefore,
	"drop-after":    brelliumtest.DropAfter,
	"invite-failed": brelliumtest.InviteFailed,
	"never-sent":    brelliumtest.NeverSent,
	"revoke-failed": brelliumtest.RevokeFailed,
	"revoked-token": brelliumtest.RevokedToken,
	"truncated":     func() brelliumtest.Fault { return brelliumtest.OK().Truncated() },
}

// Set reads a fault such as "users.create=503,code=UNAVAILABLE,times=2".
func (f *faults) Set(value string) error {
	operation, failure, _ := strings.Cut(value, "=")
	if !slices.Contains(operations, operation) {
		return fmt.Errorf("there is no operation %q; use one of %s", operation, strings.Join(operations, " "))
	}
	parts := strings.Split(failure, ",")
	var fault brelliumtest.Fault
	if kind := kinds[parts[0]]; kind != nil {
		fault = kind()
	} else if status, err := strconv.Atoi(parts[0]); err == nil && status >= 200 && status <= 999 {
		code := ""
		for _, part := range parts[1:] {
			if value, ok := strings.CutPrefix(part, "code="); ok {
				code = value
			}
		}
		fault = brelliumtest.Status(status, code)
	} else {
		return fmt.Errorf("%q is neither a status nor a failure", parts[0])
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
			return err
		}
	}
	*f = append(*f, scripted{operation, fault})
	return nil
}
