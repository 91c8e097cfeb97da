package check_test

import (
	"context"
	"fmt"
	"log"

	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/rules"
)

// A checker without a link is a plain local limiter. offpath.Start makes one with less ceremony,
// and one that belongs to a fleet.
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
