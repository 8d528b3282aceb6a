package brellium

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash/maphash"
	"iter"
	"net/http"
	"slices"
	"time"
)

const (
	defaultFollowInterval = 30 * time.Second
	defaultFollowLag      = 30 * time.Second
	// minFollowInterval bounds how often Follow starts a window.
	minFollowInterval = time.Second
	// followOverlap is how far a window reaches back into the previous one. It is
	// not known whether the API's filters are inclusive or truncated to seconds.
	followOverlap = time.Second
	// maxFollowed bounds the number of audits remembered per window.
	maxFollowed = 100_000
)

// FollowOptions are the options of [AuditService.Follow]. The zero value uses the
// defaults. Printing or logging them shows the filter, which may contain ids.
type FollowOptions struct {
	// Filter selects audits. Its UpdatedAfter, UpdatedBefore and Cursor must be
	// empty. An audit that no longer matches the filter after an update is not
	// reported.
	Filter AuditListParams
	// Interval is the pause between two windows, at least 1 s; 0 means 30 s.
	Interval time.Duration
	// Lag is the longest time that an update may take to appear in a list; 0
	// means 30 s. More recent updates are left for the next window.
	Lag time.Duration
	// CatchUp ends Follow once it reaches the present, minus the lag.
	CatchUp bool
}

// FollowCheckpoint is the position of an [AuditService.Follow]. Save it as JSON and
// pass it to the next Follow with the same filter. To start, set From, or use the
// zero FollowCheckpoint to read all audits.
type FollowCheckpoint struct {
	// From is the time before which all updates have been returned, by the
	// API's clock. A time later than the API's present means the present.
	From time.Time `json:"from,omitzero"`
	// Until is the end of the current window and Cursor its next page. Both are
	// empty between windows.
	Until  time.Time `json:"until,omitzero"`
	Cursor string    `json:"cursor,omitempty"`
	// Filter is a hash of the filter that the checkpoint belongs to. Follow sets
	// it, and rejects a checkpoint of another filter. Empty fits every filter.
	Filter string `json:"filter,omitempty"`
}

// FollowBatch is one page of updated audits.
type FollowBatch struct {
	// Audits were updated since the checkpoint. It may be empty.
	Audits []Audit
	// Checkpoint is the position after these audits. Save it once you have
	// processed them.
	Checkpoint FollowCheckpoint
	// Err is a [DecodeError] if the page also has items that are no audits, such as
	// one without an id; Follow continues after them. It is nil otherwise.
	Err error
}

// Follow iterates over the audits that were updated since a checkpoint, and
// continues with later updates until ctx ends, the caller breaks, or a call fails.
// Save the checkpoint of each batch after processing its audits. After a crash or
// an error, resume from the last saved checkpoint. Follow guarantees:
//
//   - At least once: a batch whose checkpoint was not saved is returned again. An
//     unchanged audit is occasionally returned twice.
//   - In order: updates are read in consecutive time windows. An audit that is
//     returned again is never in an older state. Within a window the order is that
//     of the list.
//   - No gaps: a window ends some time before the present (see Lag), overlaps the
//     previous one by one second, and is read to its last page before the next one
//     starts. An audit that is updated while its window is read may drop out of it,
//     and then appears in a later one.
//
// This relies on assumptions about the API: updated_after and updated_before
// filter by the time of the last update, to the second or finer; a list shows
// an update within the lag; and reading a list page by page skips no audit that
// is not updated in the meantime. The order of the list does not matter.
// Deleted audits are not reported.
//
// The present is that of the API's clock, from the Date header of its responses,
// however wrong the local clock is. The local clock only measures the time since
// the last response. If the API's clock is set back while Follow runs, Follow reads
// again from there. Only if responses have no Date header is the local clock used:
// it must then not be fast.
//
// Each page is one request, retried after transient failures. A new Follow sends
// up to two more to learn the API's time. Iteration ends with the first error: one
// of those of any call (see the package overview), or a [PaginationError]. It is a
// [ValidationError] if the checkpoint belongs to another filter, and for
// [WithResponseInto], since Follow makes many requests.
func (s *AuditService) Follow(ctx context.Context, from FollowCheckpoint, options FollowOptions, opts ...CallOption) iter.Seq2[*FollowBatch, error] {
	return func(yield func(*FollowBatch, error) bool) {
		f, err := s.newFollower(ctx, from, options, opts)
		for err == nil {
			var on bool
			if on, err = f.window(ctx, yield); err == nil && !on {
				return
			}
		}
		yield(nil, err)
	}
}

