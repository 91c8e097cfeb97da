package httpload

import (
	"cmp"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/offpath-io/offpath/internal/redact"
)

// KeyMark stands for the number of the key, from 0, in the value of an attribute.
const KeyMark = "{key}"

// Options say what to ask, and how often. Rate and one of URL and GRPC have no default.
type Options struct {
	// URL is the checker's API, like http://127.0.0.1:8080/v1/check.
	URL string `json:"url,omitempty"`
	// GRPC is the address of Envoy's rate limit service, like 127.0.0.1:8081, spoken to without TLS
	// if TLS is nil.
	GRPC string `json:"grpc,omitempty"`
	// TLS is how to check the server of a URL with https://, or of GRPC, and what to show it; nil,
	// for a URL: by the system's authorities. It is not changed.
	TLS *tls.Config `json:"-"`
	// Rate is how many requests are due per second, evenly.
	Rate float64 `json:"rate_per_second"`
	// Duration is how long requests become due that are measured; default 10 s. Warmup is how long
	// requests become due before, which are not; default none.
	Duration time.Duration `json:"duration_ns"`
	Warmup   time.Duration `json:"warmup_ns"`
	// Connections is how many requests can be under way at once; default 64. It
	// should be well above rate × the time of an answer, or requests wait for each other rather
	// than for the server.
	Connections int `json:"connections"`
	// Keys is how many different keys are asked for, by random; default 1.
	Keys int `json:"keys"`
	// Rule, if it is not "", is asked by its name, for the keys "user-0", "user-1" and so on.
	// Otherwise all rules are asked, for Attributes, with KeyMark replaced in their values; default
	// {"user": "user-{key}"}.
	Rule       string            `json:"rule,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`
	// Domain, default "loadtest", and Descriptor are what GRPC is asked about, with KeyMark
	// replaced in the entries' values; default user=user-{key}. The requests share so many
	// Channels, which is gRPC's word for a connection; default 1.
	Domain     string  `json:"domain,omitempty"`
	Descriptor []Entry `json:"descriptor,omitempty"`
	Channels   int     `json:"channels,omitempty"`
	// Timeout is when a request is given up; default 5 s.
	Timeout time.Duration `json:"timeout_ns"`
	// Seed decides the order of the keys.
	Seed uint64 `json:"seed"`
}

// Entry is a part of a descriptor.
type Entry struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

func (o Options) withDefaults() Options {
	o.Duration = cmp.Or(o.Duration, 10*time.Second)
	o.Connections = cmp.Or(o.Connections, 64)
	o.Keys = cmp.Or(o.Keys, 1)
	o.Timeout = cmp.Or(o.Timeout, 5*time.Second)
	switch {
	case o.GRPC != "":
		o.Domain = cmp.Or(o.Domain, "loadtest")
		o.Channels = cmp.Or(o.Channels, 1)
		if len(o.Descriptor) == 0 {
			o.Descriptor = []Entry{{"user", "user-" + KeyMark}}
		}
	case o.Rule == "" && len(o.Attributes) == 0:
		o.Attributes = map[string]string{"user": "user-" + KeyMark}
	}
	return o
}

// check finds what is wrong with options that have their defaults. Numbers are in range: the
// command line holds them to it.
func (o Options) check() error {
	switch {
	case o.GRPC == "" && (o.Domain != "" || len(o.Descriptor) > 0 || o.Channels != 0):
		return errors.New("domain, descriptor and channels are for grpc")
	case o.GRPC == "" && o.TLS != nil && !strings.HasPrefix(o.URL, "https://"):
		return errors.New("there are no certificates without TLS, which is a url with https://")
	case o.GRPC != "" && o.URL != "":
		return errors.New("url and grpc: want either")
	case o.GRPC != "" && (o.Rule != "" || len(o.Attributes) > 0):
		return errors.New("rule and attributes are for url: grpc is asked by domain and descriptor")
	case o.GRPC == "":
		if err := checkURL(o.URL); err != nil {
			return err
		}
	default:
		host, port, err := net.SplitHostPort(o.GRPC)
		if err != nil || host == "" || port == "" {
			return fmt.Errorf("grpc %q: want an address like 127.0.0.1:8081", o.GRPC)
		}
	}
	return o.checkKeys()
}

func checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return errors.New("url: want one like http://127.0.0.1:8080/v1/check") // its own error quotes the text, and so a password
	case u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		if u.User != nil {
			text = redact.URLs(text)
		}
		return fmt.Errorf("url %q: want one like http://127.0.0.1:8080/v1/check", text)
	}
	return nil
}

// checkKeys refuses several keys whose requests would all be the same.
func (o Options) checkKeys() error {
	values := slices.Collect(maps.Values(o.Attributes))
	for _, e := range o.Descriptor {
		values = append(values, e.Value)
	}
	hasKey := func(value string) bool { return strings.Contains(value, KeyMark) }
	if o.Rule != "" || o.Keys == 1 || slices.ContainsFunc(values, hasKey) {
		return nil
	}
	return fmt.Errorf("keys %d: no attribute's value has %s in it, so that all keys would be one", o.Keys, KeyMark)
}

// bodies returns what is sent, by key.
func (o Options) bodies() ([][]byte, error) {
	bodies := make([][]byte, o.Keys)
	for i := range bodies {
		key := strconv.Itoa(i)
		body := map[string]any{"rule": o.Rule, "key": "user-" + key}
		if o.Rule == "" {
			attributes := maps.Clone(o.Attributes)
			for name, value := range attributes {
				attributes[name] = strings.ReplaceAll(value, KeyMark, key)
			}
			body = map[string]any{"attributes": attributes}
		}
		var err error
		if bodies[i], err = json.Marshal(body); err != nil {
			return nil, fmt.Errorf("body: %w", err)
		}
	}
	return bodies, nil
}
