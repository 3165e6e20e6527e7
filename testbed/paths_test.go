package testbed_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"

	"railbed/plan/spec"
	"railbed/testbed"
	"railbed/testkit/hosttest"
	"railbed/testkit/plantest"
)

const (
	// sendPart sends datagrams from planned source ports.
	sendPart      = "send"
	sendFlows     = 32
	sendPackets   = 20
	sendSize      = 1000
	sendFirstPort = 20000
)

func send(args []string) int {
	to := netip.MustParseAddr(args[0])
	for flow := range sendFlows {
		conn, err := net.DialUDP("udp", &net.UDPAddr{Port: sendFirstPort + flow},
			&net.UDPAddr{IP: to.AsSlice(), Port: 9})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		for sent := 0; sent < sendPackets; {
			// The receiver has no such port. A write that returns its refusal has sent nothing.
			if _, err := conn.Write(make([]byte, sendSize)); err == nil {
				sent++
			}
		}
		conn.Close()
	}
	return 0
}

// TestPathsAreTheSameInEveryRun holds that equal flows take equal paths, and
// that the choice is spread over the spines.
func TestPathsAreTheSameInEveryRun(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed)
	t.Run("soft", func(t *testing.T) { pathsOn(t, spec.Soft) })
	t.Run("router", func(t *testing.T) {
		if _, err := os.Stat("/proc/sys/net/ipv4/fib_multipath_hash_seed"); err != nil {
			t.Skip("cannot run here: the kernel's multipath hash has no seed (Linux 6.11):", err)
		}
		pathsOn(t, spec.Router)
	})
}

func pathsOn(t *testing.T, kind string) {
	text := `
name: go-paths
seed: %d
fabric:
  topology: leaf-spine
  params: {leaves: 2, spines: 2, hosts-per-leaf: 1}
  switch: {kind: %s}
  links: {default: {rate: 100mbit, queue: 4MB}} # which has room for all packets
`
	if kind == spec.Soft {
		text += "nodes: {default: {nic-queue: 4MB}}\n"
	}
	for _, family := range []int{4, 6} {
		t.Run(fmt.Sprintf("IPv%d", family), func(t *testing.T) {
			first, second := flowsPerSpine(t, fmt.Sprintf(text, 7, kind), family),
				flowsPerSpine(t, fmt.Sprintf(text, 7, kind), family)
			if first != second {
				t.Errorf("flows per spine: %v in one run, %v in another", first, second)
			}
			if first[0] == 0 || first[1] == 0 || first[0]+first[1] != sendFlows {
				t.Errorf("flows per spine: %v, want %d over both", first, sendFlows)
			}
		})
	}
}

// flowsPerSpine brings the file up, sends the flows from h0 to h1, and counts
// them on the links from the first leaf to each spine.
func flowsPerSpine(t *testing.T, text string, family int) (flows [2]int) {
	t.Helper()
	tb, err := testbed.Up(t.Context(), plantest.Compile(t, text), testbed.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := tb.Close(); err != nil {
			t.Error(err)
		}
	}()
	return flowsOver(t, tb, family)
}

// flowsOver is flowsPerSpine of a testbed that is up.
func flowsOver(t *testing.T, tb *testbed.Testbed, family int) (flows [2]int) {
	t.Helper()
	before := uplinks(t, tb)
	frame := sendSize + 8 + 20 + 14 // UDP, IPv4, Ethernet
	to := tb.Plan().Node("h1").Loopbacks[0]
	if family == 6 {
		to = tb.Plan().Node("h1").Loopbacks[1]
		frame += 20
	}
	if output, err := tb.Node("h0").Part(t.Context(), sendPart,
		to.Addr().String()).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	// What the switches still hold on a busy machine is on its way.
	hosttest.Eventually(t, fmt.Sprintf("%d flows", sendFlows), func() error {
		after := uplinks(t, tb)
		for i := range flows {
			flows[i] = (int(after[i]-before[i]) + sendPackets*frame/2) / (sendPackets * frame)
		}
		if flows[0]+flows[1] < sendFlows {
			return fmt.Errorf("%d and %d have passed", flows[0], flows[1])
		}
		return nil
	})
	return flows
}

func uplinks(t *testing.T, tb *testbed.Testbed) (sent [2]uint64) {
	t.Helper()
	state, err := tb.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range state.Links {
		switch link.Name {
		case "leaf1--spine1":
			sent[0] = link.A.Counters.TxBytes
		case "leaf1--spine2":
			sent[1] = link.A.Counters.TxBytes
		}
	}
	return sent
}
