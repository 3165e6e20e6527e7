package wireshark

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"railbed/capture/pcapng"
)

// recorded returns a recording as package capture writes it: 4 packets at each of 3 taps, of which one is
// dropped and one marked.
func recorded(t testing.TB) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := pcapng.NewWriter(&out, pcapng.Section{OS: "Linux", Application: "railbed", Comments: []string{
		string(pcapng.SectionNote{Dilation: 2, Plan: "4fd0", Testbed: "x"}.AppendTo(nil))}})
	fail := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	fail(err)
	for _, i := range []pcapng.Interface{
		{Name: "h0:eth0", Description: "h0--leaf1 ranks=0", Hardware: pcapng.HardwareNIC, OS: "Linux"},
		{Name: "leaf1:p0", Description: "h0--leaf1", Hardware: pcapng.HardwareSwitchPort, Filter: "udp"},
		{Name: "leaf2:p0", Description: "h1--leaf2", Hardware: pcapng.HardwareSwitchPort, SnapLen: 64},
	} {
		i.LinkType = pcapng.LinkEthernet
		_, err := w.AddInterface(i)
		fail(err)
	}
	for i := range 12 {
		p := pcapng.Packet{Interface: i % 3, Time: 1_700_000_000_000_000_001 + int64(i)*1500, Length: 100,
			Data: make([]byte, 60+i), Has: pcapng.HasFlags | pcapng.HasID | pcapng.HasQueue,
			ID:    uint64(i) << 40,
			Queue: 3, Flags: pcapng.Outbound}
		switch i {
		case 4:
			p.Comments = [][]byte{[]byte("railbed verdict=drop reason=tail depth=64001")}
		case 5:
			p.Comments = [][]byte{[]byte("railbed verdict=mark reason=ecn depth=20")}
			p.Has, p.DropCount = p.Has|pcapng.HasDropCount, 2
		}
		fail(w.WritePacket(&p))
	}
	for i := range 3 {
		fail(w.WriteStatistics(pcapng.Statistics{Interface: i, Time: 1_700_000_000_100_000_000, Received: 5,
			Accepted: 4, Delivered: 4, Has: pcapng.HasStart | pcapng.HasEnd | pcapng.HasReceived |
				pcapng.HasDropped | pcapng.HasAccepted | pcapng.HasDelivered,
			Comments: []string{string(pcapng.TapNote{Annotated: 1, Drops: 1}.AppendTo(nil))}}))
	}
	fail(w.Flush())
	return out.Bytes()
}

// TestPassKeepsEveryByte: Wireshark gets the bytes of a file, whatever pieces the stream comes in.
func TestPassKeepsEveryByte(t *testing.T) {
	want := recorded(t)
	for name, in := range map[string]io.Reader{"whole": bytes.NewReader(want),
		"bytes":  iotest.OneByteReader(bytes.NewReader(want)),
		"halves": iotest.HalfReader(bytes.NewReader(want))} {
		var got bytes.Buffer
		if err := pass(in, &got, &narrowing{taps: "all"}); err != nil || !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%s: %d bytes, want %d; %v", name, got.Len(), len(want), err)
		}
	}
}

// TestPassWritesAtOnce: the descriptions of the taps and each packet are written before the next read, which
// may wait for ever.
func TestPassWritesAtOnce(t *testing.T) {
	whole := recorded(t)
	for cut := 1; cut <= len(whole); cut += 7 {
		in, feed := io.Pipe()
		var got bytes.Buffer
		done := make(chan error, 1)
		go func() { done <- pass(in, &got, &narrowing{}) }()
		if _, err := feed.Write(whole[:cut]); err != nil {
			t.Fatal(err)
		}
		// An empty write returns when the reader waits again.
		if _, err := feed.Write(nil); err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(whole, got.Bytes()) || got.Len() < lastPacket(whole[:cut]) {
			t.Fatalf("after %d bytes %d are written, want %d", cut, got.Len(), lastPacket(whole[:cut]))
		}
		feed.CloseWithError(errors.New("no more"))
		if err := <-done; err == nil {
			t.Fatalf("after %d bytes: no error", cut)
		}
	}
}

// lastPacket returns where the last block of a capture ends that is complete. Statistics blocks do not count,
// because they are written at the end.
func lastPacket(b []byte) (end int) {
	at := 0
	u32 := func(i int) int { return int(binary.LittleEndian.Uint32(b[i:])) }
	for at+8 <= len(b) && at+u32(at+4) <= len(b) {
		kind := u32(at)
		if at += u32(at + 4); kind != 5 {
			end = at
		}
	}
	return end
}

// TestNarrowing selects packets by drops, taps and filters. The statistics say that packets are missing.
func TestNarrowing(t *testing.T) {
	for _, test := range []struct {
		taps, filter string
		drops        bool
		want         string // the interfaces of the packets
		delivered    [3]uint64
	}{
		{"all", "", false, "012012012012", [3]uint64{4, 4, 4}},
		{"", "", true, "1", [3]uint64{0, 1, 0}},
		{"nics", "", false, "0000", [3]uint64{4, 0, 0}},
		{"switches", "", false, "12121212", [3]uint64{0, 4, 4}},
		{"leaf*", "", false, "12121212", [3]uint64{0, 4, 4}},
		{"leaf2", "", false, "2222", [3]uint64{0, 0, 4}},
		{"leaf1:p0", "", false, "1111", [3]uint64{0, 4, 0}},
		{"leaf", "", false, "", [3]uint64{}},
		{"[", "", false, "", [3]uint64{}},
		{"all", "railbed.depth > 100", false, "1", [3]uint64{0, 1, 0}},
		{"all", `railbed.verdict in {"drop", "mark"} && railbed.node == "leaf2"`, false, "2", [3]uint64{0, 0, 1}},
		{"switches", "railbed.rank == 0", false, "", [3]uint64{}},
		{"all", "railbed.rank == 0", false, "0000", [3]uint64{4, 0, 0}},
	} {
		n := &narrowing{taps: test.taps, drops: test.drops}
		if err := n.setFilter(test.filter); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := pass(bytes.NewReader(recorded(t)), &out, n); err != nil {
			t.Fatal(err)
		}
		r, err := pcapng.NewReader(&out)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for {
			p, err := r.Next()
			if err != nil {
				break
			}
			got += string(rune('0' + p.Interface))
		}
		if len(r.Interfaces()) != 3 || got != test.want {
			t.Errorf("%+v: %d interfaces, packets of %s, want %s", test, len(r.Interfaces()), got, test.want)
		}
		for i, s := range r.Statistics() {
			if s.Delivered != test.delivered[i] || s.Accepted != 4 {
				t.Errorf("%+v: tap %d delivers %d of %d", test, i, s.Delivered, s.Accepted)
			}
		}
	}
	n := &narrowing{}
	if err := n.setFilter("ip.scr == 1"); err == nil || !strings.Contains(err.Error(), "ip.src") {
		t.Errorf("a wrong filter: %v", err)
	}
}
