package cmd_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
)

// balancer is a load balancer for TCP, as small as can be: it hands each connection to the next
// backend of which /readyz says 200, and repeats nothing: if that one refuses it, the client's is
// closed.
type balancer struct {
	listener net.Listener

	mu       sync.Mutex
	backends []*backend
	next     int
}

// backend is where one checker's API is, and where it says whether it is ready.
type backend struct {
	address, readyz string
	ready           bool
}

func newBalancer(t *testing.T) *balancer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	b := &balancer{listener: listener}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(func() { stop(); _ = listener.Close() })
	go b.look(ctx)
	go b.serve()
	return b
}

// add lets a backend take connections as soon as it is ready.
func (b *balancer) add(address, readyz string) *backend {
	b.mu.Lock()
	defer b.mu.Unlock()
	x := &backend{address: address, readyz: readyz}
	b.backends = append(b.backends, x)
	return x
}

// look asks all backends again and again whether they are ready.
func (b *balancer) look(ctx context.Context) {
	client := &http.Client{Timeout: daemontest.Patience}
	for ctx.Err() == nil {
		b.mu.Lock()
		all := append([]*backend(nil), b.backends...)
		b.mu.Unlock()
		for _, x := range all {
			response, err := client.Get(x.readyz)
			ready := err == nil && response.StatusCode == http.StatusOK
			if err == nil {
				_ = response.Body.Close()
			}
			b.mu.Lock()
			x.ready = ready
			b.mu.Unlock()
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// isReady says whether a backend takes connections.
func (b *balancer) isReady(x *backend) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return x.ready
}

func (b *balancer) serve() {
	for {
		client, err := b.listener.Accept()
		if err != nil {
			return
		}
		go b.join(client)
	}
}

// join hands a connection over, and copies until both sides have said all.
func (b *balancer) join(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", b.turn())
	if err != nil {
		return
	}
	defer server.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(server, client)
		_ = server.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(client, server)
	_ = client.(*net.TCPConn).CloseWrite()
	<-done
}

// turn returns the address of the next backend that is ready, "" if none is.
func (b *balancer) turn() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	for range b.backends {
		b.next++
		if x := b.backends[b.next%len(b.backends)]; x.ready {
			return x.address
		}
	}
	return ""
}
