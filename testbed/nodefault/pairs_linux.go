package nodefault

import (
	"context"
	"errors"
	"fmt"

	"railbed/transports/roce"
)

// pairs breaks the queue pairs of nodes' ranks over roce, and of their programs on rdma_rxe, as when the NICs
// are reset.
type pairs struct {
	counted
	acting
}

func (k *pairs) begin(ctx context.Context, node string) (uint64, error) {
	count, err := k.within(ctx, node, pairsPart)
	if err != nil {
		return 0, fmt.Errorf("break the queue pairs of %s: %w", node, err)
	}
	return uint64(count), nil
}

// end does nothing: a transport does not make the queue pairs again.
func (*pairs) end(context.Context, string) error { return nil }

// pairsPart is the name of the part of the executable that breaks a node's queue pairs.
const pairsPart = "queue-pairs"

// pairsMain is the main function of the part. Its argument is the PID namespace of the caller. It prints the
// number of queue pairs.
func pairsMain(args []string) int {
	lost, err := 0, errors.New("want a PID namespace as the argument")
	if len(args) == 1 {
		err = inNode(args[0])
	}
	if err == nil {
		ofVerbs, failed := loseVerbs()
		lost, err = roce.LoseQueuePairs()
		lost, err = lost+ofVerbs, errors.Join(err, failed)
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(lost)
	return 0
}
