package kernel

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"slices"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"railbed/internal/units"
)

// QdiscHandle names a queueing discipline of an interface, as major:0.
type QdiscHandle uint32

// Root is the parent of an interface's outermost queueing discipline.
const Root QdiscHandle = 0xffffffff // TC_H_ROOT

// Handle is the handle major:minor. A qdisc's own handle has minor 0; a class
// of it, which may be a parent, has another.
func Handle(major, minor uint16) QdiscHandle { return QdiscHandle(major)<<16 | QdiscHandle(minor) }

// String prints the handle as tc does.
func (h QdiscHandle) String() string {
	if h == Root {
		return "root"
	}
	if h&0xffff == 0 {
		return fmt.Sprintf("%x:", uint32(h)>>16)
	}
	return fmt.Sprintf("%x:%x", uint32(h)>>16, uint32(h)&0xffff)
}

func (h QdiscHandle) parentText() string {
	if h == Root {
		return "root"
	}
	return "parent " + h.String()
}

// TBF is a token bucket filter with a drop-tail queue. It counts the bytes of a frame as a packet
// socket sees it: with the Ethernet header, without preamble and checksum.
type TBF struct {
	Rate units.Rate
	// Burst is the number of bytes that may leave at once after a pause. A frame longer than Burst
	// is dropped.
	Burst units.Bytes
	// Limit is the length of the queue.
	Limit units.Bytes
}

// Netem is the kernel's network emulator. It decides losses before it delays.
type Netem struct {
	Delay, Jitter            time.Duration
	Loss, Duplicate, Corrupt units.Ratio
	// Limit is the largest number of delayed packets. Netem drops further packets. The kernel's
	// default of 1,000 is the same for every delay, and is too small for most links.
	Limit uint32
	// Seed makes the draws repeatable on kernels since 6.6; older kernels ignore it.
	Seed uint64
	// Others is set by Qdiscs only. It lists the kernel's settings that SetNetem never makes, in
	// tc's words. A table of delays ("distribution") is never listed: the kernel does not report
	// it.
	Others []string
}

// Qdisc is a queueing discipline as the kernel has it.
type Qdisc struct {
	Index          int
	Kind           string
	Handle, Parent QdiscHandle
	TBF            *TBF
	Netem          *Netem
	Stats          QdiscStats
}

// QdiscStats are a queueing discipline's counters since it was made.
type QdiscStats struct {
	Bytes          uint64 `json:"bytes"`
	Packets        uint64 `json:"packets"`
	Drops          uint64 `json:"drops"`
	Overlimits     uint64 `json:"overlimits"`
	BacklogBytes   uint64 `json:"backlog_bytes"`
	BacklogPackets uint64 `json:"backlog_packets"`
}

// SetTBF creates or changes a token bucket filter. With the handle of an existing filter it changes
// that filter in place, so that no queued packet is lost.
func (b *Batch) SetTBF(dev string, index int, parent, handle QdiscHandle, q TBF) {
	b.beginQdisc(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, index, parent, handle,
		func() string {
			return fmt.Sprintf(
				"tc -n %s qdisc replace dev %s %s handle %s tbf rate %dbit burst %db limit %db",
				b.node, dev, parent.parentText(), handle, q.Rate, q.Burst, q.Limit)
		})
	b.attrString(unix.TCA_KIND, "tbf")
	options := b.nest(unix.TCA_OPTIONS)
	bytesPerSecond := q.Rate.BytesPerSecond()
	parms := b.nest(nl.TCA_TBF_PARMS)
	b.rateSpec(uint32(min(bytesPerSecond, math.MaxUint32)))
	b.rateSpec(0) // no peak rate
	b.u32(uint32(min(q.Limit, math.MaxUint32)))
	b.u32(0) // buffer in ticks, superseded by TCA_TBF_BURST
	b.u32(0) // mtu in ticks, for the peak rate only
	b.unnest(parms)
	if bytesPerSecond > math.MaxUint32 { // above 34.36 Gbit/s; below, the kernel takes the 32-bit field
		b.attrU64(nl.TCA_TBF_RATE64, bytesPerSecond)
	}
	b.attrU32(nl.TCA_TBF_BURST, uint32(min(q.Burst, math.MaxUint32)))
	b.unnest(options)
	b.end()
}

