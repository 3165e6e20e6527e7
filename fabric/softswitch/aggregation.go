package softswitch

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"railbed/fabric/softswitch/aggregate"
	"railbed/fabric/softswitch/draw"
	"railbed/fabric/softswitch/forward"
	"railbed/fabric/softswitch/packet"
	"railbed/testbed/plan"
	"railbed/transports/wire"
)

// aggregator joins a switch's aggregation table to its ports: what is addressed
// to a job is taken out of the switch's traffic, and results take the way of
// every packet, by the route, the queue and the line to each worker.
type aggregator struct {
	station *station
	table   *aggregate.Table
	route   forward.Originator
	addrs   [][16]byte // of the jobs
	message aggregate.Message
	outcome aggregate.Outcome
	// flow and ordinals are those of results, for what links do to them.
	flow     uint64
	ordinals []uint64
	noMemory uint64
}

// newAggregator makes the table of a switch, or nil where it has no job.
func newAggregator(s *station, p *plan.Plan, sw *plan.Switch) (*aggregator, error) {
	if sw.Soft.Aggregation == nil || len(sw.Soft.Aggregation.Jobs) == 0 {
		return nil, nil
	}
	a := &aggregator{station: s, flow: draw.Seed(p.Seed, "aggregation", sw.Name)}
	var routes bool
	if a.route, routes = s.table.(forward.Originator); !routes {
		return nil, errors.New("aggregation needs forwarding by address")
	}
	var jobs []aggregate.Job
	for _, planned := range sw.Soft.Aggregation.Jobs {
		job := aggregate.Job{
			Number: planned.Number, KeySeed: planned.KeySeed, Slots: sw.Soft.Aggregation.Slots, Elements: sw.Soft.Aggregation.Elements,
			Timeout: time.Duration(sw.Soft.Aggregation.Timeout),
		}
		for _, w := range planned.Workers {
			one := aggregate.Worker{Ports: slices.Concat(portsTo(sw, w.Addr4), portsTo(sw, w.Addr6))}
			for _, addr := range []netip.Addr{w.Addr4, w.Addr6} {
				one.Addrs = append(one.Addrs, addr.As16())
			}
			job.Workers = append(job.Workers, one)
		}
		a.addrs = append(a.addrs, planned.Addr4.As16(), planned.Addr6.As16())
		a.ordinals = append(a.ordinals, make([]uint64, len(job.Workers))...)
		jobs = append(jobs, job)
	}
	var err error
	a.table, err = aggregate.New(jobs)
	return a, err
}

// portsTo are the ports by which a switch's routes reach an address, whether they
// are up or not, and so those by which packets from there come in.
func portsTo(sw *plan.Switch, addr netip.Addr) (ports []int) {
	best := -1
	for i, port := range sw.Ports {
		for _, own := range port.Addrs {
			if own.Contains(addr) {
				return []int{i}
			}
		}
	}
	for _, route := range sw.Routes {
		if !route.Dst.Contains(addr) || route.Dst.Bits() <= best {
			continue
		}
		best, ports = route.Dst.Bits(), nil
		for _, hop := range route.NextHops {
			if i := slices.IndexFunc(sw.Ports, func(p plan.Interface) bool { return p.Name == hop.Dev }); i >= 0 {
				ports = append(ports, i)
			}
		}
	}
	return ports
}

// takes says that a packet is for a job. What is not well formed, or for another
// station, is left to the router.
func (a *aggregator) takes(at *port, one *packet.Packet) bool {
	h := &one.Headers
	return h.DstPort == wire.PortAggregation && h.Protocol == wire.ProtocolUDP && h.Verdict == wire.WellFormed && h.Flags&wire.Tagged == 0 &&
		wire.Ethernet(one.Data).Dst() == at.mac && slices.Contains(a.addrs, h.Dst)
}

