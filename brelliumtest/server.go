package brelliumtest

import (
	"context"
	"net"
	"net/http"
	"time"
)

// Start serves the emulator on a free port of 127.0.0.1, or at the address of
// [WithAddr], and sets [Emulator.URL]. It returns an error if it cannot listen
// there. Call [Emulator.Close] to stop it.
func (e *Emulator) Start() error {
	var config net.ListenConfig
	listener, err := config.Listen(context.Background(), "tcp", e.addr)
	if err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return err
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	server := e.Server()
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener) // ends with ErrServerClosed
	}()
	e.mu.Lock()
	e.server, e.served = server, served
	e.mu.Unlock()
	e.URL = "http://" + net.JoinHostPort(host, port)
	return nil
}

// Server returns a server for [Emulator.Handler] with timeouts for requests, for
// TLS or a handler of your own around it. The emulator does not know its address:
// upload URLs use the host of the request.
func (e *Emulator) Server() *http.Server {
	return &http.Server{
		Handler:           e.Handler(),
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       10 * time.Minute, // of a large file over a slow line
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    256 << 10,
	}
}

// Close stops the server that [Emulator.Start] started and closes all its
// connections, including those with requests in flight. Without a running
// server it does nothing.
func (e *Emulator) Close() {
	e.mu.Lock()
	server, served := e.server, e.served
	e.server, e.served = nil, nil
	e.mu.Unlock()
	if server == nil {
		return
	}
	_ = server.Close()
	<-served
}
