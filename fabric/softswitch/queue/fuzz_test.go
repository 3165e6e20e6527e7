package queue

import (
	"testing"

	"railbed/fabric/softswitch/packet"
	"railbed/internal/clock"
	"railbed/internal/units"
	"railbed/internal/wire"
	"railbed/plan"
	"railbed/plan/spec"
)

// period is the period of time-based GFC.
const period = 700

// operations are random operations on a small switch, and what must hold after
// each.
type operations struct {
	*spoken
	data   []byte
	now    clock.Time
	sw     *plan.Switch
	memory *Memory
	ports  []*Port

	where    map[*packet.Packet]int // the port where it waits
	lengths  map[*packet.Packet]int // as it was accepted
	offered  int
	taken    int
	dropped  [reasons]int
	reported map[[2]int]uint16
	timed    bool // GFC signals rates by time
}

// slow reports whether time-based GFC has a rate to signal.
func (o *operations) slow() bool {
	for i := range o.ports {
		if _, stage := o.memory.Asked(i, 5); stage > 0 || o.memory.Held(i, 5) > 500 {
			return true
		}
	}
	return false
}

func (o *operations) byte() int {
	if len(o.data) == 0 {
		return 0
	}
	b := o.data[0]
	o.data = o.data[1:]
	return int(b)
}

// rating is operations that also accept rates.
type rating struct{ *operations }

func (o rating) Rate(ingress int, priority uint8, share uint16) {
	if share == 0 {
		o.tb.Error("a sender is stopped by a rate of 0")
	}
	o.reported[[2]int{ingress, int(priority)}] = share
}

// ReportAt holds that there is one report at a time, at the next multiple of the
// period.
func (o *operations) ReportAt(at clock.Time) {
	if o.report > o.now || at <= o.now || at > o.now+period || at%period != 0 {
		o.tb.Errorf("at %d a report is asked for at %d, and the last one is at %d", o.now, at, o.report)
	}
	o.report = at
}

// until lets time pass. Reports are on time, but for those after many.
func (o *operations) until(end clock.Time) {
	for n := 0; n < 8 && o.now < o.report && o.report <= end; n++ {
		o.now = o.report
		o.memory.Report(o.now)
	}
	o.now = end
	o.memory.Report(o.now)
}

// FuzzOperations lets any sequence of operations go over a switch of three ports.
func FuzzOperations(f *testing.F) {
	f.Add([]byte("railbed"))
	for seed := range 16 { // with all lossless and signals' flags of setUp
		data := make([]byte, 1200)
		for i := range data {
			x := uint64(seed)<<32 + uint64(i)
			x = (x ^ x>>31) * 0x7fb5d329728ea185
			x = (x ^ x>>27) * 0x81dadef4bc2dd44d
			data[i] = byte(x >> 33)
		}
		data[0] = byte(seed<<2 | seed&3)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		o := &operations{
			spoken:   listen(t),
			data:     data,
			where:    map[*packet.Packet]int{},
			lengths:  map[*packet.Packet]int{},
			reported: map[[2]int]uint16{},
		}
		o.setUp()
		for len(o.data) > 0 && !t.Failed() {
			o.step()
			o.check()
		}
		o.end()
	})
}

