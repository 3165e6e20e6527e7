package layers

import (
	_ "embed"
	"slices"
)

var (
	//go:embed railbed.lua
	datagramsLua []byte
	//go:embed aggregation.lua
	aggregationLua []byte
	//go:embed gfc.lua
	gfcLua []byte
	//go:embed record.lua
	recordLua []byte
)

// Dissector is a Wireshark plugin, in Lua. It dissects reliable datagrams, in-band telemetry, in-network
// aggregation and gentle flow control. A post-dissector makes fields of the comments and the interfaces of
// Railbed's recordings. The parts have local names of their own, because a chunk of Lua has at most 200.
var Dissector = joined(datagramsLua, aggregationLua, gfcLua, recordLua)

func joined(first []byte, more ...[]byte) []byte {
	all := slices.Clone(first)
	for _, part := range more {
		all = append(append(append(all, "\ndo\n"...), part...), "end\n"...)
	}
	return all
}
