package forward

import (
	"math/rand/v2"
	"net/netip"
)

func newRandom(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

var defaultRoute = netip.MustParsePrefix("0.0.0.0/0")
