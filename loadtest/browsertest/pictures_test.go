package browsertest

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

const pictureRules = `rules:
  - {name: per-user, key: [user], limit: 5/second}
  - {name: per-user-daily, key: [user], limit: 2000/day}
  - {name: everybody, key: [], limit: 6000/minute}
`

// pictureScreens are those of the documentation's pictures of the console.
var pictureScreens = []struct {
	screen
	scheme string
}{
	{screen{"console", 1280, 1180, false}, "light"},
	{screen{"console-phone", 390, 844, true}, "dark"},
}

// maxPicture is the most bytes of one.
const maxPicture = 200 << 10

// TestPictures makes the pictures of docs/console.md of a fleet at work. `make screenshots` keeps
// them, after some minutes; otherwise it is at work for some seconds, and this tests that they can
// be made.
func TestPictures(t *testing.T) {
	dir, work := os.Getenv("OFFPATH_PICTURES"), 3*time.Second
	if dir != "" {
		var err error
		work, err = time.ParseDuration(os.Getenv("OFFPATH_PICTURES_AFTER"))
		must(t, err)
	} else {
		dir = t.TempDir()
	}
	f := startFleet(t, pictureRules)
	b := openSite(t, startBrowser(t), f.consoles[0], screens[0])
	f.works(t, work)
	b.await(t, `document.getElementById('verdict').dataset.state === 'good'`)
	for _, s := range pictureScreens {
		b.resize(t, s.screen)
		b.scheme(t, s.scheme)
		b.settle(t)
		// So that it is not idle, and has not been for longer than the last points of the charts go
		// back: numbers of the last second would else differ from theirs.
		f.works(t, min(work, 20*time.Second))
		picture, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
		must(t, err)
		if len(picture) > maxPicture || len(picture) < 10<<10 {
			t.Errorf("%s has %d bytes", s.name, len(picture))
		}
		must(t, errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, s.name+".png"), picture, 0o644)))
	}
}

// works has users ask for so long, some of them more often than they may: 20 to 80 times a second,
// more and less again every few minutes.
func (f *fleet) works(t *testing.T, span time.Duration) {
	t.Helper()
	users := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.3, 2, 40)
	for begin := time.Now(); time.Since(begin) < span; {
		perSecond := 50 + 30*math.Sin(2*math.Pi*time.Since(begin).Minutes()/4)
		f.ask(t, rand.IntN(len(f.apis)), fmt.Sprint("user-", users.Uint64()))
		time.Sleep(time.Duration(float64(time.Second) / perSecond))
	}
}
