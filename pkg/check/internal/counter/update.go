package counter

import (
	"github.com/offpath-io/offpath/pkg/check/internal/forecast"
	"github.com/offpath-io/offpath/pkg/events"
	"github.com/offpath-io/offpath/pkg/window"
)

// Update is the part of an answer or an alarm about one key.
type Update struct {
	Fleet, Made int64 // when it came, and when the newest report in it was made
	Admitted    Totals
	Denied      Totals // empty if the message has none
	Refunded    Totals // the same
	Refunding   bool   // hits of the rule have been refunded, and the message may not have them
}

// Totals are one key's totals in a message.
type Totals struct {
	Newest int64
	Age    []int64
	Value  []uint64
	Level  window.Level // the settled level before all of them, of a token or leaky bucket
}

// net returns the message's hits of a bucket, less the refunds.
func (w Update) net(bucket int64) int64 {
	return max(w.Admitted.at(bucket)-w.Refunded.at(bucket), 0)
}

// at returns the total of a bucket.
func (t Totals) at(bucket int64) (total int64) {
	for i, age := range t.Age {
		if t.Newest-age == bucket {
			total = int64(t.Value[i])
		}
	}
	return total
}

// series returns the totals in the form that forecasts use.
func (t Totals) series() forecast.Series {
	return forecast.Series{Newest: t.Newest, Age: t.Age, Value: t.Value}
}

// EachTotals calls f for each key of a table whose hits are of this kind.
func EachTotals(t *events.Table, kind int, f func(rule uint32, key []byte, news Totals)) {
	text, age, value := t.KeyText, t.Age, t.Value
	for i, n := range t.KeyLength {
		rule, cells := t.KeyRule[i], t.KeyCells[i]
		if int(t.Rules[rule].Kind) == kind {
			news := Totals{Newest: t.Rules[rule].Newest, Age: age[:cells], Value: value[:cells]}
			if len(t.Level) > 0 {
				news.Level = window.Level{Bucket: news.Newest - t.LevelAge[i], Parts: int64(t.Level[i])}
			}
			f(rule, text[:n], news)
		}
		text, age, value = text[n:], age[cells:], value[cells:]
	}
}
