package verify

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"railbed/capture/verify/evidence"
	"railbed/capture/verify/rd"
	"railbed/capture/verify/roce"
	"railbed/plan/spec"
)

// Sources provide the data that checks need beside packets and plan.
type Sources struct {
	// Traffic returns the packets of a workload. The name is the check's argument, and is empty
	// for the only workload.
	Traffic func(workload string) (evidence.Workload, error)
	// Crossing returns the traffic that a run of a stack had to send.
	Crossing func(stack string) (Crossing, error)
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
	make  func(*spec.PacketsCheck, Sources) (evidence.Check, error)
}

// kinds are the checks that files, "railbed run" and "railbed verify" know, in the order of
// spec.PacketsCheck. The syntax of their arguments was checked when the file was read.
var kinds = []kind{
	{"bytes-per-rank", "{formula: ring-all-reduce, tolerance: 2%}", never,
		func(p *spec.PacketsCheck) []string { return []string{p.BytesPerRank.Workload} },
		func(p *spec.PacketsCheck, s Sources) (evidence.Check, error) {
			w, err := s.Traffic(p.BytesPerRank.Workload)
			return NewBytesPerRank(w, p.BytesPerRank.Tolerance), err
		}},
	{"rank-nic", "ar", never,
		func(p *spec.PacketsCheck) []string { return []string{p.RankNIC} },
		func(p *spec.PacketsCheck, s Sources) (evidence.Check, error) {
			w, err := s.Traffic(p.RankNIC)
			return NewRankNIC(w), err
		}},
	{"crossed", "ar", never,
		func(p *spec.PacketsCheck) []string { return []string{p.Crossed} },
		func(p *spec.PacketsCheck, s Sources) (evidence.Check, error) {
			c, err := s.Crossing(p.Crossed)
			return newCrossed(c), err
		}},
	{"rail-local", "ar", never,
		func(p *spec.PacketsCheck) []string { return []string{p.RailLocal} },
		func(p *spec.PacketsCheck, s Sources) (evidence.Check, error) {
			w, err := s.Traffic(p.RailLocal)
			return newRailLocal(w), err
		}},
	{"partial-sums", "ar", never,
		func(p *spec.PacketsCheck) []string { return []string{p.PartialSums} },
		func(p *spec.PacketsCheck, s Sources) (evidence.Check, error) {
			w, err := s.Traffic(p.PartialSums)
			return newPartialSums(w), err
		}},
	{"conservation", `"*"`, never,
		func(p *spec.PacketsCheck) []string { return []string{p.Conservation} },
		func(p *spec.PacketsCheck, s Sources) (evidence.Check, error) {
			return NewConservation(p.Conservation), nil
		}},
	{"path-spread", `{switch: "leaf*", min-share: 10%}`, never,
		func(p *spec.PacketsCheck) []string { return []string{p.PathSpread.Switch} },
		func(p *spec.PacketsCheck, _ Sources) (evidence.Check, error) {
			k := p.PathSpread
			return NewPathSpread(k.Switch, k.MinShare, SpreadOptions{Polarised: k.Polarised, Flows: k.Flows}),
				nil
		}},
	{"marks", `{at: leaf1, share: ">= 10%"}`, always,
		func(p *spec.PacketsCheck) []string { return []string{p.Marks.At, p.Marks.From, p.Marks.To} },
		func(p *spec.PacketsCheck, _ Sources) (evidence.Check, error) {
			k := p.Marks
			return newMarks(Selection{At: k.At, From: k.From, To: k.To}, evidence.Bound(k.Share,
				spec.ShareBound), evidence.Bound(k.Count, spec.CountBound)), nil
		}},
	{"drops", `{at: "leaf1:p*", reason: tail, count: ">= 1"}`, always,
		func(p *spec.PacketsCheck) []string {
			return []string{p.Drops.At, p.Drops.From, p.Drops.To, p.Drops.Reason}
		},
		func(p *spec.PacketsCheck, _ Sources) (evidence.Check, error) {
			k := p.Drops
			return newDrops(Selection{At: k.At, From: k.From, To: k.To}, k.Reason,
				evidence.Bound(k.Count, spec.CountBound)), nil
		}},
	{"lossless", "{to: h0, priority: 3}", never,
		func(p *spec.PacketsCheck) []string { return []string{p.Lossless.From, p.Lossless.To} },
		func(p *spec.PacketsCheck, _ Sources) (evidence.Check, error) {
			k := p.Lossless
			return newLossless(Selection{From: k.From, To: k.To}, priority(k.Priority)), nil
		}},
	{"trims", `{at: leaf1, count: ">= 1"}`, always,
		func(p *spec.PacketsCheck) []string { return []string{p.Trims.At, p.Trims.Workload} },
		func(p *spec.PacketsCheck, s Sources) (evidence.Check, error) {
			w, err := s.selected(p.Trims.Workload)
			return newTrims(Selection{At: p.Trims.At, Workload: w},
				evidence.Bound(cmp.Or(p.Trims.Count, ">= 1"), spec.CountBound)), err
		}},
	{"pauses", `{at: leaf1, paused: ">= 10ms"}`, always,
		func(p *spec.PacketsCheck) []string { return []string{p.Pauses.At} },
		func(p *spec.PacketsCheck, _ Sources) (evidence.Check, error) {
			k := p.Pauses
			return newPauses(Selection{At: k.At}, priority(k.Priority), evidence.Bound(k.Count,
				spec.CountBound), evidence.Bound(k.Paused, spec.DurationBound), k.Order), nil
		}},
	{"deadlock", "none", always,
		func(p *spec.PacketsCheck) []string { return []string{p.Deadlock} },
		func(p *spec.PacketsCheck, _ Sources) (evidence.Check, error) {
			return newDeadlock(p.Deadlock == "some"), nil
		}},
	{"reordering", `{share: "<= 1%"}`, never,
		func(p *spec.PacketsCheck) []string { return []string{p.Reordering.From, p.Reordering.To} },
		func(p *spec.PacketsCheck, _ Sources) (evidence.Check, error) {
			k := p.Reordering
			return newReordering(Selection{From: k.From, To: k.To}, evidence.Bound(k.Share, spec.ShareBound)),
				nil
		}},
	{"outage", `{from: h0, longest: "<= 1s"}`, always,
		func(p *spec.PacketsCheck) []string { return []string{p.Outage.From, p.Outage.To} },
		func(p *spec.PacketsCheck, _ Sources) (evidence.Check, error) {
			k := p.Outage
			return newOutage(Selection{From: k.From, To: k.To}, evidence.Bound(k.Longest,
				spec.DurationBound)), nil
		}},
	{"throughput", `{to: h0, rate: ">= 10mbit", fairness: ">= 90%"}`, always,
		func(p *spec.PacketsCheck) []string {
			return []string{p.Throughput.From, p.Throughput.To, p.Throughput.Workload}
		},
		func(p *spec.PacketsCheck, s Sources) (evidence.Check, error) {
			k := p.Throughput
			w, err := s.selected(k.Workload)
			return newThroughput(Selection{From: k.From, To: k.To, Workload: w},
				evidence.Bound(k.Rate, spec.RateBound), evidence.Bound(k.Fairness, spec.ShareBound)), err
		}},
	{"queue-depth", `{at: leaf1, max: "<= 100KB"}`, always,
		func(p *spec.PacketsCheck) []string { return []string{p.QueueDepth.At, p.QueueDepth.Workload} },
		func(p *spec.PacketsCheck, s Sources) (evidence.Check, error) {
			k := p.QueueDepth
			w, err := s.selected(k.Workload)
			return newQueueDepth(Selection{At: k.At, Workload: w}, priority(k.Priority),
				evidence.Bound(k.Max, spec.BytesBound), evidence.Bound(k.P99, spec.BytesBound)), err
		}},
	{"pacing", "{workload: ar, rate: 100mbit, tolerance: 1ms}", always,
		func(p *spec.PacketsCheck) []string { return []string{p.Pacing.Workload} },
		func(p *spec.PacketsCheck, s Sources) (evidence.Check, error) {
			k := p.Pacing
			w, err := s.Traffic(k.Workload)
			return rd.NewPacing(w, k), err
		}},
	{"roce", "{rule: icrc}", roceTimed,
		func(p *spec.PacketsCheck) []string { return []string{p.RoCE.Rule} },
		func(p *spec.PacketsCheck, _ Sources) (evidence.Check, error) {
			return roce.New(p.RoCE)
		}},
	{"that", strconv.Quote(spec.ThatRDPlaced), thatTimed,
		func(p *spec.PacketsCheck) []string { return []string{p.That} },
		func(p *spec.PacketsCheck, _ Sources) (evidence.Check, error) {
			return rd.New(p.That)
		}},
}

