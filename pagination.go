package brellium

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"hash/maphash"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/brellium/brellium-go/internal/jsonscan"
	"github.com/brellium/brellium-go/internal/wait"
)

// Page is one page of a list. A page may be empty although more follow.
type Page[T any] struct {
	// Data are the page's items in the server's order.
	Data []T
	// HasMore is true if another page follows.
	HasMore bool
	// NextCursor names the next page. Set it as the Cursor of the list's params to
	// resume from here later. It is empty on the last page.
	NextCursor string

	raw
	next func(ctx context.Context, into *Response) (*Page[T], error)
	into *Response // filled by Next
}

// Next fetches the page after p with the filters and options of the list. Retried
// after transient failures, as the list is. It may be called concurrently.
//
// On the last page it returns [ErrNoMorePages]. If the next page cannot be
// fetched, the error is a [PaginationError] that wraps the cause; its Cursor is
// p.NextCursor, and Next may be called again.
//
// Two errors come together with the page, so that its items are not lost: a
// [PaginationError] if the page says that it failed, or if its link to the page after
// it is broken (it repeats an earlier cursor or the items of an earlier page, HasMore
// is true without a cursor, or the page does not say whether another one follows),
// and a [DecodeError] for an item that is not an object or has no id. That item is
// left out of Data; RawJSON has it, and Next of the page works.
func (p *Page[T]) Next(ctx context.Context) (*Page[T], error) {
	if p.next == nil {
		return nil, ErrNoMorePages
	}
	return p.next(ctx, p.into)
}

// defaultLimit is the page size of the API where a list asks for none. (assumed)
const defaultLimit = 100

// lister fetches the pages of one list.
type lister[T any] struct {
	client  *Client
	request request // with filters and limit, without the cursor
	cfg     callConfig
	limit   int
	seen    cursors
}

// newLister returns a lister and the cursor of the first page.
func newLister[T any](c *Client, op *operation, query func() (url.Values, error), opts []CallOption, all bool) (*lister[T], string, error) {
	q, err := query()
	if err != nil {
		return nil, "", err
	}
	cfg := callConfig{policy: c.policy}
	if err := cfg.apply(opts, all); err != nil {
		return nil, "", err
	}
	l, cursor := listerOf[T](c, request{op: op, query: q.Encode()}, cfg)
	return l, cursor, nil
}

// listerOf is newLister for a request whose query is complete.
func listerOf[T any](c *Client, r request, cfg callConfig) (*lister[T], string) {
	q, _ := url.ParseQuery(r.query)
	l := &lister[T]{client: c, request: r, cfg: cfg, limit: defaultLimit}
	if given, replaced := cfg.query["limit"]; replaced {
		q.Set("limit", given)
	}
	if n, err := strconv.Atoi(q.Get("limit")); err == nil && n > 0 {
		l.limit = n
	}
	l.request.query = withoutParameter(r.query, "cursor")
	cursor := q.Get("cursor")
	l.seen.init(cursor)
	return l, cursor
}

// list fetches the first page of the list that query selects.
func list[T any](ctx context.Context, c *Client, op *operation, query func() (url.Values, error), opts []CallOption) (*Page[T], error) {
	l, cursor, err := newLister[T](c, op, query, opts, false)
	if err != nil {
		return nil, err
	}
	return l.page(ctx, place{}, cursor, l.cfg.response)
}

// do is [Client.Do] for a list.
func (p *Page[T]) do(ctx context.Context, c *Client, r request, cfg callConfig, into any) error {
	if into != any(p) {
		return &ValidationError{Field: "into", Reason: "must be a Page and not a type that embeds one"}
	}
	l, cursor := listerOf[T](c, r, cfg)
	first, err := l.page(ctx, place{}, cursor, cfg.response)
	if first != nil {
		*p = *first
	}
	return err
}

