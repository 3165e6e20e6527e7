package fabric

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"runtime"
	"slices"
	"sync"
	"time"

	"railbed/fabric/kernelswitch"
	"railbed/fabric/link"
	"railbed/internal/kernel"
	"railbed/plan"
)

// Build makes the kernel configuration of the plan and reads it back. It also starts the plan's soft
// switches. ns maps the name of each node and switch to its namespace. Build returns when every link
// has its carrier. The namespaces remain the caller's and must outlive the Fabric.
//
// Before it changes anything, Build checks for features that the plan needs and this host lacks,
// and measures whether the host reaches the rates. If a later step fails or ctx ends, Build removes
// what it created.
func Build(ctx context.Context, p *plan.Plan, ns map[string]*kernel.Namespace, o Options) (*Fabric, error) {
	f, err := prepare(kernelSide(p), firstIndex, ns, o)
	if err != nil {
		return nil, err
	}
	if err := f.calibrate(ctx); err != nil {
		return nil, err
	}
	f.setResolved(p)
	err = f.construct(ctx)
	if err == nil && p.Soft() {
		err = f.startSoft(ctx, p)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// prepare checks the plan and the host and changes nothing.
func prepare(p *plan.Plan, first int, ns map[string]*kernel.Namespace, o Options) (*Fabric, error) {
	hosts, err := newHosts(p, first, ns)
	if err != nil {
		return nil, err
	}
	f := &Fabric{options: serialised(o), hosts: hosts, first: first, bursts: map[shape]link.Entry{},
		named: map[string]*planLink{}, reboots: map[string]*reboot{}}
	byName := map[string]*host{}
	for _, h := range hosts {
		byName[h.name] = h
	}
	var errs []error
	for _, l := range p.Links {
		made := &planLink{Link: l, a: byName[l.A.Node], b: byName[l.B.Node], seed: p.Seed}
		made.harmedA.ready = slices.Contains(p.Harmed, l.A)
		made.harmedB.ready = slices.Contains(p.Harmed, l.B)
		f.links = append(f.links, made)
		f.named[l.Name] = made
		for _, atA := range []bool{true, false} {
			if err := f.check(made, atA); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return f, errors.Join(errs...)
}

// serialised wraps the callbacks so that they are called one at a time.
func serialised(o Options) Options {
	var lock sync.Mutex
	if trace := o.Trace; trace != nil {
		o.Trace = func(line string) {
			lock.Lock()
			defer lock.Unlock()
			trace(line)
		}
	}
	if o.Parallel == 0 {
		o.Parallel = min(runtime.NumCPU(), 4)
	}
	return o
}

// check refuses a direction that no kernel, or not this one, supports.
func (f *Fabric) check(l *planLink, atA bool) error {
	shaping := f.shaping(l, atA)
	if err := errors.Join(shaping.Check(), link.CheckHost(shaping.Direction)); err != nil {
		return fmt.Errorf("shape %s %s: %w", l.Name, word(atA), err)
	}
	return nil
}

func word(atA bool) string {
	if atA {
		return plan.AToB
	}
	return plan.BToA
}

// shaping returns the shaping of the packets that the link's end A, or B, sends.
func (f *Fabric) shaping(l *planLink, atA bool) link.Shaping {
	direction := l.BToA
	if atA {
		direction = l.AToB
	}
	seed := fnv.New64a()
	fmt.Fprintf(seed, "%d %s %s", l.seed, l.Name, word(atA)) // a hash never fails to write
	return link.Shaping{Direction: direction, MTU: l.MTU, Burst: f.bursts[shape{direction.Rate, l.MTU}].Burst,
		Seed: seed.Sum64(), Single: l.harmed(atA).ready}
}

// calibrate finds the burst of every shape in the plan.
func (f *Fabric) calibrate(ctx context.Context) error {
	var shapes []shape
	first := map[shape]string{}
	for _, l := range f.links {
		for _, atA := range []bool{true, false} {
			s := shape{f.shaping(l, atA).Rate, l.MTU}
			if _, seen := first[s]; !seen && s.rate > 0 {
				first[s] = l.Name + " " + word(atA)
				shapes = append(shapes, s)
			}
		}
	}
	for _, s := range shapes {
		if err := f.burst(ctx, s, first[s]); err != nil {
			return err
		}
	}
	return nil
}

// burst finds the burst of one shape; where names the link in errors.
func (f *Fabric) burst(ctx context.Context, s shape, where string) error {
	if _, known := f.bursts[s]; known || s.rate == 0 {
		return nil
	}
	if f.softSide() != nil { // soft switches keep the rate, shapers only hold back the sockets of nodes
		f.bursts[s] = link.Entry{Burst: softBurst(s)}
		return nil
	}
	if f.options.Calibration == nil {
		calibration, err := link.LoadCalibration("")
		if err != nil {
			return err
		}
		f.options.Calibration = calibration
	}
	entry, err := f.options.Calibration.Burst(ctx, s.rate, s.mtu)
	if err != nil {
		return fmt.Errorf("shape %s: %w", where, err)
	}
	f.bursts[s] = entry
	return nil
}

// construct changes the kernel. First come the settings that new interfaces copy, then all links,
// and then each namespace's configuration of its ends.
func (f *Fabric) construct(ctx context.Context) error {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.built = true
	progress := f.progress(3*len(f.hosts) + len(f.links))
	if err := f.each(ctx, f.hosts, func(h *host) error {
		return f.setSysctls(h, h.early())
	}, progress); err != nil {
		return err
	}
	if err := f.makeLinks(ctx, progress); err != nil {
		return err
	}
	// One thread: almost all of this step holds the kernel's one configuration lock. A second
	// thread would only spend CPU time on waiting for it (a tenth of the build's). With the other
	// steps on two threads instead of one, 256 nodes are built in a tenth less time and closed in a
	// third less.
	if err := f.eachOn(ctx, 1, f.hosts, f.configure, progress); err != nil {
		return err
	}
	if err := f.resolve(); err != nil {
		return err
	}
	return f.each(ctx, f.hosts, func(h *host) error { return f.settle(ctx, h) }, progress)
}

// progress counts steps and reports them to the caller.
func (f *Fabric) progress(total int) func(steps int) {
	if f.options.Progress == nil {
		return func(int) {}
	}
	var lock sync.Mutex
	done := 0
	return func(steps int) {
		lock.Lock()
		defer lock.Unlock()
		done += steps
		f.options.Progress(done, total)
	}
}

// each runs fn for hosts, on threads inside their namespaces.
func (f *Fabric) each(ctx context.Context, hosts []*host, fn func(*host) error,
	progress func(steps int)) error {
	return f.eachOn(ctx, f.options.Parallel, hosts, fn, progress)
}

func (f *Fabric) eachOn(ctx context.Context, threads int, hosts []*host, fn func(*host) error,
	progress func(steps int)) error {
	namespaces := make([]*kernel.Namespace, len(hosts))
	for i, h := range hosts {
		namespaces[i] = h.ns
	}
	return kernel.Each(ctx, namespaces, threads, func(i int) error {
		if err := fn(hosts[i]); err != nil {
			return fmt.Errorf("%s: %w", hosts[i].name, err)
		}
		progress(1)
		return nil
	})
}

func (f *Fabric) setSysctls(h *host, sysctls []kernel.Sysctl) error {
	if f.options.Trace != nil {
		for _, s := range sysctls {
			f.options.Trace(s.Line(h.name))
		}
	}
	return kernel.SetSysctls(sysctls)
}

// linksPerBatch is how many links are created between two checks of ctx.
const linksPerBatch = 64

// makeLinks creates all veth pairs over one socket: a request names the namespaces of both ends.
func (f *Fabric) makeLinks(ctx context.Context, progress func(steps int)) error {
	if len(f.links) == 0 {
		return nil
	}
	conn, err := kernel.OpenIn(f.hosts[0].ns)
	if err != nil {
		return err
	}
	defer conn.Close()
	batch := kernel.NewBatch(f.hosts[0].name, f.options.Trace)
	for chunk := range slices.Chunk(f.links, linksPerBatch) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		batch.Reset(f.hosts[0].name)
		for _, l := range chunk {
			batch.AddVeth(f.vethEnd(l, true), f.vethEnd(l, false), linkGroup)
		}
		if err := conn.Do(batch); err != nil {
			return err
		}
		progress(len(chunk))
	}
	return nil
}

func (f *Fabric) vethEnd(l *planLink, atA bool) kernel.VethEnd {
	h, p := l.end(atA)
	return kernel.VethEnd{
		Namespace: h.ns, Node: h.name, Name: p.Name, Index: p.index, MAC: kernel.MAC(p.MAC), MTU: p.MTU,
		MaxSegments: f.shaping(l, atA).MaxSegments(),
	}
}

// configure sets up everything in one namespace. The calling thread is in it.
func (f *Fabric) configure(h *host) error {
	conn, err := kernel.Open()
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, p := range h.ports { // while they are down the kernel has less to rearrange
		if f.options.Trace != nil {
			f.options.Trace(kernel.OffloadsOffLine(h.name, p.Name))
		}
		if err := conn.TurnOffloadsOff(p.Name); err != nil {
			return err
		}
	}
	if err := conn.Do(f.requests(h)); err != nil {
		return err
	}
	if err := f.setSysctls(h, h.late()); err != nil {
		return err
	}
	return f.addRDMA(h)
}

// requests returns all requests for one namespace once its links exist.
func (f *Fabric) requests(h *host) *kernel.Batch {
	batch := kernel.NewBatch(h.name, f.options.Trace)
	batch.SetUp("lo", loopbackIndex, true)
	for _, a := range h.loopbacks {
		batch.AddAddress("lo", a.Index, a.Prefix)
	}
	if h.bridge {
		batch.AddBridge(kernelswitch.BridgeName, bridgeIndex, linkGroup)
		batch.SetUp(kernelswitch.BridgeName, bridgeIndex, true)
	}
	for _, p := range h.ports {
		f.shaping(f.links[p.link], p.atA).Apply(batch, p.Name, p.index, nil)
		if f.links[p.link].harmed(p.atA).ready {
			batch.AddClsact(p.Name, p.index)
		}
		h.portUp(batch, p)
	}
	for _, r := range h.routes { // after all addresses and ports: gateways must be reachable
		batch.AddRoute(r)
	}
	for _, r := range h.rules {
		batch.AddRule(r)
	}
	return batch
}

// portUp sets a port up with its addresses and neighbours.
func (h *host) portUp(batch *kernel.Batch, p port) {
	if h.bridge {
		batch.SetMasterUp(p.Name, p.index, bridgeIndex, kernelswitch.BridgeName)
	} else {
		batch.SetUp(p.Name, p.index, true)
	}
	for _, prefix := range p.Addrs {
		batch.AddAddress(p.Name, p.index, prefix)
	}
	for _, n := range p.Neighbors {
		batch.AddNeighbor(p.Name, kernel.Neighbor{Index: p.index, Addr: n.Addr, MAC: kernel.MAC(n.MAC)})
	}
	for _, r := range h.resolutions(p) {
		batch.SetResolution(p.Name, r)
	}
}

// carrierPatience limits the wait for carriers. The kernel reports them from a work queue, as a
// rule at once, at worst within a second. It takes longer while the kernel still removes earlier
// namespaces: a thousand of them take 4 s.
const carrierPatience = 15 * time.Second

// settle waits until the host's links have their carrier, and compares everything on the host with
// the plan. The calling thread is in the host's namespace.
func (f *Fabric) settle(ctx context.Context, h *host) error {
	return settleBy(ctx, func() (*differences, error) { return f.compare(h, false) })
}

// settleBy compares until there is nothing left to wait for.
func settleBy(ctx context.Context, compare func() (*differences, error)) error {
	deadline := time.Now().Add(carrierPatience)
	for {
		found, err := compare()
		if err != nil {
			return err
		}
		if err := found.errors(); err != nil || !found.waiting {
			return err
		}
		if time.Now().After(deadline) {
			return found.carrierErrors()
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Millisecond):
		}
	}
}

// Close removes what Build created: links with everything attached to them, bridges, rules and
// loopback addresses. Settings of the namespaces stay. It deletes links explicitly, and all links
// of a namespace in one request; when namespaces end with their links, the kernel takes many times
// longer. A second Close does nothing.
func (f *Fabric) Close() error {
	f.lock.Lock()
	defer f.lock.Unlock()
	if !f.built {
		return nil
	}
	f.built = false
	f.closeFaults()
	f.closeReboots()
	resolved := f.resolvers.close()
	if f.soft != nil { // before its ports disappear
		if err := f.soft.process.Close(); err != nil {
			return errors.Join(resolved, err, f.clearAll())
		}
	}
	return errors.Join(resolved, f.clearAll())
}

// clearAll empties all namespaces.
func (f *Fabric) clearAll() error {
	ctx := context.Background() // cleaning up must not be interrupted
	nobody := func(int) {}
	// Switches first: in most plans all links end with their ends.
	byPorts := slices.SortedStableFunc(slices.Values(f.hosts), func(a, b *host) int {
		return len(b.ports) - len(a.ports)
	})
	return f.each(ctx, byPorts, f.clear, nobody)
}

// clear empties one namespace. The calling thread is in it.
func (f *Fabric) clear(h *host) error {
	conn, err := kernel.Open()
	if err != nil {
		return err
	}
	defer conn.Close()
	batch := kernel.NewBatch(h.name, f.options.Trace)
	batch.DeleteGroup(linkGroup)
	for _, r := range h.rules {
		batch.DeleteRule(r)
	}
	for _, a := range h.loopbacks {
		batch.DeleteAddress("lo", a.Index, a.Prefix)
	}
	return kernel.IgnoreMissing(conn.Do(batch))
}
