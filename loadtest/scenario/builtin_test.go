package scenario

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden file anew")

// TestBuiltins: the scenarios, as they are and with what the command line may say of each, are what
// the golden file says. After a change that is meant: go test -update, and look at the difference.
func TestBuiltins(t *testing.T) {
	most := Settings{
		Checkers: new(3), Aggregators: new(4), Limit: new(int64(50)), Window: new(10 * time.Second), Buckets: new(5),
		Load: new(2.0), Flush: new(70 * time.Millisecond), TimerOnly: new(true), Keys: new(6), Duration: new(time.Minute),
	}
	var b strings.Builder
	for _, s := range []Settings{{}, most, {Checkers: new(3)}, {Flush: new(10 * time.Millisecond)}, {TimerOnly: new(true)}} {
		for _, name := range Names() {
			list, _ := Builtin(name, s)
			for _, sc := range list {
				for _, r := range sc.Rules {
					fmt.Fprintf(&b, "rule %s: %d, %+v, %v, burst %d\n", r.Name, r.Limit, r.Window, r.Algorithm, r.Burst)
				}
				for _, stream := range sc.Streams {
					fmt.Fprintf(&b, "stream %+v\n", stream)
				}
				sc.Rules, sc.Streams = nil, nil
				fmt.Fprintf(&b, "%+v\n\n", sc)
			}
		}
	}
	const path = "testdata/builtins.txt"
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || string(want) != b.String() {
		t.Errorf("error %v, got\n%s", err, b.String())
	}
}
