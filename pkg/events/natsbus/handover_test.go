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
	conns := make([]*nats.Conn, 2)
	for i := range conns {
		var err error
		if conns[i], err = natsbus.Connect(url, "test"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conns[i].Close)
	}
	worker, err := natsbus.NewWorker(conns[0], "test")
	if err != nil {
		t.Fatal(err)
	}
	checker, err := natsbus.NewChecker(conns[1], "test", "alpha")
	if err != nil {
		t.Fatal(err)
	}
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
		if err := checker.Report(0, true, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	all := []bool{true}
	if err := worker.Attend(all, all); err != nil {
		t.Fatal(err)
	}
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
	for _, conn := range []*nats.Conn{conns[1], conns[0]} { // the server has them, and has sent them on
		if err := conn.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := worker.Attend(all, nil); err != nil {
		t.Fatal(err)
	}
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
