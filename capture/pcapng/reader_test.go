package pcapng_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"

	"railbed/capture/pcapng"
	"railbed/testkit/hosttest"
)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

// readAll returns copies of the packets and the error that ended the reading.
func readAll(r *pcapng.Reader) (packets []pcapng.Packet, err error) {
	for {
		p, err := r.Next()
		if err != nil {
			return packets, err
		}
		if p.Number != len(packets)+1 {
			return packets, fmt.Errorf("packet %d has the number %d", len(packets)+1, p.Number)
		}
		copied := *p
		copied.Number = 0 // so that it equals what was written
		copied.Data = bytes.Clone(p.Data)
		copied.Comments = nil
		for _, c := range p.Comments {
			copied.Comments = append(copied.Comments, bytes.Clone(c))
		}
		packets = append(packets, copied)
	}
}

// bigEndian is a capture by hand: big-endian, an interface with 2^-10 s and an
// offset of 100 s, and each kind of packet block.
const bigEndian = `
0a0d0d0a 0000001c 1a2b3c4d 0001 0000 ffffffffffffffff 0000001c # no options
00000001 0000002c 0001 0000 00000004                   # interface of 44 bytes, snaplen 4
  0009 0001 8a 000000                                  # if_tsresol 2^-10 s
  000e 0008 0000000000000064                           # if_tsoffset 100 s
  0000 0000 0000002c
00000bad 00000010 deadbeef 00000010                    # a custom block, to be skipped
00000006 00000038 00000000 00000000 00000600 00000003 00000009 # 1.5 s + 100 s; 3 of 9 bytes
  aabbcc 00
  0002 0004 00000001                                   # epb_flags inbound
  0005 0008 0000000000000007                           # epb_packetid 7
  00000038                                             # and no opt_endofopt
00000003 00000014 00000009 01020304 00000014           # simple: 9 bytes, 4 kept by the snaplen
00000002 00000024 0000 0005 00000000 00000400 00000002 00000002 # old packet block: interface 0, 5 drops, 1 s
  eeff 0000
  00000024
`

