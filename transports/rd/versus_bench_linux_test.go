package rd

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"railbed/testkit/hosttest"
)

// versusFor is how long one measurement floods.
const versusFor = time.Second

// field is a pair of hosts for two ends. command runs this executable on one of them with a role.
// Without a role it runs a program, whose CPU time is counted if children is set.
type field struct {
	b         *testing.B
	near, far string
	children  bool
	command   func(far bool, role string, program ...string) *exec.Cmd
}

func (p *pair) field() *field {
	self, err := os.Executable()
	if err != nil {
		p.b.Fatal(err)
	}
	return &field{b: p.b, near: nearAddr, far: farAddr, children: true,
		command: func(far bool, role string, program ...string) *exec.Cmd {
			words := program
			if role != "" {
				words = []string{self}
			}
			if far {
				words = append(p.inFar(), words...)
			}
			cmd := exec.Command(words[0], words[1:]...)
			cmd.Env = append(os.Environ(), roleEnv+"="+role)
			return cmd
		}}
}

// process is an end.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func (f *field) start(far bool, o part) *process {
	o.Near, o.Far = f.near, f.far
	text, _ := json.Marshal(o)
	cmd := f.command(far, string(text))
	cmd.Stderr = os.Stderr
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		f.b.Fatal(err)
	}
	return &process{cmd, in, bufio.NewReader(out)}
}

// line reads a line of an end, all but the last of whose words are numbers of the
// measurement, and the last the CPU time in ns.
func (f *field) line(p *process) []float64 {
	text, err := p.out.ReadString('\n')
	if err != nil {
		f.b.Fatalf("%v: %v", p.cmd.Args, err)
	}
	var numbers []float64
	for _, word := range strings.Fields(text) {
		n, err := strconv.ParseFloat(word, 64)
		if err != nil {
			f.b.Fatalf("%q: %v", text, err)
		}
		numbers = append(numbers, n)
	}
	return numbers
}

// versus runs two ends: what the near one measured, and the CPU time in ns of both.
func (f *field) versus(kind string, o part) (numbers []float64, cpu float64) {
	o.MTU, o.Peers, o.For, o.Paths = max(o.MTU, 1500), max(o.Peers, 1), versusFor, 2
	near, far := o, o
	near.Play, far.Play = "versus-"+kind,
		"versus-"+strings.NewReplacer("flood", "sink", "probe", "pong").Replace(kind)
	there := f.start(true, far)
	defer func() { there.cmd.Process.Kill(); there.cmd.Wait() }()
	var hello []string
	for range o.Peers {
		line, err := there.out.ReadString('\n')
		if err != nil {
			f.b.Fatal(err)
		}
		hello = append(hello, line)
	}
	here := f.start(false, near)
	defer func() { here.cmd.Process.Kill(); here.cmd.Wait() }()
	own, err := here.out.ReadString('\n')
	if err != nil {
		f.b.Fatal(err)
	}
	io.WriteString(there.in, own)
	io.WriteString(here.in, strings.Join(hello, ""))
	numbers = f.line(here)
	there.in.Close()
	cpu = numbers[len(numbers)-1] + f.line(there)[0]
	return numbers[:len(numbers)-1], cpu
}

// contestant is one of a comparison: it gives a number for each unit.
type contestant struct {
	name    string
	measure func() []float64
}

// contest measures in turn, five times each, prints medians and ranges, and reports
// the medians.
func (f *field) contest(units []string, all []contestant) {
	results := make([][][]float64, len(all)) // by contestant and unit
	for range 5 {
		for i, c := range all {
			for u, n := range c.measure() {
				if len(results[i]) <= u {
					results[i] = append(results[i], nil)
				}
				results[i][u] = append(results[i][u], n)
			}
		}
	}
	for i, c := range all {
		text := fmt.Sprintf("%-20s", c.name)
		for u, r := range results[i] {
			slices.Sort(r)
			text += fmt.Sprintf("  %10.3f %s (%.3f to %.3f)", r[2], units[u], r[0], r[4])
			f.b.ReportMetric(r[2], c.name+"-"+units[u])
		}
		fmt.Println(text)
	}
}

