package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/internal/redact"
	"github.com/offpath-io/offpath/loadtest/httpload"
)

const httpSummary = `
Asks a running checker over HTTP, or with --grpc any Envoy rate limit service over gRPC, at a fixed
rate, whether or not it keeps up: latency counts from when a request was due, and so includes
queueing. Start one with: go run ./cmd/offpath demo`

func newHTTP() *cobra.Command {
	o := httpload.Options{
		URL: "http://127.0.0.1:8080/v1/check", Rate: 2000, Duration: 10 * time.Second, Warmup: time.Second,
		Connections: 64, Keys: 100, Timeout: 5 * time.Second, Seed: 1,
	}
	var file string
	var secure secured
	e := newEnvoy()
	cmd := &cobra.Command{
		Use: "http", Short: "put load on a running checker over HTTP, at a fixed rate",
		Long: httpSummary,
		Args: flags.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := (&output{json: file}).check(); err != nil {
				return err
			}
			e.apply(cmd.Flags(), &o)
			if err := secure.apply(&o); err != nil {
				return err
			}
			return runHTTP(cmd, file, o)
		},
	}
	flags.Topic(cmd, "Server", func(s *pflag.FlagSet) {
		s.StringVar(&o.URL, "url", o.URL, "`URL` of the checker's HTTP API")
		e.add(s, &o)
	})
	flags.Topic(cmd, "Load", func(s *pflag.FlagSet) { addLoad(s, &o) })
	flags.Topic(cmd, "TLS", secure.add)
	flags.Topic(cmd, "Output", func(s *pflag.FlagSet) {
		s.StringVar(&file, "json", "",
			"`FILE` for the figures as JSON; - prints them instead of the table")
	})
	return cmd
}

func addLoad(s *pflag.FlagSet, o *httpload.Options) {
	flags.Add(s, &o.Rate, "rate", "`N` requests per second", flags.Float(0.01, 1e6))
	flags.Add(s, &o.Duration, "duration", "`DURATION` of the measured part",
		flags.Duration(time.Millisecond, 24*time.Hour))
	flags.Add(s, &o.Warmup, "warmup", "`DURATION` of the load before it",
		flags.Duration(0, time.Hour))
	flags.Add(s, &o.Connections, "connections", "at most `N` requests under way at once",
		flags.Int(1, 10_000))
	flags.Add(s, &o.Keys, "keys", "ask for `N` keys", flags.Int(1, 1_000_000))
	s.StringVar(&o.Rule, "rule", "",
		"`NAME` of the rule to ask; without it, all rules, for the attribute user")
	flags.Add(s, &o.Timeout, "timeout", "give a request up after this `DURATION`",
		flags.Duration(time.Millisecond, time.Hour))
	flags.Add(s, &o.Seed, "seed", "`N` decides the order of the keys", flags.Uint64)
}

func runHTTP(cmd *cobra.Command, file string, o httpload.Options) error {
	what := fmt.Sprintf("%g requests per second to %s, for %v after %v of warm-up",
		o.Rate, redact.URLs(cmp.Or(o.GRPC, o.URL)), o.Duration, o.Warmup)
	bar := newBar(cmd.ErrOrStderr(), what)
	r, err := httpload.Run(cmd.Context(), o, func(done, total int64) {
		bar.at(time.Duration(done), time.Duration(total))
	})
	bar.end()
	if err != nil {
		return err
	}
	if o.URL != "" {
		r.Options.URL = redact.URLs(o.URL)
	}
	if err := writeHTTP(cmd.OutOrStdout(), file, r); err != nil {
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

func writeHTTP(stdout io.Writer, file string, r httpload.Result) error {
	encode := func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetIndent("", " ")
		return e.Encode(r)
	}
	if file == "-" {
		return encode(stdout)
	}
	if err := r.Print(stdout); err != nil {
		return err
	}
	if file == "" {
		return nil
	}
	return toFile(file, encode)
}
