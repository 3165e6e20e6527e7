package softswitch

import (
	"slices"
	"testing"
	"time"

	"railbed/internal/clock"
	"railbed/internal/wire"
)

// TestPriorityTags: a frame whose tag has no VLAN has the tag's priority in the
// emulated NIC and in every switch, routed and bridged, and keeps the tag. All other
// frames have that of their DSCP. Two leaves map that one in different ways.
func TestPriorityTags(t *testing.T) {
	const routed = `
name: t
fabric:
  topology: leaf-spine
  params: {leaves: 2, spines: 1, hosts-per-leaf: 1}
  switch: {kind: soft, priorities: {26: 3}}
  switches: {leaf2: {priorities: {26: 2}}}
  links: {default: {rate: 1gbit, delay: 2us}}
`
	bridged := single(2, "  switch: {kind: soft, forwarding: l2, priorities: {26: 3}}\n  links: {default: "+
		"{rate: 1gbit}}\n")
	untagged, best := -1, 0
	for name, c := range map[string]struct {
		file string
		tci  int
		// want are the priorities at the ports that send it, in no order.
		want []int
	}{
		"routed, untagged":         {routed, untagged, []int{3, 3, 3, 2}},
		"routed, priority 5":       {routed, 5 << 13, []int{5, 5, 5, 5}},
		"routed, best effort":      {routed, best, []int{0, 0, 0, 0}},
		"routed, a VLAN":           {routed, 5<<13 | 7, []int{3}}, // to a leaf, which has no VLANs
		"bridged, untagged":        {bridged, untagged, []int{3, 3}},
		"bridged, priority 5":      {bridged, 5 << 13, []int{5, 5}},
		"bridged, drop eligible 6": {bridged, 6<<13 | 1<<12, []int{6, 6}},
		"bridged, best effort":     {bridged, best, []int{0, 0}},
		"bridged, a VLAN":          {bridged, 5<<13 | 7, []int{3, 3}},
	} {
		r := newRig(t, c.file)
		const frames = 10
		for n := range frames {
			r.sendTagged(clock.Time(n), flow{from: 0, to: 1, dscp: 26}, 1000, c.tci)
		}
		r.drain(time.Second)
		r.balance()
		want := slices.Clone(c.want)
		slices.Sort(want)
		if got := r.priorities(frames); !slices.Equal(got, want) {
			t.Errorf("%s: sent at priorities %v, want %v", name, got, want)
		}
		if c.file == routed && c.tci > 0 && c.tci&0xfff != 0 {
			if r.count != 0 || r.dropped(Unsupported) != frames {
				t.Errorf("%s: %d delivered, want none", name, r.count)
			}
			continue
		}
		if r.count != frames {
			t.Fatalf("%s: %d of %d delivered", name, r.count, frames)
		}
		length := 1004
		if c.tci == untagged {
			length = 1000
		}
		if got := r.got[0]; got.length != length || int(got.tci) != max(c.tci, 0) || got.dscp != 26 ||
			c.file == routed && got.ttl != 61 {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

// TestTrimmedFrameWithPriorityTag: a frame that is cut goes on in the express queue at
// the next switch, too.
func TestTrimmedFrameWithPriorityTag(t *testing.T) {
	r := newRig(t, `
name: t
fabric:
  topology: leaf-spine
  params: {leaves: 2, spines: 1, hosts-per-leaf: 1}
  switch: {kind: soft, buffer: 100KB, trim: {size: 128B, dscp: 61, queue: 7, priorities: [1]}}
  links: {default: {rate: 10gbit}, "leaf1--spine1": {rate: 100mbit}}
nodes: {default: {nic-queue: 4MB}}
`)
	for n := range 1000 {
		r.sendTagged(clock.Time(n), flow{from: 0, to: 1}, 1000, 1<<13)
	}
	r.drain(time.Minute)
	r.balance()
	cut := 0
	for _, a := range r.got {
		if a.length == 128 {
			cut++
			if a.tci != 7<<13 || a.dscp != 61 {
				t.Fatalf("got %+v, want a head of priority 7", a)
			}
		} else if a.tci != 1<<13 {
			t.Fatalf("got %+v, want a frame of priority 1", a)
		}
	}
	if cut == 0 || cut == len(r.got) {
		t.Fatalf("%d of %d are cut, want some", cut, len(r.got))
	}
	for _, one := range r.engine.ports {
		if one.station.name != "spine1" {
			continue
		}
		if sent := one.count.SentByPriority; sent[7] != 0 && sent[7] != uint64(cut) ||
			sent[1]+sent[7] != one.count.Sent.Packets {
			t.Errorf("%s sent %v, want the %d heads in the express queue", one.name, sent, cut)
		}
	}
}

// sendTagged sends a datagram with a tag; without one where its content is negative.
func (r *rig) sendTagged(at clock.Time, f flow, length, tci int) {
	if tci < 0 {
		r.send(at, f, length)
		return
	}
	one := r.engine.Pool().Get()
	plain := r.frame(make([]byte, length), f, length)
	n := copy(one.Data, plain[:12])
	n += copy(one.Data[n:], []byte{wire.EtherTypeVLAN >> 8, wire.EtherTypeVLAN & 0xff, byte(tci >> 8),
		byte(tci)})
	n += copy(one.Data[n:], plain[12:])
	one.Data = one.Data[:n]
	r.engine.Receive(f.from, one, at)
}

// priorities are those at which ports sent, sorted; each sent the given frames or
// none.
func (r *rig) priorities(frames uint64) (found []int) {
	for _, one := range r.engine.ports {
		for q, n := range one.count.SentByPriority {
			switch n {
			case 0:
			case frames:
				found = append(found, q)
			default:
				r.t.Errorf("%s sent %d frames at priority %d", one.name, n, q)
			}
		}
	}
	slices.Sort(found)
	return found
}
