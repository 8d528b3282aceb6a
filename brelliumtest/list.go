package brelliumtest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// The default and the largest number of items on a page.
const (
	defaultLimit = 20
	maxLimit     = 100
)

// cursorMark begins every cursor, so that each has characters ("+/+/") that
// must be escaped in a query.
const cursorMark = "\xfb\xff\xbf"

// listQuery is the query of a list, with what all lists have in common.
type listQuery struct {
	url.Values
	kind  string
	limit int
	from  uint64 // the first item's place, from the cursor
}

// parseList reads the query of a list. The kind keeps the cursors of one list
// from being used for another.
func parseList(c *call, kind string) (listQuery, *answer) {
	q := listQuery{kind: kind, limit: defaultLimit}
	refused := func(message string) (listQuery, *answer) {
		a := invalid(message)
		return q, &a
	}
	values, err := url.ParseQuery(c.query)
	if err != nil {
		return refused("The query string is malformed")
	}
	q.Values = values
	if values.Has("limit") {
		q.limit, err = strconv.Atoi(values.Get("limit"))
		if err != nil || q.limit < 1 || q.limit > maxLimit {
			return refused("limit must be a number from 1 to 100")
		}
	}
	if values.Has("cursor") {
		raw, err := base64.StdEncoding.DecodeString(values.Get("cursor"))
		place, ok := strings.CutPrefix(string(raw), cursorMark+kind+":")
		if err != nil || !ok {
			return refused("cursor is not one of this list")
		}
		if q.from, err = strconv.ParseUint(place, 10, 64); err != nil {
			return refused("cursor is not one of this list")
		}
	}
	return q, nil
}

// list is a page of a list while it is made.
type list struct {
	query listQuery
	body  []byte
	n     int
	more  bool
	next  uint64
}

func newList(q listQuery, itemSize int) *list {
	l := &list{query: q, body: make([]byte, 0, 128+itemSize*q.limit)}
	l.body = append(l.body, `{"object":"list","data":[`...)
	return l
}

// item makes room for one more item, which the caller then appends to l.body.
// It reports false where the page is full: the list goes on at this place.
func (l *list) item(place uint64) bool {
	if l.n == l.query.limit {
		l.more, l.next = true, place
		return false
	}
	if l.n > 0 {
		l.body = append(l.body, ',')
	}
	l.n++
	return true
}

func (l *list) answer() answer {
	l.body = append(l.body, `],"has_more":`...)
	l.body = strconv.AppendBool(l.body, l.more)
	l.body = append(l.body, `,"next_cursor":`...)
	if l.more {
		cursor := base64.StdEncoding.EncodeToString([]byte(cursorMark + l.query.kind + ":" + strconv.FormatUint(l.next, 10)))
		l.body = append(append(append(l.body, '"'), cursor...), '"')
	} else {
		l.body = append(l.body, "null"...)
	}
	l.body = append(l.body, '}')
	return ok(l.body)
}

// decode reads a JSON object from a request's body.
func (c *call) decode(into any) *answer {
	if !bytes.HasPrefix(bytes.TrimLeft(c.body, " \t\r\n"), []byte("{")) || json.Unmarshal(c.body, into) != nil {
		a := fail(http.StatusBadRequest, "INVALID_REQUEST", "The body is not a JSON object of the expected form")
		return &a
	}
	return nil
}