// rateSpec appends a struct tc_ratespec. Its link layer is Ethernet, so the kernel needs no rate
// table.
func (b *Batch) rateSpec(bytesPerSecond uint32) {
	const linklayerEthernet = 1
	b.u8(0, linklayerEthernet)
	b.u16(0) // overhead
	b.u16(0) // cell alignment
	b.u16(0) // minimum packet unit
	b.u32(bytesPerSecond)
}

// Attributes of netem for which the netlink module has no names.
const (
	tcaNetemLoss      = 5
	tcaNetemECN       = 7
	tcaNetemLatency64 = 10
	tcaNetemJitter64  = 11
	tcaNetemSlot      = 12
	tcaNetemPRNGSeed  = 14
)

// sizeofNetemSlot is the size of a struct tc_netem_slot: four 64-bit and two 32-bit fields. Their
// order does not matter, because all are sent as zeros.
const sizeofNetemSlot = 40

// inOrderRate is netem's own rate if there is jitter. With jitter and without a rate netem reorders
// packets, which a link does not. At 10^12 byte/s the rate itself delays a frame of 9,000 bytes by
// 9 ns.
const inOrderRate = 1e12

// SetNetem creates or changes a network emulator. It sends every attribute each time: the kernel
// keeps some missing attributes and clears others.
func (b *Batch) SetNetem(dev string, index int, parent, handle QdiscHandle, q Netem) {
	b.beginQdisc(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, index, parent, handle,
		func() string {
			return fmt.Sprintf("tc -n %s qdisc replace dev %s %s handle %s netem limit %d delay %s %s loss "+
				"%s "+
				"duplicate %s corrupt %s%s seed %d",
				b.node, dev, parent.parentText(), handle, q.Limit, units.Duration(q.Delay),
				units.Duration(q.Jitter),
				percent(q.Loss), percent(q.Duplicate), percent(q.Corrupt), q.rateText(), q.Seed)
		})
	b.attrString(unix.TCA_KIND, "netem")
	options := b.nest(unix.TCA_OPTIONS)
	b.u32(ticks(q.Delay)) // struct tc_netem_qopt
	b.u32(q.Limit)
	b.u32(probability(q.Loss))
	b.u32(0) // gap: no reordering
	b.u32(probability(q.Duplicate))
	b.u32(ticks(q.Jitter))
	correlations := b.nest(nl.TCA_NETEM_CORR)
	b.buf = append(b.buf, make([]byte, 12)...)
	b.unnest(correlations)
	reorder := b.nest(nl.TCA_NETEM_REORDER)
	b.buf = append(b.buf, make([]byte, 8)...)
	b.unnest(reorder)
	corrupt := b.nest(nl.TCA_NETEM_CORRUPT)
	b.u32(probability(q.Corrupt))
	b.u32(0)
	b.unnest(corrupt)
	rate := b.nest(nl.TCA_NETEM_RATE) // struct tc_netem_rate
	b.u32(uint32(min(q.rate(), math.MaxUint32)))
	b.buf = append(b.buf, make([]byte, 12)...) // no overhead, no cells
	b.unnest(rate)
	b.attrU64(nl.TCA_NETEM_RATE64, q.rate())
	b.attrU32(tcaNetemECN, 0)
	slot := b.nest(tcaNetemSlot)
	b.buf = append(b.buf, make([]byte, sizeofNetemSlot)...)
	b.unnest(slot)
	b.attrU64(tcaNetemLatency64, uint64(q.Delay))
	b.attrU64(tcaNetemJitter64, uint64(q.Jitter))
	b.attrU64(tcaNetemPRNGSeed, q.Seed)
	b.unnest(options)
	b.end()
}

func (q Netem) rate() uint64 {
	if q.Jitter == 0 {
		return 0
	}
	return inOrderRate
}

func (q Netem) rateText() string {
	if q.Jitter == 0 {
		return ""
	}
	return " rate 8tbit"
}

func percent(r units.Ratio) string { return fmt.Sprintf("%.7g%%", 100*r.Float()) }

// DeleteQdisc deletes an interface's root queueing discipline and its children. The kernel replaces
// it by its default.
func (b *Batch) DeleteQdisc(dev string, index int) {
	b.beginQdisc(unix.RTM_DELQDISC, 0, index, Root, 0, func() string {
		return fmt.Sprintf("tc -n %s qdisc delete dev %s root", b.node, dev)
	})
	b.end()
}

