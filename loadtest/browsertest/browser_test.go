package browsertest

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/offpath-io/offpath/internal/testing/daemontest"
)

// browsers are the names under which a Chromium may be found; scripts/need.sh looks for the same.
var browsers = []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"}

// startBrowser starts a headless Chromium that ends with the test.
func startBrowser(t *testing.T) context.Context {
	t.Helper()
	path := ""
	for _, name := range browsers {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		t.Fatalf("none of %s is in PATH: run scripts/need.sh chromium, which installs Chromium or says how", strings.Join(browsers, ", "))
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(path))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // Chromium refuses to start with one as root
	}
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	do(t, ctx)
	return ctx
}

// A screen is what a page is shown on.
type screen struct {
	name          string
	width, height int64
	phone         bool
}

// A tab shows one page, without a network, and writes down what the page must not do.
type tab struct {
	ctx     context.Context
	address string
	origin  string // of a page that may ask where it is from; else ""
	width   int64

	mu       sync.Mutex
	offences []string // requests and errors, as they came
}

// openTab opens a local file.
func openTab(t *testing.T, browser context.Context, file string, s screen) *tab {
	t.Helper()
	b := newTab(t, browser, (&url.URL{Scheme: "file", Path: filepath.ToSlash(file)}).String(), "")
	call(t, b.ctx, emulateNetwork, networkParams{
		Offline: true, Conditions: []networkConditions{{Offline: true, Download: -1, Upload: -1}},
	})
	b.show(t, s)
	return b
}

// openSite opens a page that is served, which may ask for what is there, too, and for nothing else.
func openSite(t *testing.T, browser context.Context, origin string, s screen) *tab {
	t.Helper()
	b := newTab(t, browser, origin+"/", origin+"/")
	b.show(t, s)
	return b
}

// emulateNetwork is Network.emulateNetworkConditionsByRule, to which Chromium has to be told that
// there is no network of the tab before some version after 148, and of each condition since.
var emulateNetwork = cdp.Command[networkParams, cdp.Empty]{Method: network.CommandEmulateNetworkConditionsByRule}

type networkParams struct {
	Offline    bool                `json:"offline"`
	Conditions []networkConditions `json:"matchedNetworkConditions"`
}

type networkConditions struct {
	Pattern  string  `json:"urlPattern"`
	Offline  bool    `json:"offline"`
	Latency  float64 `json:"latency"`
	Download float64 `json:"downloadThroughput"`
	Upload   float64 `json:"uploadThroughput"`
}

func newTab(t *testing.T, browser context.Context, address, origin string) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser)
	t.Cleanup(cancel)
	b := &tab{ctx: ctx, address: address, origin: origin}
	must(t, chromedp.Listen(ctx, b.watch))
	call(t, ctx, network.Enable, network.EnableParams{})
	return b
}

func (b *tab) show(t *testing.T, s screen) {
	t.Helper()
	b.resize(t, s)
	b.scheme(t, "light")
	do(t, b.ctx, chromedp.Navigate(b.address))
}

// watch notes requests for anything but the page itself, and errors of all kinds.
func (b *tab) watch(event any) {
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		if u := e.Request.URL; u != b.address && !strings.HasPrefix(u, "data:") && (b.origin == "" || !strings.HasPrefix(u, b.origin)) {
			b.note("requested " + u)
		}
	case *network.EventWebSocketCreated:
		b.note("requested " + e.URL)
	case *network.EventWebTransportCreated:
		b.note("requested " + e.URL)
	case *runtime.EventExceptionThrown:
		b.note("threw " + thrown(e.ExceptionDetails))
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			b.note(fmt.Sprintf("wrote to the console: %s", e.Args[0].Value))
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			b.note("was told by the browser: " + e.Entry.Text)
		}
	}
}

func thrown(d *runtime.ExceptionDetails) string {
	if d.Exception != nil && d.Exception.Description != "" {
		return d.Exception.Description
	}
	return d.Text
}

