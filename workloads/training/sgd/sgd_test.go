package sgd

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"railbed/testkit/hosttest"
)

// The code under test has one goroutine, so that nothing could race.
var _ = hosttest.MarkPackage(hosttest.Unraced)

var small = Config{Hidden: []int{32}, Batch: 16, Rate: 0.1, Momentum: 0.9, Seed: 7}

// TestGradientIsTheDerivative compares each layer's gradient with differences of the loss.
func TestGradientIsTheDerivative(t *testing.T) {
	c := Config{Hidden: []int{9, 7}, Batch: 4, Seed: 3}
	r := New(c, 1)
	gradient, scratch := make([]float32, c.Parameters()), make([]float32, c.Parameters())
	r.Gradient(5, gradient)
	const h = 2e-3
	draw := rand.New(rand.NewPCG(1, 2))
	for at := 0; at < len(r.weights); at += 1 + draw.IntN(20) {
		was := r.weights[at]
		r.weights[at] = was + h
		above := r.Gradient(5, scratch)
		r.weights[at] = was - h
		below := r.Gradient(5, scratch)
		r.weights[at] = was
		// At the corners of the rectifiers the two differ by more than rounding.
		if want := (above - below) / (2 * h); math.Abs(want-float64(gradient[at])) > 0.002+0.05*math.Abs(
			want) {
			t.Errorf("weight %d: gradient %v, difference %v", at, gradient[at], want)
		}
	}
}

// train runs ranks in step. Each exchange gives all of them the same mean.
func train(t *testing.T, c Config, ranks, steps int,
	exchange func(step int, gradients [][]float32, mean []float32)) (loss, accuracy float64) {
	t.Helper()
	replicas, gradients := make([]*Replica, ranks), make([][]float32, ranks)
	for i := range replicas {
		replicas[i], gradients[i] = New(c, i), make([]float32, c.Parameters())
	}
	mean := make([]float32, c.Parameters())
	for step := range steps {
		for i, r := range replicas {
			r.Gradient(step, gradients[i])
		}
		exchange(step, gradients, mean)
		for _, r := range replicas {
			r.Apply(mean)
		}
		for i, r := range replicas {
			if r.Digest() != replicas[0].Digest() {
				t.Fatalf("step %d: replica %d differs from replica 0", step, i)
			}
		}
	}
	return replicas[0].Evaluate()
}

// plain computes the mean itself.
func plain(_ int, gradients [][]float32, mean []float32) {
	clear(mean)
	for _, g := range gradients {
		for i, v := range g {
			mean[i] += v / float32(len(gradients))
		}
	}
}

// coded computes the mean through codecs.
func coded(codecs []Codec) func(int, [][]float32, []float32) {
	return func(_ int, gradients [][]float32, mean []float32) {
		size := codecs[0].Len()
		messages := make([]byte, size*len(gradients))
		for i, g := range gradients {
			codecs[i].Encode(g, messages[i*size:(i+1)*size])
		}
		codecs[0].Decode(messages, mean)
		for i := range mean {
			mean[i] /= float32(len(gradients))
		}
	}
}

// TestTraining checks that the network learns, and the effects of the codecs and the mask.
func TestTraining(t *testing.T) {
	const ranks, steps = 3, 120
	n := small.Parameters()
	before, _ := New(small, 0).Evaluate()
	loss, accuracy := train(t, small, ranks, steps, plain)
	t.Logf("loss %.3f, then %.3f, accuracy %.2f", before, loss, accuracy)
	if before < 2 || loss > 0.5 || accuracy < 0.85 {
		t.Errorf("loss %.3f before and %.3f after, accuracy %.2f", before, loss, accuracy)
	}
	again, _ := train(t, small, ranks, steps, plain)
	if again != loss {
		t.Errorf("the second time the loss is %v, the first time %v", again, loss)
	}
	make3 := func(codec func() Codec) []Codec { return []Codec{codec(), codec(), codec()} }
	for name, codecs := range map[string][]Codec{
		"top 5%": make3(func() Codec { return NewTopK(n, 0.05) }),
		"8 bits": make3(func() Codec { return NewQuantised(n, 8) }),
		"2 bits": make3(func() Codec { return NewQuantised(n, 2) }),
	} {
		with, _ := train(t, small, ranks, steps, coded(codecs))
		t.Logf("%s: %d bytes of %d, loss %.3f", name, codecs[0].Len(), 4*n, with)
		if with > 2*loss+0.1 {
			t.Errorf("%s: loss %.3f, without %.3f", name, with, loss)
		}
	}
	masks := make([]*Mask, ranks)
	for i := range masks {
		masks[i] = newMask(t, i, ranks)
	}
	sealed, sum := make([]int32, n), make([]int32, n)
	masked, _ := train(t, small, ranks, steps, func(step int, gradients [][]float32, mean []float32) {
		clear(sum)
		for i, g := range gradients {
			if clipped, err := masks[i].Seal(step, g, sealed); clipped > 0 || err != nil {
				t.Fatal(clipped, err)
			}
			for j, v := range sealed {
				sum[j] += v
			}
		}
		masks[step%ranks].Open(step, sum, mean)
		for i := range mean {
			mean[i] /= ranks
		}
	})
	if math.Abs(masked-loss) > 0.01 {
		t.Errorf("encrypted the loss is %.4f, plain %.4f", masked, loss)
	}
}

