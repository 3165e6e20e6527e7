package infiniband

import "time"

const (
	// Port is the UDP destination port of RoCEv2 packets (Annex A17.3.1, IANA roce).
	Port = 4791
	// PKey is the default partition's key, with full membership (10.9.1.1).
	PKey = 0xFFFF
	// MaxMessage is the longest message in bytes (9.7.8).
	MaxMessage = 1 << 31
)

// QPN is the number of a queue pair: 24 bits.
type QPN uint32

// QPNs with a fixed meaning (3.9.2), and the largest.
const (
	GSI    QPN = 1 // general services: connections are established through it
	MaxQPN QPN = 1<<24 - 1
)

// GSIQKey is the Q_Key of packets to GSI (10.2.5).
const GSIQKey = 0x80010000

// PSN is a packet sequence number: 24 bits, which wrap.
type PSN uint32

// MaxPSN is the largest PSN; 0 follows it.
const MaxPSN PSN = 1<<24 - 1

// Add returns the PSN n packets later, or earlier if n is negative.
func (p PSN) Add(n int) PSN { return (p + PSN(n)) & MaxPSN }

// From returns the number of packets from another PSN to p, from -2^23 to 2^23-1. It is negative if
// p is earlier. The order of two PSNs is certain only if they differ by less than half of the
// number space (9.7.3.1).
func (p PSN) From(other PSN) int { return int(int32(uint32(p-other)<<8) >> 8) }

// mtus are the path MTUs: bytes of payload by their code (9.7.8, table 88).
var mtus = [...]int{1: 256, 2: 512, 3: 1024, 4: 2048, 5: 4096}

// MTU returns the largest payload of a packet of a path, in bytes, by the code 1 to 5. It is 0 for
// other codes.
func MTU(code uint8) int {
	if int(code) < len(mtus) {
		return mtus[code]
	}
	return 0
}

// reserve is the difference between a link's MTU and the path MTU, for the longest headers. It is
// the value of rdma_rxe (RXE_MAX_HDR_LENGTH of drivers/infiniband/sw/rxe/rxe_param.h).
const reserve = 80

// LeastLinkMTU is the MTU of a link that carries the smallest path MTU.
const LeastLinkMTU = 256 + reserve

// PathMTU returns the largest payload, in bytes, of a RoCEv2 packet on a link with an MTU. It
// chooses as rdma_rxe does: 256 to 4,096, or 0 if the link's MTU is too small. A link of 1,500
// bytes has 1,024.
func PathMTU(link int) int {
	best := 0
	for _, mtu := range mtus {
		if mtu+reserve <= link {
			best = mtu
		}
	}
	return best
}

// MTUCode returns the code of a path MTU in bytes, or 0 if there is no such path MTU.
func MTUCode(bytes int) uint8 {
	for code, mtu := range mtus {
		if mtu == bytes && code > 0 {
			return uint8(code)
		}
	}
	return 0
}

// rnrTimers are in units of 10 us (9.7.5.2.8, table 45).
var rnrTimers = [32]uint32{
	65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192,
	256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
}

// RNRTimer returns the least time that a requester waits after an RNR NAK, by the NAK's code of 5
// bits.
func RNRTimer(code uint8) time.Duration {
	return time.Duration(rnrTimers[code&0x1F]) * 10 * time.Microsecond
}

// AckTimeout returns the time for a code of 5 bits: 4.096 us times 2^code, or 0, which means no
// timeout, for code 0 (9.7.6.1.3).
func AckTimeout(code uint8) time.Duration {
	if code &= 0x1F; code == 0 {
		return 0
	}
	return 4096 * time.Nanosecond << code
}

func uint24(b []byte) uint32 { return uint32(b[0])<<16 | uint32(b[1])<<8 | uint32(b[2]) }

func putUint24(b []byte, v uint32) { b[0], b[1], b[2] = byte(v>>16), byte(v>>8), byte(v) }

// field returns n bits of a byte, from bit number low on.
func field(b byte, low, n uint) uint8 { return b >> low & (1<<n - 1) }

func flag(b byte, mask byte) bool { return b&mask != 0 }

func mask(set bool, value byte) byte {
	if set {
		return value
	}
	return 0
}
