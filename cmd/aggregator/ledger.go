package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/internal/redisconn"
	"github.com/offpath-io/offpath/internal/version"
	"github.com/offpath-io/offpath/pkg/aggregate/redisstore"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
)

const ledgerSummary = `Prints what became of every hit that was ever reported, by rule: counted, late (it came after its
bucket had left every window), refused (its bucket was too far in the future); and how many settlements gave back (refunded), and added (settled:
these are among the first three).`

// ledgerTimeout is how long Redis may take to answer.
const ledgerTimeout = 10 * time.Second

// printLedger is the command "aggregator ledger".
func printLedger(ctx context.Context, args []string, getenv func(string) string, stdout, _ io.Writer) error {
	url, access, namespace, asJSON := "", redisconn.Access{}, defaultNamespace, false
	s := flags.New("aggregator ledger", ledgerSummary, version.Get().Line("aggregator"))
	addRedis(s, &url, &access)
	addNamespace(s, &namespace)
	flags.Add(s, &asJSON, "json", "", "print JSON instead of a table", flags.Bool)
	done, err := s.Parse(args, getenv, stdout)
	if err != nil || done {
		return err
	}
	if err := checkRedis(url, &access); err != nil {
		return err
	}
	ledger, err := readLedger(ctx, &access, redisstore.Options{URL: url, Namespace: namespace})
	if err != nil {
		return err
	}
	if asJSON {
		return writeJSON(stdout, ledger)
	}
	return writeTable(stdout, ledger)
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

func writeJSON(w io.Writer, ledger storage.Ledger) error {
	if ledger == nil {
		ledger = storage.Ledger{} // {} rather than null
	}
	body, err := json.Marshal(struct {
		Rules storage.Ledger `json:"rules"`
	}{ledger})
	if err != nil {
		return fmt.Errorf("encode the ledger: %w", err)
	}
	_, err = fmt.Fprintf(w, "%s\n", body)
	return err
}

func writeTable(w io.Writer, ledger storage.Ledger) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "counted\tlate\trefused\trefunded\tsettled\toverflow\t  rule")
	for _, rule := range slices.Sorted(maps.Keys(ledger)) {
		l := ledger[rule]
		fmt.Fprintf(table, "%d\t%d\t%d\t%d\t%d\t%d\t  %s\n", l.Counted, l.Late, l.Refused, l.Refunded, l.Settled, l.Overflow, rule)
	}
	return table.Flush()
}
