package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/brellium/brellium-go"
)

// The exit codes.
const (
	exitDone        = 0
	exitPartial     = 1
	exitUsage       = 2
	exitCredentials = 3
	exitBlocked     = 4
	exitRateLimited = 5
	exitInterrupted = 130
)

const exitCodesHelp = `Exit codes:
  0    done
  1    failed or done in part; the message says what is left
  2    wrong use, or a file or address that cannot be used: nothing was sent
  3    credentials are missing or were rejected
  4    blocked before the request reached the API
  5    rate limited
  130  interrupted
  141  the reader of the output has gone, as in "brellium … | head" (SIGPIPE)`

// failure is an error with its exit code and a sentence for the user.
type failure struct {
	code int
	text string
}

func (f *failure) Error() string { return f.text }

func usage(format string, args ...any) error {
	return &failure{exitUsage, fmt.Sprintf(format, args...)}
}

func partial(format string, args ...any) error {
	return &failure{exitPartial, fmt.Sprintf(format, args...)}
}

// finish prints the error of a command and returns the exit code.
func (a *app) finish(ctx context.Context, err error) int {
	if err == nil {
		return exitDone
	}
	code, text := explain(err)
	if context.Cause(ctx) == errSignal {
		code, text = exitInterrupted, strings.TrimSpace("Interrupted. "+a.resume)
	}
	a.note("%s", text)
	return code
}

// explain returns the exit code of an error, and a sentence that says what
// happened and what to do.
func explain(err error) (code int, text string) {
	var (
		own        *failure
		invalid    *brellium.ValidationError
		blocked    *brellium.BlockedError
		api        *brellium.APIError
		connection *brellium.ConnectionError
		decode     *brellium.DecodeError
		pagination *brellium.PaginationError
		interrupt  *brellium.InterruptedError
		path       *fs.PathError
	)
	switch {
	case errors.As(err, &own):
		return own.code, own.text
	case errors.As(err, &invalid):
		if invalid.Field == "credentials" || strings.Contains(invalid.Field, "ACCESS_TOKEN") || strings.Contains(invalid.Field, "CLIENT_") ||
			invalid.Field == "WithClientCredentials" || invalid.Field == "WithAccessToken" {
			return exitCredentials, "The credentials are missing, incomplete or malformed: set BRELLIUM_CLIENT_ID and BRELLIUM_CLIENT_SECRET, or BRELLIUM_ACCESS_TOKEN, or use --credentials FILE."
		}
		return exitUsage, sentence(invalid.Error())
	case errors.As(err, &blocked):
		text = "The request was blocked before it reached the API (a 403 without JSON); pause for some minutes, then send less at once"
		if !blocked.RetryAt.IsZero() {
			text += ", not before " + blocked.RetryAt.Format(time.TimeOnly)
		}
		return exitBlocked, text + "."
	case errors.Is(err, brellium.ErrRateLimited):
		text = "The organization is rate limited" + requestID(err) + "; try again later"
		if wait, ok := brellium.RetryAfter(err); ok {
			text = "The organization is rate limited" + requestID(err) + "; try again in " + max(wait, time.Second).Round(time.Second).String()
		}
		return exitRateLimited, text + "."
	case errors.As(err, &api) && rejectsCredentials(api):
		return exitCredentials, fmt.Sprintf("The API rejected the credentials (HTTP %d %s%s); check the client id and secret, or ask for new ones.", api.StatusCode, api.Code, inside(api.RequestID))
	case errors.Is(err, brellium.ErrNotFound) && api != nil:
		return exitPartial, fmt.Sprintf("The API knows no such object (%s, HTTP 404%s); check the id.", api.Operation, inside(api.RequestID))
	case api != nil:
		advice := "check the arguments"
		if api.StatusCode >= 500 {
			advice = "try again later"
		}
		message := ""
		if strings.HasPrefix(api.Operation, "users.") || strings.HasPrefix(api.Operation, "email_recipients.") {
			// Messages about audits and documents are left out: they can concern a patient.
			message = ": " + strings.TrimRight(clean(api.Message), ". ")
		}
		return exitPartial, fmt.Sprintf("The API failed %s with HTTP %d %s%s%s; %s.", api.Operation, api.StatusCode, api.Code, inside(api.RequestID), message, advice)
	case errors.As(err, &connection):
		return exitPartial, fmt.Sprintf(`There was no usable response from the API (%s: %s); check the network with "brellium doctor", then try again.`, connection.Operation, connection.Reason)
	case errors.As(err, &decode):
		return exitPartial, fmt.Sprintf(`The response of %s has another form than expected (%s%s); send the report of "brellium doctor --report FILE" to the maintainers.`, decode.Operation, decode.Reason, inside(decode.RequestID))
	case errors.As(err, &pagination):
		return exitPartial, "The list could not be read to its end (" + pagination.Reason + "); try again later."
	case errors.As(err, &interrupt):
		return exitPartial, "The time was too short (" + interrupt.Operation + "); try again with more time."
	case errors.As(err, &path):
		return exitPartial, fileError(path)
	}
	return exitPartial, sentence(err.Error())
}

func rejectsCredentials(e *brellium.APIError) bool {
	return e.StatusCode == 401 || e.Code == brellium.CodeAccessDenied || e.Operation == "oauth.token" && e.StatusCode < 500 && e.StatusCode != 429
}

// requestID returns the request id of an API error in parentheses.
func requestID(err error) string {
	var api *brellium.APIError
	if errors.As(err, &api) && api.RequestID != "" {
		return " (request " + api.RequestID + ")"
	}
	return ""
}

func inside(requestID string) string {
	if requestID == "" {
		return ""
	}
	return ", request " + requestID
}

// fileError says which file cannot be used, and why.
func fileError(err error) string {
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		return fmt.Sprintf("The file %s cannot be used: %v.", clean(path.Path), path.Err)
	}
	return sentence(err.Error())
}

// sentence returns an error's text with a capital letter and a full stop.
func sentence(text string) string {
	text = strings.TrimRight(strings.TrimPrefix(clean(text), "brellium: "), ". ")
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:] + "."
}
