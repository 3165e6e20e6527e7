package verify

import (
	"math"
	"slices"

	"railbed/capture/report"
	"railbed/capture/verify/evidence"
	"railbed/plan"
	"railbed/plan/spec"
)

// asked has the effects for which the steps of a file ask. The emulator is not responsible for them.
type asked struct {
	file    *spec.Testbed
	altered *plan.Alterations
	// acts are the changes that steps of the run made, with their times. Without times a change excepts its
	// links for the whole recording.
	acts  []report.Act
	timed bool
}

// Except takes from the rates what the steps of a file asked for. A capture does not record changes of links'
// settings.
func (k *Fidelity) Except(file *spec.Testbed, p *plan.Plan) {
	k.asked.file, k.asked.altered = file, p.AlteredBy(file)
}

// ExceptDuring limits exceptions to the times in which the steps of a run changed links. Without a file each
// such change is one of the rate.
func (k *Fidelity) ExceptDuring(acts []report.Act) { k.asked.acts, k.asked.timed = acts, true }

// changesRate reports whether steps set another rate of a link at times that are not known.
func (k *Fidelity) changesRate(link string) bool {
	return k.asked.file != nil && !k.asked.timed && k.asked.file.ChangesRate(link)
}

// changesArrivals reports whether steps change arrivals at a port at times that are not known: by settings of
// the link, or by copies of the packets of other links.
func (k *Fidelity) changesArrivals(link string, to plan.End) bool {
	a := k.asked.altered
	return a != nil && (a.CopiesTo(to) || !k.asked.timed && a.Changes(link))
}

// excepted returns the times in which steps changed what a meter counts.
func (k *Fidelity) excepted(tap *evidence.Tap, d evidence.Direction) (times []evidence.Active) {
	rate := k.asked.file == nil || k.asked.file.ChangesRate(tap.Link)
	if !rate && d == evidence.Out {
		return nil // other settings act behind the port
	}
	for _, act := range k.asked.acts {
		if act.Kind != report.SetKind || !slices.Contains(act.Links, tap.Link) {
			continue
		}
		one := evidence.Active{From: act.From.UnixNano(), To: math.MaxInt64 - int64(RateInterval)}
		if !act.To.IsZero() {
			one.To = act.To.UnixNano()
		}
		times = append(times, one)
	}
	return times
}

// faultsAt reports whether faults hit packets at the port that sends to another tap, and whether arrivals at
// the tap then show no rate. They show none if the capture lacks some of these packets, or if the clocks of
// the two taps differ.
func (k *Fidelity) faultsAt(from plan.End, sender, receiver *evidence.Tap) (hit, unknown bool) {
	a := k.asked.altered
	seen := k.hits.at[from.Name()]
	hastens := a != nil && a.HastenedAt(from)
	recorded := !k.hits.unmatched && k.capture.RecordsHits(sender) &&
		!k.capture.ClocksDiffer(sender, receiver)
	return seen || a != nil && a.FaultAt(from), (seen || hastens) && !recorded
}

// hits are the packets that faults hit at NICs in front of soft switches. They count when their port sends
// them, at the records of the faults, and not when they or their copies arrive.
type hits struct {
	at      map[string]bool // ports at which faults hit packets
	arrives [2]map[arrival]bool
	// unmatched reports whether a record has no id by which its packet is found when it arrives.
	unmatched bool
}

// arrival is the arrival of a packet at a tap.
type arrival struct {
	id  uint64
	tap int
}

// hitsKept is the number of hits after which the older half is forgotten.
const hitsKept = 1 << 17

func newHits() hits {
	return hits{at: map[string]bool{}, arrives: [2]map[arrival]bool{{}, {}}}
}

// has reports whether a fault hit a packet that arrives at a tap.
func (h *hits) has(id uint64, tap *evidence.Tap) bool {
	if len(h.at) == 0 {
		return false
	}
	key := arrival{id, tap.Index}
	return h.arrives[0][key] || h.arrives[1][key]
}

// hit counts a packet at the record of a fault.
func (k *Fidelity) hit(p *evidence.Packet) {
	k.hits.at[p.Tap.Name] = true
	port, nic := k.capture.Interface(p.Tap.Node, p.Tap.Port)
	if port == nil || !nic {
		return // the port's own records are in front of its faults
	}
	if !p.Numbered() {
		k.hits.unmatched = true
		return
	}
	node, name := spec.SplitPort(port.Peer)
	far := k.capture.Tap(node, name)
	if far == nil || k.hits.has(p.ID, far) {
		return // another fault hit it before
	}
	k.at(far, evidence.In).add(p)
	if len(k.hits.arrives[0]) >= hitsKept/2 {
		k.hits.arrives = [2]map[arrival]bool{{}, k.hits.arrives[0]}
	}
	k.hits.arrives[0][arrival{p.ID, far.Index}] = true
}
