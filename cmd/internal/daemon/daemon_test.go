package daemon

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
)

// diary notes what happens, in order.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) note(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, line)
}

// part runs until it is told to stop, and then takes its time.
func (d *diary) part(name string, takes time.Duration) Part {
	return Part{Name: name, Run: func(ctx context.Context) error {
		<-ctx.Done()
		d.note(name + " stops")
		timer := time.NewTimer(takes)
		defer timer.Stop()
		<-timer.C
		d.note(name + " has stopped")
		return nil
	}}
}

var must = daemontest.Must

var quiet = slog.New(slog.DiscardHandler)

// TestPartsStopOneAfterTheOther, the last first.
func TestPartsStopOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		must(t, Run(ctx, quiet, d.part("worker", 0), d.part("checker", time.Second), d.part("server", time.Minute)))
		want := []string{
			"server stops", "server has stopped", "checker stops", "checker has stopped", "worker stops", "worker has stopped",
		}
		if !slices.Equal(d.lines, want) {
			t.Errorf("got  %q\nwant %q", d.lines, want)
		}
	})
}

// TestAPartThatFailsStopsTheRest: an error, or an end without one, ends the daemon with an error
// that names the part.
func TestAPartThatFailsStopsTheRest(t *testing.T) {
	trouble := errors.New("trouble")
	for _, test := range []struct {
		name string
		run  func(context.Context) error
		want string
	}{
		{"with an error", func(context.Context) error { return trouble }, "bad: trouble"},
		{"without a word", func(context.Context) error { return nil }, "bad: ended unasked"},
		{"while it stops", func(ctx context.Context) error { <-ctx.Done(); return trouble }, "bad: trouble"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var d diary
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			err := Run(ctx, quiet, d.part("first", 0), Part{"bad", test.run}, d.part("last", 0))
			if err == nil || err.Error() != test.want {
				t.Errorf("%s: error %v, want %q", test.name, err, test.want)
			}
			if !slices.Contains(d.lines, "first has stopped") || !slices.Contains(d.lines, "last has stopped") {
				t.Errorf("%s: the others did not stop: %q", test.name, d.lines)
			}
		})
	}
}

// TestListenSaysWhere it could not, and where it does if it does everywhere.
func TestListenSaysWhere(t *testing.T) {
	listener, err := Listen("127.0.0.1:0")
	must(t, err)
	defer listener.Close()
	address := listener.Addr().String()
	if _, err := Listen(address); err == nil || !strings.Contains(err.Error(), "listen on "+address) {
		t.Errorf("a busy port: %v", err)
	}
	wide, err := Listen(":0")
	must(t, err)
	defer wide.Close()
	if url := URL(wide); !strings.HasPrefix(url, "http://127.0.0.1:") {
		t.Errorf("URL of every address: %s", url)
	}
}

func TestParseOrigins(t *testing.T) {
	for text, want := range map[string]Origins{
		"https://Ops.example": "https://ops.example", "*": "*", "http://a:80, https://b": "http://a:80,https://b",
		"": "", "a": "", "null": "", "https://a/": "", "https://a/b": "", "https://u@a": "", "https://a,": "", "https://a?": "", "//a": "",
	} {
		if got, err := parseOrigins(text); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}
