package rate

import (
	_ "embed"
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"railbed/internal/clock"
)

// The network of a Policy: inputs, two hidden layers, outputs.
const (
	policyInputs  = 8
	policyHidden  = 16
	policyOutputs = 2
	// policyWeights is how many weights a Policy has, biases included.
	policyWeights = (policyInputs+1)*policyHidden + (policyHidden+1)*policyHidden +
		(policyHidden+1)*policyOutputs
)

// Policy holds the weights of a neural network of three layers: for each neuron its bias, and a
// weight for each input. The activation is the hyperbolic tangent.
type Policy [policyWeights]float32

// trained holds the weights that testkit/arena/train found: PolicyWeights numbers of IEEE
// 754's binary32, big-endian.
//
//go:embed learned.weights
var trained []byte

// Trained is the policy that training has found.
func Trained() *Policy {
	p, err := ReadPolicy(trained)
	if err != nil {
		panic(err) // it is part of the program, and a test reads it
	}
	return p
}

// ReadPolicy reads weights as Bytes writes them.
func ReadPolicy(b []byte) (*Policy, error) {
	if len(b) != 4*policyWeights {
		return nil, fmt.Errorf("read policy: %d bytes, want %d", len(b), 4*policyWeights)
	}
	p := &Policy{}
	for i := range p {
		p[i] = math.Float32frombits(binary.BigEndian.Uint32(b[4*i:]))
		if w := float64(p[i]); math.IsNaN(w) || math.IsInf(w, 0) {
			return nil, fmt.Errorf("read policy: weight %d is %v, want a finite number", i, w)
		}
	}
	return p, nil
}

// Bytes returns the weights, encoded for ReadPolicy.
func (p *Policy) Bytes() []byte {
	b := make([]byte, 0, 4*policyWeights)
	for _, w := range p {
		b = binary.BigEndian.AppendUint32(b, math.Float32bits(w))
	}
	return b
}

// Begin returns the policy at which training begins. It is a control law set by hand, plus noise in
// all weights, drawn from normal. The law shrinks the window by how far the delay exceeds its
// target. The noise gives training directions to explore.
func Begin(normal func() float64) *Policy {
	p := &Policy{}
	for i := range p {
		p[i] = float32(normal() * 0.1)
	}
	const second = (policyInputs + 1) * policyHidden
	const out = second + (policyHidden+1)*policyHidden
	p[0], p[1] = -0.4, 0.5 // the first neuron gets the delay
	p[second], p[second+1] = 0, 1
	p[out], p[out+1] = 0, -1
	p[out+policyHidden+1] = 0.2
	return p
}

// ask returns the network's outputs for inputs.
func (p *Policy) ask(in *[policyInputs]float32) (out [policyOutputs]float32) {
	var first, second [policyHidden]float32
	rest := layer(p[:], in[:], first[:])
	rest = layer(rest, first[:], second[:])
	layer(rest, second[:], out[:])
	return out
}

// layer computes a layer, and returns the weights after its own.
func layer(weights, in, out []float32) []float32 {
	for i := range out {
		sum := weights[0]
		for k, x := range in {
			sum += weights[1+k] * x
		}
		weights = weights[1+len(in):]
		out[i] = float32(math.Tanh(float64(sum)))
	}
	return weights
}

// Learned is a window that a trained policy controls. Once each round trip the policy gets delay,
// marks, losses and throughput. It outputs a factor for the window, from a half to two, and an
// increment of at most half a packet. It has the same inputs from the network as NSCC, and keeps to
// NSCC's bounds.
type Learned struct {
	Line
	policy *Policy
	limits *NSCC // keeps base, target and bounds

	window           float64
	began            clock.Time
	delays           time.Duration // sum over the period's acknowledgements
	shortest, before time.Duration // shortest delay of the period; mean of the period before
	acks             int
	bytes, lost      int
	packets, marked  int
}

// NewLearned makes a controller that evaluates a policy.
func NewLearned(p *Policy, o NSCCOptions) *Learned {
	l := &Learned{policy: p, limits: NewNSCC(o)}
	var in [policyInputs]float32
	in[7] = 1 // nothing is measured yet
	out := p.ask(&in)
	l.window = l.limits.bdp * math.Exp2(float64(2*out[0]))
	l.bound()
	l.forget(0)
	return l
}

func (l *Learned) bound() {
	l.window = min(max(l.window, float64(l.limits.o.Packet)), l.limits.most)
}

// Allowed implements Controller.
func (l *Learned) Allowed(clock.Time) Allowance { return Allowance{Window: int(l.window)} }

// Window is the present window in bytes.
func (l *Learned) Window() int { return int(l.window) }

// Lost implements Controller.
func (l *Learned) Lost(_ clock.Time, loss Loss) { l.lost += loss.Bytes }

// Acked implements Controller.
func (l *Learned) Acked(now clock.Time, a Ack) {
	if n := l.limits; a.Trip > 0 && (!n.known || a.Trip < n.base) {
		n.known = true
		n.trip(a.Trip)
	}
	if a.Trip > 0 {
		delay := max(a.Trip-l.limits.base, 0)
		l.delays += delay
		l.shortest = min(l.shortest, delay)
		l.acks++
	}
	l.bytes += a.Bytes
	l.packets += a.Echoed
	l.marked += a.Marked
	if l.began == 0 {
		l.began = now
	}
	if l.acks == 0 || now.Sub(l.began) < l.limits.base {
		return
	}
	mean := l.delays / time.Duration(l.acks)
	ratio := func(d time.Duration) float32 { return float32(d) / float32(l.limits.target) }
	in := [policyInputs]float32{
		min(ratio(mean), 4),
		min(ratio(l.shortest), 4),
		max(min(ratio(mean-l.before), 2), -2),
		float32(l.marked) / float32(max(l.packets, 1)),
		float32(l.lost) / float32(max(l.lost+l.bytes, 1)),
		float32(math.Log2(l.window/l.limits.bdp)) / 4,
		min(float32(l.bytes)/float32(l.window), 2),
		0,
	}
	out := l.policy.ask(&in)
	l.window = l.window*math.Exp2(float64(out[0])) + float64(out[1])*float64(l.limits.o.Packet)/2
	l.bound()
	l.before = mean
	l.forget(now)
}

// forget begins a period.
func (l *Learned) forget(now clock.Time) {
	l.began, l.delays, l.shortest = now, 0, time.Hour
	l.acks, l.bytes, l.lost, l.packets, l.marked = 0, 0, 0, 0, 0
}
