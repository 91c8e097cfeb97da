package merge

import (
	"slices"

	"github.com/offpath-io/offpath/pkg/aggregate/internal/queue"
	"github.com/offpath-io/offpath/pkg/aggregate/internal/wire"
	"github.com/offpath-io/offpath/pkg/aggregate/storage"
	"github.com/offpath-io/offpath/pkg/events"
)

// Report is a report that waits for its answer.
type Report struct {
	queue.Header
	// Message is the report; settlements that are to be ignored are nil.
	Message *events.Report
	// Own says that the aggregator itself made the report: it may give back hits that it has not
	// reported.
	Own bool
	// Repeated says that the report was counted before: only its totals are asked for.
	Repeated bool

	// Uncovered are the indices of settlements that give back more than their sender may.
	Uncovered []uint32
	// Overflow is the number of settlements for which the store has no room.
	Overflow int64

	rules []int32 // by rule of the message, its index in the batch, or none
	keys  []int32 // by key of the message, the same
}

// onlyReads says whether the report is an aggregator's own, which has no hits, and gives none back.
// It leaves no mark, so a batch of it alone changes nothing in the store.
func (r *Report) onlyReads() bool { return r.Own && len(r.Message.GetSettlements()) == 0 }

// none is in the place of a rule or key whose kind of hits this build does not know: it is neither
// counted nor answered.
const none = -1

// Reports merges reports, and keeps its memory for the next batch. One goroutine uses it at a time.
type Reports struct {
	tolerance int64 // how far in the future a bucket may start, in ns

	batch     storage.Batch
	rules     rules
	keys      keys
	settling  settling
	reports   []*Report     // by mark of the batch
	reporters []uint64      // by key of the batch, see Reporters
	unbooked  storage.Tally // of other hits than admitted ones; nobody reads it
	counts    []count
	cells     cells
	indices   []int32 // the reports' keys are slices of it
}

// NewReports returns a Reports that refuses hits of buckets that start more than tolerance
// nanoseconds in the future.
func NewReports(tolerance int64) *Reports {
	return &Reports{tolerance: tolerance, rules: newRules(), keys: newKeys(), settling: newSettling()}
}

// Forget makes the next batch one of new reports: no settlement of theirs is known to be spent.
func (b *Reports) Forget() { b.settling.forget() }

// Merge merges reports, all of one shard, at the fleet's time now: one delta for each key and
// bucket; late and refused hits go to the ledger. Repeated reports only bring their keys. The
// result, and what the reports know of it, are valid until the next call.
func (b *Reports) Merge(
	shard uint32, reports []*Report, seen storage.State, now int64,
) *storage.Batch {
	b.reset(shard, seen, now, reports)
	for _, r := range reports {
		m := r.Message
		b.batch.Made = max(b.batch.Made, min(m.GetMade(), now))
		if !r.Repeated && !r.onlyReads() {
			b.batch.Marks = append(b.batch.Marks, storage.Mark{Epoch: m.GetEpoch(), Sequence: m.GetSequence()})
			b.reports = append(b.reports, r)
		}
		b.addRules(r)
		b.findSettling(r)
		b.addKeys(r)
	}
	for _, r := range reports { // they may give back hits that any of these reports brings
		b.addSettlements(r)
	}
	b.cells.place(b.batch.Keys, b.counts)
	b.batch.Rules = b.rules.list
	return &b.batch
}

// Reporters says of each key of the last batch which checkers have reported it, by one of 64 bits
// for each checker: so a set of a few is hardly ever too small. It is valid until the next Merge.
func (b *Reports) Reporters() []uint64 { return b.reporters }

// Exclude takes in which reports and settlements of the last batch the store has not applied
// because they are not new, or not covered: the next Merge of the same reports leaves them out.
func (b *Reports) Exclude(applied *storage.Applied) {
	for _, i := range applied.Repeated {
		b.reports[i].Repeated = true
	}
	b.excludeSettlements(applied)
}

func (b *Reports) reset(shard uint32, seen storage.State, now int64, reports []*Report) {
	keys := 0
	for _, r := range reports {
		keys += r.Message.GetHits().Keys() + 2*len(r.Message.GetSettlements())
	}
	old := &b.batch
	b.batch = storage.Batch{
		Shard: shard, Now: now, Seen: seen,
		Settled: old.Settled[:0], Credits: old.Credits[:0], Permits: old.Permits[:0],
		Marks: old.Marks[:0], Ledger: old.Ledger[:0], Keys: old.Keys[:0],
	}
	b.reports, b.reporters, b.counts = b.reports[:0], b.reporters[:0], b.counts[:0]
	b.indices = slices.Grow(b.indices[:0], keys)
	b.rules.reset()
	b.keys.reset(keys)
	b.settling.reset()
}