// beginQdisc begins a message with a struct tcmsg.
func (b *Batch) beginQdisc(kind, flags uint16, index int, parent, handle QdiscHandle, line func() string) {
	b.begin(kind, flags, line)
	b.u32(unix.AF_UNSPEC)
	b.u32(uint32(index))
	b.u32(uint32(handle))
	b.u32(uint32(parent))
	b.u32(0)
}

const sizeofTcmsg = 20

// tick is the unit of the kernel's packet scheduler clock since 2.6.31: PSCHED_SHIFT is 6.
// CheckClock compares it with the kernel's value.
const tick = 64 * time.Nanosecond

// ticks converts a duration, rounding up to a tick, so that a requested delay never becomes zero.
// Durations over 32 bits (4.6 minutes) saturate; kernels since 4.16 take the 64-bit attribute
// instead.
func ticks(d time.Duration) uint32 {
	return uint32(min((d+tick-1)/tick, math.MaxUint32))
}

// probability scales a share to 32 bits, rounded to the nearest as in tc. A requested share never
// becomes zero.
func probability(r units.Ratio) uint32 {
	if r.IsZero() {
		return 0
	}
	den := new(big.Int).SetUint64(r.Den)
	scaled := new(big.Int).Mul(new(big.Int).SetUint64(r.Num), big.NewInt(2*math.MaxUint32))
	scaled.Add(scaled, den)
	scaled.Div(scaled, den.Lsh(den, 1))
	if !scaled.IsUint64() {
		return math.MaxUint32
	}
	return uint32(min(max(scaled.Uint64(), 1), math.MaxUint32))
}

// Qdiscs lists the queueing disciplines of the namespace that were created by request. It leaves
// out the kernel's defaults, whose handle is 0.
func (c *Conn) Qdiscs() ([]Qdisc, error) {
	request := NewBatch("", nil)
	request.beginQdisc(unix.RTM_GETQDISC, unix.NLM_F_DUMP, 0, 0, 0, nil)
	request.end()
	var qdiscs []Qdisc
	err := c.dump("queueing disciplines", request, func() { qdiscs = nil },
		func(_ uint16, body []byte) error {
			qdisc, err := parseQdisc(body)
			if qdisc.Handle != 0 {
				qdiscs = append(qdiscs, qdisc)
			}
			return err
		})
	return qdiscs, err
}

func parseQdisc(body []byte) (Qdisc, error) {
	if len(body) < sizeofTcmsg {
		return Qdisc{}, fmt.Errorf("qdisc message of %d bytes, want at least %d", len(body), sizeofTcmsg)
	}
	qdisc := Qdisc{
		Index:  int(int32(binary.NativeEndian.Uint32(body[4:]))),
		Handle: QdiscHandle(binary.NativeEndian.Uint32(body[8:])),
		Parent: QdiscHandle(binary.NativeEndian.Uint32(body[12:])),
	}
	var options []byte
	err := eachAttr(body[sizeofTcmsg:], func(kind uint16, value []byte) {
		switch kind {
		case unix.TCA_KIND:
			qdisc.Kind = cString(value)
		case unix.TCA_OPTIONS:
			options = value
		case unix.TCA_STATS2:
			qdisc.Stats = parseQdiscStats(value)
		}
	})
	if err != nil {
		return qdisc, err
	}
	switch qdisc.Kind {
	case "tbf":
		qdisc.TBF, err = parseTBF(options)
	case "netem":
		qdisc.Netem, err = parseNetem(options)
	}
	return qdisc, err
}

// parseQdiscStats reads struct gnet_stats_basic {u64 bytes; u32 packets} and
// struct gnet_stats_queue {u32 qlen, backlog, drops, requeues, overlimits}.
// Kernels since 5.5 add the packets in 64 bits.
func parseQdiscStats(value []byte) QdiscStats {
	const basic, queue, packets64 = 1, 3, 8 // TCA_STATS_BASIC, _QUEUE, _PKT64
	var stats QdiscStats
	_ = eachAttr(value, func(kind uint16, value []byte) { // missing counters read as 0
		switch {
		case kind == basic && len(value) >= 12:
			stats.Bytes = binary.NativeEndian.Uint64(value)
			stats.Packets = max(stats.Packets, uint64(u32(value[8:])))
		case kind == packets64 && len(value) >= 8:
			stats.Packets = binary.NativeEndian.Uint64(value)
		case kind == queue && len(value) >= 20:
			stats.BacklogPackets = uint64(u32(value))
			stats.BacklogBytes = uint64(u32(value[4:]))
			stats.Drops = uint64(u32(value[8:]))
			stats.Overlimits = uint64(u32(value[16:]))
		}
	})
	return stats
}