func (b *tab) note(offence string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.offences = append(b.offences, offence)
}

func (b *tab) offended() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.offences) > 0
}

// resize gives the page another screen.
func (b *tab) resize(t *testing.T, s screen) {
	t.Helper()
	var options []chromedp.EmulateViewportOption
	if s.phone {
		options = append(options, chromedp.EmulateMobile, chromedp.EmulateTouch, chromedp.EmulatePortrait, chromedp.EmulateScale(2))
	}
	do(t, b.ctx, chromedp.EmulateViewport(s.width, s.height, options...))
	b.width = s.width
}

// scheme makes the page's reader prefer light or dark.
func (b *tab) scheme(t *testing.T, name string) {
	t.Helper()
	call(t, b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}},
	})
}

//go:embed probe.js
var probe string

// A sight is what there is to see; probe.js makes it.
type sight struct {
	Width  int64     `json:"width"`  // how wide the page's content is
	Ground string    `json:"ground"` // the background's colour
	Charts []drawing `json:"charts"`
}

// A drawing is a chart on the page.
type drawing struct {
	Name    string   `json:"name"`
	Kind    string   `json:"kind"`
	Drawn   bool     `json:"drawn"`   // as the page says
	Missing []string `json:"missing"` // what should be in the picture and is not
}

func (b *tab) look(t *testing.T) sight {
	t.Helper()
	s, err := chromedp.Run(b.ctx, chromedp.Evaluate[sight](probe))
	must(t, err)
	return s
}

// complaints is what is wrong with the page, none if all is well.
func (b *tab) complaints(s sight) []string {
	b.mu.Lock()
	list := slices.Clone(b.offences)
	b.mu.Unlock()
	if s.Width > b.width {
		list = append(list, fmt.Sprintf("is %d wide on a screen of %d", s.Width, b.width))
	}
	for _, c := range s.Charts {
		if !c.Drawn {
			list = append(list, "does not say that it has drawn "+c.Name)
		}
		for _, part := range c.Missing {
			list = append(list, fmt.Sprintf("shows no %s in %s", part, c.Name))
		}
	}
	return list
}

// settle waits until nothing is wrong with the page. What is still wrong when patience ends fails the test, and so does at
// once what time does not mend.
func (b *tab) settle(t *testing.T) (s sight) {
	t.Helper()
	daemontest.Until(t, "nothing is wrong", func() string {
		s = b.look(t)
		list := strings.Join(b.complaints(s), "\nthe page ")
		if b.offended() {
			t.Fatalf("the page %s", list)
		}
		return list
	})
	return s
}

// follows settles the page for a reader who changes to dark, and back to light, which has to show.
// It returns what there is to see in the light.
func (b *tab) follows(t *testing.T, name string) (light sight) {
	t.Helper()
	grounds := map[string]bool{}
	for _, scheme := range []string{"dark", "light"} {
		b.scheme(t, scheme)
		light = b.settle(t)
		grounds[light.Ground] = true
		b.screenshot(t, name+"-"+scheme)
	}
	if len(grounds) != 2 {
		t.Errorf("%s: the ground is %s in the dark too", name, light.Ground)
	}
	return light
}

// screenshot saves the whole page, if that is asked for.
func (b *tab) screenshot(t *testing.T, name string) {
	t.Helper()
	dir := os.Getenv("OFFPATH_SCREENSHOTS")
	if dir == "" {
		return
	}
	const lossless = 100
	picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(lossless))
	must(t, err)
	must(t, errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o644)))
}

func do(t *testing.T, ctx context.Context, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	must(t, chromedp.Do(ctx, steps...))
}

func call[P, R any](t *testing.T, ctx context.Context, command cdp.Command[P, R], params P) {
	t.Helper()
	if _, err := chromedp.Call(ctx, command, params); err != nil {
		t.Fatal(err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
