package tlsfiles

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"
)

// parsePool reads a file of authorities. Unlike the standard library's it passes over none that it
// cannot read: a file that is half written would trust half of them. The time is when the last one
// expires: bundles have old ones among them.
func parsePool(path string, data []byte) (*x509.CertPool, time.Time, error) {
	pool := x509.NewCertPool()
	var expires time.Time
	if err := checkBlocks(path, data); err != nil {
		return nil, expires, err
	}
	n := 0
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		n++
		if block.Type != "CERTIFICATE" {
			return nil, expires, fmt.Errorf("%s: block %d is no certificate", path, n)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, expires, fmt.Errorf("%s: certificate %d: %w", path, n, err)
		}
		pool.AddCert(cert)
		if cert.NotAfter.After(expires) {
			expires = cert.NotAfter
		}
	}
	if n == 0 {
		return nil, expires, fmt.Errorf("%s: no certificate in it (want PEM)", path)
	}
	return pool, expires, nil
}

// parsePair reads a certificate, with those between it and its authority after it, and its key.
func parsePair(certPath, keyPath string, cert, key []byte) (tls.Certificate, time.Time, error) {
	if err := checkBlocks(certPath, cert); err != nil {
		return tls.Certificate{}, time.Time{}, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return tls.Certificate{}, time.Time{}, fmt.Errorf("%s and %s: %w", certPath, keyPath, err)
	}
	var expires time.Time
	for i, der := range pair.Certificate {
		parsed, err := x509.ParseCertificate(der)
		if err != nil {
			return tls.Certificate{}, time.Time{}, fmt.Errorf("%s: certificate %d: %w", certPath, i+1, err)
		}
		expires = earlier(expires, parsed.NotAfter)
	}
	return pair, expires, nil
}

// checkBlocks returns an error if a block of PEM cannot be read, as where a file breaks off: the
// decoder passes over such ones.
func checkBlocks(path string, data []byte) error {
	begun := bytes.Count(append([]byte("\n"), data...), []byte("\n-----BEGIN "))
	read := 0
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		read++
	}
	if read < begun {
		return fmt.Errorf("%s: %d of its %d blocks cannot be read", path, begun-read, begun)
	}
	return nil
}

// earlier returns the earlier of two times that are not zero.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// parseLine reads a file that holds one line: a password. The end of the line does not count.
func parseLine(path string, data []byte) ([]byte, error) {
	line := bytes.TrimSuffix(bytes.TrimSuffix(data, []byte("\n")), []byte("\r"))
	var err error
	switch {
	case len(line) == 0:
		err = errors.New("empty")
	case bytes.ContainsAny(line, "\n\r\x00"):
		err = errors.New("want one line")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return line, nil
}
