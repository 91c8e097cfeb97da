package decisionlog

import (
	"encoding/json"
	"time"
)

// Entry is what became of one key under one rule within about a second, as a line of JSON has it.
type Entry struct {
	// Time is when the first of the denials was noted, Until when they were added up: both by the
	// checker's own clock.
	Time  time.Time `json:"time"`
	Until time.Time `json:"until"`
	// Checker has turned away.
	Checker string `json:"checker"`
	// Rule is the name of the counter that was full: the rule's, or with an override's after it.
	Rule string `json:"rule"`
	// Key is who was turned away, as the rule makes keys; Hashed says that it is the hash of that.
	Key    string `json:"key"`
	Hashed bool   `json:"hashed,omitempty"`
	// Count is how many decisions were denials.
	Count int64 `json:"count"`
	// Limit is the rule's when the line was written, 0 if it is not known.
	Limit int64 `json:"limit,omitempty"`
	// Sample is the part of denials that are written: there were about Count ÷ Sample.
	Sample float64 `json:"sample,omitempty"`
}

// line is an entry as it is kept and written.
type line struct {
	text  []byte // without a line break
	count int64
}

func (l *Log) entry(of id, t *tally, now time.Time) line {
	e := Entry{
		Time: t.first.UTC(), Until: now.UTC(), Checker: l.o.Checker,
		Rule: of.rule, Key: of.key, Hashed: l.o.Hashed, Count: t.count,
	}
	if l.o.Limit != nil {
		e.Limit = l.o.Limit(of.rule)
	}
	if l.o.Sample < 1 {
		e.Sample = l.o.Sample
	}
	text, err := json.Marshal(e)
	if err != nil {
		panic("decisionlog: " + err.Error()) // unreachable: all of it can be written
	}
	return line{text, t.count}
}
