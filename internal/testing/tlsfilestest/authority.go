// Package tlsfilestest makes authorities and certificates for tests.
package tlsfilestest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority vouches for others.
type Authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority returns one of this name.
func NewAuthority(t testing.TB, name string) *Authority {
	t.Helper()
	a := &Authority{t: t, key: newKey(t)}
	template := newTemplate(name, time.Now().Add(24*time.Hour))
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	must(t, err)
	a.cert, err = x509.ParseCertificate(der)
	must(t, err)
	return a
}

// PEM returns the authority's certificate.
func (a *Authority) PEM() []byte { return encode("CERTIFICATE", a.cert.Raw) }

// Pool returns the trust in this authority alone.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// Issue returns a certificate, for servers on this machine and for clients alike, and its key.
func (a *Authority) Issue(name string) (cert, key []byte) {
	a.t.Helper()
	return a.IssueUntil(name, time.Now().Add(24*time.Hour))
}

// IssueUntil returns one that expires then.
func (a *Authority) IssueUntil(name string, expires time.Time) (cert, key []byte) {
	a.t.Helper()
	private := newKey(a.t)
	template := newTemplate(name, expires)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	template.DNSNames, template.IPAddresses = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1)}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &private.PublicKey, a.key)
	must(a.t, err)
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	must(a.t, err)
	return encode("CERTIFICATE", der), encode("PRIVATE KEY", encoded)
}

// Pair returns what Issue does, as one side of TLS shows it.
func (a *Authority) Pair(name string) tls.Certificate {
	a.t.Helper()
	pair, err := tls.X509KeyPair(a.Issue(name))
	must(a.t, err)
	return pair
}

// Files are those of one side of TLS.
type Files struct{ CA, Cert, Key string }

// Dir writes files into a directory of the test: this authority's certificate, and a certificate of
// it for the name.
func (a *Authority) Dir(name string) Files {
	a.t.Helper()
	dir := a.t.TempDir()
	f := Files{CA: filepath.Join(dir, "ca.crt"), Cert: filepath.Join(dir, "tls.crt"), Key: filepath.Join(dir, "tls.key")}
	Write(a.t, f.CA, a.PEM())
	a.Renew(f, name)
	return f
}

// Renew writes another certificate and key over those of f.
func (a *Authority) Renew(f Files, name string) {
	a.t.Helper()
	cert, key := a.Issue(name)
	Write(a.t, f.Cert, cert)
	Write(a.t, f.Key, key)
}

// Write replaces what a file holds, at once.
func Write(t testing.TB, path string, content []byte) {
	t.Helper()
	must(t, os.WriteFile(path+".new", content, 0o600))
	must(t, os.Rename(path+".new", path))
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	return key
}

func newTemplate(name string, expires time.Time) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<62)) // its reader does not fail
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: expires,
	}
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
