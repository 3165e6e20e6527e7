package verify

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"railbed/capture/verify/evidence"
	"railbed/capture/verify/fabric"
	"railbed/capture/verify/ranks"
	"railbed/capture/verify/rd"
	"railbed/capture/verify/roce"
	"railbed/capture/verify/rules"
	"railbed/plan/spec"
)

// Sources provide the data that checks need in addition to packets and plan.
type Sources struct {
	// Traffic returns the packets of a workload. The name is the check's argument, and is empty
	// for the only workload.
	Traffic func(workload string) (Workload, error)
	// Crossing returns the traffic that a run of a stack had to send.
	Crossing func(stack string) (Crossing, error)
	// Numbers returns the numbers of a workload for formulas.
	Numbers rules.Numbers
	// Active returns the times in which a step or a fault was active. If it never was, it returns the
	// reason. Nil means that no times are known.
	Active func(name string) (active []evidence.Active, never string, err error)
}

// kind is a kind of packet check that a file can ask for.
type kind struct {
	key string // in files
	// example is the text that a file writes after the key.
	example string
	// timed reports whether the finding depends on the times of packets. If the emulation did not
	// keep up, such a finding is no proof. Elements, bytes, order and conservation do not depend on
	// times.
	timed func(*spec.PacketsCheck) bool
	// words are the words that follow the key in the check's name. Empty words are left out.
	words func(*spec.PacketsCheck) []string
	make  func(*spec.PacketsCheck, Sources) (Check, error)
}

