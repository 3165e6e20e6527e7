package wire

// UDP ports that mean something to our switch. They are from the dynamic
// range (RFC 6335, 6) above what Linux hands out by itself (32768 to 60999),
// so that no program's own socket gets one by chance. They are fixed in
// fabric/softswitch/PROTOCOL.md.
const (
	PortRD          = 61440 // reliable datagrams; a block of INT may stand first
	PortINT         = 61441 // telemetry probes
	PortAggregation = 61442 // in-network aggregation
)
