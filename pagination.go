package brellium

import (
	"context"
	"encoding/json"
	"hash/maphash"
	"iter"
	"net/url"
)

// Page is one page of a list. A page may be empty though more follow.
type Page[T any] struct {
	// Data are the page's items in the server's order.
	Data []T
	// HasMore is true where another page follows.
	HasMore bool
	// NextCursor names the next page; give it as the list's Cursor to go on
	// from here later. It is empty on the last page.
	NextCursor string

	raw
	fetch func(ctx context.Context, cursor string) (*Page[T], error)
	op    *operation
	seen  *cursors
}

// Next fetches the page after p with the filters and options of the list. On
// the last page it returns ErrNoMorePages. A page that names a cursor of an
// earlier one, or that promises another page without naming it, is a
// *PaginationError.
func (p *Page[T]) Next(ctx context.Context) (*Page[T], error) {
	if p.fetch == nil || !p.HasMore {
		return nil, ErrNoMorePages
	}
	return p.fetch(ctx, p.NextCursor)
}

// cursors remembers the cursors of one list by their hashes, so that a list
// that circles ends at the first repeat however long it is.
type cursors struct {
	seed maphash.Seed
	seen map[uint64]struct{}
}

// add reports whether cursor is new.
func (c *cursors) add(cursor string) bool {
	h := maphash.String(c.seed, cursor)
	if _, again := c.seen[h]; again {
		return false
	}
	c.seen[h] = struct{}{}
	return true
}

// list fetches the first page of op that query describes.
func list[T any, P resource[T]](ctx context.Context, c *Client, op *operation, query func() (url.Values, error), opts []CallOption) (*Page[T], error) {
	q, err := query()
	if err != nil {
		return nil, err
	}
	seen := &cursors{seed: maphash.MakeSeed(), seen: map[uint64]struct{}{}}
	if cursor := q.Get("cursor"); cursor != "" {
		seen.add(cursor)
	}
	return page[T, P](ctx, c, op, q, seen, opts)
}

// page fetches one page. q is its own from here on.
func page[T any, P resource[T]](ctx context.Context, c *Client, op *operation, q url.Values, seen *cursors, opts []CallOption) (*Page[T], error) {
	cursor := q.Get("cursor")
	call, err := c.do(ctx, request{op: op, query: q.Encode()}, opts)
	if err != nil {
		return nil, pageError(op, cursor, err)
	}
	p, err := decodePage[T, P](call)
	if err != nil {
		return nil, pageError(op, cursor, err)
	}
	p.op, p.seen = op, seen
	if !p.HasMore {
		return p, nil
	}
	switch {
	case p.NextCursor == "":
		return nil, &PaginationError{Operation: op.name, Reason: "a page promises another without a cursor for it", Cursor: cursor}
	case !seen.add(p.NextCursor):
		return nil, &PaginationError{Operation: op.name, Reason: "a repeated cursor: the list goes round in a circle", Cursor: cursor}
	}
	p.fetch = func(ctx context.Context, cursor string) (*Page[T], error) {
		next := url.Values{}
		for k, v := range q {
			next[k] = v
		}
		next.Set("cursor", cursor)
		return page[T, P](ctx, c, op, next, seen, opts)
	}
	return p, nil
}

// pageError adds to the failure of a page the cursor to go on from.
func pageError(op *operation, cursor string, err error) error {
	if cursor == "" {
		return err
	}
	return &PaginationError{Operation: op.name, Reason: "a page could not be fetched", Cursor: cursor, Err: err}
}

// all iterates over the items of all pages.
func all[T any, P resource[T]](ctx context.Context, c *Client, op *operation, query func() (url.Values, error), opts []CallOption) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		p, err := list[T, P](ctx, c, op, query, opts)
		for {
			if err != nil {
				yield(nil, err)
				return
			}
			for i := range p.Data {
				if !yield(&p.Data[i], nil) {
					return
				}
			}
			if !p.HasMore {
				return
			}
			p, err = p.Next(ctx)
		}
	}
}

// decodePage decodes a list answer, each item with its own RawJSON.
func decodePage[T any, P resource[T]](c *call) (*Page[T], error) {
	var body struct {
		Data       []T     `json:"data"`
		HasMore    *bool   `json:"has_more"`
		NextCursor *string `json:"next_cursor"`
	}
	if err := c.decode(&body); err != nil {
		return nil, err
	}
	p := &Page[T]{Data: body.Data}
	answer := c.answer()
	p.setRaw(&answer)
	if body.NextCursor != nil {
		p.NextCursor = *body.NextCursor
	}
	if p.HasMore = p.NextCursor != ""; body.HasMore != nil {
		p.HasMore = *body.HasMore
	}
	var items struct {
		Data []json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(answer, &items); err != nil || len(items.Data) != len(p.Data) {
		return nil, c.decodeError("its items cannot be told apart")
	}
	for i := range p.Data {
		P(&p.Data[i]).setRaw(&items.Data[i])
	}
	return p, nil
}
