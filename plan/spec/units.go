package spec

import "railbed/internal/units"

// Names of the units of keys, so that programs outside of this module can declare values of them.
type (
	// Rate is in bit/s.
	Rate = units.Rate
	// Bytes is a number of bytes.
	Bytes = units.Bytes
	// Duration is a time.Duration that is written as in files.
	Duration = units.Duration
	// Ratio is a share: 1 % is Ratio{Num: 1, Den: 100}.
	Ratio = units.Ratio
)
