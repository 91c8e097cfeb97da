package console

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/offpath-io/offpath/cmd/internal/console/history"
	"github.com/offpath-io/offpath/pkg/aggregate/natsmemory"
)

// Each console hears the whole fleet, and so has the whole history of the time since it started. So
// that it survives a restart, all consoles of a fleet keep one record of it in JetStream, in the
// bucket that aggregators alone write: each takes from the record what it has not heard itself, and
// then writes what it has. Whoever writes last is right. Without JetStream a history begins when
// its aggregator starts.

const (
	// recordKey is the history's in that bucket.
	recordKey = "history"
	// recordEvery is how often it is written.
	recordEvery = 15 * time.Second
	// recordTimeout is how long reading and writing may take.
	recordTimeout = 3 * time.Second
	// envelope is what a message needs beside the record, in bytes.
	envelope = 1024
)

// keepHistory keeps the record until ctx is done, and then once more.
func (c *Console) keepHistory(ctx context.Context) error {
	said := ""
	for {
		wait := recordEvery
		if c.o.Conn.IsConnected() {
			keeping, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
			err := c.exchangeHistory(keeping)
			cancel()
			if err != nil && said != err.Error() {
				said = err.Error()
				c.o.Log.Info("the console's history is not kept", "error", err)
			}
		} else {
			wait = tick
		}
		if ctx.Err() != nil {
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// exchangeHistory reads the record, and writes it.
func (c *Console) exchangeHistory(ctx context.Context) error {
	js, err := jetstream.New(c.o.Conn)
	if err != nil {
		return err
	}
	bucket, err := js.KeyValue(ctx, natsmemory.Name(c.o.Namespace))
	if errors.Is(err, jetstream.ErrBucketNotFound) { // the worker has not made it yet
		return nil
	}
	if err != nil {
		return fmt.Errorf("open the bucket: %w", err)
	}
	h := c.picture.history
	switch entry, err := bucket.Get(ctx, recordKey); {
	case err == nil:
		// What cannot be read, such as that of a later version, is overwritten.
		if kept, err := history.Decode(entry.Value()); err == nil {
			h.Merge(kept)
		}
	case !errors.Is(err, jetstream.ErrKeyNotFound):
		return fmt.Errorf("read: %w", err)
	}
	data, err := h.Encode(int(c.o.Conn.MaxPayload()) - envelope)
	if err == nil {
		_, err = bucket.Put(ctx, recordKey, data)
	}
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}
