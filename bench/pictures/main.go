// Command pictures draws docs/call.svg and docs/upload.svg. They show what the real
// client did in a run against the emulator: each arrow is an event of that run.
//
//	cd bench && GOWORK=off go run ./pictures
package main

import (
	"context"
	"log"
	"os"
	"path/filepath"
)

func main() {
	for name, draw := range pictures {
		d, err := draw(context.Background())
		if err != nil {
			log.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join("..", "docs", name), d.svg(), 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

// pictures are the pictures by the names of their files.
var pictures = map[string]func(context.Context) (*diagram, error){
	"call.svg":   call,
	"upload.svg": upload,
}
