package envoyquota

import (
	"bytes"
	"runtime"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestAMessageTakesNoMemoryBeforeItIsChecked: the largest message there can be, of whatever takes
// the least bytes of it and the most memory of ours, and with something wrong at its end.
func TestAMessageTakesNoMemoryBeforeItIsChecked(t *testing.T) {
	domain := []byte("\x0a\x04shop")
	entry := "\x0a\x02\x0a\x00" // of a bucket id, with an empty name
	fill := func(part string) []byte { return bytes.Repeat([]byte(part), MaxMessage/len(part)-8) }
	within := func(data []byte) []byte { // one usage with these fields
		n := len(data)
		return append([]byte{0x12, byte(n) | 0x80, byte(n>>7) | 0x80, byte(n>>14) | 0x80, byte(n >> 21)}, data...)
	}
	for name, body := range map[string][]byte{
		"empty usages":              fill("\x12\x00"),
		"empty bucket ids":          fill("\x12\x02\x0a\x00"),
		"a usage of empty entries":  within(fill(entry)),
		"a usage of empty times":    within(append([]byte(entry), fill("\x12\x00")...)),
		"usages of an empty name":   fill("\x12\x04" + entry),
		"an empty usage at the end": append(fill("\x12\x04"+entry), 0x12, 0x00),
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t, perHour)
			c := s.envoy()
			message := append(bytes.Clone(domain), body...)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := s.distributor.report(s.now, c, message)
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
				t.Errorf("it allocates %d MiB", took>>20)
			}
			if err != nil && status.Code(err) != codes.InvalidArgument {
				t.Error(err)
			}
			if n := charged(s.checker); n != 0 {
				t.Errorf("%d hits are charged", n)
			}
		})
	}
}
