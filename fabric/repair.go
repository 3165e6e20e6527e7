package fabric

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"railbed/fabric/kernel"
	"railbed/testbed/plan"
)

// Repair is one thing that was not as asked for, and is again.
type Repair struct {
	// Where is a node or switch, a port of it as "node:port", or a link,
	// with or without a direction.
	Where string `json:"where"`
	// What was there and is wanted, as Verify says it but in the past.
	What string `json:"what"`
}

// repairRounds bounds how often Repair looks and mends: what one difference
// hides is seen in the next look, and what a fix breaks, as setting an interface
// down takes its routes away. No chain of these is longer than three.
const repairRounds = 6

// Repair puts back what differs from the plan, as SetLink and SetLinkState have
// changed it since, and touches nothing else: addresses, routes, rules,
// neighbours, queueing disciplines, settings, offloads, names and states of
// interfaces. Of the kinds that the plan owns it takes away what nobody asked
// for. A link whose ends are not there is made anew, with all that hangs on it;
// so its counters begin at 0, and what recorded its packets records no more.
//
// It returns what a first look found and is as asked for now. The error, if
// any, joins what Verify would say after it.
func (f *Fabric) Repair(ctx context.Context) ([]Repair, error) {
	f.lock.Lock()
	defer f.lock.Unlock()
	return f.repair(ctx)
}

// repair needs the lock.
func (f *Fabric) repair(ctx context.Context) ([]Repair, error) {
	if !f.built {
		return nil, errors.New("repair fabric: it is closed")
	}
	first, err := f.look(ctx)
	if err != nil {
		return nil, err
	}
	now, before := first, ""
	var failures error
	for range repairRounds {
		text := differing(now)
		if text == before {
			break // none, or none that the last round could undo
		}
		before = text
		if failures, err = f.mend(ctx, now); err != nil {
			return nil, err
		}
		if now, err = f.look(ctx); err != nil {
			return nil, err
		}
	}
	remaining := f.await(ctx, now)
	if remaining == nil {
		failures = nil // of a fix that another one's made needless
	}
	return repaired(first, now), errors.Join(remaining, failures)
}

// differing are the texts of all differences.
func differing(found []*differences) string {
	var text strings.Builder
	for _, d := range found {
		for _, difference := range d.found {
			text.WriteString(difference.err.Error() + "\n")
		}
	}
	return text.String()
}

// repaired are the differences that are no more.
func repaired(first, now []*differences) []Repair {
	left := map[string]bool{}
	for line := range strings.Lines(differing(now)) {
		left[line] = true
	}
	repairs := []Repair{}
	for _, d := range first {
		for _, difference := range d.found {
			text := difference.err.Error()
			if !left[text+"\n"] {
				repairs = append(repairs, Repair{Where: difference.where, What: strings.Replace(text, "kernel has", "kernel had", 1)})
			}
		}
	}
	return repairs
}

