package display

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/gopacket"
	golayers "github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"
	"golang.org/x/sync/errgroup"

	"railbed/capture/layers"
	"railbed/capture/pcapng"
	"railbed/internal/wire"
	"railbed/testkit/hosttest"
	"railbed/testkit/protocoltest"
)

// The code under test has one goroutine, so that nothing could race.
var _ = hosttest.MarkPackage(hosttest.Unraced)

// matches returns the numbers of the packets of a capture that a filter matches.
func matches(t *testing.T, name, filter string) (found []int) {
	t.Helper()
	f, err := Compile(filter)
	if err != nil {
		t.Fatalf("%s: %v", filter, err)
	}
	each(t, name, func(p *Packet) {
		if f.Match(p) {
			found = append(found, p.Number)
		}
	})
	return found
}

// each calls do for each packet of a capture.
func each(t *testing.T, name string, do func(*Packet)) {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	source, err := pcapng.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	d := NewDecoder(source)
	for {
		p, err := d.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		do(p)
	}
}

// tshark returns what tshark -Y finds in a capture.
func tshark(name, dissector, filter string) (found []int, err error) {
	var stderr bytes.Buffer
	cmd := exec.Command("tshark", "-r", name, "-X", "lua_script:"+dissector, "-Y", filter, "-T", "fields",
		"-e", "frame.number", "-o", "ip.defragment:FALSE", "-o", "tcp.desegment_tcp_streams:FALSE")
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("tshark -Y '%s': %w: %s", filter, err, stderr.String())
	}
	for _, word := range strings.Fields(string(out)) {
		n, err := strconv.Atoi(word)
		if err != nil {
			return nil, err
		}
		found = append(found, n)
	}
	return found, nil
}

// draw makes a filter from the fields and values of a packet, so that filters select some packets.
func draw(r *rand.Rand, p *Packet, depth int) string {
	if depth > 0 {
		switch r.IntN(4) {
		case 0:
			return "(" + draw(r, p, depth-1) + " && " + draw(r, p, depth-1) + ")"
		case 1:
			return draw(r, p, depth-1) + " || " + draw(r, p, depth-1)
		case 2:
			return "!" + "(" + draw(r, p, depth-1) + ")"
		}
	}
	for {
		drawn := drawOne(r, p)
		_, err := Compile(drawn)
		var wrong *Error
		if !errors.As(err, &wrong) || !strings.Contains(wrong.What, "no packet has") &&
			!strings.Contains(wrong.What, "too large") {
			return drawn
		}
	}
}

// drawOne makes a filter of one field. No packet may have its constant.
func drawOne(r *rand.Rand, p *Packet) string {
	for {
		f := &Fields[r.IntN(len(Fields))]
		values := f.values(p, nil)
		if len(values) == 0 && r.IntN(20) > 0 || strings.HasPrefix(f.Name, "run.") { // not in Wireshark
			continue
		}
		if len(values) == 0 || f.Kind == Protocol && r.IntN(2) == 0 || r.IntN(8) == 0 {
			return f.Name
		}
		v := values[r.IntN(len(values))]
		if f.Kind == Protocol {
			if len(v.b) < 4 {
				return f.Name
			}
			at := r.IntN(min(len(v.b), 60) - 3)
			return fmt.Sprintf("%s[%d:2] == %02x:%02x", f.Name, at, v.b[at], v.b[at+1])
		}
		text := f.written(v)
		if f.Kind == Text {
			text = strconv.Quote(text)
		}
		switch op := r.IntN(10); {
		case op == 0 && (f.Kind == IPv4 || f.Kind == IPv6):
			return fmt.Sprintf("%s == %s/%d", f.Name, text, 1+r.IntN(8*len(v.b)))
		case op == 1 && f.Kind == Unsigned && v.n > 0:
			return fmt.Sprintf("%s in {%d..%s, 7}", f.Name, uint64(v.n)-uint64(r.Int64N(v.n)), text)
		case op == 2 && f.Kind == Ethernet:
			return fmt.Sprintf("%s[4:2] == %02x:%02x", f.Name, v.b[4], v.b[5])
		case f.Kind == Boolean:
			return f.Name + []string{" == ", " != "}[r.IntN(2)] + text
		default:
			return f.Name + " " + []string{"==", "!=", ">", "<=", "===", "~="}[r.IntN(6)] + " " + text
		}
	}
}

// drawn draws filters for packets of a capture.
func drawn(t *testing.T, r *rand.Rand, name string, count int) (all []string) {
	t.Helper()
	packets := len(matches(t, name, ""))
	for range count {
		want := 1 + r.IntN(packets)
		each(t, name, func(p *Packet) {
			if p.Number == want {
				all = append(all, draw(r, p, 2))
			}
		})
	}
	return all
}

