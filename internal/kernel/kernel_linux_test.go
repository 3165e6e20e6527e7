package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"railbed/internal/verdict"
	"railbed/testkit/hosttest"
)

var _ = hosttest.MarkPackage(hosttest.AsNobody)

func TestMain(m *testing.M) { os.Exit(hosttest.MainInUserNS(m)) }

func prefix(text string) netip.Prefix { return netip.MustParsePrefix(text) }

func nlHeader(flags uint16) unix.NlMsghdr { return unix.NlMsghdr{Flags: flags} }

// pair is a veth between two namespaces, both ends up.
type pair struct {
	near, far *Namespace
	conn      *Conn // in near
}

const (
	nearIndex = 7
	farIndex  = 9
)

var nearEnd = VethEnd{Node: "near", Name: "eth0", Index: nearIndex, MAC: MAC{2, 0, 0, 0, 0, 1}, MTU: 4200,
	MaxSegments: 3}

func newPair(t *testing.T) pair {
	t.Helper()
	hosttest.Need(t, hosttest.Netns)
	var p pair
	for _, ns := range []**Namespace{&p.near, &p.far} {
		made, err := NewNamespace()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { made.Close() })
		*ns = made
	}
	conn, err := OpenIn(p.near)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	p.conn = conn
	near, far := nearEnd, VethEnd{Node: "far", Name: "p0", Index: farIndex, MAC: MAC{2, 0, 0, 0, 0, 2},
		MTU: 4200}
	near.Namespace, far.Namespace = p.near, p.far
	b := NewBatch("near", nil)
	b.AddVeth(near, far, 42)
	b.SetUp("eth0", nearIndex, true)
	b.SetUp("lo", loopbackIndex, true)
	p.do(t, b)
	return p
}

func (p pair) do(t *testing.T, b *Batch) {
	t.Helper()
	if err := p.conn.Do(b); err != nil {
		t.Fatal(err)
	}
}

// sees fails unless a program's output in the near namespace has all words.
func (p pair) sees(t *testing.T, command string, words ...string) {
	t.Helper()
	args := strings.Fields(command)
	var output []byte
	err := p.near.Do(func() (err error) {
		output, err = exec.Command(args[0], args[1:]...).CombinedOutput()
		return err
	})
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, output)
	}
	for _, word := range words {
		if !strings.Contains(string(output), word) {
			t.Errorf("%s does not say %q:\n%s", command, word, output)
		}
	}
}

func TestVethAsIpSeesIt(t *testing.T) {
	p := newPair(t)
	p.sees(t, "ip -d link show eth0", "7: eth0@if9:", "mtu 4200", "link/ether 02:00:00:00:00:01", "group 42",
		"numtxqueues 1 numrxqueues 1", "gso_max_segs 3")
	links, err := p.conn.Links(true)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(links, func(l Link) bool { return l.Name == "eth0" })
	if i < 0 {
		t.Fatalf("no eth0 among %+v", links)
	}
	got := links[i]
	if got.Index != nearIndex || got.PeerIndex != farIndex || got.Kind != "veth" || got.MTU != 4200 ||
		got.MAC != nearEnd.MAC ||
		got.Group != 42 || got.MaxSegments != 3 || !got.Up || got.Carrier {
		t.Errorf("read %+v", got)
	}
	if len(got.Inet4) < 30 || len(got.Inet6) < 30 {
		t.Errorf("read %d and %d settings of the interface", len(got.Inet4), len(got.Inet6))
	}
}

