package roce

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"railbed/internal/infiniband"
)

// address is the content of an endpoint's Address: where it listens for connections, and the life
// of the endpoint.
type address struct {
	life      uint64
	at        netip.Addr
	port      uint16 // of communication management
	mtu       uint8  // code
	selective bool
}

// An address is magic, version, MTU code, port, flags, a zero byte, life and an IPv6 address. IPv4
// addresses are mapped (RFC 4291, 2.5.5.2).
const (
	addressLen       = 32
	addressMagic     = "RC"
	addressVersion   = 1
	addressSelective = 1 // flag
)

func (a address) encode() []byte {
	b := append(make([]byte, 0, addressLen), addressMagic...)
	b = append(b, addressVersion, a.mtu)
	b = binary.BigEndian.AppendUint16(b, a.port)
	flags := uint8(0)
	if a.selective {
		flags = addressSelective
	}
	b = append(b, flags, 0)
	b = binary.BigEndian.AppendUint64(b, a.life)
	at := a.at.As16()
	return append(b, at[:]...)
}

func decodeAddress(b []byte) (address, error) {
	if len(b) != addressLen || string(b[:2]) != addressMagic {
		return address{}, errors.New("want the address of a roce endpoint")
	}
	if b[2] != addressVersion {
		return address{}, fmt.Errorf("address of version %d, want %d", b[2], addressVersion)
	}
	a := address{
		mtu: b[3], port: binary.BigEndian.Uint16(b[4:]), selective: b[6] == addressSelective,
		life: binary.BigEndian.Uint64(b[8:]), at: netip.AddrFrom16([16]byte(b[16:])).Unmap(),
	}
	if infiniband.MTU(a.mtu) == 0 || a.port == 0 || b[6]&^addressSelective != 0 || b[7] != 0 ||
		a.at.IsUnspecified() {
		return address{}, errors.New("the address of a roce endpoint is damaged")
	}
	return a, nil
}
