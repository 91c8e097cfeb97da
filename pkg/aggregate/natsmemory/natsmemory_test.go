package natsmemory_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/natsmemory"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
)

func newBucket(t *testing.T, url, namespace string) *natsmemory.Bucket {
	t.Helper()
	b, err := natsmemory.New(serverstest.Connect(t, url), namespace)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func states(numbers ...uint64) (all []storage.State) {
	for i := 0; i < len(numbers); i += 2 {
		all = append(all, storage.State{Generation: numbers[i], Version: numbers[i+1]})
	}
	return all
}

// TestTheLatestStatesAreKept, whoever merges which first, and whatever has become of the bucket
// meanwhile.
func TestTheLatestStatesAreKept(t *testing.T) {
	n := serverstest.JetStream(t)
	ns := serverstest.Namespace(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	a, b := newBucket(t, n.URL(), ns), newBucket(t, n.URL(), ns)
	for _, step := range []struct {
		why  string
		by   *natsmemory.Bucket
		with []storage.State
		do   func(jetstream.KeyValue) error // before
		want []storage.State
	}{
		{why: "nothing is there yet", by: a},
		{why: "the first", by: a, with: states(5, 1, 6, 1), want: states(5, 1, 6, 1)},
		{why: "each shard by itself", by: b, with: states(5, 3, 2, 9), want: states(5, 3, 6, 1)},
		{why: "a new generation", by: a, with: states(7, 0), want: states(7, 0, 6, 1)},
		{why: "who starts", by: newBucket(t, n.URL(), ns), want: states(7, 0, 6, 1)},
		{
			why: "what cannot be read", by: b, with: states(1, 1), want: states(1, 1),
			do: func(kv jetstream.KeyValue) error { _, err := kv.Put(ctx, "shards", []byte("?")); return err },
		},
		{
			why: "what is deleted", by: a, with: states(1, 2), want: states(1, 2),
			do: func(kv jetstream.KeyValue) error { return kv.Delete(ctx, "shards") },
		},
		{
			why: "another bucket", by: b, with: states(1, 3), want: states(1, 3),
			do: func(jetstream.KeyValue) error {
				serverstest.DropBucket(t, n.URL(), natsmemory.Name(ns))
				return nil
			},
		},
	} {
		if step.do != nil {
			if err := step.do(serverstest.Bucket(t, n.URL(), natsmemory.Name(ns))); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := step.by.Merge(ctx, step.with); err != nil || !slices.Equal(got, step.want) {
			t.Errorf("%s: %v, %v, want %v", step.why, got, err, step.want)
		}
	}
}

// TestMergesAtTheSameTime lose nothing: when all are done the highest of each shard is kept.
func TestMergesAtTheSameTime(t *testing.T) {
	n := serverstest.JetStream(t)
	ns := serverstest.Namespace(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var all sync.WaitGroup
	for worker := range uint64(3) {
		b := newBucket(t, n.URL(), ns)
		all.Go(func() {
			for version := range uint64(20) {
				for { // as the worker does a second later
					mine := states(1, 1, 1, 1, 1, 1)
					mine[worker].Version = 1 + version
					if _, err := b.Merge(ctx, mine); err == nil {
						break
					} else if ctx.Err() != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	all.Wait()
	if got, err := newBucket(t, n.URL(), ns).Merge(ctx, nil); fmt.Sprint(got) != "[{1 20} {1 20} {1 20}]" {
		t.Errorf("%v, %v", got, err)
	}
}

// TestWithoutJetStreamNothingIsKept, which is known at once.
func TestWithoutJetStreamNothingIsKept(t *testing.T) {
	b := newBucket(t, serverstest.NATS(t).URL(), "offpath")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := b.Merge(ctx, states(1, 1)); !errors.Is(err, aggregate.ErrNoMemory) {
		t.Error(err)
	}
}
