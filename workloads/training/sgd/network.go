package sgd

import "math"

// layer is a fully connected layer: values = weights * input + bias, by rows. A rectifier follows
// each layer except the last, which softmax follows.
type layer struct {
	in, out       int
	weights, bias []float32 // slices of the replica's weights
	values        []float32 // of the latest sample
	errors        []float32 // derivatives of the loss with respect to the values
}

// forward returns the probabilities of the classes.
func (r *Replica) forward(s *sample) []float32 {
	input := s.pixels[:]
	for i := range r.layers {
		l := &r.layers[i]
		for j := range l.values {
			sum := l.bias[j]
			for k, w := range l.weights[j*l.in : (j+1)*l.in] {
				sum += w * input[k]
			}
			if i < len(r.layers)-1 {
				sum = max(sum, 0)
			}
			l.values[j] = sum
		}
		input = l.values
	}
	softmax(input)
	return input
}

func softmax(values []float32) {
	most := values[0]
	for _, v := range values {
		most = max(most, v)
	}
	var sum float32
	for i, v := range values {
		values[i] = float32(math.Exp(float64(v - most)))
		sum += values[i]
	}
	for i := range values {
		values[i] /= sum
	}
}

func crossEntropy(probabilities []float32, class int) float64 {
	return -math.Log(max(float64(probabilities[class]), math.SmallestNonzeroFloat32))
}

// backward adds a sample's gradient, which has the layout of the weights, and returns its loss.
func (r *Replica) backward(s *sample, gradient []float32) float64 {
	out := r.forward(s)
	loss := crossEntropy(out, s.class)
	last := &r.layers[len(r.layers)-1]
	copy(last.errors, out)
	last.errors[s.class]--
	end := len(gradient)
	for i := len(r.layers) - 1; i >= 0; i-- {
		l := &r.layers[i]
		own := gradient[end-l.in*l.out-l.out : end]
		end -= len(own)
		input := s.pixels[:]
		var below []float32
		if i > 0 {
			input, below = r.layers[i-1].values, r.layers[i-1].errors
			clear(below)
		}
		bias := own[l.in*l.out:]
		for j, e := range l.errors {
			if e == 0 {
				continue // the rectifier has the value 0 here
			}
			bias[j] += e
			row := own[j*l.in : (j+1)*l.in]
			for k, x := range input {
				row[k] += e * x
			}
			for k := range below {
				below[k] += e * l.weights[j*l.in+k]
			}
		}
		for k := range below {
			if input[k] == 0 {
				below[k] = 0
			}
		}
	}
	return loss
}
