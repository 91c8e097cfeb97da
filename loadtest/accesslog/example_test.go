package accesslog_test

import (
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/offpath-io/offpath/loadtest/accesslog"
)

// A night's silence is cut to five seconds, and the replay runs at ten times the log's speed.
func Example() {
	read, err := accesslog.Read(strings.NewReader(`192.0.2.7 - - [17/May/2015:22:05:03 +0000] "GET /a HTTP/1.1" 200 512
192.0.2.8 - - [18/May/2015:06:05:04 +0000] "GET /b HTTP/1.1" 200 512
what is this?
`))
	if err != nil {
		log.Fatal(err)
	}
	for _, refusal := range read.Refused {
		fmt.Println(refusal)
	}
	plan, err := read.Plan(accesslog.PlanOptions{Seed: 1, MaxGap: 5 * time.Second, Speed: 10})
	if err != nil {
		log.Fatal(err)
	}
	for _, hit := range plan.Hits {
		fmt.Println(hit.At, plan.Clients[hit.Client])
	}
	// Output:
	// line 3: no time in brackets: "what is this?"
	// 0s 192.0.2.7
	// 500ms 192.0.2.8
}
