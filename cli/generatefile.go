package cli

import (
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/spf13/cobra"

	"railbed/internal/nearest"
	"railbed/internal/units"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/plan/topology"
)

// generateOptions are the flags of generate.
type generateOptions struct {
	name         string // of the testbed; empty for the topology's
	params, with []string
}

// subjects are the worked examples that --with adds, with their explanations.
var subjects = []struct{ name, does string }{
	{"roce", "the workload uses RoCEv2 with DCQCN, and the switches ECN and PFC"},
	{"fault", "a link loses packets for one second of the workload"},
	{"checks", "checks of retransmissions, of lost packets and of bus bandwidth"},
}

func subjectNames() (names []string) {
	for _, s := range subjects {
		names = append(names, s.name)
	}
	return names
}

// subjectHelp lists the subjects of --with.
func subjectHelp() string {
	var text strings.Builder
	for _, s := range subjects {
		fmt.Fprintf(&text, "  %-8s%s\n", s.name, s.does)
	}
	return text.String()
}

// completeSubjects completes the last word of a list with the subjects that are not in the list.
func completeSubjects(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	given := typed[:strings.LastIndexByte(typed, ',')+1]
	var words []string
	for _, s := range subjects {
		if !slices.Contains(strings.Split(given, ","), s.name) {
			words = append(words, given+s.name+"\t"+s.does)
		}
	}
	return words, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// fileData is the data of fileTemplate. The second block of fields depends on the plan.
type fileData struct {
	Topology, Name string
	// Options are further options of the command that makes this file.
	Options string
	// Fabric is the text of the fabric's first keys.
	Fabric string
	With   map[string]bool
	// First is the first node.
	First string
	// PerNode is the number of ranks of each node, and Other another number as an example.
	PerNode, Other int
	// RailLocal reports whether no message of the workload passes a link between switches.
	RailLocal bool

	// Link is the first link of the first node.
	Link string
	// Rate is the rate of the links, and BusBW the least bus bandwidth, in Mbit/s.
	Rate, BusBW int
	// Ranks is the number of all ranks.
	Ranks      int
	Iterations int
	// Event is the number of packets after which the fault begins. Each is the number of payload bytes that
	// a rank sends in an iteration, and Payload the largest number in a packet.
	Event, Each, Payload uint64
	// Buffer is the buffer of a switch, in MB.
	Buffer int
	// Timeout is the timeout of a queue pair.
	Timeout time.Duration
	// Sent is the number of payload bytes that the first node sends. Bound is the most that a check
	// accepts.
	Sent, Bound uint64
}

//go:embed generate.yaml.tmpl
var fileText string

var fileTemplate = template.Must(template.New("file").Parse(fileText))

func (d *fileData) write() (string, error) {
	var text strings.Builder
	err := fileTemplate.Execute(&text, d)
	return text.String(), err
}

// compiled returns the plan of the file.
func (d *fileData) compiled() (*plan.Plan, error) {
	text, err := d.write()
	if err != nil {
		return nil, err
	}
	decoded, err := spec.Decode("generated", []byte(text))
	if err != nil {
		return nil, err
	}
	return plan.Compile(decoded)
}

// generate makes the text of a file and checks that it compiles.
func generate(name string, o generateOptions) (string, error) {
	d := &fileData{Topology: name, Name: o.name, Fabric: explicitFabric, With: map[string]bool{}, First: "h0",
		Rate: carriedRates[0], Ranks: 1, PerNode: 1, Other: 2, Iterations: 5, Buffer: 2}
	if d.Name == "" {
		d.Name = name
	}
	for _, word := range o.with {
		if !slices.Contains(subjectNames(), word) {
			want := "want " + strings.Join(subjectNames(), ", ")
			if near := nearest.Word(word, subjectNames()); near != "" {
				want = fmt.Sprintf("did you mean %q?", near)
			}
			return "", fmt.Errorf("--with %q: %s", word, want)
		}
		d.With[word] = true
	}
	d.Options = d.options(o.params)
	if name == spec.Explicit {
		d.First = "a"
		if len(o.params) > 0 {
			return "", errors.New("topology explicit has no parameters; edit hosts, switches and " +
				"connect in the file")
		}
	} else {
		given, err := parseParams(o.params)
		if err != nil {
			return "", err
		}
		if d.Fabric, err = generatedFabric(name, given); err != nil {
			return "", err
		}
		if rails := given["rails"]; name == topology.RailOptimized && rails > 1 {
			d.PerNode, d.Other = rails, 1
			d.RailLocal = given["servers"] > 1 && given["spines"] > 0
		}
	}
	draft := *d
	draft.With = nil // without the values of the plan
	p, err := draft.compiled()
	if err != nil {
		return "", err
	}
	d.fill(p)
	if _, err = d.compiled(); err != nil {
		return "", err
	}
	return d.write()
}

// options returns the options that make the file again.
func (d *fileData) options(params []string) string {
	var text strings.Builder
	if d.Name != d.Topology {
		text.WriteString(" --name " + d.Name)
	}
	for _, p := range params {
		text.WriteString(" -p " + p)
	}
	var with []string
	for _, s := range subjects {
		if d.With[s.name] {
			with = append(with, s.name)
		}
	}
	if len(with) > 0 {
		text.WriteString(" --with " + strings.Join(with, ","))
	}
	return text.String()
}

// size is the size of the workload's buffer.
const size = units.Bytes(1 << 20)

// fill sets the values that depend on the plan.
func (d *fileData) fill(p *plan.Plan) {
	d.Ranks = len(p.Ranks)
	d.Rate = carriedRate(d.Ranks)
	if d.With["roce"] { // in userspace a byte costs about twice the processor time
		d.Rate = carriedRate(2 * d.Ranks)
	}
	d.Link = p.Nodes[0].NICs[0].Link
	d.BusBW = d.Rate / 10
	// A queue pair may have 512 KiB under way, which takes a fifth of this time.
	d.Timeout = 20 * time.Second / time.Duration(d.Rate)
	// A ring and a hierarchical all-reduce send 2(n-1)/n of the size. n is the number of ranks or, along
	// a rail, of nodes, and each rail has its part of the size.
	n := max(1, d.Ranks/d.PerNode)
	each := 2 * uint64(size) * uint64(n-1) / uint64(n) / uint64(d.PerNode)
	if d.With["fault"] {
		const bits = 3_000_000 // in 3 s, for each Mbit/s
		d.Iterations = max(d.Iterations, int(uint64(bits*d.Rate)/(8*max(each, 1)))+1)
	}
	// A packet of 9,000 bytes, or of RoCE's path MTU 4096, is seen at two NICs and two ports of a switch, or
	// more. So the fault begins with the first iteration behind the warm-up, or before. A larger number would
	// have to follow the number of iterations.
	d.Each, d.Payload = each, 8948
	if d.With["roce"] {
		d.Payload = 4096
	}
	const sightings = 4
	d.Event = max(1, each*uint64(d.Ranks)*sightings/d.Payload/100) * 100
	const warmup = 1
	d.Sent = each * uint64(d.PerNode) * uint64(d.Iterations+warmup)
	d.Bound = d.Sent + d.Sent/10
	ports := 0
	for _, sw := range p.Switches {
		ports = max(ports, len(sw.Ports))
	}
	const portsPerMB = 8 // of xoff and headroom: about 120 KB for each port
	d.Buffer = max(d.Buffer, (ports+portsPerMB-1)/portsPerMB)
}