// follower is one Follow.
type follower struct {
	service  *AuditService
	options  FollowOptions
	opts     []CallOption
	at       FollowCheckpoint
	resumed  bool // at.Cursor comes from the caller's checkpoint
	response Response

	date    time.Time // the API's clock at the last response; zero: unknown
	read    time.Time // the local clock at that response
	asked   bool      // a response has said, or does not say, what the API's clock is
	setBack time.Time // what to read again from, if the next response confirms that the API's clock was set back

	// Hashes of the audits of this window and the previous one, so that an audit
	// in both is returned once.
	seed           maphash.Seed
	current, prior map[uint64]struct{}
}

func (s *AuditService) newFollower(ctx context.Context, from FollowCheckpoint, options FollowOptions, opts []CallOption) (*follower, error) {
	if ctx == nil {
		return nil, &ValidationError{Field: "ctx", Reason: "must not be nil"}
	}
	filter := &options.Filter
	switch {
	case !filter.UpdatedAfter.IsZero() || !filter.UpdatedBefore.IsZero() || filter.Cursor != "":
		return nil, &ValidationError{Field: "Filter", Reason: "must not set UpdatedAfter, UpdatedBefore or Cursor: the checkpoint does"}
	case options.Interval < 0:
		return nil, &ValidationError{Field: "Interval", Reason: "must not be negative"}
	case options.Lag < 0:
		return nil, &ValidationError{Field: "Lag", Reason: "must not be negative"}
	}
	options.Interval = max(orDefault(options.Interval, defaultFollowInterval), minFollowInterval)
	options.Lag = orDefault(options.Lag, defaultFollowLag)
	var cfg callConfig
	if err := cfg.apply(opts, false); err != nil {
		return nil, err
	}
	hash, err := filter.hash(cfg.query)
	if err != nil {
		return nil, err
	}
	if from.Filter != "" && from.Filter != hash {
		return nil, &ValidationError{Field: "Filter", Reason: "is not the filter of the checkpoint; start from a new checkpoint"}
	}
	from.Filter = hash
	if cfg.response != nil {
		return nil, &ValidationError{Field: "WithResponseInto", Reason: "is for one request; Follow makes many"}
	}
	f := &follower{service: s, options: options, at: from, resumed: from.Cursor != "", read: time.Now(), seed: maphash.MakeSeed()}
	f.opts = append(slices.Clip(opts), WithResponseInto(&f.response))
	return f, nil
}

// hash identifies which audits p selects together with the parameters of WithQuery,
// whatever the page size.
func (p AuditListParams) hash(added map[string]string) (string, error) {
	if _, err := p.query(); err != nil {
		return "", err
	}
	p.Limit, p.CreatedAfter, p.CreatedBefore = 0, p.CreatedAfter.UTC(), p.CreatedBefore.UTC()
	p.Flags = slices.Compact(slices.Sorted(slices.Values(p.Flags)))
	q, err := p.query()
	for key, value := range added {
		q.Set(key, value)
	}
	sum := sha256.Sum256([]byte(q.Encode()))
	return hex.EncodeToString(sum[:6]), err
}

