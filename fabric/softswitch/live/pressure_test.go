package live

import (
	"testing"
	"time"
)

func TestSomePressure(t *testing.T) {
	for _, c := range []struct {
		text string
		want time.Duration
		ok   bool
	}{
		{"some avg10=0.00 avg60=0.12 avg300=0.00 total=12345\nfull avg10=0.00 avg60=0.00 avg300=0.00 " +
			"total=7\n", 12345 * time.Microsecond, true},
		{"full avg10=0.00 total=7\nsome avg10=0.00 total=8\n", 8 * time.Microsecond, true},
		{"some avg10=0.00\n", 0, false},
		{"some total=-1\n", 0, false},
		{"some total=99999999999999999\n", 0, false}, // in nanoseconds more than an int64 has
		{"full total=7\n", 0, false},
		{"", 0, false},
	} {
		if got, ok := SomePressure([]byte(c.text)); ok != c.ok || ok && got != c.want {
			t.Errorf("%q: %v, %v; want %v, %v", c.text, got, ok, c.want, c.ok)
		}
	}
	text := []byte("some avg10=0.00 avg60=0.12 avg300=0.00 total=12345\n")
	if n := testing.AllocsPerRun(100, func() { SomePressure(text) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
