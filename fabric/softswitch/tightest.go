package softswitch

import (
	"time"

	"railbed/internal/wire"
)

// Tightest returns the smallest time that the model distinguishes on links that have carried
// frames, in virtual time. It is the least of the delays and of the times to send a frame of the
// MTU. Times of 0, as on a link without a rate, are ignored; 0 means that there is none.
func (e *Engine) Tightest() time.Duration {
	least := time.Duration(0)
	consider := func(d time.Duration) {
		if d > 0 && (least == 0 || d < least) {
			least = d
		}
	}
	for _, one := range e.ports {
		if one.count.Sent.Packets == 0 {
			continue
		}
		d := one.medium.Direction()
		consider(time.Duration(d.Delay))
		if d.Rate > 0 { // computed here: units' division is exact for any size, and slow
			frame := uint64(one.link.plan.MTU+wire.EthernetLen) + uint64(d.Overhead)
			consider(time.Duration(frame * 8 * uint64(time.Second) / uint64(d.Rate)))
		}
	}
	return least
}
