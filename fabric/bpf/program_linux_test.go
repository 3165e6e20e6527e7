package bpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"railbed/capture/display"
	"railbed/capture/pcapng"
	"railbed/fabric/softswitch"
	"railbed/fabric/softswitch/draw"
	softpacket "railbed/fabric/softswitch/packet"
	"railbed/internal/clock"
	"railbed/internal/verdict"
	"railbed/internal/wire"
	"railbed/plan"
	"railbed/testkit/hosttest"
	"railbed/testkit/hosttest/vmtest"
	"railbed/testkit/plantest"
)

// TestPrograms loads programs into the kernel of a guest, and compares what they do to packets with the
// filters and the faults of soft switches.
func TestPrograms(t *testing.T) {
	hosttest.Long(t)
	hosttest.Need(t, hosttest.Root) // an ordinary user's guest would be the same one again
	if !vmtest.InGuest(t, vmtest.Options{CPUs: 2, Timeout: 5 * time.Minute}) {
		return
	}
	compare(t)
}

// TestProgramsHere is TestPrograms with this kernel, which is newer than the guest's, if it lets us load
// programs.
func TestProgramsHere(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	_, err := loadCode(asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()})
	if errors.Is(err, verdict.ErrUnsupported) {
		t.Skip(err)
	}
	compare(t)
}

func compare(t *testing.T) {
	t.Run("filters", filtersAgree)
	t.Run("faults", faultsAgree)
	t.Run("draws", drawsAgree)
	t.Run("order", faultsInOrder)
	t.Run("end", faultEnds)
	t.Run("refusal", refusalKeepsLog)
}

// filters have every kind of header and operator.
var filters = []string{
	"frame", "eth", "arp", "macc", "ip", "ipv6", "icmp", "icmpv6", "udp", "tcp", "infiniband",
	"infiniband.bth", "infiniband.deth", "infiniband.reth", "infiniband.aeth", "infiniband.immdt",
	"infiniband.ieth",
	"infiniband.atomiceth", "infiniband.atomicacketh", "rd", "railbed_agg",
	"eth.type == 0x800", "eth.type != 0x800", "frame.len >= 100",
	"frame.len < 80 || frame.len in {90..110, 200}",
	"tcp.len > 0", "tcp.len == 0", "!tcp.len", "tcp.flags.syn == true", "tcp.flags in {0..0x20, 0x33}",
	"eth.addr == 02:00:00:00:00:01", "eth.src < eth.dst",
	"arp.opcode == 1 && arp.src.proto_ipv4 == 10.0.0.0/8",
	"ip.src == 10.0.0.1", "ip.addr == 10.0.0.0/30", "ip.addr != 10.0.0.1", "ip.addr === 10.0.0.0/24",
	"ip.addr !== 10.0.0.1", "ip.src in {10.0.0.1, 10.0.0.3..10.0.0.5}", "ip.src >= 10.0.0.2",
	"ip.src > 10.0.0.0/31",
	"ip.src == ip.dst", "ip.hdr_len > 20", "ip.dsfield.ecn == 2", "ip.frag_offset > 0", "ip.flags.df == 1",
	"ip.ttl in {1..63}", "ip.proto == 17 and not udp", "ip.version == 6", "ip.len < 60",
	"ipv6.src == fd00::1", "ipv6.addr == fd00::/127", "ipv6.dst in {fd00::2..fd00::4, fd00::9}",
	"ipv6.src < ipv6.dst", "ipv6.tclass.ecn == 1", "ipv6.flow > 0x80000", "ipv6.nxt in {0, 43, 44, 60}",
	"icmp.type == 3 && udp", "icmpv6.type in {1..4} && tcp", "icmp.code == 0", "icmpv6.code != 0",
	"udp.port == 4791", "udp.srcport == udp.dstport", "udp.srcport !== udp.dstport", "udp.length > 60",
	"infiniband.bth.opcode in {4, 6..10}", "infiniband.bth.destqp > 0x800000",
	"infiniband.bth.psn < 0x400000",
	"infiniband.bth.padcnt == 3", "infiniband.bth.a == true", "infiniband.reth.va > 0x7fffffffffffffff",
	"infiniband.aeth.msn < 0x800000", "infiniband.reth.dmalen > 5 || infiniband.deth.srcqp > 5",
	"infiniband.atomiceth.cmpdt > 0 || infiniband.atomicacketh.origremdt >= 0",
	"rd.type == 1", "rd.flags.encrypted == 1", "rd.psn > 0x80000000", "rd.life < 0x8000000000000000",
	"rd.data.message > 0x40000000", "rd.ack.words", "rd.nack.reason > 3 or rd.reject.reason > 3",
	"rd.skip.count > 5", "railbed.message > 0x20000000", "railbed_agg.kind == 1", "railbed_agg.fan_in > 9",
	"!(udp && ip.src == 10.0.0.1) && (frame.len > 64 || arp)", "rd.version == rd.type",
}

