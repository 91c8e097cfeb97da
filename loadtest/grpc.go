package main

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/loadtest/httpload"
)

// envoy is what Envoy's rate limit service is asked about.
type envoy struct {
	domain     string
	descriptor descriptor
	channels   int
}

func newEnvoy() *envoy {
	return &envoy{"loadtest", descriptor{{Key: "user", Value: "user-" + httpload.KeyMark}}, 1}
}

func (e *envoy) add(s *pflag.FlagSet, o *httpload.Options) {
	s.StringVar(&o.GRPC, "grpc", "", "`ADDRESS` of an Envoy rate limit service to ask instead of "+
		"--url, such as 127.0.0.1:8081 or tls://127.0.0.1:8081")
	s.StringVar(&e.domain, "domain", e.domain, "`NAME` of the domain to ask --grpc about")
	flags.Add(s, &e.descriptor, "descriptor", "descriptor `KEY=VALUE,…` to ask --grpc about, "+
		"with {key} for the number of the key", readDescriptor)
	flags.Add(s, &e.channels, "channels", "`N` connections share the requests of --grpc",
		flags.Int(1, 10_000))
}

// apply puts the given flags into the options, and with --grpc the defaults too: without it each of
// these is a mistake, which the options' check finds.
func (e *envoy) apply(given *pflag.FlagSet, o *httpload.Options) {
	if o.GRPC != "" && !given.Changed("url") {
		o.URL = ""
	}
	if o.GRPC != "" || given.Changed("domain") {
		o.Domain = e.domain
	}
	if o.GRPC != "" || given.Changed("descriptor") {
		o.Descriptor = e.descriptor
	}
	if o.GRPC != "" || given.Changed("channels") {
		o.Channels = e.channels
	}
}

// descriptor is as a flag has it.
type descriptor []httpload.Entry

func (d descriptor) String() string {
	parts := make([]string, len(d))
	for i, e := range d {
		parts[i] = e.Key + "=" + e.Value
	}
	return strings.Join(parts, ",")
}

func readDescriptor(text string) (descriptor, error) {
	var d descriptor
	for part := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(part, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("%q: want KEY=VALUE, separated by commas", part)
		}
		d = append(d, httpload.Entry{Key: key, Value: value})
	}
	return d, nil
}
