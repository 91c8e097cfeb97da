package cmd_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/flags.md")

// TestFlagsAreDocumented: docs/flags.md has the help of every command.
func TestFlagsAreDocumented(t *testing.T) {
	var page strings.Builder
	page.WriteString("# Flags\n\nFor operators who look up a flag or its environment variable. " +
		"This page is what `--help` prints:\n`go test ./cmd -run TestFlagsAreDocumented -update` writes it.\n")
	for _, command := range []string{"checker", "aggregator", "offpath"} {
		help(t, &page, command, 2)
	}
	page.WriteString("\nNext: [rules](rules.md), or [operations](operations.md).\n")
	const path = "../docs/flags.md"
	if *update {
		must(t, os.WriteFile(path, []byte(page.String()), 0o644))
	}
	kept, err := os.ReadFile(path)
	if err != nil || string(kept) != page.String() {
		t.Errorf("%s is not what --help prints (%v): go test ./cmd -run %s -update", path, err, t.Name())
	}
}

var subcommand = regexp.MustCompile(`(?m)^  ([a-z]+)   `)

// help writes the help of a command, and of those below it.
func help(t *testing.T, page *strings.Builder, command string, level int) {
	t.Helper()
	words := strings.Fields(command)
	out, err := exec.Command(binary(t, words[0]), append(words[1:], "--help")...).Output()
	must(t, err)
	fmt.Fprintf(page, "\n%s %s\n\n```\n%s```\n", strings.Repeat("#", level), command, out)
	_, list, _ := strings.Cut(string(out), "\nCommands, each with --help:\n")
	list, _, _ = strings.Cut(list, "\n\n")
	for _, match := range subcommand.FindAllStringSubmatch(list, -1) {
		if match[1] != "completion" {
			help(t, page, command+" "+match[1], level+1)
		}
	}
}
