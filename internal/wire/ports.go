package wire

// UDP ports that mean something to our switch. They are from the dynamic
// range (RFC 6335, 6) above what Linux hands out by itself (32768 to 60999),
// so that no program's own socket gets one by chance. They are fixed in
// fabric/softswitch/PROTOCOL.md.
const (
	PortINT         = 61441 // telemetry probes
	PortAggregation = 61442 // in-network aggregation
	PortArbiter     = 61443 // of timeslots, and those behind it for further ones

	// PortRD is the first of the PortsRD ports to which reliable datagrams go:
	// each engine of a NIC has one. A block of INT may stand first in them.
	PortRD  = 0xF100
	PortsRD = 256
	// PortRDPath is the first of the PortsRDPath ports from which they come: a
	// sender has several, and fabrics that hash ports spread them over paths.
	PortRDPath  = 0xF800
	PortsRDPath = 2048
)

// IsPortRD says that datagrams to a port are reliable datagrams.
func IsPortRD(port uint16) bool { return port&^(PortsRD-1) == PortRD }
