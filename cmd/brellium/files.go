package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// saveFile replaces a file in one step, so that a crash leaves the old or the
// new content. Others cannot read it.
func saveFile(path string, data []byte) error {
	if !replaceable(path) {
		return os.WriteFile(path, data, 0o600)
	}
	f, err := newTemporary(path)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// temporary is the name of the file that saveFile then renames. It is always the
// same, so that the next run removes what a crash has left.
func temporary(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".tmp")
}

func newTemporary(path string) (*os.File, error) {
	_ = os.Remove(temporary(path))
	f, err := os.OpenFile(temporary(path), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if failed := (*fs.PathError)(nil); errors.As(err, &failed) {
		failed.Path = path // the one that the user knows
	}
	return f, err
}

// replaceable reports whether a path is free or a regular file, and not a device
// such as /dev/null.
func replaceable(path string) bool {
	info, err := os.Stat(path)
	return err != nil || info.Mode().IsRegular()
}

// writable checks, before anything is sent, that saveFile can make the file.
func writable(path string) error {
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return usage("%s is a folder; name a file.", clean(path))
	case !replaceable(path):
		return nil
	}
	f, err := newTemporary(path)
	if err != nil {
		return usage("%s", fileError(err))
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

func saveJSON(path string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return saveFile(path, append(data, '\n'))
}

// loadJSON reports whether the file exists.
func loadJSON(path string, v any) (bool, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, usage("%s", fileError(err))
	}
	if err := json.Unmarshal(data, v); err != nil {
		return false, usage("%s is not a checkpoint of this command; name another file.", path)
	}
	return true, nil
}

// parseTime reads a time, a local date, or how long ago, such as 36h or 7d.
func parseTime(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	if t, err := time.ParseInLocation(time.DateOnly, text, time.Local); err == nil {
		return t, nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if d, err := time.ParseDuration(days + "h"); err == nil && d > 0 && d <= math.MaxInt64/24 {
			return now.Add(-24 * d), nil
		}
	}
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return now.Add(-d), nil
	}
	return time.Time{}, usage("--%s must be a time (2026-01-31T08:00:00Z), a date (2026-01-31), or how long ago (36h, 7d).", flag)
}
