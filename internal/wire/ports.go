package wire

// UDP ports that our switch recognises. They are from the dynamic range (RFC 6335, 6), above the
// ports that Linux allocates automatically (32768 to 60999), so that no program's own socket gets
// one by chance. fabric/softswitch/PROTOCOL.md fixes them.
const (
	PortINT         = 61441 // telemetry probes
	PortAggregation = 61442 // in-network aggregation
	PortArbiter     = 61443 // of timeslots; further arbiters use the ports after it

	// PortRD is the first of the PortsRD destination ports of reliable datagrams: each engine of a
	// NIC has one. Such a datagram may begin with an INT block.
	PortRD  = 0xF100
	PortsRD = 256
	// PortRDPath is the first of the PortsRDPath source ports of reliable datagrams. A sender has
	// several, and fabrics that hash ports spread them over paths.
	PortRDPath  = 0xF800
	PortsRDPath = 2048
)

// IsPortRD reports whether datagrams to a port are reliable datagrams.
func IsPortRD(port uint16) bool { return port&^(PortsRD-1) == PortRD }
