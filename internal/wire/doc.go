// Package wire encodes and decodes the headers that the software switch and the transports read and
// write on their data paths. A header is its bytes: IPv4 is a []byte with accessors and setters, so
// that nothing is copied and nothing allocated.
//
// Every header type has Valid, which takes any bytes, never panics, and reports whether they hold
// the whole header. Other accessors and setters may be called on valid bytes only. Encode writes
// every field into the caller's memory and panics if that is shorter than the header, which is a
// bug of the caller. Parse takes any bytes and never panics; the offsets it returns are within the
// frame.
//
// All numbers are big endian on the wire and in host order here. Nothing in this package keeps
// state; different bytes may be used from different goroutines at once.
package wire