// page fetches the page at cursor. Its number counts from 0. A page with unusable
// items, or with a broken link to the next page, is returned with an error.
func (l *lister[T]) page(ctx context.Context, at place, cursor string, into *Response) (*Page[T], error) {
	r, op := l.request, l.request.op
	if cursor != "" {
		r.query = withParameter(r.query, "cursor", cursor)
		if at.number == 0 {
			at.seen = -1
		}
	}
	cfg := l.cfg
	cfg.response = into
	p := new(Page[T])
	var broken string
	_, err := l.client.do(ctx, r, cfg, func(r okResponse) (err error) {
		broken, err = decodePage(r, p, l.limit, &at)
		return err
	})
	if p.source == nil { // not a page
		if at.number > 0 {
			err = &PaginationError{Operation: op.name, Reason: "a page could not be fetched", Cursor: cursor, Err: err}
		}
		return nil, err
	}
	if !p.HasMore && broken == "" {
		p.NextCursor = ""
		return p, err
	}
	switch next := p.NextCursor; {
	case broken != "":
	case next == "":
		broken = "HasMore is true without a cursor for the next page"
	case !l.seen.add(next, at.number):
		broken = "a repeated cursor: the list is a cycle"
	case !addItems(&l.seen, p.Data, at.number):
		broken = "a page with the items of an earlier one: the list is a cycle"
	case at.empty == maxEmptyPages:
		broken = "100 empty pages in a row"
	case op.method != http.MethodGet:
		broken = "only the pages of a GET can be fetched one after another"
	default:
		p.next = func(ctx context.Context, into *Response) (*Page[T], error) {
			return l.page(ctx, at, next, into)
		}
		p.into = l.cfg.response
		return p, err
	}
	p.HasMore = true // as far as is known
	bad := &PaginationError{Operation: op.name, Reason: broken, Cursor: cursor, Err: err}
	p.next = func(context.Context, *Response) (*Page[T], error) { return nil, bad }
	return p, bad
}

// maxEmptyPages is how many empty pages in a row a list may have. A list that never
// ends would otherwise spend the rate limit for nothing.
const maxEmptyPages = 100

// place is where a page is in its list: how many pages and items come before it, and
// how many pages just before it are empty. seen is negative if it is not known.
type place struct{ number, seen, empty int }

// cursors records the cursors of one list by their hashes, so that a list whose
// cursors form a cycle ends at the first repeated one.
type cursors struct {
	mu   sync.Mutex
	seed maphash.Seed
	page map[uint64]int // the number of the page that a cursor leads to, or items precede
}

func (c *cursors) init(first string) {
	c.seed, c.page = maphash.MakeSeed(), map[uint64]int{}
	if first != "" {
		c.add(first, 0)
	}
}

// add reports whether cursor may lead to page number. It may not if it already
// leads to another page. (A page may be fetched twice.)
func (c *cursors) add(cursor string, number int) bool {
	return c.addHash(maphash.String(c.seed, cursor), number)
}

// addItems is add for the resources of a page, since a server that ignores the cursor
// may return a new one each time. Less than two may have moved from an earlier page.
func addItems[T any](c *cursors, items []T, number int) bool {
	var h maphash.Hash
	h.SetSeed(c.seed)
	for i := range items {
		v, ok := jsonscan.Innermost(&items[i]).(record)
		if !ok || len(items) < 2 {
			return true
		}
		_, _ = h.Write(v.RawJSON())
	}
	return len(items) == 0 || c.addHash(h.Sum64(), number)
}

func (c *cursors) addHash(h uint64, number int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if earlier, again := c.page[h]; again {
		return earlier == number
	}
	c.page[h] = number
	return true
}

// all iterates over the items of all pages.
func all[T any](ctx context.Context, c *Client, op *operation, query func() (url.Values, error), opts []CallOption) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		l, cursor, err := newLister[T](c, op, query, opts, true)
		if err != nil {
			yield(nil, err)
			return
		}
		var ahead *prefetched[T]
		defer func() { // also if the loop's body breaks out or panics
			if ahead != nil {
				ahead.stop()
			}
		}()
		p, err := l.page(ctx, place{}, cursor, l.cfg.response)
		for {
			if err == nil && l.cfg.prefetch && p.HasMore {
				ahead = prefetch(ctx, p)
			}
			if p != nil {
				for i := range p.Data {
					if !yield(detached(&p.Data[i]), nil) {
						return
					}
				}
			}
			switch {
			case err != nil:
				yield(nil, err)
				return
			case !p.HasMore:
				return
			case ahead == nil:
				p, err = p.Next(ctx)
			default:
				p, err = ahead.take(l.cfg.response)
				ahead = nil
			}
		}
	}
}

// Collect reads all items of an All method into a slice. At the first error, which
// is one of those of [AuditService.All], it returns the items before it and the
// error. All items stay in memory; range over a long list instead.
func Collect[T any](all iter.Seq2[*T, error]) ([]*T, error) {
	var items []*T
	for item, err := range all {
		if err != nil {
			return items, err
		}
		items = append(items, item)
	}
	return items, nil
}

