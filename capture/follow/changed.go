package follow

import (
	"slices"
	"time"

	"railbed/capture/verify/evidence"
)

// changed is a packet that a fault at a port of the kernel changed. The port sends other bytes, so that the
// recording has them under another id. The receiver discards them.
type changed struct {
	tap, flow int
	number    uint32 // in its protocol
	at        int64
}

// changedKept is for how long a changed packet may wait in the queue of its port.
const changedKept = int64(time.Second)

// numbered returns a packet's number in its protocol. Packets without numbers are not told apart.
func numbered(p *evidence.Packet) (number uint32, is bool) {
	switch {
	case p.Proto == evidence.ProtoTCP && !p.Fragment:
		return p.Seq, p.Payload > 0
	case p.RoCE != nil:
		return uint32(p.RoCE.BTH.PSN), true
	case p.RD != nil:
		return p.RD.PSN, true
	}
	return 0, false
}

// recordChange takes the record of a fault at a port of the kernel that changes a packet. At a NIC the
// record is the packet's first. It returns the packet.
func (f *Follower) recordChange(p *evidence.Packet, packet int32, known bool) (int32, bool) {
	if f.capture.Numbered() || !p.Spoiled() || p.Flow == nil {
		return packet, known
	}
	number, is := numbered(p)
	if !is {
		return packet, known
	}
	f.changed = slices.DeleteFunc(f.changed, func(c changed) bool { return p.Time-c.at > changedKept })
	f.changed = append(f.changed, changed{p.Tap.Index, p.Flow.Index, number, p.Time})
	if !known && p.Tap.NIC {
		return f.add(p, f.sight(p)), true
	}
	return packet, known
}

// add adds a packet that was not seen before.
func (f *Follower) add(p *evidence.Packet, at int32) (packet int32) {
	packet = int32(len(f.r.Packets))
	f.packets[p.ID] = packet
	f.r.Packets = append(f.r.Packets, Packet{ID: p.ID, Flow: -1, Message: -1, Length: p.Length, first: at,
		last: at, behind: -1, identity: p.Identity()})
	if !f.carriesChange(p) {
		f.newPacket(p, packet)
	}
	return packet
}

// carriesChange reports whether a packet has the bytes that a fault at its port has changed.
func (f *Follower) carriesChange(p *evidence.Packet) bool {
	number, is := numbered(p)
	if len(f.changed) == 0 || p.Event || !is || p.Flow == nil || p.Direction != evidence.Out {
		return false
	}
	i := slices.IndexFunc(f.changed, func(c changed) bool {
		return c.tap == p.Tap.Index && c.flow == p.Flow.Index && c.number == number
	})
	if i < 0 {
		return false
	}
	f.changed = slices.Delete(f.changed, i, i+1)
	return true
}
