package shares

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const second = int64(time.Second)

// anyPool is of rates or a stock.
func anyPool(t *rapid.T, stock bool) Pool {
	p := Pool{Span: 5 * time.Second, Stock: stock, Ahead: float64(rapid.IntRange(0, 2000).Draw(t, "ahead")), Burst: 0.125}
	if stock {
		p.Now = math.Floor(p.Ahead * rapid.Float64Range(0, 1).Draw(t, "now"))
	}
	return p
}

func TestRatesNeverExceedThePool(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l Ledger
		var all []*Holder
		now := int64(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += rapid.Int64Range(0, 3*second).Draw(t, "later")
			switch k := rapid.IntRange(0, 9).Draw(t, "what"); {
			case len(all) == 0 || k == 0:
				all = append(all, l.Join(now, nil, ""))
			case k == 1:
				i := rapid.IntRange(0, len(all)-1).Draw(t, "who leaves")
				l.Leave(all[i], rapid.Bool().Draw(t, "gave back"))
				all = append(all[:i], all[i+1:]...)
				continue
			}
			h := all[rapid.IntRange(0, len(all)-1).Draw(t, "who")]
			l.Demand(h, float64(rapid.IntRange(0, 5000).Draw(t, "hits")), time.Duration(rapid.IntRange(0, 5).Draw(t, "over"))*time.Second)
			p, gone := anyPool(t, false), 0.0
			l.Give(now, h, p, now+30*second)
			for _, g := range l.left {
				gone += g.holds()
			}
			sum := gone
			for _, h := range all {
				sum += h.Grant.Rate * 5
			}
			if sum > max(p.Ahead, gone)*(1+1e-9)+1e-6 {
				t.Fatalf("rates come to %v of %v, with %v of those who have gone", sum, p.Ahead, gone)
			}
			if math.Abs(sum-l.Held()) > 1e-6 {
				t.Fatalf("rates come to %v, and the ledger has %v", sum, l.Held())
			}
		}
	})
}

// A limit that frees nothing: however holders come, report, and go, all that they spend is never
// more than the limit.
func TestStockIsNeverSpentTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type spender struct {
			*Holder
			left, spent int64 // of its grant; not reported
		}
		var l Ledger
		limit := rapid.Int64Range(0, 300).Draw(t, "limit")
		counted, all := int64(0), []*spender{}
		now, gone := int64(0), int64(0)
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			now += rapid.Int64Range(0, 2*second).Draw(t, "later")
			k := rapid.IntRange(0, 9).Draw(t, "what")
			if len(all) == 0 || k == 0 {
				all = append(all, &spender{Holder: l.Join(now, nil, "")})
			}
			i := rapid.IntRange(0, len(all)-1).Draw(t, "who")
			s := all[i]
			spend := min(s.left, rapid.Int64Range(0, 50).Draw(t, "hits"))
			s.left, s.spent = s.left-spend, s.spent+spend
			switch {
			case k == 1: // its connection breaks: what it spent is never heard of, and it goes on until its grant ends
				gone += s.spent + s.left
				l.Leave(s.Holder, false)
				all = append(all[:i], all[i+1:]...)
			case k < 6: // it reports
				counted += s.spent
				l.Demand(s.Holder, float64(s.spent), time.Second)
				room := float64(limit - counted)
				l.Give(now, s.Holder, Pool{Span: 5 * time.Second, Stock: true, Now: room, Ahead: room}, math.MaxInt64)
				s.left, s.spent = s.Grant.Burst, 0
				if s.Grant.Rate > 1e-9 {
					t.Fatalf("nothing is freed, and the grant is %+v", s.Grant)
				}
			}
			total := counted + gone
			for _, s := range all {
				total += s.spent + s.left
			}
			if total > limit {
				t.Fatalf("%d are spent or may be, of %d", total, limit)
			}
		}
	})
}

