package brellium

import (
	"context"
	"hash/maphash"
	"iter"
	"net/http"
	"slices"
	"time"
)

const (
	defaultFollowInterval = 30 * time.Second
	defaultFollowLag      = 30 * time.Second
	// followOverlap is how far a window reaches back into the previous one. It is
	// not known whether the API's filters are inclusive or truncated to seconds.
	followOverlap = time.Second
	// maxFollowed bounds the number of audits remembered per window.
	maxFollowed = 100_000
	// maxClockError is the largest accepted difference between the API's clock
	// and ours.
	maxClockError = 24 * time.Hour
)

// FollowOptions are the options of [AuditService.Follow]. The zero value uses the
// defaults.
type FollowOptions struct {
	// Filter selects audits. Its UpdatedAfter, UpdatedBefore and Cursor must be
	// empty. An audit whose update makes it fail the filter is not reported.
	Filter AuditListParams
	// Interval is the pause between two windows; 0 means 30 s.
	Interval time.Duration
	// Lag is the longest time that an update may take to appear in a list; 0
	// means 30 s. More recent updates are left for the next window. Time is
	// measured by the API's clock, from the Date header.
	Lag time.Duration
	// CatchUp ends Follow once it reaches the present, minus the lag.
	CatchUp bool
}

// FollowCheckpoint is the position of an [AuditService.Follow]. Save it as JSON and
// pass it to the next Follow with the same filter. To start, set From, or use the
// zero FollowCheckpoint to read all audits.
type FollowCheckpoint struct {
	// From is the time before which all updates have been returned.
	From time.Time `json:"from,omitzero"`
	// Until is the end of the current window and Cursor its next page. Both are
	// empty between windows.
	Until  time.Time `json:"until,omitzero"`
	Cursor string    `json:"cursor,omitempty"`
}

// FollowBatch is one page of updated audits.
type FollowBatch struct {
	// Audits were updated since the checkpoint. It may be empty.
	Audits []Audit
	// Checkpoint is the position after these audits. Save it once you have
	// processed them.
	Checkpoint FollowCheckpoint
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
// filter by the time of the last update, to the second or finer; a list shows an
// update within the lag; and reading a list page by page skips no audit that is
// not updated meanwhile. The order of the list does not matter. Deleted audits are
// not reported.
//
// Each page is one request, retried after transient failures. Iteration ends with
// the first error: one of those of any call (see the package overview), or a
// [PaginationError]. [WithResponseInto] is a [ValidationError], since Follow makes
// many requests.
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
	resumed  bool          // at.Cursor comes from the caller's checkpoint
	ahead    time.Duration // the API's clock minus ours
	response Response

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
	options.Interval = orDefault(options.Interval, defaultFollowInterval)
	options.Lag = orDefault(options.Lag, defaultFollowLag)
	var cfg callConfig
	if err := cfg.apply(opts, false); err != nil {
		return nil, err
	}
	if cfg.response != nil {
		return nil, &ValidationError{Field: "WithResponseInto", Reason: "is for one request; Follow makes many"}
	}
	f := &follower{service: s, options: options, at: from, resumed: from.Cursor != "", seed: maphash.MakeSeed()}
	f.opts = append(slices.Clip(opts), WithResponseInto(&f.response))
	return f, nil
}

// window reads one window, or the rest of one, or waits for the next. It reports
// whether to continue.
func (f *follower) window(ctx context.Context, yield func(*FollowBatch, error) bool) (on bool, err error) {
	old := !f.at.Until.IsZero()
	if !old {
		f.at.Until = time.Now().Add(f.ahead - f.options.Lag).UTC().Truncate(time.Second)
	}
	if !f.at.Until.After(f.at.From) {
		f.at.Until = time.Time{}
		return f.wait(ctx)
	}
	filter := f.options.Filter
	filter.UpdatedBefore, filter.Cursor = f.at.Until, f.at.Cursor
	if !f.at.From.IsZero() {
		filter.UpdatedAfter = f.at.From.Add(-followOverlap).Truncate(time.Second)
	}
	page, err := f.service.List(ctx, filter, f.opts...)
	if f.resumed && cursorRefused(err) {
		f.resumed, f.at.Cursor = false, "" // read the window again from its start
		return true, nil
	}
	if !old && err == nil && f.tooEarly() {
		f.at.Until = time.Time{} // again, by the API's clock
		return true, nil
	}
	f.current = make(map[uint64]struct{})
	for {
		if page != nil {
			next := f.at
			if next.Cursor = page.NextCursor; !page.HasMore {
				next = FollowCheckpoint{From: f.at.Until}
			}
			if err == nil {
				f.at = next
			}
			if !yield(&FollowBatch{Audits: f.fresh(page.Data), Checkpoint: f.at}, nil) {
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
	if old {
		return true, nil // the window up to the present is next
	}
	return f.wait(ctx)
}

// wait waits for the next window. It reports false if there is none.
func (f *follower) wait(ctx context.Context) (on bool, err error) {
	if f.options.CatchUp {
		return false, nil
	}
	return true, pause(ctx, f.options.Interval, "audits.follow", 0, nil)
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

// tooEarly reports whether the window ends within the lag by the API's clock. It
// also updates f.ahead.
func (f *follower) tooEarly() bool {
	date, err := http.ParseTime(f.response.Header.Get("Date"))
	if err != nil {
		return false
	}
	if ahead := time.Until(date); ahead.Abs() < maxClockError {
		f.ahead = ahead
		return f.at.Until.After(date.Add(time.Second - f.options.Lag))
	}
	return false
}

// cursorRefused reports whether the API no longer accepts a cursor.
func cursorRefused(err error) bool {
	e, ok := err.(*APIError)
	return ok && slices.Contains([]int{http.StatusBadRequest, http.StatusNotFound, http.StatusGone, http.StatusUnprocessableEntity}, e.StatusCode)
}
