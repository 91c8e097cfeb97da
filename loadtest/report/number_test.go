package report

import (
	"math"
	"testing"
)

func TestNumbers(t *testing.T) {
	for _, test := range []struct{ got, want string }{
		{count(0), "0"}, {count(999), "999"}, {count(1000), "1,000"}, {count(-1234567), "−1,234,567"},

		{quantity(0), "0"}, {quantity(7.418), "7.42"}, {quantity(31.25), "31.2"}, {quantity(12345.6), "12,346"},
		{quantity(2), "2"}, {quantity(0.0004321), "0.00043"}, {quantity(-0.5), "−0.5"}, {quantity(math.Inf(1)), none},

		{excess(0.0123), "+1.2 %"}, {excess(-0.12), "−12.0 %"}, {excess(0), "0 %"}, {excess(0.131), "+13.1 %"},
		{excess(1e-7), "<0.001 %"}, {excess(-1e-9), ">−0.001 %"}, {share(0.00001), "0.001 %"}, {excess(14), "+1,400 %"},
		{excess(math.NaN()), none}, {excess(math.Inf(1)), none},
		{share(0.00042), "0.042 %"}, {share(1), "100.0 %"}, {share(0.5), "50.0 %"},

		{scaled(48, nanoseconds), "48 ns"}, {scaled(1230, nanoseconds), "1.23 µs"}, {scaled(0, nanoseconds), "0 ns"},
		{scaled(2.5e9, nanoseconds), "2.5 s"}, {scaled(90e3, milliseconds), "1.5 min"}, {scaled(50, milliseconds), "50 ms"},
		{scaled(0.06, milliseconds), "0.06 ms"}, {scaled(2871, bytes), "2.87 kB"}, {scaled(21.4e6, perSecond), "21.4 M/s"},
		{scaled(math.NaN(), bytes), none}, {ifAny(nil, bytes), none}, {ifAny(new(312.0), bytes), "312 B"},
	} {
		if test.got != test.want {
			t.Errorf("got %q, want %q", test.got, test.want)
		}
	}
}
