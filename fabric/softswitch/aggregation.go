package softswitch

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"railbed/fabric/softswitch/draw"
	"railbed/fabric/softswitch/forward"
	"railbed/fabric/softswitch/packet"
	"railbed/fabric/softswitch/reduction"
	"railbed/internal/wire"
	"railbed/plan"
)

// aggregator connects a switch's aggregation table to its ports. It takes messages to a job out of
// the switch's traffic. Results are forwarded like every packet, by the route, the queue and the
// line to each worker.
type aggregator struct {
	station *station
	table   *reduction.Table
	route   forward.Originator
	addrs   [][16]byte // the switch's addresses
	parents []parent   // by job
	message reduction.Message
	outcome reduction.Outcome
	// flow and ordinals number results and partial sums, for the faults of links: by job, for each
	// child and then for the parent.
	flow     uint64
	ordinals [][]uint64
	noMemory uint64
}

// parent has the addresses for partial sums of a job, in IPv4 and IPv6.
type parent struct {
	from, to [2][16]byte
	name     string
}

// newAggregator makes the table of a switch. It returns nil if the switch has no job.
func newAggregator(s *station, p *plan.Plan, sw *plan.Switch) (*aggregator, error) {
	a := &aggregator{station: s, flow: draw.Seed(p.Seed, "aggregation", sw.Name)}
	var jobs []reduction.Job
	isOwn := func(job *plan.AggregationJob) bool { return job.Root().Switch == sw.Name }
	planned := p.AggregationJobs()
	if own := slices.IndexFunc(planned, isOwn); own > 0 { // messages of no job count for the first job
		planned = slices.Concat(planned[own:own+1], planned[:own], planned[own+1:])
	}
	for _, job := range planned {
		if at := slices.IndexFunc(job.Tree, func(one plan.AggregationSwitch) bool {
			return one.Switch == sw.Name
		}); at >= 0 {
			jobs = append(jobs, a.part(sw, job, at))
		}
	}
	if len(jobs) == 0 {
		return nil, nil
	}
	var routes bool
	if a.route, routes = s.table.(forward.Originator); !routes {
		return nil, errors.New("aggregation needs forwarding by address")
	}
	var err error
	a.table, err = reduction.New(jobs)
	return a, err
}

// part returns a switch's part in a job, at an index of the job's tree.
func (a *aggregator) part(sw *plan.Switch, planned *plan.AggregationJob, at int) reduction.Job {
	own := &planned.Tree[at]
	job := reduction.Job{
		Number:     planned.Number,
		KeySeed:    planned.KeySeed,
		SwitchSeed: planned.SwitchSeed,
		Slots:      planned.Slots,
		Elements:   planned.Elements,
		FanIn:      len(planned.Workers), Timeout: planned.Patience(at),
	}
	for _, w := range own.Workers {
		job.Children = append(job.Children,
			reduction.Child{Station: stationAt(sw, planned.Workers[w].Addr4, planned.Workers[w].Addr6),
				Workers: 1 << w})
	}
	for i, below := range planned.Tree {
		if below.Above == at {
			job.Children = append(job.Children,
				reduction.Child{Station: stationAt(sw, below.Addr4, below.Addr6), Workers: planned.Below(i),
					Switch: true})
		}
	}
	a.addrs = [][16]byte{own.Addr4.As16(), own.Addr6.As16()}
	var up parent
	if own.Above >= 0 {
		above := &planned.Tree[own.Above]
		job.Parent = &reduction.Parent{Station: stationAt(sw, above.Addr4, above.Addr6),
			Timeout: planned.Patience(0) + time.Duration(planned.Timeout)}
		up.name = above.Switch
		up.to = [2][16]byte{above.Addr4.As16(), above.Addr6.As16()}
		up.from = [2][16]byte(a.addrs)
	}
	a.parents = append(a.parents, up)
	a.ordinals = append(a.ordinals, make([]uint64, len(job.Children)+1))
	return job
}

// stationAt returns the station with two addresses, as seen from a switch.
func stationAt(sw *plan.Switch, addr4, addr6 netip.Addr) reduction.Station {
	return reduction.Station{Addrs: [][16]byte{addr4.As16(), addr6.As16()},
		Ports: slices.Concat(portsTo(sw, addr4), portsTo(sw, addr6))}
}

// portsTo returns the ports by which a switch's routes reach an address, whether they are up or
// not. Packets from that address come in by the same ports.
func portsTo(sw *plan.Switch, addr netip.Addr) (ports []int) {
	best := -1
	for i, port := range sw.Ports {
		for _, own := range port.Addrs {
			if own.Contains(addr) {
				return []int{i}
			}
		}
	}
	for route := range sw.Routes.All() {
		if !route.Dst.Contains(addr) || route.Dst.Bits() <= best {
			continue
		}
		best, ports = route.Dst.Bits(), nil
		for _, hop := range route.NextHops {
			if i := slices.IndexFunc(sw.Ports, func(p plan.Interface) bool {
				return p.Name == hop.Dev
			}); i >= 0 {
				ports = append(ports, i)
			}
		}
	}
	return ports
}

