package interop

import (
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"railbed/fabric"
	"railbed/plan"
	"railbed/testbed"
	"railbed/testbed/supervisor"
	"railbed/testkit/plantest"
)

// fabricText: two NICs for rdma_rxe, so that it can be tried against itself, behind
// one of which the link is bad.
const fabricText = `
name: roce-interop
seed: 5
fabric:
  topology: explicit
  switch: {kind: soft}
  hosts: [rxe, ours]
  switches: {s: {}}
  connect: ["rxe:eth0 -- s", "rxe:eth1 -- s", "ours -- s"]
  links: {default: {rate: 1gbit, delay: 20us, mtu: 4200}}
nodes:
  rxe: {runtime: vm, nics: 2, rdma: rxe, modules: [sch_ingress, cls_u32, act_gact]}
`

// prepare configures the guest so that rdma_rxe can be tested against itself. Kernels before 7.1
// have rdma_rxe only in the first network namespace, so both NICs are in it. Each address is local
// only for packets that arrive through its NIC. Otherwise the two NICs would communicate without
// the fabric.
//
// prepare also keeps packets shorter than a BTH from rdma_rxe, because they would crash the guest.
// rxe_rcv (rxe_recv.c, at least up to Linux 6.1) releases the queue pair of a dropped packet before
// it has looked up that queue pair.
const prepare = `set -e
i=0
for n in eth0 eth1; do
	sysctl -q -w net.ipv4.conf.$n.rp_filter=0 net.ipv4.conf.$n.accept_local=1
	tc qdisc add dev $n clsact
	for v in "-4 ip 22" "-6 ipv6 42"; do
		set -- $v
		a=$(ip $1 -o addr show dev $n scope global | awk '{sub("/.*", "", $4); print $4}')
		ip $1 rule add pref 1$i iif $n lookup 10$i
		ip $1 route add local $a dev $n table 10$i
		ip $1 route del local $a dev $n table local
		for length in "0 0xfff0" "16 0xfffc"; do # of UDP: below 16, below 20
			tc filter add dev $n ingress protocol $2 u32 match u16 4791 0xffff at $3 match u16 $length at $(($3 + 2)) action drop
		done
	done
	i=$((i + 1))
done
sysctl -q -w net.ipv4.conf.all.rp_filter=0`

// run is a testbed with an end on rdma_rxe and one of ours.
type run struct {
	*testing.T
	tb        *testbed.Testbed
	rxe, ours *peer
	number    int // of connections
	booted    int // lines of the guest's kernel log before the first one
	link      *plan.Link
	retries   int                // of queue pairs, 0 for all that there are
	spoil     func(*end, *order) // where it is set, changes orders before they are given
}

func (r *run) guest(script string) string {
	r.Helper()
	out, err := r.tb.Node("rxe").Command(r.Context(), "sh", "-c", script).CombinedOutput()
	if err != nil {
		r.Fatalf("%s: %v\n%s", script, err, out)
	}
	return string(out)
}

func newRun(t *testing.T) *run {
	t.Helper()
	tb, err := testbed.Up(t.Context(), plantest.Compile(t, fabricText), testbed.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tb.Close(); err != nil {
			t.Error(err)
		}
	})
	r := &run{T: t, tb: tb, link: &tb.Plan().Links[0]}
	r.guest(prepare)
	program, err := os.ReadFile("testdata/peer.py")
	if err != nil {
		t.Fatal(err)
	}
	r.rxe = start(t, tb.Node("rxe").Command(t.Context(), "/usr/bin/python3", "-c", string(program)))
	r.booted = len(r.log(0))
	r.ours = start(t, tb.Node("ours").Part(t.Context(), ownPart))
	return r
}

// addr is the address of a NIC; the plan has that of IPv4 first.
func (r *run) addr(node string, nic, family int) netip.Addr {
	return r.tb.Plan().Node(node).NICs[nic].Addrs[slices.Index(families, family)].Addr()
}

// impair sets what the link does, both ways.
func (r *run) impair(i impairment) {
	r.Helper()
	there, back := r.link.AToB, r.link.BToA
	i.set(&there)
	i.set(&back)
	r.setLink(there, back)
}

func (r *run) setLink(there, back plan.Direction) {
	r.Helper()
	if err := r.tb.ChangeLink(r.Context(),
		supervisor.LinkRequest{Where: r.link.Name, Set: &there, Back: &back}); err != nil {
		r.Fatal(err)
	}
}

// passed counts what the link to the guest did: packets sent, both ways, and packets
// that it lost, doubled or corrupted.
func (r *run) passed() (sent, met uint64) {
	r.Helper()
	state, err := r.tb.Inspect(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	for _, l := range state.Links {
		if l.Name != r.link.Name {
			continue
		}
		for _, end := range []fabric.EndState{l.A, l.B} {
			sent += end.Soft.Counters.Sent.Packets
			met += end.Soft.Drops.Total() + end.Soft.Counters.Corrupted + end.Soft.Counters.Duplicated
		}
	}
	return sent, met
}

// settle waits until nothing is under way any more: what comes when its queue pair is
// gone rdma_rxe does not count.
func (r *run) settle() {
	r.Helper()
	for before, now := uint64(0), uint64(1); before != now; {
		before, _ = r.passed()
		time.Sleep(time.Duration(10 * held))
		now, _ = r.passed()
	}
}

// log is the guest's kernel log from a line on.
func (r *run) log(from int) []string {
	lines := strings.Split(strings.TrimSpace(r.guest("dmesg")), "\n")
	return lines[min(from, len(lines)):]
}
