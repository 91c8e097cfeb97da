package browsertest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
	"github.com/offpath-io/offpath/loadtest/report"
	"github.com/offpath-io/offpath/loadtest/result"
)

var screens = []screen{
	{"desktop", 1280, 800, false},
	{"phone", 390, 844, true},
	{"small-phone", 360, 640, true},
}

// The page draws all its charts, and follows when the reader changes from light to dark; it makes
// no request, reports no error, and is never wider than the screen.
func TestPage(t *testing.T) {
	file, charts := pageToOpen(t)
	browser := startBrowser(t)
	for _, s := range screens {
		t.Run(s.name, func(t *testing.T) {
			b := openTab(t, browser, file, s)
			b.settle(t)
			if s := b.follows(t, s.name); charts > 0 && len(s.Charts) != charts {
				t.Errorf("the page has %d charts, want %d: %v", len(s.Charts), charts, s.Charts)
			}
		})
	}
}

// pageToOpen is the page that OFFPATH_PAGE names, with any number of charts (0), or a page of
// sample results.
func pageToOpen(t *testing.T) (file string, charts int) {
	t.Helper()
	file = os.Getenv("OFFPATH_PAGE")
	if file == "" {
		return samplePage(t), sampleCharts
	}
	if _, err := os.Stat(file); err != nil || !filepath.IsAbs(file) {
		t.Fatalf("OFFPATH_PAGE is %q, want the absolute path of a page: %v", file, err)
	}
	return file, 0
}

// sampleCharts is how many charts that page has: two runs have three, the simulated one has no
// latencies, and three are of the costs of all runs.
const sampleCharts = 3 + 3 + 2 + 3

func samplePage(t *testing.T) string {
	t.Helper()
	var page bytes.Buffer
	text, err := os.ReadFile("../report/testdata/sample.json")
	must(t, err)
	var f result.File
	must(t, json.Unmarshal(text, &f))
	must(t, report.HTML(&page, f))
	return writePage(t, page.Bytes())
}

func writePage(t *testing.T, text []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "page.html")
	must(t, os.WriteFile(file, text, 0o644))
	return file
}

// Charts follow the width, both ways, when a window is made smaller or a phone is turned; and those
// without a mouse can read a chart's values with the arrow keys.
func TestChartsFollowTheWidthAndTheKeys(t *testing.T) {
	b := openTab(t, startBrowser(t), samplePage(t), screens[0])
	b.settle(t)
	for _, width := range []int64{700, 1100} {
		b.resize(t, screen{"window", width, 800, false})
		b.settle(t)
	}
	for _, want := range []string{"5 ms: wrongly allowed 0.006 %, falsely denied 0.002 %", "10 ms: wrongly allowed 0.011 %, falsely denied 0.004 %"} {
		do(t, b.ctx, chromedp.Focus(chromedp.CSS("#run-1-sweep")), chromedp.KeyEvent(kb.ArrowRight))
		read := fmt.Sprintf("document.querySelector('[data-of=run-1-sweep]').textContent === %q", want)
		do(t, b.ctx, chromedp.Poll[chromedp.Void](read, chromedp.WithPollingTimeout(daemontest.Patience)))
	}
}

// The other tests are worth something only if the tab sees what is wrong, so here is a page on
// which everything is.
func TestTabSeesWhatIsWrong(t *testing.T) {
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer server.Close()
	page := strings.ReplaceAll(`<!doctype html><body style="margin:0">
		<div data-chart="latency" id="forgotten"></div>
		<figure>
			<ul class="legend"><li><span class="swatch" style="border-top: 3px solid rgb(10,102,194)"></span>offpath</li></ul>
			<div data-chart="timeline" data-drawn="true" id="blank"><canvas width="200" height="100"></canvas></div>
		</figure>
		<svg data-chart="cost" data-drawn="true" width="100"><rect class="length" width="0" height="8"/></svg>
		<div style="width: 3000px">wide</div>
		<img src="SERVER/picture.png" alt="">
		<script>
			fetch("SERVER/data.json").catch(() => {});
			console.error("something went wrong");
			throw new Error("nobody caught me");
		</script>`, "SERVER", server.URL)
	b := openTab(t, startBrowser(t), writePage(t, []byte(page)), screens[0])
	wanted := []string{
		"requested " + server.URL + "/picture.png",
		"requested " + server.URL + "/data.json",
		"something went wrong",
		"nobody caught me",
		"is 3000 wide on a screen of 1280",
		"does not say that it has drawn forgotten",
		"shows no canvas in forgotten",
		"shows no offpath in blank",
		"shows no picture of the chart's own width in blank",
		"shows no bar in cost",
	}
	daemontest.Until(t, "the tab sees it", func() string {
		list := strings.Join(b.complaints(b.look(t)), "\n")
		for _, want := range wanted {
			if !strings.Contains(list, want) {
				return fmt.Sprintf("no complaint says %q; there are %s", want, list)
			}
		}
		return ""
	})
	if n := asked.Load(); n != 0 {
		t.Errorf("%d requests left a tab that has no network", n)
	}
}
