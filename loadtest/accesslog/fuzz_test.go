package accesslog

import (
	"bytes"
	"testing"
	"time"
)

// FuzzRead: whatever is read, every line that is not blank is an entry or refused, in order, and a
// plan holds every entry. Lines are limited, so that long ones come up as well.
func FuzzRead(f *testing.F) {
	data := sample(f)
	f.Add(data, uint16(1000))
	f.Add(data, uint16(100))
	f.Add(zip(f, data), uint16(500))
	for line := range bytes.Lines(data) {
		f.Add(line, uint16(300))
	}
	f.Add([]byte("\r\n\n \r"), uint16(0))
	f.Fuzz(func(t *testing.T, data []byte, limit uint16) {
		maxLine := 20 + int(limit) // a reader's buffer cannot be smaller
		log, err := read(bytes.NewReader(data), maxLine)
		want, plain := countLines(data, maxLine), !bytes.HasPrefix(data, gzipMagic)
		if plain && (log.Lines != want || (err == nil) != (len(log.Entries) > 0)) {
			t.Fatalf("%d lines with %d entries, want %d; error %v", log.Lines, len(log.Entries), want, err)
		}
		if len(log.Entries)+log.RefusedLines != log.Lines || len(log.Refused) != min(log.RefusedLines, MaxRefusals) {
			t.Fatalf("%d entries + %d refused (%d kept) of %d lines", len(log.Entries), log.RefusedLines, len(log.Refused), log.Lines)
		}
		line := 0
		for _, entry := range log.Entries {
			if entry.Line <= line || entry.Client == "" {
				t.Fatalf("after line %d: %+v", line, entry)
			}
			line = entry.Line
		}
		p, err := log.Plan(PlanOptions{Seed: 1, MaxGap: time.Second, Speed: 10})
		if err != nil {
			return
		}
		if len(p.Hits) != len(log.Entries) || p.Kept > p.Span {
			t.Fatalf("%d hits of %d entries, %v of %v", len(p.Hits), len(log.Entries), p.Kept, p.Span)
		}
		for i := 1; i < len(p.Hits); i++ {
			if gap := p.Hits[i].At - p.Hits[i-1].At; gap < 0 || gap > 100*time.Millisecond+1 {
				t.Fatalf("hit %d is %v after the one before", i, gap)
			}
		}
	})
}

// countLines counts the lines that are not blank, in another way than the reader. One that is too
// long is not blank.
func countLines(data []byte, maxLine int) int {
	count := 0
	for _, line := range bytes.Split(data, []byte("\n")) {
		line = bytes.TrimSuffix(line, []byte("\r"))
		if len(line) > maxLine || len(bytes.TrimSpace(line)) > 0 {
			count++
		}
	}
	return count
}
