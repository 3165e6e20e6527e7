// Package units defines the quantities that Railbed's files, plans and packages exchange: link
// rates, byte counts, exact probabilities and durations.
//
// Every type parses and prints the text that users write in files ("1gbit", "40KB", "0.1%",
// "10us"), so YAML, JSON and the command line share one grammar. The zero value of each type means
// "not set" or zero.
package units

import (
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Rate is a bit rate in bit/s, as tc and vendors count it: 1gbit is 10^9 bit/s.
type Rate uint64

// Bytes is a count of bytes. KB, MB and GB are powers of 1,000; KiB, MiB and
// GiB are powers of 1,024.
type Bytes uint64

// Duration is a time.Duration that reads and prints as text ("10us").
type Duration time.Duration

// Ratio is an exact fraction, used for probabilities so that a seeded draw is
// the same on every machine. Its zero value, 0/0, means zero.
type Ratio struct {
	Num, Den uint64
}

type suffix struct {
	text  string
	scale uint64
}

// A suffix that is the end of another one comes after it.
var rateSuffixes = []suffix{
	{"tbit", 1e12}, {"gbit", 1e9}, {"mbit", 1e6}, {"kbit", 1e3}, {"bit", 1},
}

var byteSuffixes = []suffix{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30},
	{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1},
}

// scaled parses a decimal number with one of the suffixes, exactly. The result must be a whole
// number of units and fit into 64 bits.
func scaled(text string, suffixes []suffix) (uint64, bool) {
	for _, s := range suffixes {
		number, found := strings.CutSuffix(text, s.text)
		if !found {
			continue
		}
		value, ok := decimal(number)
		if !ok {
			return 0, false
		}
		value.Mul(value, new(big.Rat).SetUint64(s.scale))
		if !value.IsInt() || !value.Num().IsUint64() {
			return 0, false
		}
		return value.Num().Uint64(), true
	}
	return 0, false
}

// decimal parses digits with at most one point. big.Rat alone would accept
// fractions, exponents and signs, and exponents make tiny inputs expensive.
func decimal(number string) (*big.Rat, bool) {
	if number == "" || len(number) > 40 || strings.Count(number, ".") > 1 || strings.HasPrefix(number, ".") ||
		strings.HasSuffix(number, ".") {
		return nil, false
	}
	if strings.Trim(number, "0123456789.") != "" {
		return nil, false
	}
	return new(big.Rat).SetString(number)
}

func format(value uint64, suffixes []suffix) string {
	for _, s := range suffixes {
		if value >= s.scale && value%s.scale == 0 {
			return strconv.FormatUint(value/s.scale, 10) + s.text
		}
	}
	return strconv.FormatUint(value, 10) + suffixes[len(suffixes)-1].text
}

// ParseRate parses "1gbit", "2.5gbit", "100mbit", "800kbit" or "64bit", and the
// form in which reports print rates: "200 Mbit/s".
func ParseRate(text string) (Rate, error) {
	value, ok := scaled(plainRate(text), rateSuffixes)
	if !ok {
		return 0, fmt.Errorf("rate %q: want a number with bit, kbit, mbit, gbit or tbit, as in 1gbit", text)
	}
	return Rate(value), nil
}

// plainRate converts "200 Mbit/s" to "200mbit". The space and the "/s" are optional, and the prefix
// may be upper or lower case.
func plainRate(text string) string {
	plain := strings.TrimSuffix(text, "/s")
	number, found := strings.CutSuffix(plain, "bit")
	if !found {
		return text
	}
	prefix := ""
	if last := len(number) - 1; last >= 0 && strings.Contains("kmgtMGT", number[last:]) {
		number, prefix = number[:last], strings.ToLower(number[last:])
	}
	number = strings.TrimSuffix(number, " ")
	if number == "" || !strings.Contains("0123456789", number[len(number)-1:]) {
		return text
	}
	return number + prefix + "bit"
}

// String prints the largest unit in which the rate is a whole number.
func (r Rate) String() string { return format(uint64(r), rateSuffixes) }

// MarshalText implements encoding.TextMarshaler.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// Form describes the values in files.
func (Rate) Form() string { return "a rate such as 1gbit" }

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *Rate) UnmarshalText(text []byte) (err error) {
	*r, err = ParseRate(string(text))
	return err
}

// BytesPerSecond returns the rate in bytes per second, rounded down.
func (r Rate) BytesPerSecond() uint64 { return uint64(r) / 8 }

