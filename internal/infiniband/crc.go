package infiniband

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"sync"
	"time"
)

// tables are the CRC's tables for the bytes of a word; the first is for the word's last byte.
var tables = makeTables()

func makeTables() (t [4]crc32.Table) {
	t[0] = *crc32.IEEETable
	for i := range t[0] {
		for k := range 3 {
			c := t[k][i]
			t[k+1][i] = t[0][byte(c)] ^ c>>8
		}
	}
	return t
}

// word advances the state of a CRC over the four bytes that were already added to it.
func word(crc uint32) uint32 {
	return tables[3][byte(crc)] ^ tables[2][byte(crc>>8)] ^ tables[1][byte(crc>>16)] ^ tables[0][crc>>24]
}

// masked advances the state of a CRC over words with some bits set. It does not use crc32.Update,
// because its argument, a copy of the headers, would escape to the heap.
func masked(crc uint32, b []byte, mask []uint32) uint32 {
	b = b[:4*len(mask)]
	for i, bits := range mask {
		crc = word(crc ^ (binary.LittleEndian.Uint32(b[4*i:]) | bits))
	}
	return crc
}

// standard advances the state of a CRC, by carry-less multiplication or tables.
func standard(crc uint32, b []byte) uint32 { return ^crc32.Update(^crc, crc32.IEEETable, b) }

// foldedInto is the number of bytes after a word that the word is folded into.
const foldedInto = 5 * 8

// folded advances the state of a CRC by shifts alone. A multiple of the CRC's polynomial has only
// five terms, x^300 + x^155 + x^117 + x^89 + 1. So a bit is equivalent to four bits, 145, 183, 211
// and 300 positions after it (S. Russell, Chorba, arXiv 2412.16398, with the mirror image of this
// polynomial). It takes 0.4 times as long as tables.
func folded(crc uint32, b []byte) uint32 {
	if len(b) >= foldedInto {
		// The bits already folded into the next five words.
		n1, n2, n3, n4, n5 := uint64(crc), uint64(0), uint64(0), uint64(0), uint64(0)
		for ; len(b) >= 8+foldedInto; b = b[8:] {
			w := binary.LittleEndian.Uint64(b) ^ n1
			n1, n2, n3, n4, n5 = n2, n3^w<<17^w<<55, n4^w>>47^w>>9^w<<19, n5^w>>45^w<<44, w>>20
		}
		crc = 0
		for _, n := range [...]uint64{n1, n2, n3, n4, n5} {
			w := binary.LittleEndian.Uint64(b) ^ n
			crc = word(word(crc^uint32(w)) ^ uint32(w>>32))
			b = b[8:]
		}
	}
	for ; len(b) >= 4; b = b[4:] {
		crc = word(crc ^ binary.LittleEndian.Uint32(b))
	}
	for _, one := range b {
		crc = tables[0][byte(crc)^one] ^ crc>>8
	}
	return crc
}

// fastest is the faster of the two on this processor, by measurement. An emulated processor (QEMU's
// without KVM) may have the instruction for carry-less multiplication and take longer for it than
// for any other.
var fastest = sync.OnceValue(func() func(crc uint32, b []byte) uint32 {
	if took(folded) < took(standard) {
		return folded
	}
	return standard
})

// took returns the least of several times for a payload.
func took(update func(crc uint32, b []byte) uint32) time.Duration {
	b := make([]byte, 4096)
	least, crc := time.Duration(math.MaxInt64), uint32(0)
	for range 8 {
		start := time.Now()
		crc = update(crc, b)
		least = min(least, time.Since(start))
	}
	return least
}
