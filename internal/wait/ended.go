package wait

import "runtime"

// Ended is how a function of another goroutine ended, so that its panic reaches the
// goroutine that waits for it and does not end the process.
type Ended struct {
	Unfinished bool // it panicked, or called runtime.Goexit, as testing.T.FailNow does
	panicked   any
}

// Run calls f.
func (e *Ended) Run(f func()) {
	e.Unfinished = true
	defer func() { e.panicked = recover() }()
	f()
	e.Unfinished = false
}

// Raise ends the calling goroutine as f ended the other one.
func (e *Ended) Raise() {
	switch {
	case e.panicked != nil:
		panic(e.panicked)
	case e.Unfinished:
		runtime.Goexit()
	}
}
