// Package recorder prints which functions are entered and left.
package recorder

import (
	"fmt"
	"runtime"
	"sync/atomic"
)

// On turns the recorder on.
var On atomic.Bool

// Enter prints the goroutine, file and function of an entry. The function that
// it returns prints the goroutine of the exit. Enter does nothing while the
// recorder is off.
func Enter(file string, function int) (exit func()) {
	if !On.Load() {
		return func() {}
	}
	var goroutine int
	stack := make([]byte, 64)
	fmt.Sscanf(string(stack[:runtime.Stack(stack, false)]), "goroutine %d", &goroutine)
	fmt.Println(goroutine, file, function)
	return func() { fmt.Println(goroutine) }
}
