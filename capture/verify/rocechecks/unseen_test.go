package rocechecks

import (
	"fmt"
	"strings"
	"testing"

	"railbed/capture/verify/evidence"
	"railbed/capture/verify/fabricchecks"
	"railbed/internal/infiniband"
	"railbed/internal/verdict"
	"railbed/plan/spec"
	"railbed/testkit/plantest"
	"railbed/testkit/verifytest"
)

// Packets that a node's kernel lost before the tap of its NIC are no violations of the node, and not more
// than that.
func TestRoCELostBeforeTheNIC(t *testing.T) {
	const nicQueue = "the kernel of h0 dropped 2 packets before the tap of h0:eth0: nic-queue; raise " +
		"nodes.h0.nic-queue, which is 256KiB"
	gaps := func(q *verifytest.QP) {
		for range 2 {
			q.PSN++
			q.Next(infiniband.WriteOnly, 8)
		}
	}
	leaps := func(q *verifytest.QP) {
		for range 4 {
			q.Next(infiniband.WriteOnly, 8)
		}
		q.NAK(q.PSN.Add(-4))
		q.Ask(infiniband.WriteOnly, q.PSN.Add(-3), 8) // and not the first missing one
		q.Ask(infiniband.WriteOnly, q.PSN.Add(-1), 8)
	}
	unanswered := func(q *verifytest.QP) {
		q.Next(infiniband.WriteOnly, 8)
		q.Next(infiniband.WriteOnly, 8)
		q.Now += 1e9
	}
	for _, c := range []struct {
		rule    string
		at      string
		run     func(*verifytest.QP)
		dropped uint64
		want    verdict.Verdict
		says    string
	}{
		{spec.RoCERulePSN, "h0:eth0", gaps, 0, fail, "2 times PSNs were left out between requests"},
		{spec.RoCERulePSN, "h0:eth0", gaps, 1, fail,
			"1 packet was lost before the tap of h0:eth0, and at least 2 are missing"},
		{spec.RoCERulePSN, "h0:eth0", gaps, 2, unclear, nicQueue},
		{spec.RoCERulePSN, "h2:eth0", gaps, 2, fail, "2 times PSNs were left out between requests"},
		{spec.RoCERuleGoBack, "h0:eth0", leaps, 0, fail, "left out of a retransmission"},
		{spec.RoCERuleGoBack, "h0:eth0", leaps, 1, fail, "left out of a retransmission"},
		{spec.RoCERuleGoBack, "h0:eth0", leaps, 2, unclear, nicQueue},
		{spec.RoCERuleAcks, "h2:eth0", unanswered, 0, fail,
			"2 requests asked for an acknowledgement and got none"},
		{spec.RoCERuleAcks, "h2:eth0", unanswered, 1, unclear, "raise nodes.h2.nic-queue"},
		{spec.RoCERuleAcks, "h0:eth0", unanswered, 2, fail, "got none"},
	} {
		t.Run(fmt.Sprintf("%s %d at %s", c.rule, c.dropped, c.at), func(t *testing.T) {
			q := verifytest.NewQP(t, 4)
			q.Plan = plantest.Compile(t, strings.Replace(verifytest.ClusterFile, "topology:",
				"switch: {kind: soft}\n  topology:", 1))
			q.Healthy()
			c.run(q)
			q.Queues[c.at] = c.dropped
			results, _ := q.Run(rules(t, c.rule)...)
			verifytest.Wants(t, results[0], c.want, c.says)
		})
	}
}

