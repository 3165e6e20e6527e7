// Package infiniband is the bytes of RoCEv2: the transport packets of InfiniBand
// as they stand in UDP datagrams to Port, with the headers of reliable and
// unreliable connections and of unreliable datagrams, the invariant CRC at their
// end, the congestion notification packet, and the management datagrams by which
// rdma_cm connects queue pairs.
//
// A header is its bytes, as in package wire: BTH is a []byte with accessors. A
// Packet is all that a datagram carries; its opcode says which headers it has and
// where. Every type has Valid, which takes any bytes and never panics; accessors
// may be called on valid bytes only. Encode writes every field into the caller's
// own memory, which must be long enough; shorter memory is a bug of the caller
// and panics. Nothing allocates and nothing keeps state, so that different bytes
// may be used from different goroutines at once.
//
// A requester makes a packet in three steps, without a copy of its own:
//
//	p := buffer[:infiniband.Len(opcode, n)]
//	p.Encode(&fields, n)              // headers, pad count and padding
//	copy(p.Payload(), region[at:])    // n bytes
//	p.Seal(headers)                   // ICRC over the IP and UDP headers, too
//
// and a responder takes one so: Valid, ICRCValid, BTH, and what the opcode has.
// Queue pairs, timers and memory are no matter of this package.
//
// Numbers are big endian on the wire, but for the ICRC, and in host order here.
// Sources: InfiniBand Architecture Specification, volume 1, release 1.4 (IBTA):
// chapter 9 for packets, 12 for communication management, 13 for management
// datagrams; Annex A17 for RoCEv2. Not here: the reliable datagram and XRC
// services, FLUSH and ATOMIC WRITE, RMPP, and headers of link and network.
package infiniband