// window reads one window, or the rest of one, or waits for the next. It reports
// whether to continue.
func (f *follower) window(ctx context.Context, yield func(*FollowBatch, error) bool) (on bool, err error) {
	lag, blind := f.options.Lag, f.date.IsZero()
	until, old := f.at.Until, !f.at.Until.IsZero()
	if !old {
		until = f.now().Add(-lag).UTC().Truncate(time.Second)
	}
	filter := f.options.Filter
	empty := !until.After(f.at.From)
	if empty {
		if f.asked {
			return f.wait(ctx)
		}
		until, filter.Limit = f.at.From, 1 // only for the Date header
	}
	filter.UpdatedBefore, filter.Cursor = until, f.at.Cursor
	if !f.at.From.IsZero() {
		filter.UpdatedAfter = f.at.From.Add(-followOverlap).Truncate(time.Second)
	}
	sent := time.Now()
	page, err := f.service.List(ctx, filter, f.opts...)
	if f.resumed && cursorRefused(err) {
		f.resumed, f.at.Cursor = false, "" // read the window again from its start
		return true, nil
	}
	if page == nil {
		return false, err
	}
	date, setBack := f.learn()
	// What was updated before this was in the list when the request was sent.
	safe := f.response.timeAt(sent).Add(-lag).UTC().Truncate(time.Second)
	bound := safe
	if old || !blind { // until was the API's time when it was chosen
		bound = date.Add(time.Second - lag)
	}
	early := !date.IsZero() && until.After(bound)
	if empty || setBack || early && blind {
		f.at.Until, f.at.Cursor = time.Time{}, ""
		return true, nil // again, by the API's clock
	}
	end := FollowCheckpoint{From: until, Filter: f.at.Filter}
	if early { // the API's clock has changed: read to the end, but not for good
		end.From = f.at.From
		if safe.After(end.From) {
			end.From = safe
		}
	} else {
		f.at.Until = until
	}
	f.current = make(map[uint64]struct{})
	for {
		var unusable error
		if e, ok := err.(*DecodeError); ok && page != nil {
			unusable, err = e, nil
		}
		if page != nil {
			next := f.at
			switch {
			case !page.HasMore:
				next = end
			case !early:
				next.Cursor = page.NextCursor
			}
			if err == nil {
				f.at = next
			}
			if !yield(&FollowBatch{Audits: f.fresh(page.Data), Checkpoint: f.checkpoint(), Err: unusable}, nil) {
				return false, nil
			}
		}
		if err != nil {
			return false, err
		}
		if !page.HasMore {
			break
		}
		page, err = page.Next(ctx)
	}
	f.resumed, f.prior = false, f.current
	if old || blind && !f.date.IsZero() {
		return true, nil // the window up to the present is next
	}
	return f.wait(ctx)
}

// checkpoint returns the position to resume from.
func (f *follower) checkpoint() FollowCheckpoint {
	c := f.at
	if !f.setBack.IsZero() && f.setBack.Before(c.From) {
		c.From = f.setBack // a Follow that resumes could not find out
	}
	return c
}

// wait waits for the next window. It reports false if there is none.
func (f *follower) wait(ctx context.Context) (on bool, err error) {
	interval := f.options.Interval
	if f.options.CatchUp {
		if f.setBack.IsZero() {
			return false, nil
		}
		interval = minFollowInterval // until a second response confirms it, or not
	}
	return true, pause(ctx, interval, "audits.follow", 0, nil)
}

// fresh removes the audits that the previous window returned.
func (f *follower) fresh(audits []Audit) []Audit {
	return slices.DeleteFunc(audits, func(a Audit) bool {
		h := maphash.Bytes(f.seed, a.RawJSON())
		if len(f.current) < maxFollowed {
			f.current[h] = struct{}{}
		}
		_, again := f.prior[h]
		return again
	})
}

// now returns the API's time, or the local time while the API's is unknown.
func (f *follower) now() time.Time {
	if f.date.IsZero() {
		return time.Now()
	}
	return f.date.Add(time.Since(f.read))
}

// learn reads the API's clock from the last response. If the clock was set back
// by more than the lag, later updates have times that were read already: once a
// second response confirms that, learn moves the checkpoint back and reports true.
func (f *follower) learn() (date time.Time, setBack bool) {
	date, err := http.ParseTime(f.response.Header.Get("Date"))
	if err != nil {
		f.asked, f.setBack = true, time.Time{}
		return time.Time{}, false
	}
	expected := f.at.From.Add(f.options.Lag) // at least, when From was chosen
	if !f.date.IsZero() {
		expected = f.now()
	}
	if date.Add(time.Second + f.options.Lag).Before(expected) {
		if f.setBack.IsZero() {
			f.setBack = date.Add(-time.Since(f.read) - f.options.Lag - followOverlap).UTC().Truncate(time.Second)
			return date, false
		}
		if setBack = true; f.setBack.Before(f.at.From) {
			f.at.From = f.setBack
		}
	}
	f.date, f.read, f.asked, f.setBack = date, time.Now(), true, time.Time{}
	return date, setBack
}

// timeAt returns the API's time when a request was sent, or a little less, from
// the Date header of its response that has just arrived. Without one it is the
// local time.
func (r *Response) timeAt(sent time.Time) time.Time {
	date, err := http.ParseTime(r.Header.Get("Date"))
	if err != nil {
		return sent
	}
	return date.Add(-time.Since(sent))
}

// cursorRefused reports whether the API no longer accepts a cursor.
func cursorRefused(err error) bool {
	e, ok := err.(*APIError)
	return ok && slices.Contains([]int{http.StatusBadRequest, http.StatusNotFound, http.StatusGone, http.StatusUnprocessableEntity}, e.StatusCode)
}
