package spec

import (
	"cmp"
	"slices"
	"strconv"

	"railbed/internal/units"
)

// Defaults of soft switches.
const (
	defaultSoftBuffer       = units.Bytes(2e6)
	defaultFlowletGap       = units.Duration(50e3)
	defaultKMin             = units.Bytes(40e3)
	defaultKMax             = units.Bytes(160e3)
	defaultTarget           = units.Duration(200e3)
	defaultPersistentTarget = units.Duration(85e3)
	defaultInterval         = units.Duration(200e3)
	defaultTrimSize         = units.Bytes(128)
	defaultTrimQueue        = Priorities - 1
	defaultLossless         = 3
	defaultQuanta           = 65535
	defaultSlots            = 128
	defaultElements         = 256
	defaultSlotTimeout      = units.Duration(1e9)
)

var (
	defaultAlpha = units.Factor{Num: 1, Den: 1}
	defaultPMax  = units.Ratio{Num: 1, Den: 5}
)

// DSCPs of Railbed's own packets. DSCPs that end in binary 11 are for local use (RFC 2474, section
// 6, pool 2), so they have no other meaning in any network.
const (
	// DSCPRd is the DSCP of rd's data, priority 4.
	DSCPRd = 35
	// DSCPRdControl is the DSCP of rd's acknowledgements and other small packets without data,
	// priority 6.
	DSCPRdControl = 51
	// DSCPTrimmed is the DSCP of trimmed packets, priority 7.
	DSCPTrimmed = 59
)

// SwitchFor returns all settings of a switch, with defaults. Settings within scheduler, ecn, trim,
// pfc, gfc and aggregation are merged one by one. In the result these blocks are nil if they are
// off. Priorities of a soft switch has the entries of the file. Thresholds that depend on a link
// are nil if the file has none.
func (f *Fabric) SwitchFor(name string) Switch {
	merged := f.SwitchSettings(name)
	merged.Kind = cmp.Or(merged.Kind, DefaultSwitchKind)
	if merged.Kind != Soft {
		merged.Buffer = cmp.Or(merged.Buffer, defaultBuffer)
		return merged
	}
	merged.setSoftDefaults()
	return merged
}

// SwitchSettings returns the settings that the file gives for a switch, without defaults.
func (f *Fabric) SwitchSettings(name string) Switch {
	var merged Switch
	apply := func(s Switch) { merged = s.over(merged) }
	apply(f.Switch)
	settings(f.Switches, name, "", apply)
	return merged
}

// over returns the switch with each setting that it does not have taken from base. The result
// shares nothing with base that setSoftDefaults writes to.
func (s Switch) over(base Switch) Switch {
	merged := Switch{
		Kind:        cmp.Or(s.Kind, base.Kind),
		Buffer:      cmp.Or(s.Buffer, base.Buffer),
		Forwarding:  cmp.Or(s.Forwarding, base.Forwarding),
		LoadBalance: cmp.Or(s.LoadBalance, base.LoadBalance),
		FlowletGap:  cmp.Or(s.FlowletGap, base.FlowletGap),
		Alpha:       cmp.Or(s.Alpha, base.Alpha),
		Priorities:  overMap(s.Priorities, base.Priorities),
		INT:         cmp.Or(s.INT, base.INT),
	}
	merged.Scheduler = merge(s.Scheduler, base.Scheduler, func(s, b Scheduler) Scheduler {
		return Scheduler{
			Strict:  overList(s.Strict, b.Strict, s.Zero&ZeroStrict != 0),
			Weights: overMap(s.Weights, b.Weights),
			Zero:    s.Zero | b.Zero&^zeroIf(len(s.Strict) > 0, ZeroStrict),
		}
	})
	merged.ECN = merge(s.ECN, base.ECN, ECN.over)
	merged.Trim = merge(s.Trim, base.Trim, func(s, b Trim) Trim {
		if s.Off || b.Off {
			return s
		}
		return Trim{
			Size: cmp.Or(s.Size, b.Size), DSCP: cmp.Or(s.DSCP, b.DSCP), Queue: cmp.Or(s.Queue, b.Queue),
			Priorities: overList(s.Priorities, b.Priorities, false),
		}
	})
	merged.PFC = merge(s.PFC, base.PFC, func(s, b PFC) PFC {
		if s.Off || b.Off {
			return s
		}
		return PFC{
			Priorities: overList(s.Priorities, b.Priorities, false),
			XOff:       cmp.Or(s.XOff, b.XOff),
			XOn:        cmp.Or(s.XOn, b.XOn),
			Headroom:   cmp.Or(s.Headroom, b.Headroom), Quanta: cmp.Or(s.Quanta, b.Quanta),
		}
	})
	merged.GFC = merge(s.GFC, base.GFC, func(s, b GFC) GFC {
		if s.Off || b.Off {
			return s
		}
		return GFC{
			Kind:       cmp.Or(s.Kind, b.Kind),
			Priorities: overList(s.Priorities, b.Priorities, false),
			B1:         cmp.Or(s.B1, b.B1),
			BM:         cmp.Or(s.BM, b.BM),
			Stages:     cmp.Or(s.Stages, b.Stages),
			Period:     cmp.Or(s.Period, b.Period),
		}
	})
	merged.Aggregation = merge(s.Aggregation, base.Aggregation, func(s, b Aggregation) Aggregation {
		if s.Off || b.Off {
			return s
		}
		return Aggregation{Slots: cmp.Or(s.Slots, b.Slots), Elements: cmp.Or(s.Elements, b.Elements),
			Timeout: cmp.Or(s.Timeout, b.Timeout)}
	})
	return merged
}

