package kernel

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// BlackholeKind is the Qdisc.Kind of a queue that SetBlackhole made.
const BlackholeKind = "blackhole"

// SetBlackhole replaces an interface's root queueing discipline by a discipline that drops every
// packet without an error to the sender. The interface keeps its carrier. Queued packets are lost.
// The discipline is part of the packet scheduler itself (net/sched/sch_blackhole.c), not a module.
func (b *Batch) SetBlackhole(dev string, index int, handle QdiscHandle) {
	b.beginQdisc(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, index, Root, handle, func() string {
		return fmt.Sprintf("tc -n %s qdisc replace dev %s root handle %s blackhole", b.node, dev, handle)
	})
	b.attrString(unix.TCA_KIND, BlackholeKind)
	b.end()
}
