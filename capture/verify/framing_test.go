package verify

import (
	"net/netip"
	"strings"
	"testing"

	"railbed/internal/units"
	"railbed/internal/verdict"
)

// framed is two ranks over tcp that send each other messages, as transports/tcp does.
type framed struct {
	*scene
	next [2]uint32 // of each rank's stream
	back [2]uint32 // of its replies
}

const (
	framedHello   = 40
	framedHeader  = 32
	framedReply   = 24
	framedPayload = 3000
	framedCount   = 7 // messages of each rank
)

func newFramed(t testing.TB, payload int) *framed {
	f := &framed{scene: newScene(t), next: [2]uint32{0xFFFFFE01, 7}}
	for i, r := range []int{0, 2} {
		at := f.plan.Ranks[r]
		f.workload.Ranks = append(f.workload.Ranks, Rank{
			Rank:       i,
			Node:       at.Node,
			NIC:        at.NIC,
			Addr:       at.Addr4,
			Port:       service,
			Expected:   units.Bytes(payload),
			ExpectedTo: make([]units.Bytes, 2),
			Framing: &Framing{Hello: framedHello, Header: framedHeader, Goodbye: 0xff,
				Messages: make([]uint64, 2)},
		})
		f.workload.Ranks[i].ExpectedTo[1-i], f.workload.Ranks[i].Framing.Messages[1-i] = units.Bytes(payload),
			framedCount
	}
	for i := range f.next {
		f.write(i, true, 0)
		f.reply(1-i, true)
		f.stream(i, framedHello+framedCount*framedHeader+payload)
	}
	return f
}

// flow is one direction of the connection that carries a rank's messages.
func (f *framed) flow(rank int) tcp {
	return tcp{src: netip.AddrPortFrom(f.workload.Ranks[rank].Addr, 20000),
		dst: netip.AddrPortFrom(f.workload.Ranks[1-rank].Addr, service), flow: rank}
}

// write sends a segment of a rank's stream.
func (f *framed) write(rank int, syn bool, payload int) {
	k := f.flow(rank)
	if k.seq, k.payload, k.syn = f.next[rank], payload, syn; syn {
		k.seq--
	}
	f.send(f.workload.Ranks[rank].Node, f.workload.Ranks[rank].NIC, k)
	f.next[rank] += uint32(payload)
}

// stream sends so many bytes of a rank's stream.
func (f *framed) stream(rank, bytes int) {
	for ; bytes > 0; bytes -= segment {
		f.write(rank, false, min(bytes, segment))
		f.reply(1-rank, false)
	}
}

// reply sends a reply of a rank to the messages of the other one, or what opens the flow.
func (f *framed) reply(rank int, syn bool) {
	k := f.flow(1 - rank)
	k.src, k.dst, k.seq, k.syn = k.dst, k.src, f.back[rank], syn
	if k.payload = framedReply; syn {
		k.payload = 0
		k.seq--
	}
	f.send(f.workload.Ranks[rank].Node, f.workload.Ranks[rank].NIC, k)
	f.back[rank] += uint32(k.payload)
}

// goodbye ends a rank's stream.
func (f *framed) goodbye(rank int) {
	f.write(rank, false, framedHeader)
	f.change(func(k sighting) bool { return k.id == f.ids }, func(k *sighting) {
		header := k.frame[len(k.frame)-framedHeader:]
		clear(header)
		header[0] = 0xff
	})
}

