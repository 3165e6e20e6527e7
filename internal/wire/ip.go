package wire

// Protocol numbers, and IPv6 next headers: IANA protocol-numbers.
const (
	ProtocolHopByHop    = 0 // IPv6 only
	ProtocolICMPv4      = 1
	ProtocolTCP         = 6
	ProtocolUDP         = 17
	ProtocolRouting     = 43 // IPv6 only
	ProtocolFragment    = 44 // IPv6 only
	ProtocolESP         = 50
	ProtocolAH          = 51
	ProtocolICMPv6      = 58
	ProtocolNone        = 59 // IPv6 only
	ProtocolDestination = 60 // IPv6 only
	ProtocolMobility    = 135
	ProtocolHIP         = 139
	ProtocolShim6       = 140
)

// ECN is the two bits of explicit congestion notification: RFC 3168, 5.
type ECN uint8

// ECN codepoints.
const (
	NotECT ECN = 0
	ECT1   ECN = 1
	ECT0   ECN = 2
	CE     ECN = 3
)

// trafficClass joins DSCP, 0 to 63, and ECN.
func trafficClass(dscp uint8, ecn ECN) uint8 { return dscp<<2 | uint8(ecn&3) }