func filtersAgree(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var packets [][]byte
	for range 300 {
		packets = append(packets, someFrame(random))
	}
	hits := 0
	for _, text := range filters {
		filter, err := display.CompileBytes(text)
		if err != nil {
			t.Error(err)
			continue
		}
		run := load(t, fmt.Sprintf("{where: all, match: %q, drop: {}}", text))
		matched := 0
		for i, data := range packets {
			shown := new(display.Packet)
			shown.Set(&pcapng.Packet{Data: data, Length: len(data)},
				&pcapng.Interface{LinkType: pcapng.LinkEthernet}, 1, 0)
			want := filter.Match(shown)
			if got, _ := run.once(t, data); (got == dropped) != want {
				t.Errorf("%s: packet %d: the program says %d, the filter says %t\n%x", text, i, int32(got),
					want, data)
				break
			}
			if want {
				matched++
			}
		}
		if matched == 0 || matched == len(packets) && text != "frame" && text != "eth" {
			t.Errorf("%s: matches %d of %d packets, so that it compares nothing", text, matched, len(packets))
		}
		hits += matched
		if counts, err := run.faults[0].Counts(); err != nil || counts != (Counts{Matched: uint64(matched),
			Hit: uint64(matched)}) {
			t.Errorf("%s: %+v, %v, want %d", text, counts, err, matched)
		}
	}
	t.Logf("%d filters hit %d of %d packets", len(filters), hits, len(filters)*len(packets))
}

// running is a program in the kernel.
type running struct {
	faults  []*Loaded
	program *Program
	reports *Reports
	reader  *ReportReader // nil until open
}

// load loads a port's faults, named f1, f2 and so on.
func load(t testing.TB, texts ...string) *running {
	t.Helper()
	r := new(running)
	p := pair(t)
	for i, text := range texts {
		f := parse(t, text)
		f.Name = fmt.Sprintf("f%d", i+1)
		made, err := New(p, f, nic(p), 0)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		loaded, err := Load(made, uint32(i))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { loaded.Close() })
		r.faults = append(r.faults, loaded)
	}
	r.finish(t, texts)
	return r
}

// finish loads the program of the faults.
func (r *running) finish(t testing.TB, texts []string) {
	t.Helper()
	reports, err := NewReports()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { reports.Close() })
	r.reports = reports
	if r.program, err = NewProgram(r.faults, reports); err != nil {
		var verifier *VerifierError
		if errors.As(err, &verifier) {
			t.Fatalf("%v: %v\n%s", texts, err, verifier.Log[max(0, len(verifier.Log)-6000):])
		}
		t.Fatalf("%v: %v", texts, err)
	}
	t.Cleanup(func() { r.program.Close() })
}

// open begins to read the program's reports, until the returned function is called.
func (r *running) open(t testing.TB) (end func()) {
	t.Helper()
	var err error
	if r.reader, err = r.reports.Open(); err != nil {
		t.Fatal(err)
	}
	return func() { r.reader.Close() }
}

