package kernel

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math"
	"strings"
	"testing"
	"time"

	"railbed/internal/units"
)

// netemOfTC is a TCA_OPTIONS payload, recorded with strace on a little-endian machine. Tc of
// iproute2 6.1.0 sends it for "netem limit 5000 delay 10ms 1ms loss 0.1% duplicate 0.2% corrupt
// 0.3% rate 8tbit".
const netemOfTC = "5a620200 88130000 37894100 00000000 6f128300 093d0000" + // struct tc_netem_qopt
	"0c000400 a69bc400 00000000" + // TCA_NETEM_CORRUPT
	"0c000800 0010a5d4 e8000000" + // TCA_NETEM_RATE64
	"14000600 ffffffff 00000000 00000000 00000000" // TCA_NETEM_RATE

var netemAsked = Netem{
	Delay: 10 * time.Millisecond, Jitter: time.Millisecond, Limit: 5000,
	Loss:      units.Ratio{Num: 1, Den: 1000},
	Duplicate: units.Ratio{Num: 2, Den: 1000},
	Corrupt:   units.Ratio{Num: 3, Den: 1000},
	Seed:      0x1122334455667788,
}

func unhex(t *testing.T, text string) []byte {
	t.Helper()
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("the recorded bytes are of a little-endian machine")
	}
	data, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// attrs splits attributes by kind.
func attrs(t *testing.T, data []byte) map[uint16][]byte {
	t.Helper()
	found := map[uint16][]byte{}
	if err := eachAttr(data, func(kind uint16, value []byte) { found[kind] = value }); err != nil {
		t.Fatal(err)
	}
	return found
}

func TestNetemBytesEqualThoseOfTC(t *testing.T) {
	b := NewBatch("n", nil)
	b.SetNetem("eth0", 7, Root, Handle(2, 0), netemAsked)
	// struct nlmsghdr: RTM_NEWQDISC with REQUEST|REPLACE|CREATE; struct tcmsg:
	// interface 7, handle 2:, parent root.
	header := unhex(t, "2400 0105 00000000 00000000 00000000 07000000 00000200 ffffffff 00000000")
	if got := b.buf[4:36]; !bytes.Equal(got, header) {
		t.Errorf("header % x, want % x", got, header)
	}
	message := attrs(t, b.buf[36:])
	if got := message[1]; string(got) != "netem\x00" {
		t.Errorf("kind %q", got)
	}
	ours, theirs := message[2], unhex(t, netemOfTC)
	if !bytes.Equal(ours[:24], theirs[:24]) {
		t.Errorf("struct tc_netem_qopt % x, want % x", ours[:24], theirs[:24])
	}
	got := attrs(t, ours[24:])
	for kind, want := range attrs(t, theirs[24:]) {
		if !bytes.Equal(got[kind], want) {
			t.Errorf("attribute %d: % x, want % x", kind, got[kind], want)
		}
	}
	// What tc sends only on request, and what older kernels keep when it is
	// left out: no correlation, no reordering, delay and jitter in ns, seed.
	for kind, want := range map[uint16]string{
		1: "00000000 00000000 00000000", 3: "00000000 00000000",
		10: "80969800 00000000", 11: "40420f00 00000000", 14: "88776655 44332211",
		7: "00000000", 12: strings.Repeat("00", 40), // no ECN, no slots
	} {
		if !bytes.Equal(got[kind], unhex(t, want)) {
			t.Errorf("attribute %d: % x, want %s", kind, got[kind], want)
		}
	}
}

func TestNetemIsReadBack(t *testing.T) {
	got, err := parseNetem(unhex(t, netemOfTC))
	if err != nil {
		t.Fatal(err)
	}
	if got.Delay != 10*time.Millisecond || got.Jitter != time.Millisecond || got.Limit != 5000 ||
		!SameShare(got.Loss, netemAsked.Loss) || !SameShare(got.Duplicate, netemAsked.Duplicate) ||
		!SameShare(got.Corrupt, netemAsked.Corrupt) {
		t.Errorf("read %+v from tc's bytes, want %+v", got, netemAsked)
	}
	if len(got.Others) > 0 {
		t.Errorf("read %q from tc's bytes, which nobody asked for", got.Others)
	}
	if SameShare(got.Loss, netemAsked.Corrupt) {
		t.Error("0.1 % and 0.3 % are the same share")
	}
	b := NewBatch("n", nil)
	b.SetNetem("eth0", 7, Root, Handle(2, 0), netemAsked)
	own, err := parseQdisc(b.buf[16:])
	if err != nil {
		t.Fatal(err)
	}
	if own.Netem == nil || own.Netem.Seed != netemAsked.Seed || own.Netem.Delay != netemAsked.Delay ||
		len(own.Netem.Others) > 0 || own.Parent != Root {
		t.Errorf("read %+v back", own)
	}
}

