package console

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/offpath-io/offpath/internal/status"
)

// TestHostileStatusesAreBounded: what a picture keeps of statuses that are made up to take as much
// as they can is not much more than it reckons with, however long the texts are that were cut.
func TestHostileStatusesAreBounded(t *testing.T) {
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	p, before := newPicture(time.Now), heap()
	for i := range 50 {
		s := status.Checker{Part: status.Part{Name: fmt.Sprint("c", i), Problem: strings.Repeat("x", 200<<10)}}
		for r := range 700 {
			name := fmt.Sprintf("%03d-%03d-%0200d", i, r, 0)
			s.Rules = append(s.Rules, status.Decisions{Rule: name})
			s.Set = append(s.Set, status.Rule{Name: name[:8]})
		}
		data, err := json.Marshal(s)
		must(t, err)
		if s, err = status.DecodeChecker(data); err != nil {
			t.Fatal(err)
		}
		p.checker(s)
	}
	grown := int(heap()) - int(before)
	if len(p.checkers) != 50 || grown > p.held*5/4 {
		t.Errorf("%d statuses grew the heap by %d KB; reckoned with %d KB", len(p.checkers), grown>>10, p.held>>10)
	}
	runtime.KeepAlive(p)
}
