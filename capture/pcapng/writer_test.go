package pcapng_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket/pcapgo"

	"railbed/capture/pcapng"
	"railbed/testkit/hosttest"
)

// unhex joins lines of hex digits; what follows a # is a remark.
func unhex(t testing.TB, text string) []byte {
	t.Helper()
	var digits strings.Builder
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		digits.WriteString(strings.Join(strings.Fields(line), ""))
	}
	data, err := hex.DecodeString(digits.String())
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// The literal bytes are laid out by hand from the figures of
// draft-ietf-opsawg-pcapng, sections 4.1 to 4.6, and the option tables there.
func TestWriterBytes(t *testing.T) {
	var out bytes.Buffer
	w, err := pcapng.NewWriter(&out,
		pcapng.Section{OS: "Linux", Application: "railbed", Comments: []string{"hello"}})
	if err != nil {
		t.Fatal(err)
	}
	number, err := w.AddInterface(pcapng.Interface{
		Name: "h0:eth0", Description: "h0--leaf0", Filter: "tcp", OS: "Linux", Hardware: "nic",
		SnapLen: 256, LinkType: pcapng.LinkEthernet,
		MAC: [6]byte{0, 1, 2, 3, 4, 5}, HasMAC: true, Speed: 100000000,
	})
	if err != nil || number != 0 {
		t.Fatal(number, err)
	}
	err = w.WritePacket(&pcapng.Packet{
		Time: 0x1122334455667788, Data: []byte{1, 2, 3, 4, 5}, Length: 60,
		Has:   pcapng.HasFlags | pcapng.HasID | pcapng.HasQueue | pcapng.HasDropCount,
		Flags: pcapng.Outbound | pcapng.Broadcast, ID: 0x0102030405060708, Queue: 7, DropCount: 9,
		Comments: [][]byte{[]byte("note")},
	})
	if err != nil {
		t.Fatal(err)
	}
	err = w.WriteStatistics(pcapng.Statistics{
		Time: 0x0a, Start: 0x0000000100000002, End: 0x0000000300000004, Received: 100, Dropped: 5,
		Has: pcapng.HasStart | pcapng.HasEnd | pcapng.HasReceived | pcapng.HasDropped,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	want := unhex(t, `
0a0d0d0a 44000000 4d3c2b1a 0100 0000 ffffffffffffffff # section header of 68 bytes, 1.0, length unknown
  0100 0500 68656c6c6f 000000                         # opt_comment "hello"
  0300 0500 4c696e7578 000000                         # shb_os "Linux"
  0400 0700 7261696c626564 00                         # shb_userappl "railbed"
  0000 0000 44000000
01000000 70000000 0100 0000 00010000                  # interface of 112 bytes, Ethernet, snaplen 256
  0200 0700 68303a65746830 00                         # if_name "h0:eth0"
  0300 0900 68302d2d6c65616630 000000                 # if_description "h0--leaf0"
  0600 0600 000102030405 0000                         # if_MACaddr, the draft's example
  0800 0800 00e1f50500000000                          # if_speed 100000000, the draft's example
  0900 0100 09 000000                                 # if_tsresol 10^-9
  0b00 0400 00 746370                                 # if_filter, code 0, "tcp"
  0c00 0500 4c696e7578 000000                         # if_os "Linux"
  0f00 0300 6e6963 00                                 # if_hardware "nic"
  0000 0000 70000000
06000000 5c000000 00000000 44332211 88776655 05000000 3c000000 # packet of 92 bytes: interface, time high, low, captured 5 of 60
  0102030405 000000
  0100 0400 6e6f7465                                  # opt_comment "note"
  0200 0400 0e000000                                  # epb_flags: outbound (2), broadcast (3 << 2)
  0400 0800 0900000000000000                          # epb_dropcount
  0500 0800 0807060504030201                          # epb_packetid
  0600 0400 07000000                                  # epb_queue
  0000 0000 5c000000
05000000 4c000000 00000000 00000000 0a000000          # statistics of 76 bytes
  0200 0800 01000000 02000000                         # isb_starttime, high half first
  0300 0800 03000000 04000000                         # isb_endtime
  0400 0800 6400000000000000                          # isb_ifrecv
  0500 0800 0500000000000000                          # isb_ifdrop
  0000 0000 4c000000
`)
	if !bytes.Equal(out.Bytes(), want) {
		t.Errorf("wrote\n%s\nwant\n%s", hex.Dump(out.Bytes()), hex.Dump(want))
	}
	if w.Written() != int64(len(want)) {
		t.Errorf("Written is %d, want %d", w.Written(), len(want))
	}
}

// example writes a capture with two taps and three packets.
func example(t testing.TB) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := pcapng.NewWriter(&out,
		pcapng.Section{Hardware: "x86", OS: "Linux", Application: "railbed",
			Comments: []string{"railbed dilation=1"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range []pcapng.Interface{
		{Name: "h0:eth0", Description: "h0--leaf0", Hardware: pcapng.HardwareNIC, Filter: "ip", LinkType: 1,
			SnapLen: 128},
		{Name: "leaf0:p0", Description: "h0--leaf0", Hardware: pcapng.HardwareSwitchPort, Filter: "ip",
			LinkType: 1, SnapLen: 128},
	} {
		if _, err := w.AddInterface(i); err != nil {
			t.Fatal(err)
		}
	}
	// An Ethernet frame of unknown type, so that tshark has nothing to complain about.
	frame := append([]byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5}, "railbed!"...)
	note := pcapng.Annotation{Verdict: "drop", Reason: "tail", Depth: 40320, HasDepth: true, Late: 1200,
		HasLate: true}
	packets := []pcapng.Packet{
		{Interface: 0, Time: 1700000000123456789, Data: frame, Length: 1000, Flags: pcapng.Outbound,
			ID: 0xfedcba9876543210, Queue: 3},
		{Interface: 1, Time: 1700000000123460000, Data: frame, Length: 1000,
			Flags: pcapng.Inbound | pcapng.Unicast, ID: 0xfedcba9876543210, Queue: 4},
		{Interface: 1, Time: 1700000000123470001, Data: frame, Length: 1000, Flags: pcapng.Inbound, ID: 5,
			Comments: [][]byte{note.AppendTo(nil)}},
	}
	for i := range packets {
		packets[i].Has = pcapng.HasFlags | pcapng.HasID | pcapng.HasQueue
		if err := w.WritePacket(&packets[i]); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2 {
		s := pcapng.Statistics{Interface: i, Time: 1700000001e9, Start: 1700000000e9, End: 1700000001e9,
			Received: uint64(10 + i), Dropped: uint64(i),
			Has: pcapng.HasStart | pcapng.HasEnd | pcapng.HasReceived | pcapng.HasDropped}
		if err := w.WriteStatistics(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestTsharkReadsIt(t *testing.T) {
	hosttest.Need(t, hosttest.Tshark)
	file := filepath.Join(t.TempDir(), "x.pcapng")
	if err := os.WriteFile(file, example(t), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("tshark", "-n", "-r", file, "-T", "fields", "-E", "separator=|",
		"-e", "frame.interface_name", "-e", "frame.interface_description", "-e", "frame.time_epoch", "-e",
		"frame.len", "-e", "frame.cap_len",
		"-e", "frame.packet_flags", "-e", "frame.packet_flags_direction", "-e", "frame.packet_id", "-e",
		"frame.interface_queue",
		"-e", "frame.comment").Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("tshark: %v: %s", err, exit.Stderr)
		}
		t.Fatal(err)
	}
	want := `h0:eth0|h0--leaf0|1700000000.123456789|1000|22|0x00000002|0x00000002|18364758544493064720|3|
leaf0:p0|h0--leaf0|1700000000.123460000|1000|22|0x00000005|0x00000001|18364758544493064720|4|
leaf0:p0|h0--leaf0|1700000000.123470001|1000|22|0x00000001|0x00000001|5|0|railbed verdict=drop reason=tail depth=40320 late=1200ns
`
	if string(out) != want {
		t.Errorf("tshark says\n%swant\n%s", out, want)
	}
}

func TestGopacketReadsIt(t *testing.T) {
	statistics := map[int]pcapgo.NgInterfaceStatistics{}
	r, err := pcapgo.NewNgReader(bytes.NewReader(example(t)), pcapgo.NgReaderOptions{
		StatisticsCallback: func(i int, s pcapgo.NgInterfaceStatistics) { statistics[i] = s },
	})
	if err != nil {
		t.Fatal(err)
	}
	var times []int64
	for {
		data, info, err := r.ReadPacketData()
		if err != nil {
			break
		}
		if len(data) != 22 || info.Length != 1000 {
			t.Errorf("packet of %d captured bytes and length %d", len(data), info.Length)
		}
		times = append(times, info.Timestamp.UnixNano())
	}
	if len(times) != 3 || times[2] != 1700000000123470001 {
		t.Errorf("times %v", times)
	}
	if r.NInterfaces() != 2 || statistics[1].PacketsReceived != 11 || statistics[1].PacketsDropped != 1 ||
		statistics[1].StartTime.UnixNano() != 1700000000e9 {
		t.Errorf("%d interfaces, statistics %+v", r.NInterfaces(), statistics)
	}
	i, err := r.Interface(1)
	if err != nil || i.Name != "leaf0:p0" || i.Filter != "ip" || i.SnapLength != 128 ||
		i.TimestampResolution.Exponent() != 9 {
		t.Errorf("interface 1 is %+v, %v", i, err)
	}
}

func TestAnnotation(t *testing.T) {
	full := pcapng.Annotation{Verdict: "drop", Reason: "tail", Depth: 40320, HasDepth: true,
		Late: 1200 * time.Nanosecond, HasLate: true}
	const text = "railbed verdict=drop reason=tail depth=40320 late=1200ns"
	if got := string(full.AppendTo(nil)); got != text {
		t.Errorf("wrote %q, want %q", got, text)
	}
	if got, ok := pcapng.ParseAnnotation([]byte(text)); !ok || got != full {
		t.Errorf("read %+v, %v", got, ok)
	}
	if got, ok := pcapng.ParseAnnotation([]byte("railbed reason=mark late=-5ns")); !ok ||
		got.Reason != "mark" || got.Late != -5 || got.HasDepth {
		t.Errorf("read %+v, %v", got, ok)
	}
	for _, text := range []string{
		"", "hello", "railbedverdict=drop", "railbed  verdict=drop", "railbed verdict=",
		"railbed verdict=a verdict=b",
		"railbed reason=tail verdict=drop", "railbed depth=x", "railbed late=5", "railbed colour=red",
		"railbed verdict=drop ",
	} {
		if a, ok := pcapng.ParseAnnotation([]byte(text)); ok {
			t.Errorf("%q was read as %+v", text, a)
		}
	}
}
