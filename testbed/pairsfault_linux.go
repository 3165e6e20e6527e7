package testbed

import (
	"context"
	"errors"
	"fmt"

	"railbed/transports/roce"
)

// LoseQueuePairs breaks the RoCEv2 queue pairs of a node's ranks, as when its NICs are reset. It returns
// their number. Queue pairs of rdma_rxe stay: no program can take them from another one, and the kernel
// deletes a device only after its users have closed it.
func (t *Testbed) LoseQueuePairs(ctx context.Context, node string) (lost int, err error) {
	outside, err := t.outsideOf(node)
	if err != nil {
		return 0, err
	}
	count, err := t.within(ctx, node, pairsPart, outside)
	if err != nil {
		return 0, fmt.Errorf("break the queue pairs of %s: %w", node, err)
	}
	return int(count), nil
}

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