// kinds are the checks that files, "railbed run" and "railbed verify" know, in the order of
// spec.PacketsCheck. The syntax of their arguments was checked when the file was read.
var kinds = []kind{
	{"bytes-per-rank", "{formula: ring-all-reduce, tolerance: 2%}", never,
		func(p *spec.PacketsCheck) []string { return []string{p.BytesPerRank.Workload} },
		func(p *spec.PacketsCheck, s Sources) (Check, error) {
			w, err := s.Traffic(p.BytesPerRank.Workload)
			return ranks.NewBytesPerRank(w, p.BytesPerRank.Tolerance), err
		}},
	{"rank-nic", "ar", never,
		func(p *spec.PacketsCheck) []string { return []string{p.RankNIC} },
		func(p *spec.PacketsCheck, s Sources) (Check, error) {
			w, err := s.Traffic(p.RankNIC)
			return ranks.NewRankNIC(w), err
		}},
	{"crossed", "ar", never,
		func(p *spec.PacketsCheck) []string { return []string{p.Crossed} },
		func(p *spec.PacketsCheck, s Sources) (Check, error) {
			c, err := s.Crossing(p.Crossed)
			return ranks.NewCrossed(c), err
		}},
	{"rail-local", "ar", never,
		func(p *spec.PacketsCheck) []string { return []string{p.RailLocal} },
		func(p *spec.PacketsCheck, s Sources) (Check, error) {
			w, err := s.Traffic(p.RailLocal)
			return ranks.NewRailLocal(w), err
		}},
	{"partial-sums", "ar", never,
		func(p *spec.PacketsCheck) []string { return []string{p.PartialSums} },
		func(p *spec.PacketsCheck, s Sources) (Check, error) {
			w, err := s.Traffic(p.PartialSums)
			return ranks.NewPartialSums(w), err
		}},
	{"conservation", `"*"`, never,
		func(p *spec.PacketsCheck) []string { return []string{p.Conservation} },
		func(p *spec.PacketsCheck, _ Sources) (Check, error) {
			return fabric.NewConservation(p.Conservation), nil
		}},
	{"path-spread", `{switch: "leaf*", min-share: 10%}`, never,
		func(p *spec.PacketsCheck) []string { return []string{p.PathSpread.Switch} },
		func(p *spec.PacketsCheck, _ Sources) (Check, error) {
			return fabric.NewPathSpread(p.PathSpread), nil
		}},
	{"marks", `{at: leaf1, share: ">= 10%"}`, always,
		func(p *spec.PacketsCheck) []string { return []string{p.Marks.At, p.Marks.From, p.Marks.To} },
		func(p *spec.PacketsCheck, _ Sources) (Check, error) { return fabric.NewMarks(p.Marks), nil }},
	{"drops", `{at: "leaf1:p*", reason: tail, count: ">= 1"}`, always,
		func(p *spec.PacketsCheck) []string {
			return []string{p.Drops.At, p.Drops.From, p.Drops.To, p.Drops.Reason}
		},
		func(p *spec.PacketsCheck, _ Sources) (Check, error) { return fabric.NewDrops(p.Drops), nil }},
	{"lossless", "{to: h0, priority: 3}", never,
		func(p *spec.PacketsCheck) []string { return []string{p.Lossless.From, p.Lossless.To} },
		func(p *spec.PacketsCheck, _ Sources) (Check, error) { return fabric.NewLossless(p.Lossless), nil }},
	{"trims", `{at: leaf1, count: ">= 1"}`, always,
		func(p *spec.PacketsCheck) []string { return []string{p.Trims.At, p.Trims.Workload} },
		func(p *spec.PacketsCheck, s Sources) (Check, error) {
			w, err := s.selected(p.Trims.Workload)
			return fabric.NewTrims(p.Trims, w), err
		}},
	{"pauses", `{at: leaf1, paused: ">= 10ms"}`, always,
		func(p *spec.PacketsCheck) []string { return []string{p.Pauses.At} },
		func(p *spec.PacketsCheck, _ Sources) (Check, error) { return fabric.NewPauses(p.Pauses), nil }},
	{"deadlock", "none", always,
		func(p *spec.PacketsCheck) []string { return []string{p.Deadlock} },
		func(p *spec.PacketsCheck, _ Sources) (Check, error) { return fabric.NewDeadlock(p.Deadlock), nil }},
	{"reordering", `{share: "<= 1%"}`, never,
		func(p *spec.PacketsCheck) []string { return []string{p.Reordering.From, p.Reordering.To} },
		func(p *spec.PacketsCheck, _ Sources) (Check, error) {
			return fabric.NewReordering(p.Reordering), nil
		}},
	{"outage", `{from: h0, longest: "<= 1s"}`, always,
		func(p *spec.PacketsCheck) []string { return []string{p.Outage.From, p.Outage.To} },
		func(p *spec.PacketsCheck, _ Sources) (Check, error) { return fabric.NewOutage(p.Outage), nil }},
	{"throughput", `{to: h0, rate: ">= 10mbit", fairness: ">= 90%"}`, always,
		func(p *spec.PacketsCheck) []string {
			return []string{p.Throughput.From, p.Throughput.To, p.Throughput.Workload}
		},
		func(p *spec.PacketsCheck, s Sources) (Check, error) {
			w, err := s.selected(p.Throughput.Workload)
			return fabric.NewThroughput(p.Throughput, w), err
		}},
	{"queue-depth", `{at: leaf1, max: "<= 100KB"}`, always,
		func(p *spec.PacketsCheck) []string { return []string{p.QueueDepth.At, p.QueueDepth.Workload} },
		func(p *spec.PacketsCheck, s Sources) (Check, error) {
			w, err := s.selected(p.QueueDepth.Workload)
			return fabric.NewQueueDepth(p.QueueDepth, w), err
		}},
	{"pacing", "{workload: ar, rate: 100mbit, tolerance: 1ms}", always,
		func(p *spec.PacketsCheck) []string { return []string{p.Pacing.Workload} },
		func(p *spec.PacketsCheck, s Sources) (Check, error) {
			w, err := s.Traffic(p.Pacing.Workload)
			return rd.NewPacing(w, p.Pacing), err
		}},
	{"roce", "{rule: icrc}",
		func(p *spec.PacketsCheck) bool { return roce.Timed(p.RoCE) },
		func(p *spec.PacketsCheck) []string { return []string{p.RoCE.Rule} },
		func(p *spec.PacketsCheck, _ Sources) (Check, error) { return roce.New(p.RoCE) }},
	{"that", strconv.Quote(spec.ThatRDPlaced),
		func(p *spec.PacketsCheck) bool { return rd.Timed(p.That) },
		func(p *spec.PacketsCheck) []string { return []string{p.That} },
		func(p *spec.PacketsCheck, _ Sources) (Check, error) { return rd.New(p.That) }},
	{"latency", `{p99: "<= 200us", per: flow}`, always,
		func(p *spec.PacketsCheck) []string {
			return []string{p.Latency.From, p.Latency.To, p.Latency.Workload}
		},
		func(p *spec.PacketsCheck, s Sources) (Check, error) {
			w, err := s.selected(p.Latency.Workload)
			return fabric.NewLatency(p.Latency, w), err
		}},
	{"link-bytes", `{link: "leaf*--spine*", is: "<= 40MB"}`, never,
		func(p *spec.PacketsCheck) []string { return []string{p.LinkBytes.Link, p.LinkBytes.Workload} },
		func(p *spec.PacketsCheck, s Sources) (Check, error) {
			w, err := s.selected(p.LinkBytes.Workload)
			return fabric.NewLinkBytes(p.LinkBytes, w), err
		}},
	{"rule", `{never: 'railbed.verdict == "drop"'}`,
		func(p *spec.PacketsCheck) bool { return p.Rule.Window > 0 || p.Rule.Within > 0 },
		func(p *spec.PacketsCheck) []string { return []string{p.Rule.Title()} },
		func(p *spec.PacketsCheck, s Sources) (Check, error) {
			w, err := s.selected(p.Rule.Workload)
			if err != nil {
				return nil, err
			}
			return rules.New(p.Rule, w, s.Numbers)
		}},
}

