package fabric

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"railbed/fabric/softswitch"
	"railbed/fabric/softswitch/live"
	"railbed/internal/feed"
	"railbed/internal/kernel"
	"railbed/internal/verdict"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/testkit/hosttest"
	"railbed/testkit/hosttest/vmtest"
	"railbed/testkit/plantest"
)

// TestKernelFaults harms packets at kernel links, bridges and routers, in a guest whose kernel has BPF.
func TestKernelFaults(t *testing.T) {
	hosttest.Long(t)
	hosttest.Need(t, hosttest.Root) // an ordinary user's guest would be the same one again
	if !vmtest.InGuest(t, vmtest.Options{Modules: []string{"veth", "bridge", "sch_tbf", "sch_ingress",
		"cls_bpf"}, CPUs: 2, Timeout: 5 * time.Minute}) {
		return
	}
	harmKernels(t)
}

// TestKernelFaultsHere is TestKernelFaults with this kernel, which is newer than the guest's, if it lets us
// load programs.
func TestKernelFaultsHere(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Testbed)
	r := buildHarmed(t, "router")
	err := r.AddFault(context.Background(), r.plan, spec.Fault{Name: "f", Where: "h0", Drop: &spec.Pick{}})
	if errors.Is(err, verdict.ErrUnsupported) {
		t.Skip(err)
	}
	r.clear(t)
	harmKernels(t)
}

func harmKernels(t *testing.T) {
	for _, kind := range []string{"router", "bridge"} {
		t.Run(kind, func(t *testing.T) {
			r := buildHarmed(t, kind)
			t.Run("datagrams", r.datagrams)
			t.Run("end", r.ends)
			t.Run("connection", r.connection)
			t.Run("repair", r.repairs)
			t.Run("recordings", r.recordings)
		})
	}
}

type harmedRig struct {
	*Fabric
	plan *plan.Plan
	ns   map[string]*kernel.Namespace
}

func buildHarmed(t *testing.T, kind string) *harmedRig {
	t.Helper()
	p := plantest.Compile(t, "name: t\nfabric: {topology: single-switch, params: {hosts: 2}, "+
		"switch: {kind: "+kind+"}}\n")
	for i := range p.Links { // as fast as the guest can
		p.Links[i].AToB.Rate, p.Links[i].BToA.Rate = 0, 0
	}
	f, ns := build(t, p)
	return &harmedRig{f, p, ns}
}

