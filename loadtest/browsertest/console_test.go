package browsertest

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
)

// nasty is a key that would run if it were taken for HTML.
const nasty = `<script>document.title="owned"</script><img src=x onerror='document.title="owned"'>`

const consoleRules = "rules:\n  - name: per-user\n    key: [user]\n    limit: 9/day\n  - name: everybody\n    key: []\n    limit: 100000/day\n"

// evaluate returns what an expression comes to on the page.
func evaluate[T any](t *testing.T, b *tab, expression string) T {
	t.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return value
}

// await waits until an expression is true on the page.
func (b *tab) await(t *testing.T, expression string) {
	t.Helper()
	daemontest.Until(t, expression, func() string {
		if evaluate[bool](t, b, expression) {
			return ""
		}
		return "the page: " + evaluate[string](t, b, "document.body.innerText")
	})
}

// shown are the rules that the page shows: admitted and denied.
func shown(t *testing.T, b *tab) map[string][2]int64 {
	t.Helper()
	rows := evaluate[[][]string](t, b, `[...document.querySelectorAll('#rules tbody tr:not(.empty)')].map(r => [0, 2, 3].map(i => r.cells[i].innerText))`)
	all := make(map[string][2]int64)
	for _, row := range rows {
		var both [2]int64
		for i := range both {
			n, err := strconv.ParseInt(strings.ReplaceAll(row[i+1], ",", ""), 10, 64)
			if err != nil {
				t.Fatalf("%q is no number: %v", row, err)
			}
			both[i] = n
		}
		all[row[0]] = both
	}
	return all
}

// The console shows what the checkers' metrics say, a nasty key as text, on all screens; and all of
// it can be used by keyboard: to look a key up, to block it at every checker, to let it go, and to
// reset its count.
func TestConsole(t *testing.T) {
	f := startFleet(t, consoleRules)
	b := openSite(t, startBrowser(t), f.consoles[0], screens[0])
	for i := range 60 { // with the page open; each key at one checker, so that no limit is exceeded
		f.ask(t, i%3%2, []string{nasty, "kristie", "amara"}[i%3])
	}

	b.await(t, `document.getElementById('live').dataset.state === 'live'`)
	daemontest.Until(t, "the page shows the metrics", func() string {
		want, got := f.decisions(t), shown(t, b)
		if fmt.Sprint(got) == fmt.Sprint(want) && want["per-user"][1] > 0 && want["everybody"][0] > 0 {
			return ""
		}
		return fmt.Sprintf("the page shows %v, and the metrics are %v", got, want)
	})
	if got := evaluate[string](t, b, `['checkers', 'aggregators'].map(k => document.getElementById('total-' + k).innerText).join()`); got != "2,2" {
		t.Errorf("checkers and aggregators: %s", got)
	}

	quoted := strconv.Quote(nasty)
	for _, table := range []string{"used", "denied"} {
		b.await(t, fmt.Sprintf(`[...document.querySelectorAll('#%s .text')].some(e => e.textContent === %s)`, table, quoted))
	}
	b.await(t, `document.querySelectorAll('#near tbody tr:not(.empty)').length > 0`) // who is denied has used its limit
	b.await(t, `document.getElementById('verdict').dataset.state === 'good' &&
		/^All limits hold. \d+ keys? (is|are) being limited\./.test(document.getElementById('verdict-text').innerText)`)
	b.isUnharmed(t)

	b.useByKeyboard(t, f)
	b.isUnharmed(t)
	b.keepsFocus(t)
	b.looksUpOddKeys(t, f)
	b.searches(t)
	b.drawsHistory(t)
	b.saysWhatIf(t)
	b.changesRules(t)
	for _, s := range screens {
		b.resize(t, s)
		b.follows(t, "console-"+s.name)
		for _, scheme := range []string{"dark", "light"} {
			b.scheme(t, scheme)
			b.isAccessible(t, s.name+", "+scheme)
		}
	}
	b.resize(t, screens[0])
	b.isReadWithoutColours(t)
}

// isUnharmed says that no key has become part of the page.
func (b *tab) isUnharmed(t *testing.T) {
	t.Helper()
	if got := evaluate[string](t, b, `[document.title, document.scripts.length, document.images.length].join()`); got != "offpath,2,0" {
		t.Errorf("title, scripts and images: %s", got)
	}
}

// press lets keys go to what has the focus.
func (b *tab) press(t *testing.T, keys string) {
	t.Helper()
	do(t, b.ctx, chromedp.KeyEvent(keys))
}

// pressOn gives something the focus and presses Enter.
func (b *tab) pressOn(t *testing.T, selector string) {
	t.Helper()
	b.await(t, fmt.Sprintf(`!!document.querySelector(%q) && !document.querySelector(%q).disabled`, selector, selector))
	do(t, b.ctx, chromedp.Focus(chromedp.CSS(selector)), chromedp.KeyEvent(kb.Enter))
}

