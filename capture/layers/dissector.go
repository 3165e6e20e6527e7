package layers

import _ "embed"

// Dissector is a dissector for Wireshark, in Lua, of reliable datagrams and of
// in-band telemetry.
//
//go:embed railbed.lua
var Dissector []byte
