package brellium

import (
	"context"
	"hash/maphash"
	"iter"
	"net/http"
	"slices"
	"time"

	"github.com/brellium/brellium-go/internal/wire"
)

const (
	defaultFollowInterval = 30 * time.Second
	defaultFollowLag      = 30 * time.Second
	// followOverlap is how far a window reaches back into the one before,
	// since it is not known whether a filter's end is part of it, nor whether
	// it is cut to whole seconds.
	followOverlap = time.Second
	// maxFollowed bounds what is remembered of a window.
	maxFollowed = 100_000
	// maxClockError is the largest difference between two clocks that is
	// believed.
	maxClockError = 24 * time.Hour
)

// FollowOptions are the options of Follow. The zero value is fine.
type FollowOptions struct {
	// Filter chooses among the audits. Its UpdatedAfter, UpdatedBefore and
	// Cursor must be left empty. An audit that is changed such that it no
	// longer passes the filter is not told.
	Filter AuditListParams
	// Interval is the time between the end of a window and the next one; 0
	// means 30 s.
	Interval time.Duration
	// Lag is how long an update may take to appear in a list; 0 means 30 s.
	// What is newer is left for the next window. The API's own clock is what
	// counts, as the Date header tells it.
	Lag time.Duration
	// CatchUp ends Follow once it has come to the present, but for the lag.
	CatchUp bool
}

// FollowCheckpoint says how far Follow has come. It is meant to be saved as
// JSON and given to the next Follow with the same filter. To begin with, give
// the time to follow from, or the zero FollowCheckpoint for all there are.
type FollowCheckpoint struct {
	// From is such that all updates before it have been handed over.
	From time.Time `json:"from,omitzero"`
	// Until is the end of the window that is being read, and Cursor the page
	// to go on with. Both are empty between windows.
	Until  time.Time `json:"until,omitzero"`
	Cursor string    `json:"cursor,omitempty"`
}

// FollowBatch is what Follow hands over at a time: a page of audits.
type FollowBatch struct {
	// Audits were updated since the checkpoint. There may be none.
	Audits []Audit
	// Checkpoint is to be saved once the audits have been dealt with.
	Checkpoint FollowCheckpoint
}

// Follow iterates over the audits that have been updated since a checkpoint,
// and goes on as more are, until ctx ends, the caller breaks, or a call fails
// for good. Save the checkpoint of each batch once you have dealt with its
// audits; after a crash, or an error, go on from the last one that was saved:
//
//   - At least once: a batch whose checkpoint was not saved comes again, and
//     now and then an audit comes twice although nothing has changed.
//   - In order: updates are read in windows of time, one after the other. An
//     audit that comes again is never in an older state than before. Within a
//     window the order is the list's.
//   - Without a gap: a window ends a while before the present (see Lag),
//     reaches one second back into the one before, and is read to its last
//     page before the next one begins. An audit that is updated while its
//     window is read may drop out of it, and is then in a later one.
//
// This builds on what is assumed of the API: that updated_after and
// updated_before filter by the time of the last update, to the second or
// finer; that an update is listed within the lag; and that reading a list page
// by page skips no audit that is not updated meanwhile. The order of a list is
// of no concern. A deleted audit is not told.
//
// WithResponseInto is refused, since a Follow is many requests.
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
	service *AuditService
	options FollowOptions
	opts    []CallOption
	at      FollowCheckpoint
	resumed bool          // at.Cursor comes from an earlier process
	ahead   time.Duration // the API's clock before ours
	answer  Response

	// What this window and the one before have handed over, by its hash, so
	// that what stands in both comes once.
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
	if err := cfg.apply(opts, false, false); err != nil {
		return nil, err
	}
	if cfg.response != nil {
		return nil, &ValidationError{Field: "WithResponseInto", Reason: "is for one request; Follow makes many"}
	}
	f := &follower{service: s, options: options, at: from, resumed: from.Cursor != "", seed: maphash.MakeSeed()}
	f.opts = append(slices.Clip(opts), WithResponseInto(&f.answer))
	return f, nil
}

// window reads one window, or what is left of one, or waits for the next. It
// reports whether to go on.
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
		f.resumed, f.at.Cursor = false, "" // the window once more, from its beginning
		return true, nil
	}
	if !old && err == nil && f.tooEarly() {
		f.at.Until = time.Time{} // once more, by the API's clock
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
		return true, nil // the present is still to come
	}
	return f.wait(ctx)
}

// wait waits for the next window, unless there is none to come.
func (f *follower) wait(ctx context.Context) (on bool, err error) {
	if f.options.CatchUp {
		return false, nil
	}
	return true, pause(ctx, f.options.Interval, "audits.follow", 0, nil)
}

// fresh leaves out what the window before has handed over.
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

// tooEarly reports whether the window reaches past the lag by the API's own
// clock, and sets the follower's by it.
func (f *follower) tooEarly() bool {
	date, err := http.ParseTime(wire.HeaderValue(f.answer.Header, "Date"))
	if err != nil {
		return false
	}
	if ahead := time.Until(date); ahead.Abs() < maxClockError {
		f.ahead = ahead
		return f.at.Until.After(date.Add(time.Second - f.options.Lag))
	}
	return false
}

// cursorRefused reports whether the API does not know a cursor any more.
func cursorRefused(err error) bool {
	e, ok := err.(*APIError)
	return ok && slices.Contains([]int{http.StatusBadRequest, http.StatusNotFound, http.StatusGone, http.StatusUnprocessableEntity}, e.StatusCode)
}