// takes reports whether a packet is for a job. The router handles packets that are not well formed
// or are for another station.
func (a *aggregator) takes(at *port, one *packet.Packet) bool {
	h := &one.Headers
	return h.DstPort == wire.PortAggregation && h.Protocol == wire.ProtocolUDP &&
		h.Verdict == wire.WellFormed && h.Flags&wire.Tagged == 0 &&
		wire.Ethernet(one.Data).Dst() == at.mac && slices.Contains(a.addrs, h.Dst)
}

// take processes a packet, and sends the resulting messages.
func (a *aggregator) take(at *port, one *packet.Packet) {
	e := a.station.engine
	o := &a.outcome
	*o = a.read(at, one)
	switch o.Action {
	case reduction.Drop:
		e.drop(at, one, Aggregation, 0)
		return
	case reduction.SendAll:
		for c := range a.table.Children(o.Job) {
			a.sendResult(at, one, c)
		}
	case reduction.SendOne:
		a.sendResult(at, one, o.Child)
	case reduction.SendUp:
		a.sendUp(at, one)
	case reduction.SendBack:
		if reply := a.get(at, one, &a.message.Return, wire.AggregationLen); reply != nil {
			wire.Aggregation(payloadOf(reply)).Encode(&o.Reject)
			a.send(at, reply, &a.message.Return, o.Child)
		}
	case reduction.Keep:
	}
	e.totals.Consumed++
	e.pool.Put(one)
}

// read passes a datagram to the table.
func (a *aggregator) read(at *port, one *packet.Packet) reduction.Outcome {
	h := &one.Headers
	if h.Has(wire.Fragment) {
		return a.table.Refuse(reduction.Fragment)
	}
	datagram := wire.UDP(one.Data[h.L4:])
	datagram = datagram[:datagram.Length()]
	v4 := h.Has(wire.IsIPv4)
	if !v4 && datagram.Checksum() == 0 || !datagram.ChecksumValid(pseudo(v4, &h.Src, &h.Dst, len(datagram))) {
		return a.table.Refuse(reduction.Checksum)
	}
	a.message = reduction.Message{
		Data: datagram.Payload(), From: h.Src, Port: h.SrcPort, Ingress: at.number,
		Return: reduction.Return{To: h.Src, From: h.Dst, Port: h.SrcPort, DSCP: h.DSCP,
			ECT: h.ECN != wire.NotECT},
	}
	return a.table.Take(a.station.engine.now, &a.message)
}

func pseudo(v4 bool, src, dst *[16]byte, length int) uint16 {
	if v4 {
		return wire.PseudoIPv4([4]byte(src[12:]), [4]byte(dst[12:]), wire.ProtocolUDP, length)
	}
	return wire.PseudoIPv6(*src, *dst, wire.ProtocolUDP, length)
}

// sendResult sends the outcome's result to a child.
func (a *aggregator) sendResult(at *port, one *packet.Packet, c int) {
	o := &a.outcome
	back := a.table.Return(o.Job, c)
	reply := a.get(at, one, back, a.table.ResultLen(o))
	if reply == nil {
		return
	}
	a.table.Result(o, c, payloadOf(reply))
	a.send(at, reply, back, c)
}

// sendUp sends the outcome's partial sum to the switch above, with the IP version and ECN
// capability of the message that caused it.
func (a *aggregator) sendUp(at *port, one *packet.Packet) {
	o, cause, family := &a.outcome, &a.message.Return, 1
	if isMapped(&cause.To) {
		family = 0
	}
	up := reduction.Return{
		To:   a.parents[o.Job].to[family],
		From: a.parents[o.Job].from[family],
		Port: wire.PortAggregation,
		DSCP: cause.DSCP,
		ECT:  cause.ECT,
	}
	partial := a.get(at, one, &up, a.table.ResultLen(o))
	if partial == nil {
		return
	}
	a.table.Partial(o, payloadOf(partial))
	a.send(at, partial, &up, a.table.Children(o.Job))
}

// isMapped reports whether an address is an IPv4 address.
func isMapped(addr *[16]byte) bool {
	return [12]byte(addr[:]) == [12]byte{10: 0xff, 11: 0xff}
}

