package sgd

import (
	"railbed/internal/units"
	"railbed/plan/spec"
)

// ConfigOf returns the configuration that the replicas of a training have in common.
func ConfigOf(s *spec.SGD, seed uint64) Config {
	return Config{Hidden: s.Hidden, Batch: s.Batch, Rate: float32(s.Rate.Float()),
		Momentum: float32(s.Momentum.Float()), Seed: seed}
}

// CodecOf returns the codec that encodes gradients into messages. It is nil if gradients are
// exchanged as they are, or encrypted.
func CodecOf(s *spec.SGD) Codec {
	switch n := ConfigOf(s, 0).Parameters(); s.Exchange {
	case spec.ExchangeTopK:
		return NewTopK(n, s.Keep.Float())
	case spec.ExchangeQuantised:
		return NewQuantised(n, int(s.Bits[0]-'0'))
	}
	return nil
}

// SizeOf returns the size of the buffer of the exchange among a number of ranks.
func SizeOf(s *spec.SGD, ranks int) units.Bytes {
	if codec := CodecOf(s); codec != nil {
		return units.Bytes(ranks * codec.Len())
	}
	return units.Bytes(4 * ConfigOf(s, 0).Parameters())
}