func (o *operations) setUp() {
	flags := o.byte()
	sw := softSwitch(units.Bytes(20_000+200*o.byte()), 3)
	sw.Soft.Alpha = units.Factor{Num: uint64(o.byte()%8 + 1), Den: uint64(o.byte()%8 + 1)}
	sw.Soft.Scheduler.Strict = []int{7, 2}
	priorities := []int{0, 1, 2, 3, 4, 5, 6, 7}
	if flags&1 != 0 {
		sw.Soft.ECN = &plan.ECN{Kind: spec.RED, KMin: 1000, KMax: 4000, PMax: units.Ratio{Num: 1, Den: 3},
			Priorities: priorities}
	} else {
		sw.Soft.ECN = &plan.ECN{Kind: spec.ECNSharp, Target: 3000, PersistentTarget: 1000, Interval: 5000,
			Priorities: priorities}
	}
	if flags&2 != 0 {
		sw.Soft.Trim = &plan.Trim{Size: 64, DSCP: trimDSCP, Queue: 7, Priorities: []int{0, 1, 4}}
	}
	if flags&4 != 0 {
		withPFC(sw, plan.PortPFC{XOff: 1500, XOn: units.Bytes(o.byte() * 5),
			Headroom: units.Bytes(o.byte() * 5)}, 3)
	}
	if flags&8 != 0 {
		kind := spec.GFCBuffer
		if flags&16 != 0 {
			kind, o.timed = spec.GFCTime, true
		}
		// Beside what PFC reserves.
		at := plan.PortGFC{B1: 500, BM: 1500, Limit: 2100, Stages: []units.Bytes{500, 1000, 1250, 1375},
			Period: period}
		before := sw.Soft.Reserved
		withGFC(sw, kind, at, 5)
		sw.Soft.Reserved += before
		sw.Soft.Shared -= before
	}
	var signals Signals = o
	if flags&32 != 0 {
		signals = rating{o}
	}
	o.sw = sw
	o.memory, o.ports = memory(o.tb, sw, signals)
}

func (o *operations) step() {
	op := o.byte()
	port := o.ports[op>>4%3]
	q := uint8(o.byte() & 7)
	switch op & 15 {
	case 0, 1, 2, 3, 4, 5, 6:
		o.offer(port, q)
	case 7, 8, 9, 10:
		o.take(port)
	case 11:
		port.Pause(o.now, q, o.byte()&1 != 0)
	case 12:
		port.Stage(o.now, q, uint8(o.byte()%40))
	case 13:
		switch share := o.byte(); {
		case share&1 != 0:
			port.Share(o.now, q, uint16(share*256+1))
		default:
			port.Limit(o.now, q, units.Rate(share*1000))
		}
	case 14:
		o.until(o.now + clock.Time(o.byte()*50))
	case 15:
		port.SetLink(o.now, plan.Direction{Rate: units.Rate(o.byte()) * 1e6,
			Queue: units.Bytes(o.byte() * 100)})
	}
}

func (o *operations) offer(port *Port, q uint8) {
	one := frameOf(o.byte()*6, q)
	one.Ingress = int32(o.byte()%5 - 1) // -1 and 3 are no port
	one.Flow, one.Ordinal = uint64(q), uint64(o.offered)
	datagram(one.Data, wire.ECN(o.byte()))
	one.Parse()
	before := len(one.Data)
	o.offered++
	got := port.Enqueue(o.now, one)
	if got.Dropped {
		if got.Reason == Accepted || got.Reason == NICOverrun || one.Trimmed || len(one.Data) != before ||
			got.Marked {
			o.tb.Errorf("dropped: %+v", got)
		}
		o.dropped[got.Reason]++
		return
	}
	if one.Trimmed != (got.Reason != Accepted) || one.Priority != got.Queue ||
		one.Trimmed && (q == 3 || q == 5 || len(one.Data) >= before) {
		o.tb.Errorf("accepted: %+v, of %d bytes %d are left, trimmed %t", got, before, len(one.Data),
			one.Trimmed)
	}
	o.where[one], o.lengths[one] = port.index, len(one.Data)
}

func (o *operations) take(port *Port) {
	next := port.Next(o.now)
	one := port.Dequeue(o.now)
	if (one == nil) != (next > o.now) {
		o.tb.Errorf("at %d the next packet may be sent at %d, and %v is", o.now, next, one)
	}
	if one == nil && next != clock.Never {
		o.until(next)
		if one = port.Dequeue(next); one == nil {
			o.tb.Errorf("nothing is sent at %d, when it may be", next)
		}
	}
	if one != nil {
		o.out(one, port)
	}
}