// TestCodecsForgetNothing checks that the sum of all messages and of the rest equals the sum of all
// gradients.
func TestCodecsForgetNothing(t *testing.T) {
	const n = 1000
	draw := rand.New(rand.NewPCG(4, 5))
	quant, top := NewQuantised(n, 4).(*quantised), NewTopK(n, 0.03).(*topK)
	for _, c := range []struct {
		codec Codec
		left  residual
		bytes int
	}{{quant, quant.left, 4 * (4 + 128)}, {top, top.left, 30 * 8}} {
		said, wanted := make([]float64, n), make([]float64, n)
		gradient, sum, message := make([]float32, n), make([]float32, n), make([]byte, c.codec.Len())
		if len(message) != c.bytes {
			t.Errorf("%T: messages of %d bytes, want %d", c.codec, len(message), c.bytes)
		}
		for range 50 {
			for i := range gradient {
				gradient[i] = float32(draw.NormFloat64() * math.Exp(float64(i%7)))
				wanted[i] += float64(gradient[i])
			}
			c.codec.Encode(gradient, message)
			c.codec.Decode(message, sum)
			for i, v := range sum {
				said[i] += float64(v)
			}
		}
		for i := range said {
			if diff := said[i] + float64(c.left[i]) - wanted[i]; math.Abs(diff) > 1e-2 {
				t.Errorf("%T, element %d: %v said and %v left of %v", c.codec, i, said[i], c.left[i],
					wanted[i])
			}
		}
	}
}

// TestCodes compares messages with messages worked out by hand.
func TestCodes(t *testing.T) {
	message := make([]byte, 16)
	top := NewTopK(5, 0.4)
	top.Encode([]float32{1, -3, 2, 3, 0}, message)
	if want := []byte{1, 0, 0, 0, 0, 0, 0x40, 0xc0, 3, 0, 0, 0, 0, 0, 0x40, 0x40}; !bytes.Equal(message,
		want) {
		t.Errorf("top 2 are %x, want %x", message, want)
	}
	sum := make([]float32, 5)
	top.Decode(append(message, message...), sum)
	if !slices.Equal(sum, []float32{0, -6, 0, 6, 0}) {
		t.Errorf("twice the top 2 are %v", sum)
	}
	top.Encode(make([]float32, 5), message) // the part that was left out comes now
	top.Decode(message, sum)
	if !slices.Equal(sum, []float32{1, 0, 2, 0, 0}) {
		t.Errorf("the next top 2 are %v", sum)
	}
	top.Decode(bytes.Repeat([]byte{0xff}, 17), sum) // invalid indices
	if !slices.Equal(sum, make([]float32, 5)) {
		t.Errorf("places that are none give %v", sum)
	}

	for bits, want := range map[int][]float32{8: {7, -1.984252, 0.496063, 0}, 4: {7, -2, 0, 0},
		2: {7, 0, 0, 0}} {
		q := NewQuantised(4, bits)
		message := make([]byte, q.Len())
		q.Encode([]float32{7, -2, 0.48, 0}, message)
		q.Decode(message, sum[:4])
		for i := range want {
			if math.Abs(float64(sum[i]-want[i])) > 1e-5 {
				t.Errorf("%d bits: %v, want %v", bits, sum[:4], want)
			}
		}
	}
}

func newMask(t *testing.T, rank, ranks int) *Mask {
	t.Helper()
	m, err := NewMask([]byte("of this test"), rank, ranks)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestMask checks that the sum of all sealed gradients can be opened and that any sum of fewer
// looks like noise. No key stream is used twice.
func TestMask(t *testing.T) {
	const n = 4096
	for _, ranks := range []int{1, 2, 5} {
		sealed := make([][]int32, ranks)
		for i := range sealed {
			sealed[i] = make([]int32, n)
			if _, err := newMask(t, i, ranks).Seal(9, slices.Repeat([]float32{0.25}, n),
				sealed[i]); err != nil {
				t.Fatal(err)
			}
		}
		for subset := 1; subset < 1<<ranks; subset++ {
			sum, ones := make([]int32, n), 0
			for i := range sealed {
				for j := range sum {
					sum[j] += sealed[i][j] * int32(subset>>i&1)
				}
			}
			for _, v := range sum {
				for bit := range 32 {
					ones += int(v >> bit & 1)
				}
			}
			// Of n*32 fair coins; six standard deviations are sqrt(n*32)/2*6.
			if math.Abs(float64(ones)-n*16) > 6*math.Sqrt(n*8) {
				t.Errorf("%d ranks: the sum of %b has %d ones of %d", ranks, subset, ones, n*32)
			}
			opened := make([]float32, n)
			newMask(t, 0, ranks).Open(9, slices.Clone(sum), opened)
			opens := opened[0] == 0.25*float32(ranks) && opened[n-1] == opened[0]
			if all := subset == 1<<ranks-1; all != opens {
				t.Errorf("%d ranks: the sum of %b opens to %v", ranks, subset, opened[0])
			}
		}
	}
	m := newMask(t, 1, 3)
	first, second := make([]int32, n), make([]int32, n)
	zero := make([]float32, n)
	if _, err := m.Seal(0, zero, first); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Seal(0, zero, second); err == nil {
		t.Error("a step was sealed twice")
	}
	if _, err := m.Seal(1, zero, second); err != nil || slices.Equal(first[:n/2], second[:n/2]) ||
		slices.Equal(first[4:], second[:n-4]) {
		t.Error("two steps have the same key stream", err)
	}
	huge := []float32{1e9, -1e9, float32(math.NaN()), float32(math.Inf(-1)), 1}
	if clipped, err := m.Seal(2, huge, make([]int32, 5)); clipped != 4 || err != nil {
		t.Errorf("%d of %v were taken as less, %v", clipped, huge, err)
	}
}
