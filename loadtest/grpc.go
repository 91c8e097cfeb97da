package main

import (
	"fmt"
	"strings"

	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/loadtest/httpload"
)

// envoy is what Envoy's rate limit service is asked about.
type envoy struct {
	domain     string
	descriptor descriptor
	channels   int
}

func addEnvoy(s *flags.Set, o *httpload.Options) *envoy {
	e := &envoy{"loadtest", descriptor{{Key: "user", Value: "user-" + httpload.KeyMark}}, 1}
	flags.Add(s, &o.GRPC, "grpc", "ADDRESS", "asks Envoy's rate limit service, like 127.0.0.1:8081, or tls://127.0.0.1:8081, instead of --url", flags.Text)
	flags.Add(s, &e.domain, "domain", "NAME", "the domain to ask --grpc about", flags.Text)
	flags.Add(s, &e.descriptor, "descriptor", "KEY=VALUE,…", "the descriptor to ask --grpc about, with {key} for the number of the key", readDescriptor)
	flags.Add(s, &e.channels, "channels", "N", "how many connections share the requests of --grpc", flags.Int(1, 10_000))
	return e
}

// apply puts into the options what is given, and with --grpc the defaults too: without it each of these is a mistake,
// which the options' check finds.
func (e *envoy) apply(s *flags.Set, o *httpload.Options) {
	if o.GRPC != "" && !s.Given("url") {
		o.URL = ""
	}
	if o.GRPC != "" || s.Given("domain") {
		o.Domain = e.domain
	}
	if o.GRPC != "" || s.Given("descriptor") {
		o.Descriptor = e.descriptor
	}
	if o.GRPC != "" || s.Given("channels") {
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
