package evidence

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// The reader of RoCEv2 takes any bytes, cut anywhere.
func FuzzRoCE(f *testing.F) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 8 {
		b := make([]byte, 600)
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var r RoCE
		r.read(b, len(b))
		if len(b) > 2 {
			r.read(slices.Clip(b[:len(b)-2]), len(b))
		}
	})
}
