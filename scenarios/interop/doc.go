// Package interop holds package roce against an implementation that is not ours: its
// tests put the kernel's rdma_rxe, in a virtual machine and driven by rdma-core's
// verbs, and our queue pairs, on an ordinary node, on one fabric, and have them do
// every operation to each other over links that lose, reorder, duplicate and corrupt
// packets. What came of it stands in transports/roce/INTEROP.md.
package interop