func TestNetemWithoutJitterHasNoRate(t *testing.T) {
	b := NewBatch("n", nil)
	b.SetNetem("eth0", 7, Root, Handle(2, 0), Netem{Delay: time.Millisecond, Limit: 1})
	options := attrs(t, b.buf[36:])[2]
	if rate := attrs(t, options[24:])[8]; binary.NativeEndian.Uint64(rate) != 0 {
		t.Errorf("rate %d", binary.NativeEndian.Uint64(rate))
	}
}

func TestSmallDelaysAndSharesNeverBecomeNone(t *testing.T) {
	for d, want := range map[time.Duration]uint32{
		0: 0, 1: 1, 64: 1, 65: 2, time.Microsecond: 16, time.Millisecond: 15625,
		300 * time.Second: math.MaxUint32,
	} {
		if got := ticks(d); got != want {
			t.Errorf("%s is %d ticks, want %d", d, got, want)
		}
	}
	for r, want := range map[units.Ratio]uint32{
		{}: 0, {Num: 1, Den: 1 << 63}: 1, {Num: 1, Den: 2}: 1 << 31, {Num: 1, Den: 1}: math.MaxUint32,
		{Num: 1, Den: 1000}: 0x418937, {Num: 3, Den: 1000}: 0xc49ba6,
	} {
		if got := probability(r); got != want {
			t.Errorf("%s is %#x, want %#x", r, got, want)
		}
	}
}

func TestClock(t *testing.T) {
	// /proc/net/psched of Linux 6.18, and one whose tick is a microsecond, as
	// before 2.6.31.
	if err := checkClock("000003e8 00000040 000f4240 3b9aca00\n"); err != nil {
		t.Error(err)
	}
	for _, text := range []string{"000003e8 000003e8 000f4240 3b9aca00\n", "", "zz"} {
		if checkClock(text) == nil {
			t.Errorf("%q is taken for the clock that this package counts in", text)
		}
	}
}

func TestTBFCarriesRatesAbove32Bits(t *testing.T) {
	// 40 Gbit/s is 5*10^9 byte/s: 0xffffffff in the old field, 0x12a05f200 in
	// TCA_TBF_RATE64 (4), as tc sends it.
	b := NewBatch("n", nil)
	b.SetTBF("eth0", 7, Root, Handle(1, 0), TBF{Rate: 40e9, Burst: 1_000_000, Limit: 262_144})
	options := attrs(t, attrs(t, b.buf[36:])[2])
	for kind, want := range map[uint16]string{4: "00f2052a 01000000", 6: "40420f00"} {
		if !bytes.Equal(options[kind], unhex(t, want)) {
			t.Errorf("attribute %d: % x, want %s", kind, options[kind], want)
		}
	}
	if got, want := options[1][8:12], unhex(t, "ffffffff"); !bytes.Equal(got, want) {
		t.Errorf("rate % x, want % x", got, want)
	}
	if got, want := options[1][24:28], unhex(t, "00000400"); !bytes.Equal(got, want) {
		t.Errorf("limit % x, want % x", got, want)
	}
}

// FuzzParse passes any bytes to the parsers of the kernel's messages. They must not panic.
func FuzzParse(f *testing.F) {
	b := NewBatch("n", nil)
	b.SetNetem("eth0", 7, Root, Handle(2, 0), netemAsked)
	f.Add(b.buf[16:])
	b.Reset("n")
	b.SetTBF("eth0", 7, Root, Handle(1, 0), TBF{Rate: 40e9, Burst: 1_000_000, Limit: 262_144})
	f.Add(b.buf[16:])
	b.Reset("n")
	b.AddBridge("br0", 3, 1)
	f.Add(b.buf[16:])
	b.Reset("n")
	b.AddRoute(Route{Dst: prefix("10.0.0.0/8"),
		Hops: []NextHop{{Via: prefix("10.0.0.1/32").Addr(), Index: 2}, {Index: 3}}})
	f.Add(b.buf[16:])
	f.Fuzz(func(_ *testing.T, data []byte) {
		_, _ = parseQdisc(data)
		_, _ = parseLink(data)
		_, _ = parseRoute(data)
		_, _ = parseRule(data)
		_ = extendedAck(nlHeader(0x200), data)
	})
}
