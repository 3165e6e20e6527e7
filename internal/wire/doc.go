// Package wire is the bytes on the emulated wires: codecs for the headers
// that the software switch and the transports read and write on their data
// paths. A header is its bytes: IPv4 is a []byte with accessors and setters,
// so that nothing is copied and nothing allocated.
//
// Every header type has Valid. It takes any bytes, never panics, and says
// that they hold the header whole; accessors and setters may be called on
// valid bytes only. Encode writes every field into the caller's own memory,
// which must be as long as the header; shorter memory is a bug of the caller
// and panics. Parse takes any bytes and never panics; the offsets it gives are
// within the frame.
//
// All numbers are big endian on the wire and in host order here. Nothing in
// this package keeps state; different bytes may be used from different
// goroutines at once.
package wire
