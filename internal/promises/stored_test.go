package promises

import (
	"encoding/json"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/offpath-io/offpath/internal/servers/serverstest"
	"github.com/offpath-io/offpath/pkg/aggregate"
	"github.com/offpath-io/offpath/pkg/aggregate/redisstore"
)

func openStore(t *testing.T, url string) *redisstore.Store {
	t.Helper()
	store, err := redisstore.Open(redisstore.Options{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// foundIn reads what was found. Columns of the ledger that a release does not know are 0.
func foundIn(t *testing.T, text []byte) (f Found) {
	t.Helper()
	if err := json.Unmarshal(text, &f); err != nil {
		t.Fatal(err)
	}
	return f
}

// What a release has left in Redis counts on: totals, marks, permits, the ledger and the number of shards.
func TestDataOfReleasesCountsOn(t *testing.T) {
	recordings(t, "redis.txt", func(t *testing.T, files []string) {
		url := serverstest.Redis(t).URL()
		dump := strings.Split(strings.TrimSpace(string(read(t, files[0]))), "\n")
		if err := Restore(t.Context(), url, dump); err != nil {
			t.Fatal(err)
		}
		store := openStore(t, url)
		found, err := Find(t.Context(), store, store.Ledger)
		if err != nil {
			t.Fatal(err)
		}
		got, want := foundIn(t, found), foundIn(t, read(t, filepath.Join(filepath.Dir(files[0]), "redis.json")))
		if !reflect.DeepEqual(got, want) || len(want.Totals) != len(shapes)*len(texts) {
			t.Errorf("found %+v\nwas   %+v", got, want)
		}

		for i, mark := range marks {
			again, err := store.Apply(t.Context(), fold(1, mark))
			if err != nil || !slices.Equal(again.Repeated, []int{0}) {
				t.Errorf("the report %d is counted once more: %v, %v", i, again.Repeated, err)
			}
		}
		next := aggregate.Mark{Epoch: marks[0].Epoch, Sequence: marks[0].Sequence + 1}
		more, err := store.Apply(t.Context(), fold(1, next))
		if err != nil || len(more.Repeated) > 0 || len(more.Totals[0]) != 2 || more.Totals[0][1].Count != 5*1 {
			t.Errorf("a hit after those 4: %+v, %v", more, err)
		}
	})
}

var (
	generation = regexp.MustCompile(`"generation" "\d+"`)
	expiry     = regexp.MustCompile(`^("PEXPIRE" .*) "\d+"$`)
)

// timeless is a dump without what depends on when it was made.
func timeless(dump []string) []string {
	var lines []string
	for _, line := range dump {
		lines = append(lines, generation.ReplaceAllString(expiry.ReplaceAllString(strings.TrimSpace(line), "$1"), `"generation"`))
	}
	return lines
}

// This build counts the same hits where the release does: aggregators of both can work on one Redis, and one can go back.
func TestReleasesReadData(t *testing.T) {
	url := serverstest.Redis(t).URL()
	if err := Count(t.Context(), openStore(t, url)); err != nil {
		t.Fatal(err)
	}
	got, err := Dump(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	recordings(t, "redis.txt", func(t *testing.T, files []string) {
		want := strings.Split(strings.TrimSpace(string(read(t, files[0]))), "\n")
		if g, w := timeless(got), timeless(want); !slices.Equal(g, w) {
			t.Errorf("in Redis is\n%s\nwas\n%s", strings.Join(g, "\n"), strings.Join(w, "\n"))
		}
	})
}