// Before the tap of a NIC at a kernel switch, faults and the link itself drop packets.
func TestRoCELostOnAKernelLink(t *testing.T) {
	for _, c := range []struct {
		link    string
		lost    func(*verifytest.QP)
		want    verdict.Verdict
		because string
	}{
		{"", func(q *verifytest.QP) { q.Queues["h0:eth0"] = 1 }, unclear,
			"before the tap of h0:eth0: the queue of link h0--leaf1; raise its queue, which is "},
		{", loss: 1%", func(q *verifytest.QP) { q.Queues["h0:eth0"] = 1 }, unclear,
			"the queue and the loss of link h0--leaf1"},
		{"", func(q *verifytest.QP) { q.Harm = map[string]evidence.Harm{"h0:eth0": {Dropped: 1}} }, unclear,
			"faults dropped 1 packet before the tap of h0:eth0"},
		{"", func(q *verifytest.QP) { q.Harm = map[string]evidence.Harm{"leaf1:p0": {Dropped: 1}} }, fail,
			"PSNs were left out between requests"},
	} {
		q := verifytest.NewQP(t, 4)
		q.Plan = plantest.Compile(t, strings.NewReplacer("topology:", "switch: {kind: router}\n  topology:",
			"mtu: 1500", "mtu: 1500"+c.link).Replace(verifytest.ClusterFile))
		q.Healthy()
		q.PSN++
		q.Next(infiniband.WriteOnly, 8)
		c.lost(q)
		results, _ := q.Run(rules(t, spec.RoCERulePSN)...)
		verifytest.Wants(t, results[0], c.want, c.because)
	}
}

// The summary counts what its details count.
func TestRoCEGapsAddUp(t *testing.T) {
	q := verifytest.NewQP(t, 4)
	q.Healthy()
	q.Ask(infiniband.ReadRequest, q.PSN.Add(3), 0, verifytest.Length(10))
	q.Ask(infiniband.ReadRequest, q.PSN, 0, verifytest.Length(600)) // three PSNs
	q.Ask(infiniband.ReadRequest, q.PSN.Add(3), 0, verifytest.Length(10))
	q.PSN = q.PSN.Add(6)
	q.Next(infiniband.WriteOnly, 8)
	results, _ := q.Run(rules(t, spec.RoCERulePSN, spec.RoCERuleGoBack)...)
	verifytest.Wants(t, results[0], fail, "; 5 PSNs were left out in 2 gaps, and 3 of them left later")
	verifytest.Wants(t, results[0], fail, "2 times PSNs were left out between requests")
	verifytest.Wants(t, results[1], pass,
		"5 of 20 requests were sent again, 1 of them not seen before, in")
}

// unseen sums up Request.Unseen.
type unseen struct {
	*Requests
	sum int
}

func (u *unseen) Begin(*evidence.Capture) {}

func (u *unseen) Packet(p *evidence.Packet) {
	if at, known := u.Place(p); known {
		u.sum += at.Unseen
	}
}

func (u *unseen) Result() evidence.Result { return evidence.Result{} }

// A READ that was left out and comes later makes up for all of its PSNs.
func TestRequestsUnseen(t *testing.T) {
	q := verifytest.NewQP(t, 4)
	q.Healthy()
	q.Ask(infiniband.WriteOnly, q.PSN.Add(4), 8)
	u := &unseen{Requests: NewRequests()}
	if q.Run(u); u.sum != 4 {
		t.Errorf("%d PSNs were not seen, want 4", u.sum)
	}
	q.Ask(infiniband.ReadRequest, q.PSN, 0, verifytest.Length(600)) // three PSNs
	u = &unseen{Requests: NewRequests()}
	if q.Run(u); u.sum != 1 {
		t.Errorf("%d PSNs were not seen, want 1", u.sum)
	}
}

// A check of drops at NICs of soft switches names what their nodes' kernels dropped, and does not count it.
func TestDropsBeforeTheNIC(t *testing.T) {
	q := verifytest.NewQP(t, 4)
	q.Plan = plantest.Compile(t, strings.Replace(verifytest.ClusterFile, "topology:",
		"switch: {kind: soft}\n  topology:", 1))
	q.Healthy()
	q.Queues["h0:eth0"] = 2
	results, _ := q.Run(fabricchecks.NewDrops(&spec.DropsCheck{At: "h0"}))
	const says = "the kernel of h0 dropped 2 packets before the tap of h0:eth0: nic-queue"
	if r := results[0]; !strings.Contains(strings.Join(r.Details, "\n"), says) || r.Measured["dropped"] > 1 {
		t.Errorf("%+v, want %q", r, says)
	}
}
