package infiniband

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"testing"
)

// TestFolded compares the CRC by shifts with the standard library's, from any state and at any
// alignment. It tries every length up to several times foldedInto, and the lengths of packets.
func TestFolded(t *testing.T) {
	if got := ^folded(^uint32(0), []byte("123456789")); got != 0xCBF43926 { // its check value
		t.Errorf("123456789 has %#x", got)
	}
	random := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, 4200)
	for n := 0; n <= 4096; n += 1 + n/300*n/300 {
		from := random.IntN(9)
		part := b[from : from+n]
		for i := range part {
			part[i] = byte(random.Uint32())
		}
		state := random.Uint32()
		if got, want := folded(state, part), ^crc32.Update(^state, crc32.IEEETable, part); got != want {
			t.Fatalf("%d bytes from %d on: %#x, want %#x", n, from, got, want)
		}
	}
}

// BenchmarkCRC is a payload's CRC by each way, of which packets take the faster one.
func BenchmarkCRC(b *testing.B) {
	for _, size := range []int{256, 1024, 4096} {
		payload := make([]byte, size)
		for name, update := range map[string]func(uint32, []byte) uint32{"standard": standard,
			"folded": folded, "fastest": fastest()} {
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				b.SetBytes(int64(size))
				for crc := uint32(0); b.Loop(); {
					crc = update(crc, payload)
				}
			})
		}
	}
}
