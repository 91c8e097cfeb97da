package browsertest

import (
	_ "embed"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// searches writes a part of a key: the lists have only rows with it, until it is taken back.
func (b *tab) searches(t *testing.T) {
	t.Helper()
	rows := `[...document.querySelectorAll('#used tbody tr, #denied tbody tr, #rules tbody tr')].filter(r => !r.hidden && r.className !== 'empty')`
	do(t, b.ctx, chromedp.Focus(chromedp.CSS("#key")))
	b.press(t, kb.Escape)
	b.await(t, rows+`.length > 3`)
	b.press(t, "AMAR")
	b.await(t, rows+`.length > 0 && `+rows+`.every(r => r.textContent.includes('amara'))`)
	b.await(t, `/^\d+ rows? of the lists ha(s|ve) it$/.test(document.getElementById('found-rows').innerText)`)
	b.press(t, kb.Escape)
	b.await(t, rows+`.length > 3 && !document.getElementById('found-rows').innerText`)
}

// drawsHistory has the charts show each span, and one rule; and reads a value by keyboard.
func (b *tab) drawsHistory(t *testing.T) {
	t.Helper()
	summary := `document.getElementById('summary').innerText`
	for _, span := range []struct{ value, words string }{
		{"1h", "The last hour: "}, {"24h", "The last 24 hours: "}, {"15m", "The last 15 minutes: "},
	} {
		evaluate[bool](t, b, fmt.Sprintf(`(document.querySelector('#span [value="%s"]').click(), true)`, span.value))
		b.await(t, summary+fmt.Sprintf(`.startsWith(%q)`, span.words))
	}
	evaluate[bool](t, b, `([...document.querySelectorAll('#rules button.key')].find(e => e.textContent === 'per-user').click(), true)`)
	b.await(t, summary+`.startsWith('The last 15 minutes under per-user: ')`)
	evaluate[bool](t, b, `(() => {
		const select = document.getElementById('history-rule');
		select.value = '';
		select.dispatchEvent(new Event('change'));
		return true;
	})()`)
	b.await(t, summary+`.startsWith('The last 15 minutes: ')`)
	for _, chart := range []string{"rates", "shares"} {
		do(t, b.ctx, chromedp.Focus(chromedp.CSS("#chart-"+chart)), chromedp.KeyEvent(kb.ArrowLeft))
		b.await(t, fmt.Sprintf(`/^\d\d:\d\d:\d\d: (admitted|denied) /.test(document.getElementById('read-%s').innerText)`, chart))
	}
}

// saysWhatIf asks what another limit would have done, as soon as a minute is known.
func (b *tab) saysWhatIf(t *testing.T) {
	t.Helper()
	evaluate[bool](t, b, `(() => {
		document.getElementById('what-if').open = true;
		const rule = document.getElementById('what-if-rule'), limit = document.getElementById('what-if-limit');
		rule.value = 'per-user';
		rule.dispatchEvent(new Event('change'));
		limit.value = 2;
		limit.dispatchEvent(new Event('input')); // or the next view suggests a limit in its place
		return true;
	})()`)
	b.await(t, `(() => {
		if (!(performance.now() - window.asked < 5000)) { // the answer to the last click counts
			window.asked = performance.now();
			document.querySelector('#ask-what-if button').click();
		}
		return /^With 2 per day, about [\d,]+ of [\d,]+ hits \(.* %\) of the last \d+ min would have been denied, of \d+ of \d+ keys\./.test(document.getElementById('what-if-answer').innerText);
	})()`)
}

// changesRules compares a set with that in the bucket, which there is none of yet, and is told what
// is wrong with another one. This fleet's checkers have their rules in files.
func (b *tab) changesRules(t *testing.T) {
	t.Helper()
	compare := func(text, want string) {
		t.Helper()
		evaluate[bool](t, b, fmt.Sprintf(`(() => {
			document.getElementById('change-rules').open = true;
			document.getElementById('new-text').value = %q;
			document.querySelector('#new-rules button').click();
			return true;
		})()`, text))
		b.await(t, fmt.Sprintf(`document.getElementById('diff').innerText.includes(%q)`, want))
	}
	compare("rules:\n  - name: a\n    limt: 3/day\n", "refused: ")
	b.comparesLate(t, compare)
	b.await(t, `!document.getElementById('apply-rules').hidden`)
	b.pressOn(t, "#apply-rules")
	b.await(t, `document.getElementById('diff').innerText === 'Written as revision 1.'`)
	b.await(t, `document.getElementById('book').innerText.startsWith('Bucket revision 1, 2 rules')`)
	compare(strings.ReplaceAll(consoleRules, "9/day", "12/day"), "~ per-user changed")
	b.await(t, `document.querySelector('#diff del').innerText === '9/day' && document.querySelector('#diff ins').innerText === '12/day'`)
	b.await(t, `document.getElementById('audit').innerText.includes('revision 1, 2 rules changed')`)
}

// comparesLate has the answer to a comparison come after that to the next one, which stays.
func (b *tab) comparesLate(t *testing.T, compare func(text, want string)) {
	t.Helper()
	evaluate[bool](t, b, `(() => {
		const fetched = window.fetch;
		window.fetch = async (...request) => {
			window.fetch = fetched;
			const answer = await fetched(...request), value = await answer.json();
			await new Promise((go) => { window.release = go; });
			setTimeout(() => { window.late = 'has been read'; });
			return {ok: answer.ok, status: answer.status, json: async () => value};
		};
		document.getElementById('new-text').value = 'rules: [{name: late';
		document.querySelector('#new-rules button').click();
		return true;
	})()`)
	b.await(t, `!!window.release`)
	compare(consoleRules, "+ per-user added")
	evaluate[bool](t, b, `(window.release(), true)`)
	b.await(t, `!!window.late`)
	if got := evaluate[string](t, b, `document.getElementById('diff').innerText`); !strings.Contains(got, "+ per-user added") {
		t.Errorf("a late answer has taken the place of a newer one: %s", got)
	}
}

//go:embed testdata/axe/axe.min.js
var axe string

// isAccessible has axe-core look at the page, with all that can be unfolded unfolded.
func (b *tab) isAccessible(t *testing.T, when string) {
	t.Helper()
	// The page's policy lets no script in but its own; the driver's is not asked.
	evaluate[bool](t, b, axe+`;
		document.querySelectorAll('details').forEach((d) => { d.open = true; });
		window.axed = '';
		axe.run().then((r) => {
			window.axed = 'looked at ' + r.passes.length + ' rules' + r.violations.map((v) => '\n' + v.id + ': ' + v.help +
				v.nodes.map((n) => '\n  ' + n.html.slice(0, 200) + ' ' + n.failureSummary).join('')).join('');
		});
		true`)
	b.await(t, `!!window.axed`)
	switch found := evaluate[string](t, b, "window.axed"); {
	case strings.Contains(found, "\n"):
		t.Errorf("%s: %s", when, found)
	case strings.HasPrefix(found, "looked at 0 "):
		t.Errorf("%s: axe-core has not looked", when)
	}
	evaluate[bool](t, b, `(document.querySelectorAll('details').forEach((d) => { d.open = false; }), true)`)
}

// isReadWithoutColours says that the lines of a chart, and the samples in its legend, differ by
// more than their colours, which some readers do not see; and makes a picture of what they see.
func (b *tab) isReadWithoutColours(t *testing.T) {
	t.Helper()
	for _, chart := range []string{"rates", "shares"} {
		dashes := evaluate[[]string](t, b, fmt.Sprintf(
			`[...document.getElementById('chart-%s').parentElement.querySelectorAll('.swatch')].map((e) => getComputedStyle(e).strokeDasharray)`, chart))
		seen := map[string]bool{}
		for _, d := range dashes {
			seen[d] = true
		}
		if len(dashes) < 2 || len(seen) != len(dashes) {
			t.Errorf("%s: lines of %q", chart, dashes)
		}
	}
	for _, kind := range []emulation.SetEmulatedVisionDeficiencyType{
		emulation.SetEmulatedVisionDeficiencyTypeDeuteranopia, emulation.SetEmulatedVisionDeficiencyTypeAchromatopsia,
	} {
		call(t, b.ctx, emulation.SetEmulatedVisionDeficiency, emulation.SetEmulatedVisionDeficiencyParams{Type: kind})
		b.settle(t)
		b.screenshot(t, "console-"+string(kind))
	}
	call(t, b.ctx, emulation.SetEmulatedVisionDeficiency, emulation.SetEmulatedVisionDeficiencyParams{
		Type: emulation.SetEmulatedVisionDeficiencyTypeNone,
	})
}
