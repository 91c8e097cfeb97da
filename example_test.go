package offpath_test

import (
	"context"
	"log"

	"github.com/offpath-io/offpath"
	"github.com/offpath-io/offpath/pkg/identity"
)

// A service joins the fleet on its NATS, waits for the fleet's rules, and decides in its own
// process.
func Example() {
	participant, err := offpath.Join(offpath.Options{NATS: "nats://127.0.0.1:4222"})
	if err != nil {
		log.Fatal(err)
	}
	defer participant.Close()
	checker, err := participant.Checker(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	if d := checker.Check(identity.Attributes{{Name: "user", Value: "kristie"}}, 1); !d.Allowed {
		log.Print("429, retry in ", d.RetryAfter)
	}
}