// take takes a packet in, and sends what follows from it.
func (a *aggregator) take(at *port, one *packet.Packet) {
	e := a.station.engine
	o := &a.outcome
	*o = a.read(at, one)
	switch o.Action {
	case aggregate.Drop:
		e.drop(at, one, Aggregation, 0)
		return
	case aggregate.SendAll:
		for w := range a.table.Workers(o.Job) {
			a.sendResult(at, one, w)
		}
	case aggregate.SendOne:
		a.sendResult(at, one, o.Worker)
	case aggregate.SendBack:
		if reply := a.get(at, one, &a.message.Return, wire.AggregationLen); reply != nil {
			wire.Aggregation(payloadOf(reply)).Encode(&o.Reject)
			a.send(at, reply, &a.message.Return, o.Worker)
		}
	case aggregate.Keep:
	}
	e.totals.Consumed++
	e.pool.Put(one)
}

// read hands a datagram to the table.
func (a *aggregator) read(at *port, one *packet.Packet) aggregate.Outcome {
	h := &one.Headers
	if h.Has(wire.Fragment) {
		return a.table.Refuse(aggregate.Fragment)
	}
	datagram := wire.UDP(one.Data[h.L4:])
	datagram = datagram[:datagram.Length()]
	v4 := h.Has(wire.IsIPv4)
	if !v4 && datagram.Checksum() == 0 || !datagram.ChecksumValid(pseudo(v4, &h.Src, &h.Dst, len(datagram))) {
		return a.table.Refuse(aggregate.Checksum)
	}
	a.message = aggregate.Message{
		Data: datagram.Payload(), From: h.Src, Port: h.SrcPort, Ingress: at.number,
		Return: aggregate.Return{To: h.Src, From: h.Dst, Port: h.SrcPort, DSCP: h.DSCP, ECT: h.ECN != wire.NotECT},
	}
	return a.table.Take(a.station.engine.now, &a.message)
}

func pseudo(v4 bool, src, dst *[16]byte, length int) uint16 {
	if v4 {
		return wire.PseudoIPv4([4]byte(src[12:]), [4]byte(dst[12:]), wire.ProtocolUDP, length)
	}
	return wire.PseudoIPv6(*src, *dst, wire.ProtocolUDP, length)
}

// sendResult sends the outcome's result to a worker.
func (a *aggregator) sendResult(at *port, one *packet.Packet, w int) {
	o := &a.outcome
	back := a.table.Return(o.Job, w)
	reply := a.get(at, one, back, a.table.ResultLen(o))
	if reply == nil {
		return
	}
	a.table.Result(o, w, payloadOf(reply))
	a.send(at, reply, back, w)
}

// isMapped says that an address is IPv4's.
func isMapped(addr *[16]byte) bool {
	return [12]byte(addr[:]) == [12]byte{10: 0xff, 11: 0xff}
}

// get makes a packet for a message of some bytes, with no header but the type; or
// nil, and who waits for it asks again.
func (a *aggregator) get(at *port, cause *packet.Packet, back *aggregate.Return, length int) *packet.Packet {
	e := a.station.engine
	header, next := wire.EthernetLen+wire.IPv6Len+wire.UDPLen, uint16(wire.EtherTypeIPv6)
	if isMapped(&back.To) {
		header, next = wire.EthernetLen+wire.IPv4MinLen+wire.UDPLen, wire.EtherTypeIPv4
	}
	if header+length > e.pool.Cell() {
		a.noMemory++
		return nil
	}
	one := e.pool.Get()
	if one == nil {
		a.noMemory++
		return nil
	}
	e.totals.Made++
	one.Data = one.Data[:header+length]
	one.Length = len(one.Data)
	one.Born, one.Due, one.Ingress = e.now, cause.Due, -1
	wire.Ethernet(one.Data).SetEtherType(next)
	return one
}

// payloadOf is what UDP carries in a packet of get.
func payloadOf(one *packet.Packet) []byte {
	if wire.Ethernet(one.Data).EtherType() == wire.EtherTypeIPv4 {
		return one.Data[wire.EthernetLen+wire.IPv4MinLen+wire.UDPLen:]
	}
	return one.Data[wire.EthernetLen+wire.IPv6Len+wire.UDPLen:]
}

