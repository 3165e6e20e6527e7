package kernel

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// BlackholeKind is what Qdisc.Kind says of a queue that SetBlackhole made.
const BlackholeKind = "blackhole"

// SetBlackhole replaces an interface's root queueing discipline by one that drops
// every packet and tells the sender nothing: the interface keeps its carrier,
// and what was queued is gone. It is part of the packet scheduler itself
// (net/sched/sch_blackhole.c), not a module.
func (b *Batch) SetBlackhole(dev string, index int, handle QdiscHandle) {
	b.beginQdisc(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, index, Root, handle, func() string {
		return fmt.Sprintf("tc -n %s qdisc replace dev %s root handle %s blackhole", b.node, dev, handle)
	})
	b.attrString(unix.TCA_KIND, BlackholeKind)
	b.end()
}
