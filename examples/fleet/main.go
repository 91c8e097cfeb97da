// Command fleet serves the files of its directory, 100 per minute to each client address. All
// processes that run it share the limit.
package main

import (
	"context"
	"log"
	"net/http"

	"github.com/offpath-io/offpath"
	"github.com/offpath-io/offpath/pkg/httplimit"
)

func main() {
	participant, err := offpath.Start(context.Background(), offpath.Options{
		NATS:  "nats://127.0.0.1:4222", // or "none", for this process alone
		Rules: "rules: [{name: per-ip, key: [ip], limit: 100/minute}]",
	})
	if err != nil {
		log.Fatal(err)
	}
	defer participant.Close() // delivers what has not been counted yet
	limit, err := httplimit.New(participant.Checker(), httplimit.Options{})
	if err != nil {
		log.Fatal(err)
	}
	log.Print(http.ListenAndServe("127.0.0.1:8000", limit.Handler(http.FileServer(http.Dir(".")))))
}
