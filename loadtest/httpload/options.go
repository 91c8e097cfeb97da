package httpload

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// KeyMark stands for the number of the key, from 0, in the value of an attribute.
const KeyMark = "{key}"

const (
	maxConnections = 10_000
	maxKeys        = 1_000_000
	maxRequests    = 1_000_000_000_000
)

// Options say what to ask, and how often. URL and Rate have no default.
type Options struct {
	// URL is the checker's door, like http://127.0.0.1:8080/v1/check.
	URL string `json:"url"`
	// Rate is how many requests are due per second, evenly.
	Rate float64 `json:"rate_per_second"`
	// Duration is how long requests become due that are measured; default 10 s. Warmup is how long
	// requests become due before, which are not; default none.
	Duration time.Duration `json:"duration_ns"`
	Warmup   time.Duration `json:"warmup_ns"`
	// Connections is how many requests can be under way at once; default 64, at most 10,000. It should
	// be well above rate × the time of an answer, or requests wait for each other rather than for the
	// server.
	Connections int `json:"connections"`
	// Keys is how many different keys are asked for, by random; default 1, at most 1,000,000.
	Keys int `json:"keys"`
	// Rule, if it is not "", is asked by its name, for the keys "user-0", "user-1" and so on. Otherwise all
	// rules are asked, for Attributes, with KeyMark replaced in their values; default {"user": "user-{key}"}.
	Rule       string            `json:"rule,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`
	// Timeout is when a request is given up; default 5 s.
	Timeout time.Duration `json:"timeout_ns"`
	// Seed decides the order of the keys.
	Seed uint64 `json:"seed"`
}

func (o Options) withDefaults() Options {
	o.Duration = cmp.Or(o.Duration, 10*time.Second)
	o.Connections = cmp.Or(o.Connections, 64)
	o.Keys = cmp.Or(o.Keys, 1)
	o.Timeout = cmp.Or(o.Timeout, 5*time.Second)
	if o.Rule == "" && len(o.Attributes) == 0 {
		o.Attributes = map[string]string{"user": "user-" + KeyMark}
	}
	return o
}

// check finds what is wrong with options that have their defaults.
func (o Options) check() error {
	if err := checkURL(o.URL); err != nil {
		return err
	}
	switch {
	case !(o.Rate > 0) || math.IsInf(o.Rate, 1):
		return fmt.Errorf("rate %v: want a number of requests per second above 0", o.Rate)
	case o.Duration < 0:
		return fmt.Errorf("duration %v: want one above 0", o.Duration)
	case o.Warmup < 0 || o.Warmup > math.MaxInt64-o.Duration:
		return fmt.Errorf("warm-up %v: want 0 or more, and with the duration at most 292 years", o.Warmup)
	case o.Timeout < 0:
		return fmt.Errorf("timeout %v: want one above 0", o.Timeout)
	case o.Connections < 1 || o.Connections > maxConnections:
		return fmt.Errorf("connections %d: want 1 to %d", o.Connections, maxConnections)
	case o.Rate*(o.Warmup+o.Duration).Seconds() > maxRequests:
		return fmt.Errorf("rate %v for %v: want at most %d requests", o.Rate, o.Warmup+o.Duration, int64(maxRequests))
	}
	return o.checkKeys()
}

func checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return fmt.Errorf("url: %w", err)
	case u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		return fmt.Errorf("url %q: want one like http://127.0.0.1:8080/v1/check", text)
	}
	return nil
}

func (o Options) checkKeys() error {
	switch {
	case o.Keys < 1 || o.Keys > maxKeys:
		return fmt.Errorf("keys %d: want 1 to %d", o.Keys, maxKeys)
	case o.Rule != "" && len(o.Attributes) > 0:
		return errors.New("rule and attributes: want either")
	case o.Rule != "" || o.Keys == 1:
		return nil
	}
	for _, value := range o.Attributes {
		if strings.Contains(value, KeyMark) {
			return nil
		}
	}
	return fmt.Errorf("keys %d: no attribute's value has %s in it, so that all keys would be one", o.Keys, KeyMark)
}

// bodies returns what is sent, by key.
func (o Options) bodies() ([][]byte, error) {
	bodies := make([][]byte, o.Keys)
	for key := range bodies {
		body, err := json.Marshal(o.question(strconv.Itoa(key)))
		if err != nil {
			return nil, fmt.Errorf("body: %w", err)
		}
		bodies[key] = body
	}
	return bodies, nil
}

// question is what the door takes.
func (o Options) question(key string) any {
	if o.Rule != "" {
		return map[string]string{"rule": o.Rule, "key": "user-" + key}
	}
	attributes := make(map[string]string, len(o.Attributes))
	for name, value := range o.Attributes {
		attributes[name] = strings.ReplaceAll(value, KeyMark, key)
	}
	return map[string]any{"attributes": attributes}
}