func TestAddressesRoutesAndRulesAsIpSeesThem(t *testing.T) {
	p := newPair(t)
	b := NewBatch("near", nil)
	b.AddAddress("eth0", nearIndex, prefix("10.1.0.1/31"))
	b.AddAddress("eth0", nearIndex, prefix("fd00::1/127"))
	b.AddNeighbor("eth0", Neighbor{nearIndex, netip.MustParseAddr("10.1.0.0"), MAC{2, 0, 0, 0, 0, 2}})
	b.AddNeighbor("eth0", Neighbor{nearIndex, netip.MustParseAddr("fd00::"), MAC{2, 0, 0, 0, 0, 2}})
	hop := NextHop{Via: netip.MustParseAddr("10.1.0.0"), Index: nearIndex, Dev: "eth0"}
	hop6 := NextHop{Via: netip.MustParseAddr("fd00::"), Index: nearIndex, Dev: "eth0"}
	routes := []Route{
		{Dst: prefix("10.9.0.0/16"), Src: netip.MustParseAddr("10.1.0.1"), Hops: []NextHop{hop}},
		{Dst: prefix("0.0.0.0/0"), Table: 1000, Hops: []NextHop{hop}},
		{Dst: prefix("10.8.0.0/16"), Hops: []NextHop{hop,
			{Via: hop.Via, Index: nearIndex, Dev: "eth0", Weight: 3}}},
		{Dst: prefix("fd09::/64"), Hops: []NextHop{hop6}},
		{Dst: prefix("10.7.0.0/16"), Hops: []NextHop{{Index: nearIndex, Dev: "eth0"}}},
		{Dst: prefix("10.6.0.0/16"), Hops: []NextHop{hop6}}, // IPv4 over an IPv6 gateway, RFC 5549
	}
	for _, r := range routes {
		b.AddRoute(r)
	}
	rules := []Rule{{1000, prefix("10.1.0.1/32"), 1000}, {1001, prefix("fd00::1/128"), 1000}}
	for _, r := range rules {
		b.AddRule(r)
	}
	p.do(t, b)
	p.sees(t, "ip address show eth0", "inet 10.1.0.1/31", "inet6 fd00::1/127 scope global nodad")
	p.sees(t, "ip neighbour show", "10.1.0.0 dev eth0 lladdr 02:00:00:00:00:02 PERMANENT",
		"fd00:: dev eth0 lladdr 02:00:00:00:00:02 PERMANENT")
	p.sees(t, "ip route show table all", "10.9.0.0/16 via 10.1.0.0 dev eth0 proto static src 10.1.0.1",
		"default via 10.1.0.0 dev eth0 table 1000 proto static",
		"weight 3", "10.6.0.0/16 via inet6 fd00:: dev eth0")
	p.sees(t, "ip -6 route show", "fd09::/64 via fd00:: dev eth0 proto static")
	p.sees(t, "ip rule show", "1000:	from 10.1.0.1 lookup 1000")
	p.sees(t, "ip -6 rule show", "1001:	from fd00::1 lookup 1000")

	gotRules, err := p.conn.Rules()
	if err != nil || !slices.Equal(gotRules, rules) {
		t.Errorf("read rules %v, %v, want %v", gotRules, err, rules)
	}
	gotRoutes, err := p.conn.Routes()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range routes {
		if !slices.ContainsFunc(gotRoutes, func(got Route) bool {
			for i := range got.Hops {
				got.Hops[i].Dev = "eth0"
			}
			return !got.Kernel && got.Unicast() &&
				strings.TrimSuffix(got.String(), " weight 1") == want.String()
		}) {
			t.Errorf("no route %s among %v", want, gotRoutes)
		}
	}
	neighbors, err := p.conn.Neighbors()
	if err != nil || !slices.Contains(neighbors,
		Neighbor{nearIndex, netip.MustParseAddr("fd00::"), MAC{2, 0, 0, 0, 0, 2}}) {
		t.Errorf("read neighbours %v, %v", neighbors, err)
	}
	addresses, err := p.conn.Addresses()
	if err != nil || !slices.Contains(addresses, Address{Index: nearIndex, Prefix: prefix("fd00::1/127")}) {
		t.Errorf("read addresses %v, %v", addresses, err)
	}
	b.Reset("near")
	b.DeleteRule(rules[0])
	b.DeleteAddress("eth0", nearIndex, prefix("10.1.0.1/31"))
	p.do(t, b)
	if gotRules, err = p.conn.Rules(); err != nil || !slices.Equal(gotRules, rules[1:]) {
		t.Errorf("after deleting one, rules %v, %v", gotRules, err)
	}
}