// get makes a packet for a message of a length, with only the EtherType set. It returns nil without
// packet memory; the receiver will then repeat its request.
func (a *aggregator) get(at *port, cause *packet.Packet, back *reduction.Return, length int) *packet.Packet {
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

// payloadOf returns the UDP payload of a packet from get.
func payloadOf(one *packet.Packet) []byte {
	if wire.Ethernet(one.Data).EtherType() == wire.EtherTypeIPv4 {
		return one.Data[wire.EthernetLen+wire.IPv4MinLen+wire.UDPLen:]
	}
	return one.Data[wire.EthernetLen+wire.IPv6Len+wire.UDPLen:]
}

// send writes the headers and sends the packet: to the child with number line, or to the parent,
// whose number follows the children's.
func (a *aggregator) send(at *port, one *packet.Packet, back *reduction.Return, line int) {
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
			DSCP:         back.DSCP,
			ECN:          ecn,
			TotalLength:  uint16(len(ip)),
			DontFragment: true,
			TTL:          ttl,
			Protocol:     wire.ProtocolUDP,
			Src:          [4]byte(back.From[12:]), Dst: [4]byte(back.To[12:]),
		})
	} else {
		wire.IPv6(ip).Encode(&wire.IPv6Fields{
			DSCP:          back.DSCP,
			ECN:           ecn,
			PayloadLength: uint16(len(datagram)),
			NextHeader:    wire.ProtocolUDP,
			HopLimit:      ttl,
			Src:           back.From, Dst: back.To,
		})
	}
	datagram.Encode(&wire.UDPFields{SrcPort: wire.PortAggregation, DstPort: back.Port,
		Length: uint16(len(datagram))})
	datagram.FillChecksum(pseudo(v4, &back.From, &back.To, len(datagram)))
	one.Parse()
	ordinal := &a.ordinals[a.outcome.Job][line]
	*ordinal++
	one.Flow, one.Ordinal = draw.Pair(draw.Pair(a.flow, uint64(a.outcome.Job)), uint64(line)), *ordinal
	out, why := a.route.Originate(s.engine.now, one)
	if why != forward.Forwarded {
		at.finish(one, why)
		return
	}
	s.enqueue(one, out)
}

// AggregationState is the current state of a job at a switch.
type AggregationState struct {
	Switch  string `json:"switch"`
	Above   string `json:"above,omitempty"` // the switch to which it sends its sums
	Job     uint16 `json:"job"`
	Epoch   uint16 `json:"epoch"`
	Workers int    `json:"workers"`
	Waiting int    `json:"waiting"` // sums that wait for workers
	Over    bool   `json:"over,omitempty"`
	// Updates counts messages that were added, and Repeats messages that were already in the sum.
	// Partials counts sums sent to the switch above, and Reasked sums sent there again. Results
	// counts sums sent to all, and Again sums sent again to a worker that missed the sum.
	Updates  uint64 `json:"updates"`
	Repeats  uint64 `json:"repeats"`
	Partials uint64 `json:"partials,omitempty"`
	Reasked  uint64 `json:"reasked,omitempty"`
	Results  uint64 `json:"results"`
	Again    uint64 `json:"again"`
	// Rejected counts by the code of the reject, Dropped by reason.
	Rejected map[string]uint64 `json:"rejected,omitempty"`
	Dropped  map[string]uint64 `json:"dropped,omitempty"`
	NoMemory uint64            `json:"no_memory,omitempty"` // results not sent for lack of packet memory
}

// Aggregation returns the current state of all jobs at every switch that takes part. Messages that
// belong to no job are counted in the switch's first job, which is the job whose root it is, if
// there is one.
func (e *Engine) Aggregation() []AggregationState {
	var states []AggregationState
	for _, s := range e.switches {
		if s.aggregator == nil {
			continue
		}
		t := s.aggregator.table
		for job := range t.Jobs() {
			c := t.Counters(job)
			status := t.Status(job)
			state := AggregationState{
				Switch:   s.name,
				Above:    s.aggregator.parents[job].name,
				Job:      status.Number,
				Epoch:    status.Epoch,
				Workers:  status.Workers,
				Waiting:  status.Waiting,
				Over:     status.Over,
				Updates:  c.Updates,
				Repeats:  c.Repeats,
				Partials: c.Partials,
				Reasked:  c.Reasked,
				Results:  c.Results,
				Again:    c.Again,
				NoMemory: s.aggregator.noMemory,
				Rejected: map[string]uint64{}, Dropped: map[string]uint64{},
			}
			for code, n := range c.Rejected {
				if n > 0 {
					state.Rejected[wire.AggregationCode(code).String()] = n
				}
			}
			for why, n := range c.Dropped {
				if n > 0 {
					state.Dropped[reduction.Reason(why).String()] = n
				}
			}
			states = append(states, state)
		}
	}
	return states
}
