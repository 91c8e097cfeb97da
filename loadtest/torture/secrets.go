package torture

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/offpath-io/offpath/loadtest/torture/found"
)

// user is what daemons call themselves to NATS and Redis.
const user = "offpath"

// secrets are the files of passwords and certificates: those of servers and those of daemons.
type secrets struct {
	dir  string
	key  *ecdsa.PrivateKey // of the authority
	root *x509.Certificate
	pool *x509.CertPool
}

func (s *secrets) file(name string) string { return filepath.Join(s.dir, name) }

// newSecrets makes an authority, and the first of all files.
func newSecrets(dir string) (*secrets, error) {
	s := &secrets{dir: dir, pool: x509.NewCertPool()}
	var err error
	if s.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, fmt.Errorf("torture: %w", err)
	}
	template := template("torture's authority")
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, &s.key.PublicKey, s.key)
	if err == nil {
		s.root, err = x509.ParseCertificate(der)
	}
	if err != nil {
		return nil, fmt.Errorf("torture: %w", err)
	}
	s.pool.AddCert(s.root)
	password := rand.Text()
	return s, errors.Join(
		replaceFile(s.file("ca.pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		s.issue("listen"), s.issue("nats"), s.natsTakes(password), s.redisTakes(password),
		s.daemonsShow("nats", password), s.daemonsShow("redis", password))
}

func template(name string) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<62)) // its reader does not fail
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(30 * 24 * time.Hour),
	}
}

// issue writes another certificate, and its key into the same file, so that they change at once.
func (s *secrets) issue(name string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.CreateCertificate(rand.Reader, template(name), s.root, &key.PublicKey, s.key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return replaceFile(s.file(name+".pem"), append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...))
}

// natsTakes and redisTakes write what servers read when they start, or are told to.
func (s *secrets) natsTakes(password string) error {
	return replaceFile(s.file("nats.conf"), fmt.Appendf(nil, `tls { cert_file: %q, key_file: %[1]q }
authorization { users: [{ user: %s, password: %q }] }
`, s.file("nats.pem"), user, password))
}

func (s *secrets) redisTakes(password string) error {
	return replaceFile(s.file("redis.acl"), fmt.Appendf(nil,
		"user default on nopass ~* &* +@all\nuser %s on >%s ~* &* +@all\n", user, password))
}

func (s *secrets) daemonsShow(server, password string) error {
	return replaceFile(s.file(server+"-password"), []byte(password))
}

// natsFlags are those of both daemons.
func (s *secrets) natsFlags() []string {
	return []string{"--nats-ca", s.file("ca.pem"), "--nats-user", user, "--nats-password-file", s.file("nats-password")}
}

// replaceFile replaces what a file holds at once, as editors and Kubernetes do.
func replaceFile(path string, content []byte) error {
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		return fmt.Errorf("torture: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("torture: %w", err)
	}
	return nil
}

// rotate changes passwords and certificates: first at the servers and then at the daemons, or the
// other way round. In between, the daemons' connections are refused.
func (s *storm) rotate(ctx context.Context, f fault, run *found.Fault) error {
	if !s.rotating.TryLock() {
		return errBusy
	}
	defer s.rotating.Unlock()
	password, server, at := rand.Text(), "redis", s.redisTakes
	switch f.target % 3 {
	case 0:
		run.Target, run.Detail = "checkers", "certificate of the HTTP API"
		return s.fleet.secrets.issue("listen")
	case 1:
		server, at = "nats", s.natsTakes
	}
	run.Target = server
	steps := []func(string) error{at, func(password string) error {
		return s.fleet.secrets.daemonsShow(server, password)
	}}
	run.Detail = "first at the servers"
	if f.ways == 1 {
		run.Detail = "first at the daemons"
		steps[0], steps[1] = steps[1], steps[0]
	}
	if server == "redis" {
		if !s.takeRedis() {
			return errBusy
		}
		defer s.releaseRedis()
	} else {
		for _, p := range s.fleet.nats {
			if !p.take() {
				return errBusy
			}
			defer p.release()
		}
	}
	err := steps[0](password)
	lasts(ctx, f.length)
	return errors.Join(err, steps[1](password))
}

// natsTakes and redisTakes have servers that run take another password, and NATS another
// certificate.
func (s *storm) natsTakes(password string) error {
	err := errors.Join(s.fleet.secrets.issue("nats"), s.fleet.secrets.natsTakes(password))
	for _, p := range s.fleet.nats {
		err = errors.Join(err, p.program.Reload())
	}
	return err
}

func (s *storm) redisTakes(password string) error {
	err := s.fleet.secrets.redisTakes(password)
	for _, n := range s.fleet.store.nodes() {
		err = errors.Join(err, n.admin.Do(context.Background(), "ACL", "LOAD").Err())
	}
	return err
}
