package aggregate_test

import (
	"context"
	"log"
	"os/signal"
	"syscall"

	"github.com/offpath-io/offpath/internal/testing/membus"
	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/memstore"
	"github.com/offpath-io/offpath/pkg/aggregate/redisstore"
	"github.com/offpath-io/offpath/pkg/events/natsbus"
)

// An aggregator for a fleet: NATS, Redis, and as many of these as it takes.
func Example() {
	store, err := redisstore.Open(redisstore.Options{URL: "redis://127.0.0.1:6379"})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	conn, err := natsbus.Connect("nats://127.0.0.1:4222", "aggregator")
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	bus, err := natsbus.NewWorker(conn, "offpath")
	if err != nil {
		log.Fatal(err)
	}

	worker, err := aggregate.New(aggregate.Options{Store: store, Bus: bus})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := worker.Run(ctx); err != nil {
		log.Print(err)
	}
}

// An aggregator within one process, for checkers on the same bus.
func Example_embedded() {
	bus := membus.New(membus.Options{})
	worker, err := aggregate.New(aggregate.Options{Store: memstore.New(), Bus: bus.Worker()})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go bus.Run(ctx)
	go worker.Run(ctx)
}
