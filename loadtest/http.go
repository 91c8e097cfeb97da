package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/internal/redact"
	"github.com/offpath-io/offpath/loadtest/httpload"
)

const httpSummary = `Asks a running checker over HTTP, or with --grpc any Envoy rate limit service over gRPC, at a fixed rate, whether or not it
keeps up: latency counts from when a request was due, and so includes queueing. Start one with: go run ./cmd/checker`

func runHTTP(ctx context.Context, c call) error {
	o := httpload.Options{
		URL: "http://127.0.0.1:8080/v1/check", Rate: 2000, Duration: 10 * time.Second, Warmup: time.Second,
		Connections: 64, Keys: 100, Timeout: 5 * time.Second, Seed: 1,
	}
	var file string
	s := newFlags("http", httpSummary)
	flags.Add(s, &o.URL, "url", "URL", "the checker's door", flags.Text)
	e := addEnvoy(s, &o)
	var secure secured
	secure.add(s)
	flags.Add(s, &o.Rate, "rate", "N", "requests per second", flags.Float(0.01, 1e6))
	flags.Add(s, &o.Duration, "duration", "DURATION", "length of the measured part", flags.Duration(time.Millisecond, 24*time.Hour))
	flags.Add(s, &o.Warmup, "warmup", "DURATION", "length of what comes before it", flags.Duration(0, time.Hour))
	flags.Add(s, &o.Connections, "connections", "N", "how many requests can be under way at once", flags.Int(1, 10_000))
	flags.Add(s, &o.Keys, "keys", "N", "how many keys to ask for", flags.Int(1, 1_000_000))
	flags.Add(s, &o.Rule, "rule", "NAME", "the rule to ask by name; without it, all rules, for the attribute user", flags.Text)
	flags.Add(s, &o.Timeout, "timeout", "DURATION", "when a request is given up", flags.Duration(time.Millisecond, time.Hour))
	flags.Add(s, &o.Seed, "seed", "N", "decides the order of the keys", flags.Uint64)
	flags.Add(s, &file, "json", "FILE", "where the figures go, as JSON; - prints them instead of the table", flags.Text)
	if done, err := s.Parse(c.args, c.getenv, c.stdout); done || err != nil {
		return err
	}
	if err := (&output{json: file}).check(); err != nil {
		return err
	}
	e.apply(s, &o)
	if err := secure.apply(&o); err != nil {
		return err
	}
	bar := newBar(c.stderr, fmt.Sprintf("%g requests per second to %s, for %v after %v of warm-up",
		o.Rate, redact.URLs(cmp.Or(o.GRPC, o.URL)), o.Duration, o.Warmup))
	r, err := httpload.Run(ctx, o, func(done, total int64) { bar.at(time.Duration(done), time.Duration(total)) })
	bar.end()
	if err != nil {
		return err
	}
	if o.URL != "" {
		r.Options.URL = redact.URLs(o.URL)
	}
	if err := writeHTTP(c, file, r); err != nil {
		return err
	}
	switch {
	case r.Interrupted:
		return errInterrupted
	case r.Errors > 0 || len(r.Other) > 0:
		return errors.New("some requests were not answered, or by something else than a decision")
	}
	return nil
}

func writeHTTP(c call, file string, r httpload.Result) error {
	encode := func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetIndent("", " ")
		return e.Encode(r)
	}
	if file == "-" {
		return encode(c.stdout)
	}
	if err := r.Print(c.stdout); err != nil {
		return err
	}
	if file == "" {
		return nil
	}
	return toFile(file, encode)
}
