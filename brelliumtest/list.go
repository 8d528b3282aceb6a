package brelliumtest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// The default and the maximum page size.
const (
	defaultLimit = 20
	maxLimit     = 100
)

// cursorMark starts every cursor, so that each contains characters ("+/+/")
// that must be escaped in a query.
const cursorMark = "\xfb\xff\xbf"

// listQuery is the query of a list request.
type listQuery struct {
	url.Values
	kind  string
	limit int
	from  uint64 // the first item's position, from the cursor
}

// parseList parses the query of a list request. The cursors of one kind of
// list are not valid for another.
func parseList(c *call, kind string) (listQuery, error) {
	q := listQuery{kind: kind, limit: defaultLimit}
	values, err := url.ParseQuery(c.query)
	if err != nil {
		return q, errors.New("the query string is malformed")
	}
	q.Values = values
	if values.Has("limit") {
		q.limit, err = strconv.Atoi(values.Get("limit"))
		if err != nil || q.limit < 1 || q.limit > maxLimit {
			return q, errors.New("limit must be a number from 1 to 100")
		}
	}
	if values.Has("cursor") {
		raw, err := base64.StdEncoding.DecodeString(values.Get("cursor"))
		position, ok := strings.CutPrefix(string(raw), cursorMark+kind+":")
		from, parseErr := strconv.ParseUint(position, 10, 64)
		if err != nil || !ok || parseErr != nil {
			return q, errors.New("cursor is not a cursor of this list")
		}
		q.from = from
	}
	return q, nil
}

// list builds a page of a list.
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

// item starts the item at a position, which the caller then appends to l.body.
// It reports false if the page is full: the next page starts there.
func (l *list) item(position uint64) bool {
	if l.n == l.query.limit {
		l.more, l.next = true, position
		return false
	}
	if l.n > 0 {
		l.body = append(l.body, ',')
	}
	l.n++
	return true
}

func (l *list) response() response {
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
	return jsonResponse(http.StatusOK, l.body)
}

// decode decodes the request's body, a JSON object.
func (c *call) decode(into any) error {
	if !bytes.HasPrefix(bytes.TrimLeft(c.body, " \t\r\n"), []byte("{")) || json.Unmarshal(c.body, into) != nil {
		return errors.New("the body is not a JSON object of the expected form")
	}
	return nil
}