// TestFiltersAsWireshark checks that filters select the packets that tshark -Y selects: some written ones,
// and some drawn from the packets. The captures are of Linux's rxe, of frames of many kinds, and those
// that RAILBED_CAPTURES names.
func TestFiltersAsWireshark(t *testing.T) {
	hosttest.Need(t, hosttest.Tshark)
	dissector := filepath.Join(t.TempDir(), "railbed.lua")
	if err := os.WriteFile(dissector, layers.Dissector, 0o600); err != nil {
		t.Fatal(err)
	}
	seed := uint64(1) // the same in each run, unless other captures are named
	if os.Getenv("RAILBED_CAPTURES") != "" {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	own := ours(t)
	files := map[string]int{ // number of drawn filters
		kinds(t): 20, own: 20, "../verify/rocechecks/testdata/rxe/write-lost-behind.pcap": 10,
		"../verify/rocechecks/testdata/rxe/atomic.pcap":     5,
		"../verify/rocechecks/testdata/rxe/write-ipv6.pcap": 5,
	}
	for _, name := range strings.Fields(os.Getenv("RAILBED_CAPTURES")) {
		files[name] = 60
	}
	selected := map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		written := writtenFilters
		if name == own {
			written = ownFilters
		}
		filters := append(drawn(t, r, name, files[name]), written...)
		want := make([][]int, len(filters))
		var group errgroup.Group
		group.SetLimit(runtime.NumCPU()) // tshark takes half a second to start
		for i, filter := range filters {
			group.Go(func() (err error) {
				want[i], err = tshark(name, dissector, filter)
				return err
			})
		}
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
		for i, filter := range filters {
			got := matches(t, name, filter)
			if !slices.Equal(got, want[i]) {
				t.Errorf("%s: %s selects %v, and tshark %v", filepath.Base(name), filter, got, want[i])
			}
			selected[filter] += len(got)
		}
	}
	for _, filter := range append(slices.Clone(writtenFilters), ownFilters...) {
		if selected[filter] == 0 {
			t.Errorf("%s selects nothing in any capture", filter)
		}
	}
}

var writtenFilters = []string{
	"infiniband.bth.opcode == 17", "infiniband && !(infiniband.bth.opcode in {17, 18..20})",
	"infiniband.aeth && infiniband.bth.psn > 100", "udp.port == 4791 && ip.src != ip.dst",
	"ip.addr == 10.0.0.0/8 or ipv6.addr == fd00::/8", "eth.src[0:3] == 02:00:00",
	"frame.len < 100 && ip.ttl < 65",
	"udp[2:2] == 12:b7", "frame[12:2] contains 08:00", "tcp.flags.syn == 1 and not tcp.flags.ack == 1",
	"arp || icmp || icmpv6 || vlan.id == 7", "ip.ttl in {1, 2, 63..64}", "udp contains \"hello\"",
	"ip.version == 6",
	"ip.src === 10.1.0.1 || eth.dst[-1:] == 02", "ip.ttl ~= 64",
}

// ownFilters are about the protocols and records of this project.
var ownFilters = []string{
	`railbed.verdict == "drop" && railbed.depth > 64000`, `railbed.reason in {"tail", "pfc"}`, "railbed.late",
	"railbed && !railbed.verdict", `railbed.node == "h0" && railbed.rank == 1`, `railbed.port contains "p"`,
	"railbed.message == 3", "railbed.message == 7 && railbed_agg.kind == 2", "railbed.late > 0.002",
	"railbed.late < 0", "!railbed.node", "macc.opcode == 0xfffe && railbed_gfc.kind == 1", "railbed_agg",
	"railbed_agg.flags.repeat == 1 || railbed_agg.code == 3", "macc && !railbed_gfc", "!railbed.rank",
}

// kinds writes a capture of frames of many kinds, some of them cut, and returns its name.
func kinds(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "kinds.pcap")
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	w := pcapgo.NewWriterNanos(file)
	if err := w.WriteFileHeader(200, golayers.LinkTypeEthernet); err != nil {
		t.Fatal(err)
	}
	start := time.Unix(1_800_000_000, 123_456_789)
	for i, frame := range frames(t) {
		info := gopacket.CaptureInfo{Timestamp: start.Add(time.Duration(i*i) * 1_234_567), Length: len(frame),
			CaptureLength: min(len(frame), 200)}
		if err := w.WritePacket(info, frame[:info.CaptureLength]); err != nil {
			t.Fatal(err)
		}
	}
	return name
}