func TestTBFAsTcSeesIt(t *testing.T) {
	p := newPair(t)
	b := NewBatch("near", nil)
	b.SetTBF("eth0", nearIndex, Root, Handle(1, 0), TBF{Rate: 1e9, Burst: 25_000, Limit: 262_144})
	p.do(t, b)
	p.sees(t, "tc -raw qdisc show dev eth0", "qdisc tbf 1:", " root ", "rate 1Gbit", "burst 25000b",
		"limit 256Kb")
	want := TBF{Rate: 100e9, Burst: 1_000_000, Limit: 2_000_000}
	b.Reset("near")
	b.SetTBF("eth0", nearIndex, Root, Handle(1, 0), want)
	p.do(t, b)
	p.sees(t, "tc qdisc show dev eth0", "rate 100Gbit")
	qdiscs, err := p.conn.Qdiscs()
	if err != nil || len(qdiscs) != 1 || qdiscs[0].TBF == nil {
		t.Fatalf("read %+v, %v", qdiscs, err)
	}
	got := *qdiscs[0].TBF
	if got.Rate != want.Rate || got.Limit != want.Limit || got.Burst > want.Burst ||
		got.Burst+want.BurstResolution() < want.Burst {
		t.Errorf("read %+v, want %+v", got, want)
	}
	b.Reset("near")
	b.DeleteQdisc("eth0", nearIndex)
	p.do(t, b)
	if qdiscs, err = p.conn.Qdiscs(); err != nil || len(qdiscs) != 0 {
		t.Errorf("after deleting it, %+v, %v", qdiscs, err)
	}
}

func TestOffloadsAsEthtoolSeesThem(t *testing.T) {
	p := newPair(t)
	on, err := p.conn.OffloadsOn("eth0")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(on, "tx-udp-segmentation") || !slices.Contains(on, "tx-checksum-ip-generic") {
		t.Errorf("a new veth has on %v: this test would prove nothing", on)
	}
	_, err = exec.LookPath("ethtool")
	ethtool := err == nil
	if ethtool { // features that a new veth has off must be turned off too
		p.sees(t, "ethtool -K eth0 gro on rx-gro-list on rx-udp-gro-forwarding on")
		if on, err = p.conn.OffloadsOn("eth0"); err != nil || !slices.Contains(on, "rx-gro") ||
			!slices.Contains(on, "rx-udp-gro-forwarding") {
			t.Errorf("with GRO on: %v, %v", on, err)
		}
	}
	if err := p.conn.TurnOffloadsOff("eth0"); err != nil {
		t.Fatal(err)
	}
	if on, err = p.conn.OffloadsOn("eth0"); err != nil || len(on) > 0 {
		t.Errorf("still on: %v, %v", on, err)
	}
	if !ethtool {
		t.Skip("no ethtool to compare with")
	}
	p.sees(t, "ethtool -k eth0", "tx-checksumming: off", "tcp-segmentation-offload: off",
		"generic-segmentation-offload: off",
		"generic-receive-offload: off", "tx-udp-segmentation: off", "tx-gso-list: off", "rx-gro-list: off")
}

