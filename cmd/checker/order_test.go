package main

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/internal/testing/servers/serverstest"
	"github.com/offpath-io/offpath/pkg/check"
	"github.com/offpath-io/offpath/pkg/rules"
)

// orderOf is the revision that a checker's reports carry which takes its rules from a source.
func orderOf(t *testing.T, s source, err error) uint64 {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	newOne := func(set *rules.Set, revision uint64) (*check.Checker, error) {
		return check.New(check.Options{Rules: set, Revision: revision})
	}
	l := newLiving(slog.New(slog.DiscardHandler), newOne, func(*check.Checker) (doors, error) { return doors{door: http.NotFoundHandler()}, nil })
	w, err := s.start(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	ctx, cancel := context.WithTimeout(t.Context(), daemontest.Patience)
	defer cancel()
	select {
	case <-l.made:
	case <-ctx.Done():
		t.Fatal("no rules come")
	}
	return l.at.Load().checker.Revision()
}

// TestMovingBetweenFileAndBucket: while some checkers read the one and some the other, what was written later has the
// higher revision, and so is what aggregators go by; both ways, and however often the bucket has been written.
func TestMovingBetweenFileAndBucket(t *testing.T) {
	server := serverstest.JetStream(t)
	conn, err := nats.Connect(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	inBucketNow := func() uint64 {
		return orderOf(t, fromBucket(lifelineOn(t, conn)), nil)
	}
	path := writeFile(t, daily(1))
	fromFile := func(modified time.Time) uint64 {
		if err := os.Chtimes(path, time.Time{}, modified); err != nil {
			t.Fatal(err)
		}
		s, err := openFile(path)
		return orderOf(t, s, err)
	}

	file := fromFile(time.Now().Add(-time.Second))
	write := inBucket(t, server.URL())
	write(daily(2))
	bucket := inBucketNow()
	if bucket <= file {
		t.Errorf("from file to bucket: the file's %d, the bucket's %d", file, bucket)
	}
	if again := inBucketNow(); again != bucket {
		t.Errorf("two checkers with one set of the bucket: %d and %d", bucket, again)
	}
	if later := fromFile(time.Now().Add(time.Second)); later <= bucket {
		t.Errorf("from bucket to file: the bucket's %d, the file's %d", bucket, later)
	}
}