// flood is a contestant by goodput in Gbit/s and CPU time in ns for each KiB.
func (f *field) flood(name, kind string, o part) contestant {
	return contestant{name, func() []float64 {
		numbers, cpu := f.versus(kind+"-flood", o)
		return []float64{numbers[0] * 8 / 1e9, cpu / (numbers[0] * versusFor.Seconds() / 1024)}
	}}
}

var floodUnits = []string{"Gbit/s", "ns/KiB"}

// BenchmarkVersusSizes is one pair on a link with an MTU of 4,200 by the size of
// what is written at once, with the CPU time of both processes. quic-go encrypts,
// has packets of 1,452 bytes at most, and a stream; so reliable datagrams are there
// encrypted and at an MTU of 1,500 too. By spray they take a path for each packet,
// else for 16 at a time.
func BenchmarkVersusSizes(b *testing.B) {
	for _, size := range []int{64, 1024, 4096, 65536, 1 << 20, 16 << 20} {
		b.Run(fmt.Sprintf("bytes=%d", size), func(b *testing.B) {
			p := inPair(b)
			if p == nil {
				return
			}
			f := p.field()
			f.contest(floodUnits, []contestant{
				f.flood("rd", "rd", part{Size: size, Grain: 16, MTU: compareMTU}),
				f.flood("rd-spray", "rd", part{Size: size, Grain: 1, MTU: compareMTU}),
				f.flood("rd-encrypted", "rd", part{Size: size, Grain: 16, MTU: compareMTU, Encrypt: true}),
				f.iperf3("tcp", size, 1),
				p.offloaded(f.iperf3("tcp-tso", size, 1)),
				f.libfabric("udp;ofi_rxd", size),
				f.libfabric("tcp;ofi_rxm", size),
				f.flood("rd-mtu-1500", "rd", part{Size: size, Grain: 16}),
				f.flood("rd-mtu-1500-encrypted", "rd", part{Size: size, Grain: 16, Encrypt: true}),
				f.flood("quic-go", "quic", part{Size: size}),
			})
		})
	}
}

// BenchmarkVersusPeers is one end to several, in messages of 64 KiB: endpoints of
// their own in one process, or connections of it.
func BenchmarkVersusPeers(b *testing.B) {
	for _, peers := range []int{2, 8, 64} {
		b.Run(fmt.Sprintf("peers=%d", peers), func(b *testing.B) {
			p := inPair(b)
			if p == nil {
				return
			}
			for i := 3; i <= 5; i++ {
				run(b, append(p.inFar(), "ip", "addr", "add", fmt.Sprintf("10.9.0.%d/24", i), "dev",
					"far")...)
			}
			f := p.field()
			f.contest(floodUnits, []contestant{
				f.flood("rd", "rd", part{Size: 65536, Grain: 16, Peers: peers}),
				f.flood("quic-go", "quic", part{Size: 65536, Peers: peers}),
				f.iperf3("tcp", 65536, peers),
			})
		})
	}
}

// BenchmarkVersusTails is round trips of 64 bytes: by WRITE_IMM, and over a stream.
func BenchmarkVersusTails(b *testing.B) {
	p := inPair(b)
	if p == nil {
		return
	}
	f := p.field()
	probe := func(name, kind string, o part) contestant {
		return contestant{name, func() []float64 {
			numbers, _ := f.versus(kind+"-probe", o)
			for i := range numbers {
				numbers[i] /= 1e3
			}
			return numbers
		}}
	}
	f.contest([]string{"p50-us", "p99-us", "p99.9-us"}, []contestant{
		probe("rd", "rd", part{Size: 64}),
		probe("rd-encrypted", "rd", part{Size: 64, Encrypt: true}),
		probe("quic-go", "quic", part{Size: 64}),
	})
}

// emulated is where testbeds for comparisons come up, one after the other.
type emulated struct {
	b                           *testing.B
	name, file, railbed, copied string
}

