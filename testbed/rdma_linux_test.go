package testbed_test

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"railbed/capture/verify"
	"railbed/capture/verify/evidence"
	"railbed/internal/infiniband"
	"railbed/internal/verdict"
	"railbed/plan/spec"
	"railbed/testbed"
	"railbed/testbed/supervisor"
	"railbed/testkit/hosttest"
)

const rdmaGuests = `
name: go-rdma
fabric:
  topology: single-switch
  params: {hosts: 2}
  links: {default: {rate: 100mbit, delay: 50us, mtu: 1500}}
nodes:
  default: {runtime: vm, rdma: rxe, memory: 320MiB}
`

// verbsProgram is a program between two nodes, unmodified, from h0 to its server in h1.
type verbsProgram struct {
	name           string
	feature        hosttest.Feature
	env            []string
	server, client []string
	listens        int    // on this TCP port before the client starts; 0 does not
	says           string // the client, when it ended well
	// there and back are the least that crosses the fabric in RoCEv2's payload to h1
	// and from it, in bytes.
	there, back int
	// atomics is the least requests for an atomic operation.
	atomics int
}

const (
	perftestPort = 18515
	ucxPort      = 13337
)

// verbsPrograms have few and odd messages and long timeouts: a guest's processor is
// slow. rdma_cm, which
// rping uses, knows NICs' addresses alone: a name leads to a node's loopback.
var verbsPrograms = []verbsProgram{
	perftest("ib_write_bw", 20, 5000, `(?m)^ 5000 +20 `, 20*5000, 0),
	perftest("ib_write_lat", 20, 1500, `(?m)^ 1500 +20 `, 20*1500, 20*1500),
	perftest("ib_send_bw", 20, 5000, `(?m)^ 5000 +20 `, 20*5000, 0),
	perftest("ib_read_bw", 20, 5000, `(?m)^ 5000 +20 `, 0, 20*5000),
	{name: "ib_atomic_bw", feature: hosttest.Perftest, server: []string{"ib_atomic_bw", "-F", "-n20"},
		client:  []string{"ib_atomic_bw", "-F", "-n20", "h1"},
		listens: perftestPort, says: `(?m)^ 8 +20 `, atomics: 20},
	{name: "ibv_rc_pingpong", feature: hosttest.Verbs,
		server:  []string{"ibv_rc_pingpong", "-g1", "-n20", "-c"},
		client:  []string{"ibv_rc_pingpong", "-g1", "-n20", "-c", "h1"},
		listens: perftestPort, says: `(?m)^20 iters in`, there: 20 * 4096, back: 20 * 4096},
	{name: "rping", feature: hosttest.Rping, server: []string{"rping", "-s", "-v", "-V", "-C5", "-S3500"},
		client: []string{"rping", "-c", "-v", "-V", "-C5", "-S3500", "-a10.128.0.3"},
		says:   `(?s)(ping data: rdma-ping-\d.*){5}`, there: 5 * 3500, back: 5 * 3500},
	// UCX connects by datagrams, and ignores those that rxe receives over IPv4.
	{name: "ucx_perftest", feature: hosttest.UCX,
		env: []string{"UCX_TLS=rc_verbs,ud_verbs:aux", "UCX_NET_DEVICES=rxe_eth0:1",
			"UCX_IB_GID_INDEX=2"},
		server:  []string{"ucx_perftest"},
		client:  []string{"ucx_perftest", "h1", "-t", "tag_bw", "-s5000", "-n20", "-w1"},
		listens: ucxPort, says: `(?m)^Final: +20 `, there: 20 * 5000},
}

func perftest(program string, count, size int, says string, there, back int) verbsProgram {
	options := []string{program, "-F", "-u17", fmt.Sprintf("-n%d", count), fmt.Sprintf("-s%d", size)}
	return verbsProgram{
		name:    program,
		feature: hosttest.Perftest,
		server:  options,
		client:  append(options[:len(options):len(options)], "h1"),
		listens: perftestPort, says: says, there: there, back: back,
	}
}