func (b *tab) useByKeyboard(t *testing.T, f *fleet) {
	t.Helper()
	b.press(t, "/")
	b.await(t, `document.activeElement.id === 'key'`)
	b.press(t, kb.Escape) // the driver sends a letter after the key, whatever the page says to it
	b.press(t, nasty)
	b.press(t, kb.Enter)
	b.await(t, `document.querySelectorAll('#found .card').length === 1`)
	card := evaluate[string](t, b, `document.querySelector('#found .card').innerText`)
	if !strings.Contains(card, nasty) || !strings.Contains(card, "of 9 (9 per day)") || !strings.Contains(card, "0 left") {
		t.Errorf("the key: %s", card)
	}
	if !evaluate[bool](t, b, `document.querySelector('#found form').hidden`) {
		t.Error("who has not signed in is offered to change something")
	}
	b.pressOn(t, "#sign-in summary")
	do(t, b.ctx, chromedp.Focus(chromedp.CSS("#token")))
	b.press(t, fleetToken)
	b.press(t, kb.Enter)
	b.await(t, `document.getElementById('access').innerText.includes('kristie')`)

	// The key of a caller who has room.
	do(t, b.ctx, chromedp.Focus(chromedp.CSS("#rule")), chromedp.KeyEvent("p"))
	b.await(t, `document.getElementById('rule').value === 'per-user'`)
	b.looksUp(t, "/innocent") // no key event of the page's while one writes
	b.blocks(t, f, "/innocent")
	b.pressOn(t, "#found [data-what=unblock]")
	awaitAll(t, f, "/innocent", true)
	b.await(t, `document.querySelectorAll('#blocks .empty').length === 1`)

	b.looksUp(t, "kristie")
	b.pressOn(t, "#found [data-what=reset]")
	b.await(t, `document.querySelector('#found [data-what=reset]').innerText === 'Press again to reset'`)
	b.pressOn(t, "#found [data-what=reset]")
	b.await(t, `document.querySelector('#found .card').innerText.includes('count 0 of 9')`)
	b.await(t, `['block', 'unblock', 'reset'].every(w => document.getElementById('audit').innerText.includes(w + ' '))`)
	if !f.ask(t, 0, "kristie") {
		t.Error("denied after the reset")
	}
}

// looksUp writes a key over the one before, and waits for its card.
func (b *tab) looksUp(t *testing.T, key string) {
	t.Helper()
	do(t, b.ctx, chromedp.Focus(chromedp.CSS("#key")))
	b.press(t, kb.Escape)
	b.press(t, key)
	b.press(t, kb.Enter)
	b.await(t, fmt.Sprintf(`!!document.querySelector('#found .card h3')?.innerText.startsWith(%q)`, key))
}

// blocks presses the button: the page says so, every checker denies the key, and the page lists it.
// How long the checkers took is a line of the log, since it depends on the machine.
func (b *tab) blocks(t *testing.T, f *fleet, key string) {
	t.Helper()
	b.pressOn(t, "#found [data-what=block]")
	b.await(t, `document.getElementById('message').innerText === 'Blocked.'`)
	begin := time.Now()
	awaitAll(t, f, key, false)
	t.Logf("blocked at every checker %v after the page said so", time.Since(begin).Round(time.Millisecond))
	b.await(t, fmt.Sprintf(`document.querySelectorAll('#blocks tbody tr').length === 1 &&
		document.getElementById('blocks').innerText.includes(%q)`, key))
	b.await(t, `!!document.querySelector('#found [data-what=unblock]')`)
}

// awaitAll waits until every checker lets the key pass, or none does.
func awaitAll(t *testing.T, f *fleet, key string, pass bool) {
	t.Helper()
	daemontest.Eventually(t, fmt.Sprintf("pass %v at every checker", pass), func() bool {
		for api := range f.apis {
			if f.ask(t, api, key) != pass {
				return false
			}
		}
		return true
	})
}

// keepsFocus moves rows, as happens all the time in a list of the busiest: what has the focus is
// moved with its row, and keeps it.
func (b *tab) keepsFocus(t *testing.T) {
	t.Helper()
	evaluate[bool](t, b, `(import('./console.js').then(({show, view}) => {
		const before = document.querySelector('#used button.key');
		before.focus();
		show({...view, used: [...view.used].reverse()});
		window.kept = document.activeElement === before && before.closest('tr').rowIndex > 1 ? 'kept' : 'lost';
	}), true)`)
	b.await(t, `!!window.kept`)
	if kept := evaluate[string](t, b, "window.kept"); kept != "kept" {
		t.Error("the focus was lost when its row was moved")
	}
}

// looksUpOddKeys follows keys from the list of the busiest: a form's field would lose a line break,
// or take a key for bytes. What cannot be seen is shown.
func (b *tab) looksUpOddKeys(t *testing.T, f *fleet) {
	t.Helper()
	for key, seen := range map[string]string{
		"two\nlines": `two\u{a}lines`, "base64:QUJD": "base64:QUJD", "evil\u202egnp.exe": `evil\u{202e}gnp.exe`, "👩\u200d🚀 ünï": "👩\u200d🚀 ünï",
	} {
		for range 3 {
			f.ask(t, 0, key)
		}
		button := fmt.Sprintf(`[...document.querySelectorAll('#used button.key')].find(e => e.querySelector('.text').textContent === %s)`, strconv.Quote(seen))
		b.await(t, "!!"+button)
		evaluate[bool](t, b, "("+button+".click(), true)")
		b.await(t, fmt.Sprintf(`(t => t.includes(%s) && /count [1-9]/.test(t))(document.querySelector('#found .card')?.innerText || '')`, strconv.Quote(seen)))
	}
}
