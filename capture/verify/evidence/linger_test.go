package evidence

import (
	"testing"
	"time"

	"railbed/testkit/hosttest"
	"railbed/testkit/plantest"
)

// The code under test has one goroutine, so that nothing could race.
var _ = hosttest.MarkPackage(hosttest.Unraced)

// TestLinger: the times follow from the bytes that may leave before a packet. 256 KiB (the default of a NIC)
// and a buffer of 128 KB need 104 ms at 30 Mbit/s. With flow control, three NICs of 256 KiB wait for the link
// to the fourth: 244 ms.
func TestLinger(t *testing.T) {
	const delays = pathLinks * 5 * time.Microsecond
	for settings, want := range map[string]time.Duration{
		"kind: soft, buffer: 128KB":                         104_038_400 * time.Nanosecond,
		"kind: soft, buffer: 128KB, pfc: {priorities: [3]}": 243_848_533 * time.Nanosecond,
		"kind: router": lingerPath,
	} {
		p := plantest.Compile(t, "name: t\nfabric: {topology: single-switch, params: {hosts: 4}, switch: {"+
			settings+"}, links: {default: {rate: 30mbit, delay: 5us}}}\n")
		c := Capture{Plan: p, Dilation: 1}
		got := (time.Duration(c.Linger()) - delays).Round(time.Microsecond)
		if got != want.Round(time.Microsecond) {
			t.Errorf("%s: %v, want %v", settings, got, want)
		}
	}
}
