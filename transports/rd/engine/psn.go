package engine

// PSN is the number of a packet between two engines. Numbers wrap around. They are compared by
// their distance, which Window bounds (RFC 1982).
type PSN uint32

// From is the number of packets from another PSN to p; it is negative if p is earlier.
func (p PSN) From(other PSN) int32 { return int32(p - other) }

// slot is the packet's index in a ring of Window packets.
func (p PSN) slot() uint16 { return uint16(p % Window) }

// firstPSN is the number of the first packet that a life sends to each engine.
func firstPSN(life uint64) PSN { return PSN(life >> 32) }

// firstMessage is the number of the first message that a life sends to each engine.
func firstMessage(life uint64) uint32 { return uint32(life) }
