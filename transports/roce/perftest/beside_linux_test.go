package perftest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"railbed/testkit/hosttest"
	"railbed/testkit/hosttest/vmtest"
)

// besideEnv has the test binary measure this package and rdma_rxe in turn, as the
// first process of a guest.
const besideEnv = "RAILBED_TEST_BESIDE"

// beside configures a measurement.
type beside struct {
	Rounds     int
	MTU        int // of packets' payload
	Size       int
	Iterations int
	Cut        bool // the veths carry each packet alone, as on nodes
}

// measured is one run: MiB/s.
type measured struct {
	Ours, Rxe float64
}

// BenchmarkBesideRxe compares WRITEs between two ends of this package with WRITEs between two
// devices of the kernel's rdma_rxe by the unmodified ib_write_bw. They run in turn in one guest
// with one processor, each over a pair of veths, with the same MTU, sizes and numbers. The guest's
// processor is QEMU's without KVM, where instructions that do much at once are slow. In "whole" the
// veths have the kernel's defaults. In "cut" they carry each packet alone, as on nodes. In "clock"
// rdma_rxe computes its CRCs by tables. In "instructions" each instruction takes a nanosecond, and
// rdma_rxe uses carry-less multiplication. Each is the faster method there. -benchtime is the
// number of rounds. With 1x, which only shows that the benchmark runs, few messages are sent, in
// the first of the cases alone.
func BenchmarkBesideRxe(b *testing.B) {
	for _, instructions := range []bool{false, true} {
		for _, c := range []beside{{MTU: 1024, Size: 65536, Iterations: 200},
			{MTU: 4096, Size: 65536, Iterations: 400}} {
			for _, c.Cut = range []bool{false, true} {
				name, shape := map[bool]string{false: "clock", true: "instructions"}[instructions],
					map[bool]string{false: "whole", true: "cut"}[c.Cut]
				b.Run(fmt.Sprintf("%s/%s/mtu=%d", name, shape, c.MTU), func(b *testing.B) {
					besideRxe(b, c, instructions)
				})
			}
		}
	}
}

func besideRxe(b *testing.B, c beside, instructions bool) {
	hosttest.Need(b, hosttest.Perftest)
	if flag.Lookup("test.benchtime").Value.String() == "1x" && (instructions || c.MTU > 1024 || c.Cut) {
		b.Skip("with -benchtime 1x one is enough")
	}
	if instructions { // which are the same each time, and slower to carry out
		c.Iterations /= 2
	}
	if c.Rounds = b.N; b.N == 1 {
		c.Iterations = 10
	}
	text, err := json.Marshal(&c)
	if err != nil {
		b.Fatal(err)
	}
	o := vmtest.Options{Modules: []string{"veth", "rdma_rxe", "ib_uverbs"}, Timeout: 10 * time.Minute,
		Env: []string{besideEnv + "=" + string(text)}, Instructions: instructions}
	if instructions {
		o.Modules = append([]string{"crc32_pclmul"}, o.Modules...)
	}
	result := vmtest.Run(b, o, vmtest.Self)
	var all []measured
	if result.Code != 0 || json.Unmarshal(result.Output[bytes.LastIndexByte(bytes.TrimSpace(result.Output),
		'\n')+1:], &all) != nil || len(all) != b.N {
		b.Fatalf("exit status %d\n%s", result.Code, result.Output)
	}
	column := func(of func(m measured) float64) []float64 {
		var out []float64
		for _, m := range all {
			out = append(out, of(m))
		}
		slices.Sort(out)
		return out
	}
	for _, m := range []struct {
		name   string
		values []float64
	}{
		{"ours-MiB/s", column(func(m measured) float64 { return m.Ours })},
		{"rxe-MiB/s", column(func(m measured) float64 { return m.Rxe })},
		{"ours/rxe", column(func(m measured) float64 { return m.Ours / m.Rxe })},
	} {
		b.ReportMetric(m.values[len(m.values)/2], m.name)
		b.Logf("%s: median %.2f, %.2f to %.2f", m.name, m.values[len(m.values)/2], m.values[0],
			m.values[len(m.values)-1])
	}
	b.ReportMetric(0, "ns/op")
}

// besideNetworks makes the two pairs of veths. One host's addresses reach each other by
// its links only where the table of its own addresses is asked last; rdma_rxe has no
// other network in this kernel. Of ours both ends have a network of their own.
const besideNetworks = `set -e
	sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0 net.ipv4.conf.default.accept_local=1
	ip link add v0 mtu $0 type veth peer name v1 mtu $0
	for i in 0 1; do
		o=$((1 - i))
		ip addr add 10.9.0.$i/32 dev v$i
		ip link set v$i up
		ip rule add pref 10 iif v$i lookup local
		ip rule add pref 20 to 10.9.0.$o lookup 10$o
	done
	for i in 0 1; do
		o=$((1 - i))
		ip neigh replace 10.9.0.$o lladdr $(cat /sys/class/net/v$o/address) dev v$i nud permanent
		ip route add 10.9.0.$o dev v$i src 10.9.0.$i table 10$o
	done
	ip rule add pref 200 lookup local
	ip rule del pref 0
	for i in 0 1; do
		rdma link add rxe$i type rxe netdev v$i
		ip netns add n$i
	done
	ip link add w0 mtu $0 netns n0 type veth peer name w1 mtu $0 netns n1
	for i in 0 1; do
		ip -n n$i addr add 10.8.0.$i/24 dev w$i
		ip -n n$i link set lo up
		ip -n n$i link set w$i up
		if [ $1 = true ]; then
			ethtool -K v$i tx-udp-segmentation off
			ip netns exec n$i ethtool -K w$i tx-udp-segmentation off
		fi
	done`

// measureBeside is the guest's part.
func measureBeside(text string) error {
	var c beside
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	if out, err := exec.Command("sh", "-c", besideNetworks, "4200",
		strconv.FormatBool(c.Cut)).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	config := Config{Test: WriteBW, Size: c.Size, Iterations: c.Iterations, MTU: c.MTU}
	args := strings.Fields(fmt.Sprintf("-F -s %d -n %d -m %d", c.Size, c.Iterations, c.MTU))
	all := make([]measured, c.Rounds)
	for i := range all {
		var err error
		client := config
		client.Server = "10.8.0.0"
		if all[i].Ours, err = goodput(ourCommand("n0", config), ourCommand("n1", client), "n0"); err != nil {
			return err
		}
		if all[i].Rxe, err = goodput(exec.Command("ib_write_bw", append(args, "-d", "rxe0")...),
			exec.Command("ib_write_bw", append(args, "-d", "rxe1", "127.0.0.1")...), ""); err != nil {
			return err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(all)
}

// goodput is the average that a client prints.
func goodput(server, client *exec.Cmd, network string) (float64, error) {
	var heard, said bytes.Buffer
	server.Stdout, server.Stderr = &heard, &heard
	client.Stdout, client.Stderr = &said, &said
	if err := server.Start(); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	err := awaitOutput(ctx, listeners(network))
	if err == nil {
		err = client.Run()
	}
	if err != nil {
		server.Process.Kill()
	}
	if err := errors.Join(err, server.Wait()); err != nil {
		return 0, fmt.Errorf("%w\n%s%s", err, heard.String(), said.String())
	}
	_, row := rows(said.String())
	var b Bandwidth
	if len(row) != 1 {
		return 0, errors.New(said.String())
	}
	_, err = fmt.Sscan(row[0], &b.Bytes, &b.Iterations, &b.Peak, &b.Average)
	return b.Average, err
}