// detached copies an item out of its page, so that keeping the item does not keep
// the whole page in memory.
func detached[T any](item *T) *T {
	own := &struct {
		item   T
		source rawSource
	}{item: *item}
	if v, ok := any(&own.item).(record); ok {
		data := json.RawMessage(bytes.Clone(v.RawJSON()))
		own.source.item = func(int) json.RawMessage { return data }
		v.setRaw(&own.source, 0)
	}
	return &own.item
}

// prefetched is a page that is fetched while the page before it is processed. Its
// goroutine has ended when take or stop returns.
type prefetched[T any] struct {
	cancel   context.CancelFunc
	done     chan struct{}
	page     *Page[T]
	err      error
	response Response
	ended    wait.Ended
}

func prefetch[T any](ctx context.Context, p *Page[T]) *prefetched[T] {
	a := &prefetched[T]{done: make(chan struct{})}
	ctx, a.cancel = context.WithCancel(ctx)
	go func() {
		defer close(a.done)
		var into *Response
		if p.into != nil { // not the caller's Response, which it may be reading
			into = &a.response
		}
		a.ended.Run(func() { a.page, a.err = p.next(ctx, into) })
	}()
	return a
}

// take waits for the page.
func (a *prefetched[T]) take(into *Response) (*Page[T], error) {
	<-a.done
	a.stop()
	if into != nil {
		*into = a.response
	}
	a.ended.Raise()
	return a.page, a.err
}

// stop cancels the fetch and waits for it to end.
func (a *prefetched[T]) stop() {
	a.cancel()
	<-a.done
}

// decodePage decodes a list response, each item with its own RawJSON. Items that
// cannot be used are left out, and err is about the first of them. broken is why
// the page does not say whether another one follows. at moves to the page after it.
func decodePage[T any](r okResponse, p *Page[T], limit int, at *place) (broken string, err error) {
	var body struct {
		Data       []T     `json:"data"`
		HasMore    *bool   `json:"has_more"`
		NextCursor *string `json:"next_cursor"`
	}
	odd, err := r.decode(&body)
	if err != nil && !odd {
		return "", err
	}
	items, source, unusable, err := decodeItems(r, "data", body.Data, odd)
	if err != nil {
		return "", err
	}
	if odd {
		var link struct {
			HasMore    *bool   `json:"has_more"`
			NextCursor *string `json:"next_cursor"`
		}
		d := new(jsonscan.Tolerant)
		if err := r.decodeTolerantly(r.json(), &link, d); err != nil {
			return "", err
		}
		body.HasMore, body.NextCursor, broken = link.HasMore, link.NextCursor, d.Lost
	}
	total := len(items)
	if unusable != nil {
		var all struct {
			Data []json.RawMessage `json:"data"`
		}
		if json.Unmarshal(r.json(), &all) == nil {
			total = len(all.Data)
		}
	}
	broken = cmp.Or(broken, r.failure())
	if body.HasMore == nil && body.NextCursor == nil && broken == "" {
		broken = linkMissing(r, total, *at, limit)
	}
	if at.number++; at.seen >= 0 {
		at.seen += total
	}
	if at.empty++; total > 0 {
		at.empty = 0
	}
	p.Data = items
	p.setRaw(source, wholePage)
	if body.NextCursor != nil {
		p.NextCursor = *body.NextCursor
	}
	if p.HasMore = p.NextCursor != ""; body.HasMore != nil {
		p.HasMore = *body.HasMore
	}
	return broken, unusable
}

// linkMissing is for a page without has_more, whose next_cursor is null or absent.
// It returns what suggests that another page follows all the same, "" for nothing.
func linkMissing(r okResponse, items int, at place, limit int) string {
	p := jsonscan.Paging{Items: items, Seen: at.seen + items, Pages: at.number + 1}
	if at.seen < 0 {
		p.Seen, p.Pages = -1, -1
	}
	p.Read(r.json())
	_, named := jsonscan.Member(r.json(), "next_cursor")
	link := strings.ToLower(strings.Join(r.header.Values("Link"), ","))
	switch other := p.Next; {
	case other == "" && (strings.Contains(link, `rel="next"`) || strings.Contains(link, "rel=next")):
		return "the page has a Link header instead of has_more or next_cursor"
	case other == "" && (named || p.Ended != ""):
		return ""
	case other == "" && p.Count != "":
		other = p.Count
		fallthrough
	case other != "":
		return "the page has " + other + " instead of has_more or next_cursor"
	case p.Whole != "":
		return ""
	case p.Scheme != "":
		return "the page has " + p.Scheme + " instead of has_more or next_cursor"
	case items >= limit || p.Full != "":
		return "a full page has neither has_more nor next_cursor"
	}
	return ""
}