// TestVerbsPrograms has unmodified programs between two guests with rdma: rxe. Each
// prints what it did, and the packets say that it crossed the fabric.
func TestVerbsPrograms(t *testing.T) {
	hosttest.Long(t)
	hosttest.Need(t, hosttest.Root, hosttest.VM, hosttest.Tap) // TestGuests has an ordinary user's
	tb := upPlan(t, rdmaGuests)
	if state := inspected(t, tb); len(state.RDMA) != 2 || state.RDMA[1].Node != "h1" ||
		state.RDMA[1].PathMTU != 1024 {
		t.Errorf("inspect has RDMA devices %+v", state.RDMA)
	}
	t.Run("Device", func(t *testing.T) { rdmaDevice(t, tb) })
	// The device works afterwards, as the programs below show.
	t.Run("QueuePairsLost", func(t *testing.T) { verbsLost(t, tb) })
	for _, p := range verbsPrograms {
		t.Run(p.name, func(t *testing.T) {
			hosttest.Need(t, p.feature)
			crossed := recorded(t, tb, func() { p.run(t, tb) })
			if crossed.payload["h0"] < p.there || crossed.payload["h1"] < p.back ||
				crossed.atomics < p.atomics {
				t.Errorf("crossed the fabric: %+v; want at least %d bytes there, %d back and %d atomics",
					crossed, p.there, p.back, p.atomics)
			}
			if crossed.largest > 1024 {
				t.Errorf("a packet has %d bytes, and the path MTU is 1,024", crossed.largest)
			}
		})
	}
}

// rdmaDevice compares what the kernel says of the device with the plan.
func rdmaDevice(t *testing.T, tb *testbed.Testbed) {
	hosttest.Need(t, hosttest.Verbs)
	nic := tb.Plan().Node("h0").NICs[0]
	out, err := tb.Node("h0").Command(t.Context(), "ibv_devinfo", "-v", "-d", nic.RDMA.Name).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{"PORT_ACTIVE", fmt.Sprintf(`active_mtu:\s+%d`, nic.RDMA.PathMTU),
		"::ffff:" + nic.Addrs[0].Addr().String(), nic.Addrs[1].Addr().String()} {
		if !regexp.MustCompile(want).Match(out) {
			t.Errorf("the device lacks %q:\n%s", want, out)
		}
	}
}

// command is a command of the program at a node.
func (p verbsProgram) command(ctx context.Context, tb *testbed.Testbed, node string,
	args []string) *testbed.Cmd {
	cmd := tb.Node(node).Command(ctx, args[0], args[1:]...)
	cmd.Env = p.env
	return cmd
}

// serve starts the server, waits until it listens, and returns what it prints.
func (p verbsProgram) serve(ctx context.Context, t *testing.T, tb *testbed.Testbed) (server *testbed.Cmd,
	served *bytes.Buffer) {
	t.Helper()
	served = new(bytes.Buffer)
	server = p.command(ctx, tb, "h1", p.server)
	server.Stdout, server.Stderr = served, served
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	if p.listens != 0 {
		shell(ctx, t, tb, "h1", fmt.Sprintf(
			"until grep -q ':%04X .* 0A ' /proc/net/tcp /proc/net/tcp6; do sleep 0.05; done", p.listens))
	}
	return server, served
}

// shell runs a script in a node.
func shell(ctx context.Context, t *testing.T, tb *testbed.Testbed, node, script string) {
	t.Helper()
	if out, err := tb.Node(node).Command(ctx, "sh", "-c", script).CombinedOutput(); err != nil {
		t.Fatalf("in %s, %s: %v\n%s", node, script, err, out)
	}
}

// run runs the program, and prints what the kernels say where it fails.
func (p verbsProgram) run(t *testing.T, tb *testbed.Testbed) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	server, served := p.serve(ctx, t, tb)
	said, err := p.command(ctx, tb, "h0", p.client).CombinedOutput()
	for err != nil && p.listens == 0 && strings.Contains(string(said), "REJECTED") && ctx.Err() == nil {
		said, err = p.command(ctx, tb, "h0", p.client).CombinedOutput() // rdma_cm listens later
	}
	if err != nil || !regexp.MustCompile(p.says).Match(said) {
		t.Errorf("%v: %v, and says\n%s\n%s", p.client, err, said, kernelsSay(t, tb))
		_ = server.Kill() // it may wait for ever
	}
	if err := server.Wait(); err != nil {
		t.Errorf("%v: %v, and says\n%s", p.server, err, served.String())
	}
}

