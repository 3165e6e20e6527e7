package softswitch

import "time"

// Tightest returns the smallest time that the model distinguishes on links that have carried
// frames, in virtual time: the least of their directions' (plan.Direction.Smallest). 0 means that there is
// none.
func (e *Engine) Tightest() time.Duration {
	least := time.Duration(0)
	for _, one := range e.ports {
		if one.count.Sent.Packets == 0 {
			continue
		}
		if d := one.medium.Direction().Smallest(one.link.plan.MTU); d > 0 && (least == 0 || d < least) {
			least = d
		}
	}
	return least
}