func always(*spec.PacketsCheck) bool { return true }

func never(*spec.PacketsCheck) bool { return false }

// Timed reports whether the verdict of a packet check depends on faithful time.
func Timed(p *spec.PacketsCheck) bool {
	k, known := kindOf(p)
	name, _ := p.Limited()
	return !known || name != "" || k.timed(p)
}

// selected returns the workload whose packets a check is about. Nil means all packets.
func (s Sources) selected(name string) (*Workload, error) {
	if name == "" {
		return nil, nil
	}
	w, err := s.Traffic(name)
	return &w, err
}

// kindOf returns the kind of a check of which exactly one field is set.
func kindOf(p *spec.PacketsCheck) (kind, bool) {
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.key == p.Kind() })
	if i < 0 {
		return kind{}, false
	}
	return kinds[i], true
}

// New makes the check that a file asks for. It returns the error of Sources.Traffic, which not all
// checks call.
func New(p *spec.PacketsCheck, s Sources) (Check, error) {
	k, known := kindOf(p)
	if !known {
		return nil, fmt.Errorf("check of packets: unknown kind %q", p.Kind())
	}
	check, err := k.make(p, s)
	if err != nil {
		return nil, err
	}
	name, outside := p.Limited()
	if name == "" {
		return check, nil
	}
	if s.Active == nil {
		return nil, fmt.Errorf("%s: the times of steps and faults are in the results of a run: "+
			"name the directory of a run, or its bundle", p.TimeWords())
	}
	active, never, err := s.Active(name)
	if err != nil {
		return nil, err
	}
	return evidence.Limited(check, evidence.NewTimes(p.TimeWords(), outside, active, never)), nil
}

// Title returns the name of a check in reports.
func Title(p *spec.PacketsCheck) string {
	k, known := kindOf(p)
	if !known {
		return "packets"
	}
	title := k.key
	for _, word := range k.words(p) {
		if word != "" {
			title += " " + word
		}
	}
	if name, _ := p.Limited(); name != "" {
		title += " " + p.TimeWords()
	}
	return title
}

// Examples returns one check of each kind, in the syntax of a file.
func Examples() []string {
	var examples []string
	for _, k := range kinds {
		examples = append(examples, strings.TrimSpace(k.key+": "+k.example))
	}
	return examples
}
