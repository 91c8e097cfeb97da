package check_test

import (
	"context"
	"fmt"
	"log"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/events/natsbus"
	"github.com/offpath-io/offpath/pkg/identity"
	"github.com/offpath-io/offpath/pkg/rules"
)

// A checker without a link is a plain local limiter, which is how one starts.
func Example() {
	set, err := rules.Parse([]byte("rules: [{name: per-user, key: [user], limit: 2/hour}]"))
	if err != nil {
		log.Fatal(err)
	}
	checker, err := check.New(check.Options{Rules: set})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go checker.Run(ctx)

	perUser, _ := checker.Limiter("per-user")
	for range 3 {
		d := perUser.Check("kristie", 1)
		fmt.Println(d.Allowed, d.Remaining)
	}
	// Output:
	// true 1
	// true 0
	// false 0
}

// With a link it shares its limits with the fleet. Checks work the same, also before there is a
// connection and while there is none.
func Example_fleet() {
	set, err := rules.Load("rules.yaml")
	if err != nil {
		log.Fatal(err)
	}
	conn, err := natsbus.Connect("nats://127.0.0.1:4222", "my-service")
	if err != nil {
		log.Fatal(err)
	}
	epoch := events.NewEpoch("")
	link, err := natsbus.NewChecker(conn, "offpath", fmt.Sprintf("%x", epoch))
	if err != nil {
		log.Fatal(err)
	}
	checker, err := check.New(check.Options{Rules: set, Link: link, Epoch: epoch})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- checker.Run(ctx) }()

	request := identity.Attributes{{Name: "user", Value: "kristie"}, {Name: "api", Value: "createURL"}}
	if d := checker.Check(request, 1); !d.Allowed {
		fmt.Println("429, retry in", d.RetryAfter, "because of", d.Rule)
	}

	stop() // Run delivers what is still unreported
	if err := <-done; err != nil {
		log.Print(err)
	}
	conn.Close()
}
