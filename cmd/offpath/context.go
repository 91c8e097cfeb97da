package main

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/offpath-io/offpath/cmd/internal/signing"
	"github.com/offpath-io/offpath/internal/flags"
	"github.com/offpath-io/offpath/internal/natsconn"
	"github.com/offpath-io/offpath/internal/redact"
	"github.com/offpath-io/offpath/internal/redisconn"
)

const contextSummary = `
Saves connection flags under a name. A command takes those of --context NAME, of OFFPATH_CONTEXT, or
of the context in use; the context in use does not apply when --nats or --redis is given. Flags and
environment variables override the context.`

func newContext() *cobra.Command {
	cmd := &cobra.Command{
		Use: "context COMMAND", Short: "save and choose which fleet to talk to", Long: contextSummary,
		Example: "  offpath context add prod --nats nats://nats.example:4222 --nats-creds prod.creds\n" +
			"  offpath context use prod\n  offpath top",
		Args: flags.NoArguments, RunE: flags.NeedsCommand,
	}
	cmd.AddCommand(newContextAdd(), newContextList(), newContextShow(), newContextUse(),
		newContextRemove())
	return cmd
}

// contextCommand returns a command that takes the NAME of a context.
func contextCommand(
	use, short string, do func(cmd *cobra.Command, c contexts, name string) error,
) *cobra.Command {
	return &cobra.Command{
		Use: use + " NAME", Short: short,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return flags.Usagef("want the NAME of one context, and there are %d arguments", len(args))
			}
			return nil
		},
		ValidArgsFunction: completeContexts,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := openContexts()
			if err != nil {
				return err
			}
			return do(cmd, c, args[0])
		},
	}
}

// newContextAdd returns a command whose flags are those of the commands that a context is for.
func newContextAdd() *cobra.Command {
	var fleet fleetFlags
	var redisURL string
	var redisAccess redisconn.Access
	var rules, entries signing.Keys
	var given []*pflag.Flag
	cmd := contextCommand("add", "save flags under a name",
		func(cmd *cobra.Command, c contexts, name string) error {
			if _, err := natsconn.Name(name); err != nil {
				return flags.Usagef("NAME: %v", err)
			}
			err := cmp.Or(fleet.access.Check(fleet.nats), redisAccess.Check(redisURL))
			if err != nil {
				return err
			}
			settings := make(map[string]string)
			for _, f := range given {
				if settings[f.Name], err = lasting(f); err != nil {
					return err
				}
			}
			if len(settings) == 0 {
				return flags.Usagef("want flags to save, such as --nats URL")
			}
			if err := c.add(name, settings); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(),
				"saved; \"offpath context use %s\" makes it the default\n", name)
			return err
		})
	cmd.Long = "Saves the given flags as a context. Environment variables are not saved; for " +
		"secrets, name their files."
	cmd.Example = "  offpath context add prod --nats nats://nats.example:4222 --nats-creds prod.creds"
	fleet.namespace = natsconn.DefaultNamespace
	flags.Topic(cmd, "Fleet", func(s *pflag.FlagSet) {
		natsconn.AddFleetFlags(s, &fleet.nats, &fleet.namespace)
		redisconn.AddURL(s, &redisURL)
	})
	flags.Topic(cmd, "Audit log", fleet.addAs)
	flags.Topic(cmd, "Signatures", func(s *pflag.FlagSet) {
		rules.AddPublic(s, signing.Rules)
		rules.AddSigning(s, signing.Rules)
		entries.AddPublic(s, signing.Entries)
		entries.AddSigning(s, signing.Entries)
	})
	flags.Topic(cmd, "Access to NATS", fleet.access.AddFlags)
	flags.Topic(cmd, "Access to Redis", redisAccess.AddFlags)
	one := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error { // variables have not been read yet
		cmd.Flags().Visit(func(f *pflag.Flag) {
			if slices.Contains(contextFlags, f.Name) {
				given = append(given, f)
			}
		})
		return one(cmd, args)
	}
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	return cmd
}

// lasting returns a flag's value as it holds in every directory.
func lasting(f *pflag.Flag) (string, error) {
	kind, _ := pflag.UnquoteUsage(f)
	if kind != "FILE" || f.Value.String() == "" {
		return f.Value.String(), nil
	}
	return filepath.Abs(f.Value.String())
}

