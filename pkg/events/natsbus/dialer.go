package natsbus

import (
	"net"
	"sync"

	"github.com/nats-io/nats.go"
)

// dialer closes its last connection when it makes another one: the library forgets those whose
// handshake has failed. Until the garbage collector finds them they are open files, some hundreds
// while a server refuses a password.
type dialer struct {
	net.Dialer

	mu   sync.Mutex
	last net.Conn
}

// dial is an option that has to be the last one: its dialer does as the others say.
func dial(o *nats.Options) error {
	if o.CustomDialer != nil {
		return nil
	}
	d := &dialer{Dialer: net.Dialer{Timeout: o.Timeout}}
	if o.Dialer != nil {
		d.Dialer = *o.Dialer
	}
	if o.AllowMultipathTCP != nil {
		d.SetMultipathTCP(*o.AllowMultipathTCP)
	}
	o.CustomDialer = d
	return nil
}

func (d *dialer) Dial(network, address string) (net.Conn, error) {
	conn, err := d.Dialer.Dial(network, address)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last != nil {
		_ = d.last.Close() // most are closed already
	}
	d.last = conn
	return conn, err
}