func parseTBF(options []byte) (*TBF, error) {
	const sizeofTbfQopt = 36
	q := &TBF{}
	var bytesPerSecond uint64
	var buffer uint32
	err := eachAttr(options, func(kind uint16, value []byte) {
		switch {
		case kind == nl.TCA_TBF_PARMS && len(value) >= sizeofTbfQopt:
			bytesPerSecond = max(bytesPerSecond, uint64(u32(value[8:])))
			q.Limit = units.Bytes(u32(value[24:]))
			buffer = u32(value[28:])
		case kind == nl.TCA_TBF_RATE64 && len(value) >= 8:
			bytesPerSecond = binary.NativeEndian.Uint64(value)
		}
	})
	q.Rate = units.Rate(8 * bytesPerSecond)
	// The kernel stores the burst as a time. This converts it back, to the nearest tick.
	burst := new(big.Int).Mul(big.NewInt(int64(tick)*int64(buffer)), new(big.Int).SetUint64(bytesPerSecond))
	q.Burst = units.Bytes(burst.Div(burst, big.NewInt(int64(time.Second))).Uint64())
	return q, err
}

// BurstResolution is the largest difference by which a burst that is read back may be below the
// burst that was set. The kernel reports the burst as a time in ticks, rounded down twice.
func (q TBF) BurstResolution() units.Bytes {
	return units.Bytes(math.Ceil(float64(q.Rate.BytesPerSecond())*2*tick.Seconds())) + 1
}

func parseNetem(options []byte) (*Netem, error) {
	const sizeofNetemQopt = 24
	if len(options) < sizeofNetemQopt {
		return nil, fmt.Errorf("netem options of %d bytes, want at least %d", len(options), sizeofNetemQopt)
	}
	q := &Netem{
		Delay:     tick * time.Duration(u32(options)),
		Limit:     u32(options[4:]),
		Loss:      share(u32(options[8:])),
		Duplicate: share(u32(options[16:])),
		Jitter:    tick * time.Duration(u32(options[20:])),
	}
	other := func(what string, set bool) {
		if set {
			q.Others = append(q.Others, what)
		}
	}
	other("gap", u32(options[12:]) != 0)
	var rate uint64
	err := eachAttr(options[sizeofNetemQopt:], func(kind uint16, value []byte) {
		switch {
		case kind == nl.TCA_NETEM_CORRUPT && len(value) >= 8:
			q.Corrupt = share(u32(value))
			other("correlation of corruption", u32(value[4:]) != 0)
		case kind == tcaNetemLatency64 && len(value) >= 8:
			q.Delay = time.Duration(binary.NativeEndian.Uint64(value))
		case kind == tcaNetemJitter64 && len(value) >= 8:
			q.Jitter = time.Duration(binary.NativeEndian.Uint64(value))
		case kind == tcaNetemPRNGSeed && len(value) >= 8:
			q.Seed = binary.NativeEndian.Uint64(value)
		case kind == nl.TCA_NETEM_RATE && len(value) >= 4:
			rate = max(rate, uint64(u32(value)))
		case kind == nl.TCA_NETEM_RATE64 && len(value) >= 8:
			rate = binary.NativeEndian.Uint64(value)
		case kind == nl.TCA_NETEM_CORR:
			other("correlation", !zero(value))
		case kind == nl.TCA_NETEM_REORDER:
			other("reorder", !zero(value))
		case kind == tcaNetemECN:
			other("ecn", !zero(value))
		case kind == tcaNetemLoss: // reported for states and Gilbert-Elliott, not for plain shares
			other("loss model", true)
		case kind == tcaNetemSlot:
			other("slot", !zero(value))
		}
	})
	other(fmt.Sprintf("rate %s", units.Rate(8*rate)), rate != q.rate())
	return q, err
}

func zero(value []byte) bool {
	return !slices.ContainsFunc(value, func(b byte) bool { return b != 0 })
}

func share(scaled uint32) units.Ratio {
	if scaled == 0 {
		return units.Ratio{}
	}
	return units.Ratio{Num: uint64(scaled), Den: math.MaxUint32}
}

// SameShare reports whether a probability that was read back equals the requested one, at the
// kernel's resolution of 2^-32.
func SameShare(got, want units.Ratio) bool { return probability(got) == probability(want) }
