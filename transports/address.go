package transports

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// EncodeAddress encodes the address of an endpoint at a port: family[1] ip[4|16] port[2] id. The id
// distinguishes the endpoint from others that had the port before.
func EncodeAddress(at netip.AddrPort, id []byte) []byte {
	ip := at.Addr().AsSlice()
	out := append([]byte{byte(len(ip))}, ip...)
	out = binary.BigEndian.AppendUint16(out, at.Port())
	return append(out, id...)
}

// DecodeAddress decodes an address with an id of the length of id, and writes it there. of is the transport,
// for the error.
func DecodeAddress(raw, id []byte, of string) (netip.AddrPort, error) {
	if len(raw) == 0 || raw[0] != 4 && raw[0] != 16 || len(raw) != 1+int(raw[0])+2+len(id) {
		return netip.AddrPort{}, fmt.Errorf("%d bytes are not the address of a %s endpoint", len(raw), of)
	}
	ip, _ := netip.AddrFromSlice(raw[1 : 1+raw[0]])
	rest := raw[1+raw[0]:]
	at := netip.AddrPortFrom(ip, binary.BigEndian.Uint16(rest))
	if at.Port() == 0 || ip.IsUnspecified() || ip.IsMulticast() {
		return netip.AddrPort{}, fmt.Errorf("%v is not the address of a %s endpoint, want "+
			"a unicast address and a port", at, of)
	}
	copy(id, rest[2:])
	return at, nil
}
