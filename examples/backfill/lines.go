package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// replaceFile writes a small file. The rename makes the write atomic.
func replaceFile(path, content string) error {
	file, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteString(content)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// lines is an append-only file with one audit per line.
type lines struct {
	*os.File
	ids map[string]bool
}

// openLines opens or creates the file and reads the ids of its audits. It
// removes a last line that a crash left incomplete.
func openLines(path string) (*lines, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	l := &lines{file, map[string]bool{}}
	if err := l.load(); err != nil {
		file.Close()
		return nil, err
	}
	return l, nil
}

func (l *lines) load() error {
	var whole int64
	for r := bufio.NewReader(l); ; {
		line, err := r.ReadBytes('\n')
		if err == io.EOF {
			if err := l.Truncate(whole); err != nil {
				return err
			}
			_, err = l.Seek(whole, io.SeekStart)
			return err
		}
		if err != nil {
			return err
		}
		var audit struct {
			ID string `json:"audit_id"`
		}
		if json.Unmarshal(line, &audit) != nil || audit.ID == "" {
			return fmt.Errorf("line %d of the file is not an audit", len(l.ids)+1)
		}
		l.ids[audit.ID] = true
		whole += int64(len(line))
	}
}

func (l *lines) has(id string) bool { return l.ids[id] }

// add appends an audit with one write.
func (l *lines) add(id string, audit json.RawMessage) error {
	var line bytes.Buffer
	if err := json.Compact(&line, audit); err != nil {
		return err
	}
	line.WriteByte('\n')
	if _, err := l.Write(line.Bytes()); err != nil {
		return err
	}
	l.ids[id] = true
	return nil
}
