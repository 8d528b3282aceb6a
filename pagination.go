package brellium

import (
	"bytes"
	"context"
	"encoding/json"
	"hash/maphash"
	"iter"
	"net/url"
	"sync"

	"github.com/brellium/brellium-go/internal/jsonscan"
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
// p.NextCursor, and Next may be called again. If a page's link to the page after
// it is broken (it repeats an earlier cursor, or HasMore is true without a
// cursor), that page is returned together with a [PaginationError], so that its
// items are not lost.
func (p *Page[T]) Next(ctx context.Context) (*Page[T], error) {
	if p.next == nil {
		return nil, ErrNoMorePages
	}
	return p.next(ctx, p.into)
}

// lister fetches the pages of one list.
type lister[T any, P resource[T]] struct {
	client *Client
	op     *operation
	query  string // filters and limit, without the cursor
	cfg    callConfig
	seen   cursors
}

// newLister returns a lister and the cursor of the first page.
func newLister[T any, P resource[T]](c *Client, op *operation, query func() (url.Values, error), opts []CallOption, all bool) (*lister[T, P], string, error) {
	q, err := query()
	if err != nil {
		return nil, "", err
	}
	cfg := callConfig{policy: c.policy}
	if err := cfg.apply(opts, all); err != nil {
		return nil, "", err
	}
	cursor := q.Get("cursor")
	q.Del("cursor")
	l := &lister[T, P]{client: c, op: op, query: q.Encode(), cfg: cfg}
	l.seen.init(cursor)
	return l, cursor, nil
}

// list fetches the first page of the list that query selects.
func list[T any, P resource[T]](ctx context.Context, c *Client, op *operation, query func() (url.Values, error), opts []CallOption) (*Page[T], error) {
	l, cursor, err := newLister[T, P](c, op, query, opts, false)
	if err != nil {
		return nil, err
	}
	return l.page(ctx, 0, cursor, l.cfg.response)
}

// page fetches the page at cursor. Its number counts from 0.
func (l *lister[T, P]) page(ctx context.Context, number int, cursor string, into *Response) (*Page[T], error) {
	r := request{op: l.op, query: l.query}
	if cursor != "" {
		if r.query != "" {
			r.query += "&"
		}
		r.query += "cursor=" + url.QueryEscape(cursor)
	}
	cfg := l.cfg
	cfg.response = into
	p := new(Page[T])
	_, err := l.client.do(ctx, r, cfg, func(r okResponse) error { return decodePage[T, P](r, p) })
	if err != nil {
		if number > 0 {
			err = &PaginationError{Operation: l.op.name, Reason: "a page could not be fetched", Cursor: cursor, Err: err}
		}
		return nil, err
	}
	if !p.HasMore {
		p.NextCursor = ""
		return p, nil
	}
	bad := &PaginationError{Operation: l.op.name, Cursor: cursor}
	switch next := p.NextCursor; {
	case next == "":
		bad.Reason = "HasMore is true without a cursor for the next page"
	case !l.seen.add(next, number+1):
		bad.Reason = "a repeated cursor: the list is a cycle"
	default:
		p.next = func(ctx context.Context, into *Response) (*Page[T], error) {
			return l.page(ctx, number+1, next, into)
		}
		p.into = l.cfg.response
		return p, nil
	}
	p.next = func(context.Context, *Response) (*Page[T], error) { return nil, bad }
	return p, bad
}

// cursors records the cursors of one list by their hashes, so that a list whose
// cursors form a cycle ends at the first repeated one.
type cursors struct {
	mu   sync.Mutex
	seed maphash.Seed
	page map[uint64]int // the page number that a cursor leads to
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
	h := maphash.String(c.seed, cursor)
	c.mu.Lock()
	defer c.mu.Unlock()
	if earlier, again := c.page[h]; again {
		return earlier == number
	}
	c.page[h] = number
	return true
}

// all iterates over the items of all pages.
func all[T any, P resource[T]](ctx context.Context, c *Client, op *operation, query func() (url.Values, error), opts []CallOption) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		l, cursor, err := newLister[T, P](c, op, query, opts, true)
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
		p, err := l.page(ctx, 0, cursor, l.cfg.response)
		for {
			if err == nil && l.cfg.prefetch && p.HasMore {
				ahead = prefetch(ctx, p)
			}
			if p != nil {
				for i := range p.Data {
					if !yield(detached[T, P](&p.Data[i]), nil) {
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
func detached[T any, P resource[T]](item *T) *T {
	own := &struct {
		item T
		raw  json.RawMessage
	}{*item, bytes.Clone(P(item).RawJSON())}
	P(&own.item).setRaw(&own.raw)
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
	panicked any // re-raised by take in the caller's goroutine
}

func prefetch[T any](ctx context.Context, p *Page[T]) *prefetched[T] {
	a := &prefetched[T]{done: make(chan struct{})}
	ctx, a.cancel = context.WithCancel(ctx)
	go func() {
		defer close(a.done)
		defer func() { a.panicked = recover() }()
		var into *Response
		if p.into != nil { // not the caller's Response, which it may be reading
			into = &a.response
		}
		a.page, a.err = p.next(ctx, into)
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
	if a.panicked != nil {
		panic(a.panicked)
	}
	return a.page, a.err
}

// stop cancels the fetch and waits for it to end.
func (a *prefetched[T]) stop() {
	a.cancel()
	<-a.done
}

// decodePage decodes a list response, each item with its own RawJSON.
func decodePage[T any, P resource[T]](r okResponse, p *Page[T]) error {
	var body struct {
		Data       []T     `json:"data"`
		HasMore    *bool   `json:"has_more"`
		NextCursor *string `json:"next_cursor"`
	}
	if err := r.decode(&body); err != nil {
		return err
	}
	p.Data = body.Data
	whole := r.json()
	p.setRaw(&whole)
	if body.NextCursor != nil {
		p.NextCursor = *body.NextCursor
	}
	if p.HasMore = p.NextCursor != ""; body.HasMore != nil {
		p.HasMore = *body.HasMore
	}
	items, err := jsonscan.Items(whole, len(p.Data))
	if err != nil {
		return r.decodeError("the items of data cannot be separated")
	}
	setRaws[T, P](p.Data, items)
	return nil
}
