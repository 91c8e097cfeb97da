package daemontest

import (
	"context"
	"net"
)

// Pipes is a listener of connections within the process: while all wait for each other, the time of
// a synctest bubble goes on. Its clients come from this machine.
type Pipes struct {
	come  chan net.Conn
	ctx   context.Context
	close context.CancelFunc
}

// NewPipes returns an open one.
func NewPipes() *Pipes {
	p := &Pipes{come: make(chan net.Conn)}
	p.ctx, p.close = context.WithCancel(context.Background())
	return p
}

// Dial connects to it, whatever the network and the address.
func (p *Pipes) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.come <- pipe{server, p.Addr()}:
		return client, nil
	case <-p.ctx.Done():
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept returns the next connection.
func (p *Pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.come:
		return conn, nil
	case <-p.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Close ends it; Closed is closed then.
func (p *Pipes) Close() error { p.close(); return nil }

// Closed tells whether it is closed.
func (p *Pipes) Closed() <-chan struct{} { return p.ctx.Done() }

// Addr is one of this machine.
func (p *Pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

// pipe is a connection from an address.
type pipe struct {
	net.Conn
	from net.Addr
}

func (p pipe) RemoteAddr() net.Addr { return p.from }
