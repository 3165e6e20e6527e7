package layers

import _ "embed"

// Dissector is a Wireshark dissector, in Lua, for reliable datagrams and in-band telemetry.
//
//go:embed railbed.lua
var Dissector []byte
