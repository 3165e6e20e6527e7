package engine

import (
	"bytes"
	"slices"
	"testing"

	"railbed/internal/wire"
)

// begun returns a receiver to which the first 512 bytes of a numbered message of 2,048 have
// arrived. All further packets come from the test.
func begun(t *testing.T) (x *told, r *Region) {
	x = newTold(t)
	r, x.key = x.b.region(4096)
	x.receiver(x.piece(0, ofBegun), wire.PortRDPath, false)
	x.says()
	return x, r
}

// ofBegun makes a piece one of that message.
func ofBegun(base *wire.RDBase, f *wire.RDDataFields) {
	base.Flags |= wire.RDImm
	f.Total, f.Imm, f.Offset = 2048, 5, 1000
}

// TestPiecesOfOthers checks sections 5.2, 7 and 9. A packet that contradicts the first one of its
// message is dropped silently. A packet that begins too long a message is refused.
func TestPiecesOfOthers(t *testing.T) {
	for name, change := range map[string]func(base *wire.RDBase, f *wire.RDDataFields){
		"another total":        func(_ *wire.RDBase, f *wire.RDDataFields) { f.Total++ },
		"another number":       func(_ *wire.RDBase, f *wire.RDDataFields) { f.Imm++ },
		"no number":            func(base *wire.RDBase, _ *wire.RDDataFields) { base.Flags &^= wire.RDImm },
		"another key":          func(_ *wire.RDBase, f *wire.RDDataFields) { f.Key++ },
		"another place":        func(_ *wire.RDBase, f *wire.RDDataFields) { f.Offset -= 8 },
		"none of these, at 10": func(_ *wire.RDBase, f *wire.RDDataFields) { f.Position = 10 },
	} {
		x, r := begun(t)
		before, memory := x.b.Counters(), bytes.Clone(r.Memory)
		x.receiver(x.piece(1, func(base *wire.RDBase, f *wire.RDDataFields) {
			ofBegun(base, f)
			change(base, f)
		}), wire.PortRDPath, false)
		after := x.b.Counters()
		if fits := name == "none of these, at 10"; (after.Hostile == before.Hostile) != fits ||
			(after.Received > before.Received) != fits || bytes.Equal(r.Memory, memory) == fits {
			t.Errorf("%s: %+v", name, after)
		}
		if got := kinds(x.says()); len(got) > 0 {
			t.Errorf("%s: answered with %v", name, got)
		}
	}
	// More bytes than there are: 512 and thrice 512 at the same place.
	x, _ := begun(t)
	for n := range uint32(3) {
		x.receiver(x.piece(1+n, func(base *wire.RDBase, f *wire.RDDataFields) {
			ofBegun(base, f)
			f.Position = 512
		}), wire.PortRDPath, false)
	}
	x.receiver(x.piece(4, func(base *wire.RDBase, f *wire.RDDataFields) {
		ofBegun(base, f)
		f.Position = 1024
	}), wire.PortRDPath, false)
	if c := x.b.Counters(); c.Received != 3 || c.Hostile != 2 || len(x.b.received) != 0 {
		t.Errorf("%+v, %+v", c, x.b.received)
	}
	// The same where it would not be the last.
	x, _ = begun(t)
	for n, c := range [][2]uint32{{512, 512}, {1024, 512}, {1536, 300}, {1536, 512}, {1836, 212}} {
		// position, length
		x.receiver(x.piece(1+uint32(n), func(base *wire.RDBase, f *wire.RDDataFields) {
			ofBegun(base, f)
			f.Position, base.Length, f.Sum = c[0], uint16(c[1]),
				wire.RDSum(bytes.Repeat([]byte{1}, int(c[1])))
		}), wire.PortRDPath, false)
	}
	if c := x.b.Counters(); c.Received != 5 || c.Hostile != 1 || len(x.b.received) != 1 {
		t.Errorf("%+v, %+v", c, x.b.received)
	}
	// A region that would hold it does not help a message of more than 1 GiB.
	for total, why := range map[uint32]wire.RDReason{1 << 30: 0, 1<<30 + 1: wire.RDBounds} {
		x := newTold(t)
		x.b.regions[7] = &Region{Memory: make([]byte, 1<<30+512), Writable: true} // never touched
		x.receiver(x.piece(0, func(_ *wire.RDBase, f *wire.RDDataFields) {
			f.Key, f.Total = 7, total
		}), wire.PortRDPath, false)
		got := wire.RDReason(0)
		for _, b := range x.says() {
			if b.Type() == wire.RDNack {
				got = b.Nack().Reason
			}
		}
		if got != why {
			t.Errorf("a message of %d bytes: %v, want %v", total, got, why)
		}
	}
}