func TestReadBigEndian(t *testing.T) {
	r, err := pcapng.NewReader(bytes.NewReader(unhex(t, bigEndian)))
	if err != nil {
		t.Fatal(err)
	}
	got, err := readAll(r)
	if err != io.EOF {
		t.Errorf("ended with %v", err)
	}
	want := []pcapng.Packet{
		{Time: 101500e6, Length: 9, Data: []byte{0xaa, 0xbb, 0xcc}, Flags: pcapng.Inbound, ID: 7,
			Has: pcapng.HasTime | pcapng.HasFlags | pcapng.HasID},
		{Length: 9, Data: []byte{1, 2, 3, 4}},
		{Time: 101e9, Length: 2, Data: []byte{0xee, 0xff}, DropCount: 5,
			Has: pcapng.HasTime | pcapng.HasDropCount},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestDraftTimes decodes the two stamps that the draft spells out.
func TestDraftTimes(t *testing.T) {
	for text, want := range map[string]string{
		"96c30400 73896a65": "2012-06-29T06:17:00.834163Z",
		"97c30400 aa47ca64": "2012-06-29T07:28:25.298858Z",
	} {
		file := unhex(t, `
0a0d0d0a 1c000000 4d3c2b1a 0100 0000 ffffffffffffffff 1c000000
01000000 14000000 0100 0000 00000000 14000000
05000000 24000000 00000000 00000000 00000000 0200 0800 `+text+` 24000000`)
		r, err := pcapng.NewReader(bytes.NewReader(file))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Next(); err != io.EOF {
			t.Fatal(err)
		}
		got := time.Unix(0, r.Statistics()[0].Start).UTC().Format(time.RFC3339Nano)
		if got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
}

func TestReadPcap(t *testing.T) {
	for name, c := range map[string]struct {
		file string
		time int64
	}{
		"little-endian microseconds": {`
d4c3b2a1 0200 0400 00000000 00000000 ffff0000 01000000
01000000 02000000 03000000 09000000 aabbcc`, 1000002000},
		"big-endian nanoseconds, FCS length in the link type": {`
a1b23c4d 0002 0004 00000000 00000000 0000ffff 24000001
00000001 00000002 00000003 00000009 aabbcc`, 1000000002},
	} {
		r, err := pcapng.NewReader(bytes.NewReader(unhex(t, c.file)))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, err := readAll(r)
		if err != io.EOF {
			t.Errorf("%s: ended with %v", name, err)
		}
		want := []pcapng.Packet{{Time: c.time, Length: 9, Data: []byte{0xaa, 0xbb, 0xcc},
			Has: pcapng.HasTime}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if i := r.Interfaces()[0]; i.LinkType != 1 || i.SnapLen != 0xffff {
			t.Errorf("%s: interface %+v", name, i)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	// One byte at a time, so that every boundary of a fill is met.
	r, err := pcapng.NewReader(iotest.OneByteReader(bytes.NewReader(example(t))))
	if err != nil {
		t.Fatal(err)
	}
	packets, err := readAll(r)
	if err != io.EOF || len(packets) != 3 {
		t.Fatalf("%d packets, %v", len(packets), err)
	}
	if p := packets[0]; p.ID != 0xfedcba9876543210 || p.Queue != 3 || p.Flags != pcapng.Outbound ||
		p.Length != 1000 {
		t.Errorf("packet 0 is %+v", p)
	}
	if a, ok := pcapng.ParseAnnotation(packets[2].Comments[0]); !ok || a.Depth != 40320 {
		t.Errorf("comment is %q", packets[2].Comments)
	}
	if s := r.Section(); s.Application != "railbed" || s.Comments[0] != "railbed dilation=1" ||
		s.Hardware != "x86" {
		t.Errorf("section %+v", s)
	}
	if i := r.Interfaces()[1]; i.Name != "leaf0:p0" || i.Filter != "ip" ||
		i.Hardware != pcapng.HardwareSwitchPort {
		t.Errorf("interface %+v", i)
	}
	if s := r.Statistics(); len(s) != 2 || s[1].Received != 11 || s[1].Dropped != 1 ||
		s[1].Start != 1700000000e9 {
		t.Errorf("statistics %+v", s)
	}
}

// TestCut reads every prefix of a capture: either it ends between two blocks,
// or the reader says that it is truncated.
func TestCut(t *testing.T) {
	for name, whole := range map[string][]byte{
		"pcapng": example(t),
		"pcap": unhex(t, "d4c3b2a1 0200 0400 00000000 00000000 ffff0000 01000000 01000000 02000000 "+
			"03000000 09000000 aabbcc"),
	} {
		clean := 0
		for length := range len(whole) {
			r, err := pcapng.NewReader(bytes.NewReader(whole[:length]))
			if err == nil {
				_, err = readAll(r)
			}
			switch {
			case err == io.EOF:
				clean++
			case !errors.Is(err, pcapng.ErrTruncated):
				t.Errorf("%s cut at byte %d: %v", name, length, err)
			}
		}
		// Section, two interfaces, three packets, one of two statistics; a
		// pcap's header.
		if want := map[string]int{"pcapng": 7, "pcap": 1}[name]; clean != want {
			t.Errorf("%s has %d places for a clean cut, want %d", name, clean, want)
		}
	}
}

func TestBroken(t *testing.T) {
	const section = "0a0d0d0a 1c000000 4d3c2b1a 0100 0000 ffffffffffffffff 1c000000 "
	const tap = "01000000 14000000 0100 0000 00000000 14000000 "
	for name, text := range map[string]string{
		"not a capture":    "47494638 39610100",
		"byte order":       "0a0d0d0a 1c000000 4d3c2b1b 0100 0000 ffffffffffffffff 1c000000",
		"major version 2":  "0a0d0d0a 1c000000 4d3c2b1a 0200 0000 ffffffffffffffff 1c000000",
		"unaligned length": section + "01000000 15000000 0100 0000 00000000 14000000",
		"length of 8":      section + "01000000 08000000 08000000",
		"length of 2 GiB":  section + "01000000 00000080 0100 0000",
		"trailer differs":  section + "01000000 14000000 0100 0000 00000000 18000000",
		"option passes the block": section +
			"01000000 1c000000 0100 0000 00000000 0200 0500 61626364 1c000000",
		"packet before interfaces": section +
			"06000000 20000000 00000000 00000000 00000000 00000000 00000000 20000000",
		"packet longer than block": section + tap +
			"06000000 24000000 00000000 00000000 00000000 05000000 05000000 01020304 24000000",
		"time past 2262": section + tap +
			"06000000 20000000 00000000 ffffffff 00000000 00000000 00000000 20000000",
		"resolution 10^-20": section +
			"01000000 1c000000 0100 0000 00000000 0900 0100 14 000000 1c000000",
		"pcap version 1": "d4c3b2a1 0100 0400 00000000 00000000 ffff0000 01000000",
		"pcap record of 2 GiB": "d4c3b2a1 0200 0400 00000000 00000000 ffff0000 01000000 01000000 " +
			"02000000 00000080 00000080",
		"pcap fraction over 1 s": "d4c3b2a1 0200 0400 00000000 00000000 ffff0000 01000000 01000000 " +
			"40420f00 00000000 00000000",
		"statistics of no interface": section + "05000000 18000000 00000000 00000000 00000000 18000000",
	} {
		r, err := pcapng.NewReader(bytes.NewReader(unhex(t, text)))
		if err == nil {
			_, err = readAll(r)
		}
		if !errors.Is(err, pcapng.ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSourceErrorIsKept(t *testing.T) {
	broken := errors.New("disk on fire")
	r, err := pcapng.NewReader(io.MultiReader(bytes.NewReader(example(t)[:200]), iotest.ErrReader(broken)))
	if err == nil {
		_, err = readAll(r)
	}
	if !errors.Is(err, broken) || errors.Is(err, pcapng.ErrTruncated) {
		t.Errorf("got %v", err)
	}
}

func TestSections(t *testing.T) {
	r, err := pcapng.NewReader(bytes.NewReader(append(example(t), unhex(t, bigEndian)...)))
	if err != nil {
		t.Fatal(err)
	}
	packets, err := readAll(r)
	if err != io.EOF || len(packets) != 6 {
		t.Fatalf("%d packets, %v", len(packets), err)
	}
	if packets[2].Interface != 1 || packets[3].Interface != 2 || packets[3].Time != 101500e6 {
		t.Errorf("packets %+v", packets[2:4])
	}
}

// TestGopacketWritesIt reads what somebody else's writer wrote.
func TestGopacketWritesIt(t *testing.T) {
	var out bytes.Buffer
	w, err := pcapgo.NewNgWriterInterface(&out,
		pcapgo.NgInterface{Name: "eth7", LinkType: layers.LinkTypeEthernet, SnapLength: 96, Filter: "arp"},
		pcapgo.DefaultNgWriterOptions)
	if err != nil {
		t.Fatal(err)
	}
	stamp := time.Unix(1700000000, 123456789)
	if err := w.WritePacket(gopacket.CaptureInfo{Timestamp: stamp, CaptureLength: 5, Length: 99},
		[]byte("12345")); err != nil {
		t.Fatal(err)
	}
	if err := w.WriteInterfaceStats(0,
		pcapgo.NgInterfaceStatistics{LastUpdate: stamp, PacketsReceived: 4, PacketsDropped: 3}); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	r, err := pcapng.NewReader(&out)
	if err != nil {
		t.Fatal(err)
	}
	packets, err := readAll(r)
	if err != io.EOF || len(packets) != 1 || packets[0].Time != stamp.UnixNano() || packets[0].Length != 99 {
		t.Errorf("%+v, %v", packets, err)
	}
	if i := r.Interfaces()[0]; i.Name != "eth7" || i.Filter != "arp" || i.SnapLen != 96 {
		t.Errorf("interface %+v", i)
	}
	if s := r.Statistics(); len(s) != 1 || s[0].Received != 4 || s[0].Dropped != 3 {
		t.Errorf("statistics %+v", s)
	}
}

// TestEditcapFormats reads one capture in the formats that editcap converts to.
func TestEditcapFormats(t *testing.T) {
	hosttest.Need(t, hosttest.Tshark)
	editcap, err := exec.LookPath("editcap")
	if err != nil {
		t.Skip("editcap is not installed")
	}
	dir := t.TempDir()
	source := filepath.Join(dir, "source.pcapng")
	if err := os.WriteFile(source, example(t), 0o600); err != nil {
		t.Fatal(err)
	}
	for format, resolution := range map[string]int64{"pcap": 1000, "nsecpcap": 1, "pcapng": 1} {
		target := filepath.Join(dir, format)
		if out, err := exec.Command(editcap, "-F", format, source, target).CombinedOutput(); err != nil {
			t.Errorf("editcap -F %s: %v: %s", format, err, out)
			continue
		}
		file, err := os.Open(target)
		if err != nil {
			t.Fatal(err)
		}
		r, err := pcapng.NewReader(file)
		if err != nil {
			t.Fatal(err)
		}
		packets, err := readAll(r)
		file.Close()
		want := int64(1700000000123470001) / resolution * resolution
		if err != io.EOF || len(packets) != 3 || packets[2].Time != want || packets[2].Length != 1000 {
			t.Errorf("%s: %+v, %v", format, packets, err)
		}
	}
}

// lossy is a hand-written capture after draft-ietf-opsawg-pcapng with the loss counters of two
// programs. It has epb_dropcount (4, section 4.3), and isb_ifdrop (5) and isb_osdrop (7) of the
// interface's statistics (section 4.6).
const lossy = `
0a0d0d0a 0000001c 1a2b3c4d 0001 0000 ffffffffffffffff 0000001c
00000001 00000014 0001 0000 00000000 00000014          # microseconds
00000006 00000034 00000000 00000000 00000001 00000002 00000002
  beef 0000
  0004 0008 0000000000000003                           # epb_dropcount 3
  0000 0000
  00000034
00000005 00000040 00000000 00000000 00000002
  0004 0008 000000000000000a                           # isb_ifrecv 10
  0005 0008 0000000000000003                           # isb_ifdrop 3
  0007 0008 0000000000000006                           # isb_osdrop 6
  0000 0000
  00000040
`

func TestReadsLossCounters(t *testing.T) {
	r, err := pcapng.NewReader(bytes.NewReader(unhex(t, lossy)))
	if err != nil {
		t.Fatal(err)
	}
	packets, err := readAll(r)
	if err != io.EOF || len(packets) != 1 || packets[0].Has&pcapng.HasDropCount == 0 ||
		packets[0].DropCount != 3 {
		t.Errorf("packets %+v, %v; want one with 3 lost before it", packets, err)
	}
	const has = pcapng.HasReceived | pcapng.HasDropped | pcapng.HasOSDropped
	if s := r.Statistics(); len(s) != 1 || s[0].Has != has || s[0].Received != 10 || s[0].Dropped != 3 ||
		s[0].OSDropped != 6 {
		t.Errorf("statistics %+v, want 10 received, 3 and 6 lost", s)
	}
	var out bytes.Buffer
	w, err := pcapng.NewWriter(&out, pcapng.Section{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.AddInterface(r.Interfaces()[0]); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.WriteStatistics(r.Statistics()[0]), w.Flush()); err != nil {
		t.Fatal(err)
	}
	again, err := pcapng.NewReader(&out)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := readAll(again); err != io.EOF || again.Statistics()[0].OSDropped != 6 {
		t.Errorf("written and read again: %+v, %v", again.Statistics(), err)
	}
}

// FuzzReader requires that reading ends, stays in memory, and that whatever
// was read as packets is written and read again alike.
func FuzzReader(f *testing.F) {
	f.Add(example(f))
	f.Add(unhex(f, bigEndian))
	f.Add(inParts(f, 3))
	f.Add(unhex(f, "d4c3b2a1 0200 0400 00000000 00000000 ffff0000 01000000 01000000 02000000 03000000 "+
		"09000000 aabbcc"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := pcapng.NewReader(bytes.NewReader(data))
		if err != nil {
			return
		}
		packets, err := readAll(r)
		if err != io.EOF && !errors.Is(err, pcapng.ErrTruncated) && !errors.Is(err, pcapng.ErrFormat) {
			t.Fatalf("ended with %v", err)
		}
		var out bytes.Buffer
		w, err := pcapng.NewWriter(&out, r.Section())
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range r.Interfaces() {
			if _, err := w.AddInterface(i); err != nil {
				t.Fatal(err)
			}
		}
		for i := range packets {
			if packets[i].Has&pcapng.HasTime == 0 || packets[i].Time < 0 {
				packets[i].Time, packets[i].Has = 0, packets[i].Has|pcapng.HasTime
			}
			if err := w.WritePacket(&packets[i]); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		again, err := pcapng.NewReader(&out)
		if err != nil {
			t.Fatal(err)
		}
		got, err := readAll(again)
		if diff := cmp.Diff(packets, got); diff != "" || err != io.EOF {
			t.Fatalf("%v: %s", err, diff)
		}
	})
}

func BenchmarkRead(b *testing.B) {
	var out bytes.Buffer
	w, _ := pcapng.NewWriter(&out, pcapng.Section{})
	w.AddInterface(pcapng.Interface{Name: "x", LinkType: 1})
	p := pcapng.Packet{Data: make([]byte, 128), Length: 1500, Has: pcapng.HasFlags | pcapng.HasID, Flags: 1}
	const count = 100000
	for i := range count {
		p.ID, p.Time = uint64(i), int64(i)
		w.WritePacket(&p)
	}
	w.Flush()
	b.ReportAllocs()
	for b.Loop() {
		r, err := pcapng.NewReader(bytes.NewReader(out.Bytes()))
		if err != nil {
			b.Fatal(err)
		}
		n := 0
		for {
			if _, err := r.Next(); err != nil {
				break
			}
			n++
		}
		if n != count {
			b.Fatal(n)
		}
	}
	b.ReportMetric(float64(count)*float64(b.N)/b.Elapsed().Seconds(), "packets/s")
}

func BenchmarkWrite(b *testing.B) {
	w, _ := pcapng.NewWriter(io.Discard, pcapng.Section{})
	w.AddInterface(pcapng.Interface{Name: "x", LinkType: 1})
	p := pcapng.Packet{Data: make([]byte, 128), Length: 1500, Has: pcapng.HasFlags | pcapng.HasID, Flags: 1}
	b.ReportAllocs()
	for b.Loop() {
		p.ID++
		if err := w.WritePacket(&p); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "packets/s")
}
