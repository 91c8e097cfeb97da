package console

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/offpath-io/offpath/cmd/internal/console/history"
	"github.com/offpath-io/offpath/internal/status"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/natsmemory"
)

// newConsole returns a console of the fleet "test" on a server.
func newConsole(t *testing.T, url string) *Console {
	t.Helper()
	c, err := New(Options{
		Conn: serverstest.Connect(t, url), Namespace: "test", Worker: &deskWorker{}, Tally: NewTally(),
		Tokens: func() Tokens { return nil },
	})
	must(t, err)
	return c
}

// allowed is the sum of what a console's history knows of the last quarter of an hour.
func allowedLately(c *Console) float64 {
	all, _ := c.picture.history.Lately(15*time.Minute, time.Now())
	return all.Allowed
}

// TestHistorySurvives: the history of a console that has ended is the next one's, and that of two
// at the same time is one.
func TestHistorySurvives(t *testing.T) {
	url := serverstest.JetStream(t).URL()
	first := newConsole(t, url)
	must(t, first.exchangeHistory(t.Context())) // there is no bucket yet: nothing happens
	bucket := makeBucket(t, first)

	hear := func(c *Console, allowed int64) {
		c.picture.checker(checkerSays("a", allowed, 0))
		c.picture.history.Listen(time.Now().Add(-time.Minute), time.Now())
	}
	hear(first, 0)
	hear(first, 100)
	must(t, first.exchangeHistory(t.Context()))
	second := newConsole(t, url)
	must(t, second.exchangeHistory(t.Context()))
	if got := allowedLately(second); got < 99 || got > 101 {
		t.Errorf("the second console has %v hits of the first one's 100", got)
	}
	// What is no history does no harm, and is replaced.
	_, err := bucket.Put(t.Context(), recordKey(history.Version), []byte("{"))
	must(t, err)
	must(t, second.exchangeHistory(t.Context()))
	third := newConsole(t, url)
	must(t, third.exchangeHistory(t.Context()))
	if got := allowedLately(third); got < 99 || got > 101 {
		t.Errorf("the third console has %v hits of 100", got)
	}
}

// TestHistoryOfManyAtOnce: of consoles that exchange their histories at the same time none
// overwrites what another has written.
func TestHistoryOfManyAtOnce(t *testing.T) {
	url := serverstest.JetStream(t).URL()
	var all []*Console
	for i := range recordTries - 1 {
		c := newConsole(t, url)
		from := time.Now().Add(-time.Duration(i+1) * time.Minute)
		c.picture.history.Listen(from, from.Add(10*time.Second))
		c.picture.history.Add("r", from, from.Add(10*time.Second), history.Point{Allowed: 100})
		all = append(all, c)
	}
	makeBucket(t, all[0])
	var group errgroup.Group
	for _, c := range all {
		group.Go(func() error { return c.exchangeHistory(t.Context()) })
	}
	must(t, group.Wait())
	last := newConsole(t, url)
	must(t, last.exchangeHistory(t.Context()))
	if got, want := allowedLately(last), 100*float64(len(all)); math.Abs(got-want) > 1 {
		t.Errorf("the record has %v hits of %v", got, want)
	}
}

