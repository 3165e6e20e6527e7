package rd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"railbed/internal/wire"
	"railbed/transports/rd/engine"
)

// address is the content of an endpoint's Address: where its engines receive, and the life of the
// endpoint.
type address struct {
	life    uint64
	at      netip.Addr
	port    uint8 // of engine 0, relative to wire.PortRD
	engines uint8
	room    uint16 // packets that an engine can hold, until the engine itself reports how many
	// encrypts is true if the endpoint sends and accepts encrypted packets only.
	encrypts bool
}

// An address is magic, version, port, engines, flags, room, life and an IPv6 address. IPv4
// addresses are mapped (RFC 4291, 2.5.5.2).
const (
	addressLen     = 32
	addressMagic   = "RD"
	addressVersion = wire.RDVersion
	addressSealed  = 1 // flag: encrypts
)

func (a address) encode() []byte {
	b := make([]byte, 0, addressLen)
	b = append(b, addressMagic...)
	flags := uint8(0)
	if a.encrypts {
		flags = addressSealed
	}
	b = append(b, addressVersion, a.port, a.engines, flags)
	b = binary.BigEndian.AppendUint16(b, a.room)
	b = binary.BigEndian.AppendUint64(b, a.life)
	at := a.at.As16()
	return append(b, at[:]...)
}

func decodeAddress(b []byte) (address, error) {
	if len(b) != addressLen || string(b[:2]) != addressMagic {
		return address{}, errors.New("want the address of an rd endpoint")
	}
	if b[2] != addressVersion {
		return address{}, fmt.Errorf("address of version %d, want %d", b[2], addressVersion)
	}
	a := address{
		life: binary.BigEndian.Uint64(b[8:]), at: netip.AddrFrom16([16]byte(b[16:])).Unmap(),
		port: b[3], engines: b[4], room: binary.BigEndian.Uint16(b[6:]), encrypts: b[5] == addressSealed,
	}
	if a.engines == 0 || a.engines > wire.RDEngines || a.port%wire.RDEngines != 0 || a.at.IsUnspecified() ||
		b[5]&^addressSealed != 0 {
		return address{}, errors.New("the address of an rd endpoint is damaged")
	}
	return a, nil
}

// peer returns the fields that an engine needs.
func (a address) peer() engine.Peer {
	return engine.Peer{Life: a.life, Port: a.port, Engines: int(a.engines), Room: int(a.room)}
}
