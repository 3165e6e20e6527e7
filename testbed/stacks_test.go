package testbed_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"railbed/testbed"
	"railbed/testkit/hosttest"
)

// The stacks of this file choose their transports themselves. Between two
// processes of one host they take shared memory; here they must not.

const stackHosts = `
name: %s
fabric:
  topology: single-switch
  params: {hosts: 2}
  links: {default: {rate: 1gbit, mtu: 9000}}
`

const (
	stackMTU     = 9000
	stackMessage = 1 << 20
)

// crossed is the bytes and packets that h0's NIC has sent so far.
func crossed(t *testing.T, tb *testbed.Testbed) (bytes, packets uint64) {
	t.Helper()
	state, err := tb.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range state.Links {
		if link.A.Node == "h0" {
			return link.A.Counters.TxBytes, link.A.Counters.TxPackets
		}
		if link.B.Node == "h0" {
			return link.B.Counters.TxBytes, link.B.Counters.TxPackets
		}
	}
	t.Fatal("h0 has no link")
	return 0, 0
}

// mustCross fails unless run sends payload bytes from h0 over its link, in
// packets no larger than the MTU.
func mustCross(t *testing.T, tb *testbed.Testbed, payload uint64, run func()) {
	t.Helper()
	bytesBefore, packetsBefore := crossed(t, tb)
	run()
	bytesAfter, packetsAfter := crossed(t, tb)
	sent, packets := bytesAfter-bytesBefore, packetsAfter-packetsBefore
	t.Logf("payload %d bytes, over the link %d bytes in %d packets", payload, sent, packets)
	if sent < payload || packets < payload/stackMTU {
		t.Errorf("payload of %d bytes: the link carried %d bytes in %d packets, want at least %d in %d",
			payload, sent, packets, payload, payload/stackMTU)
	}
}

func TestUCXCrosses(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed, hosttest.UCX)
	tb := upPlan(t, fmt.Sprintf(stackHosts, "go-ucx"))
	const iterations, warmups = 50, 10
	server := tb.Node("h1").Command(t.Context(), "ucx_perftest")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	waitListening(t, tb, "h1", 13337)
	mustCross(t, tb, stackMessage*iterations, func() {
		output, err := tb.Node("h0").Command(t.Context(), "ucx_perftest", "h1", "-t", "tag_bw",
			"-s", fmt.Sprint(stackMessage), "-n", fmt.Sprint(iterations), "-w",
			fmt.Sprint(warmups)).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, output)
		}
	})
	if err := server.Wait(); err != nil {
		t.Error(err)
	}
}

// waitListening waits until a TCP port of a node is open.
func waitListening(t *testing.T, tb *testbed.Testbed, node string, port int) {
	t.Helper()
	hosttest.Until(t, fmt.Sprintf("a listener on port %d of %s", port, node), func() bool {
		output, err := tb.Node(node).Command(t.Context(), "cat", "/proc/net/tcp", "/proc/net/tcp6").Output()
		if err != nil {
			t.Fatal(err)
		}
		// Local address and port in hexadecimal, state 0A is LISTEN.
		for line := range strings.Lines(string(output)) {
			fields := strings.Fields(line)
			if len(fields) > 3 && strings.HasSuffix(fields[1], fmt.Sprintf(":%04X", port)) &&
				fields[3] == "0A" {
				return true
			}
		}
		return false
	})
}

const pingPong = `
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
	int rank, size, n = atoi(argv[1]), rounds = atoi(argv[2]);
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (size != 2) return 3;
	char *buf = calloc(n, 1);
	for (int i = 0; i < rounds; i++) {
		if (rank == 0) {
			for (int j = 0; j < n; j++) buf[j] = (char)(i * 7 + j);
			MPI_Send(buf, n, MPI_BYTE, 1, i, MPI_COMM_WORLD);
		}
		if (rank == 1) {
			MPI_Recv(buf, n, MPI_BYTE, 0, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			for (int j = 0; j < n; j++) if (buf[j] != (char)(i * 7 + j)) return 4;
			MPI_Send(buf, n, MPI_BYTE, 0, i, MPI_COMM_WORLD);
		} else
			MPI_Recv(buf, n, MPI_BYTE, 1, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	}
	if (rank == 0) printf("ping-pong of %d rounds done\n", rounds);
	MPI_Finalize();
	return 0;
}
`

// TestOpenMPICrosses runs an unmodified OpenMPI job over two nodes. mpirun in
// h0 asks for its daemon in h1 through an agent that hands the request to this
// test, as a login service would.
func TestOpenMPICrosses(t *testing.T) {
	hosttest.Need(t, hosttest.Testbed, hosttest.OpenMPI)
	mpicc, err := exec.LookPath("mpicc")
	if err != nil {
		t.Skip("cannot run here: mpicc:", err)
	}
	// Not under /tmp, of which every node has its own.
	dir, err := os.MkdirTemp("/var/tmp", "railbed-mpi-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	program := filepath.Join(dir, "pingpong")
	if output, err := exec.Command(mpicc, "-O2", "-o", program,
		write("pingpong.c", pingPong, 0o644)).CombinedOutput(); err != nil {
		t.Fatalf("mpicc: %v\n%s", err, output)
	}
	agent := write("agent", "#!/bin/sh\nshift\nprintf '%s\\n' \"$*\" > /tmp/launch\n", 0o755)
	tb := upPlan(t, fmt.Sprintf(stackHosts, "go-mpi"))
	serveLaunches(t, tb)

	const rounds = 20
	mustCross(t, tb, stackMessage*rounds, func() {
		mpirun := tb.Node("h0").Command(t.Context(), "mpirun", "--allow-run-as-root", "--oversubscribe",
			"--mca", "plm_rsh_agent", agent, "--host", "h0,h1", "-np", "2", "--map-by", "node",
			program, fmt.Sprint(stackMessage), fmt.Sprint(rounds))
		output, err := mpirun.CombinedOutput()
		if err != nil || !strings.Contains(string(output), "ping-pong of 20 rounds done") {
			t.Fatalf("mpirun: %v\n%s", err, output)
		}
	})
}

// serveLaunches starts in h1 what the agent in h0 is asked to start there.
func serveLaunches(t *testing.T, tb *testbed.Testbed) {
	t.Helper()
	ctx := t.Context()
	if output, err := tb.Node("h0").Command(ctx, "mkfifo", "/tmp/launch").CombinedOutput(); err != nil {
		t.Fatalf("mkfifo: %v\n%s", err, output)
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	// Opened for reading and writing, so that the first launch is not its end.
	listener := tb.Node("h0").Command(ctx, "sh", "-c", "cat <> /tmp/launch")
	listener.Stdout = writer
	if err := listener.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		lines := bufio.NewScanner(reader)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			daemon := tb.Node("h1").Command(ctx, "sh", "-c", lines.Text())
			daemon.Stdout, daemon.Stderr = os.Stderr, os.Stderr
			if err := daemon.Start(); err != nil {
				fmt.Fprintln(os.Stderr, "start the MPI daemon:", err)
			}
		}
	}()
	t.Cleanup(func() {
		listener.Kill()
		listener.Wait()
		writer.Close()
		<-done
		reader.Close()
	})
}