// addRules finds the report's rules among the batch's, and adds its late hits.
func (b *Reports) addRules(r *Report) {
	r.rules = r.rules[:0]
	late := r.Message.GetLate()
	for i, m := range r.Message.GetHits().GetRules() {
		kind, known := wire.Kind(m)
		if !known {
			r.rules = append(r.rules, none)
			continue
		}
		rule := b.rule(m, kind)
		r.rules = append(r.rules, rule)
		if i < len(late) && !r.Repeated {
			t := b.tally(rule)
			t.Late = storage.Sum(t.Late, int64(late[i]))
		}
	}
}

func (b *Reports) rule(m *events.Rule, kind storage.Kind) int32 {
	rule := b.rules.add(m, kind)
	if len(b.batch.Ledger) < len(b.rules.list) {
		b.batch.Ledger = append(b.batch.Ledger, storage.Tally{})
	}
	return rule
}

func (b *Reports) key(rule int32, text string) int32 {
	key, isNew := b.keys.find(rule, text)
	if isNew {
		b.batch.Keys = append(b.batch.Keys, storage.Key{Rule: int(rule), Text: text})
		b.reporters = append(b.reporters, 0)
	}
	return key
}

// addKeys finds the report's keys among the batch's, and sorts its cells into counted, late and
// refused.
func (b *Reports) addKeys(r *Report) {
	table := r.Message.GetHits()
	text := string(table.GetKeyText()) // one copy, of which the batch's keys are parts
	ages, values := table.GetAge(), table.GetValue()
	from := len(b.indices)
	reporter := uint64(1) << (r.Epoch * 0x9e3779b97f4a7c15 >> 58) // the top six bits of a hash
	var at span
	for i, length := range table.GetKeyLength() {
		rule, key := r.rules[table.KeyRule[i]], int32(none)
		cells := table.KeyCells[i]
		if rule != none {
			if i == 0 || table.KeyRule[i] != table.KeyRule[i-1] {
				at = b.spanOf(rule, table.Rules[table.KeyRule[i]].GetNewest())
			}
			key = b.key(rule, text[:length])
			b.reporters[key] |= reporter
			b.addCells(r, key, &at, ages[:cells], values[:cells])
		}
		b.indices = append(b.indices, key)
		text, ages, values = text[length:], ages[cells:], values[cells:]
	}
	r.keys = b.indices[from:]
}

func (b *Reports) addCells(r *Report, key int32, at *span, ages []int64, values []uint64) {
	for j, age := range ages {
		hits := int64(values[j])
		counts := b.addHits(key, at, at.newest-age, hits, r.Repeated)
		if counts && b.settling.rules[at.rule] {
			c, _ := b.credit(events.CredentialOf(r.Epoch), at.rule, at.newest-age)
			c.Reported = min(storage.Sum(c.Reported, hits), storage.MaxCredit)
		}
	}
}

// span decides where the hits of one rule of one report go.
type span struct {
	rule        int32
	newest      int64 // bucket that the report's ages count from
	first, last int64 // buckets that are neither gone nor too far in the future
}

func (b *Reports) spanOf(rule int32, newest int64) span {
	s := b.rules.list[rule].Shape
	return span{
		rule:   rule,
		newest: newest,
		first:  s.Bucket(b.batch.Now) - int64(s.Live()) + 1,
		last:   s.Bucket(b.batch.Now + b.tolerance),
	}
}

// addHits adds n hits of a bucket to the counters or the ledger, and returns whether they count.
// Those of a repeated report were added before; its buckets are still asked for.
func (b *Reports) addHits(key int32, at *span, bucket, n int64, repeated bool) (counts bool) {
	ledger := b.tally(at.rule)
	switch {
	case bucket >= at.first && bucket <= at.last:
		if repeated || b.rules.list[at.rule].Kind == storage.Refunded { // only settlements refund
			n = 0
		}
		ledger.Counted = storage.Sum(ledger.Counted, n)
		b.counts = append(b.counts, count{key, storage.Cell{Bucket: bucket, Count: n}})
		return !repeated
	case repeated:
	case bucket < at.first:
		ledger.Late = storage.Sum(ledger.Late, n)
	default:
		ledger.Refused = storage.Sum(ledger.Refused, n)
	}
	return false
}

// tally is where the hits of a rule are booked: nowhere unless they are admitted ones.
func (b *Reports) tally(rule int32) *storage.Tally {
	if b.rules.list[rule].Kind != storage.Admitted {
		return &b.unbooked
	}
	return &b.batch.Ledger[rule]
}
