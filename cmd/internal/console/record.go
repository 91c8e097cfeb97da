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
// then writes what it has, if nobody has written since. Without JetStream a history begins when its
// aggregator starts.

const (
	// recordTries is how often a record is read and written at once, if others are quicker.
	recordTries = 5
	// recordEvery is how often it is written.
	recordEvery = 15 * time.Second
	// recordTimeout is how long reading and writing may take.
	recordTimeout = 3 * time.Second
	// envelope is what a message needs beside the record, in bytes.
	envelope = 1024
)

// recordKey is the record's in that bucket. Each version of the format has its own, so that
// consoles of two versions in one fleet do not overwrite each other's.
func recordKey(version int) string {
	if version == 1 {
		return "history"
	}
	return fmt.Sprint("history.v", version)
}

// keepHistory keeps the record until ctx is done, and then once more; not before the fleet's time
// is known, by which consoles agree on its slots.
func (c *Console) keepHistory(ctx context.Context) error {
	said, timeKnown := "", false
	for {
		wait := recordEvery
		timeKnown = timeKnown || c.o.Worker.Ready() == nil
		if timeKnown && c.o.Conn.IsConnected() {
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

// exchangeHistory reads the record, and writes it; again if another console was quicker.
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
	for range recordTries {
		err = c.mergeHistory(ctx, bucket)
		if !errors.Is(err, jetstream.ErrKeyExists) && !errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
			break
		}
	}
	return err
}

func (c *Console) mergeHistory(ctx context.Context, bucket jetstream.KeyValue) error {
	h, key, revision := c.picture.history, recordKey(history.Version), uint64(0)
	switch entry, err := bucket.Get(ctx, key); {
	case err == nil:
		revision = entry.Revision()
		// What cannot be read is overwritten.
		if kept, err := history.Decode(entry.Value()); err == nil {
			h.Merge(kept, c.o.Worker.Now())
		}
	case !errors.Is(err, jetstream.ErrKeyNotFound):
		return fmt.Errorf("read: %w", err)
	}
	data, err := h.Encode(int(c.o.Conn.MaxPayload()) - envelope)
	switch {
	case err != nil:
	case revision == 0:
		_, err = bucket.Create(ctx, key, data)
	default:
		_, err = bucket.Update(ctx, key, data, revision)
	}
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}