// send writes the headers and sends the packet on its way.
func (a *aggregator) send(at *port, one *packet.Packet, back *aggregate.Return, w int) {
	s := a.station
	ecn := wire.NotECT
	if back.ECT {
		ecn = wire.ECT0
	}
	const ttl = 64 // Linux's default
	ip := one.Data[wire.EthernetLen:]
	v4 := isMapped(&back.To)
	datagram := wire.UDP(ip[min(len(ip), wire.IPv6Len):])
	if v4 {
		datagram = wire.UDP(ip[wire.IPv4MinLen:])
		wire.IPv4(ip).Encode(&wire.IPv4Fields{
			DSCP: back.DSCP, ECN: ecn, TotalLength: uint16(len(ip)), DontFragment: true, TTL: ttl, Protocol: wire.ProtocolUDP,
			Src: [4]byte(back.From[12:]), Dst: [4]byte(back.To[12:]),
		})
	} else {
		wire.IPv6(ip).Encode(&wire.IPv6Fields{
			DSCP: back.DSCP, ECN: ecn, PayloadLength: uint16(len(datagram)), NextHeader: wire.ProtocolUDP, HopLimit: ttl,
			Src: back.From, Dst: back.To,
		})
	}
	datagram.Encode(&wire.UDPFields{SrcPort: wire.PortAggregation, DstPort: back.Port, Length: uint16(len(datagram))})
	datagram.FillChecksum(pseudo(v4, &back.From, &back.To, len(datagram)))
	one.Parse()
	a.ordinals[w]++
	one.Flow, one.Ordinal = draw.Pair(a.flow, uint64(w)), a.ordinals[w]
	out, why := a.route.Originate(s.engine.now, one)
	if why != forward.Forwarded {
		at.finish(one, why)
		return
	}
	s.enqueue(one, out)
}

// AggregationState is a job of a switch as it is now.
type AggregationState struct {
	Switch  string `json:"switch"`
	Job     uint16 `json:"job"`
	Epoch   uint16 `json:"epoch"`
	Workers int    `json:"workers"`
	Waiting int    `json:"waiting"` // sums that wait for workers
	Over    bool   `json:"over,omitempty"`
	// Updates were added, Repeats were in the sum before; Results are sums that
	// were sent to all, Again to one who missed it.
	Updates uint64 `json:"updates"`
	Repeats uint64 `json:"repeats"`
	Results uint64 `json:"results"`
	Again   uint64 `json:"again"`
	// Rejected are by the code of the reject, Dropped by reason.
	Rejected map[string]uint64 `json:"rejected,omitempty"`
	Dropped  map[string]uint64 `json:"dropped,omitempty"`
	NoMemory uint64            `json:"no_memory,omitempty"` // results not sent for want of packet memory
}

// Aggregation are the jobs of all switches as they are now. Counters are of the
// switch: it has one job.
func (e *Engine) Aggregation() []AggregationState {
	var states []AggregationState
	for _, s := range e.switches {
		if s.aggregator == nil {
			continue
		}
		t := s.aggregator.table
		c := t.Counters()
		for job := range t.Jobs() {
			status := t.Status(job)
			state := AggregationState{
				Switch: s.name, Job: status.Number, Epoch: status.Epoch, Workers: status.Workers, Waiting: status.Waiting, Over: status.Over,
				Updates: c.Updates, Repeats: c.Repeats, Results: c.Results, Again: c.Again, NoMemory: s.aggregator.noMemory,
				Rejected: map[string]uint64{}, Dropped: map[string]uint64{},
			}
			for code, n := range c.Rejected {
				if n > 0 {
					state.Rejected[wire.AggregationCode(code).String()] = n
				}
			}
			for why, n := range c.Dropped {
				if n > 0 {
					state.Dropped[aggregate.Reason(why).String()] = n
				}
			}
			states = append(states, state)
		}
	}
	return states
}
