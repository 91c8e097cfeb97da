// Command checker decides for programs that ask it over HTTP and gRPC, as part of a fleet.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/offpath-io/offpath/cmd/internal/checker"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // so that a second signal ends the process at once
	os.Exit(checker.Run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}
