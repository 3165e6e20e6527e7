package nodefault

import (
	"context"
	"errors"
	"fmt"

	"railbed/transports/roce"
)

// pairs breaks the RoCEv2 queue pairs of nodes' ranks, as when their NICs are reset. Queue pairs of rdma_rxe
// stay: no program can take them from another one, and the kernel deletes a device only after its users have
// closed it.
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
		lost, err = roce.LoseQueuePairs()
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(lost)
	return 0
}
