// Package interop tests package roce against an independent implementation. Its tests connect the
// kernel's rdma_rxe, in a virtual machine and driven by rdma-core's verbs, with Railbed's queue
// pairs on an ordinary node, over one fabric. Both sides perform every operation on each other,
// over links that lose, reorder, duplicate and corrupt packets. The results are in
// transports/roce/INTEROP.md.
package interop
