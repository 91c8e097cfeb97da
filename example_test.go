package offpath_test

import (
	"context"
	"fmt"
	"log"

	"github.com/offpath-io/offpath"
	"github.com/offpath-io/offpath/pkg/identity"
)

// A limiter for this process alone. With the URL of a NATS server in place of "none", all that
// start with it share the limit.
func ExampleStart() {
	participant, err := offpath.Start(context.Background(), offpath.Options{
		NATS:  "none",
		Rules: "rules: [{name: per-user, key: [user], limit: 2/hour}]",
	})
	if err != nil {
		log.Fatal(err)
	}
	defer participant.Close()

	for range 3 {
		d := participant.Checker().Check(identity.Attributes{{Name: "user", Value: "kristie"}}, 1)
		fmt.Println(d.Allowed, d.Remaining)
	}
	// Output:
	// true 1
	// true 0
	// false 0
}
