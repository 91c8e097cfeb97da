package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/internal/version"
	"github.com/offpath-io/offpath/pkg/signature"
)

const keygenSummary = `Makes a key that signs rules or blocks. With FILE it writes the key there, for nobody else to
read, and prints the public key, which checkers and aggregators get; there must be no such file yet. Without FILE it
prints two lines, the key and the public key. Make one pair for rules, for operators, and another for blocks (entries),
for operators and aggregators. They are nkeys of an account, so "nsc generate nkey --account" makes them, too.`

// generateKey is the command "aggregator keygen".
func generateKey(_ context.Context, args []string, getenv func(string) string, stdout, _ io.Writer) error {
	var files []string
	asJSON := false
	s := flags.New("aggregator keygen", keygenSummary, version.Get().Line("aggregator"))
	s.Arguments(&files, "[FILE]")
	flags.Add(s, &asJSON, "json", "", "print JSON", flags.Bool)
	done, err := s.Parse(args, getenv, stdout)
	switch {
	case err != nil || done:
		return err
	case len(files) > 1:
		return flags.Usagef("want one FILE at most, and there are %d", len(files))
	}
	key, err := signature.NewKey()
	if err != nil {
		return fmt.Errorf("make a key: %w", err)
	}
	seed, err := key.Seed()
	if err != nil {
		return fmt.Errorf("make a key: %w", err)
	}
	made := struct {
		Key    string `json:"key,omitempty"`
		Public string `json:"public"`
	}{seed, key.Public()}
	if len(files) == 1 {
		if err := writeNew(files[0], seed+"\n"); err != nil {
			return err
		}
		made.Key = ""
	}
	if asJSON {
		return printJSON(stdout, made)
	}
	if made.Key != "" {
		made.Key += "\n"
	}
	return printText(stdout, made.Key+made.Public+"\n")
}

// writeNew writes a secret to a file that is not there yet: a key that is lost cannot be made
// again.
func writeNew(path, secret string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if _, err = file.WriteString(secret); err == nil {
		err = file.Sync()
	}
	if closed := file.Close(); err == nil {
		err = closed
	}
	return err
}