// ours writes a capture of this project's protocols and records, among them comments and interfaces of other
// programs that resemble them, and returns its name.
func ours(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "ours.pcapng")
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	w, err := pcapng.NewWriter(file, pcapng.Section{Application: "test"})
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range []pcapng.Interface{
		{Name: "h0:eth0", Description: pcapng.TapDescription{Link: "h0--leaf1", Ranks: []int{1}}.String()},
		{Name: "leaf1:p0", Description: "h0--leaf1"}, {Name: "eth0", Description: "Ethernet ranks=2"},
		{Name: "rpcap://host:2002/eth0"}, {Name: "h1:eth0", Description: "two words ranks=5"},
		{Name: "h2:rail0.1", Description: "h2--leaf1 ranks=6,7,"},
		{Name: "h3:eth0", Description: "h3--leaf1 ranks=8,9"},
	} {
		i.LinkType = pcapng.LinkEthernet
		if _, err := w.AddInterface(i); err != nil {
			t.Fatal(err)
		}
	}
	comments := []string{"", "railbed verdict=drop reason=tail depth=64001 late=1200ns",
		"railbed verdict=mark reason=ecn depth=40320", "railbed late=2500000ns", "railbed",
		"railbed verdict=drop reason=", "railbed reason=tail verdict=drop", "railbed  verdict=drop",
		"railbedverdict=drop", "railbed verdict=drop depth=many", "railbed depth=0 late=-1500000001ns",
		"a remark", "railbed verdict=pause reason=pfc unknown=1"}
	at := int64(1_800_000_000_000_000_000)
	for i, data := range framesOfOurs(t) {
		for j := range 4 {
			at += 1_000_007
			p := pcapng.Packet{Interface: (i + 2*j) % 7, Time: at, Length: len(data), Data: data,
				Has: pcapng.HasFlags, Flags: pcapng.Flags(i % 3)}
			for k := range 1 + i%2 {
				comment := comments[(4*i+j+5*k)%len(comments)]
				if comment != "" {
					p.Comments = append(p.Comments, []byte(comment))
				}
			}
			if err := w.WritePacket(&p); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return name
}

// framesOfOurs returns a frame of each example of the protocols, and frames of MAC control.
func framesOfOurs(t *testing.T) (all [][]byte) {
	t.Helper()
	for _, example := range []struct {
		name     string
		from, to uint16
	}{
		{"aggregation-update", 40000, wire.PortAggregation},
		{"aggregation-partial", 40000, wire.PortAggregation},
		{"aggregation-result", wire.PortAggregation, 40000},
		{"aggregation-reject", wire.PortAggregation, 40000},
		{"aggregation-max", 40000, wire.PortAggregation}, {"int-probe", 40000, wire.PortINT},
		{"rd-data", wire.PortRDPath, wire.PortRD + 3}, {"rd-skip", wire.PortRDPath, wire.PortRD + 3},
		{"rd-ack", wire.PortRDPath, wire.PortRD + 3}, {"rd-nack", wire.PortRDPath, wire.PortRD + 3},
	} {
		payload := protocoltest.Example(t, example.name)
		all = append(all, datagram(t, example.from, example.to, payload))
		if strings.HasPrefix(example.name, "aggregation") {
			payload[0] = 0x20 | payload[0]&0xF // an earlier version
			all = append(all, datagram(t, example.from, example.to, payload),
				datagram(t, example.from, example.to, payload[:30]))
		}
	}
	gfc := protocoltest.Example(t, "gentle-flow-control")
	foreign, unknown := slices.Clone(gfc), slices.Clone(gfc)
	foreign[2], unknown[5] = 0x02, 9
	pfc := []byte{1, 1, 0, 8, 0, 0, 0, 0, 0, 0, 255, 255}
	for _, control := range [][]byte{gfc, foreign, unknown, pfc, {0, 1, 0, 9}} {
		frame := append([]byte{1, 0x80, 0xC2, 0, 0, 1, 2, 0, 0, 0, 0, 1, 0x88, 0x08}, control...)
		all = append(all, append(frame, make([]byte, 60-len(frame))...))
	}
	return all
}

// datagram returns a frame with a UDP payload.
func datagram(t *testing.T, from, to uint16, payload []byte) []byte {
	t.Helper()
	ip := &golayers.IPv4{Version: 4, TTL: 64, Protocol: golayers.IPProtocolUDP, SrcIP: net.IP{10, 1, 0, 1},
		DstIP: net.IP{10, 2, 0, 2}}
	udp := &golayers.UDP{SrcPort: golayers.UDPPort(from), DstPort: golayers.UDPPort(to)}
	err := udp.SetNetworkLayerForChecksum(ip)
	b := gopacket.NewSerializeBuffer()
	if err == nil {
		err = gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
			&golayers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1},
				DstMAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, EthernetType: golayers.EthernetTypeIPv4},
			ip, udp, gopacket.Payload(payload))
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestBadFilters checks that errors state the column and what would be right.
func TestBadFilters(t *testing.T) {
	for filter, want := range map[string]string{
		"ip.scr == 10.0.0.1":      `column 1: no field "ip.scr"; want a field; did you mean "ip.src"?`,
		"ip.src == 10.0.0":        `column 11: "10.0.0" for ip.src, which is an IPv4 address`,
		"udp.port == 4791 ip":     `column 18: "ip" after the end of the filter`,
		"udp.port ==":             "column 12: the end of the filter where a value of udp.port belongs",
		"(tcp || udp":             "column 12: the end of the filter in parentheses",
		"udp.port in {}":          "column 14: \"}\" where a value of udp.port belongs",
		"udp.port in {1 2}":       `column 16: "2" in a set; want "," or "}"`,
		"udp.port in {1":          "column 15: the end of the filter in a set",
		"udp.port[0] == 1":        "column 1: a slice of udp.port, which is a number",
		"eth.src[0:0] == 1":       `column 9: "0:0" as a range of bytes`,
		"ip.ttl contains 1":       "column 8: contains for ip.ttl, which is a number",
		"ip.src == udp.port":      "column 11: udp.port, which is a number, compared with ip.src",
		`railbed.reason == "tail`: "column 19: a string that does not end",
		`railbed.verdict == "dropped"`: `column 20: no packet has the railbed.verdict "dropped"; want one of ` +
			`enqueue, dequeue, drop, mark, trim, pause, resume, slow, delay, duplicate, corrupt, truncate, ` +
			`rewrite, mirror, misroute, request-pause; did you mean "drop"?`,
		"railbed.verdict in {drop, zz}": `column 27: no packet has the railbed.verdict "zz"; want one of`,
		"ip.ttl == 1 § 2":               "column 13: the character",
		"== 1":                          `column 1: "==" where a field belongs`,
		"!" + strings.Repeat("(", 200):  "a filter that is nested too deep",
	} {
		_, err := Compile(filter)
		var at *Error
		if !errors.As(err, &at) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", filter, err, want)
		}
	}
}