// reported returns the packets that the program has reported since the last call.
func (r *running) reported(t *testing.T) (hits []Hit) {
	t.Helper()
	err := r.reader.Read(time.Now(), func(one *Hit) {
		kept := *one
		kept.Data = slices.Clone(one.Data)
		hits = append(hits, kept)
	})
	if err != nil {
		t.Fatal(err)
	}
	return hits
}

// once runs the program on a packet, and returns its verdict and the packet that leaves.
func (r *running) once(t *testing.T, data []byte) (verdict uint32, out []byte) {
	t.Helper()
	o := ebpf.RunOptions{Data: data, DataOut: make([]byte, len(data)+256)}
	verdict, err := r.program.loaded.Run(&o)
	if err != nil {
		t.Fatalf("run a program on %d bytes: %v", len(data), err)
	}
	return verdict, o.DataOut
}

func pair(t testing.TB) *plan.Plan {
	return plantest.Compile(t, `name: t
seed: 7
fabric: {topology: single-switch, params: {hosts: 2}, switch: {kind: soft}}
`)
}

// nic is the port of the first node.
func nic(p *plan.Plan) plan.End {
	return plan.End{Node: p.Nodes[0].Name, Port: p.Nodes[0].NICs[0].Name}
}

// watcher keeps what arrives at a port.
type watcher struct {
	port   int
	frames [][]byte
}

func (w *watcher) Observe(o *softswitch.Observation) {
	if o.Port == w.port && o.Kind == softswitch.Arrived {
		w.frames = append(w.frames, slices.Clone(o.Packet.Data))
	}
}

// atSoft sends packets by a NIC with faults of an engine of soft switches. It returns the frames that come
// out for each packet, and the faults.
func atSoft(t *testing.T, packets [][]byte, texts ...string) (out [][][]byte,
	states []softswitch.FaultState) {
	t.Helper()
	p, w := pair(t), new(watcher)
	engine, err := softswitch.New(p, softswitch.Options{Observer: w, Memory: 4 << 20,
		Deliver: func(int, *softpacket.Packet) {}})
	if err != nil {
		t.Fatal(err)
	}
	far := p.Links[0].B
	if far == nic(p) {
		far = p.Links[0].A
	}
	w.port, _ = engine.PortNumber(far)
	engine.Observe(w.port, true)
	for i, text := range texts {
		f := parse(t, text)
		f.Name = fmt.Sprintf("f%d", i+1)
		if err := engine.AddFault(*f, []plan.End{nic(p)}); err != nil {
			t.Fatal(err)
		}
	}
	for i, data := range packets {
		at := clock.Time(i+1) * clock.Time(time.Millisecond)
		engine.Advance(at)
		one := engine.Pool().Get()
		one.Data = one.Data[:copy(one.Data[:cap(one.Data)], data)]
		engine.Receive(0, one, at)
		w.frames = nil
		engine.Advance(at + clock.Time(900*time.Microsecond))
		out = append(out, w.frames)
	}
	return out, engine.Faults()
}