func (e ECN) over(b ECN) ECN {
	if e.Off || b.Off {
		return e
	}
	return ECN{
		Kind:   cmp.Or(e.Kind, b.Kind),
		KMin:   cmp.Or(e.KMin, b.KMin),
		KMax:   cmp.Or(e.KMax, b.KMax),
		PMax:   cmp.Or(e.PMax, b.PMax),
		Target: cmp.Or(e.Target, b.Target), PersistentTarget: cmp.Or(e.PersistentTarget, b.PersistentTarget),
		Interval: cmp.Or(e.Interval, b.Interval), Priorities: overList(e.Priorities, b.Priorities, false),
	}
}

func zeroIf(condition bool, bit Zeros) Zeros {
	if condition {
		return bit
	}
	return 0
}

// merge returns a copy of the block of settings that is set, or both merged if both are set.
func merge[T any](specific, base *T, both func(specific, base T) T) *T {
	switch {
	case specific == nil && base == nil:
		return nil
	case specific == nil:
		merged := *base
		return &merged
	case base == nil:
		merged := *specific
		return &merged
	}
	merged := both(*specific, *base)
	return &merged
}

// overMap merges two mappings key by key.
func overMap(specific, base Ordered[int]) Ordered[int] {
	merged := slices.Clone(base)
	for _, entry := range specific {
		if i := slices.IndexFunc(merged, func(e Entry[int]) bool { return e.Key == entry.Key }); i >= 0 {
			merged[i].Value = entry.Value
		} else {
			merged = append(merged, entry)
		}
	}
	return merged
}

// setSoftDefaults fills in the default settings of a soft switch.
func (s *Switch) setSoftDefaults() {
	s.Buffer = cmp.Or(s.Buffer, defaultSoftBuffer)
	s.Forwarding = cmp.Or(s.Forwarding, L3)
	s.LoadBalance = cmp.Or(s.LoadBalance, Flow)
	s.FlowletGap = cmp.Or(s.FlowletGap, defaultFlowletGap)
	s.Alpha = cmp.Or(s.Alpha, defaultAlpha)
	if s.Scheduler == nil {
		s.Scheduler = &Scheduler{}
	}
	if len(s.Scheduler.Strict) == 0 && s.Scheduler.Zero&ZeroStrict == 0 {
		s.Scheduler.Strict = []int{Priorities - 1}
	}
	s.INT = cmp.Or(s.INT, new(bool))
	if e := s.ECN; e != nil && e.Off {
		s.ECN = nil
	} else if e != nil {
		e.Kind = cmp.Or(e.Kind, RED)
		e.KMin, e.KMax, e.PMax = cmp.Or(e.KMin, defaultKMin), cmp.Or(e.KMax, defaultKMax),
			cmp.Or(e.PMax, defaultPMax)
		e.Target, e.Interval = cmp.Or(e.Target, defaultTarget), cmp.Or(e.Interval, defaultInterval)
		e.PersistentTarget = cmp.Or(e.PersistentTarget, defaultPersistentTarget)
		e.Priorities = overList(e.Priorities, []int{0, 1, 2, 3, 4, 5, 6, 7}, false)
	}
	if t := s.Trim; t != nil && t.Off {
		s.Trim = nil
	} else if t != nil {
		t.Size = cmp.Or(t.Size, defaultTrimSize)
		t.DSCP, t.Queue = cmp.Or(t.DSCP, pointer(DSCPTrimmed)), cmp.Or(t.Queue, pointer(defaultTrimQueue))
		t.Priorities = overList(t.Priorities, []int{s.PriorityOf(DSCPRd)}, false)
	}
	if p := s.PFC; p != nil && p.Off {
		s.PFC = nil
	} else if p != nil {
		p.Quanta = cmp.Or(p.Quanta, defaultQuanta)
		p.Priorities = overList(p.Priorities, []int{defaultLossless}, false)
	}
	if g := s.GFC; g != nil && g.Off {
		s.GFC = nil
	} else if g != nil {
		g.Kind = cmp.Or(g.Kind, GFCBuffer)
		g.Priorities = overList(g.Priorities, []int{defaultLossless}, false)
	}
	if a := s.Aggregation; a != nil && a.Off {
		s.Aggregation = nil
	} else if a != nil {
		a.Slots, a.Elements = cmp.Or(a.Slots, defaultSlots), cmp.Or(a.Elements, defaultElements)
		a.Timeout = cmp.Or(a.Timeout, defaultSlotTimeout)
	}
}

func pointer(n int) *int { return &n }

// PriorityOf returns the priority of packets with a DSCP.
func (s *Switch) PriorityOf(dscp int) int {
	if priority, mapped := s.Priorities.Get(strconv.Itoa(dscp)); mapped {
		return priority
	}
	return dscp / Priorities
}

// PacketMemory returns Memory, or its default.
func (f *Fabric) PacketMemory() units.Bytes { return cmp.Or(f.Memory, defaultMemory) }