// SerialisationTime returns the time for which n bytes occupy a link of this rate, rounded up to a
// nanosecond. A rate of zero is unlimited and takes no time.
func (r Rate) SerialisationTime(n Bytes) time.Duration {
	if r == 0 {
		return 0
	}
	high, low := bits.Mul64(uint64(n), 8*uint64(time.Second))
	low, carry := bits.Add64(low, uint64(r)-1, 0) // to round up
	if high += carry; high >= uint64(r) {
		return math.MaxInt64
	}
	whole, _ := bits.Div64(high, low, uint64(r))
	return time.Duration(min(whole, math.MaxInt64))
}

// ParseBytes parses "1500B", "40KB", "16MiB". A bare number is refused: units
// are always written.
func ParseBytes(text string) (Bytes, error) {
	value, ok := scaled(text, byteSuffixes)
	if !ok {
		return 0, fmt.Errorf("size %q: want a number with B, KB, MB, GB, KiB, MiB or GiB, as in 40KB", text)
	}
	return Bytes(value), nil
}

// String prints the largest unit in which the size is a whole number, binary
// units first.
func (b Bytes) String() string {
	binary := format(uint64(b), []suffix{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}})
	decimal := format(uint64(b), []suffix{{"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"B", 1}})
	if len(decimal) < len(binary) {
		return decimal
	}
	return binary
}

// MarshalText implements encoding.TextMarshaler.
func (b Bytes) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// Form describes the values in files.
func (Bytes) Form() string { return "a size such as 40KB" }

// UnmarshalText implements encoding.TextUnmarshaler.
func (b *Bytes) UnmarshalText(text []byte) (err error) {
	*b, err = ParseBytes(string(text))
	return err
}

// durationSuffixes are tried in order, so that "ms" is not read as minutes.
var durationSuffixes = []suffix{
	{"ns", 1}, {"us", 1e3}, {"µs", 1e3}, {"μs", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"m", 60e9}, {"h", 3600e9},
}

// ParseDuration parses "10us", "1.5s" or "1m30s": the notation of time.ParseDuration without signs.
// It parses exactly: 0.5ns is refused, not rounded to 0.
func ParseDuration(text string) (Duration, error) {
	bad := fmt.Errorf("duration %q: want a number with ns, us, ms, s, m or h, as in 10us", text)
	if text == "" || len(text) > 100 {
		return 0, bad
	}
	sum := new(big.Rat)
	for rest := text; rest != ""; {
		digits := len(rest) - len(strings.TrimLeft(rest, "0123456789."))
		value, ok := decimal(rest[:digits])
		if !ok {
			return 0, bad
		}
		rest = rest[digits:]
		i := slices.IndexFunc(durationSuffixes, func(s suffix) bool {
			return strings.HasPrefix(rest, s.text)
		})
		if i < 0 {
			return 0, bad
		}
		rest = rest[len(durationSuffixes[i].text):]
		sum.Add(sum, value.Mul(value, new(big.Rat).SetUint64(durationSuffixes[i].scale)))
	}
	if !sum.IsInt() || !sum.Num().IsInt64() {
		return 0, bad
	}
	return Duration(sum.Num().Int64()), nil
}

// String returns the duration in ASCII, "10us" rather than "10µs", so that the output can be pasted
// into a file.
func (d Duration) String() string {
	return strings.Replace(time.Duration(d).String(), "µs", "us", 1)
}

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// Form describes the values in files.
func (Duration) Form() string { return "a duration such as 10us" }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) (err error) {
	*d, err = ParseDuration(string(text))
	return err
}

// ParseRatio parses a share from 0 to 1, both inclusive: "0.1%", "1/1000" or "1e-12". A bare number other
// than 0 is refused because it is ambiguous: tc(8) reads "loss 1" as 1%, while a probability of 1 is 100%.
// Numbers with an exponent are probabilities of at most 1e-3: bit error ratios are written so.
func ParseRatio(text string) (Ratio, error) {
	bad := fmt.Errorf("ratio %q: want a share between 0%% and 100%%, as in 0.1%%, 1/1000 or 1e-12", text)
	if value, is := scientific(text); is {
		r, fits := ratioOf(value)
		switch {
		case !fits:
			return Ratio{}, bad
		case value.Cmp(big.NewRat(1, 1000)) > 0:
			return Ratio{}, fmt.Errorf("ratio %q: want %s", text, r)
		}
		return r, nil
	}
	number, percent := strings.CutSuffix(text, "%")
	value, ok := fraction(number)
	if !ok || percent && strings.Contains(number, "/") {
		return Ratio{}, bad
	}
	one := big.NewRat(1, 1)
	switch {
	case percent:
		value.Quo(value, big.NewRat(100, 1))
	case value.Sign() > 0 && value.Cmp(one) <= 0 && !strings.Contains(number, "/"):
		whole := new(big.Rat).Mul(value, big.NewRat(100, 1))
		digits, _ := whole.FloatPrec()
		return Ratio{}, fmt.Errorf("ratio %q: want %s%% or %s%%, because a bare number can mean either", text,
			number, whole.FloatString(digits))
	case value.Sign() > 0 && value.Cmp(big.NewRat(100, 1)) <= 0 && !strings.Contains(number, "/"):
		return Ratio{}, fmt.Errorf("ratio %q: want %s%%", text, number)
	}
	r, fits := ratioOf(value)
	if !fits {
		return Ratio{}, bad
	}
	return r, nil
}

// ratioOf returns a value as a ratio, if it is at most 1 and its terms fit into 64 bits.
func ratioOf(value *big.Rat) (Ratio, bool) {
	if value.Num().CmpAbs(value.Denom()) > 0 || !value.Denom().IsUint64() {
		return Ratio{}, false
	}
	return Ratio{Num: value.Num().Uint64(), Den: value.Denom().Uint64()}, true
}

// scientific parses a decimal number with a negative exponent of one or two digits, as in 2.5e-13 or 1E-09.
func scientific(text string) (*big.Rat, bool) {
	mantissa, exponent, found := strings.Cut(strings.ToLower(text), "e-")
	value, ok := decimal(mantissa)
	digits, err := strconv.ParseUint(exponent, 10, 64)
	if !found || !ok || err != nil || len(exponent) > 2 {
		return nil, false
	}
	power := new(big.Int).Exp(big.NewInt(10), new(big.Int).SetUint64(digits), nil)
	return value.Quo(value, new(big.Rat).SetInt(power)), true
}

// fraction parses a decimal number, or two with a slash between them.
func fraction(text string) (*big.Rat, bool) {
	over, under, slash := strings.Cut(text, "/")
	value, ok := decimal(over)
	if !ok || !slash {
		return value, ok
	}
	divisor, ok := decimal(under)
	if !ok || divisor.Sign() == 0 {
		return nil, false
	}
	return value.Quo(value, divisor), true
}

// IsZero reports whether the ratio is zero or not set.
func (r Ratio) IsZero() bool { return r.Num == 0 }

// Of returns the ratio of n bytes, rounded down, and at most n.
func (r Ratio) Of(n Bytes) Bytes { return min(Factor(r).Times(n), n) }

// Float returns the nearest float64, for printing and plots only.
func (r Ratio) Float() float64 {
	if r.IsZero() {
		return 0
	}
	return float64(r.Num) / float64(r.Den)
}

// String returns a percentage if that is exact in a few digits, else a fraction. Below 1e-6 it returns a
// decimal number with an exponent in place of a percentage.
func (r Ratio) String() string {
	if r.IsZero() {
		return "0%"
	}
	value := new(big.Rat).SetFrac(new(big.Int).SetUint64(r.Num), new(big.Int).SetUint64(r.Den))
	if value.Cmp(big.NewRat(1, 1e6)) < 0 {
		if text, exact := exponential(value); exact {
			return text
		}
		return fmt.Sprintf("%d/%d", r.Num, r.Den)
	}
	percent := value.Mul(value, big.NewRat(100, 1))
	if digits, exact := percent.FloatPrec(); exact && digits <= 12 {
		return percent.FloatString(digits) + "%"
	}
	return fmt.Sprintf("%d/%d", r.Num, r.Den)
}

// exponential formats a number below 1 as 1e-9 or 2.5e-13, if that is exact in a few digits.
func exponential(value *big.Rat) (string, bool) {
	places, exact := value.FloatPrec()
	_, digits, _ := strings.Cut(value.FloatString(places), ".")
	digits = strings.TrimLeft(digits, "0")
	if !exact || len(digits) > 12 {
		return "", false
	}
	exponent := places - len(digits) + 1
	if len(digits) > 1 {
		digits = digits[:1] + "." + digits[1:]
	}
	return fmt.Sprintf("%se-%d", digits, exponent), true
}

// MarshalText implements encoding.TextMarshaler.
func (r Ratio) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// Form describes the values in files.
func (Ratio) Form() string { return "a share such as 0.1%" }

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *Ratio) UnmarshalText(text []byte) (err error) {
	*r, err = ParseRatio(string(text))
	return err
}