func faultsAgree(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	var packets [][]byte
	for range 120 {
		packets = append(packets, soundFrame(random))
	}
	for _, texts := range [][]string{
		{"{where: all, drop: {}}"},
		{"{where: all, match: udp, drop: {nth: [1, 5, 6, 20]}}"},
		{"{where: all, match: tcp, drop: {nth: [3]}}"},
		{"{where: all, match: ip, drop: {every: 7}}"},
		{"{where: all, match: udp, drop: {share: 100%}}"},
		{"{where: all, mark: {}}"},
		{"{where: all, match: ipv6, mark: {every: 2}}"},
		{"{where: all, corrupt: {at: 20B, bits: 129, every: 3}}"},
		{"{where: all, corrupt: {at: 90B, every: 2}}"},
		{"{where: all, match: frame.len > 80, truncate: {to: 80B, every: 2}}"},
		{"{where: all, truncate: {to: 90B}}"},
		{"{where: all, match: udp, duplicate: {every: 4}}"},
		// Later faults get the packets as the earlier ones changed them.
		{"{where: all, corrupt: {at: 23B, bits: 17, every: 2}}",
			"{where: all, match: tcp, drop: {every: 2}}"},
		{"{where: all, duplicate: {every: 3}}", "{where: all, match: udp, drop: {every: 2}}",
			"{where: all, truncate: {to: 70B, every: 5}}", "{where: all, mark: {every: 2}}"},
	} {
		want, states := atSoft(t, packets, texts...)
		run := load(t, texts...)
		reported, end := make([]uint64, len(texts)), run.open(t)
		for i, data := range packets {
			before := run.counts(t)
			verdict, out := run.once(t, data)
			for k, hit := range run.reported(t) {
				reported[hit.Site]++
				if hit.Length != len(hit.Data) || k == 0 && !bytes.Equal(hit.Data, data) {
					t.Errorf("%q: packet %d\n%x\nis reported as %d bytes\n%x", texts, i, data, hit.Length,
						hit.Data)
				}
			}
			var got [][]byte
			if verdict != dropped {
				copies := uint64(0)
				for k, c := range run.counts(t) {
					if run.faults[k].Duplicate != nil {
						copies += c.Hit - before[k].Hit
					}
				}
				for range 1 + copies {
					got = append(got, out)
				}
			}
			if !slices.EqualFunc(got, want[i], bytes.Equal) {
				t.Errorf("%q: packet %d\n%x\nbecomes\n%x\nat a soft switch\n%x", texts, i, data, got, want[i])
				break
			}
		}
		end()
		for k, c := range run.counts(t) {
			if s := states[k]; c.Matched != s.Matched || c.Hit != s.Hit || c.Refused > 0 || c.Joined > 0 ||
				c.Hit == 0 {
				t.Errorf("%s of %q: %+v, a soft switch says %d matched, %d hit", s.Name, texts, c,
					s.Matched, s.Hit)
			}
			if reported[k] != c.Hit {
				t.Errorf("fault %d of %q reported %d packets, and hit %d", k+1, texts, reported[k], c.Hit)
			}
		}
	}
}

