package main

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/pflag"

	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/internal/tlsfiles"
	"github.com/offpath-io/offpath/loadtest/httpload"
)

// secured are the files for a server that has TLS.
type secured struct{ paths tlsfiles.Paths }

func (d *secured) add(s *pflag.FlagSet) {
	s.StringVar(&d.paths.Authorities, "ca", "", "`FILE` with the certificates of the authorities "+
		"to trust, in place of the system's; this, or --cert, makes --grpc TLS")
	s.StringVar(&d.paths.Cert, "cert", "", "`FILE` with the certificate to show")
	s.StringVar(&d.paths.Key, "key", "", "`FILE` with the key of that certificate")
}

// apply puts into the options how to speak TLS, if that is to be spoken.
func (d *secured) apply(o *httpload.Options) error {
	if (d.paths.Cert == "") != (d.paths.Key == "") {
		return flags.Usagef("--cert and --key need each other")
	}
	current, err := tlsfiles.New(slog.New(slog.DiscardHandler)).Client("server", d.paths)
	if err != nil {
		return fmt.Errorf("--ca, --cert, --key: %w", err)
	}
	o.TLS = current()
	if address, ok := strings.CutPrefix(o.GRPC, "tls://"); ok {
		o.GRPC = address
		if o.TLS == nil {
			o.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
		}
	}
	return nil
}
