//go:build !race

package transports

// BeforeWrite is called before bytes are sent, and AfterRead after bytes were received. They
// tell the race detector what packets tell: what an endpoint did before it sent was done
// before its peer received, in the same process.
func BeforeWrite() {}

// AfterRead is called after bytes were received.
func AfterRead() {}
