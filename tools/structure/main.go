// Command structure measures how the code is divided: how large packages and files are, how much of
// a package is public, and how many references between its files run against their order.
//
//	go run ./structure -root ..                     a table of every package of the module
//	go run ./structure -root .. -under pkg/check    the same of one package and those beneath it
//	go run ./structure -root .. -json               as JSON, with every reference that runs back up
//
// What the columns mean:
//
//   - files, code, longest: Go files without tests and generated files, their lines of code, and
//     the lines of the longest file. A line of code is a line of the gofmt'd file that holds more
//     than space and comments. A line of more than 100 columns counts once for each 100 columns
//     begun, so that long lines do not look small. A tab has four columns.
//   - tests: lines of code of the _test.go files. Packages beneath internal/testing hold helpers of
//     tests; their code counts as tests.
//   - funcs, types, values: exported names. Funcs are functions, and methods of exported types;
//     values are constants and variables. Fields and methods of interfaces do not count.
//   - refs: pairs of files (A, B) of one package in which A uses something that B declares at
//     package level, a method, or a field.
//   - up: how many of these run back up. The files of a package are put in one order, users above
//     what they use, in which as few pairs as possible point upwards. Files that do not use each
//     other in a circle have none. The order is a heuristic's, the same at every run: up is at
//     least the minimum, and of small packages nearly always equal to it.
//   - circle: how many of refs are within a group of files in which each leads to each other.
//
// Nested modules, files for other platforms and directories named testdata are left out.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "structure:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("structure", flag.ContinueOnError)
	root := flags.String("root", ".", "directory of the module to measure")
	under := flags.String("under", "", "measure this package and those beneath it only, such as pkg/check")
	asJSON := flags.Bool("json", false, "print JSON instead of a table")
	if err := flags.Parse(args); err != nil {
		return err
	}
	all, err := load(*root)
	if err != nil {
		return err
	}
	var chosen []Package
	for _, p := range all {
		if *under == "" || p.Path == *under || strings.HasPrefix(p.Path, *under+"/") {
			chosen = append(chosen, p)
		}
	}
	if len(chosen) == 0 {
		return fmt.Errorf("there is no package %s", *under)
	}
	if *asJSON {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(chosen)
	}
	return table(out, chosen)
}

// table prints a line for each package and their sum, of which the longest file is the longest of
// all.
func table(out io.Writer, packages []Package) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "files\tcode\tlongest\ttests\tfuncs\ttypes\tvalues\trefs\tup\tcircle\t  package")
	row := func(p Package, name string) {
		fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t  %s\n", p.Files, p.Code, p.Longest,
			p.Tests, p.Funcs, p.Types, p.Values, p.Refs, len(p.Up), p.Circle, name)
	}
	var sum Package
	for _, p := range packages {
		row(p, p.Path)
		sum.Files += p.Files
		sum.Code += p.Code
		sum.Longest = max(sum.Longest, p.Longest)
		sum.Tests += p.Tests
		sum.Funcs += p.Funcs
		sum.Types += p.Types
		sum.Values += p.Values
		sum.Refs += p.Refs
		sum.Up = append(sum.Up, p.Up...)
		sum.Circle += p.Circle
	}
	row(sum, fmt.Sprintf("all %d packages", len(packages)))
	return w.Flush()
}