// add begins a fault.
func (r *harmedRig) add(t *testing.T, text string) {
	t.Helper()
	f, err := spec.ParseFault("test", text)
	if err == nil {
		err = r.AddFault(context.Background(), r.plan, f)
	}
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// clear ends all faults, and checks that they leave nothing behind.
func (r *harmedRig) clear(t *testing.T) []softswitch.FaultState {
	t.Helper()
	ended, err := r.ClearFaults()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Verify(context.Background()); err != nil {
		t.Error(err)
	}
	return ended
}

// arrived sends numbered datagrams from h0 to h1, and returns the numbers that arrive.
func (r *harmedRig) arrived(t *testing.T, count int) (numbers []int) {
	t.Helper()
	for _, a := range datagrams(t, r.ns["h0"], r.ns["h1"], addrs(r.plan, "h1")[0],
		load{count: count, length: 100, gap: 2 * time.Millisecond}) {
		numbers = append(numbers, a.number)
	}
	return numbers
}

func (r *harmedRig) datagrams(t *testing.T) {
	for _, test := range []struct {
		faults       []string
		want         []int
		matched, hit []uint64
	}{
		{[]string{"{name: f, where: 'h0:eth0', match: udp, drop: {nth: [2, 5]}}"}, []int{0, 2, 3, 5, 6, 7},
			[]uint64{8}, []uint64{2}},
		{[]string{"{name: f, where: h1--leaf1 b-to-a, match: udp, drop: {every: 3}}"},
			[]int{0, 1, 3, 4, 6, 7},
			[]uint64{8}, []uint64{2}},
		{[]string{"{name: f, where: 'h0:eth0', match: udp, duplicate: {nth: [3]}}"},
			[]int{0, 1, 2, 2, 3, 4, 5, 6, 7},
			[]uint64{8}, []uint64{1}},
		{[]string{"{name: f, where: h1--leaf1 b-to-a, match: udp, duplicate: {nth: [8]}}"},
			[]int{0, 1, 2, 3, 4, 5, 6, 7, 7}, []uint64{8}, []uint64{1}},
		{[]string{"{name: f, where: h1--leaf1 b-to-a, match: udp, corrupt: {at: 80B, nth: [4]}}"},
			[]int{0, 1, 2, 4, 5, 6, 7}, []uint64{8}, []uint64{1}},
		{[]string{"{name: f, where: 'h0:eth0', match: udp, truncate: {to: 60B, nth: [1]}}"},
			[]int{1, 2, 3, 4, 5, 6, 7},
			[]uint64{8}, []uint64{1}},
		{[]string{"{name: f, partition: [[h0], [h1]]}"}, nil, []uint64{8}, []uint64{8}},
		// The second fault does not count what the first one drops, nor the copy.
		{[]string{"{name: f, where: 'h0:eth0', match: udp, drop: {nth: [1, 2]}}",
			"{name: g, where: 'h0:eth0', match: udp, duplicate: {nth: [1]}}",
			"{name: h, where: 'h0:eth0', match: udp, drop: {nth: [2]}}"}, []int{2, 2, 4, 5, 6, 7},
			[]uint64{8, 6, 6}, []uint64{2, 1, 1}},
	} {
		for _, text := range test.faults {
			r.add(t, text)
		}
		if err := r.Verify(context.Background()); err != nil {
			t.Errorf("%q: %v", test.faults, err)
		}
		got := r.arrived(t, 8)
		if !slices.Equal(got, test.want) {
			t.Errorf("%q: %v arrived, want %v", test.faults, got, test.want)
		}
		states, err := r.KernelFaults()
		if err != nil {
			t.Fatal(err)
		}
		if ended := r.clear(t); len(ended) != len(states) {
			t.Errorf("%q: cleared %+v", test.faults, ended)
		}
		for i, s := range states {
			if s.Matched != test.matched[i] || s.Hit != test.hit[i] || s.Over || s.Joined+s.Refused > 0 {
				t.Errorf("%q: %+v, want %d matched, %d hit", test.faults, s, test.matched[i], test.hit[i])
			}
		}
		if got := r.arrived(t, 4); len(got) != 4 {
			t.Errorf("%q: after it %v arrived", test.faults, got)
		}
	}
}

// ends: a fault ends by itself.
func (r *harmedRig) ends(t *testing.T) {
	r.add(t, "{name: f, where: 'h0:eth0', match: udp, drop: {}, for: 1ms}")
	var states []softswitch.FaultState
	hosttest.Until(t, "the end of a fault", func() bool {
		var err error
		if states, err = r.KernelFaults(); err != nil {
			t.Fatal(err)
		}
		return states[0].Over
	})
	if got := r.arrived(t, 4); len(got) != 4 {
		t.Errorf("%v arrived after the fault's time, %+v", got, states)
	}
	// A fault that is over begins again, and another fault of its name does not begin.
	r.add(t, "{name: g, where: 'h0:eth0', match: udp, drop: {nth: [1]}, for: 1m}")
	other := spec.Fault{Name: "g", Where: "h0:eth0", Match: "udp", Drop: &spec.Pick{}}
	if err := r.AddFault(context.Background(), r.plan, other); err == nil {
		t.Error("two faults have one name")
	}
	r.add(t, "{name: f, where: 'h0:eth0', match: udp, drop: {}, for: 1ms}")
	r.clear(t)
}

// connection: a TCP connection gets over dropped and corrupted segments, and each segment is a packet of its
// own for the fault.
func (r *harmedRig) connection(t *testing.T) {
	r.add(t, "{name: f, where: 'h0:eth0', match: tcp.len > 0, drop: {nth: [3, 20]}}")
	r.add(t, "{name: g, where: 'h1--leaf1 b-to-a', match: tcp.len > 0, corrupt: {at: 200B, nth: [30]}}")
	// The NIC's kernel computes the checksum after the fault, which must not repair it.
	r.add(t, "{name: h, where: 'h0:eth0', match: tcp.len > 0, corrupt: {at: 301B, nth: [40]}}")
	r.add(t, "{name: i, where: 'h0:eth0', match: tcp.len > 0, corrupt: {nth: [60]}}")
	sent := bytes.Repeat([]byte("0123456789abcdef"), 20_000)
	if got := exchange(t, r.ns["h0"], r.ns["h1"], addrs(r.plan, "h1")[0], sent); !bytes.Equal(got, sent) {
		t.Errorf("%d bytes arrived, want the %d that were sent", len(got), len(sent))
	}
	for _, s := range r.clear(t) {
		if s.Matched < 200 || s.Hit == 0 || s.Joined > 0 {
			t.Errorf("%+v", s)
		}
	}
}

// exchange sends bytes over a TCP connection, and returns what arrives.
func exchange(t *testing.T, from, to *kernel.Namespace, address netip.Addr, data []byte) []byte {
	t.Helper()
	var listener net.Listener
	err := to.Do(func() (err error) {
		listener, err = net.Listen("tcp", netip.AddrPortFrom(address, 0).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	arrived := make(chan []byte, 1)
	go func() {
		defer close(arrived)
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		all, _ := io.ReadAll(conn) // what is missing is seen
		arrived <- all
	}()
	var conn net.Conn
	err = from.Do(func() (err error) {
		conn, err = net.DialTimeout("tcp", listener.Addr().String(), 10*time.Second)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = conn.Write(data)
	conn.Close()
	if err != nil {
		t.Fatal(err)
	}
	return <-arrived
}

// recordings: a recording has the packets that a fault hits while it lasts, and lost none of those before.
func (r *harmedRig) recordings(t *testing.T) {
	r.add(t, "{name: f, where: 'h0:eth0', match: udp, drop: {}}")
	end := plan.End{Node: "h0", Port: "eth0"}
	for range 2 {
		recording, err := r.Record([]plan.End{end}, live.RecordOptions{})
		if err != nil {
			t.Fatal(err)
		}
		reader, err := feed.NewReader(recording.File)
		if err != nil {
			t.Fatal(err)
		}
		r.arrived(t, 4)
		hits := 0
		read := func() bool {
			if _, err := reader.Read(10, func(*feed.Record) { hits++ }); err != nil {
				t.Fatal(err)
			}
			return hits >= 4
		}
		hosttest.Until(t, "four hits", read)
		time.Sleep(3 * hitCountTick) // for hits that should not come
		if read(); hits != 4 || reader.Lost(0) != 0 {
			t.Errorf("%d packets, %d lost; want 4 and none", hits, reader.Lost(0))
		}
		if err := errors.Join(reader.Close(), recording.Close()); err != nil {
			t.Error(err)
		}
		r.arrived(t, 4) // in no recording
	}
	r.clear(t)
}

// repairs: a fault goes on at a link that somebody deleted and Repair made again.
func (r *harmedRig) repairs(t *testing.T) {
	r.add(t, "{name: f, where: 'h0:eth0', match: udp, drop: {nth: [2]}}")
	if out, err := in(t, r.ns["h0"], "ip", "link", "delete", "eth0"); err != nil {
		t.Fatal(out)
	}
	if _, err := r.Repair(context.Background()); err != nil {
		t.Fatal(err)
	}
	if out, err := in(t, r.ns["h0"], "tc", "qdisc", "delete", "dev", "eth0", "clsact"); err != nil {
		t.Fatal(out)
	}
	if err := r.Verify(context.Background()); err == nil ||
		!strings.Contains(err.Error(), "kernel has no clsact") {
		t.Errorf("Verify says %v", err)
	}
	if _, err := r.Repair(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := r.arrived(t, 4); !slices.Equal(got, []int{0, 2, 3}) {
		t.Errorf("%v arrived, want all but the second", got)
	}
	r.clear(t)
}
