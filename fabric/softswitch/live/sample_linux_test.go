package live

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"golang.org/x/net/bpf"
)

// machine is the kernel's filter of a share, run by x/net's BPF machine.
func machine(t *testing.T, mask uint32) *bpf.VM {
	t.Helper()
	var instructions []bpf.Instruction
	for _, one := range monitorFilter(mask) {
		raw := bpf.RawInstruction{Op: one.Code, Jt: one.Jt, Jf: one.Jf, K: one.K}
		instructions = append(instructions, raw.Disassemble())
	}
	vm, err := bpf.NewVM(instructions)
	if err != nil {
		t.Fatal(err)
	}
	return vm
}

// frameOf is a frame of a transport whose bytes behind the IP header are random.
func frameOf(random *rand.Rand, v6 bool, proto byte, length int) []byte {
	frame := make([]byte, length)
	for i := range frame {
		frame[i] = byte(random.Uint32())
	}
	if v6 {
		copy(frame[12:], []byte{0x86, 0xDD, 0x60})
		frame[20] = proto
	} else {
		copy(frame[12:], []byte{0x08, 0x00, 0x45})
		frame[23] = proto
	}
	return frame
}

// The kernel's filter and the switch choose the same frames, whatever they are.
func TestFilterChoosesAsTheSwitchDoes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	protocols := []byte{protoTCP, protoUDP, protoICMP, protoICMPv6, 132}
	for _, mask := range shares {
		vm := machine(t, mask)
		chosen := 0
		for range 20000 {
			length := 60 + random.IntN(100)
			if random.IntN(10) == 0 {
				length = 34 + random.IntN(40) // some end within their headers
			}
			frame := frameOf(random, random.IntN(2) == 0, protocols[random.IntN(len(protocols))], length)
			switch random.IntN(8) {
			case 0:
				frame[14]++ // IPv4 with options, or another traffic class
			case 1: // no checksum: a RoCE frame
				for _, at := range []int{40, 60} {
					if at+2 <= len(frame) {
						frame[at], frame[at+1] = 0, 0
					}
				}
			case 2:
				frame[12] = 0x81 // a tag
			}
			kept, err := vm.Run(frame)
			if err != nil {
				t.Fatal(err)
			}
			if (kept > 0) != watched(frame, mask) || kept > 0 && kept != snapBytes {
				t.Fatalf("mask %d: the filter keeps %d bytes, the switch says %v, of % x", mask, kept,
					watched(frame, mask), frame)
			}
			if kept > 0 {
				chosen++
			}
		}
		if chosen == 0 {
			t.Errorf("mask %d: nothing chosen", mask)
		}
	}
}

// Checksums that increase in steps, as in a stream of equal segments, are still chosen in the
// requested share.
func TestShareOfStreams(t *testing.T) {
	frame := frameOf(rand.New(rand.NewPCG(3, 4)), false, protoTCP, 100)
	for _, step := range []uint32{1, 2, 4, 16, 64, 1448, 8948} {
		const frames = 1 << 16
		chosen := 0
		for i := range uint32(frames) {
			sum := i * step
			sum = sum>>16 + sum&0xFFFF // as the sum of a longer and longer number
			binary.BigEndian.PutUint16(frame[50:], ^uint16(sum))
			if watched(frame, 63) {
				chosen++
			}
		}
		if share := float64(chosen) / frames; share < 0.5/64 || share > 2./64 {
			t.Errorf("step %d: %d of %d frames chosen, want 1 of 64", step, chosen, frames)
		}
	}
}

func TestKeysDiffer(t *testing.T) {
	frame := frameOf(rand.New(rand.NewPCG(5, 6)), false, protoTCP, 200)
	key := keyOf(frame)
	for bit := range 8 * keyBytes {
		frame[bit/8] ^= 1 << (bit % 8)
		if keyOf(frame) == key {
			t.Errorf("bit %d does not change the key", bit)
		}
		frame[bit/8] ^= 1 << (bit % 8)
	}
	frame[keyBytes]++
	if keyOf(frame) != key || keyOf(frame[:keyBytes]) != key {
		t.Error("bytes that the kernel does not keep change the key")
	}
	if keyOf(frame[:60]) == keyOf(frame[:61]) {
		t.Error("the length does not change the key of a short frame")
	}
}

// BenchmarkRelease measures the cost of sampling for the timing thread, for each frame.
func BenchmarkRelease(b *testing.B) {
	for _, mask := range shares {
		b.Run(fmt.Sprintf("of=%d", mask+1), func(b *testing.B) {
			w := newTestMonitor()
			w.nics[0].share.Store(mask)
			frame := frameOf(rand.New(rand.NewPCG(9, 10)), false, protoTCP, 1514)
			b.ReportAllocs()
			for i := range uint64(b.N) {
				binary.BigEndian.PutUint16(frame[50:], uint16(i))
				w.release(0, frame, int64(i))
				w.dues.tail.Store(w.dues.head.Load()) // as if they had been matched
			}
		})
	}
}