func always(*spec.PacketsCheck) bool { return true }

func never(*spec.PacketsCheck) bool { return false }

// roceTimed reports whether the rule is about congestion. All other rules are about numbers and
// bytes.
func roceTimed(p *spec.PacketsCheck) bool {
	return p.RoCE.Rule == spec.RoCERuleCNP || p.RoCE.Rule == spec.RoCERuleRate
}

// thatTimed reports whether the rule judges what a sender does when its timers expire.
func thatTimed(p *spec.PacketsCheck) bool { return p.That == spec.ThatRDNeeded }

// Timed reports whether the verdict of a packet check depends on faithful time.
func Timed(p *spec.PacketsCheck) bool {
	k, known := kindOf(p)
	return !known || k.timed(p)
}

// selected returns the workload whose packets a check is about. Nil means all packets.
func (s Sources) selected(name string) (*evidence.Workload, error) {
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
func New(p *spec.PacketsCheck, s Sources) (evidence.Check, error) {
	k, known := kindOf(p)
	if !known {
		return nil, fmt.Errorf("check of packets %q: nothing judges it", p.Kind())
	}
	check, err := k.make(p, s)
	if err != nil {
		return nil, err
	}
	return check, nil
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

// priority returns a queue's number, or -1 for any queue.
func priority(q *int) int {
	if q == nil {
		return -1
	}
	return *q
}