// await waits for carriers where nothing else is amiss, and returns what is.
func (f *Fabric) await(ctx context.Context, found []*differences) error {
	var errs []error
	for i, d := range found {
		err := d.errors()
		if err == nil && d.waiting {
			err = f.each(ctx, f.hosts[i:i+1], func(h *host) error { return f.settle(ctx, h) }, func(int) {})
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// mend does all fixes, in their order. Failures are of single fixes, which stop
// no other; err is of mending itself.
func (f *Fabric) mend(ctx context.Context, found []*differences) (failures, err error) {
	position := map[*host]int{}
	var damaged []*host
	var broken []int
	for i, d := range found {
		broken = append(broken, d.broken...)
		if len(d.found) > 0 {
			position[f.hosts[i]] = i
			damaged = append(damaged, f.hosts[i])
		}
	}
	failed := make([]error, len(found))
	do := func(from, to pass) error {
		return f.each(ctx, damaged, func(h *host) error {
			i := position[h]
			failed[i] = errors.Join(failed[i], f.apply(h, found[i], from, to))
			return nil
		}, func(int) {})
	}
	if err := do(passSettings, passClear); err != nil {
		return nil, err
	}
	slices.Sort(broken)
	rebuilt := f.rebuild(slices.Compact(broken))
	if err := do(passName, passAddress); err != nil {
		return nil, err
	}
	if err := do(passRoute, passRoute); err != nil {
		return nil, err
	}
	return errors.Join(append(failed, rebuilt)...), nil
}

// apply does the fixes of one namespace and of some passes. The calling thread
// is in the namespace.
func (f *Fabric) apply(h *host, d *differences, from, to pass) error {
	conn, err := kernel.Open()
	if err != nil {
		return err
	}
	defer conn.Close()
	m := &mender{node: h.name, conn: conn, batch: kernel.NewBatch(h.name, f.options.Trace)}
	var errs []error
	for at := from; at <= to; at++ {
		for _, difference := range d.found {
			for _, fix := range difference.fixes {
				if fix.pass == at {
					errs = append(errs, fix.do(m))
				}
			}
		}
		errs = append(errs, m.send())
	}
	return errors.Join(errs...)
}

// rebuild makes links anew, without what hangs on them: the next look finds
// that missing.
func (f *Fabric) rebuild(links []int) error {
	if len(links) == 0 {
		return nil
	}
	var errs []error
	for _, i := range links {
		for _, atA := range []bool{true, false} { // with the first end the other one goes, wherever it is
			h, p := f.links[i].end(atA)
			batch := kernel.NewBatch(h.name, f.options.Trace)
			batch.DeleteLink(p.Name, p.index)
			errs = append(errs, kernel.IgnoreMissing(doIn(h, batch)))
		}
	}
	batch := kernel.NewBatch(f.hosts[0].name, f.options.Trace)
	for _, i := range links {
		l := f.links[i]
		batch.AddVeth(f.vethEnd(l, true), f.vethEnd(l, false), linkGroup)
	}
	return errors.Join(append(errs, doIn(f.hosts[0], batch))...)
}

func doIn(h *host, batch *kernel.Batch) error {
	conn, err := kernel.OpenIn(h.ns)
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.Do(batch)
}

// Converge makes the plan's links what is asked for, undoing SetLink and
// SetLinkState, and then does what Repair does. The plan is the one that the
// fabric was built from, or differs from it in the directions of links alone.
//
// What this host cannot do is found out before anything is changed; then both
// results are nil. Changed are the links that were asked for otherwise, repaired
// is what Repair returns. Trace is as in Options.
func (f *Fabric) Converge(ctx context.Context, p *plan.Plan, trace func(line string)) (changed, repaired []Repair, err error) {
	f.lock.Lock()
	defer f.lock.Unlock()
	always := f.options.Trace
	defer func() { f.options.Trace = always }()
	if trace != nil {
		f.options.Trace = serialised(Options{Trace: trace}).Trace
	}
	if err := f.permit(ctx, p); err != nil {
		return nil, nil, err
	}
	changed = []Repair{}
	for i := range p.Links {
		changed = append(changed, f.change(ctx, &p.Links[i])...)
	}
	repaired, err = f.repair(ctx)
	return changed, repaired, err
}

// permit refuses what the links of a plan cannot be.
func (f *Fabric) permit(ctx context.Context, p *plan.Plan) error {
	if len(p.Links) != len(f.links) {
		return fmt.Errorf("converge fabric: the plan has %d links, the fabric %d", len(p.Links), len(f.links))
	}
	for i := range p.Links {
		want := &p.Links[i]
		l, err := f.find(want.Name)
		if err != nil {
			return err
		}
		trial := *l
		for _, atA := range []bool{true, false} {
			direction := want.Direction(atA)
			if l.Direction(atA).Equal(direction) {
				continue
			}
			if err := f.burst(ctx, shape{direction.Rate, l.MTU}, l.Name); err != nil {
				return err
			}
			trial.set(atA, direction)
			if err := f.check(&trial, atA); err != nil {
				return err
			}
		}
	}
	return nil
}

// change asks for a link's planned state and settings. What the kernel refuses
// now, because the link is damaged, Repair does again.
func (f *Fabric) change(ctx context.Context, want *plan.Link) []Repair {
	var changed []Repair
	l := f.named[want.Name]
	for _, atA := range []bool{true, false} {
		was, now := l.Direction(atA), want.Direction(atA)
		if was.Equal(now) {
			continue
		}
		shaped := f.shaping(l, atA)
		l.set(atA, now)
		_ = f.reshape(l, atA, shaped)
		changed = append(changed, Repair{Where: l.Name + " " + word(atA), What: fmt.Sprintf("change %s %s: it had %s", l.Name, word(atA), was.Changes(now))})
	}
	if l.down {
		_ = f.setState(ctx, l, true)
		changed = append(changed, Repair{Where: l.Name, What: fmt.Sprintf("set %s up: it was down", l.Name)})
	}
	return changed
}
