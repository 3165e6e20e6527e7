package plan_test

import (
	"testing"

	"railbed/internal/wire"
	"railbed/plan"
)

// TestINTRoom: the room equals the length of the block on the wire.
func TestINTRoom(t *testing.T) {
	if got := wire.INTBlockLen(&wire.INTFields{Hops: plan.INTHops}); got != plan.INTRoom {
		t.Errorf("a block has %d bytes, and packets leave room for %d", got, plan.INTRoom)
	}
}
