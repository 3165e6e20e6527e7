//go:build !race

package transports

// BeforeWrite is called before bytes are sent, and AfterRead after bytes were received. They give
// the race detector the order that packets imply: within one process, actions of an endpoint before
// a send happen before its peer's receive.
func BeforeWrite() {}

// AfterRead is called after bytes were received.
func AfterRead() {}
