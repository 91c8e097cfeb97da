package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/pkg/signature"
)

const keygenSummary = `Makes a key that signs rules or blocks.

With FILE it writes the key there, readable only by you, and prints the public key, which checkers
and aggregators need; the file must not exist yet. Without FILE it prints the key and the public
key, each on a line. Make one pair for rules, which operators hold, and another for blocks
(entries), which operators and aggregators hold. The keys are account nkeys, as from
"nsc generate nkey --account".`

func newKeygen() *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use: "keygen [FILE]", Short: "make a key that signs rules or blocks", Long: keygenSummary,
		Example: "  offpath keygen rules.key",
		Args: func(_ *cobra.Command, files []string) error {
			if len(files) > 1 {
				return flags.Usagef("want one FILE at most, and there are %d", len(files))
			}
			return nil
		},
	}
	flags.Topic(cmd, "Output", out.addFlags)
	cmd.RunE = func(cmd *cobra.Command, files []string) error {
		return out.generateKey(cmd.OutOrStdout(), strings.Join(files, ""))
	}
	return cmd
}

// generateKey makes a key, writes it to a file unless that is "", and prints the rest.
func (o *output) generateKey(stdout io.Writer, file string) error {
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
	}{Public: key.Public()}
	if file != "" {
		if err := writeNew(file, seed+"\n"); err != nil {
			return err
		}
		return o.print(stdout, made, made.Public+"\n")
	}
	made.Key = seed
	return o.print(stdout, made, seed+"\n"+made.Public+"\n")
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
