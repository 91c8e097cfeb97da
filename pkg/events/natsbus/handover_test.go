package natsbus_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/events/natsbus"
)

// What has come to the owner of a shard before it gives the shard away is handed over.
func TestAnOwnerTakesWhatHasCome(t *testing.T) {
	const reports = 20
	url := serverstest.NATS(t).URL()
	aggregator, alpha := connect(t, url), connect(t, url)
	worker, err := natsbus.NewWorker(aggregator, "test")
	must(t, err)
	checker, err := natsbus.NewChecker(alpha, "test", "alpha")
	must(t, err)
	got, closed := make(chan string, 1000), make(chan struct{})
	ctx, stop := context.WithCancel(t.Context())
	var ends sync.WaitGroup
	ends.Go(func() {
		err := worker.Serve(ctx, func(kind events.Kind, data []byte, _ func([]byte) error) {
			if string(data) != "probe" {
				<-closed
			}
			got <- string(data)
		})
		if err != nil {
			t.Error(err)
		}
	})
	defer func() { stop(); ends.Wait() }()
	send := func(text string) {
		t.Helper()
		must(t, checker.Report(0, true, []byte(text)))
	}
	all := []bool{true}
	must(t, worker.Attend(all, all))
	for served := false; !served; {
		send("probe")
		select {
		case <-got:
			served = true
		case <-time.After(10 * time.Millisecond):
		}
	}
	for i := range reports {
		send(fmt.Sprint(i))
	}
	for _, conn := range []*nats.Conn{alpha, aggregator} { // the server has them, and has sent them on
		must(t, conn.Flush())
	}
	must(t, worker.Attend(all, nil))
	close(closed)
	for i := 0; i < reports; {
		select {
		case text := <-got:
			if text == "probe" {
				continue
			}
			if want := fmt.Sprint(i); text != want {
				t.Fatalf("got report %s, want %s", text, want)
			}
			i++
		case <-time.After(time.Minute):
			t.Fatalf("%d of %d reports were handed over", i, reports)
		}
	}
}
