package natsbus

import (
	"testing"
	"testing/synctest"

	"github.com/nats-io/nats.go"
)

// The library drops changes of a connection that it cannot deliver.
func TestALostChangeIsMadeUpFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changes, answers := make(chan nats.Status, 3), make(chan nats.Status)
		p := &presence{}
		away := func() bool {
			synctest.Wait()
			return p.check() != nil
		}
		fill := func(status nats.Status) {
			for range cap(changes) {
				changes <- status
			}
		}
		fill(nats.RECONNECTING) // and CONNECTED is lost
		go p.follow(nats.CONNECTED, changes, func() nats.Status { return <-answers })
		answers <- nats.CONNECTED
		if away() {
			t.Error("away for good")
		}
		fill(nats.CONNECTED) // and RECONNECTING is lost: while it connects it does not answer
		if !away() {
			t.Error("there, while the library does not say so")
		}
		answers <- nats.RECONNECTING
		if !away() {
			t.Error("there, though the connection is lost")
		}
		changes <- nats.CONNECTED
		if away() {
			t.Error("away, though it is connected again")
		}
		changes <- nats.CLOSED
		if away() {
			t.Error("what the library says of a closed connection is not heard")
		}
	})
}
