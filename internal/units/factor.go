package units

import (
	"fmt"
	"math"
	"math/big"
	"math/bits"
)

// Factor is an exact fraction without an upper bound, such as the alpha of a
// dynamic threshold. Its zero value, 0/0, means "not set".
type Factor struct {
	Num, Den uint64
}

// ParseFactor parses "1", "0.5", "8" or "1/3".
func ParseFactor(text string) (Factor, error) {
	bad := fmt.Errorf("factor %q: want a number above 0, as in 0.5, 8 or 1/3", text)
	value, ok := fraction(text)
	if !ok || value.Sign() == 0 || !value.Num().IsUint64() || !value.Denom().IsUint64() {
		return Factor{}, bad
	}
	return Factor{Num: value.Num().Uint64(), Den: value.Denom().Uint64()}, nil
}

// IsZero reports whether the factor is not set.
func (f Factor) IsZero() bool { return f.Num == 0 }

// Times returns the factor times n bytes, rounded down. A result that does not fit into 64 bits
// becomes the largest number of bytes. A factor that is not set gives 0.
func (f Factor) Times(n Bytes) Bytes {
	if f.IsZero() {
		return 0
	}
	high, low := bits.Mul64(uint64(n), f.Num)
	if high >= f.Den {
		return math.MaxUint64
	}
	quotient, _ := bits.Div64(high, low, f.Den)
	return Bytes(quotient)
}

// Float returns the nearest float64, for printing and plots only.
func (f Factor) Float() float64 {
	if f.IsZero() {
		return 0
	}
	return float64(f.Num) / float64(f.Den)
}

// String returns a decimal number if that is exact in a few digits, else a fraction.
func (f Factor) String() string {
	if f.IsZero() {
		return "0"
	}
	value := new(big.Rat).SetFrac(new(big.Int).SetUint64(f.Num), new(big.Int).SetUint64(f.Den))
	if digits, exact := value.FloatPrec(); exact && digits <= 12 {
		return value.FloatString(digits)
	}
	return fmt.Sprintf("%d/%d", f.Num, f.Den)
}

// MarshalText implements encoding.TextMarshaler.
func (f Factor) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// Form describes the values in files.
func (Factor) Form() string { return "a number such as 0.5" }

// UnmarshalText implements encoding.TextUnmarshaler.
func (f *Factor) UnmarshalText(text []byte) (err error) {
	*f, err = ParseFactor(string(text))
	return err
}
