package units

import (
	"testing"
	"time"
)

func TestTook(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 999: "999ns", 1234: "1us", 123456: "123us", 1999: "2us", 12345678: "12.3ms",
		987654321: "988ms", 1234567890: "1.23s", 12345678901: "12.3s",
		59996 * time.Millisecond: "1m0s", 123456 * time.Millisecond: "2m3s",
		-1234567 * time.Nanosecond: "-1.23ms", 999999: "1ms",
	} {
		if got := Took(d); got != want {
			t.Errorf("%d ns: %s, want %s", d, got, want)
		}
	}
}