func (r *running) counts(t testing.TB) (all []Counts) {
	t.Helper()
	for _, f := range r.faults {
		c, err := f.Counts()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	return all
}

// drawsAgree: the draws are those that a soft switch makes for packets without a number in their flow.
func drawsAgree(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	p := pair(t)
	seed := draw.Seed(p.Seed, "fault", "f1", nic(p).Node+":"+nic(p).Port)
	drop := load(t, "{where: all, match: frame, drop: {share: 30%}}")
	chance := draw.NewChance(parse(t, "{where: all, match: frame, drop: {share: 30%}}").Drop.Share)
	corrupt := load(t, "{where: all, match: frame, corrupt: {}}")
	hit := 0
	for n := uint64(1); n <= 200; n++ {
		data := soundFrame(random)
		drawn := func(purpose uint64) uint64 { return draw.Nth(draw.Nth(draw.Pair(seed, 0), n), purpose) }
		verdict, _ := drop.once(t, data)
		if want := chance.Happens(drawn(draw.FaultHit)); want != (verdict == dropped) {
			t.Fatalf("packet %d: the program says %d, the draw says %t", n, verdict, want)
		} else if want {
			hit++
		}
		_, out := corrupt.once(t, data)
		bit := draw.Within(drawn(draw.FaultBit), uint64(len(data)-wire.EthernetLen)*8)
		data[wire.EthernetLen+bit/8] ^= 1 << (bit % 8)
		if !bytes.Equal(out, data) {
			t.Fatalf("packet %d\n%x\nwant bit %d flipped\n%x", n, out, bit, data)
		}
	}
	if hit < 30 || hit > 90 {
		t.Errorf("%d of 200 packets were dropped, want about 60", hit)
	}
}

// faultsInOrder: a later fault does not count what an earlier one dropped.
func faultsInOrder(t *testing.T) {
	run := load(t, "{where: all, drop: {every: 2}}", "{where: all, drop: {nth: [2]}}")
	random := rand.New(rand.NewPCG(7, 8))
	var verdicts []int32
	for range 5 {
		verdict, _ := run.once(t, soundFrame(random))
		verdicts = append(verdicts, int32(verdict))
	}
	if want := []int32{passes, dropped, dropped, dropped, passes}; !slices.Equal(verdicts, want) {
		t.Errorf("verdicts %v, want %v", verdicts, want)
	}
}

// faultEnds: a program with a time in the past harms nothing.
func faultEnds(t *testing.T) {
	p, data := pair(t), soundFrame(rand.New(rand.NewPCG(9, 10)))
	for until, want := range map[uint64]int32{1: passes, 1 << 62: dropped} {
		made, err := New(p, parse(t, "{where: all, name: f, drop: {}}"), nic(p), until)
		if err != nil {
			t.Fatal(err)
		}
		loaded, err := Load(made, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer loaded.Close()
		run := &running{faults: []*Loaded{loaded}}
		run.finish(t, nil)
		if verdict, _ := run.once(t, data); int32(verdict) != want {
			t.Errorf("until %d: verdict %d, want %d", until, int32(verdict), want)
		}
	}
}

// refusalKeepsLog: the error of a program that the verifier refuses has the verifier's log.
func refusalKeepsLog(t *testing.T) {
	_, err := loadCode(asm.Instructions{asm.Return()}) // R0 has no value
	var verifier *VerifierError
	if !errors.As(err, &verifier) || !strings.Contains(verifier.Log, "R0 !read_ok") ||
		!strings.Contains(err.Error(), "refuses the program") {
		t.Errorf("%v, want a refusal with its log", err)
	}
}

// someFrame is a frame of any protocol. Some of its headers are damaged or cut off.
func someFrame(random *rand.Rand) []byte {
	data := soundFrame(random)
	switch random.IntN(6) {
	case 0:
		for range 1 + random.IntN(3) {
			data[12+random.IntN(min(len(data)-12, 60))] ^= 1 << random.IntN(8)
		}
	case 1:
		least := wire.EthernetLen + wire.IPv4MinLen // the kernel runs no program on a shorter IP packet
		if data[12] == 0x86 {
			least = wire.EthernetLen + wire.IPv6Len
		}
		data = data[:least+random.IntN(len(data)-least)]
	}
	return data
}

// soundFrame is a frame of any protocol.
func soundFrame(random *rand.Rand) []byte {
	mac := func() []byte { return []byte{2, 0, 0, 0, 0, byte(random.IntN(3))} }
	payload := make([]byte, 30+random.IntN(100))
	for i := range payload {
		payload[i] = byte(random.Uint32())
	}
	data := append(mac(), mac()...)
	for range max(0, random.IntN(8)-6) {
		data = append(data, 0x81, 0, 0, byte(random.IntN(4)))
	}
	switch random.IntN(12) {
	case 0:
		data = append(data, 8, 6, 0, 1, 8, 0, 6, 4, 0, byte(1+random.IntN(2)))
		data = append(append(data, mac()...), 10, 0, 0, byte(random.IntN(4)))
		return append(append(append(data, mac()...), byte(10+random.IntN(2)), 0, 0, 1), payload...)
	case 1:
		return append(append(data, 0x88, 0x08, 1, 1), payload...)
	case 2, 3, 4:
		return append(append(data, 0x86, 0xDD), ipv6Packet(random, payload, true)...)
	}
	return append(append(data, 8, 0), ipv4Packet(random, payload, true)...)
}

func ipv4Packet(random *rand.Rand, payload []byte, quote bool) []byte {
	protocol, inner := message(random, payload, quote, false)
	options := 4 * max(0, random.IntN(6)-4)
	head := make([]byte, 20+options)
	head[0], head[1] = byte(0x45+options/4), byte(random.IntN(256))
	binary.BigEndian.PutUint16(head[2:], uint16(len(head)+len(inner)))
	binary.BigEndian.PutUint16(head[4:], uint16(random.Uint32()))
	head[6] = []byte{0, 0x40, 0x20}[random.IntN(3)]
	if random.IntN(8) == 0 {
		head[7] = 5 // a later fragment
	}
	head[8], head[9] = byte(1+random.IntN(64)), protocol
	copy(head[12:], []byte{10, 0, 0, byte(random.IntN(6)), 10, 0, 0, byte(random.IntN(6))})
	binary.BigEndian.PutUint16(head[10:], onesComplement(head))
	return append(head, inner...)
}

// onesComplement is the checksum of an IPv4 header (RFC 791, 3.1).
func onesComplement(b []byte) uint16 {
	sum := uint32(0)
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xFFFF {
		sum = sum>>16 + sum&0xFFFF
	}
	return ^uint16(sum)
}

func ipv6Packet(random *rand.Rand, payload []byte, quote bool) []byte {
	protocol, inner := message(random, payload, quote, true)
	for range random.IntN(3) {
		kind := []byte{0, 43, 44, 60}[random.IntN(4)]
		extension := make([]byte, 8)
		extension[0] = protocol
		if kind != 44 && random.IntN(2) == 0 {
			extension[1] = 1
			extension = append(extension, make([]byte, 8)...)
		}
		protocol, inner = kind, append(extension, inner...)
	}
	head := make([]byte, 40)
	binary.BigEndian.PutUint32(head, 0x60000000|random.Uint32()&0x0FFFFFFF)
	binary.BigEndian.PutUint16(head[4:], uint16(len(inner)))
	head[6], head[7] = protocol, byte(1+random.IntN(64))
	head[8], head[23], head[24], head[39] = 0xFD, byte(random.IntN(6)), 0xFD, byte(random.IntN(6))
	return append(head, inner...)
}

// message returns the content of an IP packet and its protocol.
func message(random *rand.Rand, payload []byte, quote, six bool) (uint8, []byte) {
	switch kind := random.IntN(10); {
	case kind <= 1 && quote:
		head := []byte{byte(1 + random.IntN(4)), byte(random.IntN(2)), 0, 0, 0, 0, 0, 0}
		if six {
			return wire.ProtocolICMPv6, append(head, ipv6Packet(random, payload, false)...)
		}
		return wire.ProtocolICMPv4, append(head, ipv4Packet(random, payload, false)...)
	case kind <= 3:
		head := make([]byte, 20+4*random.IntN(3))
		binary.BigEndian.PutUint16(head, uint16(random.IntN(3)+1000))
		binary.BigEndian.PutUint16(head[2:], uint16(random.IntN(3)+1000))
		head[12], head[13] = byte(len(head)/4<<4), byte(random.IntN(64))
		if random.IntN(3) == 0 {
			payload = nil
		}
		return wire.ProtocolTCP, append(head, payload...)
	}
	ports := []int{4791, 1000, wire.PortRD, wire.PortRD + 9, wire.PortRD, wire.PortAggregation}
	source, destination := ports[random.IntN(6)], ports[random.IntN(6)]
	switch {
	case destination == 4791 || source == 4791:
		known := []byte{0x04, 0x0A, 0x0B, 0x11, 0x12, 0x13, 0x17, 0x64, 0x65}
		payload[0] = known[random.IntN(len(known))]
	case random.IntN(8) > 0:
		payload[0] = 0x80 | wire.RDVersion<<4 | byte(random.IntN(wire.RDTypes))
		if random.IntN(5) > 0 {
			payload[1] &= 0x7F // not encrypted
		}
		if destination == wire.PortAggregation || source == wire.PortAggregation {
			payload[0] = wire.AggregationVersion<<4 | byte(random.IntN(4))
		}
	}
	head := make([]byte, 8)
	binary.BigEndian.PutUint16(head, uint16(source))
	binary.BigEndian.PutUint16(head[2:], uint16(destination))
	binary.BigEndian.PutUint16(head[4:], uint16(8+len(payload)))
	return wire.ProtocolUDP, append(head, payload...)
}