func TestRefusedRequestIsNamedAndTheRestDone(t *testing.T) {
	p := newPair(t)
	var traced []string
	b := NewBatch("near", func(line string) { traced = append(traced, line) })
	const requests = 500 // several system calls
	for i := range requests {
		dev, index := "eth0", nearIndex
		if i == 321 {
			dev, index = "nowhere", 4711
		}
		b.AddAddress(dev, index, netip.PrefixFrom(
			netip.AddrFrom4([4]byte{10, 2, byte(i / 250), byte(i%250 + 1)}), 32))
	}
	err := p.conn.Do(b)
	var refused *RequestError
	if !errors.As(err, &refused) || !errors.Is(err, unix.ENODEV) ||
		refused.Line != "ip -n near address replace 10.2.1.72/32 dev nowhere" {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(fmt.Sprint(err), "apply \"ip -n near address") {
		t.Errorf("the error does not say what was refused: %v", err)
	}
	if len(traced) != requests || traced[0] != "ip -n near address replace 10.2.0.1/32 dev eth0" {
		t.Errorf("traced %d lines, the first %q", len(traced), traced[0])
	}
	addresses, err := p.conn.Addresses()
	if err != nil || len(addresses) < requests-1 {
		t.Errorf("%d addresses, %v", len(addresses), err)
	}
	if IgnoreMissing(refused) == nil {
		t.Error("a single error is not a batch's and must be kept")
	}
}

func TestKernelsOwnWordsAreInTheError(t *testing.T) {
	p := newPair(t)
	b := NewBatch("near", nil)
	b.AddRoute(Route{Dst: prefix("10.9.0.0/16"),
		Hops: []NextHop{{Via: netip.MustParseAddr("192.0.2.1"), Index: nearIndex, Dev: "eth0"}}})
	err := p.conn.Do(b)
	if err == nil || !strings.Contains(err.Error(), "Nexthop has invalid gateway") {
		t.Errorf("got %v", err)
	}
}

func TestDeleteGroupTakesThePeersToo(t *testing.T) {
	p := newPair(t)
	b := NewBatch("near", nil)
	b.AddBridge("br0", 11, 43)
	b.DeleteGroup(42)
	p.do(t, b)
	links, err := p.conn.Links(false)
	if err != nil || len(links) != 2 { // lo and the bridge of the other group
		t.Errorf("left: %+v, %v", links, err)
	}
	far, err := OpenIn(p.far)
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	if links, err = far.Links(false); err != nil || len(links) != 1 {
		t.Errorf("left at the far side: %+v, %v", links, err)
	}
	b.Reset("near")
	b.DeleteGroup(42)
	if err := p.conn.Do(b); !errors.Is(err, unix.ENODEV) || IgnoreMissing(err) != nil {
		t.Errorf("deleting nothing: %v", err)
	}
}

// TestRemediesOfSysctls: what helps depends on why the kernel refuses a setting.
func TestRemediesOfSysctls(t *testing.T) {
	const algorithm = "net/ipv4/tcp_congestion_control"
	for _, c := range []struct {
		path, value string
		err         error
		want        string
	}{
		{algorithm, "cubic", unix.EPERM,
			`allow it on the host: sysctl -w net.ipv4.tcp_allowed_congestion_control="reno cubic"`},
		{algorithm, "bbr", unix.ENOENT,
			"load its module on the host, modprobe tcp_bbr, and allow it there: sysctl"},
		{"net/core/rmem_max", "1", unix.EACCES, "the host has one value for all network namespaces"},
		{"net/ipv4/nonsense", "1", unix.ENOENT, "want a setting below net that this kernel has, with a " +
			"value as sysctl net.ipv4.nonsense prints it"},
	} {
		refused := Sysctl{Path: c.path, Value: c.value, Asked: true}.refused(fmt.Errorf("set it: %w", c.err))
		if refused == nil || !strings.Contains(refused.Error(), c.want) || !errors.Is(refused,
			verdict.ErrUnsupported) {
			t.Errorf("%s to %s: %v, want %q", c.path, c.value, refused, c.want)
		}
	}
	for _, c := range []struct {
		got, want string
		same      bool
	}{{"1", "01", true}, {"16", "0x10", true}, {"1", "2", false}, {"reno", "reno", true}, {"1", "one",
		false}} {
		if sameValue(c.got, c.want) != c.same {
			t.Errorf("%s for %s", c.got, c.want)
		}
	}
}

func TestSysctls(t *testing.T) {
	p := newPair(t)
	good := []Sysctl{
		{Path: "net/ipv4/ip_forward", Value: "1"},
		{Path: "net/ipv4/tcp_rmem", Value: "4096 131072 6291456"}, // the kernel prints tabs
		{Path: "net/ipv6/conf/default/accept_dad", Value: "0"},
		{Path: "net/ipv4/no_such_setting", Value: "1", Optional: true},
	}
	if err := p.near.Do(func() error { return SetSysctls(good) }); err != nil {
		t.Error(err)
	}
	p.sees(t, "cat /proc/sys/net/ipv4/ip_forward", "1")
	if err := p.near.Do(func() error { return CheckSysctls(good) }); err != nil {
		t.Error(err)
	}
	good[0].Value = "0"
	if err := p.near.Do(func() error {
		return CheckSysctls(good)
	}); err == nil || err.Error() != "sysctl net/ipv4/ip_forward: kernel has 1, want 0" {
		t.Errorf("got %v", err)
	}
	for _, bad := range []Sysctl{{Path: "net/ipv4/no_such_setting", Value: "1"},
		{Path: "net/ipv4/ip_forward", Value: "x"}} {
		if err := p.near.Do(func() error { return SetSysctls([]Sysctl{bad}) }); err == nil {
			t.Errorf("%+v was set", bad)
		}
	}
}

func TestEachVisitsAllAndComesHome(t *testing.T) {
	hosttest.Need(t, hosttest.Netns)
	namespaces := make([]*Namespace, 20)
	want := make([]string, len(namespaces))
	for i := range namespaces {
		ns, err := NewNamespace()
		if err != nil {
			t.Fatal(err)
		}
		defer ns.Close()
		namespaces[i] = ns
		want[i], _ = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", ns.Fd()))
	}
	got := make([]string, len(namespaces))
	err := Each(context.Background(), namespaces, 3, func(i int) (err error) {
		got[i], err = os.Readlink("/proc/thread-self/ns/net")
		return err
	})
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("visited %v, %v, want %v", got, err, want)
	}
	failure := errors.New("no")
	ctx, cancel := context.WithCancel(context.Background())
	calls := 0
	if err := Each(ctx, namespaces, 1, func(int) error {
		calls++
		return failure
	}); !errors.Is(err, failure) || calls != 1 {
		t.Errorf("%d calls, %v", calls, err)
	}
	cancel()
	if err := Each(ctx, namespaces, 2, func(int) error {
		calls++
		return nil
	}); !errors.Is(err, context.Canceled) || calls != 1 {
		t.Errorf("%d calls after the context ended, %v", calls, err)
	}
}

