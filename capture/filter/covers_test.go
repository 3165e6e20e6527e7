package filter

import (
	"math/rand/v2"
	"slices"
	"testing"

	"golang.org/x/net/bpf"
)

func TestCovers(t *testing.T) {
	roce := Transport(protoUDP, 0, 4791)
	for _, test := range []struct {
		expression string
		patterns   []Pattern
		want       bool
	}{
		{"", nil, true},
		{"udp", nil, false},
		{"", roce, true},
		{"udp", roce, true},
		{"udp port 4791", roce, true},
		{"udp dst port 4791", roce, true},
		{"udp src port 4791", roce, false},
		{"udp portrange 4000-5000", roce, true},
		{"udp portrange 4000-4790", roce, false},
		{"ip or ip6", roce, true},
		{"ip", roce, false},
		{"ip and udp", Transport(protoUDP, 0, 4791)[:1], true},
		{"tcp or udp", roce, true},
		{"not tcp", roce, true},
		{"not udp", roce, false},
		{"udp and host 10.0.0.1", roce, false},
		{"net 0.0.0.0/0 or ip6", roce, true},
		{"udp[2:2] = 4791", roce[:1], true},
		{"len >= 60", roce, false},
		{"inbound", roce, false},
		{"tcp", Transport(protoTCP, 7000, 0), true},
		{"tcp port 7000", Transport(protoTCP, 7000, 0), true},
		{"tcp dst port 7000", Transport(protoTCP, 7000, 0), false},
		{"ip proto 17 or ip6 proto 17", roce, true},
		{"this is no filter", roce, false},
	} {
		if got := Covers(test.expression, test.patterns); got != test.want {
			t.Errorf("Covers(%q) is %t, want %t", test.expression, got, test.want)
		}
	}
}

// A filter that covers a pattern takes every packet of it, whatever stands in the
// bytes that the pattern leaves open.
func TestCoversAgainstMachine(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	frames := corpus(t)
	frames = slices.DeleteFunc(frames, func(f []byte) bool { return len(f) < 14 })
	covered, machines := 0, map[string]*bpf.VM{}
	for range 20000 {
		expression := expressions[random.IntN(len(expressions))]
		frame := frames[random.IntN(len(frames))]
		p := Pattern{Bytes: frame, Known: make([]byte, len(frame))}
		for i := range p.Known {
			if i < 60 || random.IntN(2) == 0 {
				p.Known[i] = 0xFF
			}
		}
		for range random.IntN(4) {
			p.Known[random.IntN(min(60, len(frame)))] = byte(random.IntN(256))
		}
		if !Covers(expression, []Pattern{p}) {
			continue
		}
		covered++
		vm := machines[expression]
		if vm == nil {
			instructions, err := compile(expression, 1)
			if err != nil {
				t.Fatal(err)
			}
			vm = machine(t, instructions)
			machines[expression] = vm
		}
		for range 20 {
			packet := slices.Clone(frame)
			for i := range packet {
				packet[i] = packet[i]&p.Known[i] | byte(random.Uint32())&^p.Known[i]
			}
			if taken, err := vm.Run(packet); err != nil || taken == 0 {
				t.Fatalf("%q covers a pattern and leaves out %x of it (%v)", expression, packet, err)
			}
		}
	}
	if covered < 1000 {
		t.Errorf("%d pairs of 20,000 are covered: too few to say anything", covered)
	}
}