// TestHistoryIsNotOverwritten: a console that was overtaken writes nothing, and that of another
// version has a record of its own.
func TestHistoryIsNotOverwritten(t *testing.T) {
	c := newConsole(t, serverstest.JetStream(t).URL())
	bucket := makeBucket(t, c)
	ours, next := recordKey(history.Version), recordKey(history.Version+1)
	put := func(key, value string) {
		t.Helper()
		_, err := bucket.Put(t.Context(), key, []byte(value))
		must(t, err)
	}
	put(next, "of the future")
	overtaken := bucketWithGet{bucket, func(key string) { put(key, "quicker") }}
	for _, want := range []error{jetstream.ErrKeyExists, jetstream.ErrKeyRevisionMismatch} {
		if err := c.mergeHistory(t.Context(), overtaken); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	for key, want := range map[string]string{ours: "quicker", next: "of the future"} {
		if e, err := bucket.Get(t.Context(), key); err != nil || string(e.Value()) != want {
			t.Errorf("%s: %v, %v", key, e, err)
		}
	}
}

// bucketWithGet has something done after each Get.
type bucketWithGet struct {
	jetstream.KeyValue
	after func(key string)
}

func (b bucketWithGet) Get(ctx context.Context, key string) (jetstream.KeyValueEntry, error) {
	defer b.after(key)
	return b.KeyValue.Get(ctx, key)
}

// TestHistoryWaitsForTime: what a console has put into slots by a clock that nobody else follows is
// in no record.
func TestHistoryWaitsForTime(t *testing.T) {
	c := newConsole(t, serverstest.JetStream(t).URL())
	bucket, worker := makeBucket(t, c), c.o.Worker.(*deskWorker)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	worker.err = errors.New("the time is not known yet")
	must(t, c.keepHistory(ctx))
	if _, err := bucket.Get(t.Context(), recordKey(history.Version)); !errors.Is(err, jetstream.ErrKeyNotFound) {
		t.Errorf("there is a record: %v", err)
	}
	worker.err = nil
	must(t, c.keepHistory(ctx))
	_, err := bucket.Get(t.Context(), recordKey(history.Version))
	must(t, err)
}

// makeBucket makes the bucket that the fleet's worker would make.
func makeBucket(t *testing.T, c *Console) jetstream.KeyValue {
	t.Helper()
	js, err := jetstream.New(c.o.Conn)
	must(t, err)
	bucket, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: natsmemory.Name("test")})
	must(t, err)
	return bucket
}

// TestNearKeysOfAll: the keys near their limits of all aggregators, the nearest first, each once;
// of one that is silent nothing.
func TestNearKeysOfAll(t *testing.T) {
	clock := &at{noon}
	p := newPicture(clock.now)
	says := func(name string, near ...status.Near) {
		p.aggregator(status.Aggregator{Part: status.Part{Name: name, Every: 1000}, Near: near})
	}
	says("silent", status.Near{Rule: "r", Key: "gone", Count: 99, Limit: 100})
	clock.pass(10 * time.Second)
	says("x", status.Near{Rule: "r", Key: "a", Count: 90, Limit: 100}, status.Near{Rule: "r", Key: "b", Count: 8, Limit: 10})
	says("y", status.Near{Rule: "r", Key: "a", Count: 85, Limit: 100}, status.Near{Rule: "s", Key: "a", Count: 12, Limit: 10})
	v := p.view()
	if got := fmt.Sprint(v.Near, v.Heard.Near); got != "[{s a 12 10} {r a 90 100} {r b 8 10}] 3" {
		t.Error(got)
	}
}

// TestTallyOfNearKeys: a key is near until a report of it says that it is not.
func TestTallyOfNearKeys(t *testing.T) {
	tally := NewTally()
	near := applied("r", 1, 9, 0)
	near.Near = append(near.Near, aggregate.Near{Key: 0, Count: 9})
	tally.Observe(near)
	var a status.Aggregator
	tally.fill(&a)
	if got := fmt.Sprint(a.Near); got != "[{r k 9 10}]" {
		t.Error(got)
	}
	tally.Observe(applied("r", 1, 1, 0))
	a = status.Aggregator{}
	if tally.fill(&a); len(a.Near) != 0 {
		t.Errorf("%+v", a.Near)
	}
}

// TestServesHistory: a page gets what its charts show, and a word about what it cannot have.
func TestServesHistory(t *testing.T) {
	c := newConsole(t, serverstest.JetStream(t).URL())
	h := c.Handler(http.NotFoundHandler())
	for path, want := range map[string]int{
		"/api/history?span=15m": 200, "/api/history?span=1h&rule=r": 200, "/api/history?span=24h": 200,
		"/api/history": 400, "/api/history?span=1y": 400,
		"/api/whatif?rule=r&limit=x": 400, "/api/whatif?rule=r&limit=5": 404,
		"/uplot/uPlot.min.css": 200, "/uplot/uPlot.iife.min.js": 200, "/uplot/LICENSE": 200,
	} {
		if got := ask(t, h, "GET", path, "", "", ""); got.Code != want {
			t.Errorf("%s: %d, want %d: %s", path, got.Code, want, got.Body)
		}
	}
}
