package brelliumtest

import (
	"context"
	"net"
	"net/http"
	"time"
)

// Start serves the emulator on a port of the loopback interface, or at the
// address of [WithAddr], and sets URL. Close ends it.
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
	server := &http.Server{Handler: e.Handler(), ReadHeaderTimeout: 30 * time.Second}
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

// Close ends what Start began: it closes the port and all connections, those
// with an exchange under way included. It does nothing before Start.
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