func newEmulated(b *testing.B) *emulated {
	hosttest.Need(b, hosttest.Testbed)
	dir, err := os.MkdirTemp("/var/tmp", "versus") // nodes have a /tmp of their own
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	e := &emulated{b: b, name: fmt.Sprintf("versus-%d", os.Getpid()), file: filepath.Join(dir, "versus.yaml"),
		railbed: filepath.Join(dir, "railbed"), copied: filepath.Join(dir, "ends")}
	run(b, "go", "build", "-o", e.railbed, "railbed")
	run(b, "cp", self, e.copied)
	b.Cleanup(func() { run(b, e.railbed, "down", e.name) })
	return e
}

// up brings up a fabric with hosts h0 and h1, and is a field between them.
func (e *emulated) up(b *testing.B, fabric string) *field {
	if err := os.WriteFile(e.file, []byte(fmt.Sprintf("name: %s\nfabric:\n%s", e.name, fabric)),
		0o600); err != nil {
		b.Fatal(err)
	}
	run(b, e.railbed, "up", e.file)
	node := func(n string) string {
		return strings.Fields(run(b, e.railbed, "exec", n, "-t", e.name, "--", "getent", "ahostsv4", n))[0]
	}
	return &field{b: b, near: node("h0"), far: node("h1"),
		command: func(far bool, role string, program ...string) *exec.Cmd {
			words := []string{"exec", map[bool]string{false: "h0", true: "h1"}[far], "-t", e.name, "-w", "/",
				"-e", roleEnv + "=" + role, "--"}
			if role != "" {
				program = []string{e.copied}
			}
			return exec.Command(e.railbed, append(words, program...)...)
		}}
}

// emulatedRate is the rate of the links. At this rate the CPU limits no transport: a frame takes 60
// us. Reliable datagrams keep to it, as in a workload.
const emulatedRate = 200_000_000

func (f *field) emulated() {
	f.contest(floodUnits, []contestant{
		f.flood("rd", "rd", part{Size: 65536, Rate: emulatedRate}),
		f.flood("rd-encrypted", "rd", part{Size: 65536, Encrypt: true, Rate: emulatedRate}),
		f.flood("quic-go", "quic", part{Size: 65536}),
		f.iperf3("tcp", 65536, 1),
	})
}

// BenchmarkVersusLoss is one pair over a soft switch whose links lose packets, or
// hold back each tenth for a while so that others overtake it.
func BenchmarkVersusLoss(b *testing.B) {
	e := newEmulated(b)
	for _, link := range []string{"loss: 0%", "loss: 0.1%", "loss: 1%", "loss: 5%",
		"reorder: 10%, reorder-by: 70us", "reorder: 10%, reorder-by: 100us"} {
		b.Run(link, func(b *testing.B) {
			e.up(b, fmt.Sprintf("  topology: single-switch\n  params: {hosts: 2}\n  links: {default: "+
				"{rate: %dbit, delay: 20us, %s}}\n", emulatedRate, link)).emulated()
		})
	}
}

// BenchmarkVersusReordering measures one pair whose packets are sprayed one by one over seven
// paths. The longest path takes a given time longer than the shortest, and the others lie between
// at equal distances. The delay is drawn anew for each packet, in both directions. A single link
// would keep the order, whatever its jitter.
func BenchmarkVersusReordering(b *testing.B) {
	e := newEmulated(b)
	for _, spread := range []time.Duration{0, 10 * time.Microsecond, 30 * time.Microsecond,
		70 * time.Microsecond, 100 * time.Microsecond} {
		b.Run(fmt.Sprintf("spread=%v", spread), func(b *testing.B) {
			const ways = 7
			text := fmt.Sprintf("  topology: leaf-spine\n  params: {leaves: 2, spines: %d, hosts-per-leaf: "+
				"1}\n  switch: {kind: soft, load-balance: spray}\n  links:\n    default: {rate: %dbit, "+
				"delay: 20us}\n",
				ways, emulatedRate)
			for i := range ways {
				text += fmt.Sprintf("    \"leaf1--spine%d\": {delay: %v}\n", i+1,
					20*time.Microsecond+spread*time.Duration(i)/(ways-1))
			}
			e.up(b, text).emulated()
		})
	}
}
