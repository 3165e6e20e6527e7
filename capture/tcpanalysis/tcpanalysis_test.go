package tcpanalysis

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"

	"railbed/internal/wire"
	"railbed/testkit/hosttest"
)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

func (f Flags) String() string {
	var all []string
	for i, n := range Names {
		if f&(1<<i) != 0 {
			all = append(all, n)
		}
	}
	return strings.Join(all, "+")
}

// walk makes segments of a few connections. Most follow the segments before them, and some repeat, leave out
// or overtake data, close windows or probe.
type walk struct {
	draw *rand.Rand
	now  int64
	ends map[int]*[2]end
	// unseen makes some segments acknowledge data that passed no tap.
	unseen bool
}

// end is one end of a connection.
type end struct {
	isn, next uint32 // of its own data
	window    uint16
	scale     bool
	opened    bool
}

var addresses = [2]netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}

func (w *walk) segment() Segment {
	number := w.draw.IntN(3)
	ends := w.ends[number]
	if ends == nil {
		ends = &[2]end{{isn: w.draw.Uint32(), window: 3000, scale: number > 0},
			{isn: w.draw.Uint32(), window: 3000, scale: number > 0}}
		if number == 2 {
			ends[0].isn = 0xFFFFFF00 // soon 0
		}
		ends[0].next, ends[1].next = ends[0].isn, ends[1].isn
		w.ends[number] = ends
	}
	side := w.draw.IntN(2)
	if !ends[0].opened {
		side = 0
	} else if !ends[1].opened {
		side = 1
	}
	mine, theirs := &ends[side], &ends[1-side]
	w.now += []int64{50e3, 500e3, 5e6, 30e6}[w.draw.IntN(4)]
	f := wire.TCPFields{SrcPort: uint16(1000 + number), DstPort: uint16(2000 + number), Seq: mine.next,
		Ack: theirs.next, Flags: wire.TCPACK, Window: mine.window}
	if side == 1 {
		f.SrcPort, f.DstPort = f.DstPort, f.SrcPort
	}
	var options []byte
	payload := 0
	switch {
	case !mine.opened:
		mine.opened = true
		f.Flags, f.Seq = wire.TCPSYN, mine.isn
		if theirs.opened {
			f.Flags |= wire.TCPACK
		} else {
			f.Ack = 0
		}
		if mine.scale {
			options = []byte{3, 3, 2, 1}
		}
		mine.next++
	default:
		payload = w.step(&f, mine, theirs)
	}
	h := make(wire.TCP, wire.TCPMinLen+len(options))
	f.HeaderLength = len(h)
	h.Encode(&f)
	copy(h[wire.TCPMinLen:], options)
	return Segment{Time: w.now, Source: addresses[side], Destination: addresses[1-side], Header: h,
		Payload: payload}
}

// step changes a segment that would follow from those before, and returns its payload.
func (w *walk) step(f *wire.TCPFields, mine, theirs *end) (payload int) {
	switch w.draw.IntN(16) {
	case 0, 1, 2, 3: // data
		payload = 100 * (1 + w.draw.IntN(14))
	case 4, 5: // data again, or from the middle
		payload = 100 * (1 + w.draw.IntN(3))
		f.Seq -= uint32(100 * w.draw.IntN(5))
	case 6: // after a hole
		payload = 100
		f.Seq += uint32(100 * w.draw.IntN(3))
	case 7: // keep alive
		f.Seq--
		payload = w.draw.IntN(2)
	case 8: // another window
		mine.window = []uint16{0, 0, 1000, 3000}[w.draw.IntN(4)]
		f.Window = mine.window
	case 9: // a probe
		payload = 1
	case 10: // what fills the window
		shift := 0
		if theirs.scale {
			shift = 2
		}
		payload = min(int(theirs.window)<<shift, 9000)
	case 11: // an old acknowledgement
		f.Ack -= uint32(100 * w.draw.IntN(4))
	case 12: // of data that was not seen
		if w.unseen {
			f.Ack += 100
		}
	case 13:
		if w.draw.IntN(8) == 0 {
			f.Flags |= []wire.TCPFlags{wire.TCPFIN, wire.TCPRST}[w.draw.IntN(2)]
		}
	} // else a bare acknowledgement
	if end := f.Seq + uint32(payload); after(end, mine.next) {
		mine.next = end
	}
	return payload
}

// TestAnalysisAgreesWithTshark compares random segments with tshark's analysis, one by one.
func TestAnalysisAgreesWithTshark(t *testing.T) {
	hosttest.Need(t, hosttest.Tshark)
	name := filepath.Join(t.TempDir(), "walk.pcapng")
	for seed := range uint64(2) {
		segments := writeWalk(t, name, seed, 4000)
		args := []string{"-r", name, "-o", "tcp.check_checksum:FALSE", "-T", "fields"}
		for _, n := range Names {
			args = append(args, "-e", "tcp.analysis."+n)
		}
		args = append(args, "-e", "tcp.analysis.duplicate_ack_num")
		var out bytes.Buffer
		cmd := exec.CommandContext(t.Context(), "tshark", args...)
		cmd.Stdout = &out
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		var a Analyzer
		wrong := 0
		for i, line := range strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n") {
			got := a.Add(segments[i])
			var want Finding
			for k, text := range strings.Split(line, "\t") {
				switch {
				case text == "":
				case k < len(Names):
					want.Flags |= 1 << k
				default:
					_, _ = fmt.Sscan(text, &want.Duplicate)
				}
			}
			if seed > 0 { // see Finding
				want.Duplicate = got.Duplicate
			}
			if got != want {
				if wrong++; wrong < 10 {
					t.Errorf("seed %d, segment %d: %v %d, want %v %d", seed, i+1, got.Flags, got.Duplicate,
						want.Flags, want.Duplicate)
				}
			}
		}
		if wrong > 0 {
			t.Errorf("seed %d: %d of %d segments", seed, wrong, len(segments))
		}
	}
}

// writeWalk writes a capture of n segments.
func writeWalk(t *testing.T, name string, seed uint64, n int) (segments []Segment) {
	t.Helper()
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	w, err := pcapgo.NewNgWriter(file, layers.LinkTypeEthernet)
	if err != nil {
		t.Fatal(err)
	}
	steps := walk{draw: rand.New(rand.NewPCG(seed, 1)), now: 1e18, ends: map[int]*[2]end{},
		unseen: seed > 0}
	for range n {
		s := steps.segment()
		segments = append(segments, s)
		eth := &layers.Ethernet{SrcMAC: []byte{2, 0, 0, 0, 0, 1}, DstMAC: []byte{2, 0, 0, 0, 0, 2},
			EthernetType: layers.EthernetTypeIPv4}
		ip := &layers.IPv4{Version: 4, TTL: 9, Protocol: layers.IPProtocolTCP, SrcIP: s.Source.AsSlice(),
			DstIP: s.Destination.AsSlice()}
		buffer := gopacket.NewSerializeBuffer()
		if err := gopacket.SerializeLayers(buffer, gopacket.SerializeOptions{FixLengths: true}, eth, ip,
			gopacket.Payload(append(bytes.Clone(s.Header), make([]byte, s.Payload)...))); err != nil {
			t.Fatal(err)
		}
		info := gopacket.CaptureInfo{Timestamp: time.Unix(0, s.Time), CaptureLength: len(buffer.Bytes()),
			Length: len(buffer.Bytes())}
		if err := w.WritePacket(info, buffer.Bytes()); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return segments
}
