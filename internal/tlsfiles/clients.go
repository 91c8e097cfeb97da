package tlsfiles

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"sync"
)

// ServerTLS is how a server speaks TLS.
type ServerTLS struct {
	// Config goes by the newest good files at each handshake.
	Config  *tls.Config
	clients clients
}

// Listener returns a listener whose connections the server knows: when the authorities of its
// clients change, it hangs up on those that the new ones do not vouch for. The server still has to
// speak TLS by the server's Config.
func (d *ServerTLS) Listener(l net.Listener) net.Listener { return knownListener{l, &d.clients} }

type knownListener struct {
	net.Listener
	clients *clients
}

// Accept waits for a connection.
func (l knownListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &client{Conn: conn, clients: l.clients}, nil
}

// clients are the open connections whose clients have shown good certificates.
type clients struct {
	mu   sync.Mutex
	open map[*client][]*x509.Certificate // with what they have shown
}

// client is a connection below its TLS.
type client struct {
	net.Conn
	clients *clients
}

// Close closes the connection, and then lets it be forgotten: one that is not known is not heard.
func (c *client) Close() error {
	err := c.Conn.Close()
	c.clients.mu.Lock()
	defer c.clients.mu.Unlock()
	delete(c.clients.open, c)
	return err
}

// watched returns the configuration for one handshake, after which the connection is known.
func (all *clients) watched(conn net.Conn, current func() *tls.Config) *tls.Config {
	config := current()
	c, known := conn.(*client)
	if !known || config.ClientCAs == nil {
		return config
	}
	config = config.Clone()
	config.VerifyConnection = func(state tls.ConnectionState) error {
		all.add(c, state.PeerCertificates)
		return vouched(state.PeerCertificates, current().ClientCAs) // the authorities may have changed since the handshake began
	}
	return config
}

func (all *clients) add(c *client, shown []*x509.Certificate) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.open == nil {
		all.open = make(map[*client][]*x509.Certificate)
	}
	all.open[c] = shown
}

// hangUp closes the connections that these authorities do not vouch for, and returns how many that
// were.
func (all *clients) hangUp(authorities *x509.CertPool) int {
	var strangers []*client
	all.mu.Lock()
	for c, shown := range all.open {
		if vouched(shown, authorities) != nil {
			strangers = append(strangers, c)
		}
	}
	all.mu.Unlock()
	for _, c := range strangers {
		_ = c.Close() // it is gone either way
	}
	return len(strangers)
}

// vouched returns why the authorities do not vouch for a client that has shown these certificates,
// its own first.
func vouched(shown []*x509.Certificate, authorities *x509.CertPool) error {
	between := x509.NewCertPool()
	for _, cert := range shown[1:] {
		between.AddCert(cert)
	}
	_, err := shown[0].Verify(x509.VerifyOptions{
		Roots: authorities, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return err
}