func TestProbes(t *testing.T) {
	hosttest.Need(t, hosttest.Netns)
	if err := ProbeTBF(); err != nil {
		t.Errorf("tbf: %v", err)
	}
	if err := CheckClock(); err != nil {
		t.Error(err)
	}
	err := ProbeNetem()
	t.Logf("netem: %v", err)
	if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EOPNOTSUPP) {
		t.Errorf("netem is neither there nor unknown to the kernel: %v", err)
	}
}

func TestInAUserNamespace(t *testing.T) {
	if hosttest.InUserNS(t) {
		TestVethAsIpSeesIt(t)
		TestAddressesRoutesAndRulesAsIpSeesThem(t)
		TestTBFAsTcSeesIt(t)
		TestOffloadsAsEthtoolSeesThem(t)
		TestDeleteGroupTakesThePeersToo(t)
		TestSysctls(t)
	}
}

// TestNamespaceBesideClose: a goroutine that enters a namespace while it is closed enters it or
// fails. It never enters a different namespace that was opened under the same number.
func TestNamespaceBesideClose(t *testing.T) {
	p := newPair(t)
	var home string
	look := func(where *string) func() error {
		return func() (err error) {
			*where, err = os.Readlink("/proc/thread-self/ns/net")
			return err
		}
	}
	if err := p.near.Do(look(&home)); err != nil {
		t.Fatal(err)
	}
	copyOf := func(ns *Namespace) *Namespace {
		file, err := ns.Dup()
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		made, err := NamespaceOf(file)
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	for round := range 200 {
		ns := copyOf(p.near)
		entered, visited := make(chan struct{}), make(chan error)
		for range 2 {
			go func() {
				var here string
				err := ns.Do(look(&here))
				entered <- struct{}{}
				for err == nil && here == home {
					err = ns.Do(look(&here))
				}
				if err == nil {
					err = fmt.Errorf("entered %s, want %s", here, home)
				} else if errors.Is(err, errClosed) {
					err = nil
				}
				visited <- err
			}()
		}
		<-entered
		<-entered
		if err := ns.Close(); err != nil {
			t.Fatal(err)
		}
		var others []*Namespace
		for range 3 {
			others = append(others, copyOf(p.far))
		}
		err := errors.Join(<-visited, <-visited)
		for _, other := range others {
			other.Close()
		}
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
}

// The kernel refuses a queueing discipline and a link of kinds that do not exist in its own words.
func TestUnknownKindsAreRefused(t *testing.T) {
	if !hosttest.InUserNS(t) {
		return
	}
	line := func() string { return "" }
	err := Try(func(b *Batch) {
		b.beginQdisc(unix.RTM_NEWQDISC, unix.NLM_F_CREATE, loopbackIndex, Root, Handle(1, 0), line)
		b.attrString(unix.TCA_KIND, "railbed")
		b.end()
	})
	if err == nil || !strings.Contains(err.Error(), "qdisc kind is unknown") {
		t.Errorf("qdisc: %v", err)
	}
	err = Try(func(b *Batch) {
		b.begin(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, line)
		b.ifinfo(0, 0, 0)
		b.linkInfo("railbed", func() {})
		b.end()
	})
	if err == nil || !strings.Contains(err.Error(), "nknown device type") {
		t.Errorf("link: %v", err)
	}
}