// TestHolesOfOthers holds section 5.3: which SKIPs that leave bytes out are taken, and
// that the others leave the message as it was and are acknowledged all the same.
func TestHolesOfOthers(t *testing.T) {
	for name, c := range map[string]struct {
		change func(base *wire.RDBase, f *wire.RDSkipFields)
		missed uint32 // bytes
	}{
		"good":           {func(*wire.RDBase, *wire.RDSkipFields) {}, 512},
		"one byte":       {func(_ *wire.RDBase, f *wire.RDSkipFields) { f.Bytes = 1 }, 1},
		"two packets":    {func(_ *wire.RDBase, f *wire.RDSkipFields) { f.Count = 2 }, 0},
		"none":           {func(_ *wire.RDBase, f *wire.RDSkipFields) { f.Bytes = 0 }, 0},
		"another total":  {func(_ *wire.RDBase, f *wire.RDSkipFields) { f.Total++ }, 0},
		"another number": {func(_ *wire.RDBase, f *wire.RDSkipFields) { f.Imm++ }, 0},
		"no number":      {func(base *wire.RDBase, _ *wire.RDSkipFields) { base.Flags &^= wire.RDImm }, 0},
		"too many":       {func(_ *wire.RDBase, f *wire.RDSkipFields) { f.Bytes, f.Position = 1537, 0 }, 0},
		"behind the end": {func(_ *wire.RDBase, f *wire.RDSkipFields) { f.Position = 1537 }, 0},
		"a place wraps":  {func(_ *wire.RDBase, f *wire.RDSkipFields) { f.Position = 1<<32 - 256 }, 0},
		"all, and over":  {func(_ *wire.RDBase, f *wire.RDSkipFields) { f.Bytes = 1536 }, 1536},
		"all, not over": {func(_ *wire.RDBase, f *wire.RDSkipFields) {
			f.Bytes, f.Position = 1536, 256
		}, 0},
		"a later message": {func(_ *wire.RDBase, f *wire.RDSkipFields) { f.Message += Messages }, 0},
	} {
		for _, full := range []bool{false, true} {
			x, r := begun(t)
			x.b.full = full
			memory := bytes.Clone(r.Memory)
			base := x.base(x.a, x.b, uint32(firstPSN(x.a.life))+1)
			base.Flags = wire.RDImm | wire.RDDroppable
			f := wire.RDSkipFields{Count: 1, Message: firstMessage(x.a.life), Total: 2048, Imm: 5, Bytes: 512,
				Position: 512}
			c.change(&base, &f)
			b := make(wire.RD, wire.RDSkipLen)
			b.EncodeSkip(base, &f)
			x.receiver(b, wire.PortRDPath, false)
			in := x.b.peers[0].in[0]
			said := x.says()
			last := c.missed == 1536
			missing, taken := in.messages[firstMessage(x.a.life)%Messages].missing,
				in.has(firstPSN(x.a.life)+1) || in.next == firstPSN(x.a.life)+2
			wantMissing, wantTaken, wantSaid := c.missed, c.missed > 0, []string{"ACK"}
			if last {
				wantMissing = 0 // it is over, or nothing was taken
				wantTaken = !full
			}
			if last && full {
				wantSaid = []string{"NACK", "ACK"}
			}
			if missing != wantMissing || taken != wantTaken || len(x.b.received) > 0 != (last && !full) ||
				!slices.Equal(kinds(said), wantSaid) || !bytes.Equal(r.Memory, memory) {
				t.Errorf("%s, full %v: %d bytes missing, taken %v, received %+v, said %v", name, full,
					missing, taken, x.b.received, kinds(said))
			}
			if last && full && (said[0].Nack().Reason != wire.RDBusy || said[0].Nack().Path != 0) {
				t.Errorf("%s: %+v", name, said[0].Nack())
			}
			if last && !full && (x.b.received[0].Missing != 1536 || x.b.received[0].Bytes != 512 ||
				x.b.received[0].Imm != 5) {
				t.Errorf("%s: %+v", name, x.b.received[0])
			}
		}
	}
}
