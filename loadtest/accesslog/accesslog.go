// Package accesslog reads the access logs of web servers, so that a load test can replay real
// traffic.
//
// [Read] takes Common and Combined Log Format, as Apache and nginx write them, plain or gzipped:
//
//	192.0.2.7 - kristie [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 512 "referer" "user agent"
//
// A line needs a client, a time, a request that begins and ends, a status and a size. What follows
// is ignored, so that a line cut within its user agent is still an entry. [Log.Plan] turns the
// entries into a plan of hits.
package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"
	"unique"
)

const (
	// MaxLine is how long a line may be, in bytes, its end not counted. Longer ones are refused.
	MaxLine = 1 << 20
	// MaxRefusals is how many refused lines a Log keeps; all of them are counted.
	MaxRefusals = 20
	// MaxText is how much of a refused line is kept, in bytes.
	MaxText = 120
)

// Log is what an access log says. It is not changed by its methods, and may be read concurrently.
type Log struct {
	Entries []Entry // in the file's order, which need not be that of time
	// Refused are the first lines that are no entries, at most MaxRefusals; RefusedLines counts
	// all.
	Refused      []Refusal
	RefusedLines int
	// Lines are those that are not blank: each is an entry or refused.
	Lines int
}

// Entry is one request.
type Entry struct {
	Time   time.Time // in UTC, whole seconds
	Client string    // an address or a host name, as it was logged; never ""
	Line   int       // in the file, from 1, blank lines counted
}

// Refusal is a line that is no entry.
type Refusal struct {
	Line   int
	Reason string
	// Text is the line's beginning, at most MaxText bytes, with anything in it.
	Text string
}

// String returns the refusal in one line that is safe to print.
func (r Refusal) String() string { return fmt.Sprintf("line %d: %s: %q", r.Line, r.Reason, r.Text) }

// Read returns what a log says. It reads line by line, and keeps only the entries. An error means
// that reading failed, and the Log holds what came before; or that no line at all is an entry.
func Read(r io.Reader) (Log, error) { return read(r, MaxLine) }

func read(r io.Reader, maxLine int) (Log, error) {
	in, err := newLines(r, maxLine)
	if err != nil {
		return Log{}, fmt.Errorf("read log: %w", err)
	}
	var log Log
	for {
		line, whole, err := in.next()
		if errors.Is(err, io.EOF) {
			return log, log.check()
		}
		if err != nil {
			return log, fmt.Errorf("read log: line %d: %w", in.number, err)
		}
		log.add(in, line, whole)
	}
}

// add takes in the line that came last, or ignores it if it is blank. A line that is not whole is
// too long.
func (l *Log) add(in *lines, line []byte, whole bool) {
	if whole && len(bytes.TrimSpace(line)) == 0 {
		return
	}
	l.Lines++
	if !whole {
		l.refuse(in.number, line, fmt.Sprintf("longer than %d bytes", in.limit))
		return
	}
	entry, err := parse(string(line))
	if err != nil {
		l.refuse(in.number, line, err.Error())
		return
	}
	entry.Line = in.number
	// As a part of the line it would keep the whole line in memory, and most clients come again.
	entry.Client = unique.Make(entry.Client).Value()
	l.Entries = append(l.Entries, entry)
}

func (l *Log) refuse(number int, line []byte, reason string) {
	l.RefusedLines++
	if len(l.Refused) < MaxRefusals {
		l.Refused = append(l.Refused, Refusal{number, reason, string(line[:min(len(line), MaxText)])})
	}
}

// check refuses a log without entries: it is most likely a file of another kind.
func (l *Log) check() error {
	switch {
	case len(l.Entries) > 0:
		return nil
	case l.Lines == 0:
		return errors.New("read log: it is empty")
	}
	return fmt.Errorf("read log: none of its %d lines is in Common or Combined Log Format: %v",
		l.Lines, l.Refused[0])
}