// out takes note of a packet that left.
func (o *operations) out(one *packet.Packet, port *Port) {
	if at, waits := o.where[one]; !waits || at != port.index || o.lengths[one] != len(one.Data) {
		o.tb.Errorf("a packet left by port %d that waited at %d (%t)", port.index, at, waits)
	}
	if ip := wire.IPv4(one.Data[min(14, len(one.Data)):]); one.Headers.Has(wire.IsIPv4) &&
		!ip.ChecksumValid() {
		o.tb.Error("a packet left with a wrong checksum")
	}
	delete(o.where, one)
	o.taken++
}

// check checks the conditions that must hold at any time.
func (o *operations) check() {
	m := o.memory
	var total, shared int64
	byIngress := map[[2]int]int64{}
	packets := make([]int, len(o.ports))
	for one, at := range o.where {
		length := int64(len(one.Data))
		total += length
		packets[at]++
		q := one.Priority
		if in := int(one.Ingress); in >= 0 && in < len(o.ports) {
			byIngress[[2]int{in, int(q)}] += length
			if m.lossless.Has(q) {
				continue
			}
		}
		shared += length
	}
	if m.Used() != total || m.used != shared || total > m.Size() || shared > int64(o.sw.Soft.Shared) ||
		m.held > int64(o.sw.Soft.Reserved) {
		o.tb.Errorf("%d bytes are accounted, %d of them shared, and %d wait, %d shared; the buffer has %d",
			m.Used(), m.used, total, shared, m.Size())
	}
	ports := int64(0)
	for i, p := range o.ports {
		ports += p.Bytes()
		if p.Packets() != packets[i] {
			o.tb.Errorf("port %d counts %d packets, and %d wait", i, p.Packets(), packets[i])
		}
		for q := range uint8(Priorities) {
			if got, want := m.Held(i, q), byIngress[[2]int{i, int(q)}]; got != want {
				o.tb.Errorf("ingress %d, priority %d: %d bytes are accounted, and %d wait", i, q, got, want)
			}
			if paused, _ := m.Asked(i, q); paused != o.paused[[2]int{i, int(q)}] {
				o.tb.Errorf("ingress %d, priority %d: paused %t, and told otherwise", i, q, paused)
			}
		}
	}
	sum := o.taken + len(o.where)
	for _, n := range o.dropped {
		sum += n
	}
	if ports != total || sum != o.offered {
		o.tb.Errorf("ports count %d of %d bytes, and %d of %d packets are somewhere", ports, total, sum,
			o.offered)
	}
	if o.timed && o.slow() && o.report <= o.now {
		o.tb.Errorf("at %d somebody is to be slowed or is slowed, and no report is planned", o.now)
	}
	for _, w := range m.Waits(nil) {
		if paused, _ := m.Asked(w.Ingress, w.Priority); !paused ||
			!o.ports[w.Egress].Paused().Has(w.Priority) {
			o.tb.Errorf("%+v: nobody waits", w)
		}
	}
}

// end removes all packets. Then the accounts are empty, and no sender is held back.
func (o *operations) end() {
	for _, p := range o.ports {
		p.Flush(func(one *packet.Packet) { o.out(one, p) })
	}
	o.check()
	for key, on := range o.paused {
		if on {
			o.tb.Errorf("%v stays paused, and nothing waits", key)
		}
	}
	for o.now < o.report {
		o.now = o.report
		o.memory.Report(o.now)
	}
	for key, stage := range o.stages {
		if stage != 0 {
			o.tb.Errorf("%v stays in stage %d, and nothing waits", key, stage)
		}
	}
	for key, share := range o.reported {
		if share != FullRate {
			o.tb.Errorf("%v stays at %d, and nothing waits", key, share)
		}
	}
	if o.memory.Used() != 0 || len(o.where) != 0 {
		o.tb.Errorf("%d bytes are accounted, and %d packets wait", o.memory.Used(), len(o.where))
	}
}
