package fabric

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"railbed/internal/kernel"
	"railbed/plan"
)

// Repair describes one difference between the plan and the running testbed. Fabric.Repair has
// removed it.
type Repair struct {
	// Where is a node, a switch, a port of one as "node:port", or a link, with or without a
	// direction.
	Where string `json:"where"`
	// What is the found and the wanted state, in Verify's words but in the past tense.
	What string `json:"what"`
}

// repairRounds limits how often Repair checks and fixes. A difference hidden by another one appears
// in the next check. So does a difference that a fix causes, such as the routes lost when an
// interface is set down. No chain of these is longer than three.
const repairRounds = 6

// Repair restores the state that the plan requests, including later changes by SetLink and
// SetLinkState. It changes only what differs: addresses, routes, rules, neighbours, queueing
// disciplines, settings, offloads, names and states of interfaces. It removes unrequested objects
// of the kinds that the plan owns. It recreates a link whose ends are missing, with everything
// attached to it. The link's counters then start at 0, and a recording of its packets ends.
//
// Repair returns the differences of a first check that are now repaired. The error, if any, joins
// the differences that Verify would report afterwards.
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
	first, err := f.compareAll(ctx)
	if err != nil {
		return nil, err
	}
	now, before := first, ""
	var failures error
	for range repairRounds {
		text := differing(now)
		if text == before {
			break // no difference, or none that the last round could fix
		}
		before = text
		if failures, err = f.mend(ctx, now); err != nil {
			return nil, err
		}
		if now, err = f.compareAll(ctx); err != nil {
			return nil, err
		}
	}
	remaining := f.await(ctx, now)
	if remaining == nil {
		failures = nil // of a fix that another fix made unnecessary
	}
	return repaired(first, now), errors.Join(remaining, failures)
}

// differing returns the texts of all differences.
func differing(found []*differences) string {
	var text strings.Builder
	for _, d := range found {
		for _, difference := range d.found {
			text.WriteString(difference.err.Error() + "\n")
		}
	}
	return text.String()
}

// repaired returns the differences that no longer exist.
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
				repairs = append(repairs, Repair{Where: difference.where,
					What: strings.Replace(text, "kernel has", "kernel had", 1)})
			}
		}
	}
	return repairs
}

// await waits for carriers if there are no other differences, and returns the remaining
// differences.
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

// mend applies all fixes, in their order. Failures are from single fixes, which do not stop the
// others; err is an error of mending itself.
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
	return errors.Join(append([]error{rebuilt}, failed...)...), nil
}