// TestRecordsOfSwitches checks the fields that only captures of this project have.
func TestRecordsOfSwitches(t *testing.T) {
	p := &Packet{Number: 1, Interface: &pcapng.Interface{Name: "leaf1:p3", LinkType: pcapng.LinkEthernet},
		Raw: &pcapng.Packet{Comments: [][]byte{pcapng.Annotation{Verdict: "drop", Reason: "tail",
			Depth: 64_000, HasDepth: true, Late: 1500, HasLate: true}.AppendTo(nil)}}}
	p.Set(p.Raw, p.Interface, p.Number, 0)
	for filter, want := range map[string]bool{
		`railbed.node == "leaf1" && railbed.port == "p3"`: true, `railbed.node == leaf2`: false,
		`railbed.verdict == "drop" && railbed.reason == "tail"`: true, `railbed.reason contains "ai"`: true,
		"railbed.depth in {63000..64000}": true, "railbed.depth > 64000": false, "railbed.late > 1us": true,
		"railbed.late > 0.002": false, "railbed": true, "railbed.verdict in {mark, trim}": false, "": true,
	} {
		f, err := Compile(filter)
		if err != nil || f.Match(p) != want {
			t.Errorf("%s: %v, want %v", filter, err, want)
		}
	}
}

// FuzzCompile checks that no filter and no packet makes the package panic.
func FuzzCompile(f *testing.F) {
	for _, filter := range writtenFilters {
		f.Add(filter, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45})
	}
	for _, frame := range [][]byte{reliable(false), reliable(true), acknowledgement(), update()} {
		f.Add("frame.len > 0", frame[:len(frame)-20:len(frame)-20])
	}
	f.Fuzz(func(_ *testing.T, text string, frame []byte) {
		p := &Packet{Interface: &pcapng.Interface{LinkType: pcapng.LinkEthernet},
			Raw: &pcapng.Packet{Data: frame, Length: len(frame) + len(text)%3*10}}
		p.Set(p.Raw, p.Interface, p.Number, 0)
		if filter, err := Compile(text); err == nil {
			filter.Match(p)
		}
		for i := range Fields {
			Fields[i].values(p, nil)
		}
	})
}
