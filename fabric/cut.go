package fabric

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"railbed/internal/kernel"
	"railbed/internal/units"
	"railbed/internal/verdict"
	"railbed/plan"
)

// cutHandle names the queue of a cut direction; the shaping has other handles.
var cutHandle = kernel.Handle(9, 0)

// SetDirectionState cuts or restores one direction of a link. Packets sent into a cut direction are
// lost, and so are packets queued for it. As with one broken fibre of a pair, both ends keep their
// carrier, so neither detects the cut. Both cuts or restores both directions. Unlike SetLinkState,
// it leaves the carrier on.
func (f *Fabric) SetDirectionState(_ context.Context, name string, dir Direction, up bool) error {
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.soft != nil {
		return f.setSoftDirection(name, dir, up)
	}
	l, err := f.find(name)
	if err != nil {
		return err
	}
	if up && l.down {
		return fmt.Errorf("set direction of link %s: the whole link is down; bring it up without a direction",
			name)
	}
	for _, atA := range dir.sides() {
		if err := f.setCut(l, atA, !up); err != nil {
			return fmt.Errorf("set link %s %s: %w", name, word(atA), err)
		}
	}
	return nil
}

// isCut reports whether SetDirectionState has cut the direction in which this end sends.
func (l *planLink) isCut(atA bool) bool {
	if atA {
		return l.cutAToB
	}
	return l.cutBToA
}

func (l *planLink) mark(atA, cut bool) {
	if atA {
		l.cutAToB = cut
	} else {
		l.cutBToA = cut
	}
}

// withCuts returns a direction as it is passed to soft switches: a cut direction loses every
// packet.
func (l *planLink) withCuts(atA bool) plan.Direction {
	d := l.Direction(atA)
	if l.isCut(atA) {
		d.Loss = units.Ratio{Num: 1, Den: 1}
	}
	return d
}

// setSoftDirection is SetDirectionState for soft switches.
func (f *Fabric) setSoftDirection(name string, dir Direction, up bool) error {
	l, err := f.soft.find(name)
	if err != nil {
		return err
	}
	if up && l.down {
		return fmt.Errorf("set direction of link %s: the whole link is down; bring it up without a direction",
			name)
	}
	changed := *l
	for _, atA := range dir.sides() {
		changed.mark(atA, !up)
	}
	if err := f.soft.process.SetLink(name, changed.withCuts(true), changed.withCuts(false)); err != nil {
		return fmt.Errorf("set link %s: %w", name, err)
	}
	*l = changed
	return nil
}

// makeWhole requests that a cut direction is restored, even if the kernel refuses it now.
func (f *Fabric) makeWhole(l *planLink, atA bool) error {
	if f.soft != nil {
		dir := BToA
		if atA {
			dir = AToB
		}
		return f.setSoftDirection(l.Name, dir, true)
	}
	err := f.setCut(l, atA, false)
	l.mark(atA, false)
	return err
}

// setCut replaces the shaping at one end by a queue that drops everything, or restores the shaping.
func (f *Fabric) setCut(l *planLink, atA, cut bool) error {
	if l.isCut(atA) == cut {
		return nil
	}
	h, p := l.end(atA)
	conn, err := kernel.OpenIn(h.ns)
	if err != nil {
		return err
	}
	defer conn.Close()
	batch := kernel.NewBatch(h.name, f.options.Trace)
	if want := f.shaping(l, atA); cut {
		batch.SetBlackhole(p.Name, p.index, cutHandle)
	} else if want.Rate == 0 && !want.NeedsNetem() {
		batch.DeleteQdisc(p.Name, p.index)
	} else {
		want.Apply(batch, p.Name, p.index, nil) // its handles differ, so it replaces the other queue
	}
	err = conn.Do(batch)
	if cut && errors.Is(err, syscall.ENOENT) {
		return &verdict.UnsupportedError{
			Feature: "one-way link state", Reason: fmt.Sprintf("tc qdisc add ... blackhole: %v", err),
			Remedy: "take the whole link down, or use a soft switch (kind: soft)",
		}
	}
	if err != nil {
		return err
	}
	l.mark(atA, cut)
	qdiscs, err := conn.Qdiscs()
	if err != nil {
		return err
	}
	return errors.Join(f.compareQueues(l, atA, queuesOf(qdiscs, p.index))...)
}

// cutAnew cuts a port's sending direction, whatever its queueing disciplines are.
func cutAnew(b *kernel.Batch, p port, qdiscs []kernel.Qdisc) {
	deleteQueues(b, p, qdiscs)
	b.SetBlackhole(p.Name, p.index, cutHandle)
}

func queuesOf(qdiscs []kernel.Qdisc, index int) []kernel.Qdisc {
	return slices.DeleteFunc(slices.Clone(qdiscs), func(q kernel.Qdisc) bool { return q.Index != index })
}

// compareQueues lists the differences between the queueing disciplines of one end and the requested
// ones.
func (f *Fabric) compareQueues(l *planLink, atA bool, have []kernel.Qdisc) []error {
	if h, _ := l.end(atA); h.guest || l.harmed(atA).ready {
		have = withoutIngress(have)
	}
	if !l.isCut(atA) {
		return f.shaping(l, atA).Compare(have)
	}
	if len(have) == 1 && have[0].Kind == kernel.BlackholeKind && have[0].Handle == cutHandle &&
		have[0].Parent == kernel.Root {
		return nil
	}
	var kinds []string
	for _, q := range have {
		kinds = append(kinds, q.Kind)
	}
	return []error{fmt.Errorf("kernel has the queues %v, want only %s", kinds, kernel.BlackholeKind)}
}

// queueStats returns the counters of the queue at one end. In a cut direction they count since the
// cut.
func (f *Fabric) queueStats(l *planLink, atA bool, have []kernel.Qdisc) kernel.QdiscStats {
	if l.isCut(atA) && len(have) == 1 {
		return have[0].Stats
	}
	return f.shaping(l, atA).Stats(have)
}
