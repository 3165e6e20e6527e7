// Package infiniband encodes and decodes the packets of RoCEv2. These are the transport packets of
// InfiniBand in UDP datagrams to Port. They have the headers of reliable and unreliable connections
// and of unreliable datagrams, and end with the invariant CRC. The package also has
// the congestion notification packet and the management datagrams by which rdma_cm connects queue
// pairs.
//
// A header is its bytes, as in package wire: BTH is a []byte with accessors. A Packet is the whole
// payload of a datagram; its opcode specifies its headers and their places. Every type has Valid,
// which takes any bytes and never panics. Other accessors may be called on valid bytes only. Encode
// writes every field into the caller's memory and panics if that is too short, which is a bug of
// the caller. Nothing allocates and nothing keeps state, so different bytes may be used from
// different goroutines at once.
//
// A requester makes a packet in three steps, without a copy of its own:
//
//	p := buffer[:infiniband.Len(opcode, n)]
//	p.Encode(&fields, n)              // headers, pad count and padding
//	copy(p.Payload(), region[at:])    // n bytes
//	p.Seal(headers)                   // ICRC over the IP and UDP headers, too
//
// A responder calls Valid, ICRCValid, BTH, and the accessors of the opcode's headers. Queue pairs,
// timers and memory are not part of this package.
//
// Numbers are big endian on the wire, except the ICRC, and in host order here. Sources: InfiniBand
// Architecture Specification, volume 1, release 1.4 (IBTA): chapter 9 for packets, 12 for
// communication management, 13 for management datagrams; Annex A17 for RoCEv2. Not implemented: the
// reliable datagram and XRC services, FLUSH and ATOMIC WRITE, RMPP, and headers of the link and
// network layers.
package infiniband
