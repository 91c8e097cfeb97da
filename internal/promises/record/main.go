// Command record writes down what this build promises to later ones; see package promises.
//
//	record DIRECTORY
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/offpath-io/offpath/internal/promises"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: record DIRECTORY")
		os.Exit(2)
	}
	if err := promises.Record(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
}