// apply applies the fixes of one namespace in some passes. The calling thread is in the namespace.
func (f *Fabric) apply(h *host, d *differences, from, to pass) error {
	conn, err := kernel.Open()
	if err != nil {
		return err
	}
	defer conn.Close()
	m := &repairer{node: h.name, conn: conn, batch: kernel.NewBatch(h.name, f.options.Trace)}
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

// rebuild recreates links without the objects attached to them: the next check finds these missing.
func (f *Fabric) rebuild(links []int) error {
	if len(links) == 0 {
		return nil
	}
	var errs []error
	for _, i := range links {
		for _, atA := range []bool{true, false} { // the kernel deletes the other end, too
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
	if err := doIn(f.hosts[0], batch); err != nil || f.soft == nil {
		return errors.Join(append(errs, err)...)
	}
	for _, i := range links {
		errs = append(errs, f.rejoin(f.links[i]))
	}
	return errors.Join(errs...)
}

func doIn(h *host, batch *kernel.Batch) error {
	conn, err := kernel.OpenIn(h.ns)
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.Do(batch)
}

// Converge sets the links to the plan's settings, undoing SetLink and SetLinkState, and then does
// what Repair does. The plan equals the plan that the fabric was built from, or differs from it
// only in the directions of links.
//
// Converge checks what this host cannot do before it changes anything; in that case both results
// are nil. Changed lists the links whose requested settings differed; repaired is the result of
// Repair. Trace is as in Options.
func (f *Fabric) Converge(ctx context.Context, p *plan.Plan, trace func(line string)) (changed,
	repaired []Repair, err error) {
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
	if f.soft != nil { // a damaged end of a node's link has no effect on these
		repaired, err = f.repair(ctx)
		changed, refused := f.changeAll(ctx, p)
		return changed, repaired, errors.Join(err, refused)
	}
	changed, _ = f.changeAll(ctx, p) // the repair makes changes that the kernel refuses now
	repaired, err = f.repair(ctx)
	return changed, repaired, err
}

// asked returns all links in their requested state.
func (f *Fabric) asked() (links []*planLink, named map[string]*planLink) {
	if f.soft != nil {
		return f.soft.links, f.soft.named
	}
	return f.links, f.named
}

// permit refuses a plan's settings that its links cannot have.
func (f *Fabric) permit(ctx context.Context, p *plan.Plan) error {
	if !f.built {
		return errors.New("converge fabric: it is closed")
	}
	links, named := f.asked()
	if len(p.Links) != len(links) {
		return fmt.Errorf("converge fabric: the plan has %d links, the fabric %d", len(p.Links), len(links))
	}
	for i := range p.Links {
		l, known := named[p.Links[i].Name]
		if !known {
			return fmt.Errorf("converge fabric: the fabric has no link %s", p.Links[i].Name)
		}
		for _, atA := range []bool{true, false} {
			if want := p.Links[i].Direction(atA); !l.Direction(atA).Equal(want) {
				if err := f.permitDirection(ctx, l, atA, want); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// permitDirection refuses settings that one direction of a link cannot have. For a soft switch's
// link the kernel only has the shaper at the node.
func (f *Fabric) permitDirection(ctx context.Context, l *planLink, atA bool, want plan.Direction) error {
	if f.soft != nil {
		side, joined := f.named[l.Name]
		if !joined {
			return nil
		}
		if h, _ := side.end(atA); !h.node {
			return nil
		}
		l, want = side, nodeSide(want, f.soft.dilation())
	}
	if err := f.burst(ctx, shape{want.Rate, l.MTU}, l.Name); err != nil {
		return err
	}
	trial := *l
	trial.set(atA, want)
	return f.check(&trial, atA)
}

// changeAll requests the planned states and settings of links. It returns the links whose requested
// state differed. A change that soft switches refuse is not made. A change that the kernel refuses
// remains requested.
func (f *Fabric) changeAll(ctx context.Context, p *plan.Plan) (changed []Repair, refused error) {
	_, named := f.asked()
	changed = []Repair{}
	tell := func(change Repair, err error) {
		if err == nil || f.soft == nil {
			changed = append(changed, change)
		}
		refused = errors.Join(refused, err)
	}
	for i := range p.Links {
		want := &p.Links[i]
		l := named[want.Name]
		was := l.Link
		both := f.soft != nil && !was.AToB.Equal(want.AToB) && !was.BToA.Equal(want.BToA)
		var err error
		if both { // both at once: one of the two changes alone may need more headroom
			err = f.setSoftLinks(ctx, l, Both, want.AToB, want.BToA)
		}
		for _, atA := range []bool{true, false} {
			was, now := was.Direction(atA), want.Direction(atA)
			if was.Equal(now) {
				continue
			}
			if !both {
				err = f.changeDirection(ctx, l, atA, now)
			}
			what := fmt.Sprintf("change %s %s: it had %s", l.Name, word(atA), plan.WantedOf(was, now))
			tell(Repair{Where: l.Name + " " + word(atA), What: what}, err)
		}
		for _, atA := range Both.sides() {
			if l.isCut(atA) && !l.isDown() { // otherwise it is restored with the whole link
				what := fmt.Sprintf("set %s %s up: it was down", l.Name, word(atA))
				tell(Repair{Where: l.Name + " " + word(atA), What: what}, f.makeWhole(l, atA))
			}
		}
		if l.down {
			tell(Repair{Where: l.Name, What: fmt.Sprintf("set %s up: it was down", l.Name)},
				f.changeState(ctx, l))
		}
	}
	return changed, refused
}

func (f *Fabric) changeDirection(ctx context.Context, l *planLink, atA bool, now plan.Direction) error {
	if f.soft == nil {
		was := f.shaping(l, atA)
		l.set(atA, now)
		return f.reshape(l, atA, was)
	}
	dir := BToA
	if atA {
		dir = AToB
	}
	return f.setSoftLink(ctx, l.Name, dir, now)
}

func (f *Fabric) changeState(ctx context.Context, l *planLink) error {
	if f.soft == nil {
		err := f.setState(ctx, l, true)
		l.cutAToB, l.cutBToA = false, false // even if the kernel refuses it now
		return err
	}
	return f.setSoftState(ctx, l.Name, true)
}
