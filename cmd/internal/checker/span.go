package checker

import (
	"fmt"
	"strings"
	"time"
)

// span writes a window's length as a rules file would: second, hour, 10m, 1h30m.
func span(length time.Duration) string {
	const day = 24 * time.Hour
	units := []struct {
		length time.Duration
		alone  string // when it is just one
		short  string
	}{
		{7 * day, "week", "w"}, {day, "day", "d"}, {time.Hour, "hour", "h"},
		{time.Minute, "minute", "m"}, {time.Second, "second", "s"}, {time.Millisecond, "1ms", "ms"},
	}
	var b strings.Builder
	for _, u := range units {
		if length == u.length && b.Len() == 0 {
			return u.alone
		}
		if n := length / u.length; n > 0 {
			fmt.Fprintf(&b, "%d%s", n, u.short)
			length -= n * u.length
		}
	}
	return b.String()
}
