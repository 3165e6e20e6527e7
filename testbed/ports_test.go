package testbed_test

import (
	"fmt"
	"math"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"railbed/testbed"
	"railbed/testbed/supervisor"
	"railbed/testkit/hosttest"
)

// mostWakeups bounds how often per second the process of idle soft switches may wake up by itself,
// over all threads. About 200 were measured. The timing thread reads its clocks every 100 ms, and
// so does the thread that watches arrivals. Three quarters come from the Go runtime's monitor,
// which runs after each of them.
const mostWakeups = 400

// reachPart sends one echo request to each address of a list, and prints those
// that do not answer.
const reachPart = "reach"

func reach(args []string) int {
	conn, err := net.ListenPacket("ip4:icmp", "0.0.0.0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	silent := map[string]bool{}
	for i, address := range args {
		silent[address] = true
		request := []byte{8, 0, 0, 0, 0x52, 0x42, byte(i >> 8), byte(i)} // RFC 792: echo
		var sum uint32
		for at := 0; at < len(request); at += 2 {
			sum += uint32(request[at])<<8 | uint32(request[at+1])
		}
		sum = sum>>16 + sum&0xFFFF
		request[2], request[3] = ^byte(sum>>8), ^byte(sum)
		if _, err := conn.WriteTo(request, &net.IPAddr{IP: net.ParseIP(address)}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	answer := make([]byte, 64)
	for len(silent) > 0 {
		n, from, err := conn.ReadFrom(answer)
		if err != nil {
			break
		}
		if n >= 8 && answer[0] == 0 && answer[4] == 0x52 && answer[5] == 0x42 {
			delete(silent, from.String())
		}
	}
	for address := range silent {
		fmt.Println(address)
	}
	return 0
}

// TestManyPorts: 128 nodes and 40 switches in one testbed. Every port is up, every
// node reaches every other one, what the switches count adds up, and who has
// nothing to do does little.
func TestManyPorts(t *testing.T) {
	hosttest.MarkTest(t, hosttest.NotAsNobody)
	hosttest.Long(t)
	hosttest.Need(t, hosttest.Testbed)
	tb := upPlan(t, "name: go-many-ports\nfabric: {topology: leaf-spine, params: {leaves: 32, spines: 8, "+
		"hosts-per-leaf: 4}, links: {default: {rate: 1gbit, delay: 10us}}}\n")
	if n, s := len(tb.Plan().Nodes), len(tb.Plan().Switches); n != 128 || s != 40 {
		t.Fatalf("%d nodes and %d switches", n, s)
	}
	state := inspected(t, tb)
	for _, l := range state.Links {
		if !l.Up || l.A.Operstate != "up" || l.B.Operstate != "up" {
			t.Errorf("%s: up %t, ends %s and %s", l.Name, l.Up, l.A.Operstate, l.B.Operstate)
		}
	}
	// All to all, one node after the other, because two cores carry them.
	var all []string
	for _, n := range tb.Plan().Nodes {
		all = append(all, n.Loopbacks[0].Addr().String())
	}
	for i := range 128 {
		output, err := tb.Node(fmt.Sprintf("h%d", i)).Part(t.Context(), reachPart, all...).CombinedOutput()
		if err != nil || len(output) > 0 {
			t.Fatalf("h%d does not reach: %q, %v", i, output, err)
		}
	}
	addUp(t, tb)
	process := switchProcess(t, state.PID)
	for _, pid := range []int{state.PID, process} {
		if open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)); err != nil ||
			len(open) > testbed.DescriptorBudget(tb.Plan()) {
			t.Errorf("process %d has %d descriptors, more than budgeted: %v", pid, len(open), err)
		}
	}
	// In the quietest second of ten: the nodes still ask for their neighbours, whose
	// addresses they have just used.
	rate := math.Inf(1)
	for range 10 {
		before, began := wakeups(t, process), time.Now()
		time.Sleep(time.Second)
		if rate = min(rate, float64(wakeups(t, process)-before)/time.Since(
			began).Seconds()); rate <= mostWakeups {
			break
		}
	}
	t.Logf("idle: %.0f wake-ups a second in %d threads", rate, len(tasks(t, process)))
	if rate > mostWakeups {
		t.Errorf("idle soft switches wake up %.0f times a second, want at most %d", rate, mostWakeups)
	}
}

func inspected(t *testing.T, tb *testbed.Testbed) *supervisor.State {
	t.Helper()
	state, err := tb.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// addUp compares the two ends of each link between switches, and the totals. The packets that the
// nodes' NICs sent and the switches made equal the packets that the NICs received, those that were
// dropped and those that wait.
func addUp(t *testing.T, tb *testbed.Testbed) {
	t.Helper()
	// Some packets may still be under way.
	hosttest.Eventually(t, "equal counters at both ends of links",
		func() error { return sums(inspected(t, tb)) })
}

func sums(state *supervisor.State) error {
	var crossed uint64
	for _, l := range state.Links {
		if l.Class != "fabric" {
			continue
		}
		if l.A.Counters.TxPackets != l.B.Counters.RxPackets ||
			l.B.Counters.TxPackets != l.A.Counters.RxPackets {
			return fmt.Errorf("%s: %d sent and %d received, %d sent and %d received", l.Name,
				l.A.Counters.TxPackets, l.B.Counters.RxPackets, l.B.Counters.TxPackets,
				l.A.Counters.RxPackets)
		}
		if l.A.Counters.TxDropped+l.B.Counters.TxDropped != 0 {
			return fmt.Errorf("%s dropped %d and %d", l.Name, l.A.Counters.TxDropped, l.B.Counters.TxDropped)
		}
		crossed += l.A.Counters.TxPackets + l.B.Counters.TxPackets
	}
	// Between nodes of different leaves a request and an answer cross two links
	// each: 128 x 124 pairs.
	if least := uint64(128 * 124 * 4); crossed < least {
		return fmt.Errorf("%d packets crossed links between switches, want at least %d", crossed, least)
	}
	return nil
}

// switchProcess is the child of a supervisor that is its soft switches.
func switchProcess(t *testing.T, supervisor int) int {
	t.Helper()
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", supervisor, supervisor))
	entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", supervisor))
	for _, entry := range entries {
		more, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", supervisor, entry.Name()))
		children = append(children, more...)
	}
	for _, word := range strings.Fields(string(children)) {
		line, _ := os.ReadFile("/proc/" + word + "/cmdline")
		var pid int
		if strings.HasPrefix(string(line), "railbed:softswitch") {
			fmt.Sscan(word, &pid)
			return pid
		}
	}
	t.Fatalf("no process of soft switches below %d: %q, %v", supervisor, children, err)
	return 0
}

func tasks(t *testing.T, pid int) []os.DirEntry {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

// wakeups counts how often threads gave a CPU up by themselves, to be woken later.
func wakeups(t *testing.T, pid int) (count int) {
	t.Helper()
	for _, task := range tasks(t, pid) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/status", pid, task.Name()))
		if err != nil {
			continue // it has ended
		}
		for line := range strings.Lines(string(text)) {
			var switches int
			if n, _ := fmt.Sscanf(line, "voluntary_ctxt_switches: %d", &switches); n == 1 {
				count += switches
			}
		}
	}
	return count
}
