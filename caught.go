package brellium

import "runtime"

// caught is how a function of another goroutine ended, so that its panic reaches
// the goroutine that waits for it and does not end the process.
type caught struct {
	unfinished bool // it panicked, or called runtime.Goexit, as testing.T.FailNow does
	panicked   any
}

// run calls f.
func (c *caught) run(f func()) {
	c.unfinished = true
	defer func() { c.panicked = recover() }()
	f()
	c.unfinished = false
}

// raise ends the calling goroutine as f ended the other one.
func (c *caught) raise() {
	switch {
	case c.panicked != nil:
		panic(c.panicked)
	case c.unfinished:
		runtime.Goexit()
	}
}
