package ranks

import (
	"net/netip"
	"strings"
	"testing"

	"railbed/capture/verify/evidence"
	"railbed/internal/units"
	"railbed/internal/verdict"
	"railbed/testkit/verifytest"
)

// framed is two ranks over tcp that send each other messages, as transports/tcp does.
type framed struct {
	*verifytest.Scene
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
	f := &framed{Scene: verifytest.NewScene(t), next: [2]uint32{0xFFFFFE01, 7}}
	for i, r := range []int{0, 2} {
		at := f.Plan.Ranks[r]
		f.Workload.Ranks = append(f.Workload.Ranks, evidence.Rank{
			Rank:       i,
			Node:       at.Node,
			NIC:        at.NIC,
			Addr:       at.Addr4,
			Port:       verifytest.Service,
			Expected:   units.Bytes(payload),
			ExpectedTo: make([]units.Bytes, 2),
			Framing: &evidence.Framing{Hello: framedHello, Header: framedHeader, Goodbye: 0xff,
				Messages: make([]uint64, 2)},
		})
		f.Workload.Ranks[i].ExpectedTo[1-i], f.Workload.Ranks[i].Framing.Messages[1-i] = units.Bytes(payload),
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
func (f *framed) flow(rank int) verifytest.TCP {
	return verifytest.TCP{Src: netip.AddrPortFrom(f.Workload.Ranks[rank].Addr, 20000),
		Dst: netip.AddrPortFrom(f.Workload.Ranks[1-rank].Addr, verifytest.Service), Flow: rank}
}

// write sends a segment of a rank's stream.
func (f *framed) write(rank int, syn bool, payload int) {
	k := f.flow(rank)
	if k.Seq, k.Payload, k.SYN = f.next[rank], payload, syn; syn {
		k.Seq--
	}
	f.Send(f.Workload.Ranks[rank].Node, f.Workload.Ranks[rank].NIC, k)
	f.next[rank] += uint32(payload)
}

// stream sends so many bytes of a rank's stream.
func (f *framed) stream(rank, bytes int) {
	for ; bytes > 0; bytes -= verifytest.Segment {
		f.write(rank, false, min(bytes, verifytest.Segment))
		f.reply(1-rank, false)
	}
}

// reply sends a reply of a rank to the messages of the other one, or what opens the flow.
func (f *framed) reply(rank int, syn bool) {
	k := f.flow(1 - rank)
	k.Src, k.Dst, k.Seq, k.SYN = k.Dst, k.Src, f.back[rank], syn
	if k.Payload = framedReply; syn {
		k.Payload = 0
		k.Seq--
	}
	f.Send(f.Workload.Ranks[rank].Node, f.Workload.Ranks[rank].NIC, k)
	f.back[rank] += uint32(k.Payload)
}

// goodbye ends a rank's stream.
func (f *framed) goodbye(rank int) {
	f.write(rank, false, framedHeader)
	f.Change(func(k verifytest.Sighting) bool { return k.ID == f.IDs }, func(k *verifytest.Sighting) {
		header := k.Frame[len(k.Frame)-framedHeader:]
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
			"2 ranks sent 6000 bytes, and sent 0 again; largest deviation from the algorithm: +0.00%"},
		"goodbyes": {func(f *framed) {
			f.goodbye(0)
			f.goodbye(1)
		}, pass, "sent 6000 bytes"},
		"one goodbye": {func(f *framed) { f.goodbye(1) }, pass, "sent 6000 bytes"},
		"headers alone": {func(f *framed) {
			f.goodbye(1)
			f.Snap = 70
		}, pass, "sent 6000 bytes"},
		"a goodbye that is not captured": {func(f *framed) {
			f.goodbye(1)
			f.Snap = 54
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
			f.Workload.Ranks[0].Framing.Messages[1]++
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
			f.Workload.Ranks[1].Expected += 4
			f.goodbye(1)
		}, fail, "sent 3000 bytes, the algorithm sends 3004"},
		"a message more": {func(f *framed) {
			f.stream(1, framedHeader)
			f.goodbye(1)
		}, fail, "sent 3032 bytes, the algorithm sends 3000"},
		"a message less": {func(f *framed) {
			f.Workload.Ranks[1].Framing.Messages[0]++
			f.goodbye(1)
		}, fail, "sent 2968 bytes, the algorithm sends 3000"},
		"another one's bytes": {func(f *framed) {
			f.Workload.Ranks[0].ExpectedTo[1]--
		}, fail, "sent 3000 bytes to rank 1, the algorithm sends 2999"},
		"a capture without hello": {func(f *framed) { f.Begin(3) }, unclear, "the algorithm sends 3000"},
		"framing that is not known": {func(f *framed) {
			f.Workload.Ranks[0].Framing = nil
		}, fail, "sent 3360 bytes, the algorithm sends 3000"}, // with 4 replies
		"a worker counts all": {func(f *framed) {
			all := uint64(framedHello + framedCount*framedHeader + framedPayload + 4*framedReply +
				framedHeader)
			f.goodbye(1)
			f.Workload.Ranks[1].Reported = &all
		}, pass, "sent 6000 bytes"},
	} {
		t.Run(what, func(t *testing.T) {
			f := newFramed(t, framedPayload)
			c.change(f)
			results, _ := f.Run(NewBytesPerRank(f.Workload, units.Ratio{}))
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
			for i := range f.Workload.Ranks {
				if goodbye {
					f.goodbye(i)
				}
				f.Workload.Ranks[i].Empty = &evidence.Empty{Messages: uint64(framedCount - more)}
				f.Workload.Ranks[i].Framing.Messages[1-i] = uint64(framedCount - more)
			}
			results, _ := f.Run(NewBytesPerRank(f.Workload, units.Ratio{}))
			if got := results[0]; got.Verdict != want || got.Measured["rank1.empty"] != framedCount {
				t.Errorf("%d messages more than wanted, goodbye %v: want %s of %d: %v", more, goodbye, want,
					framedCount, got)
			}
		}
	}
}
