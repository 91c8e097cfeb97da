package main

import (
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/events/natsbus"
)

// identify makes up this life of the checker, and its name on NATS: its epoch, which is unique without anybody having to choose,
// below what --name says, if it does, so that the server's accounts can say who that may be.
func (c config) identify() (epoch uint64, name string) {
	if c.name == "" {
		epoch = events.NewEpoch("")
		return epoch, nameOf(epoch)
	}
	epoch = events.NewEpoch(c.name)
	return epoch, natsbus.Owned(c.name, epoch)
}

// nameOf is how an epoch is written, in names and in logs.
func nameOf(epoch uint64) string { return fmt.Sprintf("%x", epoch) }

// natsOptions keep the answers of JetStream apart from those that others get.
func (c config) natsOptions() []nats.Option {
	if c.name == "" {
		return nil
	}
	return []nats.Option{nats.CustomInboxPrefix("_INBOX." + c.name)}
}
