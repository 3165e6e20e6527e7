package rank

import (
	"net/netip"
	"time"

	"railbed/internal/units"
	"railbed/plan/spec"
	"railbed/transports/rd/privacy"
)

// The transports of a Config.
const (
	TCP  = "tcp"
	RD   = "rd"
	RoCE = "roce"
	QUIC = "quic"
)

// Config is the configuration that the coordinator sends to one rank.
type Config struct {
	Work      Assignment `json:"work"`
	Transport string     `json:"transport"` // TCP, RD, RoCE, QUIC, or a transport that Work opens itself
	PlaceConfig
	RoundsConfig
	TransportConfig
	// Channels are the configurations of the rank's channels, if there are several.
	Channels []Config `json:"channels,omitempty"`
}

// PlaceConfig is the place of a rank among the others and in the network.
type PlaceConfig struct {
	Rank        int        `json:"rank"`
	Ranks       int        `json:"ranks"`
	Node        string     `json:"node,omitempty"` // for the name of the process only
	NIC         string     `json:"nic,omitempty"`
	Bypass      bool       `json:"bypass,omitempty"`  // the rank reaches its NIC past the kernel
	Unbound     bool       `json:"unbound,omitempty"` // the rank does not bind its sockets to NIC
	Addr        netip.Addr `json:"addr"`
	Port        uint16     `json:"port"`
	SourcePorts []uint16   `json:"source_ports,omitempty"`
	// Dilation is the testbed's time dilation.
	Dilation uint64 `json:"dilation,omitempty"`
}

// RoundsConfig determines the rounds of a job: see Config.Rounds.
type RoundsConfig struct {
	Sizes      []units.Bytes `json:"sizes"`            // of the buffer
	Warmup     int           `json:"warmup,omitempty"` // untimed operations of each size and mode
	Iterations int           `json:"iterations"`       // timed operations of each size and mode
	// InPlace repeats the rounds of each size in place.
	InPlace bool `json:"in_place,omitempty"`
	// Together makes one unchecked round of the operations of a size and mode, and adds Checks checked
	// rounds. By default each operation is a checked round of its own.
	Together bool `json:"together,omitempty"`
	Checks   int  `json:"checks,omitempty"`
	// BusyPoll makes the rank poll for messages before it sleeps, in short operations over TCP.
	BusyPoll bool `json:"busy_poll,omitempty"`
}

// TransportConfig configures the rank's endpoint. TCP, RD and RoCE use DSCP. Only the transport rd uses RD,
// and only RoCEv2 uses RoCE. Both use Rate and Overhead of the link.
type TransportConfig struct {
	PeerTimeout units.Duration   `json:"peer_timeout,omitzero"`
	DSCP        int              `json:"dscp,omitempty"` // 0 is the transport's
	RoCE        *spec.RoCE       `json:"roce,omitempty"`
	Block       uint32           `json:"block,omitempty"` // block of queue pair numbers, for roce
	RD          *spec.RD         `json:"rd,omitempty"`
	Secret      privacy.Material `json:"secret,omitempty"` // for rd with encryption
	Rate        units.Rate       `json:"rate,omitempty"`
	Overhead    int              `json:"overhead,omitempty"`
	// Rates are the rates at which the rank sends to other ranks, for control: offline.
	Rates map[int]units.Rate `json:"rates,omitempty"`
	// RoundTrip is the planned maximum time for a full packet and its acknowledgement when no other
	// rank sends. 0 means unknown.
	RoundTrip time.Duration `json:"round_trip,omitempty"`
	// Arbiter is the address of the arbiter of control: arbiter. SlotTime is the length of a slot
	// in real time.
	Arbiter  netip.AddrPort `json:"arbiter,omitzero"`
	SlotTime time.Duration  `json:"slot_time,omitempty"`
}

// Lossy reports whether parts of sums may be left out.
func (c *Config) Lossy() bool { return c.RD.MayDrop() }

// device returns the name of the interface to which sockets are bound, or "" for none.
func (c *Config) device() string {
	if c.Unbound {
		return ""
	}
	return c.NIC
}
