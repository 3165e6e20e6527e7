package wire

import (
	"math/rand/v2"
	"testing"
)

// RFC 1071, 3: the sum of these eight bytes is ddf2.
func TestSumOfRFC1071(t *testing.T) {
	b := []byte{0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7}
	equal(t, "sum", Sum(b, 0), 0xddf2)
	equal(t, "sum in pieces", Sum(b[6:], Sum(b[:6], 0)), 0xddf2)
	equal(t, "checksum", Checksum(b), 0x220d)
}

// RFC 1624, 4: the update of RFC 1141 gives FFFF here, the right one is 0000.
func TestUpdateOfRFC1624(t *testing.T) {
	equal(t, "checksum", UpdateChecksum(0xDD2F, 0x5555, 0x3285), 0x0000)
}

// slowSum is RFC 1071 in the words of its section 4.1: 16 bits at a time.
func slowSum(b []byte, initial uint16) uint16 {
	sum := uint64(initial)
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint64(b[i])<<8 + uint64(b[i+1])
	}
	if len(b)%2 == 1 {
		sum += uint64(b[len(b)-1]) << 8
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return uint16(sum)
}

func TestSumAgainstRFC1071Code(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 2))
	for length := range 200 {
		for round := range 50 {
			b := make([]byte, length)
			for i := range b {
				b[i] = byte(draw.Uint32())
				if round%3 == 0 {
					b[i] = 0xff // all carries
				}
			}
			initial := uint16(draw.Uint32())
			if round%5 == 0 {
				initial = 0 // the last addition carries
			}
			if got, want := Sum(b, initial), slowSum(b, initial); got != want {
				t.Fatalf("sum of %x from %x is %x, want %x", b, initial, got, want)
			}
			if length < 2 {
				continue
			}
			at, word := 2*draw.IntN(length/2), uint16(draw.Uint32())
			before, old := ^slowSum(b, 0), uint16(b[at])<<8|uint16(b[at+1])
			b[at], b[at+1] = byte(word>>8), byte(word)
			got, want := UpdateChecksum(before, old, word), ^slowSum(b, 0)
			// Data of zeros alone have the checksum FFFF; an update gives 0000,
			// which is the same number in one's complement.
			if got != want && !(got == 0 && want == 0xffff) {
				t.Fatalf("update of %x from %x to %x is %x, want %x", before, old, word, got, want)
			}
		}
	}
}

func BenchmarkSum1500(b *testing.B) {
	data := make([]byte, 1500)
	b.SetBytes(1500)
	b.ReportAllocs()
	for b.Loop() {
		data[0] = byte(Sum(data, 0))
	}
}
