package sgd

import "math/rand/v2"

// The data are images of the ten digits on a seven-segment display. Each digit has any position in
// the image, any brightness, and noise.
const (
	wide, high = 7, 11
	// inputs is the number of pixels of an image. Classes is the number of digits.
	inputs, classes = wide * high, 10
	// digitWide and digitHigh are the size of a digit in pixels.
	digitWide, digitHigh = 5, 9
	noise                = 0.25
)

// Streams of random numbers from one seed.
const (
	weightStream = 1 << 62
	heldStream   = 1 << 63
)

// sampleStream returns the stream of a rank's samples in a step.
func sampleStream(rank, step int) uint64 { return uint64(rank)<<32 | uint64(step) }

// segments has a bit for each lit segment: top, upper left, upper right, middle, lower left, lower
// right, bottom.
var segments = [classes]byte{0x77, 0x24, 0x5d, 0x6d, 0x2e, 0x6b, 0x7b, 0x25, 0x7f, 0x6f}

// strokes holds the pixels of the segments, relative to the corner of the digit.
var strokes = [7]struct{ x, y, wide, high int }{
	{0, 0, digitWide, 1}, {0, 0, 1, 5}, {digitWide - 1, 0, 1, 5}, {0, 4, digitWide, 1},
	{0, 4, 1, 5}, {digitWide - 1, 4, 1, 5}, {0, digitHigh - 1, digitWide, 1},
}

// sample is an image and its digit.
type sample struct {
	class  int
	pixels [inputs]float32
}

func newSample(draw *rand.Rand) sample {
	s := sample{class: draw.IntN(classes)}
	left, top := draw.IntN(wide-digitWide+1), draw.IntN(high-digitHigh+1)
	bright := 0.5 + draw.Float32()
	for i, stroke := range strokes {
		if segments[s.class]>>i&1 == 0 {
			continue
		}
		for y := range stroke.high {
			for x := range stroke.wide {
				s.pixels[(top+stroke.y+y)*wide+left+stroke.x+x] = bright
			}
		}
	}
	for i := range s.pixels {
		s.pixels[i] += float32(draw.NormFloat64() * noise)
	}
	return s
}