// verbsLost breaks the queue pairs of the client or of the server while the client writes. The client's own
// requests are flushed (IBV_WC_WR_FLUSH_ERR, 5). Requests to the server have no answer (IBV_WC_RETRY_EXC_ERR,
// 12). perftest sets the retry count only with rdma_cm, and then has a second queue pair for its own
// protocol. Otherwise the count is 7, with which rdma_rxe repeats for ever (COMPST_ERROR_RETRY of
// rxe_comp.c).
func verbsLost(t *testing.T, tb *testbed.Testbed) {
	hosttest.Need(t, hosttest.Perftest)
	p := verbsProgram{
		server: []string{"ib_write_bw", "-F", "-R", "--retry_count=1", "-u17", "-n1000000", "-s5000"}}
	p.client = append(p.server[:len(p.server):len(p.server)], "10.128.0.3")
	for node, status := range map[string]int{"h0": 5, "h1": 12} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		server, served := p.serve(ctx, t, tb)
		shell(ctx, t, tb, "h1", "until rdma resource show cm_id | grep -q LISTEN; do sleep 0.1; done")
		var said bytes.Buffer
		client := p.command(ctx, tb, "h0", p.client)
		client.Stdout, client.Stderr = &said, &said
		if err := client.Start(); err != nil {
			t.Fatal(err)
		}
		shell(ctx, t, tb, "h0", `sent() { awk '/eth0:/ {print $10}' /proc/self/net/dev; }; first=$(sent)
until [ $(sent) -gt $((first + 200000)) ]; do sleep 0.1; done`)
		for range 2 { // the second finds that the queue pairs are lost, or that their program has ended
			addFault(t, tb, spec.Fault{Name: "lost", Where: node, QueuePairs: "lost"})
		}
		if err := client.Wait(); err == nil ||
			!strings.Contains(said.String(), fmt.Sprintf("Failed status %d:", status)) {
			t.Errorf("queue pairs of %s lost: %v, want status %d; the client says\n%s\n%s", node, err,
				status, said.String(), served.String())
		}
		if at := clearFault(t, tb, "lost"); at.Port != node || at.Matched != 2 || at.Hit != 2 {
			t.Errorf("queue pairs of %s lost: %+v", node, at)
		}
		_ = server.Kill() // it may have ended, or wait for ever
		_ = server.Wait()
	}
}

// kernelsSay is the end of the guests' kernel logs.
func kernelsSay(t *testing.T, tb *testbed.Testbed) string {
	var text strings.Builder
	for _, node := range []string{"h0", "h1"} {
		out, err := tb.Node(node).Command(t.Context(), "sh", "-c", "dmesg | tail -n 15").CombinedOutput()
		fmt.Fprintf(&text, "kernel of %s (%v):\n%s", node, err, out)
	}
	return text.String()
}

// recorded records what do does, at both nodes' NICs, and judges the ICRCs.
func recorded(t *testing.T, tb *testbed.Testbed, do func()) *crossing {
	t.Helper()
	var file bytes.Buffer
	capture, err := tb.Capture(t.Context(),
		supervisor.CaptureRequest{At: []string{"h0:eth0", "h1:eth0"}, Filter: "udp port 4791"}, &file)
	if err != nil {
		t.Fatal(err)
	}
	do()
	if stats, err := capture.Stop(); err != nil {
		t.Fatalf("%v, %+v", err, stats)
	}
	icrc, err := verify.New(&spec.PacketsCheck{RoCE: &spec.RoCECheck{Rule: spec.RoCERuleICRC}},
		verify.Sources{})
	if err != nil {
		t.Fatal(err)
	}
	found := &crossing{payload: map[string]int{}}
	results, _, err := verify.Run(t.Context(), &file, verify.Options{Plan: tb.Plan()}, icrc, found)
	if err != nil {
		t.Fatal(err)
	}
	if results[0].Verdict != verdict.Pass {
		t.Errorf("%s: %s, %s %v", results[0].Name, results[0].Verdict, results[0].Summary, results[0].Details)
	}
	t.Logf("%s; payload %v, atomics %d", results[0].Summary, found.payload, found.atomics)
	return found
}

// crossing counts what leaves nodes in packets of RoCEv2.
type crossing struct {
	payload map[string]int // by node, in bytes
	atomics int            // requests
	largest int            // payload of a packet
}

func (c *crossing) Begin(*evidence.Capture) {}

func (c *crossing) Packet(p *evidence.Packet) {
	if p.RoCE == nil || p.Direction != evidence.Out {
		return
	}
	c.payload[p.Tap.Node] += p.RoCE.Payload
	c.largest = max(c.largest, p.RoCE.Payload)
	if op := p.RoCE.BTH.Opcode; op == infiniband.CompareSwap || op == infiniband.FetchAdd {
		c.atomics++
	}
}

func (c *crossing) Result() verify.Result {
	return verify.Result{Name: "crossing", Verdict: verdict.Pass}
}