// TestFraming: bytes besides payload in TCP streams do not count. An element more or less of
// payload does count. Both hold with and without a goodbye, whatever length of packets was
// captured.
func TestFraming(t *testing.T) {
	for what, c := range map[string]struct {
		change func(f *framed)
		want   verdict.Verdict
		says   string
	}{
		"nothing": {func(*framed) {}, pass,
			"2 ranks sent 6000 bytes, each at most +0.00% off"},
		"goodbyes": {func(f *framed) {
			f.goodbye(0)
			f.goodbye(1)
		}, pass, "sent 6000 bytes"},
		"one goodbye": {func(f *framed) { f.goodbye(1) }, pass, "sent 6000 bytes"},
		"headers alone": {func(f *framed) {
			f.goodbye(1)
			f.snap = 70
		}, pass, "sent 6000 bytes"},
		"a goodbye that is not captured": {func(f *framed) {
			f.goodbye(1)
			f.snap = 54
		}, unclear, "sent 3032 bytes, the algorithm sends 3000"},
		"a goodbye again": {func(f *framed) {
			f.goodbye(0)
			f.next[0] -= framedHeader
			f.goodbye(0)
		}, pass, "32 bytes retransmitted"},
		"a segment like a goodbye": {func(f *framed) {
			f.goodbye(0)
			f.stream(0, 4)
		}, fail, "sent 3036 bytes, the algorithm sends 3000"},
		"a last segment as long as a header": {func(f *framed) {
			f.stream(0, framedHeader)
			f.workload.Ranks[0].Framing.Messages[1]++
		}, pass, "sent 6000 bytes"},
		"replies": {func(f *framed) {
			for range 100 {
				f.reply(0, false)
			}
		}, pass, "sent 6000 bytes"},
		"an element more": {func(f *framed) {
			f.stream(0, 4)
			f.goodbye(0)
		}, fail, "rank 0 (h0:eth0): sent 3004 bytes, the algorithm sends 3000"},
		"an element less": {func(f *framed) {
			f.workload.Ranks[1].Expected += 4
			f.goodbye(1)
		}, fail, "sent 3000 bytes, the algorithm sends 3004"},
		"a message more": {func(f *framed) {
			f.stream(1, framedHeader)
			f.goodbye(1)
		}, fail, "sent 3032 bytes, the algorithm sends 3000"},
		"a message less": {func(f *framed) {
			f.workload.Ranks[1].Framing.Messages[0]++
			f.goodbye(1)
		}, fail, "sent 2968 bytes, the algorithm sends 3000"},
		"another one's bytes": {func(f *framed) {
			f.workload.Ranks[0].ExpectedTo[1]--
		}, fail, "sent 3000 bytes to rank 1, the algorithm sends 2999"},
		"a capture without hello": {func(f *framed) { f.begin(3) }, unclear, "the algorithm sends 3000"},
		"framing that is not known": {func(f *framed) {
			f.workload.Ranks[0].Framing = nil
		}, fail, "sent 3360 bytes, the algorithm sends 3000"}, // with 4 replies
		"a worker counts all": {func(f *framed) {
			all := uint64(framedHello + framedCount*framedHeader + framedPayload + 4*framedReply +
				framedHeader)
			f.goodbye(1)
			f.workload.Ranks[1].Reported = &all
		}, pass, "sent 6000 bytes"},
	} {
		t.Run(what, func(t *testing.T) {
			f := newFramed(t, framedPayload)
			c.change(f)
			results, _ := f.run(NewBytesPerRank(f.workload, units.Ratio{}))
			if got := results[0]; got.Verdict != c.want ||
				!strings.Contains(strings.Join(append(got.Details, got.Summary), "\n"), c.says) {
				t.Errorf("want %s and %q: %v", c.want, c.says, got)
			}
		})
	}
}

// TestFramingOfEmptyMessages: of a stream of messages without a byte their number counts, whether or
// not it ends with a goodbye.
func TestFramingOfEmptyMessages(t *testing.T) {
	for more, want := range map[int]verdict.Verdict{-1: fail, 0: pass, 1: fail} {
		for _, goodbye := range []bool{false, true} {
			f := newFramed(t, 0)
			for i := range f.workload.Ranks {
				if goodbye {
					f.goodbye(i)
				}
				f.workload.Ranks[i].Empty = &Empty{Messages: uint64(framedCount - more)}
				f.workload.Ranks[i].Framing.Messages[1-i] = uint64(framedCount - more)
			}
			results, _ := f.run(NewBytesPerRank(f.workload, units.Ratio{}))
			if got := results[0]; got.Verdict != want || got.Measured["rank1.empty"] != framedCount {
				t.Errorf("%d messages more than wanted, goodbye %v: want %s of %d: %v", more, goodbye, want,
					framedCount, got)
			}
		}
	}
}