func TestWhoComesGetsSomethingAtOnce(t *testing.T) {
	for _, stock := range []bool{false, true} {
		var l Ledger
		p := Pool{Span: 5 * time.Second, Stock: stock, Now: 100, Ahead: 100, Burst: 0.125, Expected: 20}
		now := int64(0)
		var all []*Holder
		for i := range 20 {
			h := l.Join(now, i, "")
			if l.Give(now, h, p, math.MaxInt64); h.Grant.None() {
				t.Errorf("stock %v: holder %d gets nothing", stock, i)
			}
			all = append(all, h)
			for range 2 {
				now += 5 * second
				for _, h := range all {
					l.Demand(h, 1000, 5*time.Second)
					l.Give(now, h, p, math.MaxInt64)
				}
			}
		}
	}
}

func TestWhatIsLeftEndsInTime(t *testing.T) {
	var l Ledger
	p := Pool{Span: 5 * time.Second, Stock: true, Now: 32, Ahead: 32}
	a := l.Join(0, "a", "")
	l.Give(0, a, p, 30*second)
	l.Leave(a, false)
	b := l.Join(0, "b", "")
	if l.Give(29*second, b, p, 60*second); b.Grant.Burst != 1 {
		t.Errorf("a may still spend 31 of 32, and b gets %+v", b.Grant)
	}
	if l.Give(30*second, b, p, 60*second); b.Grant.Burst != 31 {
		t.Errorf("what a had is over, and b gets %+v", b.Grant)
	}
	l.Leave(b, true)
	if !l.Empty(30 * second) {
		t.Error("what b gave back is still held")
	}
}

func TestWhoComesBackHasWhatItHad(t *testing.T) {
	for _, stock := range []bool{false, true} {
		var l Ledger
		p := Pool{Span: 5 * time.Second, Stock: stock, Now: 100, Ahead: 100, Burst: 0.25}
		a := l.Join(0, "a", "here")
		l.Demand(a, 400, 5*time.Second)
		l.Give(0, a, p, 30*second)
		held := a.held
		l.Leave(a, false)
		if b := l.Join(second, "b", "there"); b.held != 0 {
			t.Errorf("stock %v: somebody else has %v", stock, b.held)
		}
		if c := l.Join(second, "c", "here"); c.held != held || c.rate != a.rate || c.Owner != "c" || math.Abs(l.Held()-held) > 1e-9 {
			t.Errorf("stock %v: who comes back has %v of %v, and the ledger %v", stock, c.held, held, l.Held())
		}
		if d := l.Join(second, "d", "here"); d.held != 0 {
			t.Errorf("stock %v: there was one lease, and a second one comes back with %v", stock, d.held)
		}
	}
	var l Ledger
	a := l.Join(0, "a", "here")
	l.Give(0, a, Pool{Span: time.Second, Ahead: 100, Burst: 0.25}, 30*second)
	l.Leave(a, false)
	b := l.Join(second, "b", "there")
	if l.Give(second, b, Pool{Span: time.Second, Ahead: 100, Burst: 0.25}, 60*second); b.Grant.None() {
		t.Error("one who had all has gone, and who comes gets nothing")
	}
	if late := l.Join(30*second, "c", "here"); late.held != 0 {
		t.Error("what had ended came back")
	}
}

func TestManyNeverHoldMoreThanThePool(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l Ledger
		all := make([]*Holder, rapid.IntRange(few+1, 3*few).Draw(t, "holders"))
		for i := range all {
			all[i] = l.Join(0, i, "")
		}
		now := int64(0)
		for range rapid.IntRange(1, 300).Draw(t, "reports") {
			now += rapid.Int64Range(0, second/10).Draw(t, "later")
			h := all[rapid.IntRange(0, len(all)-1).Draw(t, "who")]
			l.Demand(h, float64(rapid.IntRange(0, 5000).Draw(t, "hits")), time.Second)
			l.Give(now, h, Pool{Span: time.Second, Ahead: 100, Burst: 0.25}, math.MaxInt64)
			if l.Held() > 100*(1+1e-9) {
				t.Fatalf("all hold %v of 100", l.Held())
			}
		}
	})
}