func newContextList() *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use: "list", Short: "list the contexts; * marks the one in use", Args: flags.NoArguments,
		Long: "Lists the contexts, with their NATS servers and namespaces. An asterisk marks the one in use.",
	}
	flags.Topic(cmd, "Output", out.addFlags)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := openContexts()
		if err != nil {
			return err
		}
		names, err := c.names()
		if err != nil {
			return err
		}
		current, err := c.current()
		if err != nil {
			return err
		}
		rows := []string{row("", "context", "namespace", "NATS")}
		for _, name := range names {
			mark := ""
			if name == current {
				mark = "*"
			}
			settings, err := c.load(name)
			if err != nil { // the others are still of use
				rows = append(rows, row(mark, name, "", err))
				continue
			}
			rows = append(rows, row(mark, name,
				cmp.Or(settings["namespace"], natsconn.DefaultNamespace), redact.URLs(settings["nats"])))
		}
		return out.print(cmd.OutOrStdout(), map[string]any{
			"contexts": append([]string{}, names...), "current": current,
		}, table(rows...))
	}
	return cmd
}

func newContextShow() *cobra.Command {
	var out output
	cmd := contextCommand("show", "print a context, without passwords",
		func(cmd *cobra.Command, c contexts, name string) error {
			settings, err := c.load(name)
			if err != nil {
				return err
			}
			rows := []string{row("file", c.path(name))}
			for _, setting := range contextFlags {
				value, ok := settings[setting]
				if !ok {
					continue
				}
				if setting == "nats" || setting == "redis" {
					value = redact.URLs(value)
					settings[setting] = value
				}
				rows = append(rows, row(setting, value))
			}
			return out.print(cmd.OutOrStdout(), settings, table(rows...))
		})
	flags.Topic(cmd, "Output", out.addFlags)
	return cmd
}

func newContextUse() *cobra.Command {
	return contextCommand("use", "make a context the default",
		func(cmd *cobra.Command, c contexts, name string) error {
			if err := c.use(name); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s is in use\n", name)
			return err
		})
}

func newContextRemove() *cobra.Command {
	return contextCommand("rm", "remove a context",
		func(_ *cobra.Command, c contexts, name string) error { return c.remove(name) })
}

// addContext adds the flag --context, whose values savedFlags reads.
func addContext(s *pflag.FlagSet) {
	s.String("context", "", "`NAME` of a saved context, in place of the one in use")
}

// savedFlags returns the values of flags that a command's context holds, for [flags.Environment].
func savedFlags(cmd *cobra.Command) (from string, values map[string]string, err error) {
	chosen := cmd.Flags().Lookup("context")
	if chosen == nil {
		return "", nil, nil
	}
	given := func(names ...string) bool {
		return slices.ContainsFunc(names, cmd.Flags().Changed)
	}
	name := chosen.Value.String()
	if name == "" && given("nats", "redis") { // another fleet than the one in use, perhaps
		return "", nil, nil
	}
	c, err := openContexts()
	if err == nil && name == "" {
		name, err = c.current()
	} else if name == "" {
		return "", nil, nil // without a home there is none in use
	}
	if name == "" || err != nil {
		return "", nil, err
	}
	if values, err = c.load(name); err != nil {
		return "", nil, err
	}
	for _, server := range []string{"nats", "redis"} {
		user, creds, nkey := server+"-user", server+"-creds", server+"-nkey"
		passwordFile := server + "-password-file"
		if given(user, creds, nkey) {
			delete(values, user)
		} else if !given(passwordFile, server+"-password") { // which is of the context's user
			continue
		}
		for _, name := range []string{creds, nkey, passwordFile} {
			delete(values, name)
		}
	}
	return fmt.Sprintf("context %q", name), values, nil
}

// completeContexts suggests names of contexts.
func completeContexts(_ *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	c, err := openContexts()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names, _ := c.names() // without, there is nothing to suggest
	return slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, begun) }),
		cobra.ShellCompDirectiveNoFileComp
}

// completeContextFlags has --context completed wherever there is one.
func completeContextFlags(cmd *cobra.Command) {
	if cmd.Flags().Lookup("context") != nil {
		_ = cmd.RegisterFlagCompletionFunc("context", // there is such a flag
			func(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
				return completeContexts(cmd, nil, begun)
			})
	}
	for _, c := range cmd.Commands() {
		completeContextFlags(c)
	}
}
