package checker

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/offpath-io/offpath/internal/flags"
)

const demoSummary = `
Starts everything in this process: the HTTP and gRPC APIs, the console, a NATS server, and an
aggregator that counts in memory. It prints what to try, and how to change its example rules.`

// NewDemo returns the command "demo", which runs a checker with the rest of a fleet in its process.
func NewDemo() *cobra.Command { return options{}.demo() }

func (o options) demo() *cobra.Command {
	c := newConfig()
	cmd := &cobra.Command{
		Use: "demo", Short: "start everything in one process, to try", Long: demoSummary,
		Example: "  offpath demo\n  offpath demo --rules my.yaml", Args: flags.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.serve(cmd, c) },
	}
	flags.Topic(cmd, "Rules", func(s *pflag.FlagSet) {
		s.StringVar(&c.rulesFrom, "rules", "", "use the rules in `FILE`, and follow its changes")
	})
	flags.Topic(cmd, "Addresses", c.addAddressFlags)
	flags.Topic(cmd, "Logs", c.addLogLevel)
	return cmd
}
