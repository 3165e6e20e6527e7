package evidence

import (
	"bytes"
	"slices"
	"testing"

	"railbed/internal/wire"
)

// The decoder distinguishes a datagram that the capture cut off from an invalid datagram.
func TestRDFaults(t *testing.T) {
	base := wire.RDBase{Source: 32, Destination: 32, Tag: 1, Life: 0xFFFFFF00ABCD0000, PSN: 7}
	data := base
	data.Length = 1000
	whole := make(wire.RD, wire.RDDataLen+1000)
	whole.EncodeData(data, &wire.RDDataFields{Key: 7, Message: 3, Total: 5000, Position: 1000,
		Sum: wire.RDSum(whole[wire.RDDataLen:])})
	ack := make(wire.RD, wire.RDAckBytes(2, 3))
	ack.EncodeAck(base, &wire.RDAckFields{}, make([]uint64, 2), make([]wire.RDEcho, 3))
	fields := wire.INTFields{Hops: 3}
	block := make([]byte, wire.INTBlockLen(&fields))
	wire.INT(block).Encode(&fields)
	behind := append(bytes.Clone(block), whole...)
	broken := bytes.Clone(whole)
	broken[50] ^= 4
	other := bytes.Clone(whole)
	other[0] = 0xA1
	for name, c := range map[string]struct {
		captured []byte
		length   int
		fault    RDFault
		trimmed  bool
	}{
		"whole":                  {whole, len(whole), RDSound, false},
		"cut in its payload":     {whole[:70], len(whole), RDSound, false},
		"trimmed in its payload": {whole[:70], 70, RDSound, true},
		"trimmed, and cut":       {whole[:70], 90, RDSound, true},
		"cut in its header":      {whole[:63], len(whole), RDCut, false},
		"trimmed in its header":  {whole[:63], 63, RDDamaged, false},
		"cut in its base":        {whole[:20], len(whole), RDCut, false},
		"longer than it says":    {whole, len(whole) + 1, RDDamaged, false},
		"damaged":                {broken, len(broken), RDDamaged, false},
		"of another version":     {other, len(other), RDDamaged, false},
		"behind telemetry":       {behind, len(behind), RDSound, false},
		"behind telemetry, cut":  {behind[:len(block)+63], len(behind), RDCut, false},
		"telemetry cut":          {behind[: len(block)-1 : len(block)-1], len(behind), RDCut, false},
		"telemetry trimmed": {behind[: len(block)-1 : len(block)-1], len(block) - 1, RDDamaged,
			false},
		"neither":                     {make([]byte, 100), 100, RDDamaged, false},
		"empty":                       {nil, 0, RDDamaged, false},
		"acknowledgement":             {ack, len(ack), RDSound, false},
		"acknowledgement cut":         {slices.Clip(ack[:len(ack)-1]), len(ack), RDCut, false},
		"acknowledgement too short":   {slices.Clip(ack[:len(ack)-1]), len(ack) - 1, RDDamaged, false},
		"acknowledgement cut in base": {ack[:10], len(ack), RDCut, false},
	} {
		var d RD
		fault := d.read(c.captured, c.length, nil)
		if fault != c.fault || d.Trimmed != c.trimmed {
			t.Errorf("%s: fault %d, trimmed %t, want %d and %t", name, fault, d.Trimmed, c.fault, c.trimmed)
		}
		if fault == RDSound && d.Type == wire.RDData &&
			(d.PSN != 7 || d.Data.Message != 3 || d.Data.Position != 1000 || d.Length != 1000) {
			t.Errorf("%s: read as %+v", name, d)
		}
		if n := testing.AllocsPerRun(10, func() { d.read(c.captured, c.length, nil) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
