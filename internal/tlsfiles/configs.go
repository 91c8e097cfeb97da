package tlsfiles

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"
)

// Paths of the files of one side of TLS. Each may be empty, but a certificate needs its key, and a
// key its certificate.
type Paths struct {
	// Authorities is who is trusted to say who the other side is. Empty: for a client, the
	// system's; for a server, nobody, and it asks its clients for no certificate.
	Authorities string
	// Cert is this side's own certificate, with those between it and its authority, and Key its
	// key.
	Cert, Key string
}

var (
	errHalf     = errors.New("a certificate and a key need each other")
	errNoServer = errors.New("a server needs a certificate and a key")
)

// none reports whether there is no file.
func (p Paths) none() bool { return p == Paths{} }

// Client adds the files of a client. What it returns gives the configuration for the next
// connection, which is not to be changed; nil if there are no files.
func (f *Files) Client(name string, p Paths) (current func() *tls.Config, err error) {
	if p.none() {
		return func() *tls.Config { return nil }, nil
	}
	return addPaths(f, name, p, func(c *tls.Config, m contents) { c.RootCAs = m.pool })
}

// Server adds the files of a server, which speaks these protocols ("h2"), the first one best. With
// authorities, only clients with a certificate of one of them get in. Its configuration goes by the
// newest good files at each handshake: connections that are there go on, but see
// [ServerTLS.Listener].
func (f *Files) Server(name string, p Paths, protocols ...string) (*ServerTLS, error) {
	if p.Cert == "" {
		return nil, errNoServer
	}
	current, err := addPaths(f, name, p, func(c *tls.Config, m contents) {
		c.NextProtos = protocols
		if c.ClientCAs = m.pool; m.pool != nil {
			c.ClientAuth = tls.RequireAndVerifyClientCert
		}
	})
	if err != nil {
		return nil, err
	}
	d := new(ServerTLS)
	d.Config = &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: protocols,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			return d.clients.watched(hello.Conn, current), nil
		},
	}
	f.groups[len(f.groups)-1].taken = func() {
		if n := d.clients.hangUp(current().ClientCAs); n > 0 {
			f.log.Info("hung up on clients that the new authorities do not vouch for", "files", name, "connections", n)
		}
	}
	return d, nil
}

// contents are what the files hold.
type contents struct {
	pool  *x509.CertPool
	certs []tls.Certificate
}

func addPaths(f *Files, name string, p Paths, finish func(*tls.Config, contents)) (current func() *tls.Config, err error) {
	if (p.Cert == "") != (p.Key == "") {
		return nil, errHalf
	}
	var paths []string
	if p.Authorities != "" {
		paths = append(paths, p.Authorities)
	}
	if p.Cert != "" {
		paths = append(paths, p.Cert, p.Key)
	}
	return add(f, name, paths, p.Key, func(data [][]byte) (*tls.Config, time.Time, error) {
		held, expires, err := p.parse(data)
		if err != nil {
			return nil, time.Time{}, err
		}
		config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: held.certs}
		finish(config, held)
		return config, expires, nil
	})
}

// parse reads the contents of the files that there are, in the order of the fields.
func (p Paths) parse(data [][]byte) (held contents, expires time.Time, err error) {
	if p.Authorities != "" {
		if held.pool, expires, err = parsePool(p.Authorities, data[0]); err != nil {
			return held, expires, err
		}
		data = data[1:]
	}
	if p.Cert == "" {
		return held, expires, nil
	}
	pair, until, err := parsePair(p.Cert, p.Key, data[0], data[1])
	held.certs = []tls.Certificate{pair}
	return held, earlier(expires, until), err
}

// Secret adds a file of one line, such as a password. What it returns gives the line.
func (f *Files) Secret(name, path string) (current func() string, err error) {
	return add(f, name, []string{path}, path, func(data [][]byte) (string, time.Time, error) {
		line, err := parseLine(path, data[0])
		return string(line), time.Time{}, err
	})
}

// Password is Secret, but returns the fixed one if there is no path.
func (f *Files) Password(name, path, fixed string) (current func() string, err error) {
	if path == "" {
		return func() string { return fixed }, nil
	}
	return f.Secret(name, path)
}

// Text adds a secret file that check takes, which returns when that expires, zero if it does not.
// What Text returns gives its content. The errors of check should not quote that.
func (f *Files) Text(name, path string, check func(content []byte) (expires time.Time, err error)) (current func() []byte, err error) {
	return add(f, name, []string{path}, path, func(data [][]byte) ([]byte, time.Time, error) {
		expires, err := check(data[0])
		if err != nil {
			return nil, time.Time{}, fmt.Errorf("%s: %w", path, err)
		}
		return data[0], expires, nil
	})
}
