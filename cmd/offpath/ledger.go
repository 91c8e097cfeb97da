package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/internal/natsconn"
	"github.com/offpath-io/offpath/internal/redisconn"
	"github.com/offpath-io/offpath/pkg/aggregate/redisstore"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
)

const ledgerSummary = `
Prints, for each rule, what became of all hits ever reported: counted, late (after their bucket had
left every window) or refused (too far in the future); how many of them settlements gave back
(refunded) or added (settled); and hits of keys for which there was no room (overflow). It reads
Redis.`

// ledgerTimeout is how long Redis may take to answer.
const ledgerTimeout = 10 * time.Second

func newLedger() *cobra.Command {
	o, access, out := redisstore.Options{Namespace: natsconn.DefaultNamespace}, redisconn.Access{}, output{}
	cmd := &cobra.Command{
		Use: "ledger", Short: "print what became of every hit", Long: ledgerSummary,
		Example: "  offpath ledger --redis redis://127.0.0.1:6379",
		Args:    flags.NoArguments,
	}
	flags.Topic(cmd, "Fleet", func(s *pflag.FlagSet) {
		redisconn.AddURL(s, &o.URL)
		flags.Add(s, &o.Namespace, "namespace", "`NAME` of the fleet", natsconn.Name)
		addContext(s)
	})
	flags.Topic(cmd, "Output", out.addFlags)
	flags.Topic(cmd, "Access to Redis", access.AddFlags)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.URL == "" {
			return flags.Usagef("--redis URL is needed, or a context that has it (offpath context --help)")
		}
		if err := access.Check(o.URL); err != nil {
			return err
		}
		ledger, err := readLedger(cmd.Context(), &access, o)
		if err != nil {
			return err
		}
		if ledger == nil {
			ledger = storage.Ledger{} // {} rather than null
		}
		return out.print(cmd.OutOrStdout(), map[string]any{"rules": ledger}, ledgerText(ledger))
	}
	return cmd
}

func readLedger(ctx context.Context, access *redisconn.Access, o redisstore.Options) (storage.Ledger, error) {
	store, err := access.OpenOnce(o)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	return store.Ledger(ctx)
}

func ledgerText(ledger storage.Ledger) string {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "counted\tlate\trefused\trefunded\tsettled\toverflow\t  rule")
	for _, rule := range slices.Sorted(maps.Keys(ledger)) {
		l := ledger[rule]
		fmt.Fprintf(table, "%d\t%d\t%d\t%d\t%d\t%d\t  %s\n",
			l.Counted, l.Late, l.Refused, l.Refunded, l.Settled, l.Overflow, rule)
	}
	_ = table.Flush() // a strings.Builder takes everything
	return text.String()
}
